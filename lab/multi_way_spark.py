"""Multi-way joins of TPC-H's streams on Spark itself, as trials of experiments: early and late, measured.

A run is one flow over the first lineitems of TPC-H, as many orders, all suppliers and customers, in seven epochs that
end at the sizes of the spec's scaled reproduction; the first is small, and its results are the first ones. What a run
has taken and moved up to the end of each later epoch is a point of a curve.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lab.measures import Measure, Point
from lab.multi_way_runs import PLANS, Mode, Shape
from lab.simulation import Watch
from lab.workloads.tpch import KB, Tpch
from penstock.core.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lab.shuffle_counts import Counting

EFFECTIVE = Measure("effective", "from the first results to these", "s")
ACTUAL = Measure("actual", "from the start to these results", "s")
JOIN_SECONDS = Measure("join_seconds", "tasks' seconds in the joins", "s")
FETCH_SECONDS = Measure("fetch_seconds", "tasks' seconds in the reconstruction", "s")
SHUFFLED = Measure("shuffled", "written to shuffles, by Spark's count", "MB")
JOIN_BYTES = Measure("join_bytes", "moved by the joins, by edge", "MB")
JOIN_ROWS = Measure("join_rows", "rows moved by the joins", "k")
FETCH_BYTES = Measure("fetch_bytes", "payload fetched", "MB")
FETCH_ROWS = Measure("fetch_rows", "rows looked up", "k")
STATE = Measure("state", "state of the joins", "MB")

MEASURES = (EFFECTIVE, ACTUAL, JOIN_SECONDS, FETCH_SECONDS, SHUFFLED, FETCH_BYTES, JOIN_ROWS, FETCH_ROWS, STATE)

SIZES = (2_000, 5_000, 10_000, 15_000, 30_000, 60_000)
"""Lineitems, at a scale factor of `FULL`."""
FULL = 0.01
_FIRST = 200
"""Lineitems of the first epoch."""
_MB = 1e6
_MEMORY = "512 MB"
_CORES = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan by a mode on so many partitions, with `payload` KB more in each lineitem; a seed is a repeat."""

    shape: Shape
    mode: Mode
    payload: int = 0
    partitions: int = 1

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        return "multi-measured"

    @property
    def code(self) -> tuple[str, ...]:
        """All of penstock, the data, and how it is measured."""
        return ("penstock", "lab.workloads.tpch", "lab.shuffle_counts", "lab.multi_way_spark")

    @property
    def span(self) -> float:
        """Progress is not told."""
        return 1.0

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """What it took and moved up to each size."""
        return _both(self.shape, self.payload, self.partitions, scale, seed)[self.mode]

    def __str__(self) -> str:
        return f"{self.shape}, {self.mode}, {self.payload} KB, {self.partitions} partitions, on Spark"


@cache
def _both(shape: Shape, payload: int, partitions: int, scale: float, repeat: int) -> dict[Mode, Point]:
    """Both modes right after each other, in turns, so that a busy machine is as busy for one as for the other."""
    modes: list[Mode] = ["early", "late"]
    folder = _files(payload, scale)
    _warm(shape, payload, partitions)
    turns = modes if repeat % 2 else modes[::-1]
    return {mode: run(session(), folder, shape, mode, partitions, scale) for mode in turns}


@cache
def _warm(shape: Shape, payload: int, partitions: int) -> None:
    """Run both modes over few rows, so that the JVM has compiled what they use."""
    for mode in ("early", "late"):
        run(session(), _files(payload, FULL / 10), shape, mode, partitions, FULL / 10)


def run(spark: SparkSession, files: Path, shape: Shape, mode: Mode, partitions: int, scale: float) -> Point:
    """One run; raises unless every lineitem is one result, as SQL has it."""
    import penstock as pk
    from lab.shuffle_counts import Counting

    plan = PLANS[shape]
    with tempfile.TemporaryDirectory(prefix="multi-way-", ignore_cleanup_errors=True) as folder:
        flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory=_MEMORY, shards=partitions)
        streams: dict[str, Any] = {
            name: flow.parquet(files / name, time="t", name=name, max_files=1) for name in plan.rels
        }
        on = [str(each) for each in plan.predicates]
        flow.join(**streams, on=on, plan=str(plan), materialize=mode).to_format("noop")
        counting = Counting(Path(folder, "counts"), spark)
        with counting.watching():
            report = flow.run().progress()
        return _point(report.epochs, counting, ends(scale, _rows(files, "li")))


def ends(scale: float, lines: int) -> list[int]:
    """Lineitems after each epoch.

    >>> ends(0.01, 59_901)
    [200, 2000, 5000, 10000, 15000, 30000, 59901]
    """
    part = scale / FULL
    return [min(lines, max(1, round(size * part))) for size in (_FIRST, *SIZES)]


def _point(epochs: Sequence[Any], counting: Counting, sizes: Sequence[int]) -> Point:
    """Of each epoch, what a run has taken and moved until then; what it holds."""
    count = len(sizes)
    out = list(accumulate(each.rows_out for each in epochs))[:count]
    if out != list(sizes) or sum(each.rows_out for each in epochs) != sizes[-1]:
        raise FlowError(f"The join gave {out} results after its epochs, and SQL gives {list(sizes)}.")
    counts = counting.counts()

    def summed(kind: str, field: str) -> list[float]:
        found = [0.0] * count
        for each in counts:
            if each.kind == kind and each.epoch < count:
                found[each.epoch] += getattr(each, field)
        return list(accumulate(found))

    seconds = list(accumulate(each.seconds for each in epochs))[:count]
    joining = [
        sum(op.phases.get("work", 0.0) + op.phases.get("settle", 0.0) for op in each.operators.values())
        for each in epochs[:count]
    ]
    values = {
        EFFECTIVE: [each - seconds[0] for each in seconds],
        ACTUAL: seconds,
        JOIN_SECONDS: list(accumulate(joining)),
        FETCH_SECONDS: summed("fetch", "seconds"),
        SHUFFLED: [size / _MB for size in counting.shuffled[:count]],
        JOIN_BYTES: [size / _MB for size in summed("edge", "bytes")],
        JOIN_ROWS: [rows / 1000 for rows in summed("edge", "rows")],
        FETCH_BYTES: [size / _MB for size in summed("fetch", "bytes")],
        FETCH_ROWS: [rows / 1000 for rows in summed("fetch", "rows")],
        STATE: [sum(op.state_bytes for op in each.operators.values()) / _MB for each in epochs[:count]],
    }
    return Point({}, np.array(sizes[1:], float), {m.name: np.array(v[1:], float) for m, v in values.items()})


@cache
def session() -> SparkSession:
    """A session whose shuffles write bytes as they are; the one there is, if there is one."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "3g",
        "spark.sql.session.timeZone": "UTC",
        "spark.shuffle.compress": "false",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[1]),
    }
    return SparkSession.builder.master(f"local[{_CORES}]").appName("penstock-lab").config(map=conf).getOrCreate()


@cache
def _files(payload: int, scale: float) -> Path:
    """The streams on disk until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="multi-way-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write(folder, Tpch(scale, (("li", payload * KB),) if payload else ()), scale)
    return folder


def write(folder: Path, data: Tpch, scale: float) -> None:
    """The four streams, a file for each epoch; suppliers and customers come with the first."""
    sizes = ends(scale, data.table("li").num_rows)
    for name in ("li", "o", "s", "c"):
        rows = as_stream(data.table(name))
        cuts = sorted({min(size, rows.num_rows) for size in sizes}) if name in ("li", "o") else [rows.num_rows]
        for number, (start, end) in enumerate(pairwise([0, *cuts])):
            add(folder / name, number, rows.slice(start, end - start))


def add(folder: Path, number: int, rows: pa.Table) -> None:
    """A file that a source of files reads in the epoch of its number."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05d}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (1_600_000_000 + number,) * 2)


def as_stream(rows: pa.Table) -> pa.Table:
    """Rows with the order of their arrival as their time, and texts of the type that Spark knows."""
    plain = [field.with_type(pa.string()) if pa.types.is_large_string(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(plain)).append_column("t", pa.array(np.arange(rows.num_rows)))


def _rows(files: Path, name: str) -> int:
    return sum(pq.read_metadata(path).num_rows for path in (files / name).iterdir())
