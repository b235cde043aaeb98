"""HYBRIDJOIN and INLJ: slots are conserved, keys the table has not leave at once, and a read yields what it should."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.errors import BudgetError
from penstock.operators.lookup import Front, HybridJoin, Inlj, MeshJoin, Stages
from penstock.operators.lookup.hybridjoin import OldestFirstJoin
from penstock.storage.tables.arrow import OpenArrowTable
from tests.operators.lookup.cases import Shard, numbered, skewed

UNIFORM = np.random.default_rng(1)


def watched(monkeypatch) -> list[tuple[int, int]]:
    """(free, waiting) before every step and after it; the queue and the map are one, and hold each row once."""
    seen: list[tuple[int, int]] = []
    some = pa.record_batch({"n": [0]})

    def look(back):
        waiting = back.waiting
        assert len(waiting) == waiting.hash.size == waiting.partition.size == np.unique(waiting._column("seq")).size
        assert sum(np.unique(waiting.hash, return_counts=True)[1]) == len(waiting)
        seen.append((back.free(some), len(waiting)))

    def step(self, position=1.0, real=OldestFirstJoin.step):
        look(self)
        yield from real(self, position)
        look(self)

    monkeypatch.setattr(OldestFirstJoin, "step", step)
    return seen


@pytest.mark.parametrize("front", [None, Front(slots=20, threshold=1)], ids=["hybridjoin", "chybridjoin"])
def test_f04_f09_slots_are_conserved_at_every_step(monkeypatch, front):
    """F04, F09: free + |Q| = h_S; |Q| = Σ |H_S|."""
    seen = watched(monkeypatch)
    join = Shard(numbered(500, 25), Stages(HybridJoin(slots=50), front), "left")
    for some in np.split(skewed(1000, 700), 10):
        join.rows(some.tolist())
    assert join.end().results == join.expected
    assert len(seen) > 50
    assert {free + waiting for free, waiting in seen} == {50}
    assert seen[-1] == (50, 0)


def forgets_unused_slots(patch):
    """Fix A dropped: only as many rows may come in as the last read finished, though slots were left unused."""
    real_step, real_put = OldestFirstJoin.step, OldestFirstJoin.put

    def step(self, position=1.0):
        before = len(self.waiting)
        yield from real_step(self, position)
        self.freed = before - len(self.waiting)

    def put(self, rows, hashes, attempts=0):
        real_put(self, rows, hashes, attempts)
        self.freed = 0

    patch.setattr(OldestFirstJoin, "step", step)
    patch.setattr(OldestFirstJoin, "put", put)
    patch.setattr(OldestFirstJoin, "free", lambda self, rows: getattr(self, "freed", 50))


def test_slots_that_are_forgotten_when_the_stream_runs_dry_are_found(monkeypatch):
    """Fix A (§2.7): after one row there are 49 slots left; the next 20 rows need no read."""

    def reads() -> int:
        return Shard(numbered(500, 25), Stages(HybridJoin(slots=50))).rows([1]).rows(range(20)).logic.desk.stats.reads

    assert reads() == 0
    forgets_unused_slots(monkeypatch)
    assert reads() > 0


DANGLING = np.where(UNIFORM.random(2000) < 0.3, 10**6, UNIFORM.integers(0, 500, 2000))
"""Keys of a table of 500; 30 % are not in it."""


@pytest.mark.parametrize("how", ["inner", "left"])
def test_f05_keys_that_the_table_has_not_end_and_give_their_slots_back(monkeypatch, how):
    """F05."""
    seen = watched(monkeypatch)
    join = Shard(numbered(500, 25), Stages(HybridJoin(slots=50)), how)
    join.rows(DANGLING.tolist())
    assert join.end().results == join.expected
    assert seen[-1] == (50, 0)
    assert join.logic.desk.stats.finished == 2000
    alone = [row for row in join.results if row[3] is None]
    assert len(alone) == ((DANGLING == 10**6).sum() if how == "left" else 0)


def test_keys_that_the_table_has_not_are_not_read_for():
    """Fix B: they would choose a partition that there is not, or keep their slots."""
    join = Shard(numbered(500, 25), Stages(HybridJoin(slots=50)), "left")
    assert join.rows([10**6] * 200).end().finished == 200
    assert join.logic.desk.stats.reads == 0


def test_keys_without_an_index_entry_that_keep_their_slots_are_found(monkeypatch):
    """Fix B dropped: the oldest row chooses partition -1, and whatever that reads has no row for it."""
    monkeypatch.setattr(OldestFirstJoin, "_leave", lambda self, which: iter(()))
    join = Shard(numbered(500, 25), Stages(HybridJoin(slots=50)), "left")
    assert join.rows([10**6] * 200).end().logic.desk.stats.reads > 0


@pytest.mark.slow
@pytest.mark.parametrize(("back", "times"), [(HybridJoin(slots=2000), 2), (MeshJoin(slots=2000), 1)])
def test_f04_a_read_finishes_as_many_rows_as_it_should_for_uniform_keys(back, times):
    """F04: 2 · h_S · b / |R| for HYBRIDJOIN, half of that for MESHJOIN; b = 200, |R| = 20,000, after a warm-up."""
    table = numbered(20_000, 200)
    join = Shard(table, Stages(back))
    join.rows(UNIFORM.integers(0, 20_000, 8000))
    stats = join.logic.desk.stats
    finished, reads = stats.finished, stats.reads
    join.rows(UNIFORM.integers(0, 20_000, 8000))
    rows_per_read = (stats.finished - finished) / (stats.reads - reads)
    assert rows_per_read == pytest.approx(times * 2000 * 200 / 20_000, rel=0.1)


# INLJ


def test_f06_000_29_inlj_looks_up_every_row_one_by_one():
    """F06, 000-29: reads = rows."""
    keys = skewed(200, 50).tolist()
    join = Shard(numbered(40, 5), Stages(Inlj(batch=1)), "left").rows(keys)
    assert join.results == join.expected, "no row waits"
    assert join.logic.desk.stats.looked_up == join.logic.desk.stats.reads == 200


def test_inlj_asks_for_fewer_keys_where_the_answer_would_not_fit():
    join = Shard(numbered(100, 5, copies=3), Stages(Inlj(batch=80)), "left")
    get, asked = join.logic.desk.table.get, []

    class Refusing(OpenArrowTable):
        def get(self, hashes, keys):
            asked.append(hashes.size)
            if hashes.size > 20:
                raise BudgetError("too many")
            return get(hashes, keys)

    join.logic.desk.table.__class__ = Refusing
    join.rows([*range(64), 7, 7, 300]).end()
    assert join.results == join.expected
    assert max(asked) > 20 > max(size for size in asked if size <= 20)
    assert sum(size for size in asked if size <= 20) == 65, "each key is looked up once"


def test_f06_inlj_looks_up_the_distinct_keys_of_a_batch():
    """F06."""
    keys = skewed(200, 50).tolist()
    join = Shard(numbered(40, 5), Stages(Inlj(batch=40)), "left").rows(keys)
    assert join.results == join.expected
    assert join.logic.desk.stats.reads == 5
    assert join.logic.desk.stats.looked_up == sum(len(set(keys[at : at + 40])) for at in range(0, 200, 40))
