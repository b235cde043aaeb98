"""Nexmark's queries over one stream of events, the same files through every engine: ``penstock bench nexmark``.

The job: each query of nexmark_queries.py over the events of nexmark_events.py – people, auctions and bids as structs
of one row type, a tenth of them up to 3 s late – into a sink that drops the rows; the watermark allows 4 s. A
micro-batch is 500,000 events in two Parquet files, 50 s of event time. The same files run through

- ``penstock``: reading the files as Arrow columns;
- ``parquet-dataframe``: penstock, its source a streaming DataFrame over the files, which Arrow reads in place of Spark;
- ``dataframe``: the same with ``scan="spark"``, as DataFrames of anything else are;
- ``spark-rocksdb``, ``spark-memory``: Spark's own operators (nexmark_spark.py), state in RocksDB with changelog
  checkpoints, and in memory;
- ``floor``: what any engine in Python tasks pays over a DataFrame (nexmark_floors.py); not with ``--quick``;
- ``flink-rocksdb``: Flink SQL (flink_nexmark.py says what is timed), if it is installed. Its package holds no Parquet
  reader: it reads CSV files that have the structs' fields as columns;
- ``pathway``, ``bytewax``: these libraries (pathway_nexmark.py, bytewax_nexmark.py), each if it is installed. Pathway
  reads CSV files, each a minibatch of 250,000 events, Bytewax the Parquet files.

What is timed is said in window_join.py: rows per second = 500,000 ÷ the median warm micro-batch, and for Flink, Pathway
and Bytewax, which have no such micro-batches, all rows ÷ the run time of the job without its start. Every query of
penstock first runs over fewer events into Parquet files, which are compared with DuckDB row by row. The timed runs must
put out as many rows as DuckDB says; Spark's own operators, which leave windows open that the watermark has not passed,
at least those of the windows that it has. The rows of Flink, Pathway and Bytewax are counted over the fewer events.
A peer gets ``PATIENCE`` seconds per run: its rate is then that of the micro-batches it finished, or, of Flink, Pathway
and Bytewax, a bound: all rows ÷ ``PATIENCE``.

The JSON has rates and ratios by engine and query (``spark-rocksdb@q5``) and, by engine alone, their geometric mean.
Of six micro-batches the first two are not counted. ``--quick`` is five queries over three micro-batches, of which the
first is not counted; two of them run in Flink, and one in Pathway and Bytewax, over the fewer events. ``python
benchmarks/nexmark.py --queries q5,q7 --engines penstock`` runs only these, ``--page`` writes the figures into
docs/nexmark.md. A run of everything takes two hours: ``--keep FILE`` records each result, and another run with the same
file goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import window_join as base
from nexmark_check import Definition
from nexmark_events import Events
from nexmark_floors import FLOORS
from nexmark_queries import LEFT_OUT, QUERIES
from nexmark_spark import NATIVE

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.report import EpochReport
    from penstock.flow.stream import Stream

EPOCH_ROWS = 500_000
EPOCHS = 6
QUICK_EPOCHS = 3
COLD, QUICK_COLD = 2, 1
"""Micro-batches that are not counted."""
QUICK_QUERIES = ("q5", "q7", "q8", "q11", "q20")
QUICK_FLINK = ("q5", "q20")
QUICK_LIBRARIES = ("q8",)
FEW_EPOCHS = 3
FILES = 2
"""Files of a micro-batch."""
DELAY_US = 4_000_000
JOINS_BY_TIME = ("q4", "q7", "q8", "q9")
"""Queries with a join whose state Spark can keep by time."""
PATIENCE = 240
PAGE = base.HERE.parent / "docs" / "nexmark.md"
CSV_COLUMNS = {
    "person": ("id", "name", "emailAddress", "creditCard", "city", "state", "extra"),
    "auction": (*("id", "itemName", "description", "initialBid", "reserve", "expires", "seller", "category", "extra"),),
    "bid": ("auction", "bidder", "price", "channel", "url", "extra"),
}
"""The fields of structs that Flink reads, in the order of its table."""

Scan = Literal["arrow", "parquet-dataframe", "dataframe"]
SCANS: tuple[Scan, ...] = get_args(Scan)


@dataclass(frozen=True, slots=True)
class Workload:
    """Events on disk, under ``parquet`` and, for peers that read CSV, again; and what queries over them mean."""

    directory: Path
    events: Events
    cold: int
    """How many micro-batches are not counted."""
    definition: Definition

    @property
    def parquet(self) -> Path:
        """The files that engines on Spark read."""
        return self.directory / "parquet"

    @property
    def csv(self) -> Path:
        """The files that Flink reads."""
        return self.directory / "csv"

    def minibatches(self) -> Path:
        """The files that Pathway reads: for each Parquet file one of CSV with a header, written at the first call."""
        folder = self.directory / "minibatches"
        if not folder.exists():
            folder.mkdir()
            for path in sorted(self.parquet.iterdir()):
                events = flat(pa.parquet.read_table(path))
                events = events.rename_columns([name.replace(".", "_") for name in events.column_names])
                pa.csv.write_csv(events, folder / f"{path.stem}.csv", pa.csv.WriteOptions(quoting_style="needed"))
                changed = path.stat().st_mtime
                os.utime(folder / f"{path.stem}.csv", (changed, changed))
        return folder


@dataclass(frozen=True, slots=True)
class Timed(base.Result):
    """One run of one query by one engine."""

    finished: bool = True
    """Whether it got through all micro-batches."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Where the time of a warm micro-batch went, in seconds."""
    jobs: float | None = None
    """How many jobs of Spark's a micro-batch took."""
    stages: float | None = None
    """How many stages these had."""


class Kept(dict[str, Timed]):
    """Results by engine and query, each a line of JSON in a file as well; those that the file has come first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else ()
        for name, fields in map(json.loads, lines):
            super().__setitem__(name, Timed(**{**fields, "warm_batches": tuple(fields["warm_batches"])}))

    def __setitem__(self, name: str, result: Timed) -> None:
        """Record a result, too."""
        super().__setitem__(name, result)
        with self._path.open("a") as file:
            file.write(json.dumps([name, asdict(result)]) + "\n")


Engine = Callable[[Workload, str], Timed]


class WrongCountError(RuntimeError):
    """An engine that put out another number of rows than the query has."""


def main(
    quick: bool, queries: Sequence[str] = (), only: Sequence[str] = (), page: bool = False, keep: Path | None = None
) -> dict[str, object]:
    """Run the queries by every engine, print the table and, as the last line, the JSON that is also returned."""
    names = tuple(queries) or (QUICK_QUERIES if quick else tuple(QUERIES))
    results: dict[str, Timed] = {} if keep is None else Kept(keep)
    missing: dict[str, str] = {}
    short = quick and not queries
    with tempfile.TemporaryDirectory(prefix="nexmark-", ignore_cleanup_errors=True) as directory:
        epochs, cold = (QUICK_EPOCHS, QUICK_COLD) if quick else (EPOCHS, COLD)
        workload = generate(Path(directory) / "timed", Events(EPOCH_ROWS, epochs), cold)
        few = generate(Path(directory) / "few", Events(EPOCH_ROWS // (10 if quick else 3), FEW_EPOCHS, seed=1), cold)
        print(f"{workload.events.rows:,} events, {EPOCH_ROWS:,} per micro-batch; {few.events.rows:,} compared by row")
        wanted = only or [name for name in spark_engines() if not quick or name != "floor"]
        engines = {name: engine for name, engine in spark_engines().items() if name in wanted}
        for engine in () if quick else engines:
            engines[engine](few, names[0] if engine != "floor" else "q5")
        for name in names:
            todo = {engine: run for engine, run in engines.items() if f"{engine}@{name}" not in results}
            for scan in SCANS if todo.keys() & {"penstock", *SCANS} else ():
                check(few, name, scan)
            run_all(todo, workload, name, results, missing)
        if not only or "flink-rocksdb" in only:
            asked = [name for name in flink_names(names, short) if f"flink-rocksdb@{name}" not in results]
            run_flink(workload, few, asked, results, missing)
        for library in [name for name in LIBRARIES if not only or name in only]:
            asked = [name for name in library_names(library, names, short) if f"{library}@{name}" not in results]
            run_library(library, few if short else workload, few, asked, results, missing)
    summary = summarise(results)
    print_table(results, names, missing)
    if page:
        write_page(figures(results, names, missing, only))
    print(json.dumps(summary))
    return summary


def generate(directory: Path, events: Events, cold: int) -> Workload:
    events.write(directory / "parquet", FILES)
    if base.PEERS.exists():
        write_csv(directory)
    return Workload(directory, events, cold, Definition(directory / "parquet"))


def write_csv(directory: Path) -> None:
    """One file per core, to which rows are dealt in turn, so that each is in the order of arrival."""
    (directory / "csv").mkdir()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")
    for core in range(base.CORES):
        rows = (flat(pa.parquet.read_table(path)) for path in sorted((directory / "parquet").iterdir()))
        first = next(rows)
        with pa.csv.CSVWriter(directory / "csv" / f"{core}.csv", first.schema, write_options=options) as file:
            for table in (first, *rows):
                file.write_table(table.take(pa.array(range(core, table.num_rows, base.CORES))))


def flat(events: pa.Table) -> pa.Table:
    """The fields of structs as columns, and times as microseconds."""
    columns = {"event_type": events["event_type"], "us": events["dateTime"].cast(pa.int64())}
    for struct, names in CSV_COLUMNS.items():
        for name in names:
            values = pa.compute.struct_field(events[struct], name)
            columns[f"{struct}.{name}"] = values.cast(pa.int64()) if name == "expires" else values
    return pa.table(columns)


def run_all(
    engines: Mapping[str, Engine],
    workload: Workload,
    name: str,
    results: dict[str, Timed],
    missing: dict[str, str],
) -> None:
    for engine, run in engines.items():
        if engine == "floor" and name not in FLOORS:
            continue
        try:
            result = run(workload, name)
        except StreamingQueryException as error:
            missing[f"{engine}@{name}"] = str(error).partition("\n")[0][:200]
            continue
        results[f"{engine}@{name}"] = result
        parts = "".join(f", {part} {seconds:.2f} s" for part, seconds in result.parts.items())
        parts += "" if result.jobs is None else f", {result.jobs:.1f} jobs"
        print(f"  {engine}@{name}: {shown_rate(result)} rows/s{parts}", file=sys.stderr)


def spark_engines() -> dict[str, Engine]:
    own: dict[str, Engine] = {"penstock" if s == "arrow" else s: partial(penstock, scan=s) for s in SCANS}
    return own | {"spark-rocksdb": spark_rocksdb, "spark-memory": spark_memory, "floor": floor}


def source(flow: Flow, spark: SparkSession, workload: Workload, scan: Scan) -> Stream:
    import penstock as pk

    progress = pk.bounded_delay("4 s")
    if scan != "arrow":
        by: Any = "spark" if scan == "dataframe" else "auto"
        return flow.source(stream(spark, workload), time="dateTime", progress=progress, name="events", scan=by)
    return flow.parquet(str(workload.parquet), time="dateTime", progress=progress, max_files=FILES)


def check(workload: Workload, name: str, scan: Scan) -> None:
    """Run a query into files, and raise unless they have the rows that DuckDB gives."""
    import penstock as pk

    spark = base.session({})
    with temporary(workload) as folder:
        flow = pk.Flow(spark, checkpoint=f"{folder}/state", memory=f"{base.MEMORY_MB} MB")
        QUERIES[name].build(flow, source(flow, spark, workload, scan)).to_parquet(f"{folder}/out")
        flow.run()
        rows = pa.dataset.dataset(f"{folder}/out", format="parquet", partitioning=None).to_table()
        workload.definition.check(QUERIES[name], rows)


def penstock(workload: Workload, name: str, scan: Scan) -> Timed:
    import penstock as pk

    spark = base.session({})
    with temporary(workload) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=f"{base.MEMORY_MB} MB")
        QUERIES[name].build(flow, source(flow, spark, workload, scan)).to_format("noop")
        before = jobs_and_stages(spark)
        query = flow.run()
        jobs, stages = (jobs_and_stages(spark) - before) / len(query.progress().epochs)
        _, every = workload.definition.counts(QUERIES[name], DELAY_US)
        result = timed(workload, query.streaming_query, query.progress().rows_out, (every, every), name)
        result = replace(result, jobs=float(jobs), stages=float(stages))
        return with_parts(result, query.progress().epochs[workload.cold : workload.events.epochs])


def jobs_and_stages(spark: SparkSession) -> np.ndarray:
    """How many there were so far."""
    context: Any = spark.sparkContext._jsc
    scheduler = context.sc().dagScheduler()
    return np.array([int(scheduler.numTotalJobs()), int(scheduler.nextStageId())])


def with_parts(result: Timed, epochs: Sequence[EpochReport]) -> Timed:
    """The same, with where the time of a warm micro-batch went."""
    epoch = median(one.seconds for one in epochs)
    tasks = {
        phase: median(
            sum(operator.phases.get(phase, 0) for operator in one.operators.values()) / cores_of(one) for one in epochs
        )
        for phase in ("input", "work", "output", "settle")
    }
    phases = {phase: median(one.phases[phase] for one in epochs) for phase in ("plan", "run", "commit")}
    parts = {"Spark around epochs": median(result.warm_batches) - epoch, "planning": phases["plan"]}
    parts |= {"scan, shuffle, sink": max(phases["run"] - sum(tasks.values()), 0), "waiting for input": tasks["input"]}
    parts |= {"operators": tasks["work"] + tasks["settle"], "handing over": tasks["output"]}
    return replace(result, parts=parts | {"commit": phases["commit"]})


def cores_of(epoch: EpochReport) -> int:
    """How many cores worked on its operators."""
    from penstock.spark.place import PLACES

    return 1 if epoch.place is not None and epoch.place.startswith(PLACES["driver"]) else base.CORES


def spark_rocksdb(workload: Workload, name: str) -> Timed:
    """Join state format 4 (timestamp-ordered) is for joins by time; the others take Spark's default."""
    conf = {
        "spark.sql.streaming.stateStore.providerClass": f"{base.STATE_STORES}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if name in JOINS_BY_TIME:
        conf["spark.sql.streaming.join.stateFormatVersion"] = "4"
    return spark_native(workload, name, conf)


def spark_memory(workload: Workload, name: str) -> Timed:
    provider = f"{base.STATE_STORES}.HDFSBackedStateStoreProvider"
    return spark_native(workload, name, {"spark.sql.streaming.stateStore.providerClass": provider})


def spark_native(workload: Workload, name: str, conf: Mapping[str, str]) -> Timed:
    spark = base.session(conf)
    results = NATIVE[name](spark, stream(spark, workload))
    with temporary(workload) as checkpoint:
        writer = results.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        finished = query.awaitTermination(PATIENCE)
        query.stop()
        rows_out = sum(progress.sink.numOutputRows for progress in query.recentProgress)
        allowed = workload.definition.counts(QUERIES[name], DELAY_US) if finished else (0, rows_out)
        return timed(workload, query, rows_out, allowed, name)


def floor(workload: Workload, name: str) -> Timed:
    """The scan, the native first half and one hop of a query, and nothing else."""
    spark = base.session({"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"})

    def epoch(rows: DataFrame, number: int) -> None:
        FLOORS[name].of(rows, base.CORES).write.format("noop").mode("append").save()

    with temporary(workload) as checkpoint:
        writer = stream(spark, workload).writeStream.foreachBatch(epoch).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return timed(workload, query, 0, (0, 0), name)


def timed(workload: Workload, query: StreamingQuery, rows_out: int, allowed: tuple[int, int], name: str) -> Timed:
    """What a query took; raise unless it put out an allowed number of rows."""
    least, most = allowed
    if not least <= rows_out <= most:
        raise WrongCountError(f"{name} put out {rows_out:,} rows, not {least:,} to {most:,}: its time means nothing.")
    seconds = [base.trigger_seconds(batch) for batch in query.recentProgress if base.has_rows(batch)]
    size = workload.events.epoch_rows
    if len(seconds) <= workload.cold:
        return Timed((len(seconds) + 1) * size, rows_out, rows_out, PATIENCE, size, finished=False)
    return Timed(len(seconds) * size, rows_out, rows_out, sum(seconds), size, tuple(seconds[workload.cold :]))


def stream(spark: SparkSession, workload: Workload) -> DataFrame:
    schema = spark.read.parquet(str(workload.parquet)).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES)
    return files.parquet(str(workload.parquet))


NO_FLINK = {"q13": "a lookup join needs a connector that looks up, and Flink's package has none"}


def flink_names(names: Sequence[str], few: bool) -> list[str]:
    return [name for name in names if name not in NO_FLINK and (not few or name in QUICK_FLINK)]


def run_flink(
    workload: Workload, few: Workload, names: Sequence[str], results: dict[str, Timed], missing: dict[str, str]
) -> None:
    """Each query in a process of Flink; one that takes too long gives a bound."""
    for name in names:
        rows, (_, every) = workload.events.rows, few.definition.counts(QUERIES[name], DELAY_US)
        asked = ["--few", str(few.csv), "--query", name, "--backend", "rocksdb", "--patience", str(PATIENCE)]
        try:
            report = base.peer("flink_nexmark.py", str(workload.csv), *asked)
        except base.PeerMissingError as reason:
            missing["flink-rocksdb"] = str(reason)
            return
        if report["rows_out"] != every:
            raise WrongCountError(f"flink-rocksdb@{name} put out {report['rows_out']:,} rows, not {every:,}.")
        seconds = report["seconds"]
        result = Timed(rows, every, every, seconds or PATIENCE, EPOCH_ROWS, finished=seconds is not None)
        results[f"flink-rocksdb@{name}"] = result
        print(f"  flink-rocksdb@{name}: {shown_rate(result)} rows/s", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Library:
    """A peer that is a library of Python's: it runs each query in a process and an environment of its own."""

    script: str
    python: Path
    files: Callable[[Workload], Path]
    """The files that it reads."""
    without: Mapping[str, str]
    """The queries that it has no form of, and why."""


def environment(name: str) -> Path:
    """The interpreter of a library's environment."""
    return base.HERE.parent / f".venv-{name}" / "bin" / "python"


LIBRARIES = {
    "pathway": Library("pathway_nexmark.py", environment("pathway"), Workload.minibatches, without={}),
    "bytewax": Library("bytewax_nexmark.py", environment("bytewax"), lambda events: events.parquet, without={}),
}


def library_names(library: str, names: Sequence[str], few: bool) -> list[str]:
    known = [name for name in names if name not in LIBRARIES[library].without]
    return [name for name in known if not few or name in QUICK_LIBRARIES]


def run_library(
    name: str,
    workload: Workload,
    few: Workload,
    queries: Sequence[str],
    results: dict[str, Timed],
    missing: dict[str, str],
) -> None:
    """Each query in a process; what fails or puts out other rows than DuckDB is left out, and why is said."""
    if not LIBRARIES[name].python.exists():
        missing[name] = "not installed: make bench-peers"
        return
    for query in queries:
        try:
            result = timed_library(LIBRARIES[name], workload, few, query)
        except RuntimeError as reason:
            missing[f"{name}@{query}"] = str(reason).strip().splitlines()[-1]
            continue
        results[f"{name}@{query}"] = result
        print(f"  {name}@{query}: {shown_rate(result)} rows/s", file=sys.stderr)


def timed_library(library: Library, workload: Workload, few: Workload, query: str) -> Timed:
    """Count the rows over few events, then time the run over all; a run that takes too long gives a bound."""
    _, every = few.definition.counts(QUERIES[query], DELAY_US)
    events = few
    try:
        counted = library_report(library, few, query, "--count")
        if counted["rows_out"] != every:
            raise WrongCountError(f"not comparable: {counted['rows_out']:,} rows over few events, not {every:,}")
        events = workload
        seconds = library_report(library, workload, query)["seconds"]
    except subprocess.TimeoutExpired:
        return Timed(events.events.rows, every, every, PATIENCE, EPOCH_ROWS, finished=False)
    return Timed(workload.events.rows, every, every, seconds, EPOCH_ROWS)


def library_report(library: Library, workload: Workload, query: str, *arguments: str) -> dict[str, Any]:
    files = str(library.files(workload))
    return base.report(library.python, library.script, files, "--query", query, *arguments, patience=PATIENCE)


def temporary(workload: Workload) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=workload.directory, ignore_cleanup_errors=True)


def summarise(results: Mapping[str, Timed], bench: str = "nexmark") -> dict[str, object]:
    """Rates, penstock's as a multiple of each, and the geometric means of both over the queries an engine ran."""
    rates = {name: result.rows_per_second for name, result in results.items()}
    ratio = {}
    for name, rate in rates.items():
        engine, _, query = name.partition("@")
        if engine != "penstock" and f"penstock@{query}" in rates:
            ratio[name] = rates[f"penstock@{query}"] / rate
    bounds = [name for name, result in results.items() if not result.finished]
    return {
        "bench": bench,
        "rows_per_second": {name: round(rate) for name, rate in with_means(rates).items()},
        "ratio": {name: round(value, 2) for name, value in with_means(ratio).items()},
        "bounds": bounds,
    }


def with_means(values: Mapping[str, float]) -> dict[str, float]:
    """The same, and the geometric mean of those of each engine under its name."""
    engines = dict.fromkeys(name.partition("@")[0] for name in values)
    means = {
        engine: geometric_mean(value for name, value in values.items() if name.startswith(f"{engine}@"))
        for engine in engines
    }
    return {**values, **means}


def print_table(results: Mapping[str, Timed], names: Sequence[str], missing: Mapping[str, str]) -> None:
    rows: Any = table(results, names)
    base.print_plain(rows)
    for name, reason in missing.items():
        print(f"{name}: {reason}")


def table(results: Mapping[str, Timed], names: Sequence[str]) -> list[tuple[str, ...]]:
    """A line for each query: rates, a warm micro-batch of penstock's, and how many times as fast it is."""
    engines = list(dict.fromkeys(name.partition("@")[0] for name in results))
    others = [engine for engine in engines if engine != "penstock"]
    header = (
        "query",
        "penstock, s",
        *(f"{engine}, rows/s" for engine in engines),
        *(f"÷ {engine}" for engine in others),
    )
    return [header, *(table_row(results, name, engines, others) for name in names)]


def table_row(
    results: Mapping[str, Timed], name: str, engines: Sequence[str], others: Sequence[str]
) -> tuple[str, ...]:
    runs = {engine: results.get(f"{engine}@{name}") for engine in engines}
    own = runs.get("penstock")
    ratios = [
        f"{own.rows_per_second / run.rows_per_second:.2f}" if own is not None and run is not None else "–"
        for run in (runs[engine] for engine in others)
    ]
    batch = "–" if own is None or own.batch_seconds is None else f"{own.batch_seconds:.2f}"
    return name, batch, *(shown_rate(run) if run is not None else "–" for run in runs.values()), *ratios


def shown_rate(result: Timed) -> str:
    return f"{'' if result.finished else '<'}{result.rows_per_second:,.0f}"


def write_page(measured: str | None = None) -> None:
    """Write the queries and, if there are new ones, the figures into the page."""
    text = with_part(PAGE.read_text(), "queries", queries_shown())
    PAGE.write_text(text if measured is None else with_part(text, "figures", measured))


def figures(
    results: Mapping[str, Timed], names: Sequence[str], missing: Mapping[str, str], only: Sequence[str] = ()
) -> str:
    """The part of the page that says what was measured, if not of all engines then of which."""
    engines = f" --engines {','.join(only)}" if only else ""
    shown = [
        f"By `python benchmarks/nexmark.py --page{engines}` ({date.today().isoformat()}):",
        "",
        *markdown(table(results, names)),
    ]
    means = summarise(results)["ratio"]
    assert isinstance(means, dict)
    whole = [f"{name} {value:.2f}" for name, value in means.items() if "@" not in name]
    if whole:
        shown += ["", f"Geometric means of penstock ÷ engine: {', '.join(whole)}."]
    shown += ["", *(f"{name}: {reason}." for name, reason in missing.items()), ""] if missing else [""]
    shown += floors_shown(results, names)
    return "\n".join([*shown, *parts_shown(results, names)])


def parts_shown(results: Mapping[str, Timed], names: Sequence[str]) -> list[str]:
    """Where the time of micro-batches goes: of files that Arrow reads, and of DataFrames that Spark reads."""
    titles = {
        "penstock": "Where the time of a warm micro-batch goes if Arrow reads the files, in seconds, and how many jobs "
        "and stages of Spark's it takes:",
        "dataframe": 'The same if Spark reads them (`scan="spark"`), as before there were Arrow scans:',
    }
    lines = []
    for engine, title in titles.items():
        runs = {name: run for name in names if (run := results.get(f"{engine}@{name}")) is not None and run.parts}
        if runs:
            header = ("query", *next(iter(runs.values())).parts, "jobs", "stages")
            lines += [title, "", *markdown([header, *(parts_row(name, run) for name, run in runs.items())]), ""]
    return lines[:-1]


def parts_row(name: str, run: Timed) -> tuple[str, ...]:
    counts = ("–" if count is None else f"{count:.1f}" for count in (run.jobs, run.stages))
    return name, *(f"{seconds:.2f}" for seconds in run.parts.values()), *counts


def floors_shown(results: Mapping[str, Timed], names: Sequence[str]) -> list[str]:
    """How far penstock over a DataFrame is from its floor."""
    frames = ("parquet-dataframe", "dataframe")
    rows: list[tuple[str, ...]] = [("query", *frames, "floor", *(f"{frame} ÷ floor" for frame in frames))]
    for name in names:
        *own, least = ((r := results.get(f"{e}@{name}")) and r.batch_seconds for e in (*frames, "floor"))
        if least and any(own):
            ratios = [f"{seconds / least:.2f}" if seconds else "–" for seconds in own]
            rows.append((name, *(f"{seconds:.2f}" if seconds else "–" for seconds in own), f"{least:.2f}", *ratios))
    if len(rows) == 1:
        return []
    title = "Warm micro-batches over DataFrames, in seconds, against their floor: scan, native first half, one hop."
    return [title, "", *markdown(rows), ""]


def queries_shown() -> str:
    """The part of the page that has every query as penstock."""
    shown = []
    for name in sorted([*QUERIES, *LEFT_OUT], key=lambda name: int(name[1:])):
        if name in LEFT_OUT:
            shown.append(f"### {name}\n\nLeft out: {LEFT_OUT[name]}.")
            continue
        query = QUERIES[name]
        code = inspect.getsource(query.build)
        code = code[code.index("def ") :].replace(f'    """{query.asks}"""\n', "").rstrip()
        shown.append(f"### {name}\n\n{query.asks}\n\n```python\n{code}\n```")
    return "\n\n".join(shown)


def with_part(page: str, name: str, text: str) -> str:
    """A page with another text between its marks of this name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}"


def markdown(rows: Sequence[tuple[str, ...]]) -> list[str]:
    header, *others = (f"| {' | '.join(row)} |" for row in rows)
    return [header, "|---" * len(rows[0]) + "|", *others]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--queries", default="", help="only these, with commas between them: q5,q7")
    parser.add_argument("--engines", default="", help="only these, with commas between them")
    parser.add_argument("--page", action="store_true", help="write the figures into docs/nexmark.md")
    parser.add_argument("--only-page", action="store_true", help="run nothing, write the queries into docs/nexmark.md")
    parser.add_argument("--keep", type=Path, help="record results in this file, and run nothing that it has")
    options = parser.parse_args()
    if options.only_page:
        write_page()
        sys.exit()
    chosen, engines = ([name for name in names.split(",") if name] for names in (options.queries, options.engines))
    main(options.quick, chosen, engines, options.page, options.keep)
