"""Joins without a window, the same files through every engine: ``penstock bench progressive``.

The job: two streams of a million rows each, a key, a time and 64 bytes of text in each, inner on equal keys over all
their history, into a sink that drops the rows. Keys are uniform over half a million, so that a row has two partners on
average, most of them of long ago. Ten micro-batches, each a file of either stream. penstock gets as memory a tenth of
what the rows take in its state; Spark's JVM has 4 GB and DuckDB what it likes. DuckDB says how many rows must come out,
and an engine that gives another number fails the benchmark. The same files run through

- ``penstock``: reading the files as Arrow columns, by the method that it chooses;
- ``rrpj``: penstock by RRPJ, which joins with what is in memory at once, and the rest at the end;
- ``spark-rocksdb``: Spark's own stream-stream join without a watermark;
- ``duckdb``: one join over all the files.

What is timed: seconds from the beginning of the first micro-batch until 1, 10, 50 and 100 % of the results are out, by
the micro-batch in which they come (``durationMs.triggerExecution``: planning, state commit and logs included), and of
penstock the end of the streams after them; DuckDB's rows are taken as they come. Engines run over fewer rows first.

Then, in process and by counts alone, how many results RRPJ, XJoin and RPJ have given when half of the input has come,
with 4 % of it in memory: keys are skewed alike in both streams, and half of the partitions have none in common, as in
the source's non-uniform data (progressive-joins §2.4, §6.5).

Then two streams of boxes, half a million each, of which those are joined that meet: ``penstock@spatial`` beside
``spark-cells@spatial``, Spark's own join of the cells that boxes touch, and ``spark-partitions@spatial``, what Sedona's
planner does, written in Spark SQL (`progressive_spatial`). At last two streams of vectors, of which those are joined
that are near each other, beside brute force (`progressive_near`).

Ratios in the JSON: ``spark-rocksdb`` and ``duckdb`` are their seconds for the whole job ÷ penstock's;
``spark-rocksdb@first10`` is Spark's seconds for the whole job ÷ penstock's until a tenth of the results is out;
``spark-cells@spatial`` and ``spark-partitions@spatial`` are their seconds ÷ those of ``penstock@spatial``;
``numpy@9d``, ``numpy@128d``, ``duckdb@9d`` and ``duckdb@128d`` are those of brute force ÷ penstock's for the vectors;
``xjoin@half`` and ``rpj@half`` are RRPJ's results at half of the input ÷ theirs. Those of a peer that was stopped after
``PATIENCE`` seconds are bounds, and listed as such. ``--quick`` has a fifth of the rows in five micro-batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import progressive_near as vectors
import progressive_spatial as spatial
import window_join as base

SHARES = (1, 10, 50, 100)
"""Percent of the results whose time is told."""
PATIENCE, QUICK_PATIENCE = 600, 60
SIDES = ("left", "right")
MEMORY = 0.1
"""The part of the state that penstock gets as memory."""
TEXT = 64
INSIDE = 8
"""Bytes that a row takes in state besides its columns: the hash of its key."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much runs: rows of each stream, micro-batches, and the tuples of both that policies are compared by."""

    rows: int
    batches: int
    tuples: int


FULL = Size(rows=1_000_000, batches=10, tuples=400_000)
QUICK = Size(rows=200_000, batches=5, tuples=100_000)
FEW = Size(rows=4_000, batches=2, tuples=10_000)
WARM = Size(rows=40_000, batches=2, tuples=0)
"""What engines run over first: enough for penstock to run in tasks, as it does later."""


@dataclass(frozen=True, slots=True)
class Job:
    """Both streams on disk, ``rows`` each; their join has ``matches`` rows."""

    directory: Path
    rows: int
    batches: int
    matches: int
    memory: int
    """Bytes that penstock gets."""

    def folder(self, side: str) -> Path:
        """Where the files of a stream are."""
        return self.directory / side


@dataclass(frozen=True, slots=True)
class Delivered:
    """One run of one engine: after how many seconds it had given how many rows, and whether it got to its end."""

    seconds: tuple[float, ...]
    rows: tuple[int, ...]
    expected: int
    rows_in: int
    finished: bool = True

    @property
    def total(self) -> float:
        """Seconds of the whole job; of a run that was stopped, until then."""
        return self.seconds[-1]

    def until(self, percent: int) -> float | None:
        """Seconds until a part of the results was out; None if it was stopped before.

        >>> Delivered((1.0, 2.5, 4.0), (10, 60, 100), expected=100, rows_in=50).until(50)
        2.5
        """
        place = int(np.searchsorted(self.rows, self.expected * percent / 100))
        return self.seconds[place] if place < len(self.seconds) else None


Engine = Callable[[Job, float], Delivered]
"""Runs a job; a peer is stopped after so many seconds."""


def main(quick: bool, only: Sequence[str] = (), size: Size | None = None) -> dict[str, object]:
    """Run every engine, print the tables and, as the last line, the JSON that is also returned."""
    size, patience = size or (QUICK if quick else FULL), QUICK_PATIENCE if quick else PATIENCE
    engines = {name: engine for name, engine in ENGINES.items() if not only or name in only}
    with tempfile.TemporaryDirectory(prefix="progressive-", ignore_cleanup_errors=True) as directory:
        warm = generate(Path(directory) / "warm", min(WARM, size, key=lambda size: size.rows))
        for engine in engines.values():
            engine(warm, patience)
        job = generate(Path(directory) / "timed", size)
        print(
            f"{2 * job.rows:,} rows in, {job.matches:,} results (DuckDB), {job.batches} micro-batches, "
            f"{job.memory / 1e6:.1f} MB for penstock",
            flush=True,
        )
        results = {name: checked(name, engine(job, patience)) for name, engine in engines.items()}
        results |= boxes(Path(directory), size, patience, only)
    counts = halves(size.tuples) if not only or "half" in only else {}
    base.print_plain(table(results))
    if counts:
        base.print_plain(half_table(counts))
    alike = vectors.main(quick) if not only or "near" in only else {"ratio": {}}
    summary = summarise(results, counts, alike["ratio"])
    print(json.dumps(summary))
    return summary


def boxes(directory: Path, size: Size, patience: float, only: Sequence[str]) -> dict[str, Delivered]:
    """The spatial case; few boxes go first."""
    engines = {name: engine for name, engine in spatial.ENGINES.items() if not only or name in only}
    results: dict[str, Delivered] = {}
    for rows, batches in ((FEW.rows, FEW.batches), (size.rows // 2, size.batches)) if engines else ():
        job = spatial.generate(directory / f"boxes-{rows}", rows, batches, MEMORY)
        given = Job(job.directory, job.rows, job.batches, job.matches, job.memory)
        results = {name: checked(name, delivered(given, *engine(job, patience))) for name, engine in engines.items()}
    return results


def checked(name: str, run: Delivered) -> Delivered:
    """A run, told; raise if it got to its end with another number of rows than DuckDB's."""
    if run.finished and run.rows[-1] != run.expected:
        told = f"{name} put out {run.rows[-1]:,} rows, not {run.expected:,}: its time means nothing."
        raise base.WrongResultError(told)
    print(f"  {name}: {run.total:.1f} s", file=sys.stderr)
    return run


def generate(directory: Path, size: Size) -> Job:
    """Write both streams, seeded, one Parquet file of each for a micro-batch."""
    state = 0
    for seed, name in enumerate(SIDES):
        rng = np.random.default_rng(seed)
        ends = pa.array(rng.integers(10**7, 10**8, size.rows)).cast(pa.string())
        rows = pa.table(
            {
                "k": rng.integers(0, max(1, size.rows // 2), size.rows),
                "t": np.arange(size.rows),
                f"{name}_text": pa.compute.binary_join_element_wise("x" * (TEXT - 8), ends, ""),
            }
        )
        state += rows.nbytes + INSIDE * rows.num_rows
        base.write_parquet(rows, directory / name, size.rows // size.batches)
    query = f"SELECT count(*) FROM '{directory}/left/*.parquet' l JOIN '{directory}/right/*.parquet' r ON l.k = r.k"
    [(matches,)] = duckdb.sql(query).fetchall()
    return Job(directory, size.rows, size.batches, int(matches), max(4_000_000, round(MEMORY * state)))


def penstock(job: Job, patience: float, method: str = "auto") -> Delivered:
    import penstock as pk

    spark = base.session({})
    with temporary(job) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=job.memory)
        left, right = (flow.parquet(job.folder(name), time="t", name=name, max_files=1) for name in SIDES)
        left.join(right, on="k", method=method).to_format("noop")
        query = flow.run()
        report = query.progress()
        batches = query.streaming_query.recentProgress
        spent = [base.trigger_seconds(batch) for batch in batches if base.has_rows(batch)]
        # Epochs beyond those of the micro-batches: Spark's last one without data, and the end of the streams.
        spent += [epoch.seconds for epoch in report.epochs[len(spent) :]]
        return delivered(job, spent, [epoch.rows_out for epoch in report.epochs])


def rrpj(job: Job, patience: float) -> Delivered:
    return penstock(job, patience, "rrpj")


def spark_rocksdb(job: Job, patience: float) -> Delivered:
    spark = base.session(base.ROCKSDB)
    left, right = (
        spark.readStream.schema(spark.read.parquet(str(job.folder(name))).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(job.folder(name)))
        for name in SIDES
    )
    joined = left.join(right.withColumnRenamed("t", "t_right"), "k")
    with temporary(job) as checkpoint:
        writer = joined.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(patience)
        query.stop()
        batches = query.recentProgress
        spent = [base.trigger_seconds(batch) for batch in batches]
        return delivered(job, spent or [patience], [batch.sink.numOutputRows for batch in batches] or [0])


def one_shot(job: Job, patience: float) -> Delivered:
    query = (
        f"SELECT * FROM '{job.directory}/left/*.parquet' l "
        f"JOIN (SELECT * RENAME (t AS t_right) FROM '{job.directory}/right/*.parquet') r USING (k)"
    )
    with duckdb.connect(config={"threads": base.CORES}) as connection:
        begun, spent, rows = time.perf_counter(), [], []
        for batch in connection.sql(query).to_arrow_reader(1 << 16):
            rows.append(batch.num_rows)
            spent.append(time.perf_counter() - begun)
    return delivered(job, list(np.diff(spent, prepend=0.0)), rows)


def delivered(job: Job, spent: Sequence[float], rows: Sequence[int]) -> Delivered:
    """A run by what each of its micro-batches took and gave."""
    count = sum(rows)
    sums = np.cumsum(spent).tolist(), np.cumsum(rows).tolist()
    return Delivered(tuple(sums[0]), tuple(sums[1]), job.matches, 2 * job.rows, finished=count >= job.matches)


ENGINES: dict[str, Engine] = {
    "penstock": penstock,
    "rrpj": rrpj,
    "spark-rocksdb": spark_rocksdb,
    "duckdb": one_shot,
}
PEERS = ("spark-rocksdb", "duckdb")


def temporary(job: Job) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=job.directory, ignore_cleanup_errors=True)


# Policies, by counts

PARTITIONS, RESIDENT, DOMAIN = 64, 85_000 / 2_000_000, 10_000 / 2_000_000
"""Partitions of the keys, tuples in memory and keys, the last two for each tuple: those of the source."""
EPOCHS = 50


def halves(tuples: int) -> dict[str, int]:
    """Results of each policy when half of the tuples have come."""
    from penstock.operators.window_join.progressive.baselines.parameters import Rpj, XJoin
    from penstock.operators.window_join.progressive.parameters import Rrpj

    tables = non_uniform(tuples, seed=1)
    settings = {"memory": max(1, round(RESIDENT * tuples)), "row": 1, "partitions": PARTITIONS}
    return {kind.__name__.lower(): half(kind(**settings), tables) for kind in (Rrpj, XJoin, Rpj)}


def half(method: Any, tables: Sequence[Sequence[pa.Table]]) -> int:
    import penstock as pk

    flow = pk.LocalFlow(memory="256 MB")
    left, right = (
        flow.source(some[: EPOCHS // 2], time="t", name=name) for name, some in zip(SIDES, tables, strict=True)
    )
    left.join(right, on="k", method=method).select("k").foreach_epoch(lambda rows, epoch: None)
    return int(flow.run(end=False).progress().rows_out)


def non_uniform(tuples: int, seed: int) -> list[list[pa.Table]]:
    """Two streams in epochs: partitions by Zipf's law, alike in both; half of them share no key."""
    from penstock.kernels.hashing import hash_keys

    rng = np.random.default_rng(seed)
    each = max(2, round(DOMAIN * tuples / PARTITIONS))
    numbers = np.arange(40 * each * PARTITIONS)
    partitions = (hash_keys([pa.array(numbers)]) % np.uint64(PARTITIONS)).astype(np.int64)
    keys = np.array([numbers[partitions == partition][:each] for partition in range(PARTITIONS)])
    weights = 1 / np.arange(1, PARTITIONS + 1)
    apart = (np.arange(PARTITIONS) * 0.6180339887) % 1 < 0.5
    return [
        _epochs(keys[which, _places(rng, which.size, each, apart[which], side)])
        for side in (0, 1)
        for which in [rng.choice(PARTITIONS, tuples // 2, p=weights / weights.sum())]
    ]


def _places(
    rng: np.random.Generator, count: int, each: int, apart: npt.NDArray[np.bool_], side: int
) -> npt.NDArray[np.int64]:
    """Which key of its partition a tuple has: of those that are apart, one of the side's own half."""
    places, half_ = rng.integers(0, each, count), each // 2
    return np.where(apart, places % half_ + side * half_, places)


def _epochs(keys: npt.NDArray[np.int64]) -> list[pa.Table]:
    parts = np.array_split(np.arange(keys.size), EPOCHS)
    return [pa.table({"k": keys[part], "t": part}) for part in parts]


# What is told


def table(results: Mapping[str, Delivered]) -> Any:
    """A line for each engine."""
    rows = [("engine", *(f"{share} %, s" for share in SHARES), "rows/s", "whole job ÷ penstock's")]
    own = results.get("penstock")
    for name, run in results.items():
        times = [run.until(share) for share in SHARES]
        mark = "" if run.finished else ">"
        cells = ["–" if seconds is None else f"{seconds:.2f}" for seconds in times]
        compared = results.get("penstock@spatial") if name.endswith("@spatial") else own
        ratio = "–" if compared is None else f"{mark}{run.total / compared.total:.2f}"
        rows.append((name, *cells, f"{'<' if mark else ''}{run.rows_in / run.total:,.0f}", ratio))
    return rows


def half_table(counts: Mapping[str, int]) -> Any:
    """A line for each policy."""
    own = counts["rrpj"]
    rows = [("policy", "results at half of the input", "RRPJ ÷ it")]
    return rows + [(name, f"{count:,}", f"{own / max(1, count):.2f}") for name, count in counts.items()]


def summarise(
    results: Mapping[str, Delivered], counts: Mapping[str, int], others: Mapping[str, float] | None = None
) -> dict[str, object]:
    """Rates, seconds until parts of the results were out, and ratios, those of other cases among them."""
    ratio = {f"{name}@half": counts["rrpj"] / max(1, count) for name, count in counts.items() if name != "rrpj"}
    ratio |= others or {}
    own = results.get("penstock")
    if own is not None:
        ratio |= {name: results[name].total / own.total for name in PEERS if name in results}
        soon = own.until(10)
        if "spark-rocksdb" in results and soon is not None:
            ratio["spark-rocksdb@first10"] = results["spark-rocksdb"].total / soon
    boxes_own = results.get("penstock@spatial")
    if boxes_own is not None:
        peers = [name for name in spatial.PEERS if name in results]
        ratio |= {name: results[name].total / boxes_own.total for name in peers}
    until = {
        name: {str(share): round(seconds, 2) for share in SHARES if (seconds := run.until(share)) is not None}
        for name, run in results.items()
    }
    return {
        "bench": "progressive",
        "rows_per_second": {name: round(run.rows_in / run.total) for name, run in results.items()},
        "seconds_until": until,
        "results_at_half": dict(counts),
        "ratio": {name: round(value, 2) for name, value in ratio.items()},
        "bounds": [name for name, run in results.items() if not run.finished],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="only these, with commas between them: penstock,rrpj,half")
    options = parser.parse_args()
    main(options.quick, [name for name in options.only.split(",") if name])
