"""The source `penstock-trace`: the same rows between the same places, all of them once, over restarts too."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from lab.trace_source import NAME, TraceReader, TraceSource
from lab.workloads.traces import replay_of
from penstock import ConfigError

pytestmark = pytest.mark.spark

OPTIONS = {
    "trace": json.dumps({"kind": "composite", "rate": 100, "span": "1 min", "cap": 500, "payload": 8, "seed": 7}),
    "changes": json.dumps([{"kind": "pause", "at": "20 s", "length": "1 min"}]),
    "disorder": "3 s",
}
REPLAY = replay_of(OPTIONS)
ROWS = 6000


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(TraceSource)
    return spark


def stream(spark: SparkSession, **more: object) -> DataFrame:
    reader = spark.readStream.format(NAME)
    for name, value in (OPTIONS | more).items():
        reader = reader.option(name, value)
    return reader.load()


class Batches:
    """A sink that keeps each micro-batch's ids; it fails where it is told to, after the rows were read."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.ids: dict[int, list[int]] = {}
        self.fails_at = fails_at

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.ids[batch] = rows.toArrow().column("id").to_pylist()
        if batch == self.fails_at:
            raise RuntimeError("stopped on purpose")


def run(rows: DataFrame, sink: Batches, checkpoint: object) -> None:
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def arrival(start: int, stop: int) -> list[int]:
    return pa.concat_tables(REPLAY.slices(start, stop)).column("id").to_pylist()


def test_all_rows_arrive_once_with_the_traces_columns_and_values(registered, tmp_path):
    rows = stream(registered, rowsPerBatch=2500, partitions=2)
    assert [(field.name, field.dataType.typeName()) for field in rows.schema] == [
        ("t", "timestamp"),
        ("key", "long"),
        ("id", "long"),
        ("payload", "binary"),
    ]
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    out = pq.read_table(tmp_path / "out", schema=REPLAY.schema)
    assert out.num_rows == ROWS
    assert out.sort_by("id") == REPLAY.table().sort_by("id")


def test_two_reads_of_the_same_places_give_the_same_rows_however_they_are_cut(registered, tmp_path):
    whole, cut = Batches(), Batches()
    run(stream(registered, rowsPerBatch=2000), whole, tmp_path / "one")
    run(stream(registered, rowsPerBatch=2000, partitions=3), cut, tmp_path / "two")
    expected = {batch: arrival(2000 * batch, 2000 * (batch + 1)) for batch in range(3)}
    assert whole.ids == expected
    assert {batch: sorted(ids) for batch, ids in cut.ids.items()} == {b: sorted(i) for b, i in expected.items()}


def test_a_restart_goes_on_exactly_where_the_query_was(registered, tmp_path):
    first, second = Batches(fails_at=1), Batches()
    with pytest.raises(Exception, match="stopped on purpose"):
        run(stream(registered, rowsPerBatch=1500), first, tmp_path)
    run(stream(registered, rowsPerBatch=1000), second, tmp_path)
    assert sorted(first.ids) == [0, 1]
    assert second.ids[1] == first.ids[1] == arrival(1500, 3000)
    assert [*first.ids[0], *(id_ for batch in sorted(second.ids) for id_ in second.ids[batch])] == arrival(0, ROWS)
    assert [len(second.ids[batch]) for batch in sorted(second.ids)] == [1500, 1000, 1000, 1000]


def test_a_query_with_an_interval_takes_as_many_rows_per_batch_as_it_should(registered, tmp_path):
    sink = Batches()
    writer = stream(registered, rowsPerBatch=4000).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert [len(ids) for ids in sink.ids.values()] == [4000, 2000]
    assert sink.ids[1] == arrival(4000, ROWS)


def test_a_batch_is_cut_into_parts_without_gaps():
    reader = TraceReader(REPLAY, rows_per_batch=10, tasks=3)
    assert [(part.start, part.stop) for part in reader.partitions({"row": 5}, {"row": 15})] == [
        (5, 8),
        (8, 11),
        (11, 15),
    ]
    assert [(part.start, part.stop) for part in reader.partitions({"row": 5}, {"row": 6})] == [(5, 6)]
    assert reader.partitions({"row": 5}, {"row": 5}) == []
    parts = [batch for part in reader.partitions({"row": 5}, {"row": 15}) for batch in reader.read(part)]
    assert pa.Table.from_batches(parts) == pa.concat_tables(REPLAY.slices(5, 15))


def test_the_limit_is_kept_unless_the_trigger_wants_all():
    reader = TraceReader(REPLAY, rows_per_batch=10, tasks=1)
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(10)) == {"row": 10}
    assert reader.latestOffset({"row": ROWS - 3}, ReadMaxRows(10)) == {"row": ROWS}
    assert reader.latestOffset({"row": 0}, ReadAllAvailable()) == reader.reportLatestOffset() == {"row": ROWS}


def test_a_checkpoint_of_a_longer_trace_is_refused():
    reader = TraceReader(REPLAY, rows_per_batch=10, tasks=1)
    with pytest.raises(ConfigError, match="The checkpoint is at row 7000, but the trace has 6000"):
        reader.latestOffset({"row": 7000}, ReadMaxRows(10))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"rowsPerBatch": "0"}, "rowsPerBatch='0' is no number of rows. Write 1 or more."),
        ({"partitions": "many"}, "partitions='many' is no number of tasks. Write 1 or more."),
        ({"rowPerBatch": "5"}, "'rowPerBatch' is no option of penstock-trace. Did you mean 'rowsPerBatch'?"),
        ({"zzz": "5"}, "'zzz' is no option of penstock-trace. It has: trace, changes, disorder, rowsPerBatch"),
    ],
)
def test_options_that_mean_nothing_are_refused(more, says):
    with pytest.raises(ConfigError) as error:
        TraceSource(OPTIONS | more).streamReader(None)
    assert says in str(error.value)
