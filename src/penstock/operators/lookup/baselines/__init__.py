"""Lookup joins to compare with: caches of whole pages, which ``method="auto"`` never picks."""
