"""Keeps pages few and probes short: merges the small pages of short epochs, and rewrites large ones that are half dead.

Pages that were merged together are a run: sorted, and cut by hash so that each page could be made within the budget.
An arrival probes the one page of a run that its hash falls into, so a run costs a probe whatever its size. Runs are
merged with their neighbours in time, four or more at once and none larger than the others together, so that a row is
rewritten only a logarithmic number of times in its life and whole runs still expire at once. Nothing here reads a
page that does not change.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, clip_page, names_of, read_page, write_page
from penstock.core.rows import hashes_of, times_of
from penstock.core.time import Time
from penstock.kernels.sort import page_order

FAN = 4
"""How many runs make a larger one, at least."""

_SORTING = 48
"""Bytes that sorting takes per row."""

_LARGEST_RUN = 4
"""A run is at most so many times the budget: rewriting more costs an epoch more than the probes it saves."""

_HASHES = (0, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class _Run:
    """Pages that were made together: neighbours in hash, over the same time."""

    pages: tuple[Page, ...]

    @property
    def rows(self) -> int:
        return sum(page.rows for page in self.pages)

    @property
    def min_time(self) -> Time:
        return min(page.min_time for page in self.pages)

    @property
    def max_time(self) -> Time:
        return max(page.max_time for page in self.pages)


def compact(pages: Iterable[Page], store: PageStore, budget: Budget) -> tuple[Page, ...]:
    """The same rows (but for those below their floor) in fewer runs, made within three quarters of the budget's room.

    Pages that owe joins, or are owed some, are blocks of a method that fills them by itself: they stay as they are.
    A stored batch, or its marks, is dropped once no page uses it: parts of one page may share both.
    """
    pages = list(pages)
    uses = Counter(name for page in pages for name in names_of([page]))
    compacted = [page for page in pages if not _is_plain(page)]
    for runs in _by_port(page for page in pages if _is_plain(page)):
        for group in _groups(runs):
            ours = [page for run in group for page in run.pages]
            merged = _merge(ours, store, budget) if _worth_it(group, runs) else ours
            compacted += merged
            uses.subtract(name for page in ours for name in names_of([page]))
            uses.update(name for page in merged for name in names_of([page]))
            for name in names_of(ours):
                if not uses[name]:
                    store.drop(name)
    return tuple(compacted)


def _is_plain(page: Page) -> bool:
    """Whether a page has nothing to remember, so that it may be merged with others."""
    return page.debts is None and page.log is None


def _by_port(pages: Iterable[Page]) -> list[list[_Run]]:
    """The runs of each port in order of time."""
    parts: dict[tuple[int, str], list[Page]] = {}
    for page in pages:
        parts.setdefault((page.kind, page.maker or f"{page.name}:{page.begin}"), []).append(page)
    ports: dict[int, list[_Run]] = {}
    for (port, _), ours in parts.items():
        ports.setdefault(port, []).append(_Run(tuple(ours)))
    return [sorted(runs, key=lambda run: (run.min_time, run.max_time)) for runs in ports.values()]


def _groups(runs: list[_Run]) -> list[list[_Run]]:
    """Neighbours, `FAN` or more, whose rows are at least twice those of the largest; the rest alone.

    So a row that is rewritten lands in a run at least twice as large, whatever the sizes of the others.
    """
    groups: list[list[_Run]] = []
    first = 0
    while first < len(runs):
        end = _group_end(runs, first)
        groups.append(runs[first:end])
        first = end
    return groups


def _group_end(runs: list[_Run], first: int) -> int:
    total = largest = 0
    for place in range(first, len(runs)):
        total, largest = total + runs[place].rows, max(largest, runs[place].rows)
        if place - first + 1 >= FAN and total >= 2 * largest:
            return place + 1
    return first + 1


def _worth_it(group: list[_Run], runs: list[_Run]) -> bool:
    return len(group) > 1 or (_half_dead(group[0]) and group[0].rows >= FAN * runs[-1].rows)


def _half_dead(run: _Run) -> bool:
    floor = min(page.floor for page in run.pages)
    return 2 * (floor - run.min_time) >= run.max_time - run.min_time + 1


def _merge(pages: list[Page], store: PageStore, budget: Budget) -> list[Page]:
    """One run of `pages`, a range of hashes at a time."""
    if sum(page.nbytes for page in pages) > _LARGEST_RUN * budget.room:
        return pages
    run = uuid.uuid4().hex[:12]
    merged = [replace(page, maker=run) for page in _merge_range(pages, _HASHES, store, budget)]
    if {replace(page, maker=None) for page in merged} == {replace(page, maker=None) for page in pages}:
        return pages
    return merged


def _merge_range(pages: list[Page], hashes: tuple[int, int], store: PageStore, budget: Budget) -> list[Page]:
    """Rows of `pages`, all of which lie within `hashes`, in one page if the budget has room, else halved by hash.

    Halves are always cut at the same places, so that merging again cuts no finer. One hash alone that is too much to
    rewrite stays as it is.
    """
    if _cost(pages) <= budget.room * 3 // 4:
        with budget.hold(_cost(pages), "merging pages"):
            return _rewrite(pages, store)
    if len(pages) < 2 or min(page.min_hash for page in pages) == max(page.max_hash for page in pages):
        return pages
    middle = (hashes[0] + hashes[1]) // 2
    merged: list[Page] = []
    for half in ((hashes[0], middle), (middle + 1, hashes[1])):
        clipped = [clip_page(store, page, *half) for page in pages]
        merged += _merge_range([page for page in clipped if page is not None], half, store, budget)
    return merged


def _cost(pages: Sequence[Page]) -> int:
    """The bytes that rewriting takes: the rows in order, a column as it was and as it grows, and the sorting."""
    return sum(3 * page.nbytes + _SORTING * page.rows for page in pages)


def _rewrite(pages: Sequence[Page], store: PageStore) -> list[Page]:
    if not pages:
        return []
    parts = [read_page(store, page) for page in pages]
    times = np.concatenate([times_of(rows) for rows in parts])
    alive = np.flatnonzero(times >= np.repeat([page.floor for page in pages], [page.rows for page in pages]))
    if not alive.size:
        return []
    hashes = np.concatenate([hashes_of(rows) for rows in parts])
    order = pa.array(alive[page_order(hashes[alive], times[alive])])
    columns = [_whole(parts, place).take(order) for place in range(parts[0].num_columns)]
    met = np.concatenate([_marks(page, store) for page in pages])[order.to_numpy()]
    kept = store.put(pa.RecordBatch.from_arrays([pa.array(met)], names=["met"])) if met.any() else None
    rows = pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)
    return [write_page(store, pages[0].kind, rows, marks=kept)]


def _whole(parts: Sequence[pa.RecordBatch], place: int) -> pa.Array:
    """One column of all the parts."""
    columns = [rows.column(place) for rows in parts]
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _marks(page: Page, store: PageStore) -> npt.NDArray[np.bool_]:
    if page.marks is None:
        return np.zeros(page.rows, np.bool_)
    marks: npt.NDArray[np.bool_] = store.get(page.marks).column(0).to_numpy(zero_copy_only=False)
    return marks[page.begin : page.end]
