"""Aggregations to compare with, which ``method="auto"`` never picks."""
