"""A real cluster on which Spark runs tasks twice at a time, or again: each row comes out once.

Another attempt at a task sees its rows in another order, and the one that loses is the last to say what its shard has
become, or has written the whole of its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.spark.drivers.killing import Job, Streams, check_steps
from tests.spark.drivers.stepped import PARTS
from tests.spark.drivers.steps import ARRIVED, CRASH, STRAGGLERS, WRITTEN
from tests.spark.drivers.test_cluster import cluster_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.task.maxFailures": "4",
}


Slow = Mapping[str, int]
"""What waits for its duplicate, and in which epoch."""


@pytest.mark.parametrize(
    ("kind", "place", "parts"),
    [
        ("files", "tasks", ["chained", "names"]),
        pytest.param("files", "tasks", PARTS, marks=pytest.mark.deep),
        pytest.param("frames", "spark", PARTS, marks=pytest.mark.deep),
    ],
)
def test_tasks_that_spark_runs_twice_leave_each_row_once(kind, place, parts, tmp_path):
    """The last operator writes Parquet; one is followed by another; one task fails after it wrote its file."""
    slow = {"names": 1, "near": 1, **({"joined": 2} if "out" in parts else {})}
    crashes = [f"{WRITTEN}:0:task", *([f"{ARRIVED}:3:executor"] if "out" in parts else [])]
    streams = Streams(tmp_path, epochs=4 if "out" in parts else 2, late=3)
    lines = run_on_two_hosts(tmp_path, kind, place, parts, slow, crashes)
    if "out" in parts and place == "tasks":
        # The executor had results of the first operator, some of which the second one had read.
        assert any(line.startswith("Epoch 3 begins again") for line in lines), lines
    check_steps(tmp_path, streams, parts)


@pytest.mark.parametrize(
    ("kind", "place", "parts", "slow"),
    [
        ("files", "tasks", ["windows", "read"], {"scan": 1, "read": 1, "written": 2}),
        pytest.param("files", "tasks", PARTS, {"scan": 1, "read": 2, "written": 3}, marks=pytest.mark.deep),
        pytest.param("files", "spark", ["out", "chained"], {"written": 1}, marks=pytest.mark.deep),
        pytest.param("python", "spark", ["out", "windows"], {"left-rows": 2, "written": 1}, marks=pytest.mark.deep),
    ],
)
def test_scans_and_files_that_spark_makes_twice_leave_each_row_once(kind, place, parts, slow, tmp_path):
    """A task that reads, or has written its whole file, goes on only after its duplicate has given all it made."""
    streams = Streams(tmp_path, epochs=1 + max(slow.values()), late=3)
    run_on_two_hosts(tmp_path, kind, place, parts, slow, [])
    assert list(tmp_path.glob(f"untold-*-{slow['written']}")), "the attempt that lost had not written its file"
    check_steps(tmp_path, streams, parts)


def run_on_two_hosts(
    tmp_path: Path, kind: str, place: str, parts: Sequence[str], slow: Slow, crashes: Sequence[str]
) -> list[str]:
    """Run the job to its end, with tasks that are slow and others that die; what it printed comes back."""
    settings = [f"--set={name}={value}" for name, value in SPECULATION.items()]
    environment = {
        CRASH: ";".join([str(tmp_path), *crashes]),
        STRAGGLERS: ",".join(f"{operator}:{epoch}" for operator, epoch in slow.items()),
    }
    with cluster_of(["127.0.0.1", "127.0.0.2"], tmp_path) as master:  # Spark wants another host for a duplicate.
        asked = ["--master", master, "--sources", kind, "--place", place, "--parts", ",".join(parts)]
        job = Job(tmp_path, *asked, *settings, program="stepped", **environment)
        try:
            assert job.wait_for("done"), (tmp_path / "job.log").read_text()[-3000:]
        finally:
            job.kill()
    for operator, epoch in slow.items():
        assert (tmp_path / f"straggled-{operator}-{epoch}-after").exists(), "Spark started no duplicate"
    for crash in crashes:
        assert (tmp_path / f"crashed-{crash.replace(':', '-')}").exists(), crash
    return job.lines
