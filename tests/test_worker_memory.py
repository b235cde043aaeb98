"""A memory test fails if its measurement does; a process that ends while it is looked at is no failure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests import worker_memory
from tests.worker_memory import drivers_memory, private_memory, watched


def worker(proc: Path, pid: int, parent: int, status: str = "VmRSS:\t9 kB\nRssAnon:\t     2 kB\n") -> Path:
    """A process as /proc shows it."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"python\0-m\0pyspark.daemon\0")
    (folder / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1")
    (folder / "status").write_text(status)
    return folder


@pytest.fixture
def proc(tmp_path) -> Path:
    (tmp_path / "meminfo").touch()
    worker(tmp_path, 900_000_001, os.getpid())
    return tmp_path


def test_workers_of_this_session_are_measured_and_no_others(proc):
    worker(proc, 900_000_002, 1)
    (worker(proc, 900_000_003, os.getpid()) / "cmdline").write_bytes(b"java")
    assert private_memory(proc) == {900_000_001: 2048}


@pytest.mark.parametrize("gone", ["cmdline", "stat", "status"])
def test_a_worker_that_ends_while_it_is_looked_at_is_left_out(proc, gone):
    (worker(proc, 900_000_002, os.getpid()) / gone).unlink()
    assert private_memory(proc) == {900_000_001: 2048}


def test_a_worker_whose_parent_ends_while_it_is_looked_at_is_left_out(proc):
    worker(proc, 900_000_002, 900_000_009)
    assert private_memory(proc) == {900_000_001: 2048}


def test_a_worker_that_has_ended_but_is_still_listed_is_left_out(proc):
    worker(proc, 900_000_002, os.getpid(), status="State:\tZ (zombie)\n")
    assert private_memory(proc) == {900_000_001: 2048}


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_read_that_fails_because_the_process_ended_is_no_failure(proc, error, monkeypatch):
    def vanished(status: Path) -> int:
        raise error(status)

    monkeypatch.setattr(worker_memory, "anonymous", vanished)
    assert private_memory(proc) == {}


def test_processes_that_come_and_go_do_not_end_the_watch():
    marker = "pyspark.daemon"
    with watched() as most:
        for _ in range(10):
            subprocess.run([sys.executable, "-S", "-c", f"'{marker}'; [0] * 10**6"], check=True)
    assert most[0] > 0


def test_the_most_of_all_samples_is_kept():
    samples = iter([{1: 5, 2: 7}, {}, {1: 9}])
    last = threading.Event()

    def memory() -> dict[int, int]:
        sample = next(samples, None)
        return sample if sample is not None else (last.set() or {1: 1})

    with watched(memory) as most:
        assert last.wait(10)
    assert most == [9]


def test_a_watch_that_dies_fails_the_test_with_its_error():
    def memory() -> dict[int, int]:
        raise ValueError("no such field")

    message = r"not measured to the end: ValueError\('no such field'\)"
    with pytest.raises(AssertionError, match=message) as raised, watched(memory):
        time.sleep(0.02)
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_watch_that_dies_after_it_has_measured_fails_the_test_too():
    samples = iter([{1: 5}])
    with pytest.raises(AssertionError, match="not measured to the end: StopIteration"), watched(lambda: next(samples)):
        time.sleep(0.05)


def test_a_watch_that_sees_no_process_fails_the_test():
    with pytest.raises(AssertionError, match="Memory was never measured: no process was seen"), watched(dict):
        pass


def test_a_failure_of_the_test_itself_is_not_hidden_by_the_watch():
    with pytest.raises(KeyError), watched(dict):
        raise KeyError


def test_the_driver_is_measured():
    assert drivers_memory()[os.getpid()] > 2**20
