"""`head` on Spark: exactly so many rows, over restarts, shards and failures, and then the query ends by itself."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
EPOCHS, ROWS, WANTED = 5, 40, 150


def part(epoch: int, port: int) -> pa.Table:
    """Rows of one side: two of each key, so that an epoch has 80 pairs of its own and 160 with each one before."""
    ids = [port * 10**6 + epoch * ROWS + n for n in range(ROWS)]
    return pa.table([[n // 2 for n in range(ROWS)], [epoch * ROWS + n for n in range(ROWS)], ids], schema=SCHEMA)


@pytest.fixture
def feeds(tmp_path) -> list[Feed]:
    both = [Feed(tmp_path / name, SCHEMA) for name in ("left", "right")]
    for port, feed in enumerate(both):
        for epoch in range(EPOCHS):
            feed.add(part(epoch, port))
    return both


def flow(spark, tmp_path, feeds, shards=2, fail=None, wanted=WANTED, files=False) -> pk.Flow:
    made = pk.Flow(spark, str(tmp_path / "checkpoint"), memory="32 MB", shards=shards)
    left, right = (
        made.parquet(feed.folder, time="t", name=feed.folder.name, max_files=1)
        if files
        else made.source(feed.stream(spark), time="t", name=feed.folder.name)
        for feed in feeds
    )
    first = left.join(right, on="k").select("k", "id", "id_right", "t").head(wanted)
    first.to_parquet(str(tmp_path / "out"))
    if fail is not None:
        first.foreach_epoch(fail)
    return made


def results(tmp_path) -> list[tuple[int, int]]:
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert all(row["id"] % ROWS // 2 == row["id_right"] % 10**6 % ROWS // 2 == row["k"] for row in found)
    pairs = [(row["id"], row["id_right"]) for row in found]
    assert len(set(pairs)) == len(pairs)
    return pairs


@pytest.mark.parametrize("files", [False, True])
def test_the_flow_ends_with_its_rows_and_gives_nothing_more_when_it_is_run_again(spark, tmp_path, feeds, files):
    query = flow(spark, tmp_path, feeds, files=files).run()
    assert query.status.state == "ended"
    assert query.progress().totals.epochs == 2, "80 pairs, then 240 more"
    assert len(results(tmp_path)) == WANTED
    for again in (flow(spark, tmp_path, feeds, files=files).run(), flow(spark, tmp_path, feeds, files=files).start()):
        assert again.await_end(5)
        assert again.status.state == "ended"
        assert again.progress().totals.epochs == 0
    assert len(results(tmp_path)) == WANTED


def test_a_query_that_was_started_stops_by_itself(spark, tmp_path, feeds):
    query = flow(spark, tmp_path, feeds).start(trigger="100 ms")
    assert query.await_end(60)
    assert query.status.state == "ended"
    assert query.exception is None
    assert len(results(tmp_path)) == WANTED


def test_restarts_on_other_shards_and_a_failed_epoch_give_the_same_rows(spark, tmp_path, feeds):
    """One sink fails after the last epoch's rows are written by another; the rerun on other shards repeats them."""
    written = []

    def fail(rows, epoch):
        if not written and epoch == 2:
            written.extend(results(tmp_path))
            raise RuntimeError("on purpose")

    count = 80 + 240 + 100
    few = [Feed(feed.folder.with_name(f"{feed.folder.name}-few"), SCHEMA) for feed in feeds]
    for number, shards in enumerate((2, 3)):
        for port, feed in enumerate(few):
            feed.add(part(number, port))
        flow(spark, tmp_path, few, shards, fail, count).run(end=False)
    assert len(results(tmp_path)) == 320
    for port, feed in enumerate(few):
        feed.add(part(2, port))
    with pytest.raises(pk.FlowError, match="on purpose"):
        flow(spark, tmp_path, few, 1, fail, count).run()
    query = flow(spark, tmp_path, few, 2, fail, count).run()
    assert query.status.state == "ended"
    assert sorted(results(tmp_path)) == sorted(written)
    assert len(written) == count


def test_a_flow_that_ended_with_too_few_rows_is_refused_as_any_that_has_ended(spark, tmp_path, feeds):
    flow(spark, tmp_path, feeds, wanted=10**6).run()
    assert len(results(tmp_path)) == EPOCHS * EPOCHS * 80
    with pytest.raises(pk.CheckpointError, match="have ended"):
        flow(spark, tmp_path, feeds, wanted=10**6).run()


def test_another_number_of_rows_is_refused(spark, tmp_path, feeds):
    flow(spark, tmp_path, feeds).run(end=False)
    with pytest.raises(pk.CheckpointError, match="rows: was 150, is now 151"):
        flow(spark, tmp_path, feeds, wanted=151).run()
