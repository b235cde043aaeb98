"""What a window costs by each method, counted in updates (Eq 6.1–6.4), and which is the cheapest.

The text's first two terms assume that slide and pane are of one size; here they are scaled by slide / range and
slide / pane.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

Choice = Literal["wid", "paned", "differential"]


@dataclass(frozen=True, slots=True)
class WindowCosts:
    """Updates per window: `rows` in a window, `groups` in a pane; the rest are costs of one update each.

    >>> costs = WindowCosts(range=5, slide=1, rows=100, groups=1)
    >>> round(costs.paned / costs.wid, 2)
    0.26
    """

    range: int
    slide: int
    rows: float
    groups: float
    per_row: float = 1.0
    per_pane: float = 1.0
    per_partial: float = 1.0
    per_window: float = 1.0

    @property
    def pane(self) -> int:
        """The size of a pane."""
        return gcd(self.range, self.slide)

    @property
    def paned(self) -> float:
        """Rows once, partials of every pane of the window (Eq 6.1)."""
        return self._by_pane + self.per_partial * self.groups * self.range / self.pane

    @property
    def differential(self) -> float:
        """Rows once, partials of the panes that enter and leave (Eq 6.2)."""
        return self._by_pane + 2 * self.per_partial * self.groups * self.slide / self.pane

    @property
    def wid(self) -> float:
        """Every row in every window (Eq 6.3)."""
        return self.per_window * self.rows

    @property
    def buffering(self) -> float:
        """Rows that enter and leave (Eq 6.4)."""
        return 2 * self.per_window * self.rows * self.slide / self.range

    def cheapest(self, subtracts: bool) -> Choice:
        """The method with the fewest updates; only aggregates that can be undone may slide by subtraction."""
        costs: dict[Choice, float] = {"wid": self.wid, "paned": self.paned}
        if subtracts:
            costs["differential"] = self.differential
        return min(costs, key=lambda choice: costs[choice])

    @property
    def _by_pane(self) -> float:
        rows = self.per_row * self.rows * self.slide / self.range
        return rows + self.per_pane * self.groups * self.slide / self.pane
