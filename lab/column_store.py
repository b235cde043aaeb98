"""Materialization in a column store: rows stitched before the predicates, after some of them, or after all.

Small reference implementations of what late materialization of streams goes back to (spec multi-way §2.12), with the
work that tells them apart: rows that are stitched together from columns, and cells that are read a second time.
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

Filter = tuple[str, Callable[[npt.NDArray[Any]], Mask]]
"""A predicate on one column."""


class Stitched(NamedTuple):
    """The places of the rows that pass, how many rows were stitched, and how many cells were read again for it."""

    places: Indices
    stitched: int
    read_again: int


class Joined(NamedTuple):
    """The places of each pair on both sides, how many rows were stitched, and how many cells were read again."""

    left: Indices
    right: Indices
    stitched: int
    read_again: int


def early(table: Columns, filters: Sequence[Filter]) -> Stitched:
    """Stitch every row, then filter.

    >>> early({"a": np.array([1, 2, 3]), "b": np.array([7, 8, 9])}, [("a", lambda a: a > 1), ("b", lambda b: b < 9)])
    Stitched(places=array([1]), stitched=3, read_again=0)
    """
    rows = len(next(iter(table.values())))
    return Stitched(np.flatnonzero(_all(table, filters, rows)), rows, 0)


def full_late(table: Columns, filters: Sequence[Filter]) -> Stitched:
    """A bit vector for each predicate, their AND, then stitch what is left: its filtered columns are read again.

    >>> table = {"a": np.array([1, 2, 3]), "b": np.array([7, 8, 9])}
    >>> full_late(table, [("a", lambda a: a > 1), ("b", lambda b: b < 9)])
    Stitched(places=array([1]), stitched=1, read_again=2)
    """
    places = np.flatnonzero(_all(table, filters, len(next(iter(table.values())))))
    return Stitched(places, places.size, places.size * len({name for name, _ in filters}))


def partial_late(table: Columns, filters: Sequence[Filter]) -> Stitched:
    """Stitch rows as soon as they pass the first predicate, and put the others to the rows.

    >>> table = {"a": np.array([1, 2, 3]), "b": np.array([7, 8, 9])}
    >>> partial_late(table, [("a", lambda a: a > 1), ("b", lambda b: b < 9)])
    Stitched(places=array([1]), stitched=2, read_again=2)
    """
    if not filters:
        return early(table, filters)
    built = full_late(table, filters[:1])
    rows = {name: column[built.places] for name, column in table.items()}
    kept = _all(rows, filters[1:], built.places.size)
    return Stitched(built.places[kept], built.stitched, built.read_again)


STITCHINGS = {"early": early, "partial": partial_late, "full": full_late}
"""By name: when rows are stitched."""


def sort_merge(
    left: Columns,
    right: Columns,
    key: str,
    filters: tuple[Sequence[Filter], Sequence[Filter]],
    when: str,
) -> Joined:
    """Deo's sort-merge join: with ``when="full"`` only keys and places are sorted, and results alone are stitched.

    With the others both sides are stitched first, before their predicates or after the first of them.

    >>> one, other = {"k": np.array([3, 1, 2])}, {"k": np.array([2, 3, 3])}
    >>> sort_merge(one, other, "k", ((), ()), "full")
    Joined(left=array([2, 0, 0]), right=array([0, 1, 2]), stitched=6, read_again=6)
    """
    sides = [STITCHINGS[when](table, some) for table, some in zip((left, right), filters, strict=True)]
    one, other = (side.places for side in sides)
    first, second = _merged(left[key][one], right[key][other])
    one, other = one[first], other[second]
    if when != "full":
        return Joined(one, other, sum(side.stitched for side in sides), sum(side.read_again for side in sides))
    # Both rows of each pair: their filtered columns were read for the predicates, and the key for the sort.
    names = [{key, *(name for name, _ in some)} for some in filters]
    return Joined(one, other, one.size + other.size, one.size * sum(map(len, names)))


def _all(table: Columns, filters: Sequence[Filter], rows: int) -> Mask:
    passed = np.ones(rows, np.bool_)
    for name, test in filters:
        passed &= test(table[name])
    return passed


def _merged(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> tuple[Indices, Indices]:
    """The places of all pairs of equal keys, by sorting both sides and walking along."""
    one, other = (np.argsort(keys, kind="stable") for keys in (left, right))
    starts, ends = (np.searchsorted(right[other], left[one], side=side) for side in ("left", "right"))
    counts = ends - starts
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(one, counts), other[np.repeat(starts, counts) + offsets]
