"""Broadcast: the whole table in memory, every row answered at once, and no table that does not fit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError
from penstock.core.kept import hand_over, kept_by
from penstock.operators.lookup import METHODS, Broadcast, Stages
from penstock.storage.tables.build import build_page_table
from tests.operators.lookup.cases import Shard, backs, cases, numbered, run
from tests.streams import examples


@examples(0.3)
@given(cases(methods=st.builds(Stages, back=backs(Broadcast))))
def test_a_table_in_memory_gives_what_the_definition_says(case):
    assert run(case).results == case.expected()


def test_every_row_is_answered_when_it_comes_and_the_table_is_read_once():
    shard = Shard(numbered(100, partition_rows=10), "broadcast")
    for keys in ([1, 2, 3], [3, 4, 500]):
        shard.rows(keys)
    assert shard.finished == 5
    counts = shard.logic.counts()
    assert (counts["reads"], counts["looked_up"], counts["waiting"]) == (10, 0, 0)
    assert shard.results == shard.expected


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("memory", [10**9, 100_000])
def test_more_rows_than_the_table_has_find_theirs_by_key_from_the_second_time_on(how, copies, memory):
    shard = Shard(numbered(20, copies=copies), "broadcast", how, memory)
    for batch in ([1, 2, None], range(100), [7, 7, None, 99, *range(30)], list(range(20)) * 3):
        shard.rows(batch)
    shard.end()
    assert shard.results == shard.expected
    assert shard.budget.peak <= memory


def test_no_row_no_read():
    shard = Shard(numbered(100), "broadcast").rows([]).end()
    assert shard.logic.counts()["reads"] == 0


def test_the_table_counts_as_memory_of_the_task():
    shard = Shard(numbered(10_000, partition_rows=100), "broadcast", memory=2_000_000).rows([1])
    size = shard.logic.desk.stats.bytes_read
    assert 0.99 * size <= shard.budget.held <= 1.1 * size


@pytest.fixture
def pages(tmp_path):
    return build_page_table(str(tmp_path), [numbered(2000).rows], keys=["k"], partition="8 kB")


def test_the_table_stays_for_the_next_epoch_and_is_paid_for_by_it(pages):
    shard = Shard(pages, "broadcast", memory=2_000_000)
    for reads in (pages.open().partitions, 0, 0):
        hand_over(shard.budget, shard.budget.limit // 4)
        shard.rows([1, 2, 5000])
        assert shard.logic.counts()["reads"] == reads
        assert 40_000 < shard.budget.held < 80_000
        before = shard.budget
        shard.again()
        hand_over(shard.budget, shard.budget.limit // 4)
        assert before.held == 0
    assert shard.finished == 6


def test_another_version_is_read_anew_and_what_does_not_fit_goes(pages):
    shard = Shard(pages, "broadcast", memory=2_000_000)
    hand_over(shard.budget, shard.budget.limit // 4)
    shard.rows([1])
    pages.upsert(pa.table({"k": [1], "v": ["new"]}))
    shard.again()
    hand_over(shard.budget, shard.budget.limit // 4)
    shard.rows([1])
    assert [batch.column("v").to_pylist() for batch in shard.out] == [["v1"], ["new"]]
    hand_over(other := Budget(2_000_000), 0)
    assert (other.held, kept_by(other), kept_by(shard.budget)) == (0, 0, 0)


def test_without_a_host_that_says_who_pays_nothing_stays(pages):
    shard = Shard(pages, "broadcast", memory=2_000_000).rows([1])
    shard.again().rows([1])
    assert shard.logic.counts()["reads"] == pages.open().partitions


def test_a_table_that_does_not_fit_is_refused_with_what_to_do():
    shard = Shard(numbered(10_000), "broadcast", memory=200_000)
    with pytest.raises(BudgetError, match=r"method='broadcast' holds the whole table .* write method='cinlj'"):
        shard.rows([1])


def test_rows_that_waited_in_another_method_are_answered():
    shard = Shard(numbered(50, partition_rows=5), "hybridjoin").rows([1, 2, 3, 60])
    shard.config = type(shard.config)(shard.config.table, shard.config.on, method="broadcast")
    shard.again().end()
    assert shard.results == shard.expected


def test_it_has_a_name_and_lets_nothing_wait_over_epochs():
    assert METHODS.name_of(Stages(Broadcast())) == "broadcast"
    assert not Stages(Broadcast()).defers
    assert isinstance(Shard(numbered(3), "broadcast").rows([1]).out[0], pa.RecordBatch)
