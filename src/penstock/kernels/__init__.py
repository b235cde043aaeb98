"""Vectorised loops over Arrow and NumPy: match, expand, compare, sort, route. No state, no policy."""
