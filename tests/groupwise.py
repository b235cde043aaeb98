"""A source that speaks of its groups, the guard behind it and windows over it: run on shards as a host would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.operator import Logic, Out, Quiet, State
from penstock.core.pages import clip_page
from penstock.core.rows import TIME, RowType
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Session, Window
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.progress import Guard
from penstock.storage.versioned import state_from_json, state_to_json
from tests import aggregates
from tests.aggregates import BOUNDED, COLUMNS, HOLISTIC
from tests.oracle.aggregate import plain
from tests.streams import EpochPages

Row = dict[str, Any]


@dataclass(frozen=True)
class Epoch:
    """Rows, what is said of groups (`k`, `g`, bound), the bound of all rows, and how many shards come next."""

    rows: tuple[Row, ...]
    said: tuple[tuple[Any, Any, int], ...] = ()
    bound: int = TIME_MIN
    shards: int = 1


@dataclass(frozen=True)
class Case:
    """Windows by some columns, whose groups of `punctuated` have bounds of their own."""

    window: Window
    names: tuple[str, ...]
    epochs: tuple[Epoch, ...]
    by: tuple[str, ...] = ("k",)
    punctuated: tuple[str, ...] = ("k",)
    memory: int = 1 << 20
    collide: bool = False

    @property
    def config(self) -> WindowAggregate:
        functions = {**BOUNDED, **HOLISTIC}
        return WindowAggregate(
            window=self.window,
            by=self.by,
            aggregates=tuple((name, functions[name]) for name in self.names),
            method="auto" if isinstance(self.window, Session) else "wid",
            punctuated=self.punctuated,
        )


def definition(case: Case) -> tuple[list[Counter], list[Row]]:
    """The results of each epoch, the last being the end, and the rows that are late."""
    bound, groups = TIME_MIN, {}
    kept: list[Row] = []
    late: list[Row] = []
    out: list[Counter] = []
    done: Counter = Counter()

    def group(row: Row) -> tuple:
        return tuple(plain(row[name]) for name in case.punctuated)

    for epoch in [*case.epochs, Epoch((), (), TIME_MAX)]:
        for row in epoch.rows:
            of = max(bound, groups.get(group(row), TIME_MIN))
            (late if row["t"] < of else kept).append(row)
        for k, g, stop in epoch.said:
            said = group({"k": k, "g": g})
            groups[said] = max(groups.get(said, TIME_MIN), stop)
        bound = max(bound, epoch.bound)
        ready: Counter = Counter()
        places = [case.by.index(name) for name in case.punctuated]
        for result, count in aggregates.expected(case.window, kept, case.by, case.names).items():
            end = result[len(case.by) + 1]
            of = max(bound, groups.get(tuple(result[place] for place in places), TIME_MIN))
            if of == TIME_MAX or (end < of if isinstance(case.window, Session) else end <= of):
                ready[result] += count
        out.append(ready - done)
        done |= ready
    return out, late


class Host:
    """Guard and windows, each on some shards, whose state is saved after every epoch."""

    def __init__(self, case: Case, shards: int = 1) -> None:
        self.case = case
        columns = pa.schema([COLUMNS.field(name) for name in case.punctuated])
        said = RowType(columns, case.punctuated)
        self.types = (RowType(COLUMNS, case.punctuated, "t"), said)
        self.configs = [Guard(), case.config]
        self.stores = [EpochPages(), EpochPages()]
        self.states = [[State()] * shards for _ in self.configs]
        self.shards = shards
        self.bound = TIME_MIN
        self.late: list[Row] = []
        self.peak = 0

    def epoch(self, epoch: Epoch) -> Counter:
        """Rows and statements in, all bounds then; the results of the epoch come back."""
        rows = aggregates.batch(epoch.rows, self.types[0], self.case.punctuated, self.case.collide)
        passed: list[Out] = self._run(0, rows, epoch)
        self.late += [row for out in passed if out.outlet == "late" for row in out.rows.to_pylist()]
        kept = [row for out in passed if out.outlet == "results" for row in out.rows.to_pylist()]
        rows = aggregates.batch(kept, self.types[0], self.case.punctuated, self.case.collide)
        results = self._run(1, rows, epoch)
        self.bound = max(self.bound, epoch.bound)
        self.shards = epoch.shards
        return aggregates.plain_rows([out.rows for out in results])

    def held(self, operator: int) -> int:
        """Rows in the state of the guard (0) or the windows (1)."""
        return sum(page.rows for state in self.states[operator] for page in state.pages)

    def _run(self, place: int, rows: pa.RecordBatch, epoch: Epoch) -> list[Out]:
        logics: list[Logic] = []
        budgets = [Budget(self.case.memory) for _ in self.states[place]]
        for budget, state in zip(budgets, self.states[place], strict=True):
            logics.append(self.configs[place].logic(self.types, self.stores[place], budget, state))
        outs: list[Out] = []
        statements = self._statements(epoch)
        # Statements may come before the rows, or after: both are of one epoch.
        arrivals = [(1, statements), (0, rows)] if len(epoch.rows) % 2 else [(0, rows), (1, statements)]
        for logic in logics:
            outs += [out for port in (0, 1) for out in logic.advance(port, self.bound)]
        for port, arriving in arrivals:
            shard = shard_of(arriving.column(0).to_numpy(), len(logics))
            for number, logic in enumerate(logics):
                outs += logic.rows(port, arriving.filter(pa.array(shard == number)))
        for logic in logics:
            outs += [out for port in (0, 1) for out in logic.advance(port, max(self.bound, epoch.bound))]
            outs += logic.idle(Quiet(len(epoch.rows)))
        self._save(place, logics, budgets, epoch.shards)
        return outs

    def _save(self, place: int, logics: Sequence[Logic], budgets: Sequence[Budget], shards: int) -> None:
        saved = [json.loads(json.dumps(state_to_json(logic.state()))) for logic in logics]
        self.peak = max(self.peak, *(budget.peak for budget in budgets))
        assert not sum(budget.held for budget in budgets), "state() leaves memory charged"
        self.stores[place].seal()
        states = list(map(state_from_json, saved))
        if shards != len(states):
            pages = [page for state in states for page in state.pages]
            states = [
                State(tuple(filter(None, (clip_page(self.stores[place], p, *hash_range(n, shards)) for p in pages))))
                for n in range(shards)
            ]
        self.states[place] = states

    def _statements(self, epoch: Epoch) -> pa.RecordBatch:
        columns = self.types[1].columns
        said = pa.Table.from_pylist([{"k": k, "g": g} for k, g, _ in epoch.said], schema=columns)
        hashes = hash_keys([said.column(name).combine_chunks() for name in columns.names])
        hashes = hashes & np.uint64(1 << 63) if self.case.collide else hashes
        return self.types[1].enter(said.append_column(TIME, pa.array([t for *_, t in epoch.said], pa.int64())), hashes)


def run(case: Case, shards: int = 1) -> tuple[list[Counter], Host]:
    """The results of each epoch, the last being the end, and the host."""
    host = Host(case, shards)
    return [host.epoch(epoch) for epoch in [*case.epochs, Epoch((), (), TIME_MAX)]], host


@st.composite
def cases(draw: st.DrawFn, window: st.SearchStrategy[Window]) -> Case:
    """Rows in disorder, some of them late; statements that skip and repeat; other shards after each epoch."""
    by, punctuated = draw(st.sampled_from([(("k",), ("k",)), (("g", "k"), ("k",)), (("k", "g"), ("g", "k"))]))
    drift = draw(st.sampled_from([0, 3, 8]))
    linear = draw(st.booleans())
    keys = st.sampled_from([1, 2, 3, None])
    epochs = []
    for step in range(draw(st.integers(1, 5))):
        rows = draw(st.lists(aggregates.rows_at, max_size=8))
        moved = tuple({**row, "k": draw(keys), "t": row["t"] + step * drift} for row in rows)
        said = st.tuples(
            keys, st.sampled_from(["p", "q", None]), st.integers(-12, 20).map(lambda t, s=step: t + s * drift)
        )
        bound = draw(st.integers(-15, 6)) + step * drift if linear else TIME_MIN
        epochs.append(Epoch(moved, tuple(draw(st.lists(said, max_size=4))), bound, draw(st.integers(1, 3))))
    names = draw(st.lists(st.sampled_from([*BOUNDED, *HOLISTIC]), min_size=1, max_size=3, unique=True))
    memory = draw(st.sampled_from([40_000, 1 << 20]))
    return Case(draw(window), tuple(names), tuple(epochs), by, punctuated, memory, draw(st.booleans()))
