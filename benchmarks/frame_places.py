"""Payload that a streaming DataFrame of Parquet files leaves behind: what Spark's scan takes with and without it.

    python benchmarks/frame_places.py

40,000 rows an epoch, each a key, a time and 3 KB of text, from two files, into a sink that drops them, in
`foreachBatch`. Spark plans the scan before `foreachBatch` gets the rows: a column that is not selected there has been
read all the same. One that is not selected before the query starts is not read, also behind a user's own `where` and
`select`, and `_metadata` tells the file and the place of each row. So rows of such a source leave payload in their
files, which is decided once, at the start (`spark/parquet_frames.py`). Seconds are those of `foreachBatch`, in the
median of epochs after the first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import window_join as base

ROWS, EPOCHS, FILES, TEXT = 40_000, 5, 2, 3_072
KEPT = ("k", "t")
PLACE = ("_metadata.file_path AS file", "_metadata.row_index AS row")

Make = Callable[[DataFrame], DataFrame]

WAYS: dict[str, tuple[Make, Make]] = {
    "all columns": (lambda rows: rows, lambda rows: rows),
    "keys, selected in foreachBatch": (lambda rows: rows, lambda rows: rows.select(*KEPT)),
    "keys and places, selected before": (lambda rows: rows.selectExpr(*KEPT, *PLACE), lambda rows: rows),
    "the same behind where and select": (
        lambda rows: rows.where("k >= 0").select("*").selectExpr(*KEPT, *PLACE),
        lambda rows: rows,
    ),
}
"""What is made of a stream before its query starts, and in `foreachBatch`."""


def write(folder: Path) -> None:
    """Files of keys, times and random text."""
    letters = np.random.default_rng(1).integers(97, 123, (ROWS // FILES, TEXT), np.uint8)
    texts = pa.array([row.tobytes().decode() for row in letters])
    for number in range(EPOCHS * FILES):
        first = number * len(texts)
        keys = pa.array(range(first, first + len(texts)))
        pq.write_table(pa.table({"k": keys, "t": keys, "text": texts}), folder / f"{number}.parquet")


def timed(folder: Path, before: Make, within: Make) -> float:
    """Seconds of an epoch."""
    spark, seconds = base.session({}), []

    def epoch(rows: DataFrame, number: int) -> None:
        begun = time.perf_counter()
        within(rows).write.format("noop").mode("append").save()
        seconds.append(time.perf_counter() - begun)

    reader = spark.readStream.schema("k long, t long, text string").option("maxFilesPerTrigger", FILES)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = before(reader.parquet(str(folder))).writeStream.foreachBatch(epoch)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    return median(seconds[1:])


def main() -> None:
    """Time every way twice; the better one counts."""
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory))
        found = [{name: timed(Path(directory), *way) for name, way in WAYS.items()} for _ in range(2)]
    for name in WAYS:
        print(f"{name:34} {min(each[name] for each in found):.2f} s")


if __name__ == "__main__":
    main()
