"""Drivers, JVMs and tasks die at each named step of an epoch that joins three streams: results equal DuckDB's.

Rows leave payload behind, in segments or in their files, and one of the joins delivers results an epoch later. After
each crash the flow goes on on other cores, and some rerun the epoch with other sources than it was planned for.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from penstock.storage.versioned import Checkpoint
from tests.spark.conftest import Feed
from tests.spark.drivers.killing import PATIENCE, Job
from tests.spark.drivers.stepped_multi_way import ALIASES, NEAR, ON, SCHEMA
from tests.spark.drivers.steps import (
    COMMITTED,
    CRASH,
    NOTED,
    PLANNED,
    READING,
    RENAMED,
    SPOOLED,
    STAGED,
    SWEEPING,
    WRITTEN,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 30
"""Rows of a stream in an epoch."""

Crash = tuple[str, str, str, str, str]
"""A step, who dies there, the sources, the place, and where payload is."""


class ThreeStreams:
    """The folders of the job, disordered, and what must come out of them."""

    def __init__(self, folder: Path) -> None:
        self._rng = np.random.default_rng(16)
        self._folder = folder
        self._feeds = {alias: Feed(folder / alias, SCHEMA, group=10) for alias in ALIASES}

    @property
    def done(self) -> int:
        """The last epoch that the job has committed."""
        return max((int(path.stem) for path in (self._folder / "checkpoint" / "ledger").glob("*.json")), default=-1)

    @property
    def waiting(self) -> int:
        """Epochs that it has not."""
        return self._feeds["a"].count - self.done - 1

    def grow(self, epochs: int) -> None:
        """Some more epochs of rows; one key in twelve is null."""
        for _ in range(epochs):
            for alias, feed in self._feeds.items():
                ids = np.arange(feed.count * ROWS, (feed.count + 1) * ROWS)
                numbers = [[None if n == 11 else int(n) for n in self._rng.integers(0, 12, ROWS)] for _ in range(2)]
                texts = [None if n is None else f"key {n}" for n in numbers[1]]
                pays = [f"{alias}{number} ".ljust(300, "x") for number in ids.tolist()]
                times = feed.count * 20 + self._rng.integers(0, 20, ROWS)
                feed.add(pa.table([numbers[0], texts, times, ids, pays], schema=SCHEMA))

    def check(self) -> None:
        """Everything that the job writes is what it must be, and nothing else is in its folders."""
        with duckdb.connect(config={"threads": 1}) as engine:
            for alias, feed in self._feeds.items():
                engine.execute(f"CREATE VIEW {alias} AS FROM '{feed.folder}/*.parquet'")
            rows = ", ".join(f"{alias}.id, {alias}.pay" for alias in ALIASES)
            near = [f"abs({x}.t - {y}.t) <= {NEAR}" for x, y in ("ab", "bc", "ac")]
            for part, on in ON.items():
                conditions = [*on, *(near if part != "tree" else [])]
                asked = f"SELECT {rows} FROM {', '.join(ALIASES)} WHERE {' AND '.join(conditions)}"
                expected = Counter(engine.execute(asked).fetchall())
                shown = ", ".join(f"{alias}_id, {alias}_pay" for alias in ALIASES)
                found = engine.execute(f"SELECT {shown} FROM '{self._folder}/{part}/epoch=*/*.parquet'").fetchall()
                assert Counter(found) == expected, part
                assert expected.total() > ROWS, part
        kept = [(path.parent.name, path.name[:12]) for path in (self._folder / "checkpoint" / "payload").glob("*/*-*")]
        assert len(kept) == len(set(kept)), "what dead attempts wrote to segments was not swept"
        for sink in ON:
            folder = self._folder / sink
            assert all(path.name.startswith("epoch=") for path in folder.iterdir() if path.name != "_staging")
            left_behind = [path for path in (folder / "_staging").rglob("*") if path.is_file()]
            assert not left_behind, "what attempts left behind was not swept"


def every_step(victim: str, payload: str, *ways: tuple[str, str]) -> list[Crash]:
    """Each step once, with sources and places in turn."""
    steps = [PLANNED, READING, STAGED, WRITTEN, RENAMED, COMMITTED, SWEEPING]
    steps += [SPOOLED, NOTED] if payload == "segments" else []
    return [(step, victim, *_reaching(step, payload, ways[n % len(ways)]), payload) for n, step in enumerate(steps)]


def _reaching(step: str, payload: str, way: tuple[str, str]) -> tuple[str, str]:
    """The way, or one that has this step: only tasks stage and write, and only they write segments of DataFrames."""
    kind, place = way
    if step in (STAGED, WRITTEN) and place == "driver":
        return kind, "tasks" if kind == "files" else "spark"
    return ("frames", place) if step in (SPOOLED, NOTED) else way


FILES, FRAMES = (("files", "tasks"), ("files", "driver")), (("frames", "spark"), ("frames", "driver"))
MIXED = (("mixed", "driver"), ("mixed", "spark"))

CHAINS = [
    pytest.param([(WRITTEN, "driver", "frames", "tasks", "segments")], id="segments"),
    pytest.param([(RENAMED, "driver", "files", "tasks", "source")], id="source"),
    *(
        pytest.param(every_step(victim, payload, *ways), id=f"{victim}-{payload}-{ways[0][0]}", marks=pytest.mark.deep)
        for victim, payload, ways in [
            ("driver", "segments", FRAMES),
            ("driver", "source", FILES),
            ("jvm", "segments", FILES),
            ("jvm", "source", FRAMES),
            ("driver", "segments", MIXED),
            ("jvm", "source", MIXED),
        ]
    ),
]


@pytest.mark.parametrize("crashes", CHAINS)
def test_f26_drivers_and_tasks_die_while_three_streams_are_joined(crashes, tmp_path):
    streams = ThreeStreams(tmp_path)
    for number, (step, victim, kind, place, payload) in enumerate(crashes):
        # In the first or second epoch of a process; old files are swept later.
        epoch = streams.done + (3 if step == SWEEPING else 1 + number % 2)
        streams.grow(max(0, epoch - streams.done - streams.waiting))
        crash = f"{step}:{0 if step == SPOOLED else epoch}:{victim}"
        job = start(tmp_path, kind, place, 1 + 2 * (number % 2), payload, crash)
        ended_with = job.process.wait(PATIENCE)
        told = f"{step} of epoch {epoch}: {job.lines} {(tmp_path / 'job.log').read_text()[-2000:]}"
        assert (tmp_path / f"crashed-{crash.replace(':', '-')}").exists(), told
        assert ended_with == -signal.SIGKILL if victim == "driver" else ended_with > 0, told
        job.kill()
    *_, kind, _, payload = crashes[-1]
    streams.grow(max(0, 2 - streams.waiting))
    deaths = [f"{WRITTEN}:{streams.done + 1}:worker"]
    if payload == "segments" and kind == "frames":
        deaths += [f"{SPOOLED}:{streams.done + 1}:{who}" for who in ("worker", "task")]
    job = start(tmp_path, kind, "tasks", 2, payload, *deaths)
    assert job.wait_for("done"), (tmp_path / "job.log").read_text()[-3000:]
    job.process.wait(60)
    for death in deaths:
        assert (tmp_path / f"crashed-{death.replace(':', '-')}").exists(), death
    Checkpoint(str(tmp_path / "checkpoint")).vacuum()
    streams.check()


def start(folder: Path, kind: str, place: str, cores: int, payload: str, *crashes: str) -> Job:
    asked: Sequence[str] = ["--master", f"local[{cores},8]", "--sources", kind, "--place", place, "--payload", payload]
    return Job(folder, *asked, program="stepped_multi_way", **{CRASH: ";".join([str(folder), *crashes])})
