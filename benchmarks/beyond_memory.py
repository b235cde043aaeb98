"""A window join whose state is many times its memory: ``penstock bench beyond-memory``.

The job: ``payments.ts BETWEEN orders.ts - 10 min AND orders.ts + 10 min`` on equal ``order_id``, inner, into a sink
that drops the rows; rows of 100 bytes, about two matches per order, up to 20 s out of order. A micro-batch is one file
of each side and two minutes of event time, so that from the seventh on the windows are full: about 1.2 million rows,
110 MB. The same files run through

- ``penstock`` with ``method="auto"``, an eighth of the state as its memory and files read by Arrow; ``32x``: a
  thirty-second of it; ``dataframe``: an eighth, over streaming DataFrames that Spark scans;
- ``unlimited``: the same with memory for all of it;
- each method by name, at an eighth and a thirty-second (not with ``--quick``);
- ``spark-rocksdb``: Spark's own join with RocksDB bounded to the memory that penstock has at an eighth. With
  ``--quick`` it gets 75 seconds; its rate is then that of the micro-batches it finished: their windows are not yet
  full, which is in its favour.

DuckDB says how many rows must come out, and an engine that gives another number fails the benchmark. Timed are the
micro-batches after the windows are full; see window_join.py for how. Beside the rates: the bytes of pages that were
read and written per input row, and the share of results that left in the epoch of their later row.

Ratios: ``unlimited-8x`` and ``unlimited-32x`` are the rates at an eighth and a thirty-second of the state as parts of
the rate with unlimited memory; ``spark-rocksdb`` and ``dataframe`` are penstock at an eighth divided by it.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import window_join as base

ROWS_PER_BATCH = 200_000
FILLING = 7
BATCHES = 13
QUICK_BATCHES = 10
BATCH_MS = 120_000
MATCHES = 2
PATIENCE = 75
STATE_BYTES = 110_000_000
NOTE = 56
METHODS = ("oa", "ewj", "ah_ewj", "rpwj")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the rate of its warm micro-batches, and what penstock says of its pages."""

    result: base.Result
    read: float | None = None
    written: float | None = None
    at_once: float | None = None
    method: str = ""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.result.rows_per_second


def main(quick: bool) -> dict[str, object]:
    """Run every engine, print the table and, as the last line, the JSON that is also returned."""
    with tempfile.TemporaryDirectory(prefix="beyond-memory-", ignore_cleanup_errors=True) as directory:
        workload = generate(Path(directory) / "timed", QUICK_BATCHES if quick else BATCHES)
        print(f"{workload.rows:,} rows in, {workload.matches:,} matches (DuckDB), {ROWS_PER_BATCH:,} per micro-batch")
        penstock(generate(Path(directory) / "throw-away", 3), STATE_BYTES)
        patience = PATIENCE if quick else None
        runs = run_all(workload, rounds=1 if quick else 2, methods=() if quick else METHODS, patience=patience)
    print_table(runs)
    summary = summarise(runs)
    print(json.dumps(summary))
    return summary


def run_all(workload: base.Workload, rounds: int, methods: tuple[str, ...], patience: float | None) -> dict[str, Run]:
    """Each engine's best run; Spark's own join runs once, and no longer than `patience` says."""
    engines = {
        "unlimited": lambda: penstock(workload, 16 * STATE_BYTES),
        "penstock": lambda: penstock(workload, STATE_BYTES // 8),
        "32x": lambda: penstock(workload, STATE_BYTES // 32),
        "dataframe": lambda: penstock(workload, STATE_BYTES // 8, files=False),
        "spark-rocksdb": lambda: spark_rocksdb(workload, STATE_BYTES // 8, patience),
    }
    for method in methods:
        for times in (8, 32):
            engines[f"{method}-{times}x"] = lambda m=method, t=times: penstock(workload, STATE_BYTES // t, m)
    best: dict[str, Run] = {}
    for turn in range(rounds):
        for name in list(engines)[:: (-1) ** turn]:
            if turn and name == "spark-rocksdb":
                continue
            run = engines[name]()
            if run.result.rows_out != run.result.rows_expected:
                raise base.WrongResultError.of(name, run.result)
            print(f"  {name}: {run.rate:,.0f} rows/s", file=sys.stderr)
            best[name] = max(best.get(name, run), run, key=lambda r: r.rate)
    return {name: best[name] for name in engines}


def generate(directory: Path, batches: int) -> base.Workload:
    rows = ROWS_PER_BATCH // 2
    for seed, (name, value) in enumerate(base.VALUES.items()):
        base.write_parquet(side(seed, rows * batches, batches * BATCH_MS, value), directory / "parquet" / name, rows)
    return base.Workload(directory, ROWS_PER_BATCH, batches, base.count_matches(directory / "parquet"))


def side(seed: int, rows: int, span_ms: int, value: str) -> pa.Table:
    rng = np.random.default_rng(seed)
    ms = rng.integers(0, span_ms, rows)
    ms = ms[np.argsort(ms + rng.integers(0, base.DISORDER_MS, rows), kind="stable")] + base.START_MS
    near = 2 * base.BAND_MS * rows / span_ms
    letters = rng.integers(97, 123, (rows, NOTE), np.uint8)
    offsets = pa.py_buffer(np.arange(0, NOTE * rows + 1, NOTE, np.int32))
    columns = {
        "order_id": pa.array(rng.integers(0, max(1, round(near / MATCHES)), rows)),
        "ts": pa.array(ms * 1000).cast(pa.timestamp("us", tz="UTC")),
        value: pa.array(rng.random(rows) * 100),
        f"{value}_note": pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(letters)),
    }
    return pa.table(columns)


def stream(spark: SparkSession, workload: base.Workload, name: str) -> DataFrame:
    value = base.VALUES[name]
    schema = f"order_id bigint, ts timestamp, {value} double, {value}_note string"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return source.parquet(str(workload.directory / "parquet" / name))


def warm(result: base.Result) -> base.Result:
    """Only the micro-batches with full windows."""
    kept = result.warm_batches[FILLING - base.COLD_BATCHES :]
    return replace(result, warm_batches=kept or result.warm_batches)


def spark_rocksdb(workload: base.Workload, memory: int, patience: float | None) -> Run:
    """Spark's own join: state format 4, changelog checkpoints, RocksDB within `memory`; stopped after `patience`."""
    spark = base.session(
        {
            "spark.sql.streaming.stateStore.providerClass": f"{base.STATE_STORES}.RocksDBStateStoreProvider",
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
            "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": str(memory // 10**6),
            "spark.sql.streaming.join.stateFormatVersion": "4",
        }
    )
    orders = stream(spark, workload, "orders").withWatermark("ts", "30 seconds").alias("o")
    payments = stream(spark, workload, "payments").withWatermark("ts", "30 seconds").alias("p")
    in_band = F.expr("p.ts BETWEEN o.ts - INTERVAL 10 MINUTES AND o.ts + INTERVAL 10 MINUTES")
    joined = orders.join(payments, (F.col("o.order_id") == F.col("p.order_id")) & in_band)
    columns = joined.select("o.*", F.col("p.ts").alias("paid_at"), "paid", "paid_note")
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        writer = columns.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        finished = query.awaitTermination(patience) if patience else query.awaitTermination() is None
        query.stop()
        rows_out = sum(progress.sink.numOutputRows for progress in query.recentProgress)
        return Run(warm(base.timed(workload, query, rows_out, workload.matches if finished else rows_out)))


def penstock(workload: base.Workload, memory: int, method: str = "auto", files: bool = True) -> Run:
    import penstock as pk

    spark = base.session({})
    with tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=memory)
        told = {"time": "ts", "progress": pk.bounded_delay("30 s")}
        orders, payments = (
            flow.parquet(str(workload.directory / "parquet" / name), max_files=1, name=name, **told)
            if files
            else flow.source(stream(spark, workload, name), name=name, scan="spark", **told)
            for name in ("orders", "payments")
        )
        orders.join(payments, on="order_id", within=pk.band(before="10 min", after="10 min"), method=method).to_format(
            "noop"
        )
        query = flow.run()
        result = warm(base.timed(workload, query.streaming_query, query.progress().rows_out, workload.matches))
        joins = [epoch.operators["join0"] for epoch in query.progress().epochs]
        full = [join for join in joins[FILLING:] if join.rows_in] or joins
        rows, out = sum(join.rows_in for join in full), sum(join.rows_out for join in joins)
        read, written = (sum(getattr(join, name) for join in full) / rows for name in ("bytes_read", "bytes_written"))
        late = sum(join.deferred for join in joins)
        state = median(join.state_bytes for join in full)
        print(f"  state {state / 1e6:.0f} MB = {state / memory:.1f} × memory, {full[-1].method}", file=sys.stderr)
        return Run(result, read, written, 1 - late / max(1, out), full[-1].method)


def summarise(runs: Mapping[str, Run]) -> dict[str, object]:
    rates = {name: round(run.rate) for name, run in runs.items()}
    own = rates["penstock"]
    ratio = {
        "unlimited-8x": round(own / rates["unlimited"], 2),
        "unlimited-32x": round(rates["32x"] / rates["unlimited"], 2),
        "spark-rocksdb": round(own / rates["spark-rocksdb"], 2),
        "dataframe": round(own / rates["dataframe"], 2),
    }
    return {"bench": "beyond-memory", "rows_per_second": rates, "ratio": ratio}


def print_table(runs: Mapping[str, Run]) -> None:
    rows = [("engine", "method", "rows/s", "warm batch, s", "read/row, B", "written/row, B", "at once, %")]
    for name, run in runs.items():
        numbers = (run.read, run.written, None if run.at_once is None else 100 * run.at_once)
        cells = ["–" if number is None else f"{number:,.1f}" for number in numbers]
        rows.append((name, run.method, f"{run.rate:,.0f}", f"{run.result.batch_seconds or 0:.2f}", *cells))
    base.print_plain(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
