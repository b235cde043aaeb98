"""Drivers that die while a flow takes the head of a join: exactly so many rows are there, and the flow has ended."""

from __future__ import annotations

import signal

import duckdb
import pytest

from tests.spark.drivers.killing import PATIENCE, Job, Streams
from tests.spark.drivers.stepped import HEAD
from tests.spark.drivers.steps import COMMITTED, CRASH, RENAMED

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = "SELECT id, id_right, count(*) FROM '{}/head/epoch=*/*.parquet' GROUP BY ALL"


def test_kills_in_the_last_epoch_of_a_head_change_nothing(tmp_path):
    """First when its rows are written and not committed, then when they are and Spark has not noted it."""
    Streams(tmp_path, epochs=4)
    for step in (RENAMED, COMMITTED):
        crash = f"{tmp_path};{step}:1:driver"
        job = Job(tmp_path, "--parts", "head", "--place", "tasks", program="stepped", **{CRASH: crash})
        assert job.process.wait(PATIENCE) == -signal.SIGKILL, (tmp_path / "job.log").read_text()[-2000:]
        assert (tmp_path / f"crashed-{step}-1-driver").exists()
        job.kill()
    last = Job(tmp_path, "--parts", "head", program="stepped")
    assert last.wait_for("done"), (tmp_path / "job.log").read_text()[-2000:]
    last.process.wait(60)
    assert not any(line.startswith("epoch") for line in last.lines), "it had ended"
    pairs = duckdb.sql(QUERY.format(tmp_path)).fetchall()
    assert len(pairs) == HEAD
    assert all(count == 1 for *_, count in pairs)
