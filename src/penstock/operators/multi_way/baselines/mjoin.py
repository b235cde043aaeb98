"""MJoin: one hash table per stream on a shared key; an arrival probes the others in a fixed order until one fails.

An arrival that has a partner in every store makes the results of them all; one that has none in some store stops there:
with n streams that takes about (n - 1) / 2 probes if all are as likely to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.core.errors import ConfigError
from penstock.core.operator import Out
from penstock.core.rows import Indices
from penstock.operators.multi_way.expansion import Arrivals
from penstock.operators.multi_way.linear import LinearJoin
from penstock.operators.multi_way.methods import MultiJoinMethod


@dataclass(frozen=True, slots=True)
class MJoin(MultiJoinMethod):
    """In which `order` the stores are probed, by the numbers of all ports; as the streams are given if left out."""

    order: tuple[int, ...] = ()

    def check(self, ports: int) -> None:
        """Every port is named once."""
        if self.order and sorted(self.order) != list(range(ports)):
            raise ConfigError(f"order={self.order!r} must name each of the ports 0 to {ports - 1} once.")


class MJoinJoin(LinearJoin):
    """MJoin on one shard (spec multi-way §2.12, F30)."""

    def _meet(self, arrivals: Arrivals) -> Iterator[Out]:
        yield from self._probe(arrivals, arrivals.every)

    def _probe(self, arrivals: Arrivals, left: Indices) -> Iterator[Out]:
        """Let some arrivals probe until a store fails them, and make the results of those that are left."""
        order = self._order(arrivals.port)
        for place, port in enumerate(order):
            found = self._expansion.count(arrivals, left, self._stores, port) > 0
            self._counts["probes"] += left.size
            self._failed(left.size - int(np.count_nonzero(found)), after=place + 1)
            left = left[found]
        # An arrival knows its partners in each store from its probe: putting them together takes no others.
        before = self._expansion.probes
        yield from self._expansion.results(arrivals, left, self._stores, order)
        self._expansion.probes = before

    def _order(self, port: int) -> list[int]:
        parameters = self._config.parameters
        fixed = parameters.order if isinstance(parameters, MJoin) and parameters.order else self._ports
        return [other for other in fixed if other != port]

    def _failed(self, arrivals: int, after: int) -> None:
        """Some arrivals turned out to have no result."""
        self._counts["failed"] += arrivals
        self._counts["probes to failure"] += arrivals * after
