"""Joins of three and four streams and of wide rows, the same files through every engine: ``penstock bench multi-way``.

The job: TPC-H's lineitem, orders and supplier, ``(li o) s``, and with customer ``(li s) (o c)``, over full history into
a sink that drops the rows; all columns come out. Files are in the order of their keys, so that an order and its lines
arrive in the same micro-batch; of suppliers and customers each micro-batch brings a part, so that rows of long ago
become results, too. Cases:

- ``3way-0``, ``4way-0``: the columns of TPC-H;
- ``3way-3k``, ``4way-3k``: with 3 KB of random text in each lineitem;
- the same with ``-low``: of twenty orders one is there, so that few lineitems become results;
- ``wide``: the interval join of window_join.py with ten columns of text, a kilobyte a row.

The same files run through

- ``penstock``: reading the files as Arrow columns, with ``materialize="auto"``; ``early`` and ``late``: with these. Of
  the wide join it is ``payload="auto"``, ``"row"`` and ``"source"`` of its sources;
- ``dataframe``: penstock, its sources streaming DataFrames that Spark scans, with ``auto``; ``dataframe-early``: with
  ``early``;
- ``spark-rocksdb``: Spark's own joins, one after the other by the same plan;
- ``flink-rocksdb``: Flink SQL by the same plan (flink_multi_way.py says what is timed), if it is installed, over CSV
  files; ``flink-multi-join``: the same with its operator for several inputs, which here joins two at a time, because no
  key is common to all streams. Neither runs the wide join.

What is timed is said in window_join.py: rows per second = rows of all streams in a micro-batch ÷ the median warm one,
and for Flink all rows ÷ run time of the job. Every engine must put out as many rows as DuckDB says, Flink over fewer
rows. A peer gets ``PATIENCE`` seconds per run; ``<`` marks the rate of one that was stopped: that of the micro-batches
it finished, whose state is small, or a bound.

Beside the rates: bytes of state per row of state (penstock's pages, the files of Spark's state stores) at the end, and
bytes that Spark's shuffles wrote per input row.

The JSON has rates and ratios by engine and case (``early@3way-3k``) and, by engine alone, their geometric mean. Of five
micro-batches the first is not counted, and of the wide join the first two. Micro-batches of a quick run are so large
that what is joined takes longer than what Spark does around it. Engines run over few rows first, then in
the listed order; those of penstock then in the reverse one, and the better rate of two counts. ``--quick`` is five
cases over fewer rows in three micro-batches, without DataFrames and Flink's operator for several inputs; cases that
begin after a minute have one turn of each engine, but for the wide one.
``python benchmarks/multi_way.py --cases 3way-0,wide --engines penstock,early`` runs only these.

``state`` in the JSON: bytes of state per row of state. ``arrived``: the bytes that came to the ports of penstock's
joins ÷ what the cost model says, with the payload that travelled in each epoch. ``shuffle``: what shuffles wrote ÷ the
same, of runs whose epochs all ran in tasks: small ones run in the driver and shuffle nothing, so that a quick run may
have none. Spark compresses what it shuffles.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import multi_way_jobs as jobs
import window_join as base
from multi_way_jobs import CASES, Job, Joined, Materialize, Scan, Wide
from nexmark import shown_rate, summarise

PATIENCE, QUICK_PATIENCE = 180, 20
QUICK_SECONDS = 60
"""Of a quick run after which every engine has one turn in each further case but the wide one, which varies the most."""
FLINK_START = 60
"""Seconds that Flink gets besides, to start and to join few rows."""
WIDE = "wide"
QUICK_CASES = ("3way-0", "3way-3k", "4way-0", "4way-3k", WIDE)
QUICK_FLINK = "flink-rocksdb"
"""The one of Flink's engines that runs when it must be quick."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much runs: TPC-H's scale factor without and with payload, micro-batches, and the rows of the wide join."""

    plain: float
    payload: float
    epochs: int
    wide_rows: int
    wide_batches: int

    def scale(self, payload: int) -> float:
        """The scale factor for lineitems with so many bytes more."""
        return self.payload if payload else self.plain


FULL = Size(plain=0.1, payload=1 / 30, epochs=5, wide_rows=200_000, wide_batches=base.FURTHER_BATCHES)
QUICK = Size(plain=0.03, payload=0.012, epochs=3, wide_rows=60_000, wide_batches=4)
FEW = Size(plain=0.001, payload=0.001, epochs=2, wide_rows=2_000, wide_batches=3)
"""What runs first, untimed, and what rows of Flink are counted over."""


@dataclass(frozen=True, slots=True)
class Timed(base.Result):
    """One run of one case by one engine."""

    finished: bool = True
    """Whether it got through all micro-batches."""
    state: float | None = None
    """Bytes of state per row of state."""
    shuffled: float | None = None
    """Bytes that shuffles wrote per input row;"""
    modelled: float | None = None
    """and in all, as a multiple of what the cost model says; None unless all epochs ran in tasks."""
    arrived: float | None = None
    """Bytes that came to the ports of joins, wherever epochs ran, as a multiple of the same."""


Engine = Callable[[Job, float], Timed]
"""Runs a job; a peer is stopped after so many seconds."""


def main(
    quick: bool, cases: Sequence[str] = (), only: Sequence[str] = (), size: Size | None = None
) -> dict[str, object]:
    """Run the cases by every engine, print the table and, as the last line, the JSON that is also returned."""
    names = tuple(cases) or (QUICK_CASES if quick else (*CASES, WIDE))
    size, patience = size or (QUICK if quick else FULL), QUICK_PATIENCE if quick else PATIENCE
    wanted = only or [name for name in ENGINES if not quick or not name.startswith("dataframe")]
    engines = {name: engine for name, engine in ENGINES.items() if name in wanted}
    flinks = [name for name in FLINKS if name in only or (not only and (name == QUICK_FLINK or not quick))]
    results: dict[str, Timed] = {}
    missing: dict[str, str] = {}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="multi-way-", ignore_cleanup_errors=True) as directory:
        made, few = Jobs(Path(directory) / "timed", size), Jobs(Path(directory) / "few", FEW)
        warm_up(engines, few.job(names[0]))
        for name in names:
            if name != names[0] and "penstock" in engines:
                warm_up({"penstock": engines["penstock"]}, few.job(name))
            job = made.job(name)
            print(
                f"{name}: {job.rows_per_batch * job.batches:,} rows in, {job.matches:,} results (DuckDB), "
                f"{job.rows_per_batch:,} rows per micro-batch",
                flush=True,
            )
            hurried = quick and name != WIDE and time.monotonic() - begun > QUICK_SECONDS
            for engine in engines if hurried else turns(list(engines)):
                run(f"{engine}@{name}", partial(engines[engine], job, patience), results, missing)
            for engine in flinks if isinstance(job, Joined) else ():
                run(f"{engine}@{name}", partial(flink, engine, job, few.job(name), patience), results, missing)
    base.print_plain(table(results, names))
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    summary = summarise(results, "multi-way")
    summary |= sizes(results)
    print(json.dumps(summary))
    return summary


def sizes(results: Mapping[str, Timed]) -> dict[str, dict[str, float]]:
    """What of the runs is about bytes, by engine and case, as far as it was measured."""
    found = {
        "state": {name: each.state for name, each in results.items()},
        "shuffle": {name: each.modelled for name, each in results.items()},
        "arrived": {name: each.arrived for name, each in results.items()},
    }
    known = {
        what: {name: round(value, 2) for name, value in values.items() if value is not None}
        for what, values in found.items()
    }
    return {what: values for what, values in known.items() if values}


def turns(engines: Sequence[str]) -> list[str]:
    """In which order engines run: peers once, penstock's own once more in the reverse order.

    >>> turns(["penstock", "late", "spark-rocksdb"])
    ['penstock', 'late', 'spark-rocksdb', 'late', 'penstock']
    """
    return [*engines, *(name for name in reversed(engines) if name in OWN)]


class Jobs:
    """The cases over rows of one size, each with its files once it is asked for."""

    def __init__(self, directory: Path, size: Size) -> None:
        self._directory = directory
        self._size = size
        self._files: dict[int, jobs.Files] = {}
        self._jobs: dict[str, Job] = {}

    def job(self, name: str) -> Any:
        """A case by its name."""
        if name not in self._jobs:
            self._jobs[name] = self._wide() if name == WIDE else Joined(CASES[name], self._of(CASES[name].payload))
        return self._jobs[name]

    def _of(self, payload: int) -> jobs.Files:
        if payload not in self._files:
            folder, scale = self._directory / f"payload-{payload}", self._size.scale(payload)
            self._files[payload] = jobs.generate(folder, scale, payload, self._size.epochs)
        return self._files[payload]

    def _wide(self) -> Wide:
        size = self._size
        return Wide(base.generate(self._directory / WIDE, size.wide_rows, size.wide_batches, jobs.TEXTS))


def warm_up(engines: Mapping[str, Engine], job: Job) -> None:
    """Run engines over few rows, so that the JVM has compiled what they use."""
    for name, engine in engines.items():
        run(f"warm-up of {name}", partial(engine, job, PATIENCE), {}, {})


def run(name: str, engine: Callable[[], Timed], results: dict[str, Timed], missing: dict[str, str]) -> None:
    """Enter what an engine took at best, or why it did not run; raise if its number of rows is not DuckDB's."""
    try:
        result = engine()
    except (base.PeerMissingError, StreamingQueryException) as reason:
        missing[name] = str(reason).partition("\n")[0][:200]
        print(f"  {name}: {missing[name]}", file=sys.stderr)
        return
    if result.rows_out != result.rows_expected:
        raise base.WrongResultError.of(name, result)
    results[name] = max(results.get(name, result), result, key=lambda each: each.rows_per_second)
    print(f"  {name}: {shown_rate(result)} rows/s", file=sys.stderr)


def penstock(job: Job, patience: float, scan: Scan = "arrow", materialize: Materialize = "auto") -> Timed:
    import penstock as pk

    spark = base.session({})
    with temporary(job) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=f"{base.MEMORY_MB} MB")
        job.by_penstock(flow, spark, scan, materialize).to_format("noop")
        before = shuffle_bytes(spark)
        query = flow.run()
        moved, report = shuffle_bytes(spark) - before, query.progress()
        held = report.epochs[job.batches - 1].operators.values()
        size, rows = sum(each.state_bytes for each in held), sum(each.state_rows for each in held)
        result = timed(job, query.streaming_query, report.rows_out, patience, (size, rows), moved)
        epochs = report.epochs[: job.batches]
        told = job.modelled([epoch.left_behind for epoch in epochs])
        if told is None:
            return result
        ports = (port for epoch in epochs for operator in epoch.operators.values() for port in operator.ports)
        result = replace(result, arrived=sum(port.bytes for port in ports) / told)
        in_tasks = all(epoch.place.startswith("in tasks") for epoch in epochs)
        return replace(result, modelled=moved / told) if in_tasks else result


def spark_rocksdb(job: Job, patience: float) -> Timed:
    spark = base.session(job.spark_conf)
    with temporary(job) as checkpoint:
        before = shuffle_bytes(spark)
        writer = job.by_spark(spark).writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(patience)
        query.stop()
        progress = query.recentProgress
        rows_out = sum(batch.sink.numOutputRows for batch in progress)
        rows = sum(operator.numRowsTotal for operator in progress[-1].stateOperators) if progress else 0
        size = sum(file.stat().st_size for file in Path(checkpoint, "state").rglob("*") if file.is_file())
        return timed(job, query, rows_out, patience, (size, rows), shuffle_bytes(spark) - before)


def timed(
    job: Job, query: StreamingQuery, rows_out: int, patience: float, state: tuple[int, int], shuffled: int
) -> Timed:
    seconds = [base.trigger_seconds(batch) for batch in query.recentProgress if base.has_rows(batch)]
    size, finished = job.rows_per_batch, len(seconds) >= job.batches
    warm = tuple(seconds[job.cold :])
    rows_in = size * (len(seconds) if warm else len(seconds) + 1)
    return Timed(
        rows_in,
        rows_out,
        job.matches if finished else rows_out,
        sum(seconds) if warm else patience,
        size,
        warm,
        finished,
        state[0] / state[1] if state[1] else None,
        shuffled / rows_in,
    )


def shuffle_bytes(spark: SparkSession) -> int:
    """What shuffles have written so far, as Spark's own listener counts it."""
    context: Any = spark.sparkContext._jsc
    executors = context.sc().statusStore().executorList(False)
    return sum(executors.apply(place).totalShuffleWrite() for place in range(executors.size()))


ENGINES: dict[str, Engine] = {
    "penstock": penstock,
    "early": partial(penstock, materialize="early"),
    "late": partial(penstock, materialize="late"),
    "dataframe": partial(penstock, scan="dataframe"),
    "dataframe-early": partial(penstock, scan="dataframe", materialize="early"),
    "spark-rocksdb": spark_rocksdb,
}
OWN = ("penstock", "early", "late", "dataframe", "dataframe-early")
"""Those that are penstock."""
FLINKS = {"flink-rocksdb": (), "flink-multi-join": ("--multi-join",)}


def flink(engine: str, job: Joined, few: Joined, patience: float) -> Timed:
    """Count the rows over few, and time the run over all; a run that takes too long gives a bound."""
    asked = ("--few", str(few.files.csv), "--join", job.case.shape, "--orders", job.case.orders)
    asked += FLINKS[engine]
    try:
        report = base.peer("flink_multi_way.py", str(job.files.csv), *asked, patience=patience + FLINK_START)
    except subprocess.TimeoutExpired:
        return Timed(job.rows, 0, 0, patience, job.rows_per_batch, finished=False)
    except RuntimeError as failed:
        raise base.PeerMissingError(str(failed)) from failed
    if "missing" in report:
        raise base.PeerMissingError(report["missing"])
    return Timed(job.rows, report["rows_out"], few.matches, report["seconds"], job.rows_per_batch)


def temporary(job: Job) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=job.directory, ignore_cleanup_errors=True)


def table(results: Mapping[str, Timed], names: Sequence[str]) -> Any:
    """A line for each case and engine."""
    header = ("case", "engine", "rows/s", "warm batch, s", "state, B/row", "shuffle, B/row", "penstock ÷ it")
    rows = [header]
    for name in names:
        for label, result in results.items():
            engine, _, case = label.partition("@")
            if case == name:
                rows.append((case, engine, *cells(result, results.get(f"penstock@{case}"))))
    return rows


def cells(result: Timed, own: Timed | None) -> tuple[str, ...]:
    return (
        shown_rate(result),
        "–" if result.batch_seconds is None else f"{result.batch_seconds:.2f}",
        "–" if result.state is None else f"{result.state:,.0f}",
        "–" if result.shuffled is None else f"{result.shuffled:,.0f}",
        "–" if own is None else f"{own.rows_per_second / result.rows_per_second:.2f}",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cases", default="", help="only these, with commas between them: 3way-0,wide")
    parser.add_argument("--engines", default="", help="only these, with commas between them")
    options = parser.parse_args()
    chosen, wanted = ([name for name in names.split(",") if name] for names in (options.cases, options.engines))
    main(options.quick, chosen, wanted)
