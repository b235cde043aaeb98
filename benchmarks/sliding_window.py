"""Sliding-window counts and means, the same rows through every engine: ``penstock bench sliding-window``.

The job: ``count(*)`` and ``avg(value)`` by one of 1,000 keys, over windows of ``range`` every minute, into a sink that
drops the rows, for range / slide = 1, 12, 60 and 720; and at 60 the median. Rows arrive up to 20 s out of order and the
watermark allows 30 s. A micro-batch is one file: 100,000 rows, two minutes of event time; the full benchmark also runs
micro-batches of a million rows. DuckDB says how many results must have come out at the end, and an engine that gives
another number fails the benchmark. The same files run through

- ``penstock``: ``.window(range=…, slide="1 min").by("key").agg(n=pk.count(), mean=pk.mean("value"))``, the files read
  by Arrow (``flow.parquet``);
- ``dataframe``: the same over a streaming DataFrame that Spark scans, at 60;
- ``spark-rocksdb``: Spark's own ``groupBy(window(…), key)`` with RocksDB and changelog checkpoints;
- ``spark-panes``: the query that people write by hand: one-minute windows, then a window over their results;
- ``flink-rocksdb``: Flink SQL's ``HOP`` with RocksDB (flink_sliding_window.py says what is timed), if it is installed;
- ``floor``: the native aggregation by pane and key alone, which no engine on Spark can go below.

What is timed is said in window_join.py. A peer gets ``PATIENCE`` seconds per run: its rate is then that of the
micro-batches it finished; if none of those is warm, or if it has no micro-batches, all that is known is a bound, which
stands with ``<`` in the table and under ``bounds`` in the JSON. Names with ``@``: at another range / slide than 60, of
the median, or with micro-batches of a million rows. The full benchmark runs all in the listed order, then in the
reverse one, and the better rate counts; ``--quick`` is one round over six micro-batches, with Flink at 60 only.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
LARGE_BATCHES = 5
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


JOBS = [*(Job(ratio) for ratio in RATIOS), Job(MAIN, median=True)]


@dataclass(frozen=True, slots=True)
class Unfinished(base.Result):
    """A run that was stopped before it told its rate: that is less than this."""


Engine = Callable[[base.Workload, Job, float | None], base.Result]


class Run(NamedTuple):
    """One job for one engine."""

    name: str
    engine: Engine
    job: Job


def main(quick: bool) -> dict[str, object]:
    """Run every engine, print the table and, as the last line, the JSON that is also returned."""
    results: dict[str, base.Result] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="sliding-window-", ignore_cleanup_errors=True) as directory:
        workload = generate(Path(directory) / "timed", BATCH_ROWS, QUICK_BATCHES if quick else BATCHES)
        print(f"{workload.rows:,} rows in, {KEYS:,} keys, {BATCH_ROWS:,} rows per micro-batch")
        warm_up(generate(Path(directory) / "throw-away", BATCH_ROWS // 10, 3))
        runs = quick_runs() if quick else full_runs()
        for turn in range(1 if quick else 2):
            run_all(runs[:: (-1) ** turn], workload, PATIENCE / 2 if quick else PATIENCE, results, missing)
        if not quick:
            large = generate(Path(directory) / "large", LARGE_BATCH_ROWS, LARGE_BATCHES)
            # Flink has no micro-batches.
            run_all(spark_runs(), large, PATIENCE, results, missing, "@1M")
    summary = summarise(results)
    print_table(results, summary["ratio"], missing)
    bounds = [name for name, result in results.items() if isinstance(result, Unfinished)]
    whole: dict[str, object] = {"bench": "sliding-window", **summary, "bounds": bounds}
    print(json.dumps(whole))
    return whole


def warm_up(workload: base.Workload) -> None:
    for engine in (penstock, dataframe, spark_rocksdb, spark_panes, floor):
        engine(workload, Job(12), None)


def spark_runs() -> list[Run]:
    runs = [Run("penstock", penstock, job) for job in ours()] + [Run("floor", floor, Job(MAIN))]
    runs.append(Run("dataframe", dataframe, Job(MAIN)))
    runs += [Run("spark-rocksdb", spark_rocksdb, job) for job in JOBS]
    return [*runs, Run("spark-panes", spark_panes, Job(MAIN))]


def full_runs() -> list[Run]:
    return [*spark_runs(), *(Run("flink-rocksdb", flink_rocksdb, job) for job in JOBS)]


def quick_runs() -> list[Run]:
    left_out = {"spark-rocksdb@12", "spark-rocksdb@median"}
    runs = [run for run in spark_runs() if run.name + run.job.name not in left_out]
    return [*runs, Run("flink-rocksdb", flink_rocksdb, Job(MAIN))]


def ours() -> list[Job]:
    """From the longest windows, which the coldest JVM gets, to the shortest."""
    return [*(Job(ratio) for ratio in reversed(RATIOS)), Job(MAIN, median=True)]


def run_all(
    runs: Sequence[Run],
    workload: base.Workload,
    patience: float,
    results: dict[str, base.Result],
    missing: dict[str, str],
    epochs: str = "",
) -> None:
    """Keep each engine's best rate, and why others did not run."""
    for run in runs:
        name = run.name + run.job.name + epochs
        try:
            result = run.engine(workload, run.job, patience)
        except base.PeerMissingError as reason:
            missing[run.name] = str(reason)
            continue
        if result.rows_out != result.rows_expected:
            raise base.WrongResultError.of(name, result)
        print(f"  {name}: {shown_rate(result)} rows/s", file=sys.stderr)
        results[name] = max(results.get(name, result), result, key=lambda one: one.rows_per_second)


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
    base.write_csv(pa.table(columns), directory / "csv")
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
    """Over files that Arrow reads."""
    return windows(workload, job, files=True)


def dataframe(workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    """Over a streaming DataFrame."""
    return windows(workload, job, files=False)


def windows(workload: base.Workload, job: Job, files: bool) -> base.Result:
    import penstock as pk

    spark = base.session({})
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=f"{base.MEMORY_MB} MB")
        told = {"time": "ts", "progress": pk.bounded_delay(f"{DELAY_S} s")}
        folder = str(workload.directory / "parquet")
        rows = (
            flow.parquet(folder, max_files=1, **told)
            if files
            else flow.source(stream(spark, workload), scan="spark", **told)
        )
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
        done = [progress for progress in query.recentProgress if progress.numInputRows]
        if not finished and len(done) <= base.COLD_BATCHES:
            return unfinished(workload, (len(done) + 1) * workload.rows_per_batch, patience or 0)
        rows_out = sum(progress.sink.numOutputRows for progress in query.recentProgress)
        return base.timed(workload, query, rows_out, expected(workload, job) if finished else rows_out)


def unfinished(workload: base.Workload, rows: int, seconds: float) -> Unfinished:
    """What is known of a run that did not get through so many rows in that time."""
    return Unfinished(rows, 0, 0, seconds, workload.rows_per_batch)


def flink_rocksdb(workload: base.Workload, job: Job, patience: float | None) -> base.Result:
    seconds, rows = patience or 0, expected(workload, job)
    asked = {"--range": job.ratio * SLIDE_S, "--slide": SLIDE_S, "--delay": DELAY_S, "--rows": rows}
    asked |= {"--patience": seconds, "--ask": "median" if job.median else "count-mean"}
    arguments = [str(word) for option in asked.items() for word in option]
    report = base.peer("flink_sliding_window.py", str(workload.directory / "csv"), *arguments)
    if report["rows_out"] < rows and report["seconds"] >= seconds:
        return unfinished(workload, workload.rows, seconds)
    return base.Result(workload.rows, report["rows_out"], rows, report["seconds"], workload.rows_per_batch)


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


def print_table(results: Mapping[str, base.Result], ratio: Mapping[str, float], missing: Mapping[str, str]) -> None:
    rows = [("engine @ range / slide", "rows/s", "warm batch, s", "penstock ÷ it")]
    for name, result in results.items():
        batch = "–" if result.batch_seconds is None else f"{result.batch_seconds:.2f}"
        more = ">" if isinstance(result, Unfinished) else ""
        shown = name if "@" in name else f"{name} @ {MAIN}"
        rows.append((shown, shown_rate(result), batch, f"{more}{ratio[name]:.2f}" if name in ratio else ""))
    rows += [(name, reason, "", "") for name, reason in missing.items()]
    base.print_plain(rows)


def shown_rate(result: base.Result) -> str:
    return f"{'<' if isinstance(result, Unfinished) else ''}{result.rows_per_second:,.0f}"


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
