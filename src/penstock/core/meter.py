"""Counts of an operator's work, which reports show and simulated clocks charge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from penstock.core.rows import Indices

Granularity = Literal["tuple", "block"]
"""Whether rows that look for partners do so one at a time or a block at a time."""


class Meter(Protocol):
    """Receives counts of work as it is done."""

    def compute(self, comparisons: int = 0, chain_nodes: int = 0) -> None:
        """Count pairs of rows that a nested loop would compare, and nodes of hash chains that it would walk."""
        ...

    def probe(self, pending: Indices, stored: Indices, by: Granularity) -> None:
        """Count rows that probed others for partners, partition by partition (or block by block)."""
        ...

    def defer(self, results: int) -> None:
        """Count results that are emitted after the epoch in which the later of their rows arrived."""
        ...

    def aggregate(self, updates: int = 0, panes: int = 0, partials: int = 0) -> None:
        """Count updated partials of windows, panes that were read, and partials of these."""
        ...

    def lift(self, rows: int, partials: int) -> None:
        """Count rows, and the partials of panes and groups that they became."""
        ...


@dataclass(slots=True)
class Tally:
    """A meter that only counts.

    >>> tally = Tally()
    >>> tally.compute(comparisons=12)
    >>> tally.probe(np.array([2, 1]), np.array([5, 4]), by="tuple")
    >>> tally.comparisons, tally.deferred
    (26, 0)
    """

    comparisons: int = 0
    chain_nodes: int = 0
    deferred: int = 0
    updates: int = 0
    panes: int = 0
    partials: int = 0
    rows_lifted: int = 0
    lifted: int = 0

    def compute(self, comparisons: int = 0, chain_nodes: int = 0) -> None:
        """Add them up."""
        self.comparisons += comparisons
        self.chain_nodes += chain_nodes

    def probe(self, pending: Indices, stored: Indices, by: Granularity) -> None:
        """Add up what nested loops would compare."""
        self.comparisons += int(np.dot(pending, stored))

    def defer(self, results: int) -> None:
        """Add them up."""
        self.deferred += results

    def aggregate(self, updates: int = 0, panes: int = 0, partials: int = 0) -> None:
        """Add them up."""
        self.updates += updates
        self.panes += panes
        self.partials += partials

    def lift(self, rows: int, partials: int) -> None:
        """Add them up."""
        self.rows_lifted += rows
        self.lifted += partials
