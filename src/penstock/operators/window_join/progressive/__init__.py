"""Joins without a window: every pair ever, with the most productive rows in memory."""
