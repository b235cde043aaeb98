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
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import window_join as base

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORNERS = ("x1", "y1", "x2", "y2")
NARROW, WIDE = 4.0, 64.0
"""Cells in widths of a box."""
LEAF = 128
"""Boxes of either stream in a partition of the quantiles, when all have come."""
STEPS = 2048
"""Quantiles are rounded to so many steps across, and up and down, so that a table says where a corner is."""


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


def spark_partitions(job: BoxJob, patience: float) -> tuple[list[float], list[int]]:
    """The same by a partitioning made from a sample, as Sedona plans it."""
    from pyspark.sql import functions as sf

    spark = base.session({})
    sides = []
    for name in ("left", "right"):
        folder = str(job.folder(name))
        rows = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
        sides.append(
            rows.parquet(folder).select(*CORNERS, "t", sf.col(f"{name}_id").alias("id"), sf.lit(name).alias("side"))
        )
    counts: list[int] = []
    with tempfile.TemporaryDirectory(dir=job.directory, ignore_cleanup_errors=True) as directory:

        def epoch(rows: DataFrame, number: int) -> None:
            if number == 0:
                sample = rows.where("side = 'left'").select("x1", "y1").toArrow()
                _write_partitioning(sample, job.rows, Path(directory))
            counts.append(_join_batch(rows, number, Path(directory)))

        writer = sides[0].union(sides[1]).writeStream.foreachBatch(epoch)
        query = writer.option("checkpointLocation", f"{directory}/log").trigger(availableNow=True).start()
        query.awaitTermination(patience)
        query.stop()
        spent = [base.trigger_seconds(batch) for batch in query.recentProgress]
        return spent or [patience], counts[: len(spent)] or [0]


def _join_batch(rows: DataFrame, number: int, directory: Path) -> int:
    """Partition the boxes of a micro-batch, keep them, and join them with all before them; how many pairs there are."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    spark = rows.sparkSession
    copies = str(directory / "copies")
    _partitioned(rows, spark, directory).write.mode("overwrite").parquet(f"{copies}/batch={number}")
    kept = spark.read.parquet(copies)
    left, right = (kept.where(f"side = '{name}'").alias(name[0]) for name in ("left", "right"))
    new = f"batch = {number}"
    # What has just come is a small part of what there is: it is sent to where the history is read.
    pairs = [(left, sf.broadcast(right.where(new))), (sf.broadcast(left.where(new)), right.where(f"batch < {number}"))]
    same = "l.strip = r.strip AND l.leaf = r.leaf"
    owner = "l.strip = greatest(l.first_strip, r.first_strip) AND l.leaf = least(l.last_leaf, r.last_leaf)"
    parts = [
        some.alias("l").join(other.alias("r"), sf.expr(f"{same} AND {_meet('l', 'r')} AND {owner}"))
        for some, other in pairs
    ]
    joined = [part.selectExpr("l.id AS left_id", "r.id AS right_id", "l.t", "r.t AS t_right") for part in parts]
    observation = Observation()
    out = joined[0].union(joined[1]).observe(observation, sf.count(sf.lit(1)).alias("rows"))
    out.write.format("noop").mode("append").save()
    return int(observation.get["rows"])


def _partitioned(rows: DataFrame, spark: SparkSession, directory: Path) -> DataFrame:
    """A row for each partition that a box touches, with what says which of them owns a pair."""
    from pyspark.sql import functions as sf

    strips, leaves = (spark.read.parquet(str(directory / f"{name}.parquet")) for name in ("strips", "leaves"))

    def at(table: DataFrame, corner: str, name: str, *more: str) -> DataFrame:
        """`table` by the step that a corner is in, told as `name`."""
        place = table.columns[-1]
        return sf.broadcast(table.selectExpr("step AS " + corner + "_step", *more, f"{place} AS {name}"))

    steps = [f"CAST(least(floor({corner} * {STEPS}), {STEPS - 1}) AS INT) AS {corner}_step" for corner in CORNERS]
    across = rows.selectExpr("*", *steps)
    across = across.join(at(strips, "x1", "first_strip"), "x1_step").join(at(strips, "x2", "last_strip"), "x2_step")
    across = across.selectExpr("*", "explode(sequence(first_strip, last_strip)) AS strip")
    both = across.join(at(leaves, "y1", "first_leaf", "strip"), ["strip", "y1_step"])
    both = both.join(at(leaves, "y2", "last_leaf", "strip"), ["strip", "y2_step"])
    leaf = "explode(sequence(first_leaf, last_leaf)) AS leaf"
    return both.selectExpr(*CORNERS, "t", "id", "side", "first_strip", "strip", "last_leaf", leaf)


def _write_partitioning(sample: pa.Table, rows: int, directory: Path) -> None:
    """Cut the unit square at quantiles of a sample; write which strip a step across is in, and which leaf one up."""
    import pyarrow.parquet as pq

    x, y = (sample[name].to_numpy() for name in ("x1", "y1"))
    cuts = max(1, round((rows / LEAF) ** 0.5))
    strip = _cuts(x, cuts)
    pq.write_table(pa.table({"step": _STEP, "strip": strip}), directory / "strips.parquet")
    of = strip[np.minimum((x * STEPS).astype(np.int32), STEPS - 1)]
    leaf = [_cuts(y[of == one], cuts) for one in range(strip[-1] + 1)]
    table = {
        "strip": np.repeat(np.arange(len(leaf), dtype=np.int32), STEPS),
        "step": np.tile(_STEP, len(leaf)),
        "leaf": np.concatenate(leaf),
    }
    pq.write_table(pa.table(table), directory / "leaves.parquet")


_STEP = np.arange(STEPS, dtype=np.int32)


def _cuts(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int32]:
    """Which of at most `count` parts with equally many of the values each step is in."""
    if not values.size:
        return np.zeros(STEPS, dtype=np.int32)
    ends = np.quantile(values, np.arange(1, count) / count)
    return np.searchsorted(np.unique(np.round(ends * STEPS)), _STEP, side="right").astype(np.int32)


ENGINES = {
    "penstock@spatial": penstock,
    "spark-cells@spatial": spark_cells,
    "spark-partitions@spatial": spark_partitions,
}
PEERS = ("spark-cells@spatial", "spark-partitions@spatial")


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
