"""Epochs in the driver piece by piece: rows of files that only one operator takes are read by each of its shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import penstock as pk
from penstock.core.errors import BudgetError
from penstock.runtime.epoch import taken_by_one
from penstock.spark.here import EpochHere
from penstock.spark.place import Placement
from tests.spark.conftest import multiset
from tests.spark.test_files import events, write

pytestmark = [pytest.mark.spark, pytest.mark.own_place]

EPOCHS = 5


def source(flow: Any, folder: Path, name: str, **options: Any) -> Any:
    return flow.parquet(folder / name, time="t", progress=pk.bounded_delay(40), name=name, max_files=1, **options)


def sources(flow: Any, folder: Path, **options: Any) -> tuple[Any, Any]:
    return source(flow, folder, "left", **options), source(flow, folder, "right", **options)


def banded(flow: Any, folder: Path) -> Any:
    left, right = sources(flow, folder)
    priced = left.where("bid.price > 5").select("t", "k", "id", "bid.price AS price")
    return priced.join(right.select("t", "k", "id"), on="k", within=pk.band(before=20, after=20), how="full")


def ever(flow: Any, folder: Path) -> Any:
    """Payload stays in the files."""
    left, right = sources(flow, folder, payload="source")
    return left.join(right, on="k", how="left").select("id", "id_right", "bid.url AS url")


def deferred(flow: Any, folder: Path) -> Any:
    left, right = sources(flow, folder)
    return left.join(right, on="k", method="rrpj").select("id", "id_right")


def chained(flow: Any, folder: Path) -> Any:
    joined = banded(flow, folder).select("t", "price")
    return joined.window(range=50, slide=10).agg(n=pk.count(), most=pk.max("price"))


def spread(flow: Any, folder: Path) -> Any:
    """Rows of the right stream go to all sites."""
    left, right = (rows.select("t", "id", "double(t) AS x", "double(id) AS y") for rows in sources(flow, folder))
    return left.join(right, on=pk.near(["x", "y"], distance=30.0)).select("id", "id_right")


def grouped(flow: Any, folder: Path) -> Any:
    return source(flow, folder, "left").window(range=50, slide=10).by("k").agg(n=pk.count(), most=pk.max("id"))


def first(flow: Any, folder: Path) -> Any:
    return source(flow, folder, "left").distinct(on="k", within=30).select("k", "id")


FLOWS = (banded, ever, deferred, chained, spread, grouped, first)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], str]], None]:
    """Say where each epoch runs."""

    def say(place: Callable[[], str]) -> None:
        monkeypatch.setattr(Placement, "choose", lambda self, size: (self.at_most(place()), "said"))

    return say


def add(folder: Path, epoch: int) -> None:
    """A file of each stream."""
    write(folder / "left", epoch, events(epoch))
    write(folder / "right", epoch, events(epoch, 120, seed=4))


def in_process(folder: Path, build: Callable[[Any, Path], Any]) -> Counter[Any]:
    flow = pk.LocalFlow()
    out = build(flow, folder).to_memory()
    flow.run()
    return multiset(out.table())


@pytest.mark.parametrize("build", FLOWS)
def test_epochs_piece_by_piece_give_what_a_flow_gives_in_process(spark, tmp_path, at, build):
    """Also on the state of epochs that ran elsewhere, and with other shards after a restart."""
    draw = Random(build.__name__)
    total: Counter[Any] = Counter()
    places: list[str] = []
    for start, (since, until) in enumerate([(0, 3), (3, EPOCHS)]):
        at(lambda: "pieces" if draw.random() < 0.6 else draw.choice(["driver", "tasks", "spark"]))
        for epoch in range(since, until):
            add(tmp_path, epoch)
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB", shards=2 + start)
        out = build(flow, tmp_path).to_memory()
        query = flow.run(end=until == EPOCHS)
        total += multiset(out.table())
        places += [epoch.place for epoch in query.progress().epochs]
    assert total == in_process(tmp_path, build)
    assert any(place.startswith("in the driver, piece by piece") for place in places)


def test_an_epoch_takes_pieces_that_fit_where_all_of_its_rows_do_not(spark, tmp_path):
    """At first in tasks, until their time is known; then where it is predicted to take less."""
    rng = np.random.default_rng(1)
    for epoch in range(8):
        for name in ("left", "right"):
            rows = {"t": np.arange(60_000) + epoch * 60_000, "k": rng.integers(0, 10**6, 60_000)}
            write(tmp_path / name, epoch, pa.table(rows | {"id": rows["t"]}))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="8 MB", shards=2)
    left, right = (flow.parquet(tmp_path / name, time="t", name=name, max_files=1) for name in ("left", "right"))
    out = left.join(right, on="k", within=pk.band(before=10**9, after=10**9)).select("id", "id_right").to_memory()
    query = flow.run(end=False)
    places = [epoch.place.partition(":")[0] for epoch in query.progress().epochs]
    assert places[:2] == ["in tasks that read its files"] * 2
    assert {*places[2:]} <= {"in tasks that read its files", "in the driver, piece by piece"}
    files = [f"'{tmp_path}/{name}/*.parquet'" for name in ("left", "right")]
    pairs = duckdb.sql(f"SELECT l.id, r.id FROM {files[0]} l JOIN {files[1]} r ON l.k = r.k").fetchall()
    assert sorted(zip(*out.table().to_pydict().values(), strict=True)) == sorted(pairs)


def test_an_epoch_that_does_not_fit_in_pieces_either_runs_in_tasks_and_so_do_later_ones(
    spark, tmp_path, at, monkeypatch
):
    at(lambda: "pieces")
    began = EpochHere.deliver
    tried = []

    def full(self: EpochHere, *more: Any) -> Any:
        began(self, *more)
        tried.append(1)
        raise BudgetError("No room.")

    monkeypatch.setattr(EpochHere, "deliver", full)
    for epoch in range(4):
        add(tmp_path, epoch)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    banded(flow, tmp_path).to_parquet(f"{tmp_path}/out")
    query = flow.run()
    reports = query.progress().epochs
    assert reports[0].place == "in tasks that read its files: it needs more than the memory of one task"
    assert {report.place for report in reports[1:]} == {"in tasks that read its files: said"}
    assert tried == [1]
    assert multiset(pyarrow.dataset.dataset(f"{tmp_path}/out", partitioning=None).to_table()) == in_process(
        tmp_path, banded
    )


def test_only_sources_that_one_port_takes_alone_are_read_again():
    flow = pk.LocalFlow()
    rows = pa.table({"t": [1], "k": [1], "id": [1]})
    a, b, c, d = (flow.source(rows, time="t", name=name) for name in "abcd")
    joined = a.where("id > 0").join(b, on="k", within=pk.band(before=1, after=1))
    twice = c.join(c, on="k", within=pk.band(before=1, after=1))
    late = d.distinct(on="k", within=3)
    for stream in (joined, twice, late, late.late):
        stream.to_memory()
    b.where("k > 0").to_memory()
    sinks = flow._sinks
    nodes = {source.name for source in taken_by_one(sinks, operators_of(sinks))}
    assert nodes == {"a"}


def operators_of(sinks: Any) -> list[Any]:
    from penstock.flow.graph import OperatorNode, walk

    return [node for node in walk(*(sink.node for sink in sinks)) if isinstance(node, OperatorNode)]
