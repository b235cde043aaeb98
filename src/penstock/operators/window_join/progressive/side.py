"""One side of a join without a window: the rows in memory, by partition, and the pages of those that have left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.pages import Page, PageStore, ProbeLog, read_page, write_page
from penstock.core.rows import Indices, hashes_of
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.progressive.met import (
    Known,
    arrivals,
    first_left,
    log_of,
    marked,
    read_hits,
    read_marks,
)
from penstock.operators.window_join.slabs import NOBODY, Slab, Slabs

_FAN = 8
"""So many pages of about one size are merged."""

_NOTED = 41
"""Bytes that what is known of a row on disk takes while it is read."""


class Side:
    """The rows of one port.

    Rows in memory are numbered by what they are stored in: 1 + its partition for those that are in no page yet; others
    have the number of their page. Pages of rows that have left are listed by partition; the last list is of those that
    are not cut into these partitions.
    """

    def __init__(
        self, port: int, store: PageStore, budget: Budget, *, marks: bool, hits: bool, partitions: int, crosses: bool
    ) -> None:
        self.port = port
        self.marks = marks
        self.crosses = crosses
        """Whether rows of different partitions may meet: pages on disk are then of all of them."""
        self.slabs = Slabs(budget)
        self.disk: list[list[Page]] = [[] for _ in range(partitions + 1)]
        self.newest = np.zeros(partitions, np.int64)
        """When the latest row came to each partition in memory."""
        self._store = store
        self._budget = budget
        self._hits = hits
        self._partitions = partitions
        self._saved: dict[int, Page] = {}
        self._of = np.arange(-1, partitions)
        """The partition of each number."""

    # Rows in memory

    def partition(self, rows: pa.RecordBatch) -> Indices:
        """The partition of each row."""
        return (hashes_of(rows) % np.uint64(self._partitions)).astype(np.int64)

    def hold(self, rows: pa.RecordBatch, tick: int, met: Mask | None) -> Indices:
        """Keep rows in memory that came at `tick`, sorted as pages are; their partitions."""
        which = self.partition(rows)
        hits = np.zeros(rows.num_rows, np.int64) if self._hits else None
        self.slabs.add(Slab(rows, which + 1, np.full(rows.num_rows, tick, np.int64), met, hits))
        self.newest[which] = tick
        return which

    def load(self, page: Page) -> Indices:
        """Keep the rows of a page in memory that are to be there; their partitions."""
        rows = read_page(self._store, page)
        which = self.partition(rows)
        log = log_of(page)
        if which.size and (which == which[0]).all():
            number = self._of.size
            self._of = np.append(self._of, which[0])
            self._saved[number] = page
            numbers = np.full(rows.num_rows, number, np.int64)
        else:
            numbers = which + 1  # it was cut otherwise: its rows are written anew
            self._drop(page)
        met = read_marks(self._store, page) if self.marks else None
        hits = read_hits(self._store, page) if self._hits else None
        self.slabs.add(Slab(rows, numbers, arrivals(self._store, page).copy(), met, hits))
        np.maximum.at(self.newest, which, log.newest)
        return which

    def expect(self, partition: int, newest: int) -> None:
        """Rows that came up to a tick are to be loaded, of a partition or of any."""
        of = slice(None) if partition == self._partitions else slice(partition, partition + 1)
        self.newest[of] = np.maximum(self.newest[of], newest)

    def partitions_of(self, slab: Slab, which: Indices) -> Indices:
        """The partitions of rows of a slab; -1 for those that have left."""
        return self._of[slab.numbers[which]]

    @property
    def living(self) -> int:
        """How many rows are in memory."""
        return sum(int(np.count_nonzero(slab.numbers != NOBODY)) for slab in self.slabs)

    @property
    def nbytes(self) -> int:
        """What the rows in memory take."""
        return sum(slab.nbytes * int(np.count_nonzero(slab.numbers)) // slab.rows for slab in self.slabs)

    def oldest(self, partition: int, rows: int) -> list[tuple[Slab, Indices]]:
        """Where the oldest rows of a partition are."""
        found = [(slab, np.flatnonzero(self._of[slab.numbers] == partition)) for slab in self.slabs]
        births = np.concatenate([slab.births[which] for slab, which in found])
        taken = np.zeros(births.size, np.bool_)
        taken[np.argsort(births, kind="stable")[:rows]] = True
        parts = np.split(taken, np.cumsum([which.size for _, which in found])[:-1])
        return [(slab, which[some]) for (slab, which), some in zip(found, parts, strict=True) if some.any()]

    # Out of memory

    def listed(self, partition: int) -> list[Page]:
        """Where the pages on disk of a partition are listed."""
        return self.disk[-1 if self.crosses else partition]

    def evict_all(self, leaving: Mapping[int, Sequence[tuple[Slab, Indices]]], tick: int) -> None:
        """Rows of some partitions leave memory at `tick`; where rows of different partitions may meet, together."""
        if not self.crosses:
            for partition, rows in leaving.items():
                self.evict(partition, rows, tick)
        elif leaving:
            self.evict(self._partitions, [part for rows in leaving.values() for part in rows], tick)

    def evict(self, partition: int, rows: Sequence[tuple[Slab, Indices]], tick: int) -> None:
        """Rows of a partition leave memory at `tick`: pages that leave as a whole are there already."""
        going = np.concatenate([slab.numbers[which] for slab, which in rows])
        for number in np.unique(going[going > self._partitions]).tolist():
            if np.count_nonzero(going == number) == self._count(number):
                page = self._kept(number)
                self._forget(number)
                self.listed(partition).append(replace(page, log=replace(log_of(page), left=tick)))
            else:
                self._unsave(number)
        self._evict_unsaved(partition, [(slab, which[slab.numbers[which] != NOBODY]) for slab, which in rows], tick)

    def _evict_unsaved(self, partition: int, rows: Sequence[tuple[Slab, Indices]], tick: int) -> None:
        for page in self._written(partition, rows):
            self.listed(partition).append(replace(page, log=replace(log_of(page), left=tick)))

    def _written(self, partition: int, rows: Sequence[tuple[Slab, Indices]]) -> Iterator[Page]:
        """Write rows of a partition that are in no page yet, as few pages as there is room for; they leave memory."""
        for slab_rows in self._portions(rows):
            leaving = self._of.size
            self._of = np.append(self._of, partition)
            for slab, which in slab_rows:
                slab.numbers[which] = leaving
            yield self._write(leaving)
            self.slabs.disown(leaving)

    def _portions(self, rows: Sequence[tuple[Slab, Indices]]) -> Iterator[list[tuple[Slab, Indices]]]:
        """Rows of slabs in portions of a quarter of the room, counting the copies that writing takes."""
        portion: list[tuple[Slab, Indices]] = []
        room = left = self._budget.room // 4
        for slab, which in rows:
            each = max(1, 2 * slab.nbytes // slab.rows)
            while which.size:
                taken, which = np.split(which, [max(0 if portion else 1, left // each)])
                if taken.size:
                    portion.append((slab, taken))
                    left -= each * taken.size
                if which.size:
                    yield portion
                    portion, left = [], room
        if portion:
            yield portion

    def put_away(self, rows: pa.RecordBatch, tick: int, met: Mask | None) -> None:
        """Keep rows, sorted as pages are, that come and leave at one tick: nobody has met them in memory."""
        page = write_page(self._store, self.port, rows, segment=self._segment)
        page = page if met is None else marked(self._store, page, met)
        self.disk[-1].append(replace(page, log=ProbeLog(newest=tick, left=tick)))

    # State

    def save(self) -> Iterator[Page]:
        """All pages, those of rows in memory among them, which is given back; small ones are merged with newer rows."""
        for partition in range(self._partitions):
            self._demote(partition)
            found = [(slab, np.flatnonzero(slab.numbers == partition + 1)) for slab in self.slabs]
            yield from self._written(partition, found)
        yield from (self._kept(number) for number in self._saved)
        self.slabs.release()
        self.merge()
        yield from self.pages
        self._saved.clear()

    def merge(self) -> None:
        """Merge small pages of rows that have left memory."""
        self.disk[-1] = [replace(page, log=replace(log_of(page), partitions=0)) for page in self.disk[-1]]
        for pages in self.disk:
            self._merge(pages)

    @property
    def pages(self) -> Iterator[Page]:
        """Those of rows that have left memory."""
        return (page for pages in self.disk for page in pages)

    @property
    def has_left(self) -> bool:
        """Whether some rows have left memory."""
        return any(self.disk)

    def drop(self) -> None:
        """Forget everything."""
        for page in (*self._saved.values(), *self.pages):
            self._drop(page)
        self._saved.clear()
        self.disk = [[] for _ in self.disk]
        self.slabs.release()

    def _demote(self, partition: int) -> None:
        """Rows that are in no page yet are written with those of pages that are not much larger."""
        rows = self._count(partition + 1)
        mine = [number for number in self._saved if self._of[number] == partition]
        for number in reversed(mine if rows else []):
            if (count := self._saved[number].rows) > 2 * rows:
                break
            rows += count
            self._unsave(number)

    def _merge(self, pages: list[Page]) -> None:
        """Merge pages of about one size that have met the same, once there are many: so a partition has few."""
        alike: dict[tuple[object, ...], list[Page]] = {}
        for page in pages:
            log = log_of(page)
            alike.setdefault((log.scans, log.met, page.rows.bit_length() // 3), []).append(page)
        for some in alike.values():
            for group in self._groups(some):
                with self._budget.hold(sum(map(_merging, group)), "merging pages"):
                    merged = self._merged(group)
                for page in group:
                    pages.remove(page)
                    self._drop(page)
                pages.append(merged)

    def _groups(self, pages: Sequence[Page]) -> Iterator[list[Page]]:
        """Pages that are worth merging: many, or as many as there is room for."""
        group: list[Page] = []
        size, room = 0, self._budget.room // 2
        for page in pages:
            if size + _merging(page) > room:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(page)
            size += _merging(page)
        if len(group) >= _FAN:
            yield group

    def _merged(self, pages: Sequence[Page]) -> Page:
        """One page of the rows of several that have met the same."""
        known = Known.on_disk(self._store, pages, marked=self.marks)
        page = write_page(self._store, self.port, known.rows, segment=self._segment)
        if known.marks is not None:
            page = marked(self._store, page, known.marks)
        noted = self._store.put(pa.record_batch({"came": known.arrived, "left": known.left}))
        last, first = max(log_of(old).left for old in pages), max(1, min(map(first_left, pages)))
        newest = max(log_of(old).newest for old in pages)
        return replace(page, log=replace(log_of(pages[0]), newest=newest, births=noted, left=last, first=first))

    def _kept(self, number: int) -> Page:
        """The page of rows in memory, with their marks and counts as they are."""
        page = self._saved[number]
        if not self.marks and not self._hits:
            return page
        with self._budget.hold(2 * page.nbytes, "what is noted of rows in memory"):
            rows = self.slabs.extract(number)
        if rows.met is not None and np.count_nonzero(rows.met) != np.count_nonzero(read_marks(self._store, page)):
            page = marked(self._store, page, rows.met)
        if rows.hits is not None and (rows.hits != read_hits(self._store, page)).any():
            births = log_of(page).births
            if births is not None:
                self._store.drop(births)
            page = replace(page, log=replace(log_of(page), births=self._noted(rows, page.begin)))
        self._saved[number] = page
        return page

    def _write(self, number: int) -> Page:
        """Write the rows of a number as a page, with when they came and whom they met."""
        size = sum(slab.nbytes * int(np.count_nonzero(slab.numbers == number)) // slab.rows for slab in self.slabs)
        with self._budget.hold(2 * size, "rows that leave memory"):
            rows = self.slabs.extract(number)
            page = write_page(self._store, self.port, rows.batch, segment=self._segment)
            if rows.met is not None:
                page = marked(self._store, page, rows.met)
            alike = rows.births.min() == rows.births.max() and rows.hits is None
            births = None if alike else self._noted(rows, 0)
        log = ProbeLog(newest=int(rows.births.max()), births=births, partitions=self._partitions)
        return replace(page, log=replace(log, partition=int(self._of[number])))

    def _noted(self, rows: Slab, begin: int) -> str:
        """When rows came, and how many results each has had if that is counted; as far in as the rows of their page."""
        columns = {"came": rows.births} if rows.hits is None else {"came": rows.births, "results": rows.hits}
        whole = {name: np.concatenate([np.zeros(begin, np.int64), column]) for name, column in columns.items()}
        return self._store.put(pa.record_batch(whole))

    def _count(self, number: int) -> int:
        return sum(int(np.count_nonzero(slab.numbers == number)) for slab in self.slabs)

    def _unsave(self, number: int) -> None:
        """The rows of a page are to be written anew."""
        for slab in self.slabs:
            slab.numbers[slab.numbers == number] = self._of[number] + 1
        self._drop(self._saved.pop(number))

    def _forget(self, number: int) -> None:
        self.slabs.disown(number)
        del self._saved[number]

    def _drop(self, page: Page) -> None:
        for name in (page.name, page.marks, log_of(page).births):
            if name is not None:
                self._store.drop(name)

    @property
    def _segment(self) -> str:
        return f"stream-{self.port}"


def _merging(page: Page) -> int:
    """Bytes that merging takes for a page."""
    return 3 * page.nbytes + _NOTED * page.rows
