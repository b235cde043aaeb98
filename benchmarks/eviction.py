"""Eviction scans no state: an epoch in which nothing expires, at 10 k and at 1 M rows of state.

Both sides of an inner join are loaded with half of the state in the first epoch, under a window that never closes.
Then come small epochs of 2,000 rows, none of which lets anything expire. Timed is a whole epoch on Spark (median of
the warm ones) and, beside it, what the operator's tasks took of it. A ratio near 1 is the point: the cost of an epoch
follows what arrives and what leaves, not what is held.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import penstock as pk
from window_join import session

ARRIVALS = 2_000
EPOCHS = 12
COLD_EPOCHS = 4
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "v": pa.float64()})


def main(quick: bool) -> dict[str, object]:
    """Time epochs at both sizes, print them and, as the last line, the JSON that is also returned."""
    sizes = {"10k": 10_000, "1M": 1_000_000}
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory(prefix="eviction-") as folder:
        spark = session({})
        run(spark, Path(folder) / "throw-away", 10_000)
        runs = [
            {name: run(spark, Path(folder) / f"{name}-{turn}", rows) for name, rows in sizes.items()}
            for turn in range(rounds)
        ]
    best = {name: tuple(min(turn[name][part] for turn in runs) for part in (0, 1)) for name in sizes}
    for name, (epoch, tasks) in best.items():
        print(f"{name:>4} rows of state: {epoch * 1000:6.0f} ms per epoch, {tasks * 1000:6.1f} ms in the join's tasks")
    summary = {
        "bench": "eviction",
        "rows_per_second": {name: round(ARRIVALS / epoch) for name, (epoch, _) in best.items()},
        "ratio": {
            "10k": round(best["10k"][0] / best["1M"][0], 2),
            "10k-tasks": round(best["10k"][1] / best["1M"][1], 2),
        },
    }
    print(json.dumps(summary))
    return summary


def run(spark: SparkSession, folder: Path, state: int) -> tuple[float, float]:
    """Seconds of the median warm epoch, and of the join's tasks in it."""
    for port, name in enumerate(("left", "right")):
        write(folder / name, port, state)
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="512 MB")
    left, right = (
        flow.source(stream(spark, folder / name), time="t", progress=pk.ordered(), name=name, scan="spark")
        for name in ("left", "right")
    )
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


def stream(spark: SparkSession, folder: Path) -> object:
    schema = "k bigint, t bigint, v double"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
