"""A real standalone cluster with two workers: an executor and a Python worker are killed while a flow runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark.drivers.killing import Job, Streams, names, results, windows
from tests.spark.jvm import QUICK_JVM

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster(tmp_path) -> Iterator[str]:
    """A master and two workers of one core each, from the pip wheel."""
    with cluster_of(["127.0.0.1", "127.0.0.1"], tmp_path) as master:
        yield master


@contextmanager
def cluster_of(hosts: Sequence[str], tmp_path: Path) -> Iterator[str]:
    """A master, and a worker of one core on each host."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    env = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "w")}
    env |= {"SPARK_DAEMON_JAVA_OPTS": QUICK_JVM, "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str, *arguments: str) -> None:
        command = [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
        log = (tmp_path / f"{kind}-{len(started)}.log").open("wb")
        started.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))

    start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    wait_for_port(port)
    for host in hosts:
        start("worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", master)
    try:
        yield master
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on {port}")


def processes(word: str, under: Path) -> list[int]:
    """Processes of this cluster whose command line has `word`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                folder = (entry / "cwd").readlink()
            except OSError:
                continue
            if word in command and str(under) in str(folder):
                found.append(int(entry.name))
    return found


def kill_one(word: str, under: Path) -> None:
    for _ in range(100):
        if pids := processes(word, under):
            os.kill(pids[-1], signal.SIGKILL)
            return
        time.sleep(0.1)
    raise TimeoutError(f"no process {word!r}")


def test_an_executor_and_a_python_worker_are_killed_and_nothing_changes(cluster, tmp_path):
    streams = Streams(tmp_path, epochs=16)
    job = Job(tmp_path, "--master", cluster, "--shards", "2")
    try:
        assert job.wait_for("epoch 2"), (tmp_path / "job.log").read_text()[-3000:]
        kill_one("pyspark.daemon", tmp_path / "w")
        assert job.wait_for("epoch 5"), (tmp_path / "job.log").read_text()[-3000:]
        kill_one("CoarseGrainedExecutorBackend", tmp_path / "w")
        assert job.wait_for("done"), (tmp_path / "job.log").read_text()[-3000:]
    finally:
        job.kill()
    assert results(tmp_path) == streams.expected()
    assert windows(tmp_path) == streams.expected_windows()
    assert names(tmp_path) == streams.expected_names()
