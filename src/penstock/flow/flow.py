"""Flows: sources in, streams through, sinks out, and the query that a started flow is."""

from __future__ import annotations

import abc
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

import pyarrow as pa

from penstock.core.budget import parse_bytes, show_bytes
from penstock.core.checks import is_number
from penstock.core.durations import Duration
from penstock.core.errors import ConfigError, FlowError, PenstockError
from penstock.core.files import Changes, Format, Payload, Sizes
from penstock.core.master import Freshness, TableSource
from penstock.core.progress import NoPromise, Policy, Punctuated
from penstock.core.rows import PLACE, RESERVED
from penstock.core.time import time_unit
from penstock.core.within import Within
from penstock.flow.display import Explanation, Status, preformatted
from penstock.flow.graph import Node, OperatorNode, Pairs, SourceNode, check_unique, sources_of
from penstock.flow.groups import guarded
from penstock.flow.materialize import Late, asked_by_stream, asked_homes
from penstock.flow.multi_way import KeyLike, MultiWay
from penstock.flow.plans import Materialize
from penstock.flow.report import Report
from penstock.flow.sinks import ParquetSink, Sink
from penstock.flow.sql import build
from penstock.flow.stream import Stream
from penstock.operators.aggregate.config import Emit
from penstock.operators.aggregate.methods import AggregateMethodLike
from penstock.operators.multi_way import MultiJoinMethodLike


class Query(Protocol):
    """A flow that has been started."""

    def stop(self, timeout: float | None = None) -> bool:
        """Stop once the running epoch has committed. False if it still runs after `timeout` seconds."""
        ...

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until the query stops, at most `timeout` seconds, and re-raise its error. True if it has stopped."""
        ...

    def explain(self) -> Explanation:
        """The plan as text: what each operator does, by which method and why, and what was measured."""
        ...

    def progress(self) -> Report:
        """Rates, state, bounds and late rows, as measured in the epochs so far."""
        ...

    @property
    def status(self) -> Status:
        """Whether the query is running, stopped, failed or ended, and the last epoch that it committed."""
        ...

    @property
    def exception(self) -> PenstockError | None:
        """The error the query failed with, or None."""
        ...


_LONGEST = 100
"""Longest name of an operator, in bytes: file systems allow 255 in all."""


def read_trigger(trigger: str) -> int:
    """Microseconds from one epoch to the next.

    >>> read_trigger("1 s")
    1000000
    """
    every = Duration.of(trigger, "trigger").on("microseconds", "trigger")
    if every < 0:
        raise ConfigError(f"trigger={trigger!r} is negative. Write how often an epoch starts, as in '1 s'.")
    return every


def read_timeout(timeout: float | None) -> float | None:
    """Seconds to wait at most; None to wait without limit, which includes times longer than a thread can wait.

    >>> read_timeout(1.5), read_timeout(None), read_timeout(float("inf"))
    (1.5, None, None)
    """
    if timeout is None:
        return None
    if not is_number(timeout) or not timeout >= 0:
        raise ConfigError(
            f"timeout={timeout!r} is not a length of time. Write how many seconds to wait at most, as in 2.5, or leave "
            f"it out to wait without limit."
        )
    return float(timeout) if timeout <= threading.TIMEOUT_MAX else None


def _check_schema(schema: Any) -> None:
    if schema is not None and not isinstance(schema, pa.Schema):
        raise ConfigError(
            f"schema={schema!r} is not a pyarrow.Schema. Write schema=pa.schema({{'ts': pa.timestamp('us')}})."
        )


def _text(name: Any) -> str | None:
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"name={name!r} must be a string. Write a name in quotes, or leave name= out.")
    return name


def _check_punctuated(policy: Punctuated, columns: pa.Schema, time: str) -> None:
    """Raise unless the columns that speak of time have its type, and those that make a group can."""
    for column in dict.fromkeys(name for name in (policy.column, policy.overall) if name is not None):
        if column not in columns.names:
            raise ConfigError.unknown_column("punctuated", column, columns.names)
        if columns.field(column).type != columns.field(time).type:
            raise ConfigError(
                f"punctuated({column!r}) is {columns.field(column).type}, but the time column "
                f"{time!r} is {columns.field(time).type}. Cast it to the same type in the source."
            )
    for column in policy.by:
        if column not in columns.names:
            raise ConfigError.unknown_column("by", column, columns.names)
        if column == time:
            raise ConfigError(
                f"punctuated(by={column!r}) groups rows by the time column, which the bounds are about. Name columns "
                f"that identify a group, like 'sensor'."
            )
        if pa.types.is_nested(columns.field(column).type):
            raise ConfigError(
                f"punctuated(by={column!r}) is of type {columns.field(column).type}, which windows cannot be grouped "
                f"by. Make one of its fields a column in the source, and name that."
            )


class Flow(abc.ABC):
    """A graph of streams with one memory budget. Create one as `penstock.Flow` or `penstock.LocalFlow`."""

    def __init__(self, memory: str | int) -> None:
        self.memory = parse_bytes(memory)
        self._sources: list[SourceNode] = []
        self._streams: dict[str, Stream] = {}
        """The streams that sources became, by the names of the sources."""
        self._sinks: list[Sink] = []
        self._homes: dict[SourceNode, Payload] = {}
        """Where joins want payload of sources to be."""
        self._operators: list[str] = []

    def __repr__(self) -> str:
        sources = ", ".join(repr(node.name) for node in self._sources) or "none yet"
        sinks = ", ".join(map(str, self._sinks)) or "none yet"
        return f"<{self._place}, {show_bytes(self.memory)}; sources: {sources}; sinks: {sinks}>"

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    def source(
        self,
        data: Any,
        time: str,
        progress: Policy | None = None,
        name: str | None = None,
        payload: Payload = "auto",
    ) -> Stream:
        """Add a source: its rows, the column with their event time, and its promise about rows still to come.

        The time column is a timestamp, a date or an integer. `progress` is one of the policies (`bounded_delay`,
        `ordered`, `bounded_tuples`, `punctuated`, `timer`); by default nothing is promised until the source ends.
        With ``punctuated(…, by="sensor")`` each sensor has its own bound.

        `payload` says where columns are kept that joins only pass on: with "row" they travel with the rows; with
        "segments" they are written to the checkpoint once, and results fetch them from there. Segments are deleted once
        no row in state refers to them. With "source", supported for streams of Parquet files on Spark, they stay in the
        files and are read for results only. "auto" leaves them there if that is predicted to cost less; otherwise they
        travel.
        """
        return self._source(data, time, progress, name, payload)

    def _source(
        self,
        data: Any,
        time: str,
        progress: Policy | None,
        name: str | None,
        payload: Payload,
        files: bool = False,
    ) -> Stream:
        columns = self._columns_of(data)
        for taken in columns.names:
            if taken in RESERVED or taken.startswith(PLACE):
                raise ConfigError(f"Column {taken!r} has a name that penstock reserves. Rename it in the source.")
        if payload not in get_args(Payload):
            raise ConfigError(f"payload={payload!r} must be one of {', '.join(get_args(Payload))}.")
        why_not = None if files else self._why_not_read_again(data)
        if payload == "source" and why_not is not None:
            raise ConfigError(
                f"payload='source' leaves columns in the files that rows come from, but rows of this source cannot be "
                f"read again: {why_not}. Write payload='segments', which copies the columns into the checkpoint once, "
                f"or read files with flow.parquet(…) or its siblings."
            )
        check_unique(columns, "The source has")
        unit = time_unit(columns, time)
        policy = progress if progress is not None else NoPromise()
        if not hasattr(policy, "bound_from_rows"):
            raise ConfigError(f"progress={progress!r} is not a policy. Write pk.bounded_delay('30 s'), for example.")
        policy.check(unit)
        if isinstance(policy, Punctuated):
            _check_punctuated(policy, columns, time)
        label = _text(name) or f"source{len(self._sources)}"
        if any(known.name == label for known in self._sources):
            raise ConfigError(f"name={label!r} is already the name of another source. Choose another one.")
        node = SourceNode(
            columns=columns,
            time=time,
            unit=unit,
            name=label,
            progress=policy,
            data=data,
            payload=payload,
            files=why_not is None,
        )
        stream = Stream(self, node)
        if isinstance(policy, Punctuated) and policy.by:
            stream = self._operator(guarded(node, policy.by, self._operator_name(None, "guard")))
        self._sources.append(node)
        self._streams[label] = stream
        return stream

    def parquet(
        self,
        path: Any,
        time: str,
        *,
        schema: pa.Schema | None = None,
        progress: Policy | None = None,
        name: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        payload: Payload = "auto",
    ) -> Stream:
        """Read the Parquet files of a folder, and new ones as they arrive; see `source` for the other arguments.

        Arrow reads only the columns that the flow needs. `schema` names the columns, by default those of the first
        file; a column that a file lacks is null in its rows. On Spark this is faster than a DataFrame over the same
        files. An epoch reads all new files, or at most `max_files`, or about `max_bytes` of them.

        `payload` says where columns are kept that joins only pass on: with "source" they stay in the files and are read
        only for results; with "row" they travel with the rows; "auto" takes the cheaper of the two. Files must not
        change while their rows are in state. With "segments" they may, because the columns are copied to the checkpoint
        once.

        >>> import tempfile, penstock as pk, pyarrow.parquet as pq
        >>> folder = tempfile.mkdtemp()
        >>> pq.write_table(pa.table({"ts": [1, 2], "item": ["a", "b"]}), f"{folder}/0.parquet")
        >>> flow = pk.LocalFlow()
        >>> rows = flow.parquet(folder, time="ts").where("item = 'b'").to_memory()
        >>> _ = flow.run()
        >>> rows.table().to_pylist()
        [{'ts': 2, 'item': 'b'}]
        """
        return self._file_source("parquet", path, time, schema, progress, name, max_files, max_bytes, payload)

    def arrow(
        self,
        path: Any,
        time: str,
        *,
        schema: pa.Schema | None = None,
        progress: Policy | None = None,
        name: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        payload: Payload = "auto",
    ) -> Stream:
        """Read files in Arrow's IPC format (Feather), with or without a footer; see `parquet`."""
        return self._file_source("arrow", path, time, schema, progress, name, max_files, max_bytes, payload)

    def csv(
        self,
        path: Any,
        time: str,
        *,
        schema: pa.Schema | None = None,
        progress: Policy | None = None,
        name: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        payload: Payload = "auto",
    ) -> Stream:
        """Read CSV files, whose first line names the columns; see `parquet`.

        An empty field is null, an empty string in quotes is not. Without a `schema`, types are inferred from the first
        file.
        """
        return self._file_source("csv", path, time, schema, progress, name, max_files, max_bytes, payload)

    def json(
        self,
        path: Any,
        time: str,
        *,
        schema: pa.Schema | None = None,
        progress: Policy | None = None,
        name: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        payload: Payload = "auto",
    ) -> Stream:
        """Read files with one JSON object per line; see `parquet`. Fields that are not in the schema are ignored."""
        return self._file_source("json", path, time, schema, progress, name, max_files, max_bytes, payload)

    def delta(
        self,
        path: Any,
        time: str,
        *,
        schema: pa.Schema | None = None,
        progress: Policy | None = None,
        name: str | None = None,
        max_commits: int | None = None,
        changes: Changes = "refuse",
        payload: Payload = "auto",
    ) -> Stream:
        """Read a Delta table: the rows that it has, then those that commits add; see `source` for the other arguments.

        Arrow reads only the columns that the flow needs; partition columns come from the table's log. `schema` names
        the columns, by default those that the table has now. An epoch reads all new commits, or at most `max_commits`.
        A commit that deletes or rewrites rows fails the flow; with ``changes="skip"`` it is skipped, including the rows
        that it adds. Commits that only rearrange rows (OPTIMIZE) add none.

        >>> import tempfile, penstock as pk
        >>> from deltalake import write_deltalake
        >>> folder = tempfile.mkdtemp()
        >>> for day, times in (("mon", [1, 2]), ("tue", [3])):
        ...     rows = pa.table({"ts": times, "day": [day] * len(times)})
        ...     write_deltalake(folder, rows, mode="append", partition_by=["day"])
        >>> flow = pk.LocalFlow()
        >>> rows = flow.delta(folder, time="ts").where("ts > 1").sort().to_memory()
        >>> _ = flow.run()
        >>> rows.table().to_pylist()
        [{'ts': 2, 'day': 'mon'}, {'ts': 3, 'day': 'tue'}]
        """
        _check_schema(schema)
        data = self._delta(path, schema, max_commits, changes)
        return self._source(data, time, progress, name, payload, files=True)

    def _file_source(
        self,
        kind: Format,
        path: Any,
        time: str,
        schema: pa.Schema | None,
        progress: Policy | None,
        name: str | None,
        max_files: int | None,
        max_bytes: int | None,
        payload: Payload,
    ) -> Stream:
        _check_schema(schema)
        data = self._files(kind, path, schema, max_files, max_bytes)
        return self._source(data, time, progress, name, payload, files=True)

    def sql(
        self,
        query: str,
        /,
        *,
        emit: Emit | None = None,
        method: AggregateMethodLike | None = None,
        **streams: Stream,
    ) -> Stream:
        """Run a query in Spark's SQL, with windows in brackets after an aggregate or a stream in FROM.

        FROM names sources of the flow, or other streams of it, passed by name as `streams`. A query may have WHERE,
        GROUP BY, HAVING, UNION ALL of streams, and a join of two or more. `emit` and `method` apply to its aggregates,
        as in `Windowed.agg`; unless all results are final, `emitted` is their last column.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> packets = flow.source(pa.table({"ip": ["a", "b", "a"], "ts": [0, 4, 9]}), time="ts", name="packets")
        >>> rows = flow.sql('''
        ...     SELECT ip, window_end, count(*) AS n
        ...     FROM packets [RANGE 10 SLIDE 5 WATTR ts]
        ...     GROUP BY ip
        ...     HAVING n > 1
        ... ''').to_memory()
        >>> _ = flow.run()
        >>> rows.table().to_pylist()
        [{'ip': 'a', 'window_end': 10, 'n': 2}]
        """
        options = {name: value for name, value in (("emit", emit), ("method", method)) if value is not None}
        for name, value in options.items():
            if isinstance(value, Stream):
                raise ConfigError(
                    f"{name}= is an argument of sql(), so no stream can be called that. Choose another name."
                )
        self._check_streams(streams)
        return build(query, self._streams | streams, options)

    def join(
        self,
        *,
        on: str | Sequence[str],
        within: Within | None = None,
        plan: str = "auto",
        time: str = "latest",
        method: MultiJoinMethodLike = "auto",
        materialize: Materialize | Late | Mapping[str, Materialize] = "auto",
        key: Mapping[str, KeyLike] | None = None,
        name: str | None = None,
        **streams: Stream,
    ) -> Stream:
        """Join several streams on equal keys: ``flow.join(li=lines, o=orders, s=suppliers, on=[…])``.

        - `on`: equalities of two columns, ``"li.orderkey = o.orderkey"``, that connect all streams. Any other condition
          filters the results.
        - `within`: how close in time every two rows of a result must be; the stream named first is the left one. By
          default the full history is joined.
        - `plan`: which streams are joined first, as in ``"(li o) s"``; without parentheses, ``"li o s"``, all of them
          in one operator, for streams with the same key. By default it is chosen by the predicted cost of partial
          results, and kept as long as the checkpoint.
        - `time`: the event time of a result: that of its latest row, its earliest, or of one stream, by name.
        - `method`: how one operator joins all streams, by default ``"msj"``.
        - `materialize`: when rows get the columns that the join only passes on. ``"early"``: they carry them.
          ``"late"``: results fetch them from the files of the rows, or from segments if these are not files. By stream:
          ``{"li": "late"}``. This sets `payload` of the streams' sources; by default it is chosen by cost. With
          ``pk.late(decoupled=True)`` results are fetched, and emitted, one epoch later.
        - `key`: the columns that identify a row of a stream, ``{"li": ["orderkey", "linenumber"]}``. They help to
          choose a plan. Results do not depend on them: two rows with the same key are both joined.

        A column keeps its name if no other stream has a column of that name, or if all that have it are joined on it;
        otherwise it is prefixed with the name of its stream, as in ``o_comment``.

        >>> import penstock as pk
        >>> flow = pk.LocalFlow()
        >>> items = flow.source(pa.table({"order": [1, 2], "shop": [7, 7], "t": [0, 5]}), time="t")
        >>> orders = flow.source(pa.table({"order": [1, 2], "who": ["ann", "bob"], "t": [1, 6]}), time="t")
        >>> shops = flow.source(pa.table({"shop": [7], "city": ["Ghent"], "t": [0]}), time="t")
        >>> rows = flow.join(i=items, o=orders, s=shops, on=["i.order = o.order", "i.shop = s.shop"]).to_memory()
        >>> _ = flow.run()
        >>> rows.table().select(["order", "who", "city"]).sort_by("order").to_pylist()
        [{'order': 1, 'who': 'ann', 'city': 'Ghent'}, {'order': 2, 'who': 'bob', 'city': 'Ghent'}]
        """
        if isinstance(key, Stream):
            raise ConfigError("key= is an argument of join(), so no stream can be called that. Choose another name.")
        if len(streams) < 2:
            raise ConfigError("A join takes two or more streams. Write flow.join(a=…, b=…, on=['a.k = b.k']).")
        self._check_streams(streams)
        homes = asked_homes(streams, materialize, self._homes)
        apart = isinstance(materialize, Late) and materialize.decoupled
        joined = MultiWay(streams, on, within, key, asked_by_stream(streams, materialize), self._homes | homes)
        results = joined.build(plan, time, name, method, "later" if apart else "at once")
        self._homes |= homes
        return results

    def _check_streams(self, streams: Mapping[str, Any]) -> None:
        for name, stream in streams.items():
            if not isinstance(stream, Stream) or stream._flow is not self:
                what = "a stream of another flow" if isinstance(stream, Stream) else f"a {type(stream).__name__}"
                raise ConfigError(f"{name}=… is {what}, not a stream of this flow. Pass one made by flow.source(…).")

    @abc.abstractmethod
    def start(self, trigger: str | None = None) -> Query:
        """Start the flow in the background; it runs until stopped."""

    @abc.abstractmethod
    def run(self, *, end: bool = True) -> Query:
        """Process all rows that are available; with `end`, then end the streams, which emits all that was held back."""

    @property
    @abc.abstractmethod
    def _place(self) -> str:
        """Where the flow runs, in a few words."""

    @abc.abstractmethod
    def _check_memory(self, memory: str | int) -> int:
        """The bytes of some memory; raise unless each task can do its work in its share of it."""

    @abc.abstractmethod
    def _columns_of(self, data: Any) -> pa.Schema:
        """The columns of a source."""

    @abc.abstractmethod
    def _files(
        self, kind: Format, path: Any, schema: pa.Schema | None, max_files: int | None, max_bytes: int | None
    ) -> Any:
        """Files as the data of a source."""

    @abc.abstractmethod
    def _sizes_of(self, source: SourceNode) -> Sizes | None:
        """How large a source is now, if that can be told without reading it."""

    @abc.abstractmethod
    def _why_not_read_again(self, data: Any) -> str | None:
        """Why rows of a source that is none of files cannot be read again by their place; None if they can."""

    @property
    def _leaves_payload(self) -> bool:
        """Whether rows of files may leave payload there where nobody asks for it."""
        return True

    @property
    def _plans_on_record(self) -> Mapping[str, str] | None:
        """By which plans the joins of this flow run since its first start; None if it has yet to start."""
        return None

    @abc.abstractmethod
    def _delta(self, path: Any, schema: pa.Schema | None, max_commits: int | None, changes: Changes) -> Any:
        """A Delta table as the data of a source."""

    @abc.abstractmethod
    def _selected(self, node: Node, expressions: Sequence[Any]) -> tuple[pa.Schema, bool]:
        """The columns that `expressions` over `node` give, and whether a row may become several, or none."""

    @abc.abstractmethod
    def _check_where(self, node: Node, condition: Any) -> None:
        """Raise unless `condition` can be asked of `node`."""

    @abc.abstractmethod
    def _check_pairs(self, node: Node, pairs: Pairs) -> None:
        """Raise unless a condition can be asked of the pairs that are the results of `node`."""

    @abc.abstractmethod
    def _master_table(self, table: Any, keys: tuple[str, ...], freshness: Freshness) -> TableSource:
        """Where the rows of a master table are, to be looked up by `keys`."""

    def _add(self, sink: Sink) -> None:
        if isinstance(sink, ParquetSink):
            for other in self._sinks:
                if isinstance(other, ParquetSink) and other.path.rstrip("/") == sink.path.rstrip("/"):
                    raise ConfigError(
                        f"to_parquet({sink.path!r}) is already the folder of another sink. Use another one."
                    )
        self._sinks.append(sink)

    def _operator_name(self, name: str | None, kind: str) -> str:
        """The name that a new operator gets. It is taken only once the operator is there: building it may fail."""
        label = _text(name) or f"{kind}{len(self._operators)}"
        if label in self._operators:
            raise ConfigError(f"name={label!r} is already the name of another operator. Choose another one.")
        if not label.replace("-", "_").isidentifier() or len(label.encode()) > _LONGEST:
            raise ConfigError(
                f"name={label!r} becomes a folder: use letters, digits, '-' and '_', {_LONGEST} of them at most."
            )
        return label

    def _operator(self, node: OperatorNode) -> Stream:
        """The results of a new operator, whose name is taken from now on."""
        self._operators.append(node.name)
        return Stream(self, node)

    def _check_ready(self) -> None:
        if not self._sinks:
            raise FlowError("The flow has no sink, so nothing would come out. Add one, as in .to_parquet('out/paid').")
        used = {node.name for node in sources_of(*(sink.node for sink in self._sinks))}
        unused = [node.name for node in self._sources if node.name not in used]
        if unused:
            raise FlowError(f"Source {unused[0]!r} leads to no sink. Leave it out, or write its stream to a sink.")

    @property
    def _roots(self) -> list[Node]:
        return [sink.node for sink in self._sinks]
