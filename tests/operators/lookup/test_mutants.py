"""Each subtle rule of lookup joins broken on purpose: the smallest stream that shows it must show it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.lookup import Front, HybridJoin, Inlj, MeshJoin, PartitionBased, Partitioned, Ssij, Stages
from penstock.operators.lookup import answers as answers_module
from penstock.operators.lookup import logic as logic_module
from penstock.operators.lookup.areas import Areas
from penstock.operators.lookup.front import PRESENT, FrontStage
from penstock.operators.lookup.meshjoin import CyclicJoin
from penstock.operators.lookup.waiting import _NUMBERS, Waiting
from penstock.storage.tables import arrow
from tests.operators.lookup import cases as cases_module
from tests.operators.lookup.cases import Case, Shard, cases, numbered, run
from tests.streams import examples

CINLJ = Stages(Inlj(batch=1), Front(slots=5, threshold=1, adaptive=False))


def null_keys_match(patch):
    patch.setattr(logic_module, "null_keys", lambda keys: np.zeros(len(keys[0]), np.bool_))


def marks_forgotten(patch):
    """A left join calls rows alone that have matched."""
    patch.setattr(Waiting, "mark", lambda self, places: None)


def expired_too_early(patch):
    """Rows leave one read before the cursor is where they started."""
    real = CyclicJoin._expire

    def expire(self, done):
        early = (self.waiting.start == (self.cursor + 1) % self._desk.table.partitions) & (
            self.waiting.partition == self.cursor
        )
        yield from real(self, done | early)

    patch.setattr(CyclicJoin, "_expire", expire)


def rows_go_round_twice(patch):
    """Rows that have met the whole table meet it once more."""
    real = CyclicJoin._expire

    def expire(self, done):
        again = done & (self.waiting.attempts == 0)
        self.waiting.attempts[again] = 1
        yield from real(self, done & ~again)

    patch.setattr(CyclicJoin, "_expire", expire)


def cursor_forgotten(patch):
    """The next epoch begins at the first partition; rows would wait for the cursor all the same."""
    patch.setattr(CyclicJoin, "meta", lambda self: {})
    real = Waiting.restore

    def restore(self, store, pages):
        real(self, store, pages)
        self.partition[:] = 0

    patch.setattr(Waiting, "restore", restore)


def absent_keys_answered_as_present(patch):
    real = FrontStage._admit

    def admit(self, rows, first, offered, order):
        place = rows.schema.names.index(PRESENT)
        there = rows.column(PRESENT).is_valid()
        real(self, rows.set_column(place, self.schema.field(PRESENT), there), first, offered, order)

    patch.setattr(FrontStage, "_admit", admit)


def hits_go_on_to_the_back_end(patch):
    real = FrontStage.probe

    def probe(self, rows):
        hit = yield from real(self, rows)
        return np.zeros_like(hit)

    patch.setattr(FrontStage, "probe", probe)


def first_row_of_a_group_cached(patch):
    real = FrontStage.offer
    patch.setattr(FrontStage, "offer", lambda self, rows, hashes, counts: real(self, rows[:1], hashes[:1], counts[:1]))


def unknown_keys_wait(patch):
    """Rows whose key the table has not are left where they are."""
    patch.setattr(Areas, "leave", lambda self: iter(()))


def answered_rows_stay(patch):
    """The last of the rows that leave waits on."""
    real = Waiting.take

    def take(self, which):
        rows, numbers = self.rows(which), {name: self._column(name)[which] for name in _NUMBERS}
        if which.sum() == 1:
            return real(self, which)
        keep = which.copy()
        keep[np.flatnonzero(which)[-1]] = False
        real(self, keep)
        return rows, numbers

    patch.setattr(Waiting, "take", take)


def joined(stages, *batches, how="left", copies=1):
    """A join to run: batches of keys, an epoch each."""

    def go() -> bool:
        join = Shard(numbered(12, 2, copies), stages, how)
        for keys in batches:
            join.rows(keys).again()
        return join.end().results == join.expected

    return go


MUTANTS = {
    "marks forgotten": (marks_forgotten, joined(Stages(MeshJoin(slots=6)), [1])),
    "rows expire a read too early": (expired_too_early, joined(Stages(MeshJoin(slots=6)), range(12))),
    "rows go round twice": (rows_go_round_twice, joined(Stages(MeshJoin(slots=6)), range(12))),
    "the cursor is forgotten": (cursor_forgotten, joined(Stages(MeshJoin(slots=6)), range(12), range(12))),
    "absent keys are answered as present": (absent_keys_answered_as_present, joined(CINLJ, [99, 99], how="inner")),
    "hits go on to the back end": (hits_go_on_to_the_back_end, joined(CINLJ, [1, 1])),
    "only a part of a group is cached": (first_row_of_a_group_cached, joined(CINLJ, [1, 1], copies=3)),
    "rows leave twice": (answered_rows_stay, joined(Stages(HybridJoin(slots=6)), [1, 1])),
}


@pytest.mark.parametrize(("mutate", "right"), MUTANTS.values(), ids=MUTANTS)
def test_a_broken_rule_is_found_by_its_example(mutate, right, monkeypatch):
    assert right()
    mutate(monkeypatch)
    assert not right()


# Hashes that collide


def collide(patch, value=lambda k: 0):
    """All keys have the same hash, or one of few."""

    def hash_keys(columns):
        return np.array([value(k or 0) for k in columns[0].to_pylist()], np.uint64)

    for module in (cases_module, answers_module, arrow):
        patch.setattr(module, "hash_keys", hash_keys)


METHODS = st.sampled_from(
    [
        Stages(Inlj(batch=3), Front(slots=4, threshold=1)),
        Stages(MeshJoin(slots=7), Front(slots=4, threshold=1)),
        Stages(HybridJoin(slots=7), Front(slots=4, threshold=1)),
        Stages(Partitioned(wait=7, block=1, invoke=2)),
        Stages(Ssij(input_thr=2, stream_thr=3)),
        Stages(PartitionBased(area=2)),
    ]
)


@pytest.mark.parametrize("value", [lambda k: 0, lambda k: k % 2], ids=["all 0", "0 or 1"])
def test_with_hashes_that_collide_the_join_still_equals_its_definition(value):
    @given(cases(METHODS))
    @examples(0.2)
    def check(case: Case):
        with pytest.MonkeyPatch.context() as patch:
            collide(patch, value)
            assert run(case).results == case.expected()

    check()


def test_keys_that_are_not_verified_fail_where_hashes_collide(monkeypatch):
    collide(monkeypatch)
    right = joined(Stages(HybridJoin(slots=6)), [1, 2])
    assert right()
    monkeypatch.setattr(answers_module, "same_rows", lambda ours, i, theirs, j: np.ones(i.size, np.bool_))
    assert not right()


def test_null_keys_match_nothing(monkeypatch):
    """Of a table that has a null key, too."""
    table = arrow.ArrowTable(pa.table({"k": [None, 1], "v": ["a", "b"]}, cases_module.TABLE), ("k",))

    def right() -> bool:
        join = Shard(table, Stages(Inlj()), "left").rows([None, 1])
        return join.end().results == join.expected

    assert right()
    null_keys_match(monkeypatch)
    assert not right()


@pytest.mark.parametrize("stages", [Stages(Partitioned(wait=9)), Stages(Ssij(9, 9)), Stages(PartitionBased(9))])
def test_keys_that_the_table_has_not_need_no_read(stages, monkeypatch):
    def left() -> int:
        join = Shard(numbered(12, 2), stages, "left").rows([99] * 5)
        for _ in range(20):
            list(join.logic.back.step())
        assert join.logic.desk.stats.reads == 0
        return len(join.logic.waiting)

    assert left() == 0
    unknown_keys_wait(monkeypatch)
    assert left() == 5
