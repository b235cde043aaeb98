"""The memory promise for sources of files, measured from outside: of the driver, and of the tasks that read them."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from pathlib import Path

import pytest

import penstock as pk
from penstock.spark.place import Placement
from tests.spark.conftest import Feed
from tests.spark.test_memory import MEMORY, SHARE, WIDE, two_streams
from tests.worker_memory import drivers_memory, private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.own_place, pytest.mark.usefixtures("compiled")]

VERY_WIDE = 3000
"""Bytes of payload where it is left behind."""

EPOCHS = 8
"""So many that the rows of each fit in the driver, also those that Spark sends;"""

TOO_FEW = 4
"""and so few that those do not."""


def run(spark, folder: Path, feeds: list[Feed], frames: bool, payload: str = "row") -> tuple[int, int, set[str]]:
    """Join two streams in a window that never closes: pairs, the most bytes of state, and where epochs ran.

    Where payload is left behind, all of it is asked for.
    """
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=MEMORY)
    options = {"time": "t", "progress": pk.ordered(), "payload": payload}
    left, right = (
        flow.source(side.stream(spark), name=side.folder.name, **options)
        if frames
        else flow.parquet(side.folder, name=side.folder.name, max_files=1, **options)
        for side in feeds
    )
    joined = left.join(right, on="k", within=pk.band(before=10**9, after=10**9))
    (joined.select("id", "id_right") if payload == "row" else joined).to_parquet(str(folder / "out"))
    query = flow.run(end=False)
    epochs = query.progress().epochs
    places = {epoch.place.partition(":")[0] for epoch in epochs}
    return query.progress().rows_out, max(epoch.operators["join0"].state_bytes for epoch in epochs), places


@pytest.mark.parametrize(
    ("frames", "place", "times", "epochs"),
    [
        (False, "driver", 1, EPOCHS),
        (False, "pieces", 8, TOO_FEW),
        (False, "tasks", 8, EPOCHS),
        (True, "driver", 1, EPOCHS),
        (True, "driver", 1, TOO_FEW),
    ],
    ids=["files driver", "files in pieces", "files tasks", "DataFrames driver", "DataFrames that do not fit"],
)
def test_private_memory_stays_within_the_share_wherever_an_epoch_runs(
    spark, tmp_path, frames, place, times, epochs, record_property, monkeypatch
):
    """State is `times` the budget; the driver begins every epoch, and those that do not fit go to tasks."""
    if place in ("pieces", "tasks"):
        monkeypatch.setattr(Placement, "choose", lambda self, nbytes: (place, "said"))
    memory = private_memory if place == "tasks" else drivers_memory
    rows = int(times * MEMORY / 2 / (WIDE + 40))
    feeds = two_streams(tmp_path / "big", rows, epochs)
    for name in ("warm", "warmer"):
        run(spark, tmp_path / name, two_streams(tmp_path / name, 2000, epochs), frames)
    # What tests before this one have left in this process is not the flow's.
    gc.collect()
    baseline = max(memory().values())
    with watched(memory) as most:
        pairs, state, places = run(spark, tmp_path / "big", feeds, frames)
    assert pairs == len(range(0, rows, 10))
    assert state >= 0.9 * times * MEMORY
    elsewhere = {"in tasks that get their rows from Spark" if frames else "in tasks that read its files"}
    here = {"driver": {"in the driver"}, "pieces": {"in the driver, piece by piece"}}
    assert places == (here[place] if place in here and (epochs == EPOCHS or place == "pieces") else elsewhere)
    above = most[0] - baseline
    record_property("private_memory_above_baseline", above)
    assert above <= 1.25 * SHARE, f"{above / SHARE:.2f} × the share at {times} × the budget"


@pytest.mark.parametrize(
    ("payload", "frames", "place"),
    [
        ("source", False, "driver"),
        ("source", False, "tasks"),
        ("segments", False, "tasks"),
        ("segments", True, "tasks"),
        ("source", True, "driver"),
        pytest.param("source", True, "spark", marks=pytest.mark.deep),
        pytest.param("segments", False, "driver", marks=pytest.mark.deep),
        pytest.param("segments", True, "driver", marks=pytest.mark.deep),
    ],
)
def test_f05_private_memory_stays_within_the_share_while_payload_is_left_behind(
    spark, tmp_path, payload, frames, place, record_property, monkeypatch
):
    """Rows would take 8 times the budget; in state they have keys, times and places, and results get the rest."""
    monkeypatch.setattr(Placement, "choose", lambda self, nbytes: (place, "said"))
    rows = int(8 * MEMORY / 2 / (VERY_WIDE + 40))
    feeds = two_streams(tmp_path / "big", rows, EPOCHS, VERY_WIDE)
    for name in ("warm", "warmer"):
        few_rows = two_streams(tmp_path / name, 2_000_000 // VERY_WIDE, EPOCHS, VERY_WIDE)
        run(spark, tmp_path / name, few_rows, frames, payload)
    gc.collect()
    # Where the driver joins, tasks still write the segments of DataFrames.
    measured = [private_memory] if place != "driver" or (frames and payload == "segments") else []
    measured += [drivers_memory] if place == "driver" else []
    baselines = {memory: max(memory().values()) for memory in measured}
    if place == "driver":
        # The driver also builds the flow and talks to Spark: what that takes shows with a few rows.
        with watched(drivers_memory) as few:
            few_rows = two_streams(tmp_path / "few", 10 * EPOCHS, EPOCHS, VERY_WIDE)
            run(spark, tmp_path / "few", few_rows, frames, payload)
        baselines[drivers_memory] = few[0]
    with ExitStack() as stack:
        most = {memory: stack.enter_context(watched(memory)) for memory in measured}
        pairs, state, _ = run(spark, tmp_path / "big", feeds, frames, payload)
    assert pairs == len(range(0, rows, 10))
    assert state <= 100 * 2 * rows
    for memory in measured:
        above = most[memory][0] - baselines[memory]
        record_property(f"{memory.__name__}_above_baseline", above)
        assert above <= 1.25 * SHARE, f"{memory.__name__}: {above / SHARE:.2f} × the share"
