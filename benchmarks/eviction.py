"""Eviction scans no state: an epoch in which nothing expires, at 10 k and at 1 M rows of state.

Both sides of an inner join are loaded with half of the state in the first epoch, under a window that never closes.
Then come small epochs of 2,000 rows, none of which lets anything expire. Timed is a whole epoch on Spark (median of
the warm ones) and, beside it, what the operator itself took of it. A ratio near 1 is the point: the cost of an epoch
follows what arrives and what leaves, not what is held.

Both are measured over streaming DataFrames that Spark scans, and over files that Arrow reads (``flow.parquet``;
``files-…`` in the JSON). ``dataframe`` is how much faster the latter are at 1 M rows of state.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import penstock as pk
from penstock.flow.stream import Stream
from window_join import session

ARRIVALS = 2_000
EPOCHS = 12
COLD_EPOCHS = 4
SIZES = {"10k": 10_000, "1M": 1_000_000}
SOURCES = {"": "DataFrames", "files-": "files"}
"""What the figures over each kind of source begin with."""
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "v": pa.float64()})


def main(quick: bool) -> dict[str, object]:
    """Time epochs at both sizes, print them and, as the last line, the JSON that is also returned."""
    rounds = 1 if quick else 3
    cases = {kind + name: (kind, rows) for kind in SOURCES for name, rows in SIZES.items()}
    with tempfile.TemporaryDirectory(prefix="eviction-") as folder:
        spark = session({})
        for kind in SOURCES:
            run(spark, Path(folder) / f"throw-away-{kind}", kind, SIZES["10k"])
        runs = [
            {name: run(spark, Path(folder) / f"{name}-{turn}", *case) for name, case in cases.items()}
            for turn in range(rounds)
        ]
    best = {name: tuple(min(turn[name][part] for turn in runs) for part in (0, 1)) for name in cases}
    for name, (epoch, join) in best.items():
        kind, rows = cases[name]
        said = f"{SOURCES[kind]:>10}, {rows:9,} rows of state"
        print(f"{said}: {epoch * 1000:6.0f} ms per epoch, {join * 1000:6.1f} ms in the join")
    summary = summarise(best)
    print(json.dumps(summary))
    return summary


def summarise(best: Mapping[str, tuple[float, ...]]) -> dict[str, object]:
    """Rates, and ratios above 1 where an epoch is slower with less state, or over DataFrames."""
    ratio = {}
    for kind in SOURCES:
        few, many = best[f"{kind}10k"], best[f"{kind}1M"]
        ratio |= {f"{kind}10k": round(few[0] / many[0], 2), f"{kind}10k-tasks": round(few[1] / many[1], 2)}
    ratio["dataframe"] = round(best["1M"][0] / best["files-1M"][0], 2)
    rates = {name: round(ARRIVALS / epoch) for name, (epoch, _) in best.items()}
    return {"bench": "eviction", "rows_per_second": rates, "ratio": ratio}


def run(spark: SparkSession, folder: Path, kind: str, state: int) -> tuple[float, float]:
    """Seconds of the median warm epoch, and of the join in it."""
    for port, name in enumerate(("left", "right")):
        write(folder / name, port, state)
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="512 MB")
    left, right = (source(flow, folder / name, kind) for name in ("left", "right"))
    left.join(right, on="k", within=pk.band(before=10**12, after=10**12)).to_format("noop")
    report = flow.run(end=False).progress()
    held = report.epochs[0].operators["join0"].state_rows
    if held != state:
        raise RuntimeError(f"{held:,} rows are held, not {state:,}: the figures mean nothing.")
    warm = report.epochs[COLD_EPOCHS:]
    return median(epoch.seconds for epoch in warm), median(epoch.operators["join0"].seconds for epoch in warm)


def write(folder: Path, port: int, state: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(port)
    sizes = [state // 2] + [ARRIVALS // 2] * EPOCHS
    for epoch, rows in enumerate(sizes):
        columns = [rng.integers(0, 2**62, rows) * 2 + port, np.full(rows, epoch), rng.random(rows)]
        path = folder / f"{epoch:03}.parquet"
        pq.write_table(pa.table(columns, schema=SCHEMA), path)
        os.utime(path, (1_600_000_000 + epoch,) * 2)


def source(flow: pk.Flow, folder: Path, kind: str) -> Stream:
    if kind == "files-":
        return flow.parquet(folder, time="t", progress=pk.ordered(), max_files=1, name=folder.name)
    rows = stream(flow.spark, folder)
    return flow.source(rows, time="t", progress=pk.ordered(), name=folder.name, scan="spark")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = "k bigint, t bigint, v double"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
