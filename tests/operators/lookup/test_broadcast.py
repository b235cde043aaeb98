"""Broadcast: the whole table in memory, every row answered at once, and no table that does not fit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import BudgetError
from penstock.operators.lookup import Broadcast, Stages, lookup_method_name
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


def test_no_row_no_read():
    shard = Shard(numbered(100), "broadcast").rows([]).end()
    assert shard.logic.counts()["reads"] == 0


def test_the_table_counts_as_memory_of_the_task():
    shard = Shard(numbered(10_000, partition_rows=100), "broadcast", memory=2_000_000).rows([1])
    size = shard.logic.desk.stats.bytes_read
    assert size <= shard.budget.held <= 1.1 * size


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
    assert lookup_method_name(Stages(Broadcast())) == "broadcast"
    assert not Stages(Broadcast()).defers
    assert isinstance(Shard(numbered(3), "broadcast").rows([1]).out[0], pa.RecordBatch)
