"""Traces to run joins on: long, bursty and skewed; the same fields give the same rows.

A trace is rows by time. It is made of stretches that are each drawn on their own, so that any part can be made again
without what is before it, and a trace of hours is walked through in the memory of one stretch.

The time column is a timestamp in UTC that counts from 1970-01-01 00:00: both hosts then take durations as people
write them (``within=band(before="10 min", after="10 min")``), and as a number it is the microseconds since the trace
began.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab.workloads.bmodel import Keys, levels_within, skewed_keys, split
from lab.workloads.pqrs import Pqrs
from penstock.core.durations import Duration, DurationLike
from penstock.core.errors import ConfigError
from penstock.core.time import Times, as_times
from penstock.kernels.hashing import hash_keys

COLUMNS = pa.schema([("t", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("id", pa.int64())])
"""The columns of a trace: when, the key, and the row's place in the trace. A payload may follow."""

KEYS = 10_000_001
"""The key domain [0..10⁷]."""

_SECOND = 1_000_000
_STEP = 65_536
"""About how many rows are made at a time where the trace itself does not say."""
_LAYOUT, _STRETCH = 0, 1
"""What is drawn: how many rows each stretch has, or the rows of one."""


class Layout(NamedTuple):
    """Where the stretches of a trace lie: stretch i has the rows starts[i] … starts[i + 1] - 1, from edges[i] on.

    Its rows' times are at least edges[i] and at most edges[i + 1].
    """

    edges: Times
    starts: npt.NDArray[np.int64]


class Trace(abc.ABC):
    """Rows by time that can be had whole, or from any place on, a stretch at a time."""

    __slots__ = ()

    @abc.abstractmethod
    def layout(self) -> Layout:
        """Where the stretches lie."""

    @abc.abstractmethod
    def stretch(self, number: int) -> pa.Table:
        """The rows of one stretch."""

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """The columns: `COLUMNS`, and ``payload`` if there is one."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.layout().starts[-1])

    def table(self) -> pa.Table:
        """The whole trace."""
        return pa.concat_tables([self.schema.empty_table(), *self.slices()])

    def slices(self, start: int = 0, stop: int | None = None) -> Iterator[pa.Table]:
        """The rows from place `start` up to, not including, `stop` (to the end): a table per stretch, none empty.

        No more than one stretch is held at a time.
        """
        start, stop = _within(start, stop, self.rows)
        starts = self.layout().starts
        first, last = np.searchsorted(starts, [start, stop], side="right")
        for number in _filled(starts, int(first) - 1, int(last)):
            begin, end = max(start, int(starts[number])), min(stop, int(starts[number + 1]))
            if begin < end:
                yield self.stretch(number).slice(begin - int(starts[number]), end - begin)


@dataclass(frozen=True, slots=True)
class Composite(Trace):
    """Bursts within bursts (000-04): the b-model says how many rows each mini-interval has, PQRS when and of what key.

    `rate` rows a second in the mean over `span`, exactly; as many halvings by `bias` as it takes that no mini-interval
    has more than `cap` rows. Keys are 0 … `keys` - 1. With `payload`, each row has so many random bytes besides its
    three numbers of 8 bytes; so the 64-byte records of the experiments have a payload of 40.

    >>> trace = Composite(rate=200, span="4 h", seed=7)
    >>> trace.rows
    2880000
    >>> next(trace.slices()).schema.names
    ['t', 'key', 'id']
    >>> max(rows.num_rows for rows in trace.slices(stop=200_000)) <= 70_000
    True
    """

    rate: float
    span: DurationLike = "4 h"
    bias: float = 0.6
    cap: int = 70_000
    keys: int = KEYS
    quadrants: Pqrs = Pqrs()  # noqa: RUF009 - frozen
    payload: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self)
        if self.cap < 1:
            raise ConfigError(f"cap={self.cap} leaves no room in a mini-interval. Write 1 or more.")
        if _length(self) < 2**self.levels:
            raise ConfigError(
                f"cap={self.cap} asks for 2 ** {self.levels} mini-intervals, more than span={self.span!r} has "
                f"microseconds. Write a larger cap or a longer span."
            )

    @property
    def levels(self) -> int:
        """How often the span is halved."""
        return levels_within(round(self.rate * _length(self) / _SECOND), bias=self.bias, cap=self.cap)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return _schema(self.payload)

    def layout(self) -> Layout:
        """The mini-intervals."""
        return _composite_layout(self)

    def stretch(self, number: int) -> pa.Table:
        """One mini-interval."""
        edges, starts = self.layout()
        seed = (self.seed, _STRETCH, number)
        times, keys = self.quadrants.points(
            int(starts[number + 1] - starts[number]),
            times=range(int(edges[number]), int(edges[number + 1])),
            keys=range(self.keys),
            seed=seed,
        )
        return _rows(times, keys, int(starts[number]), self.payload, seed)


@dataclass(frozen=True, slots=True)
class Parallel(Trace):
    """A steady stream of skewed keys (000-05): Poisson arrivals at `rate` rows a second, keys by the b-model.

    How many rows there are within `span` is itself random. `bias` of the rows fall into one half of the keys
    0 … `keys` - 1, and so on in each half; two traces with the same `sides` have the same hot keys. `payload` as in
    `Composite`.

    >>> trace = Parallel(rate=150, span="10 min", seed=7)
    >>> 0.99 < trace.rows / (150 * 600) < 1.01
    True
    >>> trace.table().num_rows == trace.rows
    True
    """

    rate: float
    span: DurationLike = "20 min"
    bias: float = 0.7
    keys: int = KEYS
    sides: int = 0
    payload: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return _schema(self.payload)

    def layout(self) -> Layout:
        """Equal stretches of about 65,536 rows."""
        return _parallel_layout(self)

    def stretch(self, number: int) -> pa.Table:
        """One stretch: so many moments, each anywhere in it."""
        edges, starts = self.layout()
        count = int(starts[number + 1] - starts[number])
        seed = (self.seed, _STRETCH, number)
        times = np.sort(np.random.default_rng((*seed, 1)).integers(edges[number], edges[number + 1], count))
        keys = skewed_keys(count, domain=self.keys, bias=self.bias, seed=(*seed, 2), sides=self.sides)
        return _rows(times, keys, int(starts[number]), self.payload, seed)


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence of `length` from `at` on: what would have happened then happens later, and so does all that follows.

    >>> trace = Parallel(rate=10, span="1 min")
    >>> paused = Pause(at="20 s", length="1 h")(trace.table())
    >>> paused.num_rows == trace.rows
    True
    """

    at: DurationLike
    length: DurationLike

    def __post_init__(self) -> None:
        _microseconds(self.at, "at")
        _microseconds(self.length, "length")

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows with their new times."""
        return _retimed(rows, self.moved(_times(rows)))

    def moved(self, times: Times) -> Times:
        """The new times, in the same order."""
        return times + np.where(times >= _microseconds(self.at, "at"), _microseconds(self.length, "length"), 0)


@dataclass(frozen=True, slots=True)
class Burst:
    """What happens in `length` from `at` on happens `factor` times as fast; silence fills the rest of the length.

    >>> trace = Parallel(rate=10, span="1 min")
    >>> rows = Burst(at="20 s", length="20 s", factor=10)(trace.table())
    >>> seconds = as_times(rows.column("t")).to_numpy() // 1_000_000
    >>> bool(((22 <= seconds) & (seconds < 40)).any())
    False
    """

    at: DurationLike
    length: DurationLike
    factor: int

    def __post_init__(self) -> None:
        _microseconds(self.at, "at")
        _microseconds(self.length, "length")
        if self.factor < 1:
            raise ConfigError(f"factor={self.factor} is no burst. Write how many times as fast, 1 or more.")

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows with their new times."""
        return _retimed(rows, self.moved(_times(rows)))

    def moved(self, times: Times) -> Times:
        """The new times, in the same order."""
        passed = times - _microseconds(self.at, "at")
        within = (passed >= 0) & (passed < _microseconds(self.length, "length"))
        return np.where(within, times - passed + passed // self.factor, times)


@dataclass(frozen=True, slots=True)
class Disorder:
    """Rows in the order in which they arrive: each between 0 and `at_most` after it happened.

    So no row comes after one that is more than `at_most` later: ``bounded_delay(at_most)`` finds none of them late.
    How long a row is under way depends on its id and on `seed` only; rows that arrive together keep their order.

    >>> rows = Parallel(rate=10, span="1 min").table()
    >>> times = as_times(Disorder("5 s")(rows).column("t")).to_numpy()
    >>> behind = np.maximum.accumulate(times) - times
    >>> bool(0 < behind.max() <= 5_000_000)
    True
    """

    at_most: DurationLike
    seed: int = 0

    def __post_init__(self) -> None:
        _microseconds(self.at_most, "at_most")

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows in order of arrival."""
        ids = rows.column("id").combine_chunks()
        late = hash_keys([ids, pa.repeat(pa.scalar(self.seed), len(ids))]) % np.uint64(self.reach + 1)
        arrival = _times(rows) + late.astype(np.int64)
        return rows.take(pa.array(np.argsort(arrival, kind="stable")))

    @property
    def reach(self) -> int:
        """`at_most` in microseconds."""
        return _microseconds(self.at_most, "at_most")


@dataclass(frozen=True, slots=True)
class Replay(Trace):
    """A trace as it arrives: its times changed by pauses and bursts, each after the other, then its rows out of order.

    Places are those of arrival, and any of them can be read without what is before it: in the memory of one stretch,
    65,536 rows, and the rows of twice the disorder.

    >>> trace = Composite(rate=100, span="1 min", seed=7)
    >>> replay = Replay(trace, changes=(Pause("20 s", "1 min"),), disorder="5 s")
    >>> replay.table().slice(1000, 50) == pa.concat_tables(replay.slices(1000, 1050))
    True
    """

    trace: Composite | Parallel
    changes: tuple[Pause | Burst, ...] = ()
    disorder: DurationLike = 0

    def __post_init__(self) -> None:
        _microseconds(self.disorder, "disorder")

    @property
    def schema(self) -> pa.Schema:
        """The trace's columns."""
        return self.trace.schema

    def layout(self) -> Layout:
        """The trace's stretches, where the changes have put them."""
        edges, starts = self.trace.layout()
        for change in self.changes:
            edges = change.moved(edges)
        return Layout(edges, starts)

    def stretch(self, number: int) -> pa.Table:
        """One stretch, by time."""
        rows = self.trace.stretch(number)
        for change in self.changes:
            rows = change(rows)
        return rows

    def slices(self, start: int = 0, stop: int | None = None) -> Iterator[pa.Table]:
        """The rows that arrive from place `start` up to, not including, `stop` (to the end), in that order."""
        arrive = Disorder(self.disorder, seed=self.trace.seed)
        if not arrive.reach:
            # By name: a dataclass with slots is made anew, and super() would look for the one before.
            yield from Trace.slices(self, start, stop)
            return
        start, stop = _within(start, stop, self.rows)
        edges, starts = self.layout()
        held: dict[int, pa.Table] = {}
        while start < stop:
            first = int(np.searchsorted(starts, start, side="right")) - 1
            last = int(np.searchsorted(starts, min(start + _STEP, stop)))
            end = min(int(starts[last]), stop)
            # The k-th arrival is between the k-th time and that plus the reach: rows beyond have an earlier or later
            # place for certain, and the others' order among themselves is their order in all.
            low = int(np.searchsorted(edges[1:], edges[first] - arrive.reach))
            high = int(np.searchsorted(edges[:-1], edges[last] + arrive.reach, side="right"))
            held = {
                number: held[number] if number in held else self.stretch(number)
                for number in _filled(starts, low, high)
            }
            near = arrive(pa.concat_tables(held.values()))
            yield near.slice(start - int(starts[low]), end - start)
            start = end


_TRACES: Mapping[str, type[Composite | Parallel]] = {"composite": Composite, "parallel": Parallel}
_CHANGES: Mapping[str, type[Pause | Burst]] = {"pause": Pause, "burst": Burst}
_Made = TypeVar("_Made")


def replay_of(options: Mapping[str, str]) -> Replay:
    """A replay from text, as a data source or a command line has it.

    ``trace`` is JSON: the kind (composite, parallel) and the fields that are not to be as usual. ``changes`` is a list
    of such: pauses and bursts. ``disorder`` is a length of time. Others are not looked at.

    >>> replay_of({"trace": '{"kind": "parallel", "rate": 10, "span": "1 min"}', "disorder": "2 s"}).disorder
    '2 s'
    >>> replay_of({"trace": '{"kind": "parallel", "rate": 10}',
    ...            "changes": '[{"kind": "pause", "at": "1 min", "length": "30 s"}]'}).changes
    (Pause(at='1 min', length='30 s'),)
    """
    if "trace" not in options:
        raise ConfigError("""trace is missing. Write what to replay, as '{"kind": "composite", "rate": 200}'.""")
    record = _json("trace", options["trace"])
    if isinstance(record, dict) and isinstance(shares := record.get("quadrants"), dict):
        record["quadrants"] = _made({"pqrs": Pqrs}, {"kind": "pqrs"} | shares, "quadrants")
    trace = _made(_TRACES, record, "trace")
    changes = _json("changes", options.get("changes", "[]"))
    if not isinstance(changes, list):
        raise ConfigError(f"changes={options['changes']} is no list. Write '[…]' around it.")
    return Replay(
        trace, tuple(_made(_CHANGES, change, "changes") for change in changes), options.get("disorder", "0 s")
    )


def _made(kinds: Mapping[str, type[_Made]], record: Any, option: str) -> _Made:
    """What a record of JSON describes."""
    kind: Any = record.get("kind") if isinstance(record, dict) else None
    if kind not in kinds:
        raise ConfigError(f'{option}={json.dumps(record)} is of no known kind. Write "kind": {" or ".join(kinds)}.')
    known = {field.name: field for field in fields(kinds[kind])}  # type: ignore[arg-type]
    given = {name: value for name, value in record.items() if name != "kind"}
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has: {', '.join(known)}."
            raise ConfigError(f"{option}: {name!r} is no field of {kind!r}. {hint}")
    for name, field in known.items():
        if name not in given and field.default is MISSING:
            raise ConfigError(f"{option}: {kind!r} needs {name!r}. Write it beside the kind.")
    try:
        return kinds[kind](**given)
    except TypeError as error:
        raise ConfigError(
            f"{option}={json.dumps(record, default=str)} has a value of the wrong type: {error}."
        ) from error


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{option}={text} is not JSON: {error}. Write names and texts in double quotes.") from error


@lru_cache(maxsize=16)
def _composite_layout(trace: Composite) -> Layout:
    volume = round(trace.rate * _length(trace) / _SECOND)
    counts = split(volume, bias=trace.bias, levels=trace.levels, seed=(trace.seed, _LAYOUT))
    return _layout(_length(trace), counts)


@lru_cache(maxsize=16)
def _parallel_layout(trace: Parallel) -> Layout:
    # A Poisson process is this: independent Poisson counts in disjoint stretches, and uniform moments within each.
    length = _length(trace)
    count = min(-int(-(trace.rate * length / _SECOND) // _STEP), length)
    edges = _edges(length, count)
    random = np.random.default_rng((trace.seed, _LAYOUT))
    return _layout(length, random.poisson(np.diff(edges) * (trace.rate / _SECOND)))


def _layout(length: int, counts: npt.NDArray[np.int64]) -> Layout:
    layout = Layout(_edges(length, counts.size), np.append(0, np.cumsum(counts)))
    for array in layout:
        array.setflags(write=False)
    return layout


def _edges(length: int, count: int) -> Times:
    """The ends of `count` stretches as equal as whole microseconds can be; no product leaves 64 bits."""
    whole, rest = divmod(length, count)
    numbers = np.arange(count + 1)
    return numbers * whole + numbers * rest // count


def _filled(starts: npt.NDArray[np.int64], first: int, last: int) -> list[int]:
    """Which of the stretches from `first` up to, not including, `last` have rows: in quiet times, few."""
    return (first + np.flatnonzero(np.diff(starts[first : last + 1]))).tolist()


def _rows(times: Times, keys: Keys, first: int, payload: int, seed: tuple[int, ...]) -> pa.Table:
    columns = [pa.array(times.view("M8[us]"), COLUMNS.field("t").type), keys, np.arange(first, first + times.size)]
    if payload:
        columns.append(_payloads(times.size, payload, seed))
    return pa.table(columns, schema=_schema(payload))


def _payloads(count: int, width: int, seed: tuple[int, ...]) -> pa.Array:
    if count * width >= 2**31:
        raise ConfigError(
            f"payload={width} over {count} rows is more than Arrow holds in one array. Write a smaller cap."
        )
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    content = np.random.default_rng((*seed, 3)).bytes(count * width)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def _schema(payload: int) -> pa.Schema:
    return COLUMNS.append(pa.field("payload", pa.binary())) if payload else COLUMNS


def _times(rows: pa.Table) -> Times:
    return as_times(rows.column("t")).to_numpy()  # type: ignore[no-any-return]


def _retimed(rows: pa.Table, times: Times) -> pa.Table:
    return rows.set_column(
        rows.schema.get_field_index("t"),
        rows.schema.field("t"),
        pa.array(times.view("M8[us]"), rows.schema.field("t").type),
    )


def _within(start: int, stop: int | None, rows: int) -> tuple[int, int]:
    last = rows if stop is None else stop
    if not 0 <= start <= last <= rows:
        raise ConfigError(
            f"Rows {start} to {last} are not all in a trace of {rows}. Write 0 <= start <= stop <= {rows}."
        )
    return start, last


def _check(trace: Composite | Parallel) -> None:
    """What both kinds of trace ask of their fields."""
    if not trace.rate > 0:
        raise ConfigError(f"rate={trace.rate} brings no rows. Write how many come in a second.")
    if _length(trace) < 1:
        raise ConfigError(f"span={trace.span!r} is no length of time. Write how long the trace is, as '4 h'.")
    if trace.keys < 1:
        raise ConfigError(f"keys={trace.keys} leaves no key. Write how many there are.")
    if not 0.5 <= trace.bias <= 1:
        raise ConfigError(
            f"bias={trace.bias} is no share of a favoured half. Write 0.5 (even) to 1 (all in one place)."
        )
    if trace.payload < 0:
        raise ConfigError(f"payload={trace.payload} is negative. Write a number of bytes.")
    if trace.seed < 0:
        raise ConfigError(f"seed={trace.seed} is negative. Write 0 or more.")


def _length(trace: Composite | Parallel) -> int:
    return _microseconds(trace.span, "span")


def _microseconds(value: DurationLike, argument: str) -> int:
    length = Duration.of(value, argument).on("microseconds", argument)
    if length < 0:
        raise ConfigError(f"{argument}={value!r} is negative. Write a length of time, as '30 s'.")
    return length
