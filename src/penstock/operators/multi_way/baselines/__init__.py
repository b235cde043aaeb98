"""Multi-way joins to compare with, which ``method="auto"`` never picks."""
