"""How long flows over wide rows take: 200 rows of 500, 1,000 and 2,000 columns, in process or on Spark.

``python benchmarks/wide_rows.py [--spark] [columns …]`` prints seconds to build each flow and to run it. Twice the
columns should take about twice as long, not four times.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk

ROWS = 200
Build = Callable[[Any, Any, Any, pa.Table], Any]

FLOWS: dict[str, Build] = {
    "select": lambda left, right, table, wide: left.select("*", "c0 + 1 AS more"),
    "where": lambda left, right, table, wide: left.where("c1 > 10"),
    "aggregation": lambda left, right, table, wide: (
        left.window(range=10).by("k").agg(**{f"s{n}": pk.sum(f"c{n}") for n in range(wide)})
    ),
    "join": lambda left, right, table, wide: left.join(right, on="k", within=pk.band(0, 0)),
    "join where": lambda left, right, table, wide: left.join(right, on="k", within=pk.band(0, 0), where="l.c1 <= r.c1"),
    "lookup": lambda left, right, table, wide: left.lookup(table, on="k"),
}


def main() -> None:
    """Time every flow at every width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--only", choices=FLOWS)
    parser.add_argument("columns", type=int, nargs="*", default=[500, 1_000, 2_000])
    asked = parser.parse_args()
    session = _session() if asked.spark else None
    print(f"{'':12}" + "".join(f"{columns:>22}" for columns in asked.columns))
    for name in [asked.only] if asked.only else FLOWS:
        print(f"{name:12}", end="", flush=True)
        for columns in asked.columns:
            build, run = _timed(FLOWS[name], columns, session)
            print(f"{build:10.2f} + {run:7.2f} s", end="", flush=True)
        print()


def _timed(build: Build, columns: int, session: Any) -> tuple[float, float]:
    """Seconds to build a flow, and to run it."""
    rows = pa.table(
        {"k": range(ROWS), "t": range(ROWS), **{f"c{n}": [n + row for row in range(ROWS)] for n in range(columns)}}
    )
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        flow, sources = _sources(rows, folder, session)
        # Two stages of streams have two sources only where both are used.
        out = build(sources[0], sources[-1], rows.drop_columns(["t"]), columns).to_memory()
        built = time.perf_counter()
        flow._sources[:] = [node for node in flow._sources if node.name == "l" or build in _OF_TWO]
        flow.run()
        assert out.table().num_rows > 0
        return built - begun, time.perf_counter() - built


_OF_TWO = (FLOWS["join"], FLOWS["join where"])


def _sources(rows: pa.Table, folder: str, session: Any) -> tuple[Any, list[Any]]:
    if session is None:
        flow = pk.LocalFlow(memory="1 GB")
        return flow, [flow.source(rows, time="t", name=name) for name in "lr"]
    pq.write_table(rows, f"{folder}/rows.parquet")
    frame = session.read.parquet(f"{folder}/rows.parquet")
    spark_flow = pk.Flow(session, checkpoint=f"{folder}/checkpoint", memory="1 GB")
    reader = session.readStream.schema(frame.schema).parquet
    return spark_flow, [spark_flow.source(reader(folder + "/*.parquet"), time="t", name=name) for name in "lr"]


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", value=False).getOrCreate()


if __name__ == "__main__":
    main()
