"""Private memory of processes, sampled from outside while a test runs. A measurement that fails, fails the test."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

PROC = Path("/proc")
INTERVAL = 0.005
"""Seconds between two samples."""


def private_memory(proc: Path = PROC) -> dict[int, int]:
    """RssAnon of every Python worker of this session, in bytes. A process that ends meanwhile is left out."""
    sizes = {pid: _of_worker(proc, pid) for pid in map(int, filter(str.isdecimal, os.listdir(proc)))}
    return {pid: size for pid, size in sizes.items() if size is not None}


def drivers_memory() -> dict[int, int]:
    """RssAnon of this process, which is the driver's Python, in bytes."""
    size = anonymous(PROC / "self" / "status")
    assert size is not None, "/proc/self/status has no RssAnon"
    return {os.getpid(): size}


def anonymous(status: Path) -> int | None:
    """RssAnon in bytes; None for a process that has ended but is still listed."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) * 1024 if "RssAnon" in fields else None


@contextmanager
def watched(memory: Callable[[], dict[int, int]] = private_memory) -> Iterator[list[int]]:
    """The most private memory that any one process had, in bytes. Fails if sampling did, or if it saw no process."""
    most = [0]
    failed: list[BaseException] = []
    done = threading.Event()

    def watch() -> None:
        try:
            while not done.is_set():
                most[0] = max([most[0], *memory().values()])
                done.wait(INTERVAL)
        except BaseException as error:
            failed.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()
    if failed:
        raise AssertionError(f"Memory was not measured to the end: {failed[0]!r}") from failed[0]
    assert most[0], "Memory was never measured: no process was seen."


def use_libraries(
    batches: Iterator[pa.RecordBatch], products: tuple[int, int, int], wkb: Sequence[bytes]
) -> Iterator[pa.RecordBatch]:
    """In a worker: multiply and parse once, return all that is free to the system, and say which process this is.

    OpenBLAS and GEOS keep buffers that do not depend on who calls them. `products` are the rows of either factor, and
    their dimensions.
    """
    import shapely

    ours, theirs, dimensions = products
    for kind in (np.float32, np.float64):
        assert (np.ones((ours, dimensions), kind) @ np.ones((dimensions, theirs), kind)).all()
    made = shapely.from_wkb(wkb)
    assert shapely.is_valid(made).all()
    shapely.prepare(made)
    assert shapely.intersects(made, made).all()
    del made
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    time.sleep(1)  # so that no process runs two tasks
    for _ in batches:
        yield pa.record_batch({"pid": pa.array([os.getpid()], pa.int64())})


def _of_worker(proc: Path, pid: int) -> int | None:
    """RssAnon of one process in bytes; None if it is no worker of this session, or has ended."""
    try:
        if b"pyspark.daemon" in (proc / str(pid) / "cmdline").read_bytes() and _is_ours(proc, pid):
            return anonymous(proc / str(pid) / "status")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return None


def _is_ours(proc: Path, pid: int) -> bool:
    """Whether a process descends from this one: other sessions may be running beside it."""
    while pid > 1 and pid != os.getpid():
        pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return pid == os.getpid()
