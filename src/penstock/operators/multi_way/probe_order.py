"""In which order the rows of one stream probe the stores of the others: by the matches that a few of them found.

A row that arrives probes a store, what matches probes the next, and so on. The last store gives the results, whatever
the order; what an order decides is how many partial results probe on the way. Rows of one stream that were looked up
in every store tell how many it takes: as all stores are probed by the same key, the partials of a row after some stores
are the product of its matches there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np
import numpy.typing as npt

MOST_EXHAUSTIVE = 6
"""Up to so many streams every order is tried; of more, each next store is the one that leaves the fewest partials."""

Matches = npt.NDArray[np.float64]
"""Rows of one stream × ports: how many rows of each other port's store a row matches."""

Order = tuple[int, ...]
"""Ports in the order in which they are probed."""


def probe_order(origin: int, matches: Matches) -> Order:
    """The best order for rows of port `origin`, of which some had these matches; ties go to smaller port numbers.

    >>> probe_order(1, np.array([[3.0, 0, 1, 2], [5.0, 0, 0, 9]]))
    (2, 3, 0)
    """
    ports = matches.shape[1]
    others = [port for port in range(ports) if port != origin]
    return _best(others, matches) if ports <= MOST_EXHAUSTIVE else _greedy(others, matches)


def expected_partials(order: Iterable[int], matches: Matches) -> float:
    """How many partials of a row probe the second store, the third and so on, on average, all together.

    >>> expected_partials((0, 2, 3), np.array([[3.0, 0, 1, 2], [5.0, 0, 0, 9]]))
    5.5
    """
    *probing, _ = order
    return sum(_partials(probing[: place + 1], matches) for place in range(len(probing)))


def _best(others: list[int], matches: Matches) -> Order:
    after: dict[frozenset[int], float] = {}

    def partials(visited: Order) -> float:
        seen = frozenset(visited)
        if seen not in after:
            after[seen] = _partials(visited, matches)
        return after[seen]

    orders = permutations(others)
    return min(orders, key=lambda order: sum(partials(order[:place]) for place in range(1, len(order))))


def _greedy(others: list[int], matches: Matches) -> Order:
    order: Order = ()
    while left := [port for port in others if port not in order]:
        order = (*order, min(left, key=lambda port: _partials((*order, port), matches)))
    return order


def _partials(visited: Iterable[int], matches: Matches) -> float:
    """The mean, over rows, of the product of their matches."""
    return float(matches[:, list(visited)].prod(axis=1).mean()) if len(matches) else 0.0
