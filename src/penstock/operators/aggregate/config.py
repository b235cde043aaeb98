"""The config of a window aggregation: windows, groups, aggregates, and the columns of its results."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Literal, TypeGuard, cast

import numpy as np
import pyarrow as pa

from penstock.core.durations import Duration, DurationLike, TimeUnit
from penstock.core.errors import ConfigError, WindowError
from penstock.core.methods import ByMethod, Methods
from penstock.core.operator import Origin, Timing
from penstock.core.prelude import Prelude
from penstock.core.progress import Bounds
from penstock.core.rows import SLIDE, TIME, RowType, first_twice
from penstock.core.time import STEPS, TIME_MAX, TIME_MIN, Time
from penstock.core.windows import (
    Landmark,
    PartitionedWindow,
    Session,
    Sessions,
    SlideByTuple,
    Slides,
    Sliding,
    TupleWindow,
    Window,
)
from penstock.operators.aggregate.functions import Count, Extreme, Function, Sum, instead_of, is_flat, where_of
from penstock.operators.aggregate.holistic import Holistic
from penstock.operators.aggregate.lanes import Lane, counting
from penstock.operators.aggregate.methods import METHODS, AggregateMethod, AggregateMethodLike
from penstock.operators.aggregate.wording import written


@dataclass(frozen=True, slots=True)
class Early:
    """Emit the current results of open windows at an interval of event time, and the final ones when complete.

    >>> early("1 min").every.amount
    60000000
    """

    every: Duration


def early(every: DurationLike) -> Early:
    """Emit the current results of open windows at an interval of event time: ``agg(…, emit=pk.early("1 min"))``.

    >>> print(early("1 min").every)
    1 min
    """
    length = Duration.of(every, "every")
    if length.amount <= 0:
        raise ConfigError(f"early(every={length}) must be positive. Write how often to send updates, like '1 min'.")
    return Early(length)


Emit = Literal["final", "update"] | Early
"""When results are emitted: once, when their window is complete; or also before, at the end of every epoch that changed
them, or at an interval of event time. `EMITTED` says which."""

EMITTED = "emitted"
"""The column that says 'update' or 'early' of open windows and 'final' of complete ones; only if not all are final."""

AnyFunction = Function | Holistic

BY_ROWS = (TupleWindow, PartitionedWindow)
"""Windows whose axis is row numbers."""


@dataclass(frozen=True, slots=True)
class Panes:
    """Sliding windows cut into panes of equal size, numbered so that window w is `count` panes from ``w * step`` on.

    >>> panes = Panes.of(Slides(range=9, slide=6))
    >>> panes.size, panes.count, panes.step
    (3, 3, 2)
    """

    size: int
    origin: int
    count: int
    step: int

    @classmethod
    def of(cls, slides: Slides) -> Panes:
        """The largest panes that every window is made of: the greatest common divisor of range and slide."""
        size = gcd(slides.range, slides.slide)
        origin = slides.origin + slides.slide - slides.range
        return cls(size, origin, slides.range // size, slides.slide // size)

    @property
    def tumbling(self) -> Slides:
        """Panes as windows over time."""
        return Slides(self.size, self.size, self.origin)

    @property
    def windows(self) -> Slides:
        """Windows over the numbers of panes."""
        return Slides(self.count, self.step, self.count - self.step)


@dataclass(frozen=True, slots=True)
class WindowAggregate(ByMethod[AggregateMethod]):
    """Aggregate the rows of each window and group.

    One result is emitted for each window and group that has a row. Landmark windows that a bound completes are emitted
    for every group from its first row on; those that only the end of the stream completes, for groups with a row since.
    Null is a group like any other. Columns: those of `by`, the start and end of the window (ends are exclusive; a
    landmark window has no start), the aggregates. The event time of a result is ``end - 1``, the latest that its rows
    can have, so that a window over results holds what the same window over the rows would.

    >>> from penstock.core.windows import sliding
    >>> from penstock.operators.aggregate.functions import Count
    >>> config = WindowAggregate(sliding(10, 5), by=("k",), aggregates=(("n", Count()),))
    >>> config.output((RowType(pa.schema({"k": pa.string(), "t": pa.int64()}), ("k",), "t"),)).names
    ['k', 'window_start', 'window_end', 'n']
    """

    window: Window
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, AnyFunction], ...]
    emit: Emit = "final"
    unit: TimeUnit = "ticks"
    method: AggregateMethodLike = "auto"
    start: str = "window_start"
    end: str = "window_end"
    punctuated: tuple[str, ...] = ()
    """The columns of `by` whose groups have their own bounds: port 1 then takes statements about these groups, in the
    form of `group_bounds`. The statements of an epoch take effect at its end."""

    methods: ClassVar[Methods[AggregateMethod]] = METHODS

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise ConfigError("agg() needs at least one aggregate, as in agg(n=pk.count()).")
        names = [*self.by, self.start, self.end, *(name for name, _ in self.aggregates)]
        names += [EMITTED] if self.emit != "final" else []
        twice = first_twice(names)
        if twice is not None:
            raise ConfigError(f"The results would have two columns {twice!r}. Give one of them another name.")
        method = METHODS.parameters(self.method)
        if not isinstance(self.emit, Early) and self.emit not in ("final", "update"):
            raise ConfigError(f"emit={self.emit!r} is not one of final, update. Or write emit=pk.early('1 min').")
        if self.emit != "final" and not (isinstance(self.window, Sliding) and method.updates):
            raise ConfigError(
                f"emit={self.emit!r} is supported only for sliding windows computed by panes, not for {self.window} "
                f"with method={self.method!r}. Write emit='final'."
            )
        if isinstance(self.emit, Early):
            self.emit.every.on(self.unit, "every")
        if self.method != "auto" and not isinstance(self.window, Sliding | TupleWindow):
            raise ConfigError(
                f"method={self.method!r} is a way to compute sliding windows, but the window is {self.window}. "
                f"Leave method= out."
            )
        method.check(self.unit)
        if isinstance(self.window, PartitionedWindow) and not set(self.window.partition) <= set(self.by):
            missing = sorted(set(self.window.partition) - set(self.by))
            raise WindowError(
                f"partition={list(self.window.partition)} counts rows by {', '.join(missing)}, "
                f"which by={list(self.by)} lacks. Add the columns to by=."
            )
        by_groups = method_by_groups(self.window, self.emit, self.method)
        if self.punctuated and (self.method != by_groups or not set(self.punctuated) <= set(self.by)):
            raise ConfigError(
                f"{self.window} with method={self.method!r} and emit={self.emit!r} cannot close the windows of one "
                f"group of {', '.join(self.punctuated)} before the others. Use sliding windows or sessions "
                f"grouped by these columns, with emit='final', and leave method= out."
            )
        self.window.on(self.unit)

    def check(self, inputs: tuple[RowType, ...]) -> None:
        """Raise an error if these rows cannot be aggregated so."""
        rows = inputs[0]
        held = set(rows.columns.names)
        for name in self.by:
            if name not in held:
                raise ConfigError.unknown_column("by", name, rows.columns.names)
            kind = rows.columns.field(name).type
            if not is_flat(kind):
                raise ConfigError(
                    f"by={name!r} is of type {kind}, whose values cannot be compared. {instead_of(name, kind)}"
                )
        for name, function in self.aggregates:
            if function.column is not None and function.column not in held:
                raise ConfigError.unknown_column(name, function.column, rows.columns.names)
            kind = rows.columns.field(function.column).type if function.column is not None else pa.null()
            function.check(name, kind)
            where = where_of(function)
            if where is not None:
                _check_where(name, where, rows)
        if self.parameters.subtracts:
            self._check_undone(inputs)
        row_num = self.window.row_num if isinstance(self.window, SlideByTuple) else None
        if row_num is not None and row_num not in rows.columns.names:
            raise ConfigError.unknown_column("row_num", row_num, rows.columns.names)
        if row_num is not None and not pa.types.is_integer(rows.columns.field(row_num).type):
            raise ConfigError(
                f"row_num={row_num!r} is of type {rows.columns.field(row_num).type}, but rows are numbered by whole "
                f"numbers. Select cast({row_num} AS BIGINT) as a column first."
            )
        order = self.window.order if isinstance(self.window, BY_ROWS) else None
        if order is not None and order != rows.time:
            raise WindowError(
                f"order={order!r} must be the stream's time, because only bounds on it tell which rows are still to "
                f"come; the time is {rows.time!r}. Make it the time column, or leave order= out to count arrivals."
            )
        if order is not None and isinstance(self.window, TupleWindow):
            kind = rows.columns.field(order).type
            if not pa.types.is_integer(kind):
                raise WindowError(
                    f"order={order!r} is of type {kind}, but rows are numbered by whole numbers. Write "
                    f"partition=[…] to count each partition's rows in order of {order}, or range= for windows of time."
                )

    def undone(self, inputs: tuple[RowType, ...]) -> bool:
        """Whether all aggregates can be undone exactly."""
        return all(part.function.subtracts(part.kind) for part in self.lanes(inputs)[0].parts)

    def _check_undone(self, inputs: tuple[RowType, ...]) -> None:
        for part in self.lanes(inputs)[0].parts:
            if not part.function.subtracts(part.kind):
                raise ConfigError(
                    f"method={METHODS.name_of(self.method)!r} subtracts what leaves a window, which {part.name} of "
                    f"type {part.kind} cannot do exactly. Write method='paned'."
                )

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the results."""
        self.check(inputs)
        rows = inputs[0]
        axis = self.axis(inputs)
        fields = [(name, rows.columns.field(name).type) for name in self.by]
        fields += [(self.start, axis), (self.end, axis)]
        for name, function in self.aggregates:
            kind = rows.columns.field(function.column).type if function.column is not None else pa.null()
            fields.append((name, function.result(kind)))
        return pa.schema([*fields, (EMITTED, pa.string())] if self.emit != "final" else fields)

    def axis(self, inputs: tuple[RowType, ...]) -> pa.DataType:
        """The type of window ends: that of the time column if it can hold them, microseconds or a long otherwise."""
        rows = inputs[0]
        if isinstance(self.window, BY_ROWS) or self.unit == "ticks":
            return pa.int64()
        if rows.time is None:
            return pa.timestamp("us", "UTC") if self.unit == "microseconds" else pa.date32()
        kind = rows.columns.field(rows.time).type
        step = STEPS[kind.unit] if pa.types.is_timestamp(kind) else 1
        if all(edge % step == 0 for edge in self.window.edges(self.unit)):
            return kind
        return pa.timestamp("us", kind.tz)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns whose hash places a row: a partition's rows must stay together, whatever group they are in.

        Rows that are numbered by arrival across all groups must be in one place; so must all rows that a statement
        about a group covers.
        """
        if self.by_arrival:
            return ()
        if self.punctuated:
            return self.punctuated
        return self.window.partition if isinstance(self.window, PartitionedWindow) else self.by

    @property
    def by_arrival(self) -> bool:
        """Whether windows are made of the numbers that rows get as they arrive."""
        return isinstance(self.window, TupleWindow) and self.window.order is None

    @property
    def takes_rows(self) -> bool:
        """Whether the method needs the rows themselves, so that a host must not feed it partials."""
        return self.by_arrival or self.parameters.takes_rows

    @property
    def panes(self) -> Panes | None:
        """The panes that windows are made of, if they are: a host may aggregate by them before the shuffle.

        Windows of arrivals have panes, too, but only this operator knows the numbers of its rows.
        """
        if isinstance(self.window, Sliding | TupleWindow):
            return Panes.of(self.window.on(self.unit))
        if isinstance(self.window, Landmark):
            slide = self.window.on(self.unit)
            return Panes.of(Slides(slide.slide, slide.slide, slide.origin))
        return None

    def copies(self, before: Time, after: Time) -> int:
        """In how many results a partial of a pane may be at most when the bound goes from one time to another.

        >>> from penstock.core.windows import sliding
        >>> from penstock.operators.aggregate.functions import Count
        >>> minutes = WindowAggregate(sliding(60, 1), by=("k",), aggregates=(("n", Count()),))
        >>> minutes.copies(before=100, after=102), minutes.copies(before=100, after=1_000)
        (2, 60)
        """
        windows = self.window.on(self.unit)
        if not isinstance(windows, Slides):
            # At its end, a landmark window that holds no new row does not come out.
            return 1 if after == TIME_MAX else windows.complete(after) - windows.complete(before)
        each = -(-windows.range // windows.slide)
        return each if self.emit != "final" else min(each, windows.complete(after) - windows.complete(before))

    def lanes(self, inputs: tuple[RowType, ...]) -> tuple[Lane, ...]:
        """The tables of partials: the main one, then one for each set of keys that holistic aggregates need.

        A lane's schema is also that in which a host may feed partials of its own, on port 1 + the lane's place:
        `TIME` is then the start of the pane.
        """
        rows = inputs[0]
        bounded = [(name, cast(Function, f)) for name, f in self.aggregates if not is_holistic(f)]
        keys: dict[tuple[str, ...], dict[str, None]] = {}
        for _, f in self.aggregates:
            if is_holistic(f):
                marked = keys.setdefault(f.keys, {})
                marked |= dict.fromkeys([where] if (where := where_of(f)) is not None else [])
        ours: list[tuple[str, Function]] = [("__rows", Count())]
        if isinstance(self.window, Session | Landmark):
            ours.append(("__last", Extreme(TIME, "max")))
        if isinstance(self.window, SlideByTuple) and self.window.by == "row-num":
            ours.append(("__slides", Sum(SLIDE)))
        main = Lane.of(self.by, (), [*ours, *bounded], rows)
        return main, *(counting(self.by, key, rows, tuple(marked)) for key, marked in keys.items())

    @property
    def slides_at(self) -> tuple[Duration, Duration] | None:
        """How far apart the bounds are that close windows, and from when on; None if any bound may."""
        window = self.window
        return (window.slide, window.origin) if isinstance(window, Sliding | Landmark) else None

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"{self.window}{by}: {', '.join(f'{name} = {written(function)}' for name, function in self.aggregates)}"

    @property
    def timing(self) -> Timing:
        """The step before the end of a window: the latest that its rows can have."""
        return "before end"

    def keeps_time(self, port: int, clock: tuple[str, ...], inputs: tuple[RowType, ...]) -> bool:
        """The time of a result is its window's."""
        return False

    @property
    def reach(self) -> int:
        """How long a window is."""
        return self.window.reach(self.unit)

    @property
    def sees_ahead(self) -> bool:
        """The rows of an epoch may close windows."""
        return True

    @property
    def window_start(self) -> str:
        """The column where windows start."""
        return self.start

    @property
    def windows_by_time(self) -> Slides | Sessions | None:
        """The windows, if a row's time alone tells which it is in.

        It does for sliding windows, windows of rows numbered by time, and sessions, of which a row would be one by
        itself. It does not where windows are made by the arrival or rank of rows, and of landmark windows a row is
        in all that end after it.

        >>> from penstock.core.windows import rows, session
        >>> from penstock.operators.aggregate.functions import Count
        >>> counted = (("n", Count()),)
        >>> [WindowAggregate(window, (), counted).windows_by_time for window in (session(5), rows(5))]
        [Sessions(gap=5), None]
        """
        window = self.window
        if isinstance(window, Sliding | Session) or (isinstance(window, TupleWindow) and window.order is not None):
            return window.on(self.unit)
        return None

    @property
    def updates(self) -> str | None:
        """How `emit=` is written, if open windows come out, too."""
        if self.emit == "final":
            return None
        return repr(self.emit) if isinstance(self.emit, str) else f"pk.early('{self.emit.every}')"

    def origins(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """Groups, the ends of windows, and results of the type of the column that they are made from."""
        rows = inputs[0]
        names: dict[str, str | None] = {name: name for name in self.by}
        names |= dict.fromkeys((self.start, self.end), rows.time)
        names |= {name: function.column for name, function in self.aggregates}
        return {name: Origin(0, column) for name, column in names.items() if column is not None}

    def prelude(self, inputs: tuple[RowType, ...]) -> Prelude | None:
        """Panes may be aggregated before the shuffle, unless the method needs the rows themselves."""
        panes = self.panes
        if panes is None or self.takes_rows or self.punctuated:
            return None
        return Prelude(panes.size, panes.origin, self.lanes(inputs), self.copies)

    @property
    def waits_for_bounds(self) -> bool:
        """Unless windows close group by group."""
        return not self.punctuated

    def bounds(self, *ports: Time) -> Bounds:
        """What can still come out once the rows are bound, whatever groups have bounds of their own."""
        bound = ports[0]
        if not self.parameters.heeds_bounds and bound < TIME_MAX:
            # Rows close windows, not bounds: until the end, any window may still come out.
            return Bounds.at(TIME_MIN)
        out = bound
        if bound not in (TIME_MIN, TIME_MAX):
            windows = self.window.on(self.unit)
            if isinstance(self.window, Session):
                out = bound - 1
            elif not isinstance(self.window, SlideByTuple):
                first_open = np.array([windows.complete(bound)])
                out = int(windows.ends(first_open)[0]) - 1  # type: ignore[union-attr]
        return Bounds.at(out)


def method_by_groups(window: Window, emit: Emit, method: AggregateMethodLike) -> str | None:
    """The method that can close the windows of one group before those of others; None if there is none.

    It must drop a window's state when it emits the window: WID holds each window of each group separately, and a
    session belongs to one group. Panes serve windows that are still open, and do not record which of a group's windows
    are closed.

    >>> from penstock.core.windows import sliding
    >>> method_by_groups(sliding(10, 5), "final", "auto"), method_by_groups(sliding(10, 5), "final", "paned")
    ('wid', None)
    """
    if emit != "final" or method not in ("auto", "wid"):
        return None
    if isinstance(window, Session):
        return "auto"
    return "wid" if isinstance(window, Sliding) else None


def _check_where(name: str, where: str, rows: RowType) -> None:
    if where not in rows.columns.names:
        raise ConfigError.unknown_column("where", where, rows.columns.names)
    kind = rows.columns.field(where).type
    if not pa.types.is_boolean(kind):
        raise ConfigError(
            f"{name}: where={where!r} must be a column of booleans, but it is of type {kind}. "
            f"Select the condition as a column first, as in select('*', 'price > 100 AS large')."
        )


def is_holistic(function: AnyFunction) -> TypeGuard[Holistic]:
    """Whether it is made from value counts."""
    return hasattr(function, "keys")
