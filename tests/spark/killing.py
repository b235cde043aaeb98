"""What the kill tests share: the streams of the job, what must come out of it, and the job as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np

from tests.oracle import window_join as oracle
from tests.spark.conftest import Feed
from tests.streams import COLUMNS, table

ROOT = Path(__file__).parents[2]


def feed_job(folder: Path, epochs: int, rows: int = 60, seed: int = 7) -> Counter[tuple]:
    """Write both folders of the job, disordered but never late, and give back what must come out."""
    rng = np.random.default_rng(seed)
    sides = []
    for port, name in enumerate(("left", "right")):
        feed, all_rows = Feed(folder / name, COLUMNS), []
        for epoch in range(epochs):
            times = epoch * 20 + rng.integers(0, 20, rows)
            keys = rng.integers(0, 12, rows)
            made = [
                {"k": None if k == 11 else int(k), "t": int(t), "id": port * 10**6 + epoch * rows + n}
                for n, (k, t) in enumerate(zip(keys, times, strict=True))
            ]
            feed.add(table(made))
            all_rows += made
        sides.append(all_rows)
    return oracle.window_join(*sides, near=oracle.band(-30, 30), how="left")


def results(folder: Path) -> Counter[tuple]:
    """What came out, as (left id, right id)."""
    return Counter(duckdb.sql(f"SELECT id, id_right FROM '{folder}/out/epoch=*/*.parquet'").fetchall())


class Job:
    """The job at work in a process group of its own, and what it has printed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.lines: list[str] = []
        self._log = (folder / "job.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.job", str(folder), *arguments],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
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

    def wait_for(self, word: str, timeout: float = 120) -> bool:
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
