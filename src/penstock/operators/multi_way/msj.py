"""Linear MSJ: arrivals probe the stores of all other streams, one after the other, the best order being measured.

It keeps no intermediate results: what two streams have in common is found anew for each row of a third. Every few
arrivals one is looked up in all stores; from the matches of the latest of these follows the order (`probe_order`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.operator import Out
from penstock.core.pages import Page
from penstock.operators.multi_way.expansion import Arrivals
from penstock.operators.multi_way.linear import LinearJoin
from penstock.operators.multi_way.methods import MultiJoinMethod
from penstock.operators.multi_way.probe_order import Matches, probe_order

_EVERY = 16
"""One of so many arrivals is looked up in all stores, at most."""

_LATEST = 32
"""So many of those tell the order."""


@dataclass(frozen=True, slots=True)
class Msj(MultiJoinMethod):
    """The linear MSJ has no parameters."""


class MSJoin(LinearJoin):
    """The linear MSJ on one shard (spec multi-way §2.2, F25)."""

    def order(self, port: int) -> tuple[int, ...]:
        """In which order rows of a port probe the others' stores now."""
        return probe_order(port, self._matches[port])

    def _take_up(self, pages: Sequence[Page], meta: dict[str, Any]) -> None:
        super()._take_up(pages, meta)
        known = meta.get("matches", [[] for _ in self._ports])
        self._matches: list[Matches] = [np.array(rows, float).reshape(-1, len(self._ports)) for rows in known]
        self._passed: list[int] = meta.get("passed", [0 for _ in self._ports])

    def _meta(self) -> dict[str, Any]:
        return {"matches": [rows.astype(int).tolist() for rows in self._matches], "passed": self._passed}

    def _meet(self, arrivals: Arrivals) -> Iterator[Out]:
        if len(self._ports) > 2:
            self._measure(arrivals)
        yield from self._expansion.results(arrivals, arrivals.every, self._stores, self.order(arrivals.port))

    def _measure(self, arrivals: Arrivals) -> None:
        """Look some arrivals up in all stores."""
        port, count = arrivals.port, arrivals.rows.num_rows
        step = max(_EVERY, count // _LATEST)
        some = np.arange(min(count, -self._passed[port] % _EVERY), count, step)
        self._passed[port] = (self._passed[port] + count) % _EVERY
        if not some.size:
            return
        matches = np.zeros((some.size, len(self._ports)))
        for other in self._others(port):
            matches[:, other] = self._expansion.count(arrivals, some, self._stores, other)
        self._counts["samples"] += len(matches)
        self._matches[port] = np.concatenate([self._matches[port], matches])[-_LATEST:]
