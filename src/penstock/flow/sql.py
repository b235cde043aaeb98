"""SQL queries as flows: builds what `penstock.sql.parse` has read from the methods of streams.

FROM names streams; WHERE is `Stream.where` on them, or on pairs; a window clause, GROUP BY and the aggregates are
`Stream.window(…).by(…).agg(…)`; HAVING is `Stream.where` on the results; the SELECT list is `Stream.select` on those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import Signature, signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

from penstock.core.durations import Duration, TimeUnit
from penstock.core.errors import ConfigError, SqlError
from penstock.core.rows import first_twice
from penstock.core.windows import Sliding
from penstock.core.within import LEFT, RIGHT
from penstock.flow.graph import OperatorNode
from penstock.flow.multi_way import MultiWay
from penstock.flow.stream import Stream
from penstock.operators.aggregate.config import EMITTED, AnyFunction
from penstock.operators.aggregate.spellings import AGGREGATES
from penstock.operators.window_join import LEFT_ONLY, JoinKeys, JoinTime, WindowJoin
from penstock.sql import Call, Column, Query, Several, Source, parse
from penstock.sql.names import quoted, unquoted

_STEPS: Mapping[TimeUnit, str | int] = {"microseconds": "1 us", "days": "1 day", "ticks": 1}
"""The shortest possible windows."""

_OUTER = ("left", "right", "full")

_QUOTED = re.compile(r"'([^']+)'")


def build(sql: str, streams: Mapping[str, Stream], options: Mapping[str, Any] | None = None) -> Stream:
    """The stream of a query's results; errors of streams show the part of the query that caused them.

    `options` are `emit` and `method` of the query's aggregation.
    """
    query = parse(sql, {name: stream.columns.names for name, stream in streams.items()})
    asked = dict(options or {})
    if asked and not query.aggregates:
        raise ConfigError(
            f"{' and '.join(f'{name}={value!r}' for name, value in asked.items())} applies to window aggregates, but "
            f"the query has none. Leave it out"
            + (", or join with stream.join(…, method=…)." if query.join is not None and "method" in asked else ".")
        )
    try:
        return _Building(sql, query, streams, asked).results()
    except SqlError:
        raise
    except ConfigError as error:
        raise _placed(sql, error) from error


def function_of(call: Call) -> AnyFunction:
    """The aggregate that a call in SQL asks for.

    >>> function_of(Call("quantile", "len", "slow", (0.99,)))
    Quantile(column='len', share=0.99)
    """
    make = AGGREGATES[call.function]
    try:
        given = signature(make).bind(*(() if call.column is None else (call.column,)), *call.arguments)
    except TypeError as error:
        raise ConfigError(
            f"{call.function} of {call.column!r} does not take {list(call.arguments)}: {error}. In Python it is "
            f"{call.function}{signature(make, eval_str=True).replace(return_annotation=Signature.empty)}: write its "
            f"arguments in the same order, as in quantile(len, 0.99)."
        ) from error
    function: AnyFunction = make(**{name: _typed(make, name, value) for name, value in given.arguments.items()})
    return function


def _typed(make: Callable[..., Any], parameter: str, value: Any) -> Any:
    """An argument of an aggregate; SQL writes whole numbers where a float is asked for, as in ``quantile(len, 1)``."""
    asked = get_type_hints(make)[parameter]
    value = float(value) if asked is float and isinstance(value, int) else value
    allowed = get_args(asked) if get_origin(asked) is Literal else ()
    wrong = value not in allowed if allowed else isinstance(asked, type) and not isinstance(value, asked)
    if wrong:
        wanted = " or ".join(map(repr, allowed)) if allowed else f"a value of type {asked.__name__}"
        raise ConfigError(f"{parameter}={value!r} of {make.__name__} must be {wanted}.")
    return value


class _Building:
    """A query over streams, part by part."""

    def __init__(self, sql: str, query: Query, streams: Mapping[str, Stream], options: Mapping[str, Any]) -> None:
        self._sql = sql
        self._query = query
        self._streams = streams
        self._options = options
        # Of results that may come more than once it must be seen which are final.
        self._marks = (EMITTED,) if options.get("emit", "final") != "final" else ()

    def results(self) -> Stream:
        """All of it."""
        query = self._query
        _check_names(self._sql, query, self._marks)
        named: Callable[[str], str] = _as_written
        if query.several is not None:
            with self._at("FROM"):
                rows, named = self._joined_several(query.several)
        elif query.join is None:
            rows = self._source(query.sources[0])
            self._check_time(rows, query.time)
            if query.where is not None:
                with self._at("WHERE"):
                    rows = rows.where(query.where)
        else:
            with self._at("FROM"):
                rows = self._joined()
            named = _unqualified(query, rows)
        if query.aggregates:
            rows = self._aggregated(rows, named)
        if query.having is not None:
            with self._at("HAVING"):
                rows = rows.where(named(query.having))
        return _selected(rows, query, named, self._marks)

    @contextmanager
    def _at(self, section: str) -> Iterator[None]:
        """Let errors point at names in one section of the query, though others have them, too."""
        try:
            yield
        except SqlError:
            raise
        except ConfigError as error:
            raise _placed(self._sql, error, section) from error

    def _source(self, source: Source) -> Stream:
        """One stream, or several united."""
        first, *others = (self._stream(name) for name in source.streams)
        return first.union(*others) if others else first

    def _stream(self, name: str) -> Stream:
        if name not in self._streams:
            known = ", ".join(self._streams) or "none"
            raise _at_first_of(
                self._sql,
                [f"FROM {name}", name],
                f"There is no stream {name}. The sources of this flow are: {known}. "
                f"Write one of these, or say which stream it is, as in flow.sql(query, {name}=stream).",
            )
        return self._streams[name]

    def _joined_several(self, join: Several) -> tuple[Stream, Callable[[str], str]]:
        """The results of a join of three streams or more, and what its columns are called there."""
        streams = {}
        for source in self._query.sources:
            streams[source.alias] = self._source(source)
            self._check_time(streams[source.alias], source.time)
        several = MultiWay(streams, join.on, join.within)
        time = self._query.time
        if time is None:
            times = {f"{alias}.{quoted(str(stream._node.time))}": alias for alias, stream in streams.items()}
            asked = next((times[group] for group in self._query.groups if group in times), "latest")
        else:
            asked, _, column = time.rpartition(".")
            if asked not in streams or unquoted(column) != streams[asked]._node.time:
                known = " or ".join(f"WATTR {alias}.{stream._node.time}" for alias, stream in streams.items())
                raise _at_first_of(
                    self._sql,
                    [f"WATTR {time}", time],
                    f"A window over a join goes by the time of one of its streams. Write {known}.",
                )
        return several.build("auto", asked, None), several.over_results

    def _joined(self) -> Stream:
        join = self._query.join
        assert join is not None
        sides = []
        for source in self._query.sources:
            side = self._source(source)
            self._check_time(side, source.time)
            sides.append(side if source.where is None else side.where(source.where))
        time = self._time_of_pairs(sides)
        # Pairs have the same key on both sides; of an unmatched row, SQL shows the other side's key as NULL.
        keys: JoinKeys = "apart" if join.how in _OUTER else "merged"
        return sides[LEFT]._joined(sides[RIGHT], join.on, join.within, join.how, join.pairs, time, keys=keys)

    def _time_of_pairs(self, sides: list[Stream]) -> JoinTime | None:
        """Which of a pair's times the window goes by; without a window, the one that is among the groups."""
        query = self._query
        named = [quoted(str(side._node.time)) for side in sides]
        times = [f"{source.alias}.{time}" for source, time in zip(query.sources, named, strict=True)]
        if query.join is not None and query.join.how in LEFT_ONLY:
            times = times[:RIGHT]
        asked = [query.time] if query.time is not None else [name for name in query.groups if name in times]
        if not asked:
            return None
        if asked[0] not in times:
            raise _at_first_of(
                self._sql,
                [f"WATTR {asked[0]}", asked[0]],
                f"A window over a join goes by the time of one of its streams"
                f"{'' if len(times) > 1 else ' whose rows come out'}. Write WATTR {' or WATTR '.join(times)}.",
            )
        return "left" if asked[0] == times[LEFT] else "right"

    def _check_time(self, stream: Stream, asked: str | None) -> None:
        """Refuse a windowing attribute that is not the stream's time: only bounds on that close windows."""
        time = stream._node.time
        if asked is None or asked.rpartition(".")[2] == time:
            return
        hint = (
            f"Write WATTR {time}, or make {asked} the time= of the source."
            if time is not None
            else "Leave WATTR out: windows then go by the time that comes with the rows, though no column shows it."
        )
        raise _at_first_of(
            self._sql,
            [f"WATTR {asked}", f"RATTR {asked}", asked],
            f"{asked} is not the event time of this stream, so nothing says when a window over it is complete. {hint}",
        )

    def _aggregated(self, rows: Stream, named: Callable[[str], str]) -> Stream:
        query = self._query
        calls = [replace(call, column=named(call.column) if call.column else None) for call in query.aggregates]
        rows, calls = _computed(rows, calls)
        # Without a window a group is complete once its time is: each moment is a window of its own.
        step = Duration.of(_STEPS[rows._node.unit])
        window = query.window if query.window is not None else Sliding(step, step)
        windowed = rows.window(window).by(*(unquoted(named(group)) for group in query.groups))
        return windowed._aggregated({call.name: function_of(call) for call in calls}, **self._options)


def _computed(rows: Stream, calls: list[Call]) -> tuple[Stream, list[Call]]:
    """Rows with what is aggregated as columns, and the calls of those columns."""
    there = rows.columns.names
    given = dict.fromkeys(call.column for call in calls if call.column is not None)
    alone = {text: name for text in given if quoted(name := unquoted(text)) == text}
    for call in calls:
        asked = alone.get(call.column or "")
        if asked is not None and asked not in there:
            raise ConfigError.unknown_column(call.function, asked, there)
    names = {text: f"_argument{number}" for number, text in enumerate(given) if text not in alone}
    for expression in names:
        rows.select(expression)
    wide = rows.select("*", *(f"{text} AS {name}" for text, name in names.items())) if names else rows
    known = alone | names
    return wide, [replace(call, column=known.get(call.column or "")) for call in calls]


def _selected(rows: Stream, query: Query, named: Callable[[str], str], marks: Sequence[str]) -> Stream:
    shown = [*(_shown(item, named) for item in query.select), *marks]
    return rows if shown == ["*"] else rows.select(*shown)


def _shown(item: Column | Call, named: Callable[[str], str]) -> str:
    if isinstance(item, Call):
        return quoted(item.name)
    written = named(item.expression)
    return written if written == item.name else f"{written} AS {quoted(item.name)}"


def _as_written(expression: str) -> str:
    return expression


def _unqualified(query: Query, joined: Stream) -> Callable[[str], str]:
    """Expressions over a join, with the columns of its results instead of ``alias.column``."""
    node = joined._node
    if not isinstance(node, OperatorNode) or not isinstance(node.config, WindowJoin):
        raise TypeError(node)
    how = node.config.how
    sides = dict(zip((source.alias for source in query.sources), node.config.sides(node.types), strict=True))
    ticked = "`(?:[^`]|``)+`"
    aliases = "|".join(map(re.escape, sides))
    # What follows a dot is a field of a struct, though it be called as a stream is.
    qualified = re.compile(rf"'(?:[^'\\]|\\.)*'|(?<![.\w`])({aliases})\.(\w+|{ticked})|{ticked}")

    def column(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        if not sides[found[1]]:
            ours = query.sources[LEFT].alias
            raise ConfigError(
                f"'{found[0]}' is not in the results: LEFT {how.upper()} JOIN gives rows of {ours} only. "
                f"Use columns of {ours}."
            )
        name = unquoted(found[2])
        if name not in sides[found[1]]:
            raise ConfigError.unknown_column(found[1], name, sides[found[1]])
        return quoted(sides[found[1]][name])

    return lambda expression: qualified.sub(column, expression)


def _check_names(sql: str, query: Query, marks: Sequence[str]) -> None:
    names = [*(item.name for item in query.select), *marks]
    twice = first_twice(names)
    if twice is not None:
        raise _at_first_of(sql, [twice], f"Two columns are called {twice}. Write AS and another name after one.")


def _placed(sql: str, error: ConfigError, section: str = "SELECT") -> SqlError:
    """An error that points at what it quotes, if that stands in the query after the beginning of a section."""
    from penstock.sql.scan import start_of

    return _at_first_of(sql, _QUOTED.findall(str(error)), str(error), start_of(sql, section))


def _at_first_of(sql: str, words: list[str], message: str, start: int = 0) -> SqlError:
    """An error that points at the first of `words` that stands in the query after `start`, or at all that does."""
    for word in words:
        found = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)").search(sql, start)
        if found is not None:
            return SqlError.at(sql, found.start(), found.end(), message)
    return SqlError.at(sql, start, len(sql), message)
