"""BiStream, the join-biclique: units in two groups, each of which stores the rows of one stream and no others.

A router sends every row to one unit of its own side, which stores it, and to all units of the other side, which probe
what they store with it: each unit joins what comes by. Any predicate could be asked there, as any two rows meet; a row
is stored once, and is sent once more for every unit of the other side. Units are partitions of one shard here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.core.checks import is_whole
from penstock.core.errors import ConfigError
from penstock.core.operator import Out
from penstock.core.pages import Page, write_page
from penstock.operators.multi_way.expansion import Arrivals
from penstock.operators.multi_way.linear import LinearJoin
from penstock.operators.multi_way.methods import MultiJoinMethod
from penstock.operators.multi_way.stores import Stores


@dataclass(frozen=True, slots=True)
class BiStream(MultiJoinMethod):
    """How many `units` each side has."""

    units: int = 4

    two_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_whole(self.units) or self.units < 1:
            raise ConfigError(f"units={self.units!r} must be 1 or more.")


class BiStreamJoin(LinearJoin):
    """BiStream on one shard (spec multi-way §2.12, F30)."""

    def _take_up(self, pages: Sequence[Page], meta: dict[str, Any]) -> None:
        """Deal pages out to the units of their side, whoever made them: any unit may store any row of its side."""
        parameters = self._config.parameters
        count = parameters.units if isinstance(parameters, BiStream) else 1
        self._units = tuple([Stores(2, self._pages) for _ in range(count)] for _ in self._ports)
        self._routed = 0
        for place, page in enumerate(pages):
            self._units[page.kind][place % count].hold([page])

    def _stores_of(self, port: int) -> list[Stores]:
        return self._units[port]

    def _meet(self, arrivals: Arrivals) -> Iterator[Out]:
        """The joiner layer: every unit of the other side gets a copy of each row, and probes with it."""
        other = 1 - arrivals.port
        self._counts["messages"] += arrivals.rows.num_rows * (1 + len(self._units[other]))
        for unit in self._units[other]:
            yield from self._expansion.results(arrivals, arrivals.every, unit, (other,))

    def _keep(self, arrivals: Arrivals) -> None:
        """The router: rows are dealt out, whatever their key, so that hot keys spread over all units."""
        units = self._units[arrivals.port]
        turn = (self._routed + np.arange(arrivals.rows.num_rows)) % len(units)
        self._routed += arrivals.rows.num_rows
        for place, unit in enumerate(units):
            mine = np.flatnonzero(turn == place)
            if mine.size:
                unit.hold([write_page(self._pages, arrivals.port, arrivals.taken(mine).rows)])
