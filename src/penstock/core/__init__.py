"""The vocabulary: durations, event time, keys, bounds, bands, budget, pages, the operator contract."""
