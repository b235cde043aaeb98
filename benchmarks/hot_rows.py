"""The hottest rows of a master table broadcast and joined by Spark itself, before Python sees the rest: does it pay?

A table of 10 million rows of 120 bytes in penstock's pages, micro-batches of 100,000 rows whose keys follow Zipf's law,
and the rows most frequent in all of them, as many as a tenth of the table's memory would hold. Timed, warm, each one
Spark job over the same rows:

- ``python``: every row is looked up by Python, as a flow does;
- ``rest``: the same for the rows whose keys are not hot;
- ``broadcast``: Spark's own join of the hot rows, broadcast from its cache, with all rows;
- ``both``: what a flow would do that had a broadcast of hot rows: the two before, as one job.

``python hot_rows.py [--rows N]`` prints seconds per micro-batch; the last line is JSON.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import lookup
import window_join as base
from penstock.kernels.hashing import hash_keys
from penstock.storage.tables import PageTable, build_page_table

ROUNDS = 24
MEMORY = 0.1
COLUMNS = "key bigint, n bigint, since bigint, note string"


def main(table_rows: int) -> dict[str, float]:
    """Run all of them in turn, print, and give back what was printed as JSON."""
    with tempfile.TemporaryDirectory(prefix="hot-rows-", ignore_cleanup_errors=True) as directory:
        data = lookup.generate(Path(directory), table_rows, lookup.QUICK_BATCHES)
        tables = (pq.read_table(path) for path in sorted((data.directory / "table").glob("*.parquet")))
        pages = build_page_table(f"{directory}/pages", tables, ["key"])
        seconds = timed(data, pages)
    for name, spent in seconds.items():
        print(f"{name:>10}  {spent:.3f} s")
    print(json.dumps({"bench": "hot-rows", "seconds": seconds}))
    return seconds


def timed(data: lookup.Data, pages: PageTable) -> dict[str, float]:
    """The median of the later half of the rounds of each."""
    spark = base.session({})
    files = sorted((data.stream(1.0).directory / "parquet").glob("*.parquet"))
    keys, counts = np.unique(np.concatenate([pq.read_table(f)["key"].to_numpy() for f in files]), return_counts=True)
    hot_keys = keys[np.argsort(-counts, kind="stable")[: int(data.table_rows * MEMORY)]]
    hot = spark.createDataFrame(found(pages, hot_keys)).persist()
    hot.count()
    batches = [spark.read.schema("key bigint, n bigint").parquet(str(path)) for path in files]
    cold = [rows.join(hot, "key", "left_anti").persist() for rows in batches]
    for rows in cold:
        rows.count()

    def python(rows: DataFrame) -> DataFrame:
        def look_up(parts):  # type: ignore[no-untyped-def]
            for part in parts:
                if part.num_rows:
                    yield joined(pages, part)

        return rows.repartition(base.CORES, "key").mapInArrow(look_up, COLUMNS)

    def native(rows: DataFrame) -> DataFrame:
        return rows.join(F.broadcast(hot), "key")

    jobs: dict[str, Callable[[int], DataFrame]] = {
        "python": lambda at: python(batches[at]),
        "rest": lambda at: python(cold[at]),
        "broadcast": lambda at: native(batches[at]),
        "both": lambda at: python(batches[at].join(F.broadcast(hot), "key", "left_anti")).union(native(batches[at])),
    }
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(ROUNDS):
        for name, job in jobs.items():
            begun = perf_counter()
            job(number % len(batches)).write.format("noop").mode("append").save()
            spent[name].append(perf_counter() - begun)
    return {name: round(median(times[ROUNDS // 2 :]), 3) for name, times in spent.items()}


def joined(pages: PageTable, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with their master rows; every key has one."""
    keys, places = np.unique(rows.column("key").to_numpy(), return_inverse=True)
    master = found(pages, keys)
    master = master.take(pa.array(np.argsort(master["key"].to_numpy())[places])).combine_chunks()
    columns = [rows.column("key"), rows.column("n"), *(master[name].chunk(0) for name in ("since", "note"))]
    return pa.RecordBatch.from_arrays(columns, ["key", "n", "since", "note"])


def found(pages: PageTable, keys: np.ndarray) -> pa.Table:
    """The master rows of some keys."""
    asked = [pa.array(keys)]
    return pa.Table.from_batches([pages.open().get(hash_keys(asked), asked)]).drop_columns(["__hash"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=lookup.TABLE_ROWS)
    main(parser.parse_args().rows)
