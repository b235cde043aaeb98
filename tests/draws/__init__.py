"""Random cases over everything a user can combine, each from one seed, and what they must give by DuckDB."""
