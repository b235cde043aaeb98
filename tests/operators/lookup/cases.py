"""Streams, tables and memory made by hypothesis, and a lookup join run over them as a host would."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.durations import Duration
from penstock.core.operator import Quiet, State
from penstock.core.pages import clip_page
from penstock.core.rows import HashedBy, RowType
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.lookup import (
    Broadcast,
    Front,
    HybridJoin,
    Inlj,
    LookupJoin,
    MeshJoin,
    PartitionBased,
    Partitioned,
    Shedding,
    Ssij,
    Stages,
)
from penstock.storage.memory import MemoryPages
from penstock.storage.tables import ArrowTable
from tests.oracle import lookup as oracle

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64(), "t": pa.int64()})
TABLE = pa.schema({"k": pa.int64(), "v": pa.string()})


@dataclass(frozen=True)
class Case:
    """A lookup join and what comes: epochs of rows (k, n), each run on so many shards."""

    config: LookupJoin
    epochs: tuple[tuple[tuple[int | None, int], ...], ...]
    shards: tuple[int, ...]
    memory: int
    hashed_by: HashedBy = "hash_keys"

    @property
    def stream(self) -> list[dict[str, int | None]]:
        rows = [row for epoch in self.epochs for row in epoch]
        return [{"k": k, "n": n, "t": t} for t, (k, n) in enumerate(rows)]

    def expected(self) -> Counter[tuple]:
        table = self.config.table.rows.to_pylist()
        return oracle.lookup(self.stream, table, ["k"], ["v"], self.config.how)


class Run:
    """A host in small: shards, budgets, epochs, state saved and taken up again, also by other numbers of shards."""

    def __init__(self, config: LookupJoin, memory: int, store=None, hashed_by: HashedBy = "hash_keys") -> None:
        self.config = config
        self.memory = memory
        self.types = RowType(STREAM, ("k",), "t", hashed_by)
        self.results: Counter[tuple] = Counter()
        self.states = [State()]
        self.store = store or MemoryPages(Budget(10**9))
        self.peak = 0
        self.bound = self.promised = TIME_MIN
        self.time = 0
        self.logics: list = []

    def copy(self) -> Run:
        """Another that goes on from the same state: an attempt that comes to nothing."""
        other = Run(self.config, self.memory, self.store, self.types.hashed_by)
        other.states, other.bound, other.promised, other.time = self.states, self.bound, self.promised, self.time
        return other

    def epoch(self, rows, shards: int, *, end: bool = False, idle: bool = True) -> None:
        table = pa.table(
            {
                "__time": pa.array(range(self.time, self.time + len(rows)), pa.int64()),
                "k": pa.array([k for k, _ in rows], pa.int64()),
                "n": pa.array([n for _, n in rows], pa.int64()),
            }
        )
        self.time += len(rows)
        keys = table.column("k").combine_chunks()
        hashes = hash_keys([keys] if self.types.hashed_by == "hash_keys" else [keys, keys])
        entered = self.types.enter(table, hashes)
        places = shard_of(hashes, shards)
        states = self._on(shards)
        self.logics = []
        after, promised = [], []
        for shard in range(shards):
            budget = Budget(self.memory)
            logic = self.config.logic((self.types,), OwnPages(self.store), budget, states[shard])
            self._take(logic.advance(0, self.bound))
            arrivals = entered.take(pa.array(np.flatnonzero(places == shard)))
            with budget.hold(arrivals.nbytes, "rows in flight"):
                self._take(logic.rows(0, arrivals))
            self._take(logic.advance(0, TIME_MAX if end else self.time))
            if idle:
                self._take(logic.idle(Quiet(len(rows))))
            promised.append(self.config.bound(logic.bounds()))
            after.append(logic.state())
            self.peak = max(self.peak, budget.peak)
            self.logics.append(logic)
        self.states = after
        self.promised = min(promised)
        self.bound = self.time

    def _take(self, outs) -> None:
        for out in outs:
            assert out.outlet == "results"
            for row in out.rows.to_pylist():
                self.results[tuple(row.values())] += 1
                assert row["t"] >= self.promised, "a row came out below the bound of its epoch"

    def _on(self, shards: int) -> list[State]:
        if shards == len(self.states):
            return self.states
        pages = [page for state in self.states for page in state.pages]
        ranges = [hash_range(shard, shards) for shard in range(shards)]
        clipped = [[clip_page(self.store, page, *ends) for page in pages] for ends in ranges]
        return [State(tuple(page for page in some if page is not None)) for some in clipped]


class OwnPages:
    """A store for one shard and epoch: it deletes only what it wrote, as stores with versions do."""

    def __init__(self, store) -> None:
        self._store = store
        self._written: set[str] = set()
        self.get = store.get

    def put(self, rows, segment: str = "main") -> str:
        name = self._store.put(rows, segment)
        self._written.add(name)
        return name

    def drop(self, name: str) -> None:
        if name in self._written:
            self._written.remove(name)
            self._store.drop(name)


class Shard:
    """One shard of a lookup join, fed by hand. Rows are numbered as they come."""

    def __init__(self, table, method, how="inner", memory=10**9, **more) -> None:
        self.config = LookupJoin(table, (("k", "k"),), how, method, **more)
        self.budget = Budget(memory)
        self.store = MemoryPages(Budget(10**9))
        self.types = RowType(STREAM, ("k",), "t", "hash_keys")
        self.logic = self.config.logic((self.types,), self.store, self.budget, State())
        self.keys: list[int | None] = []
        self.out: list[pa.RecordBatch] = []

    def rows(self, keys) -> Shard:
        """Rows of these keys come, all at once."""
        keys = list(keys)
        count = len(self.keys)
        numbers = pa.array(range(count, count + len(keys)), pa.int64())
        self.keys += keys
        table = pa.table({"__time": numbers, "k": pa.array(keys, pa.int64()), "n": numbers})
        self._take(self.logic.rows(0, self.types.enter(table, hash_keys([table.column("k").combine_chunks()]))))
        return self

    def end(self) -> Shard:
        """The stream is over, as hosts say it."""
        self._take(self.logic.advance(0, TIME_MAX))
        self._take(self.logic.idle(Quiet(rows=0)))
        return self

    def again(self, table=None) -> Shard:
        """Another epoch begins, perhaps on another version of the table."""
        self.config = replace(self.config, table=table or self.config.table)
        state = self.logic.state()
        self.budget = Budget(self.budget.limit)
        self.logic = self.config.logic((self.types,), self.store, self.budget, state)
        return self

    @property
    def finished(self) -> int:
        """Rows that have left: found, or not found and kept by a left join."""
        return sum(batch.num_rows for batch in self.out)

    @property
    def results(self) -> Counter[tuple]:
        return Counter(tuple(row.values()) for batch in self.out for row in batch.to_pylist())

    @property
    def expected(self) -> Counter[tuple]:
        stream = [{"k": k, "n": n, "t": n} for n, k in enumerate(self.keys)]
        return oracle.lookup(stream, self.config.table.rows.to_pylist(), ["k"], ["v"], self.config.how)

    def _take(self, outs) -> None:
        self.out += [out.rows for out in outs]


def numbered(count: int, partition_rows: int = 1 << 14, copies: int = 1) -> ArrowTable:
    """A table with `copies` rows of each key below `count`; by hash, so keys are anywhere in it."""
    keys = np.repeat(np.arange(count), copies)
    rows = pa.table({"k": keys, "v": [f"v{n}" for n in range(keys.size)]}, TABLE)
    return ArrowTable(rows, ("k",), partition_rows)


def skewed(size: int, keys: int, exponent: float = 1.0, seed: int = 1) -> np.ndarray:
    """Keys below `keys`, Zipf-like: key n is as frequent as 1 / (n + 1) ** exponent."""
    weight = 1 / np.arange(1, keys + 1) ** exponent
    return np.random.default_rng(seed).choice(keys, size, p=weight / weight.sum())


def run(case: Case, store=None) -> Run:
    """All the epochs of a case, and one more that ends the stream."""
    at_work = Run(case.config, case.memory, store, case.hashed_by)
    for rows, shards in zip(case.epochs, case.shards, strict=True):
        at_work.epoch(rows, shards)
    at_work.epoch((), case.shards[-1] if case.shards else 1, end=True)
    return at_work


def fronts() -> st.SearchStrategy[Front | None]:
    some = st.builds(
        Front,
        share=st.sampled_from([0.05, 0.15, 0.5]),
        policy=st.sampled_from(["strict", "paper", "decay"]),
        slots=st.sampled_from([None, 1, 2, 5]),
        threshold=st.integers(1, 4),
        adaptive=st.booleans(),
        every=st.integers(1, 3),
        halve=st.sampled_from([None, 1, 7]),
        span=st.sampled_from([None, 1, 10]),
    )
    return st.none() | some


def backs(*kinds: type) -> st.SearchStrategy:
    """Back ends, of these kinds or of any."""
    slots = st.sampled_from([None, 1, 2, 7, 30])
    pages = st.sampled_from([None, 0, 1, 3])
    known = {
        Broadcast: st.builds(Broadcast, batch=st.sampled_from([None, 1, 3])),
        Inlj: st.builds(Inlj, batch=st.sampled_from([None, 1, 3])),
        HybridJoin: st.builds(HybridJoin, slots=slots),
        MeshJoin: st.builds(MeshJoin, slots=slots, loads_per_logical=st.sampled_from([1, 1, 2, 3])),
        Partitioned: partitioned(),
        Ssij: st.builds(Ssij, input_thr=slots, stream_thr=slots, cache_blocks=pages),
        PartitionBased: st.builds(
            PartitionBased,
            area=st.sampled_from([1, 3, 20, 1000]),
            max_wait=st.sampled_from([None, 0, 1, 7]),
            cache_pages=pages,
        ),
    }
    return st.one_of([known[kind] for kind in kinds or known])


def partitioned() -> st.SearchStrategy[Partitioned]:
    return st.builds(
        Partitioned,
        wait=st.sampled_from([None, 1, 4, 30]),
        block=st.sampled_from([None, 1, 2, 5]),
        refill=st.sampled_from([0, 0.4, 0.9]),
        invoke=st.sampled_from([1, 3, 3000]),
        when=st.sampled_from(["idle", "always"]),
        high=st.sampled_from([1, 3]),
        low=st.just(1),
        cache=st.sampled_from([None, 0, 60, 200]),
        rho=st.sampled_from([0, 0.25]),
        alpha=st.sampled_from([0, 0.3, 1]),
        every=st.sampled_from([1, 5, 10_000]),
        batch=st.sampled_from([None, 1, 3]),
    )


def sheddings(policies=("none", "keep", "considering")) -> st.SearchStrategy[Shedding]:
    return st.builds(
        Shedding,
        policy=st.sampled_from(policies),
        position=st.sampled_from([0.0, 0.15, 1.0, "tune"]),
        judge=st.sampled_from(["all", "alg2"]),
        trial=st.integers(1, 3),
    )


@st.composite
def cases(draw, methods=None, quotas=(None, None, 0, 1, 2, 5), policies=("none", "keep", "considering")) -> Case:
    keys = draw(st.sampled_from([1, 3, 12]))
    key = st.integers(0, keys) | st.just(0)
    table_keys = draw(st.lists(st.integers(0, keys), max_size=20))
    if draw(st.booleans()):
        table_keys = sorted(set(table_keys))
    rows = pa.table({"k": pa.array(table_keys, pa.int64()), "v": [f"v{n}" for n in range(len(table_keys))]}, TABLE)
    table = ArrowTable(rows, ("k",), partition_rows=draw(st.sampled_from([1, 2, 5, 100])))
    method = draw(st.builds(Stages, back=backs(), front=fronts()) if methods is None else methods)
    config = LookupJoin(table, (("k", "k"),), draw(st.sampled_from(["inner", "left"])), method)
    row = st.tuples(st.none() | key | key, st.integers(0, 3))
    epochs = draw(st.lists(st.lists(row, max_size=30).map(tuple), max_size=5))
    shards = draw(st.lists(st.integers(1, 3), min_size=len(epochs), max_size=len(epochs)))
    age = draw(st.sampled_from([None, None, *map(Duration.of, (0, 3, 20))]))
    config = replace(config, max_age=age, quota=draw(st.sampled_from(quotas)), shed=draw(sheddings(policies)))
    hashed_by = draw(st.sampled_from(get_args(HashedBy)))
    return Case(config, tuple(epochs), tuple(shards), draw(st.sampled_from([20_000, 10**6])), hashed_by)
