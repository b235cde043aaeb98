"""Window joins at random: how × method × band × policy × key type × memory × epochs, and what they give by DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.durations import Duration
from penstock.core.progress import Blocks as InBlocks
from penstock.core.progress import (
    BoundedDelay,
    BoundedTuples,
    NoPromise,
    Ordered,
    Policy,
    Punctuated,
    Timer,
)
from penstock.core.within import Always, Band, Tumbling, Within
from penstock.operators.window_join import AhEwj, Ewj, JoinMethodLike, Rpwj, Rrpj
from penstock.operators.window_join.progressive.baselines.parameters import Pmj, Rpj, XJoin
from tests.draws import keys

Clock = Literal["number", "timestamp", "date"]
Row = dict[str, Any]
"""`id`, `t` in steps of its clock, the number `k` of its key, and the `mark` that punctuates."""

HOWS = ["inner", "left", "right", "full", "semi", "anti"]
STEP = {"number": (1, "ticks"), "timestamp": (1_000_000, "time"), "date": (86_400_000_000, "time")}
"""One step of a clock as a duration: 1, a second, a day."""

TYPES = {"number": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32()}


@dataclass(frozen=True)
class JoinCase:
    """One join: what is asked of it, by which methods before and after each restart, and the rows of each epoch."""

    clock: Clock
    how: str
    within: Within
    keys: tuple[tuple[str, str], ...]
    policies: tuple[Policy, Policy]
    methods: tuple[JoinMethodLike, ...]
    epochs: tuple[tuple[list[Row], list[Row]], ...]

    def rows(self, side: int) -> list[Row]:
        """All the rows of a side."""
        return [row for epoch in self.epochs for row in epoch[side]]


def draw_clock(rng: random.Random) -> Clock:
    """What time is counted in."""
    return rng.choice(["number", "number", "timestamp", "date"])


def draw_join(rng: random.Random, epochs: int, runs: int, clock: Clock) -> JoinCase:
    """A case of so many epochs, in so many runs."""
    paces = (_Pace.draw(rng), _Pace.draw(rng))
    policies = (_policy(rng, clock, paces[0]), _policy(rng, clock, paces[1]))
    how, within = rng.choice(HOWS), _within(rng, clock)
    if rng.random() < 0.5:
        # Bounds run far apart: one side promises next to nothing, the other all it can. Few rows have met when the
        # fast one passes them by, and rows of the slow one still arrive there.
        slow, fast = rng.choice([NoPromise(), BoundedDelay(_duration(100, clock))]), BoundedDelay(_duration(0, clock))
        policies, how = rng.choice([((slow, fast), "left"), ((slow, fast), "anti"), ((fast, slow), "right")])
        how = rng.choice([how, "full"])
        within = Band(_duration(0, clock), _duration(rng.randint(0, 3), clock))
    case = JoinCase(
        clock,
        how,
        within,
        _keys(rng),
        policies,
        tuple(_method(rng, clock) for _ in range(runs)),
        tuple(zip(*_sides(rng, epochs, policies, paces), strict=True)),
    )
    if rng.random() < 0.1:
        return replace(case, within=Always(), methods=tuple(draw_progressive(rng) for _ in range(runs)))
    return case


def late(case: JoinCase, side: int) -> set[int]:
    """The ids of rows that come below the bound of their side, by the definition of its policy, or have no time."""
    return {row["id"] for row, bound in _with_bounds(case, side) if row["t"] is None or _below(row["t"], bound)}


def results(case: JoinCase, late_rows: set[int]) -> Counter[tuple[int | None, int | None]]:
    """Pairs of ids by the definition of the join over all rows in time, as DuckDB reads it."""
    db = _duckdb()
    for side, name in enumerate("lr"):
        rows = [row for row in case.rows(side) if row["id"] not in late_rows]
        db.register(name, as_table(rows, [pair[side] for pair in case.keys]))
    return Counter(db.execute(_query(case)).fetchall())


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for all cases: to open another takes longer than a case."""
    return duckdb.connect(config={"threads": 1})


def as_table(rows: Sequence[Row], kinds: Sequence[str]) -> pa.Table:
    """Rows with key columns of these types; times and marks are still steps of a clock."""
    fields = [pa.field(name, pa.int64()) for name in ("id", "t", "mark")]
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in fields]
    for kind in kinds:
        fields.append(keys.column(kind))
        columns.append(pa.array([keys.value(kind, row["k"]) for row in rows], fields[-1].type))
    return pa.table(columns, pa.schema(fields))


@dataclass(frozen=True)
class JoinRun:
    """A join, how many epochs it runs from one start to the next, on how many shards each time, in how much memory."""

    case: JoinCase
    epochs: tuple[int, ...]
    shards: tuple[int, ...]
    memory: int


def draw_run(seed: str) -> JoinRun:
    """The run of a seed: equal seeds give equal runs."""
    rng = random.Random(seed)
    epochs = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
    case = draw_join(rng, sum(epochs), len(epochs), draw_clock(rng))
    return JoinRun(case, epochs, tuple(rng.randint(1, 4) for _ in epochs), rng.choice([100_000, 1_000_000, 32_000_000]))


def draw_runs(seed: str, count: int) -> list[JoinRun]:
    """So many joins that one flow can run: all have the same clock, epochs, shards and memory."""
    rng = random.Random(seed)
    clock, epochs = draw_clock(rng), rng.choice([(1,), (2,), (1, 1)])
    shards, memory = tuple(rng.choice([1, 1, 2, 2, 3]) for _ in epochs), rng.choice([100_000, 1_000_000, 32_000_000])
    draws = [random.Random(f"{seed}/{number}") for number in range(count)]
    return [JoinRun(draw_join(one, sum(epochs), len(epochs), clock), epochs, shards, memory) for one in draws]


def difference(run: JoinRun, found: Counter[tuple[int | None, int | None]], found_late: Counter[int] | int) -> str:
    """What came out too much and too little; nothing if all is right. `found_late`: ids, or how many."""
    expected_late = late(run.case, 0) | late(run.case, 1)
    expected = results(run.case, expected_late)
    said = []
    if isinstance(found_late, int) and found_late != len(expected_late):
        said.append(f"{found_late} late rows instead of {sorted(expected_late)}")
    elif isinstance(found_late, Counter) and found_late != Counter(expected_late):
        said.append(f"late: {sorted(found_late.elements())} instead of {sorted(expected_late)}")
    if found != expected:
        said.append(f"missing {dict(expected - found)}, too many {dict(found - expected)}")
    return "; ".join(said)


def as_source(rows: Sequence[Row], case: JoinCase, side: int) -> pa.Table:
    """Rows as a source of this case has them: times and marks of its clock's type, its own key columns."""
    table = as_table(rows, [pair[side] for pair in case.keys])
    step, kind = STEP[case.clock][0], TYPES[case.clock]
    for name in ("t", "mark"):
        steps = table.column(name)
        times = (
            pc.multiply(steps, step)
            if case.clock == "timestamp"
            else steps.cast(pa.int32() if case.clock == "date" else pa.int64())
        )
        table = table.set_column(table.column_names.index(name), name, times.cast(kind))
    return table if isinstance(case.policies[side], Punctuated) else table.drop_columns(["mark"])


def _query(case: JoinCase) -> str:
    same = [f"l.k_{ours} = r.k_{theirs}" for ours, theirs in case.keys]
    match = " AND ".join([*same, _near(case.within, STEP[case.clock][0])])
    if case.how in ("semi", "anti"):
        keep = "EXISTS" if case.how == "semi" else "NOT EXISTS"
        return f"SELECT l.id, NULL FROM l WHERE {keep} (SELECT 1 FROM r WHERE {match})"
    query = f"SELECT l.id, r.id FROM l JOIN r ON {match}"
    if case.how in ("left", "full"):
        query += f" UNION ALL SELECT l.id, NULL FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE {match})"
    if case.how in ("right", "full"):
        query += f" UNION ALL SELECT NULL, r.id FROM r WHERE NOT EXISTS (SELECT 1 FROM l WHERE {match})"
    return query


def _near(within: Within, step: int) -> str:
    """As SQL over times in steps."""
    if isinstance(within, Always):
        return "TRUE"
    if isinstance(within, Tumbling):
        size, origin = within.size.amount // step, within.origin.amount // step
        left, right = (f"floor(({side}.t - {origin}) / {size}.0)" for side in "lr")
        return f"{left} = {right}"
    first, last = -within.before.amount // step, within.after.amount // step
    lower, upper = ">" if within.ends[0] == "(" else ">=", "<" if within.ends[1] == ")" else "<="
    return f"r.t - l.t {lower} {first} AND r.t - l.t {upper} {last}"


def _below(time: int, bound: int | None) -> bool:
    return bound is not None and time < bound


def _with_bounds(case: JoinCase, side: int) -> Iterator[tuple[Row, int | None]]:
    """Each row, and the bound of its side when its epoch began."""
    step = STEP[case.clock][0]
    bound: int | None = None
    counted: list[tuple[int, int]] = []
    for number in range(len(case.epochs)):
        rows = case.epochs[number][side]
        yield from ((row, bound) for row in rows)
        in_time = [row["t"] for row in rows if row["t"] is not None and not _below(row["t"], bound)]
        if in_time:
            counted.append((len(in_time), max(in_time)))
        seen = [row for epoch in case.epochs[: number + 1] for row in epoch[side]]
        new = _bound(case.policies[side], seen, counted, step)
        bound = new if bound is None or (new is not None and new > bound) else bound


def _bound(policy: Policy, seen: list[Row], counted: list[tuple[int, int]], step: int) -> int | None:
    """The bound that a policy promises after the rows of some epochs; `counted`: in-time rows and top of each."""
    top = max((row["t"] for row in seen if row["t"] is not None), default=None)
    if isinstance(policy, Punctuated):
        return max((row["mark"] for row in seen if row["mark"] is not None), default=None)
    if top is None or isinstance(policy, NoPromise):
        return None
    if isinstance(policy, BoundedTuples):
        done = [
            max(top for _, top in counted[: place + 1])
            for place in range(len(counted))
            if sum(rows for rows, _ in counted[place + 1 :]) >= policy.count
        ]
        return max(done, default=None)
    if isinstance(policy, BoundedDelay):
        return top - policy.delay.amount // step
    if isinstance(policy, InBlocks):
        length, origin = policy.length.amount // step, policy.origin.amount // step
        return (top - origin) // length * length + origin
    return top


def _duration(amount: int, clock: Clock) -> Duration:
    size, kind = STEP[clock]
    return Duration(amount * size, kind)


def _within(rng: random.Random, clock: Clock) -> Band | Tumbling:
    if rng.random() < 0.2:
        return Tumbling(_duration(rng.randint(1, 12), clock), _duration(rng.randint(-5, 5), clock))
    before = rng.choice([0, 0, 0, rng.randint(-4, 12), rng.randint(-60, 60)])
    length = rng.choice([0, rng.randint(2, 8), rng.randint(2, 16), rng.randint(2, 80)])
    ends = rng.choice(["[]", "[]", "()", "[)", "(]"]) if length else "[]"
    return Band(_duration(before, clock), _duration(length - before, clock), ends)


def _keys(rng: random.Random) -> tuple[tuple[str, str], ...]:
    one = rng.choice(keys.SAME if rng.random() < 0.7 else keys.MIXED)
    if rng.random() < 0.2:
        other = rng.choice([pair for pair in keys.SAME if pair[0] not in one and pair[1] not in one])
        return (one, other)
    return (one,)


@dataclass(frozen=True)
class _Pace:
    """How a side goes through time: where it starts, how far it gets in an epoch, and its disorder within one."""

    start: int
    step: int
    spread: int
    busy: int
    """Rows of an epoch at most."""
    tidy: bool
    """Whether no row comes below one of an earlier epoch."""

    @classmethod
    def draw(cls, rng: random.Random) -> _Pace:
        starts, steps, spreads = [0, 0, 0, 20, 60], [0, 2, 6, 25], [2, 12, 40]
        return cls(
            rng.choice(starts), rng.choice(steps), rng.choice(spreads), rng.choice([2, 6, 15]), rng.random() < 0.3
        )


def _policy(rng: random.Random, clock: Clock, pace: _Pace) -> Policy:
    # Some rows come late by the shorter delays, none by the longest: bounds of the two sides then run far apart.
    delays = [0, pace.spread, 2 * pace.spread, 100]
    draws = [
        lambda: NoPromise(),
        lambda: Ordered(),
        lambda: BoundedDelay(_duration(rng.choice(delays), clock)),
        lambda: BoundedDelay(_duration(rng.choice(delays), clock)),
        lambda: BoundedDelay(_duration(rng.choice(delays), clock)),
        lambda: BoundedTuples(rng.randint(0, 25)),
        lambda: Punctuated("mark"),
        lambda: InBlocks(_duration(rng.randint(1, 20), clock), _duration(rng.randint(-3, 3), clock)),
    ]
    if clock == "timestamp":
        # So far back that the clock never decides: by its rows alone, this is the policy of an ordered stream.
        draws.append(lambda: Timer(Duration(100_000 * 86_400_000_000, "time")))
    return rng.choice(draws)()


def _sides(
    rng: random.Random, epochs: int, policies: tuple[Policy, Policy], paces: tuple[_Pace, _Pace]
) -> list[list[list[Row]]]:
    """The epochs of both sides, some of them silent; keys are hot or not, few are null."""
    ids = iter(range(100_000))
    hot, many = rng.random(), rng.choice([2, 6, 40])
    sides = []
    for policy, pace in zip(policies, paces, strict=True):
        side: list[list[Row]] = []
        for epoch in range(epochs):
            top = max((row["t"] for past in side for row in past if row["t"] is not None), default=None)
            rows = []
            for _ in range(rng.randint(0, pace.busy) if rng.random() < 0.85 else 0):
                time = pace.start + epoch * pace.step + rng.randint(-pace.spread, pace.spread)
                if pace.tidy and top is not None:
                    time = max(time, top)
                number = None if rng.random() < 0.05 else (0 if rng.random() < hot else rng.randrange(many))
                marks = isinstance(policy, Punctuated) and rng.random() < 0.2
                mark = time - rng.choice([0, pace.spread, 2 * pace.spread]) if marks else None
                timeless = rng.random() < 0.01
                rows.append({"id": next(ids), "t": None if timeless else time, "k": number, "mark": mark})
            side.append(rows)
        sides.append(side)
    return sides


def _method(rng: random.Random, clock: Clock) -> JoinMethodLike:
    draws = ["auto", "oa", "ewj", "ah_ewj", "rpwj", _ewj, _ewj, _ah_ewj, _ah_ewj, _rpwj, _rpwj]
    chosen = rng.choice(draws)
    return chosen if isinstance(chosen, str) else chosen(rng, clock)


def draw_progressive(rng: random.Random) -> JoinMethodLike:
    """A method of a join without a window, some with memory for a few rows."""
    if rng.random() < 0.4:
        return rng.choice(["auto", "oa", "rrpj", "amortized_rrpj", "rrpj_f", "jgradient", "random", "hmj", "la"])
    kind = rng.choice([Rrpj, Rrpj, XJoin, Rpj, Pmj])
    tight = {"memory": rng.randint(1, 30), "row": 1, "partitions": rng.randint(1, 5), "flush": rng.choice([0.1, 0.5])}
    more = rng.choice([{}, {"sigma": 0.0}, {"sigma": 1.0}, {"by": "row"}]) if kind is Rrpj else {}
    return kind(**tight, **more)


def _memory(rng: random.Random) -> dict[str, int]:
    """Three rows' memory or room for all: pages of one row, pages that stay open over epochs, or the defaults."""
    if rng.random() < 0.3:
        return {}
    page = rng.choice([1, 2, 4, 16])
    return {"memory": page * rng.randint(2, 20), "page": page, "row": 1, "chunk": page * rng.randint(1, 4)}


def _parts(rng: random.Random) -> dict[str, float]:
    shares = [(0.7, 0.15, 0.15), (0.4, 0.3, 0.3), (0.9, 0.05, 0.05), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)]
    return dict(zip(("recent", "frequent", "invalidation"), rng.choice(shares), strict=True))


def _gap(rng: random.Random, clock: Clock) -> Duration | None:
    """How long an idle join waits before it probes again."""
    return rng.choice([None, _duration(0, clock), _duration(5, clock)])


def _ewj(rng: random.Random, clock: Clock) -> Ewj:
    return Ewj(
        **_memory(rng),
        **_parts(rng),
        probe=rng.choice([0.1, 0.5, 0.95, 1.0]),
        gain=rng.choice([0, 1, 3]),
        refresh=rng.randint(1, 3),
        idle_gap=_gap(rng, clock),
    )


def _ah_ewj(rng: random.Random, clock: Clock) -> AhEwj:
    return AhEwj(
        **_memory(rng),
        **_parts(rng),
        partitions=rng.randint(1, 4),
        least=rng.choice([0.0, 0.2, 0.5]),
        probe=rng.choice([0.1, 0.5, 1.0]),
        gain=rng.choice([0.0, 0.4]),
        flush=rng.randint(1, 8),
        train=rng.randint(1, 3),
        refresh=rng.randint(1, 3),
        idle_gap=_gap(rng, clock),
    )


def _rpwj(rng: random.Random, clock: Clock) -> Rpwj:
    return Rpwj(
        **_memory(rng),
        partitions=rng.randint(1, 4),
        flush=rng.choice([0.1, 0.4, 1.0]),
        slide=_duration(rng.randint(1, 6), clock),
        high_mark=rng.randint(1, 3),
        low_mark=rng.randint(1, 3),
        idle_gap=_gap(rng, clock),
    )
