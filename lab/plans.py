"""One query by two architectures: in order (IOP) and out of order (OOP), with the tuples that each must hold.

| | IOP | OOP |
|---|---|---|
| a source out of order | BSort | as it is |
| union | Merge | Meld |
| join | OPIB-Join, whose results are in order | OA-Join |
| windows | buffering: the first row past a window's end closes it | WID: a bound does |

Both give the same rows. Both keep a partial for each open window and group, so that what differs is what order costs.
Users get the right-hand side. The other is here, beside the experiments that compare them, and not among the operators,
because a plan at work needs a page store and the descriptions of queries, which operators do not know of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from lab.operators import BSort, Meld, Merge
from lab.workloads.netflow import PACKETS
from penstock.core.budget import Budget
from penstock.core.durations import DurationLike
from penstock.core.errors import ConfigError
from penstock.core.operator import Out, State
from penstock.core.pages import Page, PageStore, read_page
from penstock.core.rows import TIME, RowType, hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN, Time, as_times
from penstock.core.windows import Sliding
from penstock.flow.sql import function_of
from penstock.kernels.hashing import hash_keys
from penstock.operators.aggregate import Buffering
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.roles import page_kind
from penstock.operators.window_join import JoinTime, WindowJoin
from penstock.sql import Query, Source, parse
from penstock.sql.catalogue import CATALOGUE
from penstock.storage.memory import MemoryPages

Kind = Literal["iop", "oop"]
"""In-order or out-of-order processing."""

QUERIES = ("1-2", "8-1", "8-2", "8-3", "8-4", "8-5")
"""The queries that the thesis compares the architectures on (F26)."""

_TIME = "ts"
_PACKETS = RowType(PACKETS, (), _TIME)
_MEMORY = 1 << 40
"""Nothing is to be spilled: what is held is what is measured."""


def plan(query: str, kind: Kind, slack: DurationLike | None = None) -> Plan:
    """A query of the catalogue, by its number, as an in-order or an out-of-order plan over packets, ready to be fed.

    With `slack`, an in-order plan sorts each source first and lets a row be so much behind the latest; without, it
    takes sources to be in order, and rows that are not are late. An out-of-order plan needs neither.

    >>> from lab.workloads.netflow import Packets
    >>> oop = plan("8-2", "oop")
    >>> packets = Packets(rate=100, span="2 min", seed=7).table()
    >>> oop.rows("A", packets), oop.bound("A", 120_000_000)
    (None, None)
    >>> oop.results().num_rows, oop.sources
    (0, ('A', 'B'))
    >>> oop.end()
    >>> sum(oop.results().column("count").to_pylist()) == packets.num_rows
    True
    """
    if query not in CATALOGUE:
        raise ConfigError(f"query={query!r} is not in the catalogue. Write one of {', '.join(CATALOGUE)}.")
    if kind not in get_args(Kind):
        raise ConfigError(f"kind={kind!r} is not an architecture. Write 'iop' or 'oop'.")
    described = parse(CATALOGUE[query])
    if not _can(described):
        raise ConfigError(
            f"query={query!r} asks for more than unions, joins and sliding windows, of which plans are made. "
            f"Write one of {', '.join(QUERIES)}."
        )
    return _Builder(kind, slack).plan(described)


def _can(query: Query) -> bool:
    by_window = isinstance(query.window, Sliding) if query.aggregates else True
    conditions = [query.where, query.having, *(source.where for source in query.sources)]
    return by_window and not any(conditions) and (query.join is None or not query.join.pairs)


@dataclass(frozen=True, slots=True)
class Holding:
    """How many tuples each operator of a plan holds: rows, or one for each open window and group that has a row."""

    by_operator: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Of all operators."""
        return sum(self.by_operator.values())


class Plan:
    """A plan at work: rows and bounds go in by source, results come out, and what is held is counted after each."""

    def __init__(self, inlets: dict[str, tuple[_Stage, int]], stages: list[_Stage]) -> None:
        self._inlets = inlets
        self._stages = stages
        self._results: list[pa.RecordBatch] = []
        self.most = Holding()
        """What was held when it was most."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names to feed it by."""
        return tuple(self._inlets)

    @property
    def operators(self) -> tuple[str, ...]:
        """What it is made of, sources first."""
        return tuple(stage.name for stage in self._stages)

    @property
    def held(self) -> int:
        """The most tuples that were held at once."""
        return self.most.total

    @property
    def late(self) -> int:
        """How many rows came too late to be put in order, and are lost."""
        return sum(getattr(stage.logic, "violators", 0) for stage in self._stages)

    def holding(self) -> Holding:
        """What is held now."""
        return Holding({stage.name: stage.held() for stage in self._stages})

    def rows(self, source: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Packets arrive from a source."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        stage, port = self._inlet(source)
        self._collect(stage.rows(port, table))

    def bound(self, source: str, time: Time) -> None:
        """A source promises to send nothing below `time`, in microseconds, any more."""
        stage, port = self._inlet(source)
        self._collect(stage.advance(port, time))

    def end(self) -> None:
        """All sources are over."""
        for source in self._inlets:
            self.bound(source, TIME_MAX)

    def results(self) -> pa.Table:
        """All that has come out, in order of coming out."""
        return pa.Table.from_batches(self._results, schema=self._stages[-1].columns)

    def _inlet(self, source: str) -> tuple[_Stage, int]:
        if source not in self._inlets:
            raise ConfigError.unknown_column("source", source, list(self._inlets))
        return self._inlets[source]

    def _collect(self, results: Iterator[pa.RecordBatch]) -> None:
        self._results += results
        now = self.holding()
        if now.total > self.held:
            self.most = now


class _Stage:
    """An operator of a plan: what comes out of it goes into the next, until what is left is the plan's results."""

    def __init__(self, name: str, config: Any, types: tuple[RowType, ...], store: PageStore, budget: Budget) -> None:
        self.name = name
        self.columns: pa.Schema = config.output(types)
        self.logic = config.logic(types, store, budget, State())
        self.next: tuple[_Stage, int] | None = None
        self._config = config
        self._types = types
        self._store = store
        self._said: Time = TIME_MIN

    def rows(self, port: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows go through this operator and all after it; so does the progress that they make."""
        yield from self._on(self.logic.rows(port, _entered(self._types[port], rows)))

    def advance(self, port: int, bound: Time) -> Iterator[pa.RecordBatch]:
        """A bound does."""
        yield from self._on(self.logic.advance(port, bound))

    def held(self) -> int:
        """How many tuples are here."""
        pages = self.logic.state().pages
        if isinstance(self._config, WindowAggregate):
            buffered = [page for page in pages if page.kind == page_kind("buffered")]
            return _groups(pages, self._store) + sum(_rows(page, self._store) for page in buffered)
        return sum(_rows(page, self._store) for page in pages)

    def _on(self, outs: Iterable[Out]) -> Iterator[pa.RecordBatch]:
        results = (out.rows for out in outs if out.outlet == "results")
        if self.next is None:
            yield from results
            return
        stage, port = self.next
        for rows in results:
            yield from stage.rows(port, pa.Table.from_batches([rows]))
        if (bound := self._bound()) > self._said:
            self._said = bound
            yield from stage.advance(port, bound)

    def _bound(self) -> Time:
        bounds = self.logic.bounds()
        return int(self._config.bound(bounds)) if hasattr(self._config, "bound") else bounds.individual[0]


class _Builder:
    """Puts a plan together, operator by operator. An end is a stage whose results go somewhere, or a source's name."""

    def __init__(self, kind: Kind, slack: DurationLike | None) -> None:
        self._kind = kind
        self._slack = slack if kind == "iop" else None
        self._budget = Budget(_MEMORY)
        self._store = MemoryPages(self._budget)
        self._stages: list[_Stage] = []
        self._inlets: dict[str, tuple[_Stage, int]] = {}

    def plan(self, query: Query) -> Plan:
        """The whole of it."""
        ends = [self._source(source) for source in query.sources]
        columns, time = PACKETS, _TIME
        if query.join is not None:
            config, types = self._join(query)
            ends = [self._add("join", config, types, ends)]
            columns, (time,) = config.output(types), config.clock(types)
        if query.aggregates:
            aggregate = self._aggregate(query)
            self._add("window", aggregate, (RowType(columns, aggregate.keys, time),), ends)
        return Plan(self._inlets, self._stages)

    def _source(self, source: Source) -> _Stage | str:
        """Each stream sorted if need be, and all united."""
        streams = [self._sorted(stream) for stream in source.streams]
        if len(streams) == 1:
            return streams[0]
        union = (Merge if self._kind == "iop" else Meld)(len(streams))
        return self._add(f"{type(union).__name__.lower()} {source.alias}", union, (_PACKETS,) * len(streams), streams)

    def _sorted(self, stream: str) -> _Stage | str:
        if self._slack is None:
            return stream
        return self._add(f"sort {stream}", BSort(self._slack, "microseconds"), (_PACKETS,), [stream])

    def _join(self, query: Query) -> tuple[WindowJoin, tuple[RowType, ...]]:
        assert query.join is not None
        on, right = query.join.on, query.sources[1]
        time: JoinTime = "right" if query.time == f"{right.alias}.{_TIME}" else "left"
        method: Literal["opib", "oa"] = "opib" if self._kind == "iop" else "oa"
        config = WindowJoin(on, query.join.within, query.join.how, time, unit="microseconds", method=method)
        return config, tuple(RowType(PACKETS, tuple(keys), _TIME) for keys in zip(*on, strict=True))

    def _aggregate(self, query: Query) -> WindowAggregate:
        assert query.window is not None
        return WindowAggregate(
            query.window,
            query.groups,
            tuple((call.name, function_of(call)) for call in query.aggregates),
            unit="microseconds",
            method=Buffering() if self._kind == "iop" else "wid",
        )

    def _add(self, name: str, config: Any, types: tuple[RowType, ...], ends: list[_Stage | str]) -> _Stage:
        stage = _Stage(name, config, types, self._store, self._budget)
        self._stages.append(stage)
        for port, end in enumerate(ends):
            if isinstance(end, str):
                self._inlets[end] = stage, port
            else:
                end.next = stage, port
        return stage


def _entered(types: RowType, rows: pa.Table) -> pa.RecordBatch:
    """Rows as an operator takes them."""
    keys = [rows.column(key).combine_chunks() for key in types.keys]
    hashes = hash_keys(keys) if keys else np.zeros(rows.num_rows, np.uint64)
    assert types.time is not None
    return types.enter(rows.append_column(TIME, as_times(rows.column(types.time))), hashes)


def _rows(page: Page, store: PageStore) -> int:
    """The rows of a page that are still alive."""
    if page.floor <= page.min_time:
        return page.rows
    return int(np.count_nonzero(times_of(read_page(store, page)) >= page.floor))


def _groups(pages: Iterable[Page], store: PageStore) -> int:
    """How many windows and groups there are in pages of partials, each once, however many pages have a part of it."""
    batches = [
        (page, read_page(store, page)) for page in pages if page.kind in (page_kind("panes"), page_kind("windows"))
    ]
    if not batches:
        return 0
    numbers = np.concatenate([times_of(rows) for _, rows in batches])
    hashes = np.concatenate([hashes_of(rows) for _, rows in batches])
    alive = numbers >= np.concatenate([np.full(page.rows, page.floor) for page, _ in batches])
    order = np.lexsort((hashes[alive], numbers[alive]))
    numbers, hashes = numbers[alive][order], hashes[alive][order]
    return int(alive.any()) + int(np.count_nonzero((numbers[1:] != numbers[:-1]) | (hashes[1:] != hashes[:-1])))
