"""How much of what is measured is the newest epoch's."""

from __future__ import annotations

SMOOTHING = 0.3
"""The weight of the newest epoch in what is measured: of one that lies ten epochs back, 3 % are left."""
