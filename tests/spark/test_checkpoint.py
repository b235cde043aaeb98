"""What a checkpoint must survive: partial restores, wrong folders, a second driver, and random damage to its files."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from penstock.core.errors import CheckpointError, LeaseError, PenstockError
from penstock.storage import lease as leases
from tests.oracle import window_join as oracle
from tests.spark.conftest import Feed
from tests.spark.corrupting import KINDS, Damage, refused, spark_refuses, what_counts
from tests.storage.test_lease import replaced
from tests.streams import COLUMNS, pairs_of, table

pytestmark = pytest.mark.spark


def rows_of(epoch: int, port: int) -> list[dict[str, int]]:
    return [{"k": (3 * n + port) % 5, "t": 40 * epoch + n, "id": 1000 * port + 40 * epoch + n} for n in range(40)]


@dataclass
class Stage:
    """Two streams in a folder, joined into Parquet from one checkpoint."""

    spark: Any
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def add(self, *epochs: int) -> None:
        for port, name in enumerate(("left", "right")):
            feed = Feed(self.folder / name, COLUMNS, count=epochs[0])
            for epoch in epochs:
                feed.add(table(rows_of(epoch, port)))

    def flow(self, inputs: Path | None = None) -> Any:
        inputs = inputs or self.folder
        flow = pk.Flow(self.spark, checkpoint=str(self.checkpoint), memory="64 MB", shards=2)
        left, right = (
            flow.source(Feed(inputs / name, COLUMNS).stream(self.spark), time="t", progress=pk.ordered(), name=name)
            for name in ("left", "right")
        )
        left.join(right, on="k", within=pk.band(before=30, after=30), how="left").to_parquet(str(self.folder / "out"))
        return flow

    def results(self) -> Counter:
        rows = self.spark.read.parquet(str(self.folder / "out")).select("id", "id_right").toArrow()
        return pairs_of(rows.to_batches())


def expected(*epochs: int) -> Counter:
    left, right = ([row for epoch in epochs for row in rows_of(epoch, port)] for port in (0, 1))
    return oracle.window_join(left, right, oracle.band(-30, 30), "left")


@pytest.fixture(scope="module")
def prepared(spark, tmp_path_factory) -> Stage:
    """A checkpoint after four epochs, a copy of it after two (``older``), and files of two more epochs to read."""
    stage = Stage(spark, tmp_path_factory.mktemp("prepared"))
    stage.add(0, 1)
    stage.flow().run(end=False)
    shutil.copytree(stage.checkpoint, stage.folder / "older")
    stage.add(2, 3)
    stage.flow().run(end=False)
    stage.add(4, 5)
    return stage


@pytest.fixture
def copied(prepared, spark, tmp_path) -> Stage:
    for name in ("checkpoint", "out"):
        shutil.copytree(prepared.folder / name, tmp_path / name)
    return Stage(spark, tmp_path)


# Partial restores


def test_f03_files_of_spark_that_are_older_than_the_ledger_are_refused(prepared, copied):
    """Spark would give the number of a committed epoch to other rows, and they were skipped."""
    shutil.copytree(copied.checkpoint / "spark", copied.folder / "newest")
    newest = max(int(path.name) for path in (copied.checkpoint / "spark" / "offsets").glob("[0-9]*"))
    for name in ("offsets", "commits"):
        (copied.checkpoint / "spark" / name / str(newest)).unlink()
    with pytest.raises(CheckpointError, match=rf"spark/offsets/{newest} had checksum \w+ then and is gone\..*Restore"):
        copied.flow(prepared.folder).run()
    shutil.rmtree(copied.checkpoint / "spark")
    shutil.copytree(prepared.folder / "older" / "spark", copied.checkpoint / "spark")
    with pytest.raises(CheckpointError, match=rf"Spark would give epoch {newest} of checkpoint .* other rows"):
        copied.flow(prepared.folder).run()
    shutil.rmtree(copied.checkpoint / "spark")
    shutil.copytree(copied.folder / "newest", copied.checkpoint / "spark")
    copied.flow(prepared.folder).run()
    assert copied.results() == expected(0, 1, 2, 3, 4, 5)


def test_f03_a_ledger_that_is_older_than_the_files_of_spark_is_refused(prepared, copied):
    for name in ("ledger", "plan", "state"):
        shutil.rmtree(copied.checkpoint / name)
        shutil.copytree(prepared.folder / "older" / name, copied.checkpoint / name)
    with pytest.raises(CheckpointError, match=r"Spark asks for epoch \d+, but \d+ is the last one committed"):
        copied.flow(prepared.folder).run()


# Wrong folders


def test_f06_a_folder_of_somebody_else_is_refused_and_not_touched(spark, tmp_path):
    stage = Stage(spark, tmp_path)
    stage.add(0)
    mine = stage.checkpoint / "state" / "join0"
    mine.mkdir(parents=True)
    (mine / "measured.csv").write_text("1,2")
    (mine / "flow.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint and not empty: it has state, but no flow\.json"):
        stage.flow().run()
    assert sorted(path.name for path in stage.checkpoint.rglob("*")) == ["flow.json", "join0", "measured.csv", "state"]


# Two drivers


def test_f07_a_second_start_is_refused_while_the_first_runs_and_works_after_it(spark, tmp_path):
    stage = Stage(spark, tmp_path)
    stage.add(0, 1)
    first = stage.flow().start(trigger="100 ms")
    try:
        with pytest.raises(LeaseError, match=r"is in use: process \d+ of .* since .* UTC has it"):
            stage.flow().start()
        with pytest.raises(LeaseError, match="is in use"):
            stage.flow().run()
        assert first.streaming_query.isActive
    finally:
        first.stop()
    stage.flow().run()
    assert stage.results() == expected(0, 1)


def test_f07_a_flow_that_failed_can_be_started_again_at_once(spark, tmp_path):
    Stage(spark, tmp_path).add(0)

    def fail(rows: Any, epoch: int) -> None:
        raise RuntimeError("once")

    flow = pk.Flow(spark, checkpoint=str(tmp_path / "other"), memory="64 MB")
    source = flow.source(Feed(tmp_path / "left", COLUMNS).stream(spark), time="t", progress=pk.ordered())
    source.foreach_epoch(fail)
    for start in (lambda: flow.start(trigger="100 ms").await_end(), flow.run):
        with pytest.raises(Exception, match="once"):
            start()


def test_f07_whatever_fails_once_another_driver_has_the_checkpoint_is_told_as_that(spark, tmp_path):
    stage = Stage(spark, tmp_path)
    stage.add(0)

    def lose(rows: Any, epoch: int) -> None:
        (lease,) = leases._HELD.values()
        replaced(lease.records, lease)
        raise FileNotFoundError("a page that the other driver deleted")

    flow = pk.Flow(spark, checkpoint=str(tmp_path / "other"), memory="64 MB")
    source = flow.source(Feed(tmp_path / "left", COLUMNS).stream(spark), time="t", progress=pk.ordered())
    source.foreach_epoch(lose)
    with pytest.raises(LeaseError, match="has lost its lease"):
        flow.run()


# Random damage

CASES = 200
IN_FULL = 6
"""So many of them run in CI: each takes seconds. The others are judged by what a start goes by."""


def test_f04_random_damage_is_refused_or_changes_nothing(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "PATIENCE", 0.0)
    flow, whole = prepared.flow()._fingerprint(), what_counts(prepared.checkpoint)
    verdicts: Counter = Counter()
    for seed in range(CASES):
        hurt = tmp_path / "checkpoint"
        shutil.copytree(prepared.checkpoint, hurt)
        done = Damage(seed).apply(hurt, prepared.folder / "older")
        if refused(hurt, flow):
            verdicts["refused"] += 1
        elif spark_refuses(hurt):
            verdicts["refused by Spark"] += 1
        else:
            verdicts["unharmed"] += 1
            assert what_counts(hurt) == whole, done
        shutil.rmtree(hurt)
    assert verdicts["refused"] > CASES // 3, verdicts


def in_full(prepared: Stage, copied: Stage, seed: int) -> None:
    done = Damage(seed).apply(copied.checkpoint, prepared.folder / "older")
    try:
        copied.flow(prepared.folder).run()
    except PenstockError:
        return
    except Exception:
        if " of spark/" in done:  # Spark found it, and says so in its own way.
            return
        raise
    assert copied.results() == expected(0, 1, 2, 3, 4, 5), done


@pytest.mark.parametrize("seed", range(0, IN_FULL * (len(KINDS) + 1), len(KINDS) + 1))
def test_f04_a_flow_on_a_damaged_checkpoint_stops_or_gives_what_it_would_have(prepared, copied, monkeypatch, seed):
    monkeypatch.setattr(leases, "PATIENCE", 0.0)
    in_full(prepared, copied, seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(CASES))
def test_f04_the_same_in_full(prepared, copied, monkeypatch, seed):
    monkeypatch.setattr(leases, "PATIENCE", 0.0)
    in_full(prepared, copied, seed)
