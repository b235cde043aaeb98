"""The joins that ``penstock bench multi-way`` times: their files, and how penstock and Spark itself do them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import window_join as base

sys.path.insert(0, str(base.HERE.parent))  # the lab is beside the benchmarks

from lab.multi_way_model import moved
from lab.workloads.tpch import KB, Tpch

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.stream import Stream

FILES = 2
"""Files of a stream in a micro-batch."""
COLD = 1
"""Micro-batches that are not counted."""
FEW_ORDERS = 20
"""Of so many orders one is there where results are few."""
TEXTS = 10
"""Columns of text, a hundred bytes each, of the wide interval join."""

Scan = Literal["arrow", "dataframe"]
Materialize = Literal["auto", "early", "late"]
PAYLOAD = {"auto": "auto", "early": "row", "late": "source"}
"""Where a source leaves the payload of a join of two."""


class Job(Protocol):
    """A join over files that are on disk."""

    @property
    def directory(self) -> Path:
        """Where checkpoints may be made."""
        ...

    @property
    def rows_per_batch(self) -> int:
        """Rows of all streams in a micro-batch."""
        ...

    @property
    def batches(self) -> int:
        """How many micro-batches there are;"""
        ...

    @property
    def cold(self) -> int:
        """and how many of them are not counted."""
        ...

    @property
    def matches(self) -> int:
        """How many rows must come out."""
        ...

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """How Spark's own operators run best."""
        ...

    def modelled(self, left_behind: Sequence[Collection[str]]) -> float | None:
        """Bytes that joins move by the cost model, if it can tell; in each epoch, some streams left payload behind."""
        ...

    def by_penstock(self, flow: Flow, spark: SparkSession, scan: Scan, materialize: Materialize) -> Stream:
        """The results as a stream of penstock."""
        ...

    def by_spark(self, spark: SparkSession) -> DataFrame:
        """The results by Spark's own operators."""
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """A join of TPC-H's streams: which are joined first, on what, and the same by Spark's own operators."""

    plan: str
    on: tuple[str, ...]
    by_spark: Callable[[Mapping[str, DataFrame]], DataFrame]

    @property
    def streams(self) -> tuple[str, ...]:
        """Their names, in the order of the plan."""
        return tuple(self.plan.replace("(", " ").replace(")", " ").split())


def three_way(rows: Mapping[str, DataFrame]) -> DataFrame:
    lines = rows["li"].join(rows["o"], F.expr("li_orderkey = o_orderkey"))
    return lines.join(rows["s"], F.expr("li_suppkey = s_suppkey"))


def four_way(rows: Mapping[str, DataFrame]) -> DataFrame:
    supplied = rows["li"].join(rows["s"], F.expr("li_suppkey = s_suppkey"))
    ordered = rows["o"].join(rows["c"], F.expr("o_custkey = c_custkey"))
    return supplied.join(ordered, F.expr("li_orderkey = o_orderkey"))


SHAPES = {
    "3way": Shape("(li o) s", ("li.orderkey = o.orderkey", "li.suppkey = s.suppkey"), three_way),
    "4way": Shape(
        "(li s) (o c)", ("li.suppkey = s.suppkey", "o.custkey = c.custkey", "li.orderkey = o.orderkey"), four_way
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One of the shapes, with so many bytes of random text in each lineitem, and all orders or few.

    >>> Case.of("4way-3k-low").orders, Case.of("3way-0").payload
    ('o-low', 0)
    """

    shape: str
    payload: int
    orders: Literal["o", "o-low"]

    @classmethod
    def of(cls, name: str) -> Case:
        """The case that has this name."""
        shape, payload, *low = name.split("-")
        return cls(shape, 3 * KB if payload == "3k" else 0, "o-low" if low else "o")


CASES = {
    f"{shape}-{payload}{rate}": Case.of(f"{shape}-{payload}{rate}")
    for payload in ("0", "3k")
    for shape in SHAPES
    for rate in ("", "-low")
}


@dataclass(frozen=True, slots=True)
class Files:
    """TPC-H's streams on disk, in the order of their keys: ``parquet/<stream>``, and ``csv/<stream>`` for Flink."""

    directory: Path
    epochs: int
    rows: Mapping[str, int]

    def parquet(self, stream: str) -> Path:
        """The files of a stream."""
        return self.directory / "parquet" / stream

    @property
    def csv(self) -> Path:
        """The folder that Flink reads."""
        return self.directory / "csv"


def generate(directory: Path, scale: float, payload: int, epochs: int) -> Files:
    """Write the streams; each is divided evenly over the micro-batches."""
    data = Tpch(scale, (("li", payload),) if payload else ())
    tables = {name: data.table(name) for name in ("li", "o", "s", "c")}
    tables["o-low"] = tables["o"].take(np.arange(0, tables["o"].num_rows, FEW_ORDERS))
    tables = {name: as_stream(table) for name, table in tables.items()}
    for name, table in tables.items():
        write_parquet(table, directory / "parquet" / name, epochs)
        if base.PEERS.exists():
            write_csv(table, directory / "csv" / name)
    if base.PEERS.exists():
        columns = {name: flink_columns(name.partition("-")[0], table.schema) for name, table in tables.items()}
        (directory / "csv" / "columns.json").write_text(json.dumps(columns))
    return Files(directory, epochs, {name: table.num_rows for name, table in tables.items()})


def as_stream(rows: pa.Table) -> pa.Table:
    """Rows with the order of their arrival as their time, and texts of the type that all engines read."""
    plain = [field.with_type(pa.string()) if pa.types.is_large_string(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(plain)).append_column("t", pa.array(np.arange(rows.num_rows)))


def write_parquet(rows: pa.Table, folder: Path, epochs: int) -> None:
    folder.mkdir(parents=True)
    ends = np.linspace(0, rows.num_rows, epochs * FILES + 1).astype(int).tolist()
    for number, (start, end) in enumerate(pairwise(ends)):
        path = folder / f"{number:03}.parquet"
        pa.parquet.write_table(rows.slice(start, end - start), path)
        # Spark's file source reads in order of modification time.
        os.utime(path, (base.START_MS // 1000 + number,) * 2)


def write_csv(rows: pa.Table, folder: Path) -> None:
    """One file per core, to which rows are dealt in turn."""
    folder.mkdir(parents=True)
    options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")
    for core in range(base.CORES):
        pa.csv.write_csv(rows.take(np.arange(core, rows.num_rows, base.CORES)), folder / f"{core}.csv", options)


def flink_columns(stream: str, columns: pa.Schema) -> str:
    """The columns of a stream as Flink declares them, led by its name."""
    kinds = {"int64": "BIGINT", "int32": "INT", "string": "STRING", "date32[day]": "DATE"}
    return ", ".join(f"{stream}_{field.name} {kinds.get(str(field.type), 'DECIMAL(15, 2)')}" for field in columns)


@dataclass(frozen=True)
class Joined:
    """A case over its files."""

    case: Case
    files: Files

    @property
    def shape(self) -> Shape:
        """What is joined."""
        return SHAPES[self.case.shape]

    @property
    def directory(self) -> Path:
        """Where checkpoints may be made."""
        return self.files.directory

    @property
    def rows(self) -> int:
        """Rows of all streams."""
        return sum(self.files.rows[self.folder(name)] for name in self.shape.streams)

    @property
    def rows_per_batch(self) -> int:
        """Rows of all streams in a micro-batch."""
        return round(self.rows / self.batches)

    @property
    def batches(self) -> int:
        """How many micro-batches there are."""
        return self.files.epochs

    @property
    def cold(self) -> int:
        """The first meets empty state."""
        return COLD

    @cached_property
    def matches(self) -> int:
        """How many rows DuckDB gives."""
        tables = ", ".join(f"'{self.files.parquet(self.folder(name))}/*.parquet' {name}" for name in self.shape.streams)
        [(count,)] = duckdb.sql(f"SELECT count(*) FROM {tables} WHERE {' AND '.join(self.shape.on)}").fetchall()
        return int(count)

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """RocksDB."""
        return base.ROCKSDB

    def modelled(self, left_behind: Sequence[Collection[str]]) -> float | None:
        """Bytes that joins move by the cost model; each epoch has an equal part of all rows and results."""
        folders = {name: self.folder(name) for name in self.shape.streams}
        first = {name: sorted(self.files.parquet(folder).iterdir())[0] for name, folder in folders.items()}
        some = {name: pa.parquet.read_table(path) for name, path in first.items()}
        rows = {name: self.files.rows[folder] for name, folder in folders.items()}
        shape: Literal["3-way", "4-way"] = "3-way" if self.case.shape == "3way" else "4-way"
        parts = [moved(shape, {*folders} - {*left}, some, rows, self.matches) for left in left_behind]
        return sum(parts) / len(parts)

    def folder(self, stream: str) -> str:
        """Which files a stream has."""
        return self.case.orders if stream == "o" else stream

    def by_penstock(self, flow: Flow, spark: SparkSession, scan: Scan, materialize: Materialize) -> Stream:
        """All columns of the join by its plan, over full history."""

        def source(name: str) -> Stream:
            if scan == "dataframe":
                return flow.source(self._stream(spark, name), time="t", name=name, scan="spark")
            return flow.parquet(self.files.parquet(self.folder(name)), time="t", name=name, max_files=FILES)

        streams = {name: source(name) for name in self.shape.streams}
        return flow.join(**streams, on=self.shape.on, plan=self.shape.plan, materialize=materialize)

    def by_spark(self, spark: SparkSession) -> DataFrame:
        """The same by joins of two, one after the other; inner joins need no watermark."""
        frames = {name: self._stream(spark, name) for name in self.shape.streams}
        return self.shape.by_spark(
            {name: rows.toDF(*(f"{name}_{column}" for column in rows.columns)) for name, rows in frames.items()}
        )

    def _stream(self, spark: SparkSession, name: str) -> DataFrame:
        folder = str(self.files.parquet(self.folder(name)))
        reader = spark.readStream.schema(spark.read.parquet(folder).schema)
        return reader.option("maxFilesPerTrigger", FILES).parquet(folder)


@dataclass(frozen=True, slots=True)
class Wide:
    """The interval join of window_join.py, with `TEXTS` columns of text beside the others."""

    workload: base.Workload

    @property
    def directory(self) -> Path:
        """Where checkpoints may be made."""
        return self.workload.directory

    @property
    def rows_per_batch(self) -> int:
        """Rows of both streams in a micro-batch."""
        return self.workload.rows_per_batch

    @property
    def batches(self) -> int:
        """How many micro-batches there are."""
        return self.workload.batches

    @property
    def cold(self) -> int:
        """The window is full after them."""
        return base.COLD_BATCHES

    @property
    def matches(self) -> int:
        """How many rows DuckDB gives."""
        return self.workload.matches

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """RocksDB."""
        return base.ROCKSDB

    def modelled(self, left_behind: Sequence[Collection[str]]) -> float | None:
        """The cost model is about joins of several streams."""
        return None

    def by_penstock(self, flow: Flow, spark: SparkSession, scan: Scan, materialize: Materialize) -> Stream:
        """All columns of pairs at most ten minutes apart."""
        import penstock as pk

        payload, told = PAYLOAD[materialize], {"time": "ts", "progress": base.delay()}

        def source(name: str) -> Stream:
            if scan == "dataframe":
                return flow.source(base.stream(spark, self.workload, name), payload=payload, scan="spark", **told)
            folder = self.workload.directory / "parquet" / name
            return flow.parquet(folder, max_files=1, payload=payload, **told)

        near = pk.band(before="10 min", after="10 min")
        return source("orders").join(source("payments"), on="order_id", within=near)

    def by_spark(self, spark: SparkSession) -> DataFrame:
        """The same with watermarks."""
        return base.joined_by_spark(spark, self.workload)
