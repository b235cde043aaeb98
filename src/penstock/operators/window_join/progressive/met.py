"""Who has met whom: the rule by which each pair of a join without a window comes out once (spec §2.1, done()).

It goes by what a page's log says: when rows came (ATS), when they left memory (DTS), when they met others from disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.core.pages import Page, PageStore, ProbeLog, read_page
from penstock.core.rows import Indices, hashes_of, times_of
from penstock.kernels.sort import page_order
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.slabs import Slab

FOREVER = 1 << 62
"""When rows leave memory that are there."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Rows of some pages, sorted as one, and what is known of whom they have met.

    `page` says which of the pages a row is of; `met` and `scans` are those of the pages.
    """

    rows: pa.RecordBatch
    arrived: Indices
    left: Indices
    page: Indices
    met: Indices
    scans: Indices
    marks: Mask | None

    @classmethod
    def in_memory(cls, slab: Slab) -> Known:
        """Rows that have not left memory."""
        page, left = (np.broadcast_to(np.int64(value), slab.rows) for value in (0, FOREVER))
        never = np.zeros(1, np.int64)
        return cls(slab.batch, slab.births, left, page, never, np.zeros((1, 0), np.int64), slab.met)

    @classmethod
    def on_disk(cls, store: PageStore, pages: Sequence[Page], marked: bool, unsorted: bool = False) -> Known:
        """The rows of some pages that have left memory; whether they have met anyone, if that is `marked`.

        Those of several pages are sorted as one, unless they may be `unsorted`.
        """
        store = _Opened(store)
        logs = [log_of(page) for page in pages]
        batches = [read_page(store, page) for page in pages]
        arrived = np.concatenate([arrivals(store, page) for page in pages])
        left = np.concatenate([leavings(store, page) for page in pages])
        marks = np.concatenate([read_marks(store, page) for page in pages]) if marked else None
        which = np.repeat(np.arange(len(pages)), [page.rows for page in pages])
        most = max(len(log.scans) for log in logs)
        scans = np.array([(*log.scans, *[0] * (most - len(log.scans))) for log in logs], np.int64)
        met = np.array([log.met for log in logs])
        if len(pages) == 1:
            return cls(batches[0], arrived, left, which, met, scans, marks)
        whole = pa.concat_batches(batches)
        if unsorted:
            return cls(whole, arrived, left, which, met, scans, marks)
        order = page_order(hashes_of(whole), times_of(whole))
        marks = None if marks is None else marks[order]
        return cls(whole.take(pa.array(order)), arrived[order], left[order], which[order], met, scans, marks)


def done(mine: Known, i: Indices, theirs: Known, j: Indices) -> Mask:
    """Which of the pairs (my row, their row) have met."""
    p, q = mine.page[i], theirs.page[j]
    came, others_came = mine.arrived[i], theirs.arrived[j]
    left, others_left = mine.left[i], theirs.left[j]
    met: Mask = np.maximum(came, others_came) < np.minimum(left, others_left)
    met |= _scanned(mine.scans, p, others_came, others_left) | _scanned(theirs.scans, q, came, left)
    met |= (mine.met[p] > others_left) | (theirs.met[q] > left)
    return met


def _scanned(scans: Indices, page: Indices, came: Indices, left: Indices) -> Mask:
    """Which pages met, from disk, rows that were in memory from when they `came` until they `left`."""
    met = np.zeros(page.size, np.bool_)
    for column in scans.T:
        at = column[page]
        met |= (came < at) & (at < left)
    return met


def have_met(mine: Page, theirs: Page) -> bool:
    """Whether two pages on disk have met there, as a whole."""
    one, other = log_of(mine), log_of(theirs)
    return one.met > other.left or other.met > one.left


def scanned(page: Page, at: int, others: Sequence[Page]) -> Page:
    """The page, which has just met what is in memory; rows of `others` have left it.

    Of two scans the earlier one says nothing more if no row left between them that has not met the page on disk.
    """
    log = log_of(page)
    kept = [
        scan
        for scan, after in pairwise((*log.scans, at))
        if any(first_left(other) < after and log_of(other).left > max(scan, log.met) for other in others)
    ]
    return replace(page, log=replace(log, scans=(*kept, at)))


def log_of(page: Page) -> ProbeLog:
    """The log of a page; one that a join left which puts nothing off has met all that was there with it."""
    return page.log or ProbeLog(newest=0, left=1, met=2)


def first_left(page: Page) -> int:
    """When the first row of a page left memory; 0 if some never were there."""
    log = log_of(page)
    return 0 if log.newest >= log.left else log.first or log.left


def latest_tick(page: Page) -> int:
    """The last moment that a page knows of."""
    log = log_of(page)
    return max(log.newest, log.left, log.met, *log.scans, 0)


def arrivals(store: PageStore, page: Page) -> Indices:
    """When each row of a page came."""
    log = log_of(page)
    if log.births is None:
        return np.full(page.rows, log.newest, np.int64)
    return store.get(log.births).column(0).to_numpy()[page.begin : page.end]  # type: ignore[no-any-return]


def leavings(store: PageStore, page: Page) -> Indices:
    """When each row of a page left memory."""
    log = log_of(page)
    if not log.first or log.births is None:
        return np.broadcast_to(np.int64(log.left), page.rows)
    return store.get(log.births).column("left").to_numpy()[page.begin : page.end]  # type: ignore[no-any-return]


def read_hits(store: PageStore, page: Page) -> Indices:
    """How many results each row of a page has had, as far as that was counted."""
    births = log_of(page).births
    kept = None if births is None else store.get(births)
    if kept is None or "results" not in kept.schema.names:
        return np.zeros(page.rows, np.int64)
    return kept.column("results").to_numpy()[page.begin : page.end].copy()  # type: ignore[no-any-return]


def read_marks(store: PageStore, page: Page) -> Mask:
    """Which rows of a page have met anyone."""
    if page.marks is None:
        return np.zeros(page.rows, np.bool_)
    return store.get(page.marks).column(0).to_numpy(zero_copy_only=False)[page.begin : page.end].copy()  # type: ignore[no-any-return]


def marked(store: PageStore, page: Page, marks: Mask) -> Page:
    """The page with these marks."""
    if page.marks is not None:
        store.drop(page.marks)
    if not marks.any():
        return replace(page, marks=None)
    whole = np.concatenate([np.zeros(page.begin, np.bool_), marks])
    return replace(page, marks=store.put(pa.RecordBatch.from_arrays([pa.array(whole)], names=["met"])))


class _Opened:
    """A store that keeps what was read: pages that share a batch open it once."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._read: dict[str, pa.RecordBatch] = {}

    def get(self, name: str) -> pa.RecordBatch:
        if name not in self._read:
            self._read[name] = self._store.get(name)
        return self._read[name]

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        return self._store.put(rows, segment)

    def drop(self, name: str) -> None:
        self._store.drop(name)
