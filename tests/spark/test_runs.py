"""Which run of a task counts."""

from __future__ import annotations

import pytest

from penstock.spark.runs import Run, Runs

ATTEMPT = "00000007-0123abcd"


@pytest.mark.spark
def test_runs_of_tasks_come_to_the_driver_with_their_results(spark):
    runs = Runs.on(spark.sparkContext)

    def work(batches):
        for batch in batches:
            for number in batch.column(0).to_pylist():
                runs.tell(Run(ATTEMPT, "join0", number, f"run{number}"))
            yield batch

    assert spark.range(0, 3, 1, 3).mapInArrow(work, "id long").count() == 3
    assert runs.of(ATTEMPT, "join0") == {0: "run0", 1: "run1", 2: "run2"}
    assert runs.of(ATTEMPT, "join1") == runs.of("00000007-0123abce", "join0") == {}
    assert not runs.repeated(ATTEMPT, "join0")
    runs.forget()
    assert runs.of(ATTEMPT, "join0") == {}


@pytest.mark.spark
def test_a_shard_that_ran_to_its_end_twice_is_known(spark):
    runs = Runs.on(spark.sparkContext)
    for name in ("first", "second"):
        runs.tell(Run(ATTEMPT, "join0", 1, name))
    assert runs.repeated(ATTEMPT, "join0")
    assert not runs.repeated(ATTEMPT, "join1")
    assert runs.of(ATTEMPT, "join0") == {1: "second"}
