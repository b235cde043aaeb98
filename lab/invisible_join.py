"""The invisible join of a star: bit vectors over the rows of the fact table, their AND, then the rows that are left.

A small reference implementation (spec multi-way §2.12). It is no operator: it joins by another key for each dimension,
and it must have the whole fact table, column by column, before it can tell the position of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Indices
from penstock.kernels.segments import Mask

Columns = Mapping[str, npt.NDArray[Any]]
"""A table, column by column."""


class Dimension(NamedTuple):
    """A dimension: which column of the fact table refers to its `key`, and which of its rows qualify."""

    foreign_key: str
    table: Columns
    key: str
    qualifies: Callable[[Columns], Mask]


class Star(NamedTuple):
    """The rows of the star join: places in the fact table and, dimension by dimension, in its table."""

    fact: Indices
    dimensions: tuple[Indices, ...]
    order: tuple[int, ...]
    """The dimensions as their bit vectors were combined: the most selective first."""
    tested: tuple[int, ...]
    """In that order, how many rows were still set when a vector was combined with those before it."""
    fetched: int
    """How many cells of foreign keys were read a second time, to fetch the rows of dimensions."""


def invisible_join(fact: Columns, dimensions: Sequence[Dimension]) -> Star:
    """Join a fact table with dimensions whose keys are unique; null, as NaN, refers to nothing.

    >>> items = {"shop": np.array([1, 2, 1, 9]), "day": np.array([5, 5, 6, 5])}
    >>> shops = Dimension("shop", {"id": np.array([1, 2])}, "id", lambda shops: shops["id"] < 2)
    >>> days = Dimension("day", {"id": np.array([6, 5])}, "id", lambda days: days["id"] > 0)
    >>> star = invisible_join(items, [days, shops])
    >>> star.fact, star.dimensions, star.order
    (array([0, 2]), (array([1, 0]), array([0, 0])), (1, 0))
    """
    vectors = [_bits(fact[each.foreign_key], each) for each in dimensions]
    order = sorted(range(len(vectors)), key=lambda place: (int(vectors[place].sum()), place))
    rows = len(next(iter(fact.values())))
    left: Mask = np.ones(rows, np.bool_)
    tested: list[int] = []
    for place in order:
        tested.append(int(left.sum()))
        left &= vectors[place]
    places = np.flatnonzero(left)
    found = tuple(_positions(fact[each.foreign_key][places], each) for each in dimensions)
    return Star(places, found, tuple(order), tuple(tested), places.size * len(dimensions))


def _bits(foreign_keys: npt.NDArray[Any], dimension: Dimension) -> Mask:
    """One bit per row of the fact table: whether it refers to a row of the dimension that qualifies."""
    keys = dimension.table[dimension.key][dimension.qualifies(dimension.table)]
    return np.isin(foreign_keys, keys)


def _positions(foreign_keys: npt.NDArray[Any], dimension: Dimension) -> Indices:
    """The rows of a dimension that some foreign keys, all of which are there, refer to."""
    keys = dimension.table[dimension.key]
    order = np.argsort(keys, kind="stable")
    positions: Indices = order[np.searchsorted(keys, foreign_keys, sorter=order)]
    return positions
