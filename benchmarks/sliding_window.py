"""Sliding-window counts and means, the same rows through every engine: ``penstock bench sliding-window``.

The job: ``count(*)`` and ``avg(value)`` by one of 1,000 keys, over windows of ``range`` every minute, into a sink that
drops the rows, for range / slide = 1, 12, 60 and 720; and at 60 the median. Rows arrive up to 20 s out of order and the
watermark allows 30 s. A micro-batch is one file: 100,000 rows, two minutes of event time; the full benchmark also runs
micro-batches of a million rows. DuckDB says how many results must have come out at the end, and an engine that gives
another number fails the benchmark. The same files run through

- ``penstock``: ``.window(range=…, slide="1 min").by("key").agg(n=pk.count(), mean=pk.mean("value"))``;
- ``spark-rocksdb``: Spark's own ``groupBy(window(…), key)`` with RocksDB and changelog checkpoints;
- ``spark-panes``: the query that people write by hand: one-minute windows, then a window over their results;
- ``floor``: the native aggregation by pane and key alone, which no engine on Spark can go below.

What is timed is said in window_join.py. Spark's own query gets ``PATIENCE`` seconds per run; its rate is
then that of the micro-batches it finished. Names with ``@``: at another range / slide than 60, or of the median.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import window_join as base

KEYS = 1000
BATCHES = 10
QUICK_BATCHES = 6
BATCH_ROWS = 100_000
LARGE_BATCH_ROWS = 1_000_000
SLIDE_S = 60
BATCH_MS = 2 * SLIDE_S * 1000
DELAY_S = 30
PATIENCE = 60
RATIOS = (1, 12, 60, 720)
MAIN = 60


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked: how many slides a window lasts, and whether for the median instead of count and mean."""

    ratio: int
    median: bool = False

    @property
    def name(self) -> str:
        """As it stands after the engine's name."""
        return "@median" if self.median else "" if self.ratio == MAIN else f"@{self.ratio}"

    @property
    def range(self) -> str:
        """As Spark and penstock write it."""
        return f"{self.ratio * SLIDE_S} seconds"


Engine = Callable[[base.Workload, Job, float | None], base.Result]


def main(quick: bool) -> dict[str, object]:
    """Run every engine, print the table and, as the last line, the JSON that is also returned."""
    results: dict[str, base.Result] = {}
    with tempfile.TemporaryDirectory(prefix="sliding-window-", ignore_cleanup_errors=True) as directory:
        workload = generate(Path(directory) / "timed", BATCH_ROWS, QUICK_BATCHES if quick else BATCHES)
        print(f"{workload.rows:,} rows in, {KEYS:,} keys, {BATCH_ROWS:,} rows per micro-batch")
        warm_up(generate(Path(directory) / "throw-away", BATCH_ROWS // 10, 3))
        for turn in range(1 if quick else 2):
            run_all(workload, quick, results, turn)
        if not quick:
            large = generate(Path(directory) / "large", LARGE_BATCH_ROWS, 4)
            for name, engine in {"penstock": penstock, "floor": floor, "spark-rocksdb": spark_rocksdb}.items():
                keep(results, f"{name}@1M", engine(large, Job(MAIN), 3 * PATIENCE))
    summary = summarise(results)
    print_table(results, summary["ratio"])
    whole: dict[str, object] = {"bench": "sliding-window", **summary}
    print(json.dumps(whole))
    return whole


def warm_up(workload: base.Workload) -> None:
    for engine in (penstock, spark_rocksdb, spark_panes, floor):
        engine(workload, Job(12), None)


def run_all(workload: base.Workload, quick: bool, results: dict[str, base.Result], turn: int) -> None:
    """Every engine at its jobs, every other turn in reverse; the better of an engine's runs counts."""
    jobs: list[tuple[str, Engine, Job]] = [("penstock", penstock, Job(ratio)) for ratio in reversed(RATIOS)]
    jobs += [("penstock", penstock, Job(MAIN, median=True)), ("floor", floor, Job(MAIN))]
    jobs += [("spark-rocksdb", spark_rocksdb, Job(ratio)) for ratio in RATIOS if not quick or ratio != 12]
    jobs += [("spark-panes", spark_panes, Job(MAIN))]
    if not quick:
        jobs.append(("spark-rocksdb", spark_rocksdb, Job(MAIN, median=True)))
    for name, engine, job in jobs[:: (-1) ** turn]:
        keep(results, name + job.name, engine(workload, job, PATIENCE / 2 if quick else PATIENCE))


def keep(results: dict[str, base.Result], name: str, result: base.Result) -> None:
    if result.rows_out != result.rows_expected:
        raise base.WrongResultError.of(name, result)
    print(f"  {name}: {result.rows_per_second:,.0f} rows/s", file=sys.stderr)
    results[name] = max(results.get(name, result), result, key=lambda run: run.rows_per_second)


def generate(directory: Path, rows_per_batch: int, batches: int) -> base.Workload:
    rng = np.random.default_rng(3)
    rows = rows_per_batch * batches
    ms = rng.integers(0, batches * BATCH_MS, rows)
    ms = ms[np.argsort(ms + rng.integers(0, base.DISORDER_MS, rows), kind="stable")] + base.START_MS
    columns = {
        "key": pa.array(rng.integers(0, KEYS, rows)),
        "ts": pa.array(ms * 1000).cast(pa.timestamp("us", tz="UTC")),
        "value": pa.array(rng.integers(0, 1000, rows).astype(float)),
    }
    base.write_parquet(pa.table(columns), directory / "parquet", rows_per_batch)
    return base.Workload(directory, rows_per_batch, batches, 0)


def expected(workload: base.Workload, job: Job) -> int:
    """How many windows and keys are complete once the watermark stands 30 s before the latest row."""
    slide, length = SLIDE_S * 10**6, job.ratio * SLIDE_S * 10**6
    query = f"""
        WITH panes AS (SELECT DISTINCT key, epoch_us(ts) // {slide} AS pane
                       FROM '{workload.directory}/parquet/*.parquet'),
             last AS (SELECT max(epoch_us(ts)) - {DELAY_S * 10**6} AS bound
                      FROM '{workload.directory}/parquet/*.parquet'),
             windows AS (SELECT DISTINCT key, unnest(range(pane + 1, pane + 1 + {length // slide})) AS ends FROM panes)
        SELECT count(*) FROM windows, last WHERE ends * {slide} <= bound"""
    [(count,)] = duckdb.sql(query).fetchall()
    return int(count)


def stream(spark: SparkSession, workload: base.Workload) -> DataFrame:
    source = spark.readStream.schema("key bigint, ts timestamp, value double").option("maxFilesPerTrigger", 1)
    return source.parquet(str(workload.directory / "parquet"))


def penstock(workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    import penstock as pk

    spark = base.session({})
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=f"{base.MEMORY_MB} MB")
        rows = flow.source(stream(spark, workload), time="ts", progress=pk.bounded_delay(f"{DELAY_S} s"))
        asked = {"mid": pk.median("value")} if job.median else {"n": pk.count(), "mean": pk.mean("value")}
        rows.window(range=job.range, slide=f"{SLIDE_S} s").by("key").agg(**asked).to_format("noop")
        query = flow.run(end=False)
        return base.timed(workload, query.streaming_query, query.progress().rows_out, expected(workload, job))


def spark_rocksdb(workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    rows = stream(rocksdb_session(), workload).withWatermark("ts", f"{DELAY_S} seconds")
    window = F.window("ts", job.range, f"{SLIDE_S} seconds")
    asked = [F.percentile("value", 0.5)] if job.median else [F.count("*"), F.avg("value")]
    return native(rows.groupBy(window, "key").agg(*asked), workload, job, patience)


def spark_panes(workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    """Tumbling windows of a slide, then windows over their results."""
    rows = stream(rocksdb_session(), workload).withWatermark("ts", f"{DELAY_S} seconds")
    panes = rows.groupBy(F.window("ts", f"{SLIDE_S} seconds").alias("pane"), "key")
    panes = panes.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    window = F.window(F.window_time("pane"), job.range, f"{SLIDE_S} seconds")
    whole = panes.groupBy(window, "key").agg(F.sum("n").alias("n"), (F.sum("total") / F.sum("n")).alias("mean"))
    return native(whole, workload, job, patience)


def rocksdb_session() -> SparkSession:
    return base.session(
        {
            "spark.sql.streaming.stateStore.providerClass": f"{base.STATE_STORES}.RocksDBStateStoreProvider",
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        }
    )


def native(results: DataFrame, workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        writer = results.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        finished = query.awaitTermination(patience) if patience else query.awaitTermination() is None
        query.stop()
        if not query.recentProgress:
            # Not one micro-batch in all that time: its rate is less than this.
            return base.Result(workload.rows_per_batch, 0, 0, patience or 0, workload.rows_per_batch)
        rows_out = sum(progress.sink.numOutputRows for progress in query.recentProgress)
        return base.timed(workload, query, rows_out, expected(workload, job) if finished else rows_out)


def floor(workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    """The native aggregation by pane and key alone, one micro-batch at a time."""
    spark = base.session({})

    def epoch(rows: DataFrame, number: int) -> None:
        pane = F.expr(f"unix_micros(ts) - pmod(unix_micros(ts), {SLIDE_S * 10**6})")
        panes = rows.groupBy(pane.alias("pane"), "key").agg(F.count("*"), F.sum("value"), F.count("value"))
        panes.write.format("noop").mode("append").save()

    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        query = base.finish(stream(spark, workload).writeStream.foreachBatch(epoch), checkpoint)
        return base.timed(workload, query, 0, 0)


def print_table(results: Mapping[str, base.Result], ratio: Mapping[str, float]) -> None:
    rows = [("engine @ range / slide", "rows/s", "warm batch, s", "penstock ÷ it")]
    for name, result in results.items():
        batch = "–" if result.batch_seconds is None else f"{result.batch_seconds:.2f}"
        shown = name if "@" in name else f"{name} @ {MAIN}"
        rows.append((shown, f"{result.rows_per_second:,.0f}", batch, f"{ratio[name]:.2f}" if name in ratio else ""))
    base.print_plain(rows)


def summarise(results: Mapping[str, base.Result]) -> dict[str, dict[str, float]]:
    """Rates, and penstock's at the same job as a multiple of each."""
    rates = {name: round(result.rows_per_second) for name, result in results.items()}
    ratio = {}
    for name, rate in rates.items():
        engine, at, job = name.partition("@")
        if engine != "penstock":
            ratio[name] = round(rates["penstock" + at + job] / rate, 2)
    return {"rows_per_second": rates, "ratio": ratio}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
