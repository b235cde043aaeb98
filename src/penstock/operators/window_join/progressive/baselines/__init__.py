"""Policies that nobody should pick, to compare with."""
