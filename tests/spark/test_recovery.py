"""Failures inside an epoch: a rerun gives the same rows once, and damaged state is refused, never replaced."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from tests.oracle import window_join as oracle
from tests.spark.conftest import Feed
from tests.streams import COLUMNS, pairs_of, table

pytestmark = pytest.mark.spark

EPOCHS = 4


@pytest.fixture
def feeds(tmp_path) -> list[Feed]:
    """Left and right: 40 rows an epoch each, five keys, one step of time per row."""
    made = [Feed(tmp_path / name, COLUMNS) for name in ("left", "right")]
    for epoch in range(EPOCHS):
        for port, source in enumerate(made):
            source.add(table(rows_of(epoch, port)))
    return made


def rows_of(epoch: int, port: int) -> list[dict[str, int]]:
    return [{"k": (3 * n + port) % 5, "t": 40 * epoch + n, "id": 1000 * port + 40 * epoch + n} for n in range(40)]


def expected(how: str = "left"):
    left, right = ([row for epoch in range(EPOCHS) for row in rows_of(epoch, port)] for port in (0, 1))
    return oracle.window_join(left, right, oracle.band(-30, 30), how)


def build(spark, feeds, tmp_path, shards=2):
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB", shards=shards)
    left, right = (
        flow.source(source.stream(spark), time="t", progress=pk.ordered(), name=name)
        for source, name in zip(feeds, ("left", "right"), strict=True)
    )
    return flow, left.join(right, on="k", within=pk.band(30, 30), how="left")


def read(spark, path: Path) -> pa.Table:
    return spark.read.parquet(str(path)).select("id", "id_right").toArrow()


def test_an_epoch_that_fails_after_its_rows_were_written_is_done_again_once(spark, feeds, tmp_path):
    class SinkFailedError(Exception):
        pass

    failing = {1, 2}

    def fail(rows, epoch):
        if epoch in failing:
            failing.discard(epoch)
            raise SinkFailedError(epoch)

    for attempt in range(3):
        flow, joined = build(spark, feeds, tmp_path, shards=1 + attempt)
        joined.to_parquet(str(tmp_path / "out"))
        joined.foreach_epoch(fail)
        if attempt < 2:
            with pytest.raises(Exception, match="SinkFailedError"):
                flow.run()
        else:
            flow.run()
    assert pairs_of(read(spark, tmp_path / "out").to_batches()) == expected()


def test_a_rerun_of_an_epoch_brings_the_same_rows_under_the_same_number(spark, feeds, tmp_path):
    seen: dict[int, list] = {}
    failed = []

    def record(rows, epoch):
        seen.setdefault(epoch, []).append(sorted(map(str, rows.select("id", "id_right").collect())))
        if epoch == 2 and not failed:
            failed.append(epoch)
            raise RuntimeError("once")

    for _ in range(2):
        flow, joined = build(spark, feeds, tmp_path, shards=2 + len(failed))
        joined.foreach_epoch(record)
        with contextlib.suppress(Exception):
            flow.run()
    assert len(seen[2]) == 2
    assert seen[2][0] == seen[2][1]


def pages(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "checkpoint" / "state").rglob("*.arrow"))


@pytest.mark.parametrize("damage", ["missing", "flipped", "truncated"])
def test_a_damaged_page_is_refused_and_nothing_is_lost(spark, feeds, tmp_path, damage):
    first = [Feed(source.folder.with_name(source.folder.name + "-part"), COLUMNS) for source in feeds]
    for epoch in range(2):
        for port, source in enumerate(first):
            source.add(table(rows_of(epoch, port)))
    flow, joined = build(spark, first, tmp_path)
    joined.to_parquet(str(tmp_path / "out"))
    flow.run(end=False)
    before = {path: path.read_bytes() for path in pages(tmp_path)}
    assert before
    for path, content in before.items():
        if damage == "missing":
            path.unlink()
        elif damage == "flipped":
            middle = len(content) // 2
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        else:
            path.write_bytes(content[:-100])
    for epoch in range(2, EPOCHS):
        for port, source in enumerate(first):
            source.add(table(rows_of(epoch, port)))
    flow, joined = build(spark, first, tmp_path)
    joined.to_parquet(str(tmp_path / "out"))
    with pytest.raises(
        pk.StateError, match=r"State file .*\.arrow is (missing|not what was written).*Restore the file"
    ):
        flow.run()
    for path, content in before.items():
        path.write_bytes(content)
    flow, joined = build(spark, first, tmp_path)
    joined.to_parquet(str(tmp_path / "out"))
    flow.run()
    assert pairs_of(read(spark, tmp_path / "out").to_batches()) == expected()


def test_only_pages_that_the_last_two_versions_need_are_kept(spark, feeds, tmp_path):
    flow, joined = build(spark, feeds, tmp_path)
    joined.to_format("noop")
    flow.run(end=False)
    ledgers = sorted((tmp_path / "checkpoint" / "ledger").glob("*.json"))
    assert len(ledgers) == 2
    needed = "".join(ledger.read_text() for ledger in ledgers)
    assert pages(tmp_path)
    assert all(path.name in needed for path in pages(tmp_path))


@pytest.mark.parametrize("lost", ["ledger", "spark"])
def test_a_checkpoint_that_has_lost_a_part_is_refused(spark, feeds, tmp_path, lost):
    flow, joined = build(spark, feeds, tmp_path)
    joined.to_format("noop")
    flow.run(end=False)
    shutil.rmtree(tmp_path / "checkpoint" / lost)
    kept = pages(tmp_path)
    flow, joined = build(spark, feeds, tmp_path)
    joined.to_format("noop")
    with pytest.raises(pk.StateError, match=f"{lost}.* is missing"):
        flow.run()
    assert pages(tmp_path) == kept
