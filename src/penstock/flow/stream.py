"""Streams, which users chain. Every method returns a new stream or a sink; nothing runs until the flow starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.core.checks import is_whole
from penstock.core.durations import Duration, DurationLike
from penstock.core.errors import ConfigError, WindowError
from penstock.core.master import Freshness
from penstock.core.rows import RowType, first_twice
from penstock.core.time import FARTHEST
from penstock.core.windows import SlideByTuple, Window, sliding
from penstock.core.within import LEFT, RIGHT, Always, Band, Tumbling, Within
from penstock.flow.display import preformatted, table
from penstock.flow.graph import (
    Node,
    OperatorNode,
    Pairs,
    SelectNode,
    SourceNode,
    UnionNode,
    WhereNode,
    check_unique,
    clock_of,
    late_columns,
    operators_of,
    passes,
    reach_of,
    sources_of,
    time_type,
)
from penstock.flow.groups import check_progress, statements_for
from penstock.flow.keys import check_clocks, common_key, table_key
from penstock.flow.plans import Part
from penstock.flow.sinks import ConsoleSink, Emits, ForeachSink, FormatSink, MemorySink, ParquetSink, Sink
from penstock.kernels.hashing import can_hash
from penstock.operators.aggregate.config import BY_ROWS, AnyFunction, Emit, WindowAggregate, method_by_groups
from penstock.operators.aggregate.functions import Count, instead_of, is_flat, where_of
from penstock.operators.aggregate.methods import AggregateMethodLike
from penstock.operators.lookup import METHODS as LOOKUP_METHODS
from penstock.operators.lookup import LookupJoin, LookupMethodLike
from penstock.operators.lookup.config import LookupHow, check_names, in_order_of
from penstock.operators.lookup.shedding import Shed, Shedding
from penstock.operators.progress import Distinct, DupElim, Head, Later, Sort, Top
from penstock.operators.window_join import JoinKeys, JoinTime, Near, WindowJoin
from penstock.operators.window_join.config import default_time, read_how, read_on
from penstock.operators.window_join.matching import Matching
from penstock.operators.window_join.methods import JoinMethodLike, read_method

if TYPE_CHECKING:
    from penstock.flow.flow import Flow, Query


class Outlets:
    """The sinks that a stream can be written to."""

    def __init__(self, flow: Flow, node: Node, emits: Emits) -> None:
        self._flow = flow
        self._node = node
        self._emits = emits

    def __repr__(self) -> str:
        names = ", ".join(repr(source.name) for source in sources_of(self._node))
        return f"<late rows of {names}>"

    def to_parquet(self, path: str | os.PathLike[str]) -> Outlet:
        """Write Parquet files to `path`, one folder ``epoch=n`` per epoch, exactly once.

        The folder must not have results of another flow when this one first starts.

        >>> import penstock as pk, tempfile
        >>> flow = pk.LocalFlow()
        >>> out = flow.source(pa.table({"t": [1, 2]}), time="t").to_parquet(tempfile.mkdtemp())
        >>> _ = flow.run()
        """
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).strip():
            raise ConfigError(f"to_parquet({path!r}) names no folder. Write where the files go, as in 'out/paid'.")
        return self._to(ParquetSink(node=self._node, emits=self._emits, path=os.fspath(path)))

    def to_format(self, name: str, **options: Any) -> Outlet:
        """Write with any of Spark's batch writers, in append mode: at least once.

        `options` are those of the writer, including ``path``: ``to_format("kafka", topic="paid", **servers)``. With
        ``partitionBy="shop"``, or a list of columns, each value gets its own folder.
        """
        columns = late_columns(self._node) if self._emits == "late" else self._node.columns
        kept, partition_by = _writer_options(options, columns.names)
        sink = FormatSink(node=self._node, emits=self._emits, name=name, options=kept, partition_by=partition_by)
        return self._to(sink)

    def to_memory(self) -> MemoryOutlet:
        """Keep the rows in this process, to inspect them: ``rows = stream.to_memory()``, later ``rows.table()``.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> rows = flow.source(pa.table({"t": [1, 2]}), time="t").to_memory()
        >>> _ = flow.run()
        >>> rows.table().num_rows
        2
        """
        sink = MemorySink(node=self._node, emits=self._emits)
        self._flow._add(sink)
        return MemoryOutlet(self._flow, sink)

    def to_console(self, rows: int = 20) -> Outlet:
        """Print the first `rows` rows of each epoch that has any."""
        if not is_whole(rows) or rows < 0:
            raise ConfigError(f"to_console({rows!r}) is not a number of rows. Write how many to print, like 20.")
        return self._to(ConsoleSink(node=self._node, emits=self._emits, rows=rows))

    def foreach_epoch(self, function: Callable[[Any, int], None]) -> Outlet:
        """Call ``function(rows, epoch)`` once per epoch; a repeated epoch has the same rows and the same number.

        `rows` is a Spark DataFrame in a Spark flow, an Arrow table in a local one.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> out = flow.source(pa.table({"t": [1, 2]}), time="t").foreach_epoch(lambda rows, n: print(n, rows.num_rows))
        >>> _ = flow.run()
        0 2
        1 0
        """
        if not callable(function):
            raise ConfigError(
                f"foreach_epoch({function!r}) cannot be called. Pass a function of an epoch's rows and its number, "
                f"like lambda rows, epoch: …"
            )
        return self._to(ForeachSink(node=self._node, emits=self._emits, function=function))

    def _to(self, sink: Sink) -> Outlet:
        self._flow._add(sink)
        return Outlet(self._flow, sink)


class Outlet:
    """A stream with a sink; `start` and `run` are those of its flow."""

    def __init__(self, flow: Flow, sink: Sink) -> None:
        self._flow = flow
        self.sink = sink

    def __repr__(self) -> str:
        what = "late rows" if self.sink.emits == "late" else "results"
        return f"<outlet: {what} to {self.sink}, {self.sink.delivery}>"

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    def start(self, trigger: str | None = None) -> Query:
        """Start the whole flow, see `Flow.start`."""
        return self._flow.start(trigger=trigger)

    def run(self, *, end: bool = True) -> Query:
        """Run the whole flow over everything there is, see `Flow.run`."""
        return self._flow.run(end=end)


class MemoryOutlet(Outlet):
    """A sink in memory, with the rows that it has received so far."""

    sink: MemorySink

    def __repr__(self) -> str:
        return f"<outlet to memory: {sum(table.num_rows for table in self.sink.epochs.values()):,} rows so far>"

    def table(self) -> pa.Table:
        """All rows so far, in order of their epochs."""
        tables = [self.sink.epochs[epoch] for epoch in sorted(self.sink.epochs)]
        node = self.sink.node
        columns = late_columns(node) if self.sink.emits == "late" else node.columns
        # Of some columns Spark knows that they are never null, and epochs that ran elsewhere do not.
        return pa.concat_tables(tables, promote_options="default") if tables else columns.empty_table()


class Stream(Outlets):
    """A stream of rows with an event time. Made by `Flow.source` and by the methods here."""

    def __init__(self, flow: Flow, node: Node) -> None:
        super().__init__(flow, node, "results")

    def __repr__(self) -> str:
        return f"<stream of {self._origin}: {_show(self._node.columns)}>"

    def _repr_html_(self) -> str:
        rows = [(field.name, field.type, "event time" * (field.name == self._node.time)) for field in self.columns]
        return table(f"Stream of {self._origin}", ["column", "type", ""], rows)

    @property
    def _origin(self) -> str:
        return ", ".join(repr(source.name) for source in sources_of(self._node))

    @property
    def columns(self) -> pa.Schema:
        """Its columns."""
        return self._node.columns

    @property
    def late(self) -> Outlets:
        """The late rows of all sources of this stream: those below the bound of their source, or of their group.

        They have their source's columns and two more: `late_source`, and `late_reason`: ``late``, ``no-time``, or
        ``out-of-range`` if the time is 2⁶² steps from 0 or farther (a date: 2³⁰ days). Those of a window aggregation
        also have `missed_from` and `missed_until`: the start of the first window that would have held the row, and the
        end of the last one. Both are null if they do not follow from its time: see docs/windows.md.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> rows = flow.source([pa.table({"t": [20]}), pa.table({"t": [7]})], time="t", progress=pk.ordered(), name="s")
        >>> late = rows.window(range=10, slide=5).agg(n=pk.count()).late.to_memory()
        >>> _ = flow.run()
        >>> late.table().to_pylist()
        [{'t': 7, 'late_source': 's', 'late_reason': 'late', 'missed_from': 0, 'missed_until': 15}]
        """
        _check_late(self._node)
        return Outlets(self._flow, self._node, "late")

    def select(self, *expressions: Any) -> Stream:
        """Compute columns of each row with Spark SQL expressions: ``.select("*", "amount * 2 AS twice")``.

        Rows keep their event time even if its column is not selected, but only up to the next join: its results have an
        event time only if both time columns are selected under their own names.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> flow.source(pa.table({"t": [1], "n": [2]}), time="t").select("n", "t + 1 AS next").columns.names
        ['n', 'next']
        """
        if not expressions:
            raise ConfigError("select() names no column. Write .select('*', 'amount * 2 AS twice').")
        columns, expands = self._flow._selected(self._node, expressions)
        check_unique(columns, "select() gives")
        time = self._node.time if passes(self._node.time, expressions) else None
        return self._made(
            SelectNode(
                columns=columns,
                time=time,
                unit=self._node.unit,
                timed=self._node.timed,
                input=self._node,
                expressions=expressions,
                expands=expands,
            )
        )

    def where(self, condition: Any) -> Stream:
        """Keep the rows that satisfy a Spark SQL condition.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> rows = flow.source(pa.table({"t": [1, 2, 3]}), time="t").where("t > 1").to_memory()
        >>> _ = flow.run()
        >>> rows.table().column("t").to_pylist()
        [2, 3]
        """
        node = self._node
        self._flow._check_where(node, condition)
        return self._made(
            WhereNode(
                columns=node.columns,
                time=node.time,
                unit=node.unit,
                timed=node.timed,
                input=node,
                condition=condition,
            )
        )

    def union(self, *others: Stream) -> Stream:
        """All rows of these streams; the bound of the union is that of the slowest stream.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> a, b = (flow.source(pa.table({"t": [n]}), time="t", name=f"s{n}") for n in (1, 2))
        >>> rows = a.union(b).to_memory()
        >>> _ = flow.run()
        >>> rows.table().column("t").to_pylist()
        [1, 2]
        """
        nodes = (self._node, *(self._beside(other) for other in others))
        _check_alike(nodes, "union")
        time = self._node.time if all(node.time == self._node.time for node in nodes) else None
        timed = all(node.timed for node in nodes)
        return self._made(UnionNode(columns=self.columns, time=time, unit=self._node.unit, timed=timed, members=nodes))

    def distinct(
        self,
        on: str | Sequence[str] | None = None,
        within: DurationLike | None = None,
        name: str | None = None,
    ) -> Stream:
        """Drop duplicates: keep a row unless one with the same key was kept less than `within` before it.

        `on`: the key columns, by default all but the time column. Null equals null. `within`: how long, in event time,
        a key counts as seen after the row that was kept. A row exactly that much later is kept again. Without `within`,
        only rows with the same time are duplicates. Of several rows with the same key and time one is kept.

        The result depends on the rows alone, not on the order in which they arrive, so a row is emitted once its
        source's bound has passed it. If whole rows are compared (neither `on` nor `within` is given), the first to
        arrive is emitted at once. State: the waiting rows, and keys until the bound is `within` past them.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> clicks = flow.source(pa.table({"user": [1, 1, 2, 1], "t": [12, 3, 5, 14]}), time="t")
        >>> rows = clicks.distinct(on="user", within=10).to_memory()
        >>> _ = flow.run()
        >>> rows.table().sort_by("t").to_pylist()
        [{'user': 1, 't': 3}, {'user': 2, 't': 5}, {'user': 1, 't': 14}]
        """
        node = self._node
        keys = _distinct_keys(node, on, within)
        whole = within is None and {*keys, node.time} >= {*node.columns.names}
        span = None if within is None else Duration.of(within, "within")
        config = DupElim(keys) if whole else Distinct(keys, span, node.unit)
        return self._progress(config, keys, (node,), name, "distinct")

    def sort(self, name: str | None = None) -> Stream:
        """Sort the rows by event time.

        A row is emitted once the bound has passed it, so the order is exact; nobody has to guess how late rows may be.
        Sinks of the sorted stream get its rows in ascending order of time, within each epoch and from one epoch to the
        next; rows with the same time are in no particular order. On Spark one task sorts: the DataFrame of
        `foreach_epoch` is in order when collected, and `to_parquet` writes one sorted file per epoch. ``.where(…)`` and
        ``.select(…)`` keep the order; unions, joins and windows neither need nor keep it. Waiting rows are spilled if
        they outgrow the memory.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> late = pk.bounded_delay(10)
        >>> rows = flow.source(pa.table({"t": [5, 2, 9]}), time="t", progress=late).sort().to_memory()
        >>> _ = flow.run()
        >>> rows.table().column("t").to_pylist()
        [2, 5, 9]
        """
        return self._progress(Sort(), (), (self._node,), name, "sort")

    def head(self, rows: int, name: str | None = None) -> Stream:
        """The first `rows` rows, or all if there are fewer; then the stream ends.

        The flow ends after the epoch in which every sink has everything that it will ever get. If all its sinks take
        heads, it stops reading then, and emits nothing more when restarted from its checkpoint. A sink of another
        stream keeps it running; late outlets do not. Rows are emitted in the epoch in which they arrive. If an epoch
        has more than needed, the earliest by event time are taken, the same ones in a repeated epoch. Operators after a
        head, such as a window, see the end of the stream one epoch later.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> a = flow.source([pa.table({"k": [n, n], "t": [n, n]}) for n in range(9)], time="t", name="a")
        >>> b = flow.source([pa.table({"k": [n], "t": [n]}) for n in range(9)], time="t", name="b")
        >>> rows = a.join(b, on="k").head(3).to_memory()
        >>> flow.run().progress().rows_in
        6
        >>> rows.table().column("k").to_pylist()
        [0, 0, 1]
        """
        return self._progress(Head(rows), (), (self._node,), name, "head")

    def _later(self, key: str, name: str | None) -> Stream:
        """The same rows an epoch later; tasks share them by `key`."""
        return self._progress(Later(), (key,), (self._node,), name, "later")

    def merge(self, *others: Stream, name: str | None = None) -> Stream:
        """All rows of these streams in order of event time.

        Like ``.union(…)``, but in order: a row is emitted once the bounds of all streams have passed it. While one of
        them is silent, the rows of the others wait; see `idle=` of the progress policies. Sinks get rows in order as
        with `Stream.sort`.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> a = flow.source(pa.table({"t": [1, 4]}), time="t", name="a")
        >>> b = flow.source(pa.table({"t": [3, 2]}), time="t", name="b")
        >>> rows = a.merge(b).to_memory()
        >>> _ = flow.run()
        >>> rows.table().column("t").to_pylist()
        [1, 2, 3, 4]
        """
        if not others:
            raise ConfigError("merge() names no other stream. Write a.merge(b), or a.sort() to order one stream.")
        nodes = (self._node, *(self._beside(other) for other in others))
        _check_alike(nodes, "merge")
        return self._progress(Sort(len(nodes)), (), nodes, name, "merge")

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | Mapping[str, str] | Matching,
        within: Within | None = None,
        how: str = "inner",
        where: str | None = None,
        time: JoinTime | None = None,
        method: JoinMethodLike = "auto",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Join with the rows of `other` that have equal keys and are close in time.

        - `on`: the key columns, a mapping from ours to theirs, or one predicate: `near`, `intersects`, `contains`,
          `dwithin`.
        - `within`: `band`, `windows` or `tumbling`. By default, or with `always`, the full history is joined, and
          unmatched rows are emitted at the end of both streams.
        - `how`: inner, left, right, full, semi or anti.
        - `where`: another condition on the pairs of an inner join, a Spark SQL expression over ``l`` and ``r``.
        - `time`: which of a result's two times is its event time.
        - `method`: a name such as ``"ewj"``, or the parameters of a method, ``pk.Ewj(probe=0.5)``. By default it is
          chosen before each epoch.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> orders = flow.source(pa.table({"id": [1, 2], "t": [0, 5]}), time="t", name="orders")
        >>> paid = flow.source(pa.table({"id": [1], "t": [3]}), time="t", name="paid")
        >>> rows = orders.join(paid, on="id", within=pk.band(before=0, after=10), how="left").to_memory()
        >>> _ = flow.run()
        >>> rows.table().to_pylist()
        [{'id': 1, 't': 0, 't_right': 3}, {'id': 2, 't': 5, 't_right': None}]
        """
        within = Always() if within is None else within
        if isinstance(on, Matching):
            return self._joined(other, (), within, how, where, time, method, suffix, name, "apart", matching=on)
        return self._joined(other, read_on(on), within, how, where, time, method, suffix, name)

    def _joined(
        self,
        other: Stream,
        pairs: tuple[tuple[str, str], ...],
        within: Within,
        how: str = "inner",
        where: str | None = None,
        time: JoinTime | None = None,
        method: JoinMethodLike = "auto",
        suffix: str = "_right",
        name: str | None = None,
        keys: JoinKeys = "merged",
        near: tuple[Near, ...] = (),
        clock: tuple[str, ...] = (),
        part: Part | None = None,
        matching: Matching | None = None,
    ) -> Stream:
        """`join`, with keys of the same name in one column or in two, and more times that must be near each other.

        `clock` names the columns that `time` is made from, if they are not the time columns of both sides.
        """
        kind = read_how(how)
        left, right = self._node, self._beside(other)
        _check_join(left, right, pairs, within, kind, where)
        if matching is not None:
            matching.check(left.columns, right.columns)
        types = _row_types(left, right, pairs)
        time = time or default_time(kind)
        config = WindowJoin(pairs, within, kind, time, suffix, left.unit, read_method(method), keys, near, matching)
        clock = clock or config.clock(types)
        node = OperatorNode(
            columns=config.output(types),
            time=clock[0] if len(clock) == 1 else None,
            unit=left.unit,
            timed=bool(clock),
            clock=clock,
            name=self._flow._operator_name(name, "join"),
            inputs=(left, right),
            config=config,
            types=types,
            timing=config.timing,
            pairs=None if where is None else Pairs(where, config.sides(types)),
            part=part,
        )
        if node.pairs is not None:
            self._flow._check_pairs(node, node.pairs)
        return self._made(node)

    def lookup(
        self,
        table: Any,
        on: str | Sequence[str] | Mapping[str, str],
        how: LookupHow = "inner",
        freshness: Freshness = "snapshot",
        memory: str | int | None = None,
        max_age: DurationLike | None = None,
        shed: Shedding | Shed = "none",
        method: LookupMethodLike = "auto",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Join each row with the rows of a master table that have its key; the table may be larger than memory.

        - `table`: a master table (`pk.PageTable`, `pk.ParquetTable`, `pk.SqlTable`), a folder of Parquet files, an
          Arrow table, or on Spark any batch DataFrame.
        - `how`: inner, or left to keep rows without a match.
        - `freshness`: the table as it was when the flow first started (``"snapshot"``), or as it is in each epoch
          (``"latest"``).
        - `memory`: how much of the flow's memory to use.
        - `max_age`: how long, in event time, a row may wait for others that need the same part of the table; 0 for not
          at all.
        - `shed`: what to do if rows arrive faster than they can be answered. ``"considering"`` puts aside for later
          those that share their reads with the fewest others.
        - `method`: a name such as ``"cinlj"``. By default it is chosen before each epoch.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> orders = flow.source(pa.table({"customer": [7, 8], "t": [1, 2]}), time="t")
        >>> customers = pa.table({"customer": [7], "name": ["Ada"]})
        >>> rows = orders.lookup(customers, on="customer", how="left").to_memory()
        >>> _ = flow.run()
        >>> rows.table().sort_by("t").to_pylist()
        [{'customer': 7, 't': 1, 'name': 'Ada'}, {'customer': 8, 't': 2, 'name': None}]
        """
        keys, node = read_on(on), self._node
        for ours, _ in keys:
            if ours not in node.columns.names:
                raise ConfigError.unknown_column("on", ours, node.columns.names)
        if freshness not in get_args(Freshness):
            raise ConfigError(f"freshness={freshness!r} is not one of {', '.join(get_args(Freshness))}.")
        LOOKUP_METHODS.of(method)
        aside = _shedding(shed)
        called = self._flow._operator_name(name, "lookup")
        given = os.fspath(table) if isinstance(table, os.PathLike) else table
        source = self._flow._master_table(given, tuple(theirs for _, theirs in keys), freshness)
        check_names(source.columns.names)
        keys = in_order_of(source.keys, keys)
        types = (RowType(_as_keys(node.columns, keys, source.columns), tuple(ours for ours, _ in keys), node.time),)
        age = None if max_age is None else _age(max_age)
        waits = None if age is None or not age.amount else age
        config = LookupJoin(source, keys, how, method, suffix, waits, node.unit, shed=aside, freshness=freshness)
        if age != waits and config.defers:
            raise ConfigError(_must_not_wait(config))
        if freshness == "latest" and config.stages.defers:
            # A snapshot is copied into pages, which suit every method.
            config.stages.check(source.open())
        made = OperatorNode(
            columns=config.output(types),
            time=node.time,
            unit=node.unit,
            timed=node.timed and node.time is not None,
            clock=() if node.time is None else (node.time,),
            name=called,
            inputs=(node,),
            config=config,
            types=types,
            memory=None if memory is None else self._flow._check_memory(memory),
        )
        return self._made(made)

    def window(
        self,
        window: Window | None = None,
        *,
        range: DurationLike | None = None,
        slide: DurationLike | None = None,
        origin: DurationLike = 0,
    ) -> Windowed:
        """Cut the stream into windows: of `range` every `slide` (by default tumbling), or of any other kind.

        Other kinds: ``pk.session("30 min")``, ``pk.landmark("1 h")``, ``pk.rows(1000, 10)``,
        ``pk.slide_by_tuple("5 min")``. Then group with ``.by(…)`` and aggregate with ``.agg(…)``.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> sales = flow.source(pa.table({"shop": ["a", "b", "a"], "eur": [1, 2, 3], "t": [0, 4, 9]}), time="t")
        >>> rows = sales.window(range=10, slide=5).by("shop").agg(n=pk.count(), eur=pk.sum("eur")).to_memory()
        >>> _ = flow.run()
        >>> rows.table().sort_by("window_end").select(["shop", "window_end", "n", "eur"]).to_pylist()[-1]
        {'shop': 'a', 'window_end': 15, 'n': 1, 'eur': 3}
        """
        return Windowed(self, read_window(window, range, slide, origin))

    def _progress(
        self,
        config: DupElim | Distinct | Head | Later | Sort | Top,
        keys: tuple[str, ...],
        members: tuple[Node, ...],
        name: str | None,
        kind: str,
    ) -> Stream:
        """A stream of the same columns, made by an operator of progress."""
        for place, member in enumerate(members):
            if not member.timed and not isinstance(config, Head):
                which = f"stream {place}" if len(members) > 1 else "the stream"
                raise ConfigError(f"{kind}(): {which} has lost its event time: {_how_time_was_lost(member)}")
        node = members[0]
        clocks = [clock_of(member) for member in members]
        clock, timing = clocks[0] if all(one == clocks[0] for one in clocks) else ((), config.timing)
        time = node.time if all(member.time == node.time for member in members) else None
        types = (RowType(_with_plain_keys(node.columns, keys), keys, time),) * len(members)
        made = OperatorNode(
            columns=config.output(types),
            time=time,
            unit=node.unit,
            timed=bool(clock),
            clock=clock,
            name=self._flow._operator_name(name, kind),
            inputs=members,
            timing=timing,
            config=config,
            types=types,
        )
        return self._made(made)

    def _beside(self, other: Any) -> Node:
        """Another stream of the same flow."""
        if not isinstance(other, Stream) or other._flow is not self._flow:
            raise ConfigError(f"{other!r} is not a stream of this flow. Pass one made by flow.source(…).")
        return other._node

    def _made(self, node: Node) -> Stream:
        if not isinstance(node, OperatorNode):
            return Stream(self._flow, node)
        check_progress(node)
        return self._flow._operator(node)


class Windowed:
    """A stream cut into windows, to be aggregated: ``.by("shop").agg(n=pk.count())``."""

    def __init__(self, stream: Stream, window: Window, by: tuple[str, ...] = ()) -> None:
        self._stream = stream
        self._window = window
        self._by = by

    def __repr__(self) -> str:
        by = f" by {', '.join(self._by)}" if self._by else ""
        return f"<{self._window}{by} of {self._stream!r}: call .agg(…)>"

    def by(self, *columns: str) -> Windowed:
        """Group by these columns. Null is a group like any other."""
        for column in columns:
            if not isinstance(column, str):
                raise ConfigError(f"by({column!r}) is not the name of a column. Write .by('shop', 'day').")
        return Windowed(self._stream, self._window, (*self._by, *columns))

    def agg(
        self,
        *,
        emit: Emit = "final",
        method: AggregateMethodLike = "auto",
        name: str | None = None,
        start: str = "window_start",
        end: str = "window_end",
        having: Any = None,
        **aggregates: AnyFunction,
    ) -> Stream:
        """Aggregate the rows of each window and group: one result per window and group that has a row.

        The results have the columns of `by`, `window_start`, `window_end` (exclusive), and the aggregates under their
        names. A result is emitted once its window is complete. `having` is a Spark SQL condition on these columns, like
        ``.where(…)`` on the results. `method` is for sliding windows: a name such as ``"wid"``; by default it is chosen
        before each epoch.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> sales = flow.source(pa.table({"shop": ["a", "b", "a"], "t": [0, 4, 9]}), time="t")
        >>> rows = sales.window(range=10).by("shop").agg(n=pk.count(), having="n > 1").to_memory()
        >>> _ = flow.run()
        >>> rows.table().to_pylist()
        [{'shop': 'a', 'window_start': 0, 'window_end': 10, 'n': 2}]
        """
        # Asked of the type: a column of Spark's has every attribute that one asks it for.
        if hasattr(type(having), "result"):
            raise ConfigError(
                f"having={having!r} is an aggregate, but having= is a condition on the results, as having='n > 10'. "
                f"To get a column called having, use another name here and rename it: .select(…, 'n AS having')."
            )
        for called, function in aggregates.items():
            if not hasattr(type(function), "result"):
                raise ConfigError(
                    f"{called}={function!r} is not an aggregate. Write one with its column, as in "
                    f"{called}=pk.sum('amount')."
                )
        results = self._aggregated(aggregates, emit, method, name, start, end)
        return results if having is None else _having(results, having)

    def top(self, n: int, of: str, name: str | None = None) -> Stream:
        """The rows with the `n` greatest values of column `of` in each window and group, unchanged.

        Once its window is complete, a row is emitted if fewer than `n` rows of its window and group have a greater
        value: rows that tie for the last place are all emitted, rows with null never. For the smallest values select
        their negative first. Windows follow one another: ``.window(range="10 s")``.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> bids = flow.source(pa.table({"lot": ["a", "b", "a"], "price": [3, 5, 7], "t": [0, 4, 9]}), time="t")
        >>> rows = bids.window(range=10).by("lot").top(1, "price").to_memory()
        >>> _ = flow.run()
        >>> rows.table().sort_by("t").to_pylist()
        [{'lot': 'b', 'price': 5, 't': 4}, {'lot': 'a', 'price': 7, 't': 9}]
        """
        stream, node = self._stream, self._stream._node
        for argument, column in (*(("by", column) for column in self._by), ("of", of)):
            if column not in node.columns.names:
                raise ConfigError.unknown_column(argument, column, node.columns.names)
        for argument, column in (*(("by", column) for column in self._by), ("of", of)):
            kind = node.columns.field(column).type
            if not is_flat(_values_of(kind)):
                raise ConfigError(
                    f"top(): {argument}={column!r} is of type {kind}, whose values cannot be compared. "
                    f"{instead_of(column, kind)}"
                )
        config = Top(self._by, n, of, self._window, node.unit)
        _check_reach(node, self._window)
        return stream._progress(config, self._by, (node,), name, "top")

    def _aggregated(
        self,
        aggregates: Mapping[str, AnyFunction],
        emit: Emit = "final",
        method: AggregateMethodLike = "auto",
        name: str | None = None,
        start: str = "window_start",
        end: str = "window_end",
    ) -> Stream:
        """As `agg`, with any names for the aggregates."""
        stream = self._stream
        node = stream._node
        if not node.timed:
            raise ConfigError(f"The stream has lost its event time: {_how_time_was_lost(node)}")
        by_groups = method_by_groups(self._window, emit, method)
        statements = None if by_groups is None else statements_for(node, self._by)
        config = WindowAggregate(
            window=self._window,
            by=self._by,
            aggregates=tuple(aggregates.items()),
            emit=emit,
            unit=node.unit,
            method=method if statements is None or by_groups is None else by_groups,
            start=start,
            end=end,
            punctuated=() if statements is None else tuple(statements.columns.names),
        )
        _check_reach(node, self._window)
        types = (RowType(_decoded(_needed(node, config)), config.keys, node.time),)
        if statements is not None:
            types += (RowType(_decoded(statements.columns), config.keys),)  # type: ignore[assignment]
        by_rows = isinstance(self._window, BY_ROWS)
        made = OperatorNode(
            columns=config.output(types),
            time=None,
            unit=node.unit,
            timed=not by_rows,
            clock=() if by_rows else (end,),
            name=stream._flow._operator_name(name, "window"),
            inputs=(node,) if statements is None else (node, statements),
            config=config,
            types=types,
            timing=config.timing,
        )
        return stream._made(made)


def _how_time_was_lost(node: Node) -> str:
    """Why the rows of a stream have no event time any more, and what to do about it."""
    windows = [part for part in operators_of(node) if part.config.window_start is not None]
    if any(not part.clock for part in windows):
        return (
            "windows that count rows have an order, but no time. Use windows of time, or put what needs a time before "
            "them."
        )
    if windows:
        return (
            "the time of a window's result is the window's end, which joins and lookups do not pass on. Join or look "
            "up after the last operator that needs a time, or before the windows."
        )
    return (
        "its time column was not selected, under its own name, before a join, a lookup, .distinct(), .sort() or "
        ".merge(). Keep the time column in the .select(…) before that."
    )


def _check_reach(node: Node, window: Window) -> None:
    """Refuse windows whose ends might not fit the time column: times of sources are kept in half of what it holds."""
    before, own, most = reach_of(node), window.reach(node.unit), FARTHEST[node.unit]
    if before + own > most:
        raise WindowError(
            f"{window} is {own} steps long, over windows of {before}: together more than {most}, so that the ends of "
            f"windows may not fit the time column. Write shorter windows."
        )


def _check_alike(nodes: Sequence[Node], what: str) -> None:
    """Refuse streams that cannot be united: of other columns, or another unit of time, than the first."""
    first = nodes[0]
    for place, node in enumerate(nodes):
        if node.columns.names != first.columns.names or node.columns.types != first.columns.types:
            raise ConfigError(
                f"{what}: stream {place} has columns {_show(node.columns)}, the first has {_show(first.columns)}. "
                f"Bring them to the same columns in the same order with .select(…)."
            )
        if node.unit != first.unit:
            raise ConfigError(f"{what}: stream {place} counts {node.unit}, the first {first.unit}.")


def _distinct_keys(node: Node, on: str | Sequence[str] | None, within: DurationLike | None) -> tuple[str, ...]:
    """The columns whose values make rows duplicates, but for the time column: it is compared anyway."""
    named = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, Iterable) else ()
    if on is not None and not named:
        raise ConfigError(f"on={on!r} names no column. Write on='id', or leave it out to compare whole rows.")
    asked = named or tuple(node.columns.names)
    held = set(node.columns.names)
    for column in asked:
        if column not in held:
            raise ConfigError.unknown_column("on", column, node.columns.names)
    if on is not None and within is not None and node.time in asked:
        raise ConfigError(
            f"on={node.time!r} is the time column: rows that are equal in it have the same time, so within={within!r} "
            f"would have no effect. Leave out one of the two."
        )
    keys = tuple(dict.fromkeys(column for column in asked if column != node.time))
    for key in keys:
        if not can_hash(node.columns.field(key).type):
            raise ConfigError(
                f"distinct: column {key!r} is of type {node.columns.field(key).type}, which cannot be compared. "
                f"Name the columns that make a row a duplicate, as in on='id'."
            )
    return keys


_OF_THE_WRITER = {
    "mode": "to_format() always appends: an epoch that replaced what is there would delete the results of earlier ones",
    "format": "the format is the first argument of to_format()",
    "bucketby": "Spark buckets only tables of its catalog, and to_format() writes files. Write partitionBy= instead",
    "sortby": "Spark sorts only within buckets, which to_format() cannot write. Use foreach_epoch(…)",
    "clusterby": "Spark clusters only tables of its catalog, and to_format() writes files. Use foreach_epoch(…)",
}
"""Settings that Spark's writer takes through methods; as options they would have no effect, in upper or lower case."""


def _writer_options(options: Mapping[str, Any], columns: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The options for Spark's writer as text, and the columns to partition by."""
    kept: dict[str, str] = {}
    partition_by: tuple[str, ...] = ()
    for name, value in options.items():
        if name.lower() == "partitionby":
            partition_by = _partition_columns(value, columns)
        elif name.lower() == "mode" and value == "append":
            continue
        elif name.lower() in _OF_THE_WRITER:
            raise ConfigError(f"{name}={value!r} cannot be an option: {_OF_THE_WRITER[name.lower()]}.")
        else:
            kept[name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return kept, partition_by


def _partition_columns(value: Any, columns: Sequence[str]) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"partitionBy={value!r} names no column. Write one in quotes, or a list of them.")
    for name in names:
        if name not in columns:
            raise ConfigError.unknown_column("partitionBy", name, columns)
    if set(names) == set(columns):
        raise ConfigError(
            f"partitionBy={value!r} names every column, so none is left to write into the files. Leave one out."
        )
    return names


def _having(results: Stream, condition: Any) -> Stream:
    try:
        return results.where(condition)
    except ConfigError as error:
        columns = ", ".join(results.columns.names)
        raise ConfigError(
            f"having={condition!r} is not a condition on the results, which have {columns}: {error}"
        ) from error


def _needed(node: Node, config: WindowAggregate) -> pa.Schema:
    """The columns that an aggregation looks at: groups, what it aggregates, and the time."""
    asked: list[tuple[str, str | None]] = [("by", name) for name in config.by]
    asked += [(n, f.column) for n, f in config.aggregates if f.column is not None or not isinstance(f, Count)]
    asked += [("where", where) for _, f in config.aggregates if (where := where_of(f)) is not None]
    if isinstance(config.window, SlideByTuple) and config.window.row_num is not None:
        asked.append(("row_num", config.window.row_num))
    wanted = {node.time, *config.keys}
    held = node.columns.names
    for argument, column in asked:
        if column not in held:
            raise ConfigError.unknown_column(argument, column, held)
        wanted.add(column)
    return pa.schema([field for field in node.columns if field.name in wanted])


def _with_plain_keys(columns: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """Columns in which keys that are dictionaries of anything but text are values: Arrow cannot encode them again."""
    kinds = {name: columns.field(name).type for name in keys}
    values = {name: kind.value_type for name, kind in kinds.items() if pa.types.is_dictionary(kind)}
    plain = {name: kind for name, kind in values.items() if not (pa.types.is_string(kind) or pa.types.is_binary(kind))}
    return pa.schema([field.with_type(plain.get(field.name, field.type)) for field in columns])


def _decoded(columns: pa.Schema) -> pa.Schema:
    """Columns as what an aggregation compares: a dictionary as its values, a short decimal as one of 128 bits."""
    return pa.schema([field.with_type(_values_of(field.type)) for field in columns])


def _values_of(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _values_of(kind.value_type)
    return pa.decimal128(kind.precision, kind.scale) if pa.types.is_decimal(kind) and kind.bit_width < 128 else kind


def read_window(
    window: Window | None, range: DurationLike | None, slide: DurationLike | None, origin: DurationLike
) -> Window:
    """Read what `Stream.window` was given: a window, or the range and slide of one.

    >>> str(read_window(None, "1 h", "1 min", 0))
    'sliding(range=1 h, slide=1 min)'
    """
    if window is None:
        if range is None:
            raise ConfigError("window() needs a length. Write .window(range='10 min', slide='1 min').")
        return sliding(range, slide, origin)
    if range is not None or slide is not None:
        raise ConfigError(f"window={window} and range= are two windows. Write one of them.")
    if not hasattr(window, "on"):
        raise ConfigError(
            f"window={window!r} is not a kind of window. Write .window(range='10 min'), or pk.session('30 min')."
        )
    return window


def _check_join(
    left: Node,
    right: Node,
    keys: tuple[tuple[str, str], ...],
    within: Any,
    how: str,
    where: str | None,
) -> None:
    for ours, theirs in keys:
        for node, key in ((left, ours), (right, theirs)):
            if key not in node.columns.names:
                raise ConfigError.unknown_column("on", key, node.columns.names)
            if key == node.time:
                raise ConfigError(f"on={key!r} is the time column, which within= compares. Leave it out of on=.")
    if not isinstance(within, Band | Tumbling | Always):
        raise ConfigError(
            f"within={within!r} is not a time condition. "
            f"Write pk.band(before='10 min', after='10 min'), pk.windows(left=…, right=…) or "
            f"pk.tumbling('5 min'); leave it out to join the full history of both streams."
        )
    for side, node in (("left", left), ("right", right)):
        if not node.timed:
            raise ConfigError(f"The {side} stream has lost its event time: {_how_time_was_lost(node)}")
    if left.unit != right.unit:
        raise ConfigError(
            f"The left time counts {left.unit}, the right one {right.unit}: they cannot be compared. "
            f"Bring both to a timestamp (or both to an integer) in their sources."
        )
    check_clocks({"the left stream": time_type(left), "the right one": time_type(right)})
    if where is not None and how != "inner":
        raise ConfigError(
            f"where= is for inner joins, but how={how!r}. Filter one side before the join with .where(…), "
            f"or the results after it."
        )


def _row_types(left: Node, right: Node, keys: tuple[tuple[str, str], ...]) -> tuple[RowType, RowType]:
    columns = [left.columns, right.columns]
    # A column may be in several pairs: each may widen it, and its partners in those before with it.
    for pair in [pair for _ in keys for pair in keys]:
        kind = common_key(*(columns[port].field(pair[port]) for port in (LEFT, RIGHT)))
        for port in (LEFT, RIGHT):
            place = columns[port].get_field_index(pair[port])
            columns[port] = columns[port].set(place, columns[port].field(place).with_type(kind))
    return (
        RowType(columns[LEFT], tuple(ours for ours, _ in keys), left.time),
        RowType(columns[RIGHT], tuple(theirs for _, theirs in keys), right.time),
    )


def _shedding(shed: Any) -> Shedding:
    if isinstance(shed, str):
        return Shedding(shed)  # type: ignore[arg-type]
    if not isinstance(shed, Shedding):
        raise ConfigError(
            f"shed={shed!r} is not a way to shed load. Write shed='considering', 'keep', 'none' to let rows wait, or "
            f"pk.Shedding(…)."
        )
    if shed.to is not None and not isinstance(shed.to, str | os.PathLike):
        raise ConfigError(f"to={shed.to!r} is not a folder for shed rows. Write its path or URI.")
    return shed if shed.to is None else replace(shed, to=os.fspath(shed.to))


def _age(max_age: DurationLike) -> Duration:
    age = Duration.of(max_age, "max_age")
    if age.amount < 0:
        raise ConfigError(f"max_age={max_age!r} is negative. Write how long rows may wait, as in '10 s', or 0.")
    return age


def _must_not_wait(config: LookupJoin) -> str:
    shed = config.shed
    waits = f"shed={shed.policy!r}" if shed.on else f"method={config.method_name!r}"
    instead = "shed='none'" if shed.on else "method='auto'"
    return (
        f"max_age=0 says that no row may wait, but {waits} lets rows wait. Write how long, as in '10 s', or {instead}."
    )


def _as_keys(columns: pa.Schema, keys: tuple[tuple[str, str], ...], table: pa.Schema) -> pa.Schema:
    """A stream's columns with keys of the types that the table has."""
    for ours, theirs in keys:
        kind = table_key(columns.field(ours), table.field(theirs))
        place = columns.get_field_index(ours)
        columns = columns.set(place, columns.field(place).with_type(kind))
    return columns


def _check_late(node: Node) -> None:
    columns = late_columns(node)
    names = columns.names
    twice = first_twice(names)
    if twice is not None:
        raise ConfigError(
            f"Column {twice!r} of a source has the name of a column that .late adds. Rename it in the source."
        )
    for source in sources_of(node):
        for field in source.columns:
            if columns.field(field.name).type != field.type and not _has_text(field.type):
                raise _no_text(field, source, sources_of(node))


def _has_text(kind: pa.DataType) -> bool:
    """Whether any value of this type can be written as text."""
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    bytes_or_worse = (
        pa.types.is_nested,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
        pa.types.is_interval,
    )
    return not any(is_one(kind) for is_one in bytes_or_worse)


def _no_text(field: pa.Field, source: SourceNode, sources: Sequence[SourceNode]) -> ConfigError:
    others = [
        (other.name, other.columns.field(field.name).type) for other in sources if field.name in other.columns.names
    ]
    name, kind = next((name, kind) for name, kind in others if kind != field.type)
    return ConfigError(
        f"Column {field.name!r} is of type {field.type} in source {source.name!r} and {kind} in source {name!r}. "
        f".late puts the rows of both into one table, with such a column as text, which {field.type} has no form of. "
        f"Rename the column in one of them before flow.source(…)."
    )


def _show(columns: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in columns)
