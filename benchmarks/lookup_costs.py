"""What the planner of lookups takes for granted, measured in process: ``python benchmarks/lookup_costs.py``.

A table of two million rows of 120 bytes stands in each kind of store. First what a read of it takes (`STORES` of
penstock.planner): a request for one key, each key of one for 50,000, and a byte of partitions that are scanned. Then
what a row takes (`Labour`), over epochs of 50,000 rows with state saved and taken up between them: looked up in pages,
with and without a cache of a tenth of the table, under two skews, and waiting for HYBRIDJOIN's reads. Seconds of
reads are the clock's, for a database is another process; those of rows are the processor's. Beside each stands what
the planner has.
"""

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lookup
from penstock.core.budget import Budget
from penstock.core.master import MasterTable, TableSource
from penstock.core.operator import State
from penstock.core.rows import RowType
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import LookupJoin
from penstock.planner import STORES
from penstock.planner.lookup.costs import Labour
from penstock.storage.files import FilePages
from penstock.storage.tables import ParquetTable, SqlTable, build_page_table
from penstock.storage.tables.arrow import ArrowTable

ROWS, KEYS, EPOCH, EPOCHS = 2_000_000, 50_000, 50_000, 16
MEMORY = 64_000_000
STREAM = RowType(pa.schema({"key": pa.int64(), "n": pa.int64(), "t": pa.int64()}), ("key",), "t")


def main() -> dict[str, object]:
    """Measure all, print it beside what the planner has, and give it back as it is printed as JSON."""
    rng = np.random.default_rng(9)
    rows = lookup.master_rows(rng.permutation(ROWS), rng)
    reads: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="lookup-costs-") as folder:
        for name, source in stores(rows, Path(folder)):
            reads[name] = read_costs(source.open(), rng)
            shown = {what: f"{spent:.3g} ({getattr(STORES[name], what):.3g})" for what, spent in reads[name].items()}
            print(f"{name:>8}: {', '.join(f'{what} {text}' for what, text in shown.items())}")
        labour = labour_of(build_page_table(f"{folder}/work", [rows], ["key"]), rng)
    taken = asdict(Labour())
    print(f"{'a row':>8}: {', '.join(f'{what} {spent:.3g} ({taken[what]:.3g})' for what, spent in labour.items())}")
    whole: dict[str, object] = {"bench": "lookup-costs", "reads": reads, "labour": labour}
    print(json.dumps(whole))
    return whole


def stores(rows: pa.Table, folder: Path) -> Iterator[tuple[str, TableSource]]:
    """The rows in each kind of store that can be had here."""
    yield "arrow", ArrowTable(rows, ("key",))
    yield "pages", build_page_table(str(folder / "pages"), [rows], ["key"])
    (folder / "parquet").mkdir()
    pq.write_table(rows, folder / "parquet" / "part.parquet", row_group_size=100_000)
    yield "parquet", ParquetTable(str(folder / "parquet"), ("key",))
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.postgres import PostgresMissingError, server

    try:
        with server() as url:
            lookup.load_postgres([rows], url)
            yield "sql", SqlTable(url, "master", ("key",))
    except (PostgresMissingError, ImportError) as missing:
        print(f"     sql: SQLite in place of PostgreSQL. {missing}")
        with sqlite3.connect(folder / "master.db") as database:
            database.execute("CREATE TABLE master (key INTEGER PRIMARY KEY, since INTEGER, note TEXT)")
            columns = zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True)
            database.executemany("INSERT INTO master VALUES (?, ?, ?)", columns)
        yield "sql", SqlTable(f"sqlite:///{folder}/master.db", "master", ("key",))


Clock = Callable[[], float]


def read_costs(opened: MasterTable, rng: np.random.Generator, clock: Clock = time.perf_counter) -> dict[str, float]:
    def get(count: int) -> Callable[[], object]:
        keys = pa.array(np.sort(rng.choice(ROWS, count, replace=False)))
        return lambda: opened.get(hash_keys([keys]), [keys])

    request = clocked(lambda: get(1), 9, clock)
    many = clocked(lambda: get(KEYS), 5, clock)
    costs = {"request": request, "key": (many - request) / KEYS}
    if opened.clustered:
        partitions = rng.integers(0, opened.partitions, 20).tolist()
        sizes = [opened.scan(partition).nbytes for partition in partitions]
        costs["bandwidth"] = median(sizes) / clocked(lambda: lambda: copied(opened.scan(partitions.pop())), 19, clock)
    return costs


def copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in memory: what is mapped is read only when it is looked at."""
    return rows.take(pa.array(np.arange(rows.num_rows)))


def clocked(job: Callable[[], Callable[[], object]], times: int, clock: Clock) -> float:
    """Seconds of a job, each time another; the median after the first."""
    spent = []
    for _ in range(times + 1):
        run = job()
        begun = clock()
        run()
        spent.append(clock() - begun)
    return median(spent[1:])


def labour_of(pages: TableSource, rng: np.random.Generator) -> dict[str, float]:
    """Seconds of the processor that rows take by what becomes of them."""
    key = read_costs(pages.open(), rng, time.process_time)["key"]
    plain, _ = epochs(pages, "inlj", drawn(rng, 0.0))
    answer = plain / EPOCH - key
    one, some = epochs(pages, "cinlj", drawn(rng, 1.0))
    other, none = epochs(pages, "cinlj", drawn(rng, 0.0))
    met = [[some["hits"], some["misses"]], [none["hits"], none["misses"]]]
    hit, miss = np.linalg.solve(np.array(met, float), [one, other])
    waiting, counts = epochs(pages, "hybridjoin", drawn(rng, 0.0))
    read = counts["bytes_read"] * Labour().copy
    return {
        "answer": answer,
        "hit": float(hit),
        "offer": float(miss) - key - answer,
        "wait": (waiting - read) / EPOCH - answer,
    }


def drawn(rng: np.random.Generator, skew: float) -> list[pa.RecordBatch]:
    """Epochs of rows whose keys follow Zipf's law; which are frequent has nothing to do with where they lie."""
    weights = np.cumsum(np.arange(1, ROWS + 1) ** -skew)
    ranks = rng.permutation(ROWS)
    batches = []
    for epoch in range(EPOCHS):
        keys = ranks[np.minimum(weights.searchsorted(rng.random(EPOCH) * weights[-1]), ROWS - 1)]
        times = np.full(EPOCH, epoch)
        rows = pa.table({"__time": times, "key": keys, "n": np.arange(EPOCH)})
        batches.append(STREAM.enter(rows, hash_keys([pa.array(keys)])))
    return batches


def epochs(pages: TableSource, method: str, batches: list[pa.RecordBatch]) -> tuple[float, dict[str, int]]:
    """The processor's time and the counts of an epoch, the median and the last of the later half."""
    config = LookupJoin(on=(("key", "key"),), table=pages, method=method, unit="ticks")
    state, spent, counts = State(()), [], {}
    with tempfile.TemporaryDirectory() as folder:
        store = FilePages(folder)
        for batch in batches:
            begun = time.process_time()
            logic = config.logic((STREAM,), store, Budget(MEMORY), state)
            for _ in logic.rows(0, batch):
                pass
            state, counts = logic.state(), logic.counts()
            spent.append(time.process_time() - begun)
    return median(spent[EPOCHS // 2 :]), counts


if __name__ == "__main__":
    main()
