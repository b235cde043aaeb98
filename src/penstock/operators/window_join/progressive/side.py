"""One side of a join without a window: the rows in memory, by partition, and the pages of flushed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.absent import without_absent
from penstock.core.budget import Budget
from penstock.core.pages import Page, ProbeLog, read_page, write_page
from penstock.core.rows import Indices, hashes_of, times_of
from penstock.kernels.sort import order_by
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.progressive.counted import CountedPages
from penstock.operators.window_join.progressive.cutting import Cut
from penstock.operators.window_join.progressive.met import (
    Known,
    arrivals,
    first_left,
    log_of,
    marked,
    read_hits,
    read_marks,
)
from penstock.operators.window_join.progressive.policies import Victim
from penstock.operators.window_join.slabs import NOBODY, Slab, Slabs, joined

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
        self, port: int, store: CountedPages, budget: Budget, *, marks: bool, hits: bool, cut: Cut, crosses: bool
    ) -> None:
        self.port = port
        self.marks = marks
        self.crosses = crosses
        """Whether rows of different partitions may meet: pages on disk are then of all of them."""
        self.slabs = Slabs(budget)
        self.cut = cut
        partitions = cut.partitions
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
        return self.cut.of(hashes_of(rows))

    def hold(self, rows: pa.RecordBatch, tick: int, met: Mask | None) -> Indices:
        """Keep rows in memory that came at `tick`, sorted as pages are; their partitions."""
        which = self.partition(rows)
        hits = np.zeros(rows.num_rows, np.int64) if self._hits else None
        self.slabs.add(Slab(rows, which + 1, np.full(rows.num_rows, tick, np.int64), met, hits))
        self.newest[which] = tick
        return which

    def load(self, pages: Sequence[Page]) -> Indices:
        """Keep the rows of some pages in memory that are to be there; their partitions."""
        batches = [read_page(self._store, page) for page in pages]
        which = self.partition(whole := pa.concat_batches(batches) if len(batches) > 1 else batches[0])
        numbers = np.empty(which.size, np.int64)
        starts = np.cumsum([0, *(page.rows for page in pages)])
        uncut = np.minimum.reduceat(which, starts[:-1]) == np.maximum.reduceat(which, starts[:-1])
        owners = [*self._of]
        for page, start, end, one in zip(pages, starts, starts[1:], uncut, strict=False):
            if one:
                numbers[start:end] = len(owners)
                self._saved[len(owners)] = page
                owners.append(which[start])
            else:
                numbers[start:end] = which[start:end] + 1  # it was cut otherwise: its rows are written anew
        self._of = np.array(owners, np.int64)
        came = np.concatenate([arrivals(self._store, page) for page in pages])
        met = np.concatenate([read_marks(self._store, page) for page in pages]) if self.marks else None
        hits = np.concatenate([read_hits(self._store, page) for page in pages]) if self._hits else None
        slab = Slab(whole, numbers, came, met, hits)
        self.slabs.add(slab.sorted() if len(pages) > 1 else slab)
        for page, one in zip(pages, uncut, strict=True):
            if not one:
                self._drop(page)
        np.maximum.at(self.newest, which, came)
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

    def chosen(self, victims: Sequence[Victim]) -> list[tuple[Slab, Indices]]:
        """Where the rows are that leave: of each victim its partition's oldest."""
        whole = np.zeros(self._partitions + 1, np.bool_)
        part: list[Victim] = []
        resident = np.bincount(self._of + 1, weights=self._counts(), minlength=self._partitions + 1)[1:]
        for victim in victims:
            if victim.rows < resident[victim.partition]:
                part.append(victim)
            else:
                whole[victim.partition] = True
        leaving = [whole[self._of[slab.numbers]] for slab in self.slabs]
        for victim in part:
            for mask, oldest in zip(leaving, self._oldest(victim.partition, victim.rows), strict=True):
                mask[oldest] = True
        return [(slab, np.flatnonzero(mask)) for slab, mask in zip(self.slabs, leaving, strict=True) if mask.any()]

    def _oldest(self, partition: int, rows: int) -> list[Indices]:
        """Where the oldest rows of a partition are, slab by slab."""
        found = [np.flatnonzero(self._of[slab.numbers] == partition) for slab in self.slabs]
        births = np.concatenate([slab.births[which] for slab, which in zip(self.slabs, found, strict=True)])
        taken = np.zeros(births.size, np.bool_)
        taken[np.argsort(births, kind="stable")[:rows]] = True
        parts = np.split(taken, np.cumsum([which.size for which in found])[:-1])
        return [which[some] for which, some in zip(found, parts, strict=True)]

    # Out of memory

    def listed(self, partition: int) -> list[Page]:
        """Where the pages on disk of a partition are listed."""
        return self.disk[-1 if self.crosses else partition]

    def evict(self, rows: Sequence[tuple[Slab, Indices]], tick: int) -> None:
        """Rows leave memory at `tick`: pages that leave as a whole are there already, the others become one."""
        counts, going = self._counts(), np.zeros(self._of.size, np.int64)
        for slab, which in rows:
            going += np.bincount(slab.numbers[which], minlength=going.size)
        for number in (np.flatnonzero(going[self._partitions + 1 :]) + self._partitions + 1).tolist():
            if going[number] == counts[number]:
                [page] = self._kept([number])
                partition = int(self._of[number])
                self._forget(number)
                self.listed(partition).append(replace(page, log=replace(log_of(page), left=tick)))
            else:
                self._unsave(number)
        rest = [(slab, which[slab.numbers[which] != NOBODY]) for slab, which in rows]
        self.disk[-1] += [
            replace(page, log=replace(log_of(page), left=tick)) for page in self._written(rest, cut=False)
        ]

    def _written(self, rows: Sequence[tuple[Slab, Indices]], cut: bool) -> Iterator[Page]:
        """Write rows that are in no page yet, as few batches as there is room for; they leave memory.

        There is a page for each partition if they are to be cut, else one.
        """
        for slab_rows in self._portions(rows):
            leaving = self._of.size
            self._of = np.append(self._of, -1)
            for slab, which in slab_rows:
                slab.numbers[which] = leaving
            yield from self._write(slab_rows, cut)
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
        self._demote()
        unsaved = [
            (slab, np.flatnonzero((slab.numbers != NOBODY) & (slab.numbers <= self._partitions))) for slab in self.slabs
        ]
        yield from self._written(unsaved, cut=True)
        yield from self._kept(list(self._saved))
        self.slabs.release()
        self.merge()
        yield from self.pages
        self._saved.clear()

    def merge(self, cut: bool = False) -> None:
        """Merge small pages of rows that have left memory, those of many partitions into one batch.

        Pages that are of no single partition are cut if there are many, or if they are to be `cut`.
        """
        self.disk[-1] = [replace(page, log=replace(log_of(page), partitions=0)) for page in self.disk[-1]]
        some: list[Page] = []
        size, room = 0, self._budget.room // 2
        for pages in self.disk:
            mixed = pages is self.disk[-1] and not self.crosses
            for group in self._alike(pages, whole=mixed, least=1 if mixed and cut else _FAN):
                more = sum(map(_merging, group))
                if some and (size + more > room or mixed):
                    self._merge(some)
                    some, size = [], 0
                gone = {id(page) for page in group}
                pages[:] = [page for page in pages if id(page) not in gone]
                some += group
                size += more
        self._merge(some)

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

    def _demote(self) -> None:
        """Rows that are in no page yet are written with those of pages that are not much larger."""
        counts = self._counts()
        saved: dict[int, list[int]] = {}
        for number in self._saved:
            saved.setdefault(int(self._of[number]), []).append(number)
        for partition, numbers in saved.items():
            rows = int(counts[partition + 1])
            for number in reversed(numbers if rows else []):
                if (count := self._saved[number].rows) > 2 * rows:
                    break
                rows += count
                self._unsave(number)

    def _alike(self, pages: list[Page], whole: bool, least: int) -> Iterator[list[Page]]:
        """Pages that have met the same, of about one size but for those as a `whole`, once there are many of them."""
        alike: dict[tuple[object, ...], list[Page]] = {}
        for page in pages:
            log = log_of(page)
            alike.setdefault((log.scans, log.met, whole or page.rows.bit_length() // 3), []).append(page)
        for some in alike.values():
            yield from self._groups(some, least)

    def _groups(self, pages: Sequence[Page], least: int) -> Iterator[list[Page]]:
        """Pages that are worth merging: at `least` so many, or as many as there is room for."""
        group: list[Page] = []
        size, room = 0, self._budget.room // 2
        for page in pages:
            if size + _merging(page) > room:
                if len(group) >= min(2, least):
                    yield group
                group, size = [], 0
            if _merging(page) <= room:
                group.append(page)
                size += _merging(page)
        if len(group) >= least:
            yield group

    def _merge(self, pages: Sequence[Page]) -> None:
        """Cut the rows of some pages by partition, and by what they have met: one page of each, all in one batch."""
        if not pages:
            return
        logs = list(map(log_of, pages))
        kinds = {kind: place for place, kind in enumerate(dict.fromkeys((log.scans, log.met) for log in logs))}
        rows = [page.rows for page in pages]
        with self._budget.hold(sum(map(_merging, pages)), "merging pages"):
            known = Known.on_disk(self._store, pages, marked=self.marks, unsorted=True)
            part = np.repeat([kinds[log.scans, log.met] for log in logs], rows)
            if not self.crosses:
                part = part * self._partitions + self.partition(known.rows)
            order = order_by([part, hashes_of(known.rows), times_of(known.rows)])
            part = part[order]
            starts = np.flatnonzero(np.concatenate([[True], part[1:] != part[:-1]]))
            marks = None if known.marks is None else known.marks[order]
            merged = self._stored(known.rows.take(pa.array(order)), starts, marks)
            came, left = known.arrived[order], known.left[order]
            noted = self._store.put(pa.record_batch({"came": came, "left": left}))
            self._store.share(noted, starts.size)
            newest, last = (np.maximum.reduceat(ticks, starts).tolist() for ticks in (came, left))
            first = np.minimum.reduceat(np.repeat(list(map(first_left, pages)), rows)[order], starts).tolist()
        met = list(kinds)
        for place, (page, number) in enumerate(zip(merged, part[starts].tolist(), strict=True)):
            kind, partition = (number, self._partitions) if self.crosses else divmod(number, self._partitions)
            log = ProbeLog(newest[place], noted, last[place], max(1, first[place]), *met[kind])
            log = log if self.crosses else replace(log, partition=partition, partitions=self.cut.code)
            self.listed(partition).append(replace(page, log=log))
        for page in pages:
            self._drop(page)

    def _kept(self, numbers: Sequence[int]) -> list[Page]:
        """The pages of rows in memory, with their marks and counts as they are."""
        if self.marks or self._hits:
            by_name: dict[str, list[int]] = {}
            for number in numbers:
                by_name.setdefault(self._saved[number].name, []).append(number)
            for some in by_name.values():
                self._note(some)
        return [self._saved[number] for number in numbers]

    def _note(self, numbers: Sequence[int]) -> None:
        """Write down whom the rows of pages that share a batch have met, and their counts, where that changed."""
        held = {number: self._held(number) for number in numbers}
        end = max(self._saved[number].end for number in numbers)
        with self._budget.hold(20 * end, "what is noted of rows in memory"):
            came, hits, marks = np.zeros(end, np.int64), np.zeros(end, np.int64), np.zeros(end, np.bool_)
            newly, counted = [], []
            for number, (slab, which) in held.items():
                page = self._saved[number]
                place = slice(page.begin, page.end)
                if slab.met is not None:
                    marks[place] = slab.met[which]
                    if np.count_nonzero(marks[place]) != np.count_nonzero(read_marks(self._store, page)):
                        newly.append(number)
                if slab.hits is not None:
                    came[place], hits[place] = slab.births[which], slab.hits[which]
                    if (hits[place] != read_hits(self._store, page)).any():
                        counted.append(number)
            if newly:
                name = self._store.put(pa.RecordBatch.from_arrays([pa.array(marks)], names=["met"]))
                self._store.share(name, len(newly))
            for number in newly:
                page = self._saved[number]
                if page.marks is not None:
                    self._store.drop(page.marks)
                self._saved[number] = replace(page, marks=name)
            if counted:
                name = self._store.put(pa.record_batch({"came": came, "results": hits}))
                self._store.share(name, len(counted))
            for number in counted:
                page = self._saved[number]
                if (births := log_of(page).births) is not None:
                    self._store.drop(births)
                self._saved[number] = replace(page, log=replace(log_of(page), births=name))

    def _held(self, number: int) -> tuple[Slab, Indices]:
        """Where the rows of a page are: in one slab, in the order of the page."""
        for slab in self.slabs:
            which = np.flatnonzero(slab.numbers == number)
            if which.size:
                return slab, which
        raise AssertionError(number)

    def _write(self, rows: Sequence[tuple[Slab, Indices]], cut: bool) -> Iterator[Page]:
        """Write some rows as one batch, with when they came and whom they met."""
        size = sum(slab.nbytes * which.size // slab.rows for slab, which in rows)
        with self._budget.hold(2 * size, "rows that leave memory"):
            whole = joined([slab.take(which) for slab, which in rows])
            which = self.partition(whole.batch) if cut else np.zeros(whole.rows, np.int64)
            order = order_by([which, hashes_of(whole.batch), times_of(whole.batch)])
            whole, which = whole.take(order), which[order]
            starts = np.flatnonzero(np.concatenate([[True], which[1:] != which[:-1]]))
            pages = self._stored(whole.batch, starts, whole.met)
            first, last = (edge.reduceat(whole.births, starts) for edge in (np.minimum, np.maximum))
            apart = np.flatnonzero((first < last) | (whole.hits is not None))
            name = self._noted(whole) if apart.size else None
            if name is not None:
                self._store.share(name, apart.size)
        births = dict.fromkeys(apart.tolist(), name)
        for place, (page, partition) in enumerate(zip(pages, which[starts].tolist(), strict=True)):
            log = ProbeLog(newest=int(last[place]), births=births.get(place))
            yield replace(page, log=replace(log, partition=partition, partitions=self.cut.code) if cut else log)

    def _stored(self, rows: pa.RecordBatch, starts: Indices, marks: Mask | None) -> list[Page]:
        """Put rows into the store, each part from a start on sorted as pages are: a page for each part."""
        hashes, times = hashes_of(rows), times_of(rows)
        ends = np.append(starts[1:], rows.num_rows)
        each = without_absent(rows).nbytes / rows.num_rows
        earliest, latest = (edge.reduceat(times, starts).tolist() for edge in (np.minimum, np.maximum))
        met = np.zeros(starts.size, np.bool_) if marks is None else np.logical_or.reduceat(marks, starts)
        name = self._store.put(rows, self._segment)
        self._store.share(name, starts.size)
        marked_by = None
        if met.any():
            marked_by = self._store.put(pa.RecordBatch.from_arrays([pa.array(marks)], names=["met"]))
            self._store.share(marked_by, int(np.count_nonzero(met)))
        return [
            Page(
                name=name,
                kind=self.port,
                begin=begin,
                end=end,
                nbytes=int(each * (end - begin)),
                min_time=earliest[place],
                max_time=latest[place],
                min_hash=int(hashes[begin]),
                max_hash=int(hashes[end - 1]),
                marks=marked_by if met[place] else None,
            )
            for place, (begin, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
        ]

    def _noted(self, rows: Slab) -> str:
        """When rows came, and how many results each has had if that is counted."""
        columns = {"came": rows.births} if rows.hits is None else {"came": rows.births, "results": rows.hits}
        return self._store.put(pa.record_batch(columns))

    def _counts(self) -> Indices:
        """How many rows in memory each number has."""
        counts = np.zeros(self._of.size, np.int64)
        for slab in self.slabs:
            counts += np.bincount(slab.numbers, minlength=counts.size)
        return counts

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
