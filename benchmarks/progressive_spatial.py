"""The spatial case of ``penstock bench progressive``: boxes that meet, over all the history of both streams.

Two streams of half a million boxes each (``--quick``: a fifth), squares at random in the unit square, of such a size
that a box meets two of the other stream on average; ten micro-batches. The same files run through

- ``penstock@spatial``: ``on=pk.intersects([…], cell=…)`` within a tenth of what the rows take in its state;
- ``spark-cells@spatial``: Spark's own stream-stream join of the cells that boxes touch, with RocksDB. Rows are exploded
  into their cells, cells are joined, and a pair counts if its boxes meet and the cell has the top left corner of what
  they have in common, so that it counts once. This is how one writes a spatial join in Spark SQL.

Cells are four times as wide as boxes for Spark, which compares all boxes of a cell with each other, and 64 times for
penstock, which sends rows to tasks by them and finds pairs there by itself. DuckDB says how many pairs there are.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import window_join as base

CORNERS = ("x1", "y1", "x2", "y2")
NARROW, WIDE = 4.0, 64.0
"""Cells in widths of a box."""


@dataclass(frozen=True, slots=True)
class BoxJob:
    """Both streams on disk, ``rows`` boxes each, `width` wide; ``matches`` pairs meet."""

    directory: Path
    rows: int
    batches: int
    matches: int
    memory: int
    width: float

    def folder(self, side: str) -> Path:
        """Where the files of a stream are."""
        return self.directory / side


def generate(directory: Path, rows: int, batches: int, memory: float) -> BoxJob:
    """Write both streams, seeded, one Parquet file of each for a micro-batch; `memory` is a part of the state."""
    width, state = float(np.sqrt(0.5 / rows)), 0
    for seed, name in enumerate(("left", "right")):
        corner = np.random.default_rng(10 + seed).random((2, rows))
        values = [*corner, *(corner + width), np.arange(rows), np.arange(rows)]
        boxes = pa.table(dict(zip((*CORNERS, "t", f"{name}_id"), values, strict=True)))
        state += boxes.nbytes + 8 * rows
        base.write_parquet(boxes, directory / name, rows // batches)
    [(matches,)] = duckdb.sql(_in_duckdb(directory, NARROW * width)).fetchall()
    return BoxJob(directory, rows, batches, int(matches), max(4_000_000, round(memory * state)), width)


def penstock(job: BoxJob, patience: float, method: str = "auto") -> tuple[list[float], list[int]]:
    """Seconds, and results, of each epoch."""
    import penstock as pk

    spark = base.session({})
    with tempfile.TemporaryDirectory(dir=job.directory, ignore_cleanup_errors=True) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=job.memory)
        left, right = (flow.parquet(job.folder(name), time="t", name=name, max_files=1) for name in ("left", "right"))
        left.join(right, on=pk.intersects(CORNERS, cell=WIDE * job.width), method=method).to_format("noop")
        query = flow.run()
        report = query.progress()
        batches = query.streaming_query.recentProgress
        spent = [base.trigger_seconds(batch) for batch in batches if base.has_rows(batch)]
        spent += [epoch.seconds for epoch in report.epochs[len(spent) :]]
        return spent, [epoch.rows_out for epoch in report.epochs]


def spark_cells(job: BoxJob, patience: float) -> tuple[list[float], list[int]]:
    """The same of Spark's own join of cells."""
    spark = base.session(base.ROCKSDB)
    cell = NARROW * job.width
    sides = []
    for name in ("left", "right"):
        folder = str(job.folder(name))
        schema = spark.read.parquet(folder).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
        across = rows.selectExpr("*", f"explode(sequence({_cell('x1', cell)}, {_cell('x2', cell)})) AS cx")
        both = across.selectExpr("*", f"explode(sequence({_cell('y1', cell)}, {_cell('y2', cell)})) AS cy")
        sides.append(both.alias(name[0]))
    condition = f"l.cx = r.cx AND l.cy = r.cy AND {_meet('l', 'r')} AND {_owner('l', 'r', cell)}"
    from pyspark.sql import functions as sf

    joined = sides[0].join(sides[1], sf.expr(condition)).selectExpr("left_id", "right_id", "l.t", "r.t AS t_right")
    with tempfile.TemporaryDirectory(dir=job.directory, ignore_cleanup_errors=True) as checkpoint:
        writer = joined.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(patience)
        query.stop()
        batches = query.recentProgress
        spent = [base.trigger_seconds(batch) for batch in batches]
        return spent or [patience], [batch.sink.numOutputRows for batch in batches] or [0]


ENGINES = {"penstock@spatial": penstock, "spark-cells@spatial": spark_cells}


def _cell(value: str, cell: float) -> str:
    return f"CAST(floor({value} / CAST({cell!r} AS DOUBLE)) AS BIGINT)"


def _meet(left: str, right: str) -> str:
    across = f"{left}.x1 <= {right}.x2 AND {right}.x1 <= {left}.x2"
    return f"{across} AND {left}.y1 <= {right}.y2 AND {right}.y1 <= {left}.y2"


def _owner(left: str, right: str, cell: float) -> str:
    first, last = f"greatest({left}.x1, {right}.x1)", f"least({left}.y2, {right}.y2)"
    return f"{left}.cx = {_cell(first, cell)} AND {left}.cy = {_cell(last, cell)}"


def _in_duckdb(directory: Path, cell: float) -> str:
    def side(name: str) -> str:
        spread = "SELECT *, unnest(range({}, {} + 1)) AS {} FROM "
        across = spread.format(_cell("x1", cell), _cell("x2", cell), "cx") + f"'{directory}/{name}/*.parquet'"
        return spread.format(_cell("y1", cell), _cell("y2", cell), "cy") + f"({across})"

    joined = f"({side('left')}) l JOIN ({side('right')}) r ON l.cx = r.cx AND l.cy = r.cy"
    return f"SELECT count(DISTINCT (left_id, right_id)) FROM {joined} WHERE {_meet('l', 'r')}"
