"""Window aggregation: every window type over disordered streams, by windows, by panes, per group as it pays."""
