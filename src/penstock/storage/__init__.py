"""Page stores: in memory, on files, and versioned with a ledger."""
