"""The config of a linear multi-way join: the common key of several streams, the condition on time, and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from penstock.core.durations import TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.methods import ByMethod, Methods
from penstock.core.operator import Arrivals, NullKeys, Operator, Origin, Timing, sorted_if_large
from penstock.core.progress import Bounds
from penstock.core.rows import RowType, first_twice
from penstock.core.time import Time
from penstock.core.within import Within
from penstock.operators.multi_way.methods import METHODS, MultiJoinMethod, MultiJoinMethodLike
from penstock.operators.multi_way.nearness import Nearness

MultiJoinTime = Literal["latest", "earliest"] | int
"""The event time of a result: the latest or the earliest of its rows, or that of its row of one port."""


@dataclass(frozen=True, slots=True)
class MultiJoin(ByMethod[MultiJoinMethod]):
    """Join rows of two or more ports with equal keys if every two of them satisfy `within`.

    A result has one row of each port. It is emitted once iff the keys of all its rows are equal (null equals nothing,
    NaN equals NaN) and every two of them satisfy `within`, the row of the smaller port number being the left one.
    Columns: those of all ports in turn, each with the prefix of its port.

    >>> from penstock.core.within import Always
    >>> join = MultiJoin(on=(("k",), ("k",), ("id",)), within=Always(), prefixes=("a_", "b_", "c_"))
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")
    >>> others = RowType(pa.schema({"id": pa.int64()}), keys=("id",))
    >>> join.output((rows, rows, others)).names
    ['a_k', 'a_t', 'b_k', 'b_t', 'c_id']
    """

    on: tuple[tuple[str, ...], ...]
    """The key columns of each port."""
    within: Within
    time: MultiJoinTime = "latest"
    prefixes: tuple[str, ...] = ()
    """The prefix of each port's columns; by default none."""
    names: tuple[str, ...] = ()
    """The names of the ports in messages; by default their numbers."""
    unit: TimeUnit = "ticks"
    method: MultiJoinMethodLike = "auto"

    methods: ClassVar[Methods[MultiJoinMethod]] = METHODS

    def __post_init__(self) -> None:
        if len(self.on) < 2:
            raise ConfigError(f"on={self.on!r} names the keys of {len(self.on)} stream. A join takes two or more.")
        if len({len(keys) for keys in self.on}) > 1 or not self.on[0]:
            raise ConfigError(f"on={self.on!r} must name one or more key columns, as many for each stream.")
        if self.time not in ("latest", "earliest", *range(self.ports)):
            raise ConfigError(
                f"time={self.time!r} is not a time of the results. Write 'latest', 'earliest', or a port from 0 to "
                f"{self.ports - 1}."
            )
        for given, what in ((self.prefixes, "prefixes"), (self.names, "names")):
            if given and len(given) != self.ports:
                raise ConfigError(f"{what}={given!r} must have one for each of {self.ports} streams.")
        if self.parameters.two_only and self.ports != 2:
            raise ConfigError(
                f"method={self.method_name!r} joins two streams, but there are {self.ports}. Write method='msj'."
            )
        self.parameters.check(self.ports)
        self.within.reach(self.unit)

    @property
    def ports(self) -> int:
        """How many streams it joins."""
        return len(self.on)

    @property
    def nearness(self) -> Nearness:
        """How near every two rows of a result are."""
        return Nearness(self.within.reach(self.unit), self.ports)

    def shown(self, port: int, column: str) -> str:
        """What the results call a column of a port."""
        return f"{self.prefixes[port] if self.prefixes else ''}{column}"

    def origins(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """Every column is that of one port."""
        columns = [(port, name) for port, rows in enumerate(inputs) for name in rows.columns.names]
        names = [self.shown(port, name) for port, name in columns]
        twice = first_twice(names)
        if twice is not None:
            raise ConfigError(f"Two streams have a column {twice!r}. Write prefixes=, one for each stream.")
        return {name: Origin(port, column) for name, (port, column) in zip(names, columns, strict=True)}

    def carries(self, inputs: tuple[RowType, ...]) -> dict[str, Origin]:
        """All but keys and times."""
        looked_at = {(port, name) for port, rows in enumerate(inputs) for name in (*rows.keys, rows.time)}
        return {name: origin for name, origin in self.origins(inputs).items() if tuple(origin) not in looked_at}

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the results."""
        origins = self.origins(inputs).items()
        return pa.schema([(name, inputs[port].columns.field(column).type) for name, (port, column) in origins])

    def clock(self, inputs: tuple[RowType, ...]) -> tuple[str, ...]:
        """The columns of the results that their event time is made from; none if an input's time is not shown."""
        ports = range(self.ports) if isinstance(self.time, str) else (self.time,)
        times = [(port, inputs[port].time) for port in ports]
        return tuple(self.shown(port, time) for port, time in times if time) if all(t for _, t in times) else ()

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        names = self.names or tuple(map(str, range(self.ports)))
        keys = [f"{name}.{', '.join(columns)}" for name, columns in zip(names, self.on, strict=True)]
        time = self.time if isinstance(self.time, str) else names[self.time]
        return f"linear join of {', '.join(names)} on {' = '.join(keys)} within {self.within}, time of results: {time}"

    @property
    def timing(self) -> Timing:
        """Which of several times."""
        return self.time if isinstance(self.time, str) else "column"

    def keeps_time(self, port: int, clock: tuple[str, ...], inputs: tuple[RowType, ...]) -> bool:
        """Whether the one time that a result has is that of its row of `port`."""
        return len(clock) == 1 and self.origins(inputs)[clock[0]].port == port

    def null_keys(self, port: int) -> NullKeys:
        """A null matches nothing."""
        return "drop"

    def arrivals(self, held: int, share: int) -> Arrivals:
        """As its state is large."""
        return sorted_if_large(held, share)

    @property
    def may_change(self) -> frozenset[str]:
        """The method is a matter of cost, names are for messages; every method goes on from any other's pages."""
        return frozenset({"method", "names"})

    def fixed(self) -> dict[str, Any]:
        """Its other settings; the keys as a list for each port."""
        return {**Operator.fixed(self), "on": self.on, "prefixes": self.prefixes}

    @property
    def ahead(self) -> int | None:
        """A result has the time of one of its rows, and they are so near each other."""
        return self.within.reach(self.unit).farthest

    @property
    def compacts(self) -> bool:
        """Its pages may be merged between epochs."""
        return True

    def bounds(self, *ports: Time) -> Bounds:
        """What can still come out once the ports are bound.

        A result to come has a row that is still to come. So not all its times are below the bounds of their ports, and
        the time of its row of port j is at or after that port's bound, or near a row of another port at or after that
        one's.
        """
        near, bounds = self.nearness, list(ports)
        individual = tuple(min(bounds[port], near.dead(port, bounds)) for port in range(self.ports))
        return Bounds(individual, tuple(bounds))

    def bound(self, bounds: Bounds) -> Time:
        """The bound on the event time of the results, by what `time` says it is.

        >>> from penstock.core.within import band
        >>> join = MultiJoin((("k",),) * 3, band(before=2, after=3))
        >>> join.bounds(10, 20, 30).individual, join.bound(join.bounds(10, 20, 30))
        ((10, 8, 8), 10)
        """
        if not isinstance(self.time, str):
            return bounds.individual[self.time]
        return bounds.latest if self.time == "latest" else bounds.earliest

    def tells(self, epochs: Sequence[Mapping[str, int]], waits: str) -> list[str]:
        """Probes per arrival, and probes until an arrival turned out to have no result."""

        def total(name: str) -> int:
            return sum(counts.get(name, 0) for counts in epochs)

        arrivals, probes, failed = total("arrivals"), total("probes"), total("failed")
        if not arrivals:
            return []
        lines = [f"probes: {probes:,} of {self.ports - 1} other stores, {probes / arrivals:.2f} per arrival"]
        if failed:
            lines.append(f"{failed:,} arrivals failed after {total('probes to failure') / failed:.2f} probes each")
        if messages := total("messages"):
            lines.append(f"messages: {messages / arrivals:.2f} per arrival, to the units that store and probe")
        return lines
