"""Streams for tests of window aggregation, literal ones and hypothesis-made ones, run on shards as a host would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.meter import Meter
from penstock.core.operator import Logic, Quiet, State
from penstock.core.pages import clip_page
from penstock.core.rows import TIME, RowType
from penstock.core.time import TIME_MAX
from penstock.core.windows import (
    Landmark,
    Landmarks,
    PartitionedWindow,
    Session,
    SlideByTuple,
    Sliding,
    TupleWindow,
    Window,
    landmark,
    session,
    slide_by_tuple,
    sliding,
)
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.aggregate import spellings as pk
from penstock.operators.aggregate.config import AnyFunction, Emit, WindowAggregate
from penstock.operators.aggregate.functions import UserDefined
from penstock.operators.aggregate.holistic import (
    CollectList,
    CollectSet,
    CountDistinct,
    HeavyHitters,
    Mode,
    Quantile,
)
from penstock.operators.aggregate.roles import takes_up
from penstock.storage.compaction import compact
from penstock.storage.versioned import state_from_json, state_to_json
from tests.oracle import aggregate as oracle
from tests.streams import EpochPages

COLUMNS = pa.schema(
    {
        "k": pa.int64(),
        "g": pa.string(),
        "t": pa.int64(),
        "x": pa.float64(),
        "i": pa.int32(),
        "s": pa.string(),
        "b": pa.bool_(),
    }
)

DOUBLED = UserDefined(
    column="x",
    partials=(("total", pa.float64()),),
    type=pa.float64(),
    lift_values=lambda x: (x,),
    combine_pairs=lambda a, b: (a[0] + b[0],),
    lower_partials=lambda p: 2 * p[0],
)

BOUNDED: dict[str, AnyFunction] = {
    "rows.x": pk.count(),
    "count.x": pk.count("x"),
    "sum.x": pk.sum("x"),
    "sum.i": pk.sum("i"),
    "min.x": pk.min("x"),
    "max.x": pk.max("x"),
    "min.s": pk.min("s"),
    "max.s": pk.max("s"),
    "mean.x": pk.mean("x"),
    "mean.i": pk.mean("i"),
    "var.x": pk.variance("x"),
    "stddev.x": pk.stddev("x", of="population"),
    "first.x": pk.first("x"),
    "last.s": pk.last("s"),
    "doubled.x": DOUBLED,
    "max.t": pk.max("t"),
    "marked_rows.x": pk.count(where="b"),
    "marked_count.x": pk.count("x", where="b"),
}
HOLISTIC: dict[str, AnyFunction] = {
    "distinct.x": CountDistinct("x"),
    "marked_distinct.x": pk.count_distinct("x", where="b"),
    "marked_distinct.s": pk.count_distinct("s", where="b"),
    "median.x": Quantile("x", 0.5),
    "p90.i": Quantile("i", 0.9),
    "mode.s": Mode("s"),
    "heavy.s": HeavyHitters("s", 0.3),
    "set.x": CollectSet("x"),
    "list.s": CollectList("s"),
}
SUBTRACTABLE = ["rows.x", "count.x", "sum.i", "mean.i", "marked_count.x"]


@dataclass(frozen=True)
class Arrive:
    """Rows arrive; `native`, as partials that the host made of them."""

    rows: list[dict[str, Any]]
    native: bool = False


@dataclass(frozen=True)
class Advance:
    """A bound arrives."""

    bound: int


@dataclass(frozen=True)
class EpochEnd:
    """State is saved, perhaps compacted, and taken up again on `shards` shards, perhaps by another method."""

    shards: int
    compacted: bool = False
    method: str | None = None


Event = Arrive | Advance | EpochEnd


@dataclass(frozen=True)
class Case:
    """One aggregation and what happens to it."""

    window: Window
    names: tuple[str, ...]
    events: list[Event]
    by: tuple[str, ...] = ("k",)
    method: str = "auto"
    emit: Emit = "final"
    memory: int = 1 << 20
    shards: int = 1
    collide: bool = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All the rows, as they arrive."""
        return [row for event in self.events if isinstance(event, Arrive) for row in event.rows]

    @property
    def config(self) -> WindowAggregate:
        """The operator asked for."""
        functions = {**BOUNDED, **HOLISTIC}
        asked = tuple((name, functions[name]) for name in self.names)
        return WindowAggregate(self.window, self.by, asked, self.emit, method=self.method)

    def expected(self) -> Counter[tuple]:
        """By the definition."""
        bounds = [event.bound for event in self.events if isinstance(event, Advance)]
        return expected(self.window, self.rows, self.by, self.names, max(bounds, default=None))


def expected(
    window: Window, rows: list[dict[str, Any]], by: Sequence[str], names: Sequence[str], until: int | None = None
) -> Counter[tuple]:
    """Results by the definition, as (group…, start, end, aggregates…)."""
    out: Counter[tuple] = Counter()
    for (start, end), held in windows_of(window, rows, by, until):
        for group, mine in oracle.by_group(held, by).items():
            asked = [oracle.aggregate(mine, *name.split(".")) for name in names]
            out[(*group, start, end, *asked)] += 1
    return out


def windows_of(
    window: Window, rows: list[dict[str, Any]], by: Sequence[str], until: int | None
) -> list[tuple[tuple, list]]:
    """Every window and its rows; where groups have windows of their own, those of one group each."""
    times = [row["t"] for row in rows] or [0]
    if isinstance(window, Sliding):
        slides = window.on("ticks")
        near = range(*(int((edge - slides.origin) / slides.slide) for edge in (min(times), max(times) + slides.range)))
        return list(oracle.sliding(rows, slides.extent, range(near.start - 3, near.stop + 3)).items())
    if isinstance(window, Landmark):
        return landmark_windows(window.on("ticks"), rows, by, until)
    if isinstance(window, Session):
        groups = oracle.by_group(rows, by).values()
        return [pair for mine in groups for pair in oracle.sessions(mine, window.on("ticks").gap).items()]
    if isinstance(window, SlideByTuple):
        return slide_by_tuple_windows(window, rows, by)
    if isinstance(window, TupleWindow | PartitionedWindow):
        return windows_of_rows(window, rows)
    raise NotImplementedError(window)


def slide_by_tuple_windows(window: SlideByTuple, rows: list[dict[str, Any]], by: Sequence[str]) -> list[tuple]:
    """Each group's windows: at distinct times, at every n-th row by its number, by arrival, or by rank in time."""
    out: list[tuple] = []
    for mine in oracle.by_group(rows, by).values():
        if window.by == "each":
            slides = sorted({row["t"] for row in mine})
        elif window.row_num is not None:
            slides = [
                row["t"] for row in mine if row[window.row_num] is not None and row[window.row_num] % window.every == 0
            ]
        else:
            ordered = sorted(mine, key=lambda row: row["t"]) if window.by == "rank" else mine
            slides = [row["t"] for number, row in enumerate(ordered, start=1) if number % window.every == 0]
        out += oracle.slide_by_tuple(mine, window.range.amount, slides)
    return out


def windows_of_rows(window: TupleWindow | PartitionedWindow, rows: list[dict[str, Any]]) -> list[tuple[tuple, list]]:
    """Rows by their number or their rank in their partition; within a window they keep their time."""
    ordered = rows if window.order is None else sorted(rows, key=lambda row: row["t"])
    partition = window.partition if isinstance(window, PartitionedWindow) else ()
    out: list[tuple[tuple, list]] = []
    for mine in oracle.by_group(ordered, partition).values():
        numbered = [{"t": number, "row": row} for number, row in enumerate(mine)]
        wids = range(-1, len(mine) // window.slide + window.range // window.slide + 2)
        windows = oracle.sliding(numbered, window.on().extent, wids)
        out += [(ends, [held["row"] for held in rows]) for ends, rows in windows.items()]
    return out


def landmark_windows(marks: Landmarks, rows: list[dict[str, Any]], by: Sequence[str], until: int | None) -> list[tuple]:
    """Windows up to the last bound for all groups; after it, for groups with a row in the window's own slide."""
    if not rows:
        return []
    wids = marks.windows(np.array([row["t"] for row in rows])).tolist()
    complete = wids[0] if until is None else max(wids[0], marks.complete(until))
    out = list(oracle.landmark(rows, marks.extent, range(wids[0], complete)).items())
    for wid in range(complete, wids[-1] + 1):
        for mine in oracle.by_group(rows, by).values():
            if wid in marks.wids(np.array([row["t"] for row in mine]))[0]:
                out += oracle.landmark(mine, marks.extent, [wid]).items()
    return out


def batch(rows: Sequence[dict[str, Any]], types: RowType, keys: Sequence[str], collide: bool = False) -> pa.RecordBatch:
    """Rows as an operator gets them; with `collide`, many keys share a hash."""
    whole = pa.Table.from_pylist(list(rows), schema=types.columns)
    columns = [whole.column(key).combine_chunks() for key in keys]
    hashes = hash_keys(columns) if columns else np.zeros(whole.num_rows, np.uint64)
    if collide:
        hashes = hashes & np.uint64(1 << 63)
    return types.enter(whole.append_column(TIME, whole.column("t").cast(pa.int64())), hashes)


@dataclass
class Run:
    """An aggregation at work on some shards, and what came out of it."""

    config: WindowAggregate
    shards: int = 1
    memory: int = 1 << 20
    collide: bool = False
    out: list[pa.RecordBatch] = field(default_factory=list)
    store: EpochPages = field(default_factory=EpochPages)
    meter: Meter | None = None
    columns: pa.Schema = COLUMNS

    def __post_init__(self) -> None:
        self.types = RowType(self.columns, self.config.keys, "t")
        self.budgets: list[Budget] = []
        self.bound = -(2**63)
        self.peaks: list[int] = []
        self.logics: list[Logic] = [self._logic(State()) for _ in range(self.shards)]

    def _logic(self, state: State) -> Logic:
        self.budgets.append(Budget(self.memory))
        return self.config.logic((self.types,), self.store, self.budgets[-1], state, self.meter)

    def take(self, outs) -> None:
        """Collect results, as a host would; none may be below the bounds that were promised."""
        for out in outs:
            assert out.outlet == "results"
            assert out.rows.num_rows
            self.out.append(out.rows)

    def on(self, event: Event) -> None:
        """Let one thing happen."""
        if isinstance(event, Arrive):
            rows = batch(event.rows, self.types, self.config.keys, self.collide)
            ports = self._partials(rows) if event.native and self.config.panes is not None else [(0, rows)]
            for port, part in ports:
                shard = shard_of(part.column(0).to_numpy(), self.shards)
                for number, logic in enumerate(self.logics):
                    self.take(logic.rows(port, part.filter(pa.array(shard == number))))
        elif isinstance(event, Advance):
            self.bound = max(event.bound, self.bound)
            for logic in self.logics:
                self.take(logic.advance(0, event.bound))
        else:
            self.restart(event.shards, event.compacted, event.method)

    def _partials(self, rows: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """What a host's own aggregation by pane gives: one batch for each lane, times are starts of panes."""
        panes = self.config.panes.tumbling
        numbers = panes.wids(rows.column(1).to_numpy())[0]
        lanes = self.config.lanes((self.types,))
        return (
            [(1 + place, lane.lift(rows, self.types, panes.starts(numbers))) for place, lane in enumerate(lanes)]
            if rows.num_rows
            else []
        )

    def restart(self, shards: int, compacted: bool = False, method: str | None = None) -> None:
        """Save, seal the epoch, and go on with another number of shards, or by another method if it can."""
        for logic in self.logics:
            self.take(logic.idle(Quiet(0)))
        states = [self._saved(logic, compacted) for logic in self.logics]
        assert sum(budget.held for budget in self.budgets) == 0, "state() leaves memory charged"
        self.store.seal()
        if shards != self.shards:
            states = [self._clipped(states, number, shards) for number in range(shards)]
        self.shards = shards
        if method is not None and (takes_up(method, self.config.method) or not any(state.pages for state in states)):
            self.config = replace(self.config, method=method)
        self.logics = [self._logic(state) for state in states]
        for logic in self.logics:
            self.take(logic.advance(0, self.bound))

    def _saved(self, logic: Logic, compacted: bool) -> State:
        state = logic.state()
        if compacted:
            state = State(compact(state.pages, self.store, Budget(self.memory)), state.meta)
        return state_from_json(json.loads(json.dumps(state_to_json(state))))

    def _clipped(self, states: Sequence[State], number: int, shards: int) -> State:
        pages = [clip_page(self.store, page, *hash_range(number, shards)) for state in states for page in state.pages]
        return State(tuple(page for page in pages if page is not None))

    def end(self) -> None:
        """End the stream as hosts do."""
        for logic in self.logics:
            self.take(logic.advance(0, TIME_MAX))
            self.take(logic.idle(Quiet(rows=0)))

    @property
    def results(self) -> Counter[tuple]:
        """Rows of results, with floats rounded."""
        return plain_rows(self.out)

    @property
    def held(self) -> int:
        """Partials in state."""
        return sum(page.rows for logic in self.logics for page in logic.state().pages)


def plain_rows(batches: Sequence[pa.RecordBatch]) -> Counter[tuple]:
    """Rows as tuples that can be compared."""
    return Counter(tuple(oracle.plain(v) for v in row.values()) for out in batches for row in out.to_pylist())


def run(case: Case, meter: Meter | None = None) -> Run:
    """Run a case to its end."""
    aggregation = Run(case.config, case.shards, case.memory, case.collide, meter=meter)
    for event in case.events:
        aggregation.on(event)
    aggregation.end()
    return aggregation


def row(
    t: int,
    k: Any = 1,
    x: float | None = 1.0,
    i: int | None = 1,
    s: str | None = "a",
    g: Any = "g",
    b: bool | None = True,
) -> dict[str, Any]:
    """One row."""
    return {"k": k, "g": g, "t": t, "x": x, "i": i, "s": s, "b": b}


slidings = st.builds(sliding, range=st.integers(1, 12), slide=st.integers(1, 8), origin=st.integers(-5, 5))
landmarks = st.builds(landmark, slide=st.integers(1, 8), origin=st.integers(-5, 5))
sessions = st.builds(session, gap=st.integers(1, 8))
row_windows = st.builds(TupleWindow, range=st.integers(1, 9), slide=st.integers(1, 6))
partitioned = st.builds(
    PartitionedWindow, range=st.integers(1, 6), slide=st.integers(1, 4), partition=st.sampled_from([("k",), ("g", "k")])
)
tuple_slides = st.one_of(
    st.builds(slide_by_tuple, range=st.integers(1, 12)),
    st.builds(
        slide_by_tuple, range=st.integers(1, 12), every=st.integers(1, 4), by=st.sampled_from(["row-num", "rank"])
    ),
    st.builds(slide_by_tuple, range=st.integers(1, 12), every=st.integers(1, 4), row_num=st.just("i")),
)
keys = st.one_of(st.sampled_from([1, 1, 2, None]), st.integers(0, 30))
numbers = st.sampled_from([None, 0.0, -0.0, 1.0, 1.0, 2.5, -3.25, 7.0, float("nan")])
rows_at = st.builds(
    row,
    t=st.integers(-10, 12),
    k=keys,
    x=numbers,
    i=st.sampled_from([None, 0, 1, 2, 2, -5]),
    s=st.sampled_from([None, "", "a", "a", "b", "ä"]),
    g=st.sampled_from(["p", "q", None]),
    b=st.sampled_from([True, False, None]),
)


@st.composite
def events(draw: st.DrawFn, native: bool = True) -> list[Event]:
    """Rows in disorder, bounds that skip, epochs on other numbers of shards."""
    drift = draw(st.sampled_from([0, 2, 5, 30]))
    bound = -100
    out: list[Event] = []
    for step in range(draw(st.integers(1, 9))):
        kind = draw(st.integers(0, 9))
        if kind < 6:
            rows = draw(st.lists(rows_at, max_size=10))
            moved = [{**r, "t": max(bound, r["t"] + step * drift)} for r in rows]
            out.append(Arrive(moved, native and draw(st.booleans())))
        elif kind < 9:
            bound = max(bound, draw(st.integers(-15, 12)) + step * drift)
            out.append(Advance(bound))
        else:
            out.append(EpochEnd(draw(st.integers(1, 3)), draw(st.booleans())))
    return out


@st.composite
def cases(
    draw: st.DrawFn,
    window: st.SearchStrategy[Window] = slidings,
    methods: Sequence[str] = ("wid",),
    names: Sequence[str] = tuple(BOUNDED),
    native: bool = True,
) -> Case:
    """An aggregation with anything a stream can do to it."""
    return Case(
        window=draw(window),
        names=tuple(draw(st.lists(st.sampled_from(list(names)), min_size=1, max_size=4, unique=True))),
        events=draw(events(native)),
        by=draw(st.sampled_from([("k",), ("k",), (), ("g", "k"), ("x",)])),
        method=draw(st.sampled_from(list(methods))),
        memory=draw(st.sampled_from([20_000, 60_000, 1 << 20])),
        shards=draw(st.integers(1, 3)),
        collide=draw(st.sampled_from([False, False, True])),
    )
