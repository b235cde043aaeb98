"""The Spark host: epochs, placement, ledger commit, recovery, sinks, metrics. No algorithm."""
