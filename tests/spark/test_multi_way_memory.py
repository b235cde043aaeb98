"""The memory promise of joins of three streams with payload of 3 KB: private memory of workers and of the driver.

Rows, or the keys, times and places that are left of them, take 8 times the budget. Results equal DuckDB's, payload and
all.
"""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pk
from penstock.spark.place import Placement
from tests.spark.conftest import Feed
from tests.worker_memory import drivers_memory, private_memory, watched

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.own_place, pytest.mark.usefixtures("compiled")]

MEMORY = 16_000_000
SHARE = MEMORY // 2
TIMES = 8
WIDE = 3000
"""Bytes of a row's payload."""
ROWS = int(1.1 * TIMES * MEMORY / 3 / (WIDE + 40))
"""Of each stream: those of all three are 8 times the budget."""
NARROW = 200
"""Bytes of a key where rows leave their payload behind and what is left is to be 8 times the budget."""

ALIASES = ("a", "b", "c")
PLANS: Mapping[str, tuple[str, list[str]]] = {
    "tree": ("(a b) c", ["a.k = b.k", "b.j = c.j"]),
    "linear": ("a b c", ["a.j = b.j", "b.j = c.j"]),
}
DELIVERED = ", ".join(f"{a}_id, md5({a}_payload)" for a in ALIASES)
GIVEN = ", ".join(f"{a}.id, md5({a}.payload)" for a in ALIASES)


@dataclass(frozen=True)
class Ran:
    """What a flow reports of itself."""

    state: int
    """The most bytes of state."""
    places: set[str]


@dataclass(frozen=True)
class Case:
    """A join of three streams, and where it runs."""

    plan: str
    payload: str
    """Of all sources."""
    frames: bool = False
    place: str = "tasks"
    epochs: int = 4
    within: pk.Band | None = None

    def run(self, spark, folder: Path, feeds: Mapping[str, Feed]) -> Ran:
        """Join, and keep all state."""
        flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory=MEMORY)
        told = {"time": "t", "progress": pk.ordered(), "payload": self.payload}
        streams = {
            alias: flow.source(feed.stream(spark), name=alias, **told)
            if self.frames
            else flow.parquet(feed.folder, name=alias, max_files=1, **told)
            for alias, feed in feeds.items()
        }
        plan, on = PLANS[self.plan]
        joined = flow.join(
            **streams, on=on, plan=plan, within=self.within, materialize="early" if self.payload == "row" else "late"
        )
        joined.to_parquet(str(folder / "out"))
        epochs = flow.run(end=False).progress().epochs
        states = [sum(operator.state_bytes for operator in epoch.operators.values()) for epoch in epochs]
        return Ran(max(states), {epoch.place.partition(":")[0] for epoch in epochs})

    @property
    def placed(self) -> set[str]:
        """Where its epochs are said to have run."""
        words = {"driver": "in the driver", "tasks": "in tasks that read its files"}
        return {words.get(self.place, "in tasks that get their rows from Spark")}


def three_streams(folder: Path, rows: int, epochs: int, key: int = 0) -> dict[str, Feed]:
    """Three streams; two rows in ten have a partner by `k`, one by `j`. Keys are numbers, or texts of `key` bytes."""
    kind = pa.string() if key else pa.int64()
    schema = pa.schema({"k": kind, "j": kind, "t": pa.int64(), "id": pa.int64(), "payload": pa.string()})
    feeds = {alias: Feed(folder / alias, schema) for alias in ALIASES}
    for epoch in range(epochs):
        ids = np.arange(epoch * rows // epochs, (epoch + 1) * rows // epochs)
        for port, feed in enumerate(feeds.values()):
            keys = [pa.array(np.where(ids % every == 0, ids, -1 - 3 * ids - port)) for every in (5, 10)]
            if key:
                keys = [pc.utf8_lpad(numbers.cast(pa.string()), key, "k") for numbers in keys]
            # Few enough that a column of them is small in a file.
            texts = pa.array([f"{feed.folder.name}{n}".ljust(WIDE, "x") for n in range(97)])
            feed.add(pa.table([*keys, ids, ids, texts.take(pa.array(ids % 97))], schema=schema))
    return feeds


def check(folder: Path, feeds: Mapping[str, Feed], plan: str) -> int:
    """Whether what came out is what DuckDB finds; the number of results.

    It runs in a process of its own: what it takes and leaves would be measured in this one.
    """
    streams = ", ".join(f"'{feed.folder}/*.parquet' AS {alias}" for alias, feed in feeds.items())
    expected = f"SELECT {GIVEN} FROM {streams} WHERE {' AND '.join(PLANS[plan][1])}"
    found = f"SELECT {DELIVERED} FROM '{folder}/out/epoch=*/*.parquet'"
    query = (
        f"WITH expected AS MATERIALIZED ({expected}), found AS MATERIALIZED ({found}) "
        "SELECT (SELECT count(*) FROM expected), (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM found)), "
        "(SELECT count(*) FROM (FROM found EXCEPT ALL FROM expected))"
    )
    program = "import sys, duckdb; duckdb.sql('SET enable_progress_bar = false'); "
    program += "print(*duckdb.sql(sys.argv[1]).fetchall()[0])"
    ran = subprocess.run([sys.executable, "-c", program, query], check=True, capture_output=True, text=True)
    results, missing, too_many = map(int, ran.stdout.split())
    assert (missing, too_many) == (0, 0)
    return results


def give_back() -> None:
    """Let this process have no memory that is free, in which what a flow takes would not show."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def measure(spark, tmp_path: Path, case: Case, rows: int, key: int, record_property) -> Ran:
    """Run a case and compare its memory with the share, and its results with DuckDB's."""
    feeds = three_streams(tmp_path / "big", rows, case.epochs, key)
    case.run(spark, tmp_path / "warm", three_streams(tmp_path / "warm", 600, case.epochs, key))
    few_rows = three_streams(tmp_path / "few", 10 * case.epochs, case.epochs, key)
    give_back()
    # The driver also builds the flow and talks to Spark: what that takes shows with a few rows.
    with watched(drivers_memory) as few:
        case.run(spark, tmp_path / "few", few_rows)
    baselines = {drivers_memory: few[0]}
    if case.place != "driver" or (case.frames and case.payload == "segments"):
        baselines[private_memory] = max(private_memory().values())
    give_back()
    with ExitStack() as stack:
        most = {memory: stack.enter_context(watched(memory)) for memory in baselines}
        ran = case.run(spark, tmp_path / "big", feeds)
    for memory, baseline in baselines.items():
        above = (most[memory][0] - baseline) / SHARE
        record_property(f"{memory.__name__}_above_baseline", above)
        size = f"{above:.2f} × the share over {baseline / 1e6:.0f} MB"
        print(f"{memory.__name__}: {size}, state {ran.state / MEMORY:.2f} × the budget: {case}")
    assert ran.places == case.placed
    assert check(tmp_path / "big", feeds, case.plan) == len(range(0, rows, 10))
    for memory, baseline in baselines.items():
        above = most[memory][0] - baseline
        assert above <= 1.25 * SHARE, f"{memory.__name__}: {above / SHARE:.2f} × the share"
    return ran


def placed(monkeypatch, place: str) -> None:
    monkeypatch.setattr(Placement, "choose", lambda self, nbytes: (place, "said"))


def cases(often: list[Case], seldom: list[Case]) -> list[object]:
    """Parameters, the second of which are deep, named by what they say."""
    return [
        pytest.param(case, marks=[pytest.mark.deep] * (case in seldom), id=_name(case)) for case in [*often, *seldom]
    ]


def _name(case: Case) -> str:
    sources = "DataFrames" if case.frames else "files"
    return " ".join([case.plan, case.payload, sources, case.place, *(["window"] if case.within else [])])


WINDOW = pk.band(before=10**9, after=10**9)

EARLY = cases(
    [Case("tree", "row"), Case("linear", "row")],
    [
        Case("tree", "row", within=WINDOW),
        Case("linear", "row", within=WINDOW),
        Case("tree", "row", frames=True, place="spark"),
        Case("linear", "row", frames=True, place="spark"),
        # So many that each fits in the driver.
        Case("tree", "row", place="driver", epochs=64),
        Case("linear", "row", place="driver", epochs=64),
        Case("tree", "row", frames=True, place="driver", epochs=64),
        Case("linear", "row", frames=True, place="driver", epochs=64),
    ],
)


@pytest.mark.parametrize("case", EARLY)
def test_early_joins_of_three_streams_stay_within_the_share_at_eight_times_the_budget(
    spark, tmp_path, case, record_property, monkeypatch
):
    """Stores hold whole rows, those of a tree also partial results."""
    placed(monkeypatch, case.place)
    ran = measure(spark, tmp_path, case, ROWS, 0, record_property)
    assert ran.state >= TIMES * MEMORY


LATE = [
    Case(plan, payload, frames, place, within=within)
    for plan in PLANS
    for payload, frames, place in [
        ("source", False, "tasks"),
        ("segments", False, "tasks"),
        ("source", False, "driver"),
        ("segments", False, "driver"),
        ("source", True, "spark"),
        ("source", True, "driver"),
        ("segments", True, "tasks"),
        ("segments", True, "driver"),
    ]
    for within in ((None, WINDOW) if not frames and place == "tasks" else (None,))
]
OFTEN = [Case("tree", "source", False, "tasks")]


@pytest.mark.parametrize("case", cases(OFTEN, [case for case in LATE if case not in OFTEN]))
def test_late_joins_of_three_streams_stay_within_the_share_while_rows_are_eight_times_the_budget(
    spark, tmp_path, case, record_property, monkeypatch
):
    """State has keys, times and places."""
    placed(monkeypatch, case.place)
    ran = measure(spark, tmp_path, case, ROWS, 0, record_property)
    assert 3 * ROWS * WIDE >= TIMES * MEMORY
    assert ran.state <= 100 * 3 * ROWS


VERY_MANY = int(1.1 * TIMES * MEMORY / 3 / NARROW)
"""Rows of each stream whose keys, times and places are 8 times the budget."""


@pytest.mark.deep
@pytest.mark.parametrize(
    "case", cases([Case(plan, payload, epochs=16) for plan in PLANS for payload in ("source", "segments")], [])
)
def test_late_joins_of_three_streams_stay_within_the_share_while_narrow_state_is_eight_times_the_budget(
    spark, tmp_path, case, record_property, monkeypatch
):
    placed(monkeypatch, case.place)
    ran = measure(spark, tmp_path, case, VERY_MANY, NARROW, record_property)
    assert ran.state >= TIMES * MEMORY
