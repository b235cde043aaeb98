"""Linear joins for tests: what happens to them, and what they give by definition."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.core.within import Always, Band, Tumbling, band, tumbling
from penstock.operators.multi_way import MultiJoin, MultiJoinMethodLike
from penstock.operators.multi_way.baselines.bistream import BiStream
from penstock.operators.multi_way.baselines.mjoin import MJoin
from tests import streams
from tests.oracle import multi_way as oracle
from tests.streams import ROWS, Advance, Arrive, EpochEnd, Event, Run


def linear(
    ports: int,
    within: Band | Tumbling | Always | None = None,
    method: MultiJoinMethodLike = "msj",
    time: str | int = "latest",
) -> MultiJoin:
    """A join of `ports` streams on k."""
    prefixes = tuple(f"r{port}_" for port in range(ports))
    return MultiJoin((("k",),) * ports, within or Always(), time, prefixes, method=method)


def arrive(port: int, *rows: tuple[Any, int], ids: int = 0) -> Arrive:
    """Rows of a port by key and time; their ids count from `ids`."""
    return Arrive(port, [{"k": k, "t": t, "id": ids + place} for place, (k, t) in enumerate(rows)])


@dataclass
class LinearRun(Run):
    """A linear join at work."""

    types: tuple = field(default=())

    def __post_init__(self) -> None:
        self.types = self.types or (ROWS,) * self.config.ports
        super().__post_init__()

    @property
    def results(self) -> Counter[tuple]:
        """The ids of the rows of each result."""
        return columns_of(self.out, "id", self.config.ports)

    def counts(self) -> Counter[str]:
        """What the logics of the latest epoch count."""
        return sum((Counter(logic.counts()) for logic in self.logics), Counter())


def columns_of(out: Sequence[pa.RecordBatch], column: str, ports: int) -> Counter[tuple]:
    """A column of every port, for each result."""
    found: Counter[tuple] = Counter()
    for rows in out:
        found.update(zip(*(rows.column(f"r{port}_{column}").to_pylist() for port in range(ports)), strict=True))
    return found


@dataclass(frozen=True)
class LinearCase:
    """One linear join and what happens to it."""

    config: MultiJoin
    events: list[Event]
    memory: int = 1 << 20
    shards: int = 1

    def rows(self, port: int) -> list[dict[str, Any]]:
        """All the rows of a port."""
        return [row for e in self.events if isinstance(e, Arrive) and e.port == port for row in e.rows]

    def expected(self) -> Counter[tuple]:
        """By the definition."""
        within = self.config.within
        near = oracle.always if isinstance(within, Always) else streams.near(within)
        return oracle.multi_join([self.rows(port) for port in range(self.config.ports)], near)

    def start(self) -> LinearRun:
        """The join before anything has happened."""
        return LinearRun(self.config, self.shards, self.memory)

    def run(self) -> LinearRun:
        """The join when all is over."""
        join = self.start()
        join.on(*self.events)
        join.end()
        return join


def _within(rng: random.Random) -> Band | Tumbling | Always:
    kind = rng.randrange(4)
    if kind == 0:
        return Always()
    if kind == 1:
        return tumbling(size=rng.randint(2, 12), origin=rng.randint(-5, 5))
    before = rng.choice([-2, 0, 1, 4, 9])
    return band(before=before, after=rng.randint(3, 14) - before, ends=rng.choice(["[]", "[]", "()", "[)", "(]"]))


def _method(rng: random.Random, ports: int) -> MultiJoinMethodLike:
    """Any method that joins so many streams."""
    some = ["msj", "mjoin", "amjoin", MJoin(tuple(rng.sample(range(ports), ports)))]
    return rng.choice([*some, BiStream(rng.randint(1, 3))] if ports == 2 else some)


def drawn(seed: int, switching: bool = True) -> LinearCase:
    """The case of a seed: disorder, duplicates, null keys, ties, hot keys, empty ports, epochs, shards, memory, and
    methods that change from epoch to epoch if there is to be `switching`.

    Bounds are grammatical: rows drawn later never lie below a bound given before.
    """
    rng = random.Random(seed)
    ports = rng.choice([2, 3, 3, 3, 4])
    events: list[Event] = []
    bounds = [-20] * ports
    drift = rng.randint(0, 2)
    ahead = [rng.choice([0, 0, 0, 0, 5]) for _ in range(ports)]
    keys = rng.choice([[1, 1, 1, 2, None], [1, 2, 3], [1, 2, 3, 4, 5, None], list(range(12))])
    most = {2: 6, 3: 5, 4: 4}[ports]
    ids = itertools.count()
    for step in range(rng.randint(8, 30)):
        kind, port = rng.random(), rng.randrange(ports)
        if kind < 0.7:
            times = [step * drift + ahead[port] + rng.randint(-6, 6) for _ in range(rng.randint(1, most))]
            events.append(
                Arrive(port, [{"k": rng.choice(keys), "t": max(bounds[port], t), "id": next(ids)} for t in times])
            )
        elif kind < 0.88:
            bounds[port] = max(bounds[port], rng.randint(-8, 4) + step * drift + ahead[port])
            events.append(Advance(port, bounds[port]))
        else:
            other = _method(rng, ports) if switching else None
            events.append(EpochEnd(rng.randint(1, 3), other, lag=rng.random() < 0.5))
    return LinearCase(
        config=linear(ports, _within(rng), _method(rng, ports), rng.choice(["latest", "earliest", 0, ports - 1])),
        events=events,
        memory=rng.choice([12_000, 1 << 20]),
        shards=rng.randint(1, 3),
    )


def cases(switching: bool = True) -> st.SearchStrategy[LinearCase]:
    """Cases of any seed."""
    return st.integers(0, 2**32).map(lambda seed: drawn(seed, switching))
