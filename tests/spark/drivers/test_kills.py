"""The driver is killed at random moments, again and again: what comes out is exactly the join, by any method.

Each restart goes on by another method than the one before: state is carried over what a kill leaves, too.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.spark.drivers.killing import Job, Streams, names, results, windows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

METHODS = ("oa", "ewj", "ah_ewj", "rpwj", "ewj", "oa", "rpwj", "ah_ewj")

WAITING = 12
"""Epochs that each process has before it, more than it commits before it is killed."""


@pytest.mark.parametrize("source", ["frames", "files"])
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.deep)])
def test_f34_kills_of_the_driver_change_nothing(kills, source, tmp_path):
    streams = Streams(tmp_path, epochs=WAITING)
    moments = random.Random(11)
    for kill in range(kills):
        streams.grow(max(0, WAITING - streams.waiting))
        places = ["--places", str(kill)] if source == "files" else []
        job = Job(tmp_path, "--shards", str(1 + kill % 3), "--method", METHODS[kill % len(METHODS)], *places)
        assert job.wait_for("ready"), (tmp_path / "job.log").read_text()[-3000:]
        if kill % 2:
            job.wait_for("epoch", timeout=20)
        time.sleep(moments.uniform(0, 1.2 if kill % 2 else 5))
        assert job.process.poll() is None, "the job ended before it was killed"
        job.kill()
    last = Job(tmp_path, "--method", "ewj", *(["--places", "99"] if source == "files" else []))
    assert last.wait_for("done"), (tmp_path / "job.log").read_text()[-3000:]
    last.process.wait(60)
    assert results(tmp_path) == streams.expected()
    assert windows(tmp_path) == streams.expected_windows()
    assert names(tmp_path) == streams.expected_names()
