"""The driver of joins without a window is killed, by keys and by predicates: no result is lost, none comes out twice.

It dies while rows arrive, in silent epochs in which a part of what was put off is joined, and in the epoch that ends
the streams, which joins the rest.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import shapely

from penstock.storage.versioned import Checkpoint
from tests.flow.test_spatial import BOX, as_structs, as_wkb, drawn, shapes
from tests.oracle.near import are_near
from tests.oracle.spatial import Matches, intersect, join
from tests.spark.conftest import Feed
from tests.spark.drivers.killing import PATIENCE, Job, run_killed
from tests.spark.drivers.predicate_job import DISTANCE, HOWS
from tests.spark.drivers.steps import COMMITTED, CRASH, READING, RENAMED, STAGED, STEPS, SWEEPING, WRITTEN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAIN = {"t": pa.int64(), "id": pa.int64()}
ROWS = 30

Drawn = tuple[list[Any], list[pa.Array]]
"""What rows are matched by, as the definition has it, and in columns."""


def keys(seed: int, rows: int) -> Drawn:
    """Few keys, one of them frequent; some are null."""
    draws = np.minimum(np.random.default_rng(seed).zipf(1.5, rows), 40).tolist()
    values = [None if row % 19 == 7 else key for row, key in enumerate(draws)]
    return values, [pa.array(values, pa.int64())]


def boxes(seed: int, rows: int) -> Drawn:
    values = drawn(seed, rows)
    return values, [as_structs(values)["b"]]


def geometries(seed: int, rows: int) -> Drawn:
    values = [None if row % 23 == 11 else shape for row, shape in enumerate(shapes(seed, rows))]
    return values, [as_wkb(values)["g"]]


def vectors(seed: int, rows: int) -> Drawn:
    """Vectors on a lattice of half the distance, across the border of a cell: many are exactly so far apart."""
    points = np.random.default_rng(seed).integers(-6, 6, (rows, 3)) * DISTANCE / 2
    values = [None if row % 17 == 5 else point for row, point in enumerate(points.tolist())]
    axes = [pa.array([point and point[axis] for point in values], pa.float64()) for axis in range(3)]
    return values, [*axes, pa.array(values, pa.list_(pa.float64()))]


KINDS: dict[str, tuple[dict[str, pa.DataType], Callable[[int, int], Drawn], Matches]] = {
    "keys": ({"k": pa.int64()}, keys, lambda a, b: a is not None and a == b),
    "boxes": ({"b": BOX}, boxes, intersect),
    "geometries": (
        {"g": pa.binary()},
        geometries,
        lambda a, b: a is not None and b is not None and bool(shapely.intersects(a, b)),
    ),
    "vectors": (
        {**dict.fromkeys("xyz", pa.float64()), "v": pa.list_(pa.float64())},
        vectors,
        lambda a, b: are_near(a, b, DISTANCE),
    ),
}


class Sides:
    """Both folders of the job, and what must come out of what is in them."""

    def __init__(self, folder: Path, kind: str, epochs: int) -> None:
        self._folder, self._hows = folder, HOWS[kind]
        types, draw, self._matches = KINDS[kind]
        self._schema = pa.schema({**types, **PLAIN})
        self._feeds = [Feed(folder / name, self._schema) for name in ("left", "right")]
        ids = pa.array(range(ROWS * epochs), pa.int64())
        self._values, self._tables = [], []
        for seed in (8, 9):
            values, columns = draw(seed, ROWS * epochs)
            self._values.append(values)
            self._tables.append(pa.table([*columns, ids, ids], schema=self._schema))

    @property
    def epochs(self) -> int:
        """Those that have rows so far."""
        return self._feeds[0].count

    def grow(self, epochs: int) -> None:
        """So many more epochs of rows."""
        for _ in range(epochs):
            start = ROWS * self.epochs
            for feed, table in zip(self._feeds, self._tables, strict=True):
                feed.add(table.slice(start, ROWS))

    def found(self, sink: str) -> Counter[tuple]:
        """What came out so far."""
        return Counter(duckdb.sql(f"SELECT id, id_right FROM '{self._folder}/{sink}/epoch=*/*.parquet'").fetchall())

    def wanted(self, how: str) -> Counter[tuple]:
        """What comes out of the rows so far once the streams have ended."""
        ours, theirs = (values[: ROWS * self.epochs] for values in self._values)
        return join(ours, theirs, self._matches, how)

    def check(self) -> None:
        """Both joins are as they are defined."""
        for sink, how in zip(("first", "second"), self._hows, strict=True):
            wanted = self.wanted(how)
            assert sum(wanted.values()) > ROWS
            assert self.found(sink) == wanted


DEEP = pytest.mark.deep


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("boxes", 1),
        ("vectors", 1),
        *(pytest.param(kind, 6, marks=DEEP) for kind in KINDS),
    ],
)
def test_a_kill_loses_and_doubles_no_pair(kind, kills, tmp_path):
    sides = Sides(tmp_path, kind, 4 + 2 * kills)
    sides.grow(4 + 2 * kills)
    run_killed(
        tmp_path,
        "predicate_job",
        kills,
        every=2,
        arguments=lambda kill: ["--on", kind, "--shards", str(1 + (kill + 1) % 3), "--places", str(kill)],
    )
    sides.check()


When = Literal["rows", "silent", "end"]
"""Which epoch: one with rows, one without in which some of what was put off is joined, or the one that ends."""

Crash = tuple[When, str, str, str]
"""An epoch, a step of it, who dies there, and the place of epochs."""

TRIGGER = "20 ms"
"""So short that no silent epoch joins all that was put off."""

IN_TASKS = (STAGED, WRITTEN)

CHOSEN: list[Crash] = [
    ("silent", WRITTEN, "driver", "tasks"),
    ("end", RENAMED, "driver", "tasks"),
]


def every_step(when: When, place: str) -> list[Crash]:
    """Rows are read only where there are some; an epoch that has been swept may not be followed by its like."""
    never = {*(IN_TASKS if place == "driver" else ()), *(() if when == "rows" else (READING,))}
    return [(when, step, "driver", place) for step in STEPS if step not in never and (when, step) != ("end", SWEEPING)]


def any_crashes(seed: int) -> list[Crash]:
    draw = random.Random(seed)
    crashes = []
    for when in [*draw.choices(["rows", "silent"], k=4), "end"]:
        place = draw.choice(("driver", "tasks", "spark"))
        crashes.append((when, draw.choice(every_step(when, place))[1], draw.choice(("driver", "jvm")), place))
    return crashes


@pytest.mark.parametrize(
    ("kind", "crashes"),
    [
        pytest.param("keys", CHOSEN, id="keys"),
        *(
            pytest.param("keys", every_step(when, place), id=f"keys-{when}-{place}", marks=DEEP)
            for when in ("rows", "silent")
            for place in ("driver", "tasks", "spark")
        ),
        *(
            pytest.param("keys", every_step("end", place), id=f"keys-end-{place}", marks=DEEP)
            for place in ("driver", "tasks", "spark")
        ),
        *(
            pytest.param(kind, any_crashes(seed), id=f"{kind}-drawn", marks=DEEP)
            for seed, kind in enumerate(KINDS)
            if kind != "keys"
        ),
    ],
)
def test_a_driver_dies_at_a_step_of_an_epoch_while_pairs_are_put_off(kind, crashes: Sequence[Crash], tmp_path):
    sides = Sides(tmp_path, kind, epochs=6 + 2 * sum(when == "rows" for when, *_ in crashes))
    sides.grow(6)
    checkpoint, silent = Checkpoint(str(tmp_path / "checkpoint")), 0
    for number, (when, step, victim, place) in enumerate(crashes):
        for crashed in tmp_path.glob("crashed-*"):
            crashed.unlink()
        done = checkpoint.latest().epoch
        unread = sides.epochs - (done + 1 - silent)
        if when == "rows":
            sides.grow(max(0, 4 - unread))
            epoch = done + (3 if step == SWEEPING else 1 + number % 2)
        else:
            epoch = done + unread + (3 if step == SWEEPING else 1)
        told = ["--on", kind, "--shards", str(1 + number % 3), "--place", place]
        told += {"rows": [], "silent": ["--trigger", TRIGGER], "end": ["--at-end", f"{step}:{victim}"]}[when]
        crash = "" if when == "end" else f"{tmp_path};{step}:{epoch}:{victim}"
        job = Job(tmp_path, *told, program="predicate_job", **{CRASH: crash})
        ended_with = job.process.wait(PATIENCE)
        said = f"{when}, {step}, {epoch}: {job.lines} {(tmp_path / 'job.log').read_text()[-2000:]}"
        job.kill()
        assert [path.name.split("-")[1] for path in tmp_path.glob("crashed-*")] == [step], said
        assert ended_with == -signal.SIGKILL if victim == "driver" else ended_with > 0, said
        latest = checkpoint.latest()
        planned = checkpoint.planned(latest.epoch + 1)
        # In the driver, rows are read while the plan is written, and an epoch may be committed without a JVM.
        assert planned is not None or victim == "jvm" or step in (READING, COMMITTED, SWEEPING), said
        assert (latest.ended or (planned is not None and planned.end)) is (when == "end"), said
        if when == "silent":
            assert latest.epoch >= sides.epochs - (step not in (COMMITTED, SWEEPING)), said
            silent = latest.epoch + 1 - sides.epochs
            assert sides.found("first") < sides.wanted("inner"), "nothing was put off any more"
    if not checkpoint.latest().ended:
        last = Job(tmp_path, "--on", kind, "--shards", "2", program="predicate_job")
        assert last.wait_for("done"), (tmp_path / "job.log").read_text()[-3000:]
        last.process.wait(60)
    assert checkpoint.latest().ended
    sides.check()
