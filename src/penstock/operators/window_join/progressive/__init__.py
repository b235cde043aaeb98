"""Joins without a window: every pair ever, with the rows in memory that bring most results."""
