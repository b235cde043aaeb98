"""Streams for tests: tiny literal ones, and hypothesis-made ones with everything that streams do to a join."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Logic, Out, State
from penstock.core.pages import PageStore, clip_page
from penstock.core.rows import TIME, RowType
from penstock.core.time import TIME_MAX, TIME_MIN, as_times
from penstock.core.within import Always, Band, Tumbling, Within, always, band, tumbling, windows
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.multi_way import MultiJoin
from penstock.operators.window_join import AhEwj, Ewj, How, JoinMethod, JoinMethodLike, Rpwj, Rrpj, WindowJoin
from penstock.operators.window_join.config import default_time
from penstock.operators.window_join.progressive.baselines.parameters import Hmj, La, Pmj, Random, Rpj, XJoin
from penstock.operators.window_join.progressive.parameters import Progressive
from penstock.storage.compaction import compact
from penstock.storage.memory import MemoryPages
from penstock.storage.versioned import state_from_json, state_to_json
from tests.oracle import window_join as oracle

COLUMNS = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
ROWS = RowType(COLUMNS, keys=("k",), time="t")
LEFT, RIGHT = 0, 1
HOWS: list[How] = ["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class Arrive:
    """Rows arrive on a port."""

    port: int
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Advance:
    """A bound arrives on a port."""

    port: int
    bound: int


@dataclass(frozen=True)
class EpochEnd:
    """State is saved, compacted, and taken up again on `shards` shards, by another `method` if one is given.

    With `lag`, the host tells the next epoch only the bounds that the last one began with: Spark's driver learns what
    an epoch showed when it is over, while each shard goes on with the bounds that its own rows imply.
    """

    shards: int
    method: JoinMethodLike | None = None
    lag: bool = False


@dataclass(frozen=True)
class Idle:
    """Nothing arrives for a while; with `work`, there is time for what was put off."""

    work: bool = True

    def left(self) -> bool:
        """As an allowance."""
        return self.work


Event = Arrive | Advance | EpochEnd | Idle


@dataclass(frozen=True)
class Case:
    """One join and what happens to it."""

    within: Within
    how: How
    events: list[Event]
    memory: int = 1 << 20
    shards: int = 1
    method: JoinMethodLike = "oa"

    @property
    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All the rows of either port."""
        arrivals = [e for e in self.events if isinstance(e, Arrive)]
        return tuple([row for a in arrivals if a.port == port for row in a.rows] for port in (LEFT, RIGHT))

    @property
    def config(self) -> WindowJoin:
        """The operator asked for."""
        return WindowJoin((("k", "k"),), self.within, self.how, default_time(self.how), method=self.method)

    def expected(self) -> Counter[tuple]:
        """By the definition."""
        return oracle.window_join(*self.rows, near=near(self.within), how=self.how)


def near(within: Within) -> oracle.Near:
    """The same condition for the oracle, spelled out there and not through penstock's reach."""
    if isinstance(within, Always):
        return lambda *_: True
    if isinstance(within, Tumbling):
        return oracle.tumbling(within.size.amount, within.origin.amount)
    first, last = -within.before.amount, within.after.amount
    return oracle.band(first + (within.ends[0] == "("), last - (within.ends[1] == ")"))


def left(t: int, k: Any, id: int | None = None) -> Arrive:
    """One left row; its id is its time unless given."""
    return Arrive(LEFT, [{"k": k, "t": t, "id": t if id is None else id}])


def right(t: int, k: Any, id: int | None = None) -> Arrive:
    """One right row; its id is its time unless given."""
    return Arrive(RIGHT, [{"k": k, "t": t, "id": t if id is None else id}])


def table(rows: Sequence[dict[str, Any]], schema: pa.Schema = COLUMNS) -> pa.Table:
    """Rows as an Arrow table."""
    return pa.Table.from_pylist(list(rows), schema=schema)


def batch(rows: Sequence[dict[str, Any]], types: RowType = ROWS) -> pa.RecordBatch:
    """Rows as an operator gets them."""
    whole = table(rows, types.columns)
    keys = [whole.column(key).combine_chunks() for key in types.keys]
    return types.enter(whole.append_column(TIME, as_times(whole.column(types.time))), hash_keys(keys))


@functools.cache
def keys_of(partition: int, partitions: int) -> list[int]:
    """Keys that a hash-partitioned method puts into this partition."""
    keys = np.arange(100)
    return keys[hash_keys([pa.array(keys)]) % np.uint64(partitions) == partition].tolist()


class EpochPages(MemoryPages):
    """Pages as a host keeps them: what an earlier epoch wrote, and several shards may share, outlives a drop."""

    def __init__(self) -> None:
        super().__init__(Budget(1 << 40))
        self._older: set[str] = set()

    def seal(self) -> None:
        """An epoch is over."""
        self._older = set(self._pages)

    def drop(self, name: str) -> None:
        """Free what this epoch wrote."""
        if name not in self._older:
            super().drop(name)


@dataclass
class Run:
    """A join at work on some shards, and what came out of it."""

    config: WindowJoin | MultiJoin
    shards: int = 1
    memory: int = 1 << 20
    types: tuple[RowType, ...] = (ROWS, ROWS)
    out: list[pa.RecordBatch] = field(default_factory=list)
    store: PageStore = field(default_factory=EpochPages)
    meter: Meter | None = None

    def __post_init__(self) -> None:
        self.budgets: list[Budget] = []
        self.bounds = [TIME_MIN for _ in self.types]
        self.told = list(self.bounds)
        """The bounds when this epoch began."""
        self.heard = list(self.bounds)
        """The bounds that the logics of this epoch know."""
        self.logics: list[Logic] = [self._logic(State()) for _ in range(self.shards)]

    def _logic(self, state: State) -> Logic:
        self.budgets.append(Budget(self.memory))
        return self.config.logic(self.types, self.store, self.budgets[-1], state, self.meter)

    @property
    def budget(self) -> Budget:
        """What all shards together hold, and the most that one of them did."""
        whole = Budget(self.memory)
        whole.held = sum(budget.held for budget in self.budgets)
        whole.peak = max(budget.peak for budget in self.budgets)
        return whole

    def take(self, outs: Iterator[Out]) -> None:
        """Collect results, as a host would."""
        for out in outs:
            assert out.outlet == "results"
            self.out.append(out.rows)

    def on(self, *events: Event) -> None:
        """Let things happen, one after the other."""
        for event in events:
            self._on(event)

    def _on(self, event: Event) -> None:
        if isinstance(event, Arrive):
            rows = batch(event.rows, self.types[event.port])
            shard = shard_of(rows.column(0).to_numpy(), self.shards)
            for number, logic in enumerate(self.logics):
                self.take(logic.rows(event.port, rows.filter(pa.array(shard == number))))
        elif isinstance(event, Advance):
            self.bounds[event.port] = max(event.bound, self.bounds[event.port])
            self.heard[event.port] = max(event.bound, self.heard[event.port])
            for logic in self.logics:
                self.take(logic.advance(event.port, event.bound))
        elif isinstance(event, Idle):
            for logic in self.logics:
                self.take(logic.idle(event))
        else:
            if event.method is not None:
                self.config = replace(self.config, method=event.method)
            self.restart(event.shards, event.lag)

    def restart(self, shards: int, lag: bool = False) -> None:
        """Save, compact, seal the epoch, and go on with another number of shards."""
        states = [self._saved(logic) for logic in self.logics]
        assert self.budget.held == 0, "state() leaves memory charged"
        self.store.seal()
        if shards != self.shards:
            states = [self._clipped(states, number, shards) for number in range(shards)]
        self.shards = shards
        self.logics = [self._logic(state) for state in states]
        before = self.told if lag else self.bounds
        self.told, self.heard = list(self.bounds), list(before)
        for port in range(len(self.types)):
            for logic in self.logics:
                self.take(logic.advance(port, before[port]))

    def _saved(self, logic: Logic) -> State:
        """What a ledger keeps of a shard."""
        state = logic.state()
        compacted = State(compact(state.pages, self.store, Budget(self.memory)), state.meta)
        return state_from_json(json.loads(json.dumps(state_to_json(compacted))))

    def _clipped(self, states: Sequence[State], number: int, shards: int) -> State:
        """One shard's part of all states."""
        pages = [clip_page(self.store, page, *hash_range(number, shards)) for state in states for page in state.pages]
        return State(tuple(page for page in pages if page is not None))

    def end(self) -> None:
        """End all streams as hosts do: each port's bound is the end of time, then there is time for deferred work."""
        self.on(*(Advance(port, TIME_MAX) for port in range(len(self.types))), Idle())

    @property
    def results(self) -> Counter[tuple]:
        """Pairs of ids."""
        return pairs_of(self.out)

    @property
    def held(self) -> int:
        """Rows in state."""
        return sum(page.rows for logic in self.logics for page in logic.state().pages)


def pairs_of(batches: Sequence[pa.RecordBatch]) -> Counter[tuple]:
    """Results as (left id, right id)."""
    pairs: Counter[tuple] = Counter()
    for out in batches:
        other = out.column("id_right").to_pylist() if "id_right" in out.schema.names else [None] * out.num_rows
        pairs.update(zip(out.column("id").to_pylist(), other, strict=True))
    return pairs


def run(case: Case) -> Run:
    """Run a case to its end."""
    join = Run(case.config, case.shards, case.memory)
    join.on(*case.events)
    join.end()
    return join


def join(on: str, within: Band | Tumbling, how: How = "inner") -> WindowJoin:
    """A join on integer times."""
    return WindowJoin(((on, on),), within, how, time=default_time(how))


def advance(**bounds: int) -> Advance:
    """A bound by the name of its port: ``advance(left=4)``."""
    ((port, bound),) = bounds.items()
    return Advance(LEFT if port == "left" else RIGHT, bound)


bands = st.builds(
    lambda before, extra, ends: band(before=before, after=extra - before, ends=ends),
    before=st.integers(-4, 12),
    extra=st.integers(2, 16),
    ends=st.sampled_from(["[]", "()", "[)", "(]"]),
)
withins = st.one_of(
    bands,
    st.builds(windows, left=st.integers(1, 9), right=st.integers(1, 9), ends=st.sampled_from(["[]", "[)", "(]"])),
    st.builds(tumbling, size=st.integers(1, 12), origin=st.integers(-5, 5)),
)
keys = st.one_of(
    st.sampled_from([1, 1, 1, 1, 2, None]),
    st.integers(0, 5),
    st.integers(0, 1000),
)


parts = st.sampled_from(
    [(0.7, 0.15, 0.15), (0.4, 0.3, 0.3), (0.9, 0.05, 0.05), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)]
)


@st.composite
def ewjs(draw: st.DrawFn) -> Ewj:
    """Tiny pages, tight memory: a row counts 1, a page is 1 to 4 rows, memory 2 to 40."""
    recent, frequent, invalidation = draw(parts)
    return Ewj(
        memory=draw(st.integers(2, 40)),
        page=draw(st.integers(1, 4)),
        row=1,
        chunk=draw(st.integers(1, 8)),
        recent=recent,
        frequent=frequent,
        invalidation=invalidation,
        probe=draw(st.sampled_from([0.1, 0.5, 0.95, 1.0])),
        gain=draw(st.sampled_from([0, 1, 3])),
        refresh=draw(st.integers(1, 3)),
    )


@st.composite
def ah_ewjs(draw: st.DrawFn) -> AhEwj:
    """Tiny pages, tight memory."""
    recent, frequent, invalidation = draw(parts)
    return AhEwj(
        memory=draw(st.integers(2, 40)),
        page=draw(st.integers(1, 4)),
        row=1,
        chunk=draw(st.integers(1, 8)),
        recent=recent,
        frequent=frequent,
        invalidation=invalidation,
        partitions=draw(st.integers(1, 4)),
        least=draw(st.sampled_from([0.0, 0.2, 0.5])),
        probe=draw(st.sampled_from([0.1, 0.5, 1.0])),
        gain=draw(st.sampled_from([0.0, 0.4])),
        flush=draw(st.integers(1, 8)),
        train=draw(st.integers(1, 3)),
        refresh=draw(st.integers(1, 3)),
    )


@st.composite
def rpwjs(draw: st.DrawFn) -> Rpwj:
    """Tiny pages, tight memory, either granularity."""
    return Rpwj(
        memory=draw(st.integers(2, 40)),
        page=draw(st.integers(1, 4)),
        row=1,
        chunk=draw(st.integers(1, 8)),
        partitions=draw(st.integers(1, 4)),
        flush=draw(st.sampled_from([0.1, 0.4, 1.0])),
        slide=draw(st.integers(1, 6)),
        high_mark=draw(st.integers(1, 3)),
        low_mark=draw(st.integers(1, 3)),
    )


PROGRESSIVE: tuple[tuple[type[Progressive], dict[str, Sequence[Any]]], ...] = (
    (Rrpj, {"sigma": ("auto", 0.0, 0.5, 1.0), "per": ("arrived", "resident", "nothing")}),
    (Rrpj, {"by": ("row",), "grace": (0.0, 0.3, 1.0)}),
    (Random, {"seed": (0, 1)}),
    (XJoin, {}),
    (Hmj, {}),
    (Rpj, {"sigma": (0.0, 0.5, 1.0)}),
    (La, {"sigma": (0.5, 1.0), "history": (1, 10)}),
    (Pmj, {}),
)
"""The methods of joins without a window that let rows leave memory, and parameters to try."""


@st.composite
def progressives(draw: st.DrawFn) -> Progressive:
    """Tiny partitions, tight memory: a row counts 1, memory is 1 to 40."""
    kind, parameters = draw(st.sampled_from(PROGRESSIVE))
    return kind(
        memory=draw(st.integers(1, 40)),
        row=1,
        partitions=draw(st.integers(1, 4)),
        flush=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        cut=draw(st.sampled_from(["fixed", "adaptive"])),
        **{name: draw(st.sampled_from(values)) for name, values in parameters.items()},
    )


only_oa = st.just("oa")
ever = st.builds(always)


@st.composite
def cases(
    draw: st.DrawFn,
    hows: Sequence[How] = HOWS,
    within: st.SearchStrategy = withins,
    methods: st.SearchStrategy = only_oa,
) -> Case:
    """Disorder, duplicates, null keys, ties, hot keys, empty ports, random pages, epochs, shards and memory.

    Bounds are grammatical: rows drawn later never lie below a bound given before.
    """
    method = draw(methods)
    events: list[Event] = []
    bounds = [-20, -20]
    drift = draw(st.integers(0, 6))
    count = itertools.count()
    for step in range(draw(st.integers(1, 10))):
        kind = draw(st.integers(0, 9))
        port = draw(st.integers(0, 1))
        if kind < 6:
            base = step * drift
            times = draw(st.lists(st.integers(-10, 12), min_size=0, max_size=10))
            events.append(
                Arrive(port, [{"k": draw(keys), "t": max(bounds[port], base + t), "id": next(count)} for t in times])
            )
        elif kind == 6 and method != "oa":
            events.append(Idle(draw(st.booleans())))
        elif kind < 9:
            bounds[port] = max(bounds[port], draw(st.integers(-15, 12)) + step * drift)
            events.append(Advance(port, bounds[port]))
        else:
            events.append(EpochEnd(draw(st.integers(1, 3)), lag=draw(st.booleans())))
    return Case(
        within=draw(within),
        how=draw(st.sampled_from(list(hows))),
        events=events,
        memory=draw(st.sampled_from([3_000, 20_000, 1 << 20])),
        shards=draw(st.integers(1, 3)),
        method=method,
    )


@st.composite
def host_cases(
    draw: st.DrawFn,
    hows: Sequence[How] = HOWS,
    within: st.SearchStrategy = withins,
    methods: st.SearchStrategy = only_oa,
) -> Case:
    """Epochs as hosts run them: rows of both ports, both bounds, quiet time, and the state is saved and taken up again.

    One stream may run far ahead of the other: its bound passes rows that the other has yet to bring.
    """
    method = draw(methods)
    start, drift, delay = (draw(st.tuples(st.integers(0, most), st.integers(0, most))) for most in (30, 12, 30))
    bounds, tops = [-100, -100], [-100, -100]
    events: list[Event] = []
    count = itertools.count()
    for epoch in range(draw(st.integers(1, 5))):
        arrivals = []
        for port in (LEFT, RIGHT):
            since = max(bounds[port], start[port] + epoch * drift[port] - delay[port])
            drawn = draw(st.lists(st.tuples(keys, st.integers(0, 12 + delay[port])), max_size=8))
            rows = sorted(({"k": k, "t": since + t, "id": next(count)} for k, t in drawn), key=lambda row: row["t"])
            half = draw(st.integers(0, len(rows)))
            arrivals += [Arrive(port, part) for part in (rows[:half], rows[half:]) if part]
            tops[port] = max([tops[port], *(row["t"] for row in rows)])
            bounds[port] = max(bounds[port], tops[port] - delay[port])
        events += draw(st.permutations(arrivals))
        events += [Advance(LEFT, bounds[LEFT]), Advance(RIGHT, bounds[RIGHT]), Idle(work=not arrivals)]
        events.append(EpochEnd(draw(st.integers(1, 3)), lag=draw(st.booleans())))
    return Case(
        within=draw(within),
        how=draw(st.sampled_from(list(hows))),
        events=events,
        memory=draw(st.sampled_from([3_000, 20_000, 1 << 20])),
        shards=draw(st.integers(1, 3)),
        method=method,
    )


DRAWN: dict[str, Callable[[np.random.Generator], JoinMethod]] = {
    "ewj": lambda rng: Ewj(
        **_tight(rng),
        **_segments(rng),
        probe=float(rng.choice([0.1, 0.5, 0.95])),
        gain=int(rng.integers(4)),
    ),
    "ah_ewj": lambda rng: AhEwj(
        **_tight(rng),
        **_segments(rng),
        partitions=int(rng.integers(1, 9)),
        least=float(rng.choice([0.1, 0.3, 0.5])),
        probe=float(rng.choice([0.3, 0.9])),
        flush=int(rng.integers(1, 25)),
        train=int(rng.integers(1, 4)),
    ),
    "rpwj": lambda rng: Rpwj(
        **_tight(rng),
        partitions=int(rng.integers(1, 9)),
        flush=float(rng.choice([0.1, 0.4, 1.0])),
        slide=int(rng.integers(1, 20)),
        high_mark=int(rng.integers(1, 4)),
    ),
}
"""Parameters of each method for seeded traces."""


def _tight(rng: np.random.Generator) -> dict[str, int]:
    """Memory of 8 to 80 rows in pages of 1 to 8: a fraction of the window."""
    return {
        "memory": int(rng.integers(8, 80)),
        "page": int(rng.integers(1, 9)),
        "row": 1,
        "chunk": int(rng.integers(1, 25)),
    }


def _segments(rng: np.random.Generator) -> dict[str, Any]:
    frequent, invalidation = (float(part) for part in rng.choice([0.0, 0.15, 0.3], 2))
    return {
        "recent": 1 - frequent - invalidation,
        "frequent": frequent,
        "invalidation": invalidation,
        "refresh": int(rng.integers(1, 4)),
    }


def trace(seed: int, method: str) -> Case:
    """A seeded random stream for one of the methods that put joins off, with parameters drawn for it.

    Rates change from phase to phase, and are nothing in some; ports run ahead of each other, rows are in disorder, ties
    are common, keys are hot or not; bounds, quiet times, epochs with other numbers of shards come in between.
    """
    rng, lags = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    disorder, keys = int(rng.choice([0, 3, 10])), int(rng.choice([2, 15, 150]))
    clock, ids = [0, 0], itertools.count()
    events: list[Event] = []
    for _phase in range(int(rng.integers(3, 9))):
        rates = rng.choice([0.0, 0.3, 1.0, 4.0], 2)
        for _turn in range(int(rng.integers(2, 7))):
            port, step = int(rng.integers(2)), int(rng.integers(1, 10))
            clock[port] += step
            times = clock[port] - rng.integers(0, step + disorder, rng.poisson(rates[port] * step))
            events.append(Arrive(port, [{"k": _key(rng, keys), "t": int(t), "id": next(ids)} for t in times]))
            what = rng.random()
            if what < 0.6:
                events.append(Advance(port, clock[port] - disorder + 1))
            elif what < 0.75:
                events.append(Idle(bool(rng.integers(2))))
            elif what < 0.85:
                events.append(EpochEnd(int(rng.integers(1, 4)), lag=bool(lags.integers(2))))
    return Case(
        within=windows(int(rng.integers(1, 60)), int(rng.integers(1, 60))),
        how=HOWS[rng.integers(6)] if rng.random() < 0.6 else "inner",
        events=events,
        memory=int(rng.choice([20_000, 1 << 20])),
        shards=int(rng.integers(1, 3)),
        method=DRAWN[method](rng),
    )


def ever_trace(seed: int, kind: int | None = None) -> Case:
    """The same stream for a join without a window, by a method of it, or by the one at this place of the list."""
    rng = np.random.default_rng([seed, 2])
    case = trace(seed, "ewj")
    method, parameters = PROGRESSIVE[int(rng.integers(len(PROGRESSIVE))) if kind is None else kind]
    drawn = {name: values[int(rng.integers(len(values)))] for name, values in parameters.items()}
    tight = {"memory": int(rng.integers(4, 60)), "row": 1, "partitions": int(rng.integers(1, 9))}
    flush = float(rng.choice([0.0, 0.1, 0.4, 1.0]))
    return replace(case, within=always(), method=method(**tight, flush=flush, **drawn))


def _key(rng: np.random.Generator, keys: int) -> int | None:
    return int(rng.integers(keys)) if rng.random() < 0.98 else None


def examples(share: float) -> settings:
    """So much of the profile's number of examples, for a test that needs fewer than the main one; at least ten."""
    return settings(max_examples=max(10, int(settings.default.max_examples * share)))
