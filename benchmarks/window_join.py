"""Interval join of orders with payments, the same rows through every engine: ``penstock bench window-join``.

The job: ``payments.ts BETWEEN orders.ts - 10 min AND orders.ts + 10 min`` on equal ``order_id``, inner, into a sink
that drops the rows. An hour of event time, uniform keys, about 7.5 matches per order; a row arrives up to 20 s out of
order and the watermark allows 30 s. Ten micro-batches, each one file of orders and one of payments and six minutes of
event time. DuckDB says how many rows must come out, and an engine that gives another number fails the benchmark.

What is timed:

- Spark engines: ``durationMs.triggerExecution`` of each micro-batch with data – listing, planning, state commit and
  logs included. From the third batch on the window is full: the first two are left out, and rows per second = rows of
  one batch ÷ median of the others.
- Flink has no micro-batches: rows per second = all rows ÷ run time of the whole job, in a warm JVM. It reads CSV, as
  its Python package holds no Parquet reader, and takes no checkpoints, which every Spark engine does at each batch.
- ``floor`` joins nothing: the shuffle and the hop JVM → Python → JVM that any engine in ``mapInArrow`` pays.
- ``penstock`` reads the files with Arrow (``flow.parquet``); ``dataframe`` is penstock over a streaming DataFrame that
  Spark scans.

Engines run one at a time on two cores. Each Spark engine first runs over throw-away rows, so that the JVM has compiled
what it uses. The full benchmark runs all in the listed order, then in the reverse one, and the better rate of an
engine's two counts; ``--quick`` is one round over half as many batches of the same size, without Flink on the heap.
The full benchmark goes on, one round each, with micro-batches of 1 M (``@1m``) and 4 M rows (``@4m``), and with ten
columns of text beside the others (``@wide``): penstock from both sources, Spark in memory unless its state outgrows the
heap, and the floor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.report import EpochReport
    from penstock.flow.stream import Stream

CORES = 2
MEMORY_MB = 512
HEAP = "4g"
BATCHES = 10
ROWS_PER_BATCH = 200_000
COLD_BATCHES = 2
FURTHER_BATCHES = 5
FURTHER = {"1m": (1_000_000, 0), "4m": (4_000_000, 0), "wide": (200_000, 10)}
"""Further micro-batches: how many rows, and how many columns of text beside the others."""
FURTHER_ENGINES = ("penstock", "dataframe", "spark-memory", "floor")
TOO_LARGE = ("spark-memory@4m",)
"""Whose state does not fit a heap of 4 GB: Spark's JVM collects garbage for ten minutes and dies."""
BATCH_MS = 360_000
DISORDER_MS = 20_000
BAND_MS = 600_000
MATCHES_PER_ORDER = 7.5
START_MS = 1_700_000_000_000
STATE_STORES = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": f"{STATE_STORES}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.join.stateFormatVersion": "4",
}
"""Spark's own stream-stream join at its best: join state format 4 (timestamp-ordered), changelog checkpoints."""
VALUES = {"orders": "amount", "payments": "paid"}
HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Workload:
    """Both inputs on disk, under ``parquet/<side>`` and again under ``csv/<side>``; ``matches`` pairs of rows join."""

    directory: Path
    rows_per_batch: int
    batches: int
    matches: int

    @property
    def rows(self) -> int:
        """Rows of both sides together."""
        return self.rows_per_batch * self.batches


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one engine. ``warm_batches`` (seconds) is empty for an engine without micro-batches."""

    rows_in: int
    rows_out: int
    rows_expected: int
    job_seconds: float
    rows_per_batch: int
    warm_batches: tuple[float, ...] = ()

    @property
    def batch_seconds(self) -> float | None:
        """The median warm micro-batch."""
        return median(self.warm_batches) if self.warm_batches else None

    @property
    def rows_per_second(self) -> float:
        """Input rows per second: of the median warm micro-batch, or of the whole job where there are none."""
        if self.batch_seconds is None:
            return self.rows_in / self.job_seconds
        return self.rows_per_batch / self.batch_seconds


Engine = Callable[[Workload], Result]
TableRow = tuple[str, str, str, str, str]


class PeerMissingError(RuntimeError):
    """An engine that is not installed; the message says how to install it."""


class WrongResultError(RuntimeError):
    """An engine whose output is not the join."""

    @classmethod
    def of(cls, engine: str, result: Result) -> "WrongResultError":
        """The error for a count that is not the expected one."""
        return cls(f"{engine} put out {result.rows_out:,} rows, not {result.rows_expected:,}: its time means nothing.")


def main(quick: bool) -> dict[str, object]:
    """Run every engine, print the table and, as the last line, the JSON that is also returned."""
    batches, rounds = (BATCHES // 2, 1) if quick else (BATCHES, 2)
    engines = {name: engine for name, engine in ENGINES.items() if not quick or engine is not flink_heap}
    with tempfile.TemporaryDirectory(prefix="window-join-", ignore_cleanup_errors=True) as directory:
        workload = generate(Path(directory) / "timed", ROWS_PER_BATCH, batches)
        print(
            f"{workload.rows:,} rows in, {workload.matches:,} matches (DuckDB), {ROWS_PER_BATCH:,} rows per micro-batch"
        )
        warm_up(generate(Path(directory) / "throw-away", ROWS_PER_BATCH // 2, COLD_BATCHES + 1))
        results, missing = run_all(engines, workload, rounds)
        for suffix, (rows, texts) in {} if quick else FURTHER.items():
            larger = generate(Path(directory) / suffix, rows, FURTHER_BATCHES, texts)
            some = {name: ENGINES[name] for name in FURTHER_ENGINES if f"{name}@{suffix}" not in TOO_LARGE}
            further, _ = run_all(some, larger, 1, f"@{suffix}")
            results |= {f"{name}@{suffix}": result for name, result in further.items()}
    print_table(results, missing)
    summary = summarise(results)
    print(json.dumps(summary))
    return summary


def warm_up(workload: Workload) -> None:
    for engine in (spark_rocksdb, spark_memory, floor, dataframe, penstock):
        engine(workload)


def run_all(
    engines: Mapping[str, Engine], workload: Workload, rounds: int, suffix: str = ""
) -> tuple[dict[str, Result], dict[str, str]]:
    """Each engine's best run, every other round in reverse order; and why the others did not run."""
    results: dict[str, Result] = {}
    missing: dict[str, str] = {}
    names = list(engines)
    for name in chain.from_iterable(names[:: (-1) ** turn] for turn in range(rounds)):
        try:
            result = engines[name](workload)
        except PeerMissingError as reason:
            missing[name] = str(reason)
            continue
        if result.rows_out != result.rows_expected:
            raise WrongResultError.of(name, result)
        print(f"  {name}{suffix}: {result.rows_per_second:,.0f} rows/s", file=sys.stderr)
        results[name] = max(results.get(name, result), result, key=lambda run: run.rows_per_second)
    return {name: results[name] for name in engines if name in results}, missing


def summarise(results: Mapping[str, Result]) -> dict[str, object]:
    rates = {name: round(result.rows_per_second) for name, result in results.items()}
    own = {name: rate for name, rate in rates.items() if name.partition("@")[0] == "penstock"}
    peers = {name: rate for name, rate in rates.items() if name not in own}
    ratio = {name: round(mine / rate, 2) for name, rate in peers.items() if (mine := own.get(_penstock_as(name)))}
    return {"bench": "window-join", "rows_per_second": own | peers, "ratio": ratio}


def _penstock_as(peer: str) -> str:
    """What penstock is called on the rows that a peer had."""
    _, at, suffix = peer.partition("@")
    return f"penstock{at}{suffix}"


def generate(directory: Path, rows_per_batch: int, batches: int, texts: int = 0) -> Workload:
    """Write both sides, seeded, one Parquet file per side and micro-batch and one CSV file per side and core.

    `texts` columns of text, a hundred bytes each, stand beside the others.
    """
    rows = rows_per_batch // 2
    for seed, (name, value) in enumerate(VALUES.items()):
        table = side(seed, rows * batches, batches * BATCH_MS, value)
        write_csv(table, directory / "csv" / name)
        for place in range(texts):
            table = table.append_column(f"{name}_text{place}", text(table.num_rows, seed * texts + place))
        write_parquet(table, directory / "parquet" / name, rows)
    return Workload(directory, rows_per_batch, batches, count_matches(directory / "parquet"))


def text(rows: int, seed: int) -> pa.Array:
    """Texts of a hundred bytes, no two alike in their last eight."""
    ends = pa.array(np.random.default_rng(100 + seed).integers(10**7, 10**8, rows)).cast(pa.string())
    return pa.compute.binary_join_element_wise("x" * 92, ends, "")


def side(seed: int, rows: int, span_ms: int, value: str) -> pa.Table:
    """Rows in arrival order: by event time plus a delay of up to ``DISORDER_MS``."""
    rng = np.random.default_rng(seed)
    ms = rng.integers(0, span_ms, rows)
    ms = ms[np.argsort(ms + rng.integers(0, DISORDER_MS, rows), kind="stable")] + START_MS
    columns = {
        "order_id": pa.array(rng.integers(0, key_domain(rows, span_ms), rows)),
        "ts": pa.array(ms * 1000).cast(pa.timestamp("us", tz="UTC")),
        value: pa.array(rng.random(rows) * 100),
    }
    return pa.table(columns)


def key_domain(rows: int, span_ms: int) -> int:
    """So many keys that an order has ``MATCHES_PER_ORDER`` partners on average, the two ends of the span included."""
    in_band = 1 - (1 - min(BAND_MS, span_ms) / span_ms) ** 2
    return max(1, round(rows * in_band / MATCHES_PER_ORDER))


def write_parquet(table: pa.Table, directory: Path, rows_per_file: int) -> None:
    directory.mkdir(parents=True)
    for batch, start in enumerate(range(0, table.num_rows, rows_per_file)):
        path = directory / f"{batch:03}.parquet"
        pa.parquet.write_table(table.slice(start, rows_per_file), path)
        # Spark's file source reads in order of modification time.
        os.utime(path, (START_MS // 1000 + batch,) * 2)


def write_csv(table: pa.Table, directory: Path) -> None:
    directory.mkdir(parents=True)
    ms = pa.compute.divide(table["ts"].cast(pa.int64()), 1000)
    table = table.set_column(1, "ts_ms", ms)
    for core in range(CORES):
        dealt = table.take(np.arange(core, table.num_rows, CORES))
        pa.csv.write_csv(dealt, directory / f"{core}.csv", pa.csv.WriteOptions(include_header=False))


def count_matches(directory: Path) -> int:
    query = f"""
        SELECT count(*) FROM '{directory}/orders/*.parquet' o JOIN '{directory}/payments/*.parquet' p
        ON o.order_id = p.order_id AND abs(epoch_us(p.ts) - epoch_us(o.ts)) <= {BAND_MS * 1000}"""
    [(matches,)] = duckdb.sql(query).fetchall()
    return int(matches)


def spark_rocksdb(workload: Workload) -> Result:
    return spark_native(workload, ROCKSDB)


def spark_memory(workload: Workload) -> Result:
    """Spark's own stream-stream join with its default provider, which knows join state formats up to 2."""
    return spark_native(
        workload,
        {
            "spark.sql.streaming.stateStore.providerClass": f"{STATE_STORES}.HDFSBackedStateStoreProvider",
            "spark.sql.streaming.join.stateFormatVersion": "2",
        },
    )


def spark_native(workload: Workload, conf: Mapping[str, str]) -> Result:
    joined = joined_by_spark(session(conf), workload)
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        query = finish(joined.writeStream.format("noop"), checkpoint)
        rows_out = sum(progress.sink.numOutputRows for progress in query.recentProgress)
        return timed(workload, query, rows_out, workload.matches)


def joined_by_spark(spark: SparkSession, workload: Workload) -> DataFrame:
    orders = stream(spark, workload, "orders").withWatermark("ts", "30 seconds").alias("o")
    payments = stream(spark, workload, "payments").withWatermark("ts", "30 seconds").alias("p")
    in_band = F.expr("p.ts BETWEEN o.ts - INTERVAL 10 MINUTES AND o.ts + INTERVAL 10 MINUTES")
    joined = orders.join(payments, (F.col("o.order_id") == F.col("p.order_id")) & in_band)
    shown = [name for name in joined.columns if name not in ("order_id", "ts")]
    return joined.select("o.order_id", "o.ts", F.col("p.ts").alias("paid_at"), *shown)


def floor(workload: Workload) -> Result:
    """The stage penstock runs in, doing nothing: tagged union → shuffle by shard → identity in Arrow → noop."""
    spark = session({"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"})
    tagged = tag(stream(spark, workload, "orders"), 0).union(tag(stream(spark, workload, "payments"), 1))
    counts: list[int] = []

    def epoch(rows: DataFrame, number: int) -> None:
        observation = Observation()
        out = rows.repartitionById(CORES, shard(CORES)).mapInArrow(lambda batches: batches, rows.schema)
        out.observe(observation, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("append").save()
        counts.append(observation.get["rows"])

    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        query = finish(tagged.writeStream.foreachBatch(epoch), checkpoint)
        return timed(workload, query, sum(counts), workload.rows)


def tag(rows: DataFrame, port: int) -> DataFrame:
    return rows.select(
        F.lit(port).cast("byte").alias("port"),
        F.xxhash64("order_id").alias("hash"),
        F.unix_micros("ts").alias("time"),
        "order_id",
        "ts",
        *(F.col(name).alias(f"value{place}") for place, name in enumerate(rows.columns[2:])),
    )


def shard(shards: int) -> Column:
    """The upper 32 bits of the hash, scaled to ``0 … shards - 1``."""
    return F.shiftright(F.shiftrightunsigned("hash", 32) * shards, 32).cast("int")


def flink_rocksdb(workload: Workload) -> Result:
    return flink(workload, "rocksdb")


def flink_heap(workload: Workload) -> Result:
    return flink(workload, "hashmap")


def flink(workload: Workload, backend: str) -> Result:
    report = peer("flink_window_join.py", str(workload.directory / "csv"), "--backend", backend)
    return Result(workload.rows, report["rows_out"], workload.matches, report["seconds"], workload.rows_per_batch)


def peer(script: str, *arguments: str, patience: float | None = None) -> dict[str, Any]:
    """Flink SQL in the peers' environment, with the same heap and with the memory budget as its managed memory."""
    budget = ("--parallelism", str(CORES), "--managed-memory", f"{MEMORY_MB}mb")
    return report(PEERS, script, *arguments, *budget, env={"JVM_ARGS": f"-Xmx{HEAP}"}, patience=patience)


def report(
    python: Path, script: str, *arguments: str, env: Mapping[str, str] | None = None, patience: float | None = None
) -> dict[str, Any]:
    """The last line that a script prints, by the interpreter of a peer's environment and within so many seconds."""
    if not python.exists():
        raise PeerMissingError("not installed: make bench-peers")
    command = [python, HERE / script, *arguments]
    run = subprocess.run(command, env=os.environ | (env or {}), capture_output=True, text=True, timeout=patience)
    if run.returncode:
        raise RuntimeError(f"{script} {' '.join(arguments)} failed:\n{run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def penstock(workload: Workload) -> Result:
    return timed_penstock(workload, files)


def dataframe(workload: Workload) -> Result:
    return timed_penstock(workload, frames)


def files(flow: "Flow", workload: Workload, name: str) -> "Stream":
    return flow.parquet(workload.directory / "parquet" / name, time="ts", progress=delay(), max_files=1)


def frames(flow: "Flow", workload: Workload, name: str) -> "Stream":
    return flow.source(stream(flow.spark, workload, name), time="ts", progress=delay(), scan="spark")


def delay() -> Any:
    import penstock as pk

    return pk.bounded_delay("30 s")


Source = Callable[["Flow", Workload, str], "Stream"]


def joined_by_penstock(flow: "Flow", workload: Workload, source: Source) -> "Stream":
    import penstock as pk

    orders, payments = source(flow, workload, "orders"), source(flow, workload, "payments")
    return orders.join(payments, on="order_id", within=pk.band(before="10 min", after="10 min"))


def timed_penstock(workload: Workload, source: Source) -> Result:
    import penstock as pk

    spark = session({})
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=f"{MEMORY_MB} MB")
        joined_by_penstock(flow, workload, source).to_format("noop")
        query = flow.run()
        result = timed(workload, query.streaming_query, query.progress().rows_out, workload.matches)
        print(where_the_time_goes(result, query.progress().epochs[COLD_BATCHES:-1]))
        return result


def where_the_time_goes(result: Result, epochs: Sequence["EpochReport"]) -> str:
    """A warm micro-batch of penstock's, split: Spark around the epoch, the epoch around its tasks, and the tasks."""
    joins = [epoch.operators["join0"] for epoch in epochs]
    tasks = {name: median(join.phases[name] for join in joins) / CORES for name in joins[0].phases}
    epoch = median(epoch.seconds for epoch in epochs)
    parts = {
        "Spark's offsets, planning and logs": median(result.warm_batches) - epoch,
        "reading, hashing, shuffle, commit": epoch - sum(tasks.values()),
        "tasks waiting for input": tasks["input"],
        "joining": tasks["work"],
        "handing over results": tasks["output"],
        "settling state": tasks["settle"],
    }
    return "penstock, a warm micro-batch: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items())


ENGINES: dict[str, Engine] = {
    "penstock": penstock,
    "dataframe": dataframe,
    "spark-rocksdb": spark_rocksdb,
    "spark-memory": spark_memory,
    "flink-rocksdb": flink_rocksdb,
    "flink-heap": flink_heap,
    "floor": floor,
}


def session(conf: Mapping[str, str]) -> SparkSession:
    """A session of its own with ``conf``, on the one context that all Spark engines share."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    shared = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": HEAP,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(CORES),
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("window-join")
    spark = builder.config(map=shared).getOrCreate().newSession()
    for name, setting in conf.items():
        spark.conf.set(name, setting)
    return spark


def stream(spark: SparkSession, workload: Workload, name: str) -> DataFrame:
    folder = workload.directory / "parquet" / name
    source = spark.readStream.schema(spark.read.parquet(str(folder)).schema).option("maxFilesPerTrigger", 1)
    return source.parquet(str(folder))


def finish(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    """The query after it has read every file there is."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def timed(workload: Workload, query: StreamingQuery, rows_out: int, rows_expected: int) -> Result:
    progress = query.recentProgress
    seconds = [trigger_seconds(batch) for batch in progress if has_rows(batch)]
    job = (trigger_start(progress[-1]) - trigger_start(progress[0])).total_seconds() + trigger_seconds(progress[-1])
    # A run that was stopped has not read all.
    rows_in = min(workload.rows, len(seconds) * workload.rows_per_batch)
    return Result(rows_in, rows_out, rows_expected, job, workload.rows_per_batch, tuple(seconds[COLD_BATCHES:]))


def has_rows(batch: StreamingQueryProgress) -> bool:
    """Whether a micro-batch brought rows; of files that Arrow reads, Spark knows only that there are new ones."""
    files = [source for source in batch.sources if source.description.startswith("FileStreamSource")]
    return bool(batch.numInputRows) or any(source.startOffset != source.endOffset for source in files)


def trigger_start(batch: StreamingQueryProgress) -> datetime:
    return datetime.fromisoformat(batch.timestamp)


def trigger_seconds(batch: StreamingQueryProgress) -> float:
    return batch.durationMs["triggerExecution"] / 1000


def print_table(results: Mapping[str, Result], missing: Mapping[str, str]) -> None:
    header = ("engine", "rows/s", "warm batch, s", "whole job, s", "penstock ÷ it")
    own = results.get("penstock")
    rows = [header, *(table_row(name, result, own) for name, result in results.items())]
    rows += [(name, reason, "", "", "") for name, reason in missing.items()]
    try:
        print_rich(rows)
    except ImportError:
        print_plain(rows)


def table_row(name: str, result: Result, own: Result | None) -> TableRow:
    batch = f"{result.batch_seconds:.2f}" if result.batch_seconds is not None else "–"
    ratio = f"{own.rows_per_second / result.rows_per_second:.2f}" if own else "–"
    return name, f"{result.rows_per_second:,.0f}", batch, f"{result.job_seconds:.1f}", ratio


def print_rich(rows: Sequence[TableRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="window join: 10 min either side, inner")
    for column, title in enumerate(rows[0]):
        table.add_column(title, justify="right" if column else "left")
    for row in rows[1:]:
        table.add_row(*row)
    Console().print(table)


def print_plain(rows: Sequence[TableRow]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        print(
            name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)), sep="  "
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
