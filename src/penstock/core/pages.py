"""Pages: immutable Arrow batches that hold an operator's state, and the stores that keep them.

A page's rows are sorted by hash, then time. Only the description of a page changes over its life: its slice of the
stored batch (`begin`, `end`), the `floor` below which rows are gone, and the `marks` on its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from penstock.core.absent import without_absent
from penstock.core.rows import hashes_of, times_of
from penstock.core.time import TIME_MIN, Time


class PageStore(Protocol):
    """Stores immutable batches by name."""

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Store `rows` under a name that the store chooses. On disk, the pages of a `segment` are in sequence."""
        ...

    def get(self, name: str) -> pa.RecordBatch:
        """The rows stored under `name`, without a copy in private memory if the store can avoid it."""
        ...

    def drop(self, name: str) -> None:
        """The operator no longer needs `name`."""
        ...


@dataclass(frozen=True, slots=True)
class Debts:
    """Which joins of a page's rows are done: when the rows arrived, and when the page was in memory and could be met.

    Moments are ticks, a counter of the shard's events. Rows that arrived at tick `born` have met what was in memory
    then; `births` has the tick of each row if they differ. Rows after `settled` still owe a join to what was not in
    memory. Rows of the other stream that arrived during `stays`, half-open ranges of ticks, have met this page.
    """

    born: int = 0
    births: str | None = None
    settled: int = 0
    stays: tuple[tuple[int, int], ...] = ()
    role: str = "disk"
    partitions: int = 0
    """If set, all its rows are in one partition of the key space, which has this many."""
    productivity: float = 0.0

    @property
    def fresh(self) -> bool:
        """Whether some of its rows owe a join."""
        return self.born > self.settled


@dataclass(frozen=True, slots=True)
class ProbeLog:
    """What a page of a join without a window has met, and when its rows arrived and left memory.

    Moments are ticks, as in `Debts`. Two rows have met if both were in memory at the same time; if one was on disk and
    met, at one of `scans`, what was in memory then; or if both were on disk when one met everything on the other side's
    disk, last at `met`. Ticks continue from the highest on a shard's pages. Only ticks of rows with equal hashes are
    ever compared, and those have always been in one shard, so each shard can have its own counter.
    """

    newest: int = 0
    """When the latest of its rows arrived (ATS)."""
    births: str | None = None
    """When each of its rows arrived, and left if they did not leave together; None if all arrived at `newest`."""
    left: int = 0
    """When the last of its rows left memory (DTS); 0 while they stay there."""
    first: int = 0
    """When the first of them left; 0 if all left together."""
    scans: tuple[int, ...] = ()
    met: int = 0
    results: float = 0.0
    """Its share of the results that its partition has had in memory, for the policy."""
    given: float = 0.0
    """Results so far per row of its shard, on average."""
    partition: int = 0
    """All its rows are of this one, if keys are cut …"""
    partitions: int = 0
    """… in the way that has this mark; 0 is none, and its rows are of any partition."""


_RECORDED = {"port": "kind", "run": "maker"}
"""Names of some attributes in ledgers, from before they meant more than a port and a run."""


@dataclass(frozen=True, slots=True)
class Page:
    """The description of a page: where its rows are, and what is known about them without reading them.

    The times and hashes are those of the rows when the page was written; slicing narrows the hashes only.
    """

    name: str
    kind: int
    """What its rows are: a number chosen by the operator, such as the port that they came through."""
    begin: int
    end: int
    nbytes: int
    min_time: Time
    max_time: Time
    min_hash: int
    max_hash: int
    floor: Time = TIME_MIN
    marks: str | None = None
    maker: str | None = None
    """What wrote it: a compaction, whose pages are neighbours in hash over the same time, or a method, by name."""
    debts: Debts | None = None
    """What a method that defers joins must remember about the page; None if nothing is deferred."""
    log: ProbeLog | None = None
    """The same for a join without a window."""

    @property
    def rows(self) -> int:
        """How many rows, those below the floor included."""
        return self.end - self.begin

    def to_json(self) -> dict[str, Any]:
        """For a ledger."""
        names = {attribute: name for name, attribute in _RECORDED.items()}
        record = {names.get(name, name): value for name, value in asdict(self).items()}
        if self.log is None:
            del record["log"]  # as it was before there were any
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From a ledger."""
        debts = record.get("debts")
        if debts is not None:
            debts = Debts(**{**debts, "stays": tuple((since, until) for since, until in debts["stays"])})
        log = record.get("log")
        if log is not None:
            log = ProbeLog(**{**log, "scans": tuple(log["scans"])})
        known = {_RECORDED.get(name, name): value for name, value in record.items()}
        return cls(**{**known, "debts": debts, "log": log})


def write_page(
    store: PageStore, kind: int, rows: pa.RecordBatch, marks: str | None = None, segment: str = "main"
) -> Page:
    """Store `rows` (not empty, sorted by hash, then time) and return their description."""
    hashes, times = hashes_of(rows), times_of(rows)
    return Page(
        name=store.put(rows, segment),
        kind=kind,
        begin=0,
        end=rows.num_rows,
        nbytes=without_absent(rows).nbytes,
        min_time=int(times.min()),
        max_time=int(times.max()),
        min_hash=int(hashes[0]),
        max_hash=int(hashes[-1]),
        marks=marks,
    )


def read_page(store: PageStore, page: Page) -> pa.RecordBatch:
    """The rows of `page`, those below its floor included."""
    return store.get(page.name).slice(page.begin, page.rows)


def clip_page(store: PageStore, page: Page, first: int, last: int) -> Page | None:
    """The part of `page` whose hashes lie from `first` to `last`, or None if there is none; reads no rows if all do.

    Marks belong to the stored batch, not to the slice, so a clipped page keeps them.
    """
    if page.min_hash > last or page.max_hash < first:
        return None
    if first <= page.min_hash and page.max_hash <= last:
        return page
    hashes = hashes_of(read_page(store, page))
    begin, end = (
        np.searchsorted(hashes, np.array([first], np.uint64)),
        np.searchsorted(hashes, np.array([last], np.uint64), side="right"),
    )
    if begin[0] == end[0]:
        return None
    part = end[0] - begin[0]
    return replace(
        page,
        begin=page.begin + int(begin[0]),
        end=page.begin + int(end[0]),
        nbytes=int(page.nbytes * part / page.rows),
        min_hash=int(hashes[begin[0]]),
        max_hash=int(hashes[end[0] - 1]),
    )


def names_of(pages: Iterable[Page]) -> set[str]:
    """Every stored batch that `pages` need: rows, marks and births."""
    return {name for page in pages for name in (page.name, page.marks, _births(page)) if name}


def _births(page: Page) -> str | None:
    known = page.debts or page.log
    return None if known is None else known.births
