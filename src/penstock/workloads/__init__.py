"""Seeded generators of streams."""
