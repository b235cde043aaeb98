"""Drivers, their JVMs and their workers die at each named step of an epoch: nothing is lost, and nothing comes twice.

After each crash the flow goes on on other cores, and some rerun the epoch with other kinds of sources than it was
planned for.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.storage.versioned import Checkpoint
from tests.spark.drivers.killing import PATIENCE, Job, Streams, check_steps
from tests.spark.drivers.stepped import PARTS
from tests.spark.drivers.steps import (
    COMMITTED,
    CRASH,
    NOTED,
    PLANNED,
    READING,
    RENAMED,
    SPOOLED,
    STAGED,
    STEPS,
    SWEEPING,
    WRITTEN,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Crash = tuple[str, str, str, str]
"""A step, who dies there, the sources, and the place."""

PLACES = {
    "frames": ("driver", "spark"),
    "mixed": ("driver", "spark"),
    "files": ("driver", "tasks", "spark"),
}
"""Where epochs of each kind of source can run."""

IN_TASKS = (STAGED, WRITTEN)

ALONE = ("windows",)
"""A window over a source, and nothing else: Spark counts its rows and makes its partials in one query."""

SCANNED = ("read",)
"""No operator: rows go from a source to Parquet."""

CHOSEN: Sequence[Crash] = [(WRITTEN, "driver", "files", "tasks"), (RENAMED, "jvm", "frames", "spark")]
"""Crashes that leave a file that nobody was told of, and an epoch's folder that is not committed."""

DEATHS = ((READING, "worker"), (READING, "task"), (STAGED, "worker"), (WRITTEN, "worker"), (WRITTEN, "task"))
"""What happens to tasks of one epoch: Spark runs each again, in the same JVM."""


def steps_of(parts: Sequence[str], place: str) -> list[str]:
    """The steps that a flow of some parts takes in a place, as far as they are not in the JVM."""
    missing = {*IN_TASKS} if place == "driver" else set()
    if parts == ALONE and place == "spark":
        missing |= {WRITTEN}  # by Spark
    if parts == SCANNED:
        missing |= {*IN_TASKS, SWEEPING, *([READING] if place == "spark" else [])}
    return [step for step in STEPS if step not in missing]


def every_step(victim: str, kind: str, place: str, parts: Sequence[str] = PARTS) -> list[Crash]:
    return [(step, victim, kind, place) for step in steps_of(parts, place)]


def any_crashes(seed: int, count: int = 8) -> list[Crash]:
    draw, crashes = random.Random(seed), []
    while len(crashes) < count:
        kind = draw.choice(list(PLACES))
        place = draw.choice(PLACES[kind])
        step = draw.choice(steps_of(PARTS, place))
        crashes.append((step, draw.choice(("driver", "jvm")), kind, place))
    return crashes


CHAINS = [
    pytest.param(CHOSEN, ("out", "read"), id="chosen"),
    pytest.param([(READING, "jvm", "frames", "spark")], ALONE, id="alone"),
    *(
        pytest.param(every_step(victim, kind, place), PARTS, id=f"{victim}-{kind}-{place}", marks=pytest.mark.deep)
        for kind, places in PLACES.items()
        for place in places
        for victim in ("driver", "jvm")
    ),
    *(
        pytest.param(
            every_step(victim, *where, parts), parts, id="-".join((victim, *where, *parts)), marks=pytest.mark.deep
        )
        for parts, *where in [
            *((ALONE, kind, place) for kind in ("frames", "files") for place in PLACES[kind]),
            *((SCANNED, "files", place) for place in PLACES["files"]),
            (SCANNED, "frames", "spark"),
        ]
        for victim in ("driver", "jvm")
    ),
    *(pytest.param(any_crashes(seed), PARTS, id=f"drawn-{seed}", marks=pytest.mark.deep) for seed in range(4)),
    *(
        pytest.param(any_crashes(seed), (*PARTS, *ALONE), id=f"drawn-{seed}-windows", marks=pytest.mark.deep)
        for seed in range(4, 6)
    ),
]


@pytest.mark.parametrize(("crashes", "parts"), CHAINS)
def test_drivers_and_tasks_that_die_at_a_step_of_an_epoch_change_nothing(crashes, parts, tmp_path):
    streams = Streams(tmp_path, epochs=0, late=3)
    for number, (step, victim, kind, place) in enumerate(crashes):
        # In the first or second epoch of a process, or if it is the only one in the second; old files are swept later.
        epoch = streams.done + (3 if step == SWEEPING else 2 if len(crashes) == 1 else 1 + number % 2)
        # Windows keep their pages for some epochs: with no more rows the first to go would be those of the end.
        more = 4 if step == SWEEPING and parts == ALONE else 0
        streams.grow(max(0, epoch + more - streams.done - streams.waiting), rows=40)
        job = start(tmp_path, kind, place, 1 + 2 * (number % 2), parts, f"{step}:{epoch}:{victim}")
        ended_with = job.process.wait(PATIENCE)
        told = f"{step} of epoch {epoch}: {job.lines} {(tmp_path / 'job.log').read_text()[-2000:]}"
        assert (tmp_path / f"crashed-{step}-{epoch}-{victim}").exists(), told
        assert ended_with == -signal.SIGKILL if victim == "driver" else ended_with > 0, told
        job.kill()
    run_to_its_end(tmp_path, streams, "files", "tasks", 1 + 2 * (len(crashes) % 2), parts)


WIDE = ("out", "apart")
"""Parts whose results are payload: every column but key and time."""

WIDE_CHAINS = [
    pytest.param([(NOTED, "driver", "frames", "tasks", "segments")], id="chosen"),
    pytest.param([(RENAMED, "driver", "frames", "spark", "source")], id="scanned"),
    pytest.param(
        [
            (SPOOLED, "driver", "frames", "tasks", "segments"),
            (PLANNED, "jvm", "frames", "driver", "segments"),
            (READING, "driver", "files", "tasks", "segments"),
            (WRITTEN, "driver", "frames", "tasks", "segments"),
            (COMMITTED, "driver", "mixed", "driver", "segments"),
            (NOTED, "jvm", "files", "driver", "segments"),
            (RENAMED, "driver", "frames", "spark", "segments"),
            (SWEEPING, "driver", "frames", "tasks", "segments"),
            (PLANNED, "driver", "files", "tasks", "source"),
            (STAGED, "jvm", "files", "tasks", "source"),
            (COMMITTED, "driver", "files", "driver", "source"),
            (RENAMED, "driver", "files", "spark", "source"),
        ],
        id="every step",
        marks=pytest.mark.deep,
    ),
    pytest.param(
        [
            (PLANNED, "driver", "frames", "driver", "source"),
            (READING, "jvm", "frames", "spark", "source"),
            (STAGED, "driver", "frames", "spark", "source"),
            (PLANNED, "driver", "mixed", "spark", "segments"),
            (PLANNED, "jvm", "frames", "spark", "segments"),
            (WRITTEN, "driver", "frames", "spark", "source"),
            (COMMITTED, "driver", "files", "tasks", "source"),
            (PLANNED, "driver", "frames", "driver", "segments"),
            (SWEEPING, "driver", "mixed", "driver", "source"),
            (RENAMED, "jvm", "frames", "driver", "source"),
        ],
        id="every step, scanned",
        marks=pytest.mark.deep,
    ),
]


@pytest.mark.parametrize("crashes", WIDE_CHAINS)
def test_f34_drivers_and_tasks_die_while_payload_is_left_behind(crashes, tmp_path):
    """In segments, in files, and with results that wait for an epoch; rows in state are found at every restart."""
    streams = Streams(tmp_path, epochs=0, late=3)
    for number, (step, victim, kind, place, payload) in enumerate(crashes):
        epoch = streams.done + (3 if step == SWEEPING else 1 + number % 2)
        streams.grow(max(0, epoch - streams.done - streams.waiting), rows=40)
        crash = f"{step}:{0 if step == SPOOLED else epoch}:{victim}"
        job = start(tmp_path, kind, place, 1 + 2 * (number % 2), WIDE, crash, payload=payload)
        ended_with = job.process.wait(PATIENCE)
        told = f"{step} of epoch {epoch}: {job.lines} {(tmp_path / 'job.log').read_text()[-2000:]}"
        assert (tmp_path / f"crashed-{crash.replace(':', '-')}").exists(), told
        assert ended_with == -signal.SIGKILL if victim == "driver" else ended_with > 0, told
        job.kill()
    *_, kind, _, payload = crashes[-1]
    streams.grow(max(0, 2 - streams.waiting), rows=40)
    deaths = [f"{WRITTEN}:{streams.done + 1}:worker"]
    if payload == "segments":
        deaths += [f"{SPOOLED}:{streams.done + 1}:{who}" for who in ("worker", "task")]
    job = start(tmp_path, kind, "tasks", 2, WIDE, *deaths, payload=payload)
    assert job.wait_for("done"), (tmp_path / "job.log").read_text()[-3000:]
    job.process.wait(60)
    for death in deaths:
        assert (tmp_path / f"crashed-{death.replace(':', '-')}").exists(), death
    Checkpoint(str(tmp_path / "checkpoint")).vacuum()
    check_steps(tmp_path, streams, WIDE)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "place", "parts"),
    [
        *((kind, "spark", PARTS) for kind in PLACES),
        *((kind, "spark", ALONE) for kind in ("frames", "files")),
        ("files", "tasks", SCANNED),
    ],
)
def test_tasks_that_die_are_run_again_and_nothing_changes(kind, place, parts, tmp_path):
    streams = Streams(tmp_path, epochs=3, late=3)
    run_to_its_end(tmp_path, streams, kind, place, 2, parts)


def run_to_its_end(folder: Path, streams: Streams, kind: str, place: str, cores: int, parts: Sequence[str]) -> None:
    """Run all that is left, while tasks of the next epoch die, and look at what came out."""
    streams.grow(max(0, 2 - streams.waiting), rows=40)
    deaths = [f"{step}:{streams.done + 1}:{who}" for step, who in DEATHS if step in steps_of(parts, place)]
    job = start(folder, kind, place, cores, parts, *deaths)
    assert job.wait_for("done"), (folder / "job.log").read_text()[-3000:]
    job.process.wait(60)
    for death in deaths:
        assert (folder / f"crashed-{death.replace(':', '-')}").exists(), death
    check_steps(folder, streams, parts)


def start(
    folder: Path, kind: str, place: str, cores: int, parts: Sequence[str], *crashes: str, payload: str = "auto"
) -> Job:
    asked = ["--master", f"local[{cores},8]", "--sources", kind, "--place", place, "--parts", ",".join(parts)]
    asked += ["--payload", payload]
    return Job(folder, *asked, program="stepped", **{CRASH: ";".join([str(folder), *crashes])})
