"""Keep pages few: merge the small ones that short epochs leave, and rewrite large ones that are half dead.

Pages are merged with their neighbours in time and of like size, four at a time, so that a row is rewritten only
log₄ times in its life, probes stay few, and whole pages still expire at once. Nothing here reads a page that
does not change.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import hashes_of, times_of
from penstock.kernels.sort import page_order

FAN = 4
"""How many pages of like size make a larger one."""

_SORTING = 32
"""Bytes that sorting takes per row."""


def compact(pages: Iterable[Page], store: PageStore, budget: Budget) -> tuple[Page, ...]:
    """The same rows (but for those below their floor) in fewer pages; as many as the budget has room to merge."""
    compacted: list[Page] = []
    by_port: dict[int, list[Page]] = {}
    for page in pages:
        by_port.setdefault(page.port, []).append(page)
    for ours in by_port.values():
        ours.sort(key=lambda page: (page.min_time, page.max_time))
        for group in _groups(ours):
            compacted += _merge(group, store, budget) if _worth_it(group, ours) else group
    return tuple(compacted)


def _groups(pages: list[Page]) -> list[list[Page]]:
    """Runs of `FAN` neighbours or more whose rows are at least twice those of the largest; the rest alone.

    So a row that is rewritten lands in a page at least twice as large, whatever the sizes of the others.
    """
    groups: list[list[Page]] = []
    first = 0
    while first < len(pages):
        end = _run(pages, first)
        groups.append(pages[first:end])
        first = end
    return groups


def _run(pages: list[Page], first: int) -> int:
    total = largest = 0
    for place in range(first, len(pages)):
        total, largest = total + pages[place].rows, max(largest, pages[place].rows)
        if place - first + 1 >= FAN and total >= 2 * largest:
            return place + 1
    return first + 1


def _worth_it(group: list[Page], pages: list[Page]) -> bool:
    return len(group) > 1 or (_half_dead(group[0]) and group[0].rows >= FAN * pages[-1].rows)


def _half_dead(page: Page) -> bool:
    return 2 * (page.floor - page.min_time) >= page.max_time - page.min_time + 1


def _merge(group: list[Page], store: PageStore, budget: Budget) -> list[Page]:
    size = sum(3 * page.nbytes + _SORTING * page.rows for page in group)
    if size > budget.room // 2:
        return group
    merged: list[Page] = []
    with budget.hold(size, "merging pages"):
        parts, marks = zip(*(_alive(page, store) for page in group), strict=True)
        rows, met = pa.concat_batches(parts), np.concatenate(marks)
        if rows.num_rows:
            order = page_order(hashes_of(rows), times_of(rows))
            kept = None
            if met.any():
                kept = store.put(pa.RecordBatch.from_arrays([pa.array(met[order])], names=["met"]))
            merged = [write_page(store, group[0].port, rows.take(pa.array(order)), marks=kept)]
    for page in group:
        for name in (page.name, page.marks):
            if name is not None:
                store.drop(name)
    return merged


def _alive(page: Page, store: PageStore) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    rows = read_page(store, page)
    marks = np.zeros(page.rows, np.bool_)
    if page.marks is not None:
        marks = store.get(page.marks).column(0).to_numpy(zero_copy_only=False)[page.begin : page.end]
    alive = times_of(rows) >= page.floor
    if alive.all():
        return rows, marks
    return rows.filter(pa.array(alive)), marks[alive]
