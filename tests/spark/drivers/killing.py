"""What the kill tests share: the streams of the job, what must come out of it, and the job as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from tests.oracle import lookup as lookups
from tests.oracle import window_join as oracle
from tests.spark.conftest import Feed
from tests.spark.drivers.job import NAMES
from tests.spark.drivers.stepped import PARTS
from tests.streams import COLUMNS, table

ROOT = Path(__file__).parents[3]

PATIENCE = 600
"""Seconds to wait for what a busy machine takes one or two minutes for."""


DELAY = 20
"""How far rows may be behind the latest one of their source."""


class Streams:
    """Both folders of the job, disordered, and what must come out of them; some rows of each epoch may be late."""

    def __init__(self, folder: Path, epochs: int, seed: int = 7, late: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._late = late
        self.expected_late: Counter[tuple] = Counter()
        """The rows that come too late: (source, id)."""
        self._tops = [-(10**9)] * 2
        """The latest time of each source."""
        # Several row groups, so that several tasks have something to read.
        self._feeds = [Feed(folder / name, COLUMNS, group=20) for name in ("left", "right")]
        self._rows: list[list[dict[str, Any]]] = [[], []]
        self._ledger = folder / "checkpoint" / "ledger"
        self.grow(epochs)

    @property
    def done(self) -> int:
        """The last epoch that the job has committed."""
        return max((int(path.stem) for path in self._ledger.glob("*.json")), default=-1)

    @property
    def waiting(self) -> int:
        """Epochs that it has not."""
        return self._feeds[0].count - self.done - 1

    def grow(self, epochs: int, rows: int = 60) -> None:
        """Some more epochs of rows."""
        for _ in range(epochs):
            for port, feed in enumerate(self._feeds):
                times = feed.count * 20 + self._rng.integers(0, 20, rows)
                times[: self._late] -= self._rng.integers(20, 60, self._late)
                keys = self._rng.integers(0, 12, rows)
                made = [
                    {"k": None if k == 11 else int(k), "t": int(t), "id": port * 10**6 + feed.count * rows + n}
                    for n, (k, t) in enumerate(zip(keys, times, strict=True))
                ]
                feed.add(table(made))
                self._rows[port] += [row for row in made if row["t"] >= self._tops[port] - DELAY]
                late = (row for row in made if row["t"] < self._tops[port] - DELAY)
                self.expected_late.update((feed.folder.name, row["id"]) for row in late)
                self._tops[port] = max(self._tops[port], *times.tolist())

    def expected(self) -> Counter[tuple]:
        """The join of everything there is."""
        return oracle.window_join(*self._rows, near=oracle.band(-30, 30), how="left")

    def expected_near(self) -> Counter[tuple]:
        """The inner join of what is nearest, by ids."""
        return oracle.window_join(*self._rows, near=oracle.band(-5, 5), how="inner")

    def expected_chain(self) -> Counter[tuple]:
        """Windows over the inner join of what is nearest: (key, end, count, largest id)."""
        near = self.expected_near()
        rows = {row["id"]: row for row in self._rows[0]}
        held: dict[tuple[Any, int], list[int]] = {}
        for left, _ in near.elements():
            held.setdefault((rows[left]["k"], rows[left]["t"] // 40 * 40 + 40), []).append(left)
        return Counter((k, end, len(ids), max(ids)) for (k, end), ids in held.items())

    def expected_names(self) -> Counter[tuple]:
        """The names of everything on the left: (id, name)."""
        found = lookups.lookup(self._rows[0], NAMES.to_pylist(), ["k"], ["name"], "left")
        places = {name: place for place, name in enumerate(self._rows[0][0])}
        return Counter({(row[places["id"]], row[-1]): count for row, count in found.items()})

    def expected_read(self) -> Counter[tuple]:
        """Some rows of the left without an operator: (id, twice its key)."""
        return Counter((row["id"], 2 * row["k"]) for row in self._rows[0] if row["k"] is not None and row["k"] < 9)

    def expected_windows(self) -> Counter[tuple]:
        """The windows of everything on the left: (key, end, count, largest id)."""
        held: dict[tuple[Any, int], list[int]] = {}
        for row in self._rows[0]:
            for end in range(row["t"] // 20 * 20 + 20, row["t"] + 51, 20):
                held.setdefault((row["k"], end), []).append(row["id"])
        return Counter((k, end, len(ids), max(ids)) for (k, end), ids in held.items())


def names(folder: Path) -> Counter[tuple]:
    """What was looked up, as (left id, name)."""
    return Counter(duckdb.sql(f"SELECT id, name FROM '{folder}/names/epoch=*/*.parquet'").fetchall())


def windows(folder: Path, name: str = "windows") -> Counter[tuple]:
    """The windows that came out."""
    query = f"SELECT k, window_end, n, most FROM '{folder}/{name}/epoch=*/*.parquet'"
    return Counter(duckdb.sql(query).fetchall())


def late(folder: Path) -> Counter[tuple]:
    """The rows that came too late, as (source, id)."""
    return Counter(duckdb.sql(f"SELECT late_source, id FROM '{folder}/late/epoch=*/*.parquet'").fetchall())


def results(folder: Path) -> Counter[tuple]:
    """What came out, as (left id, right id)."""
    return Counter(duckdb.sql(f"SELECT id, id_right FROM '{folder}/out/epoch=*/*.parquet'").fetchall())


def check_steps(folder: Path, streams: Streams, parts: Sequence[str] = PARTS) -> None:
    """Everything that the job of `stepped` writes is what it must be, and nothing else is in its folders."""
    if "out" in parts:
        assert results(folder) == streams.expected()
        assert late(folder) == streams.expected_late
    if "chained" in parts:
        assert windows(folder, "chained") == streams.expected_chain()
    if "names" in parts:
        assert names(folder) == streams.expected_names()
    if "windows" in parts:
        assert windows(folder) == streams.expected_windows()
        missed = Counter(duckdb.sql(f"SELECT late_source, id FROM '{folder}/missed/epoch=*/*.parquet'").fetchall())
        assert missed == Counter({row: count for row, count in streams.expected_late.items() if row[0] == "left"})
    if "read" in parts:
        found = duckdb.sql(f"SELECT id, twice FROM '{folder}/read/epoch=*/*.parquet'").fetchall()
        assert Counter(found) == streams.expected_read()
    if "apart" in parts:
        found = duckdb.sql(f"SELECT l_id, r_id FROM '{folder}/apart/epoch=*/*.parquet'").fetchall()
        assert Counter(found) == streams.expected_near()
        kept = [(path.parent.name, path.name[:12]) for path in (folder / "checkpoint" / "payload").glob("*/*-*")]
        assert len(kept) == len(set(kept)), "what dead attempts wrote to segments was not swept"
    for sink in [*parts, *(["late"] if "out" in parts else []), *(["missed"] if "windows" in parts else [])]:
        assert all(path.name.startswith("epoch=") for path in (folder / sink).iterdir() if path.name != "_staging")
        # A duplicate of a task of Spark's own writer may make an empty folder when its epoch is over.
        left_behind = [path for path in (folder / sink / "_staging").rglob("*") if path.is_file()]
        assert not left_behind, "what attempts left behind was not swept"


class Job:
    """The job at work in a process group of its own, and what it has printed."""

    def __init__(
        self, folder: Path, *arguments: str, program: str = "job", log: str = "job.log", **environment: str
    ) -> None:
        self.lines: list[str] = []
        self._log = (folder / log).open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.spark.drivers.{program}", str(folder), *arguments],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._said = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line.strip())
                self._said.notify_all()
        self.process.wait()
        with self._said:
            self._said.notify_all()

    def wait_for(self, word: str, timeout: float = PATIENCE) -> bool:
        """Wait until the job has printed `word`, or has ended."""

        def said() -> bool:
            return any(line.startswith(word) for line in self.lines) or self.process.poll() is not None

        with self._said:
            self._said.wait_for(said, timeout)
        return any(line.startswith(word) for line in self.lines)

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


def run_killed(folder: Path, program: str, kills: int, every: int, arguments: Callable[[int], Sequence[str]]) -> None:
    """Run a job to its end; on the way it is killed so often, each time after `every` more epochs.

    `arguments` are those of each process, by how many were killed before. An epoch is told of once it is committed: the
    next one is under way when the kill comes.
    """
    for kill in range(kills + 1):
        job = Job(folder, *arguments(kill), program=program)
        word = "done" if kill == kills else f"epoch {every * kill + 1}"
        assert job.wait_for(word), (folder / "job.log").read_text()[-3000:]
        if kill == kills:
            job.process.wait(60)
        else:
            assert job.process.poll() is None, "the job ended before it was killed"
            job.kill()
