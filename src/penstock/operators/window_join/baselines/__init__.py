"""Window joins to compare with: inner joins of in-order processing that ``method="auto"`` never picks."""
