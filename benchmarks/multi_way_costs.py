"""What it takes to carry payload through a join, or to fetch it for results: ``python benchmarks/multi_way_costs.py``.

Rows of 100 bytes, 1 KB and 3 KB of random text

- are sent: from map tasks as blobs through Spark's shuffle to their shards, which open them;
- are written: sorted into a page of a join's state, with its check sum, synced to disk;
- are probed: by 20,000 narrow rows that meet none, a tenth or all of as many rows of state, results copied;
- are fetched: 0.1 %, 1 %, 10 % and all of a Parquet file's, by their row index: the row groups that have some of them
  are read, that column alone, and the rows are taken. A file is one row group, or sixteen.

Constants are fitted to the medians, so that errors relative to each are least; those that would be negative are 0.
Seconds are those of one core: a shuffle by two tasks counts twice. Files are in the page cache.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import window_join as base
from penstock.core.budget import Budget
from penstock.core.operator import State
from penstock.core.rows import TIME, RowType
from penstock.core.within import LEFT, RIGHT, Always
from penstock.kernels.hashing import hash_keys
from penstock.operators.window_join import WindowJoin
from penstock.runtime.entering import Entry
from penstock.spark.blobs import BLOBS, Way, opened
from penstock.storage.files import FilePages

WIDTHS = (100, 1024, 3072)
SHARES = (0.001, 0.01, 0.1, 1.0)
GROUPS = (1, 16)
"""Row groups of a file."""
FILE_BYTES = 60_000_000
MOST_ROWS = 200_000
PROBES = 20_000
ROUNDS = 5
MEMORY = 2_000_000_000
EXTRA = 28
"""Bytes of a row in a blob besides its text: hash, time, key and offset."""

Constants = dict[str, float]
Measured = list[tuple[Mapping[str, float], float]]
"""How much of what was done, and the seconds that it took."""

ROWS = RowType(pa.schema({"k": pa.int64(), "text": pa.string()}), keys=("k",))
NARROW = RowType(pa.schema({"k": pa.int64()}), keys=("k",))


def main(file_bytes: int = FILE_BYTES, rounds: int = ROUNDS) -> dict[str, object]:
    """Measure all, print it, and give the constants back as they are printed as JSON."""
    constants: dict[str, Constants] = {}
    with tempfile.TemporaryDirectory(prefix="multi-way-costs-") as folder:
        bench = Bench(Path(folder), file_bytes, rounds)
        for name, measure in (
            ("fetched", bench.fetched),
            ("written", bench.written),
            ("probed", bench.probed),
            ("sent", bench.sent),
        ):
            measured = measure()
            constants[name] = fitted(measured)
            show(name, measured, constants[name])
    whole: dict[str, object] = {"bench": "multi-way-costs", "seconds": constants}
    print(json.dumps(whole))
    return whole


def fitted(measured: Measured) -> Constants:
    """Seconds of each thing that was done, so that the relative errors of all sums are least, and none is below 0.

    >>> fitted([({"row": 1, "byte": 10}, 3.0), ({"row": 2, "byte": 10}, 4.0), ({"row": 2, "byte": 20}, 6.0)])
    {'row': 1.0, 'byte': 0.2}
    """
    names = list(measured[0][0])
    seconds = np.array([spent for _, spent in measured])
    while True:
        done = np.array([[amounts[name] for name in names] for amounts, _ in measured])
        found = np.linalg.lstsq(done / seconds[:, None], np.ones(seconds.size), rcond=None)[0]
        if found.min() >= 0:
            break
        names.pop(int(found.argmin()))
    costs = dict(zip(names, found.tolist(), strict=True))
    return {name: float(f"{costs.get(name, 0.0):.3g}") for name in measured[0][0]}


def show(name: str, measured: Measured, constants: Constants) -> None:
    """What was measured, what the constants say, and the constants."""
    header = (name, *constants, "seconds", "fitted", "µs/row", "ns/byte")
    rows: list[tuple[str, ...]] = [header]
    for amounts, spent in measured:
        told = sum(constants[what] * amount for what, amount in amounts.items())
        each = (spent / amounts["row"] * 1e6, spent / amounts["byte"] * 1e9 if amounts["byte"] else 0.0)
        cells = (*(f"{amount:,.0f}" for amount in amounts.values()), f"{spent:.4f}", f"{told:.4f}")
        rows.append(("", *cells, *(f"{value:.2f}" for value in each)))
    base.print_plain(rows)  # type: ignore[arg-type]
    print(f"{name}: {', '.join(f'{what} {spent:.3g} s' for what, spent in constants.items())}\n", flush=True)


def clocked(job: Callable[[], Callable[[], object]], rounds: int) -> float:
    """Seconds of what a job prepares, the median after the first time."""
    spent = []
    for _ in range(rounds + 1):
        run = job()
        begun = time.perf_counter()
        run()
        spent.append(time.perf_counter() - begun)
    return median(spent[1:])


def wide(rows: int, width: int, seed: int = 0) -> pa.Table:
    """Rows with keys in no order, and texts in which no compressor finds repeats."""
    rng = np.random.default_rng(seed)
    letters = (rng.integers(0, 64, rows * width, np.uint8) + 48).tobytes()
    offsets = pa.py_buffer((np.arange(rows + 1) * width).astype(np.int32))
    texts = pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(letters)])
    return pa.table({"k": rng.permutation(rows), "text": texts, TIME: np.arange(rows)})


def exhaust(results: Iterator[object]) -> None:
    for _ in results:
        pass


def entered(rows: pa.Table, types: RowType) -> pa.RecordBatch:
    return types.enter(rows, hash_keys([rows.column("k").combine_chunks()]))


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured, each with about so many bytes, so many times."""

    folder: Path
    file_bytes: int
    rounds: int

    def rows(self, width: int) -> int:
        """How many rows of a width there are."""
        return min(MOST_ROWS, self.file_bytes // width)

    def fetched(self) -> Measured:
        """Rows of Parquet files by their row index."""
        measured: Measured = []
        for width in WIDTHS:
            rows = wide(self.rows(width), width)
            for groups in GROUPS:
                path = self.folder / f"{width}-{groups}.parquet"
                pq.write_table(rows, path, row_group_size=-(-rows.num_rows // groups))
                measured += [self._fetched(path, share, width) for share in SHARES]
        return measured

    def _fetched(self, path: Path, share: float, width: int) -> tuple[Mapping[str, float], float]:
        about = pq.read_metadata(path)
        count = max(1, round(share * about.num_rows))
        rng = np.random.default_rng(7)

        def drawn() -> Callable[[], object]:
            places = np.sort(rng.choice(about.num_rows, count, replace=False))
            return lambda: fetch(path, places)

        spent = clocked(drawn, self.rounds)
        places = np.sort(rng.choice(about.num_rows, count, replace=False))
        touched, read = groups_of(about, places)
        amounts = {"file": 1, "group": touched.size, "byte read": read * width, "row": count, "byte": count * width}
        return amounts, spent

    def written(self) -> Measured:
        """Rows that become pages of state."""
        measured: Measured = []
        for width in (8, *WIDTHS):
            for part in (4, 1):
                batch = entered(wide(self.rows(width) // part, width), ROWS)
                spent = clocked(partial(self._joining, LEFT, batch, sync=True), self.rounds)
                measured.append(({"page": 1, "row": batch.num_rows, "byte": batch.nbytes}, spent))
        return measured

    def probed(self) -> Measured:
        """Rows of state that arrivals meet; what the arrivals take without any state is left out."""
        measured: Measured = []
        for width in WIDTHS:
            rows = wide(min(PROBES, self.rows(width)), width)
            state = entered(rows, ROWS)
            for share in (0.0, 0.1, 1.0):
                keys = rows.column("k").to_numpy() + round((1 - share) * rows.num_rows)
                arrivals = entered(pa.table({"k": keys, TIME: np.arange(keys.size)}), NARROW)
                alone = clocked(partial(self._joining, RIGHT, arrivals), self.rounds)
                spent = clocked(partial(self._joining, RIGHT, arrivals, state), self.rounds)
                results = round(share * keys.size)
                amounts = {"page": 1, "row": keys.size, "result": results, "byte": results * width}
                # On a busy machine the difference of two medians may be nothing.
                measured += [(amounts, spent - alone)] if spent > alone else []
        return measured

    def _joining(
        self, port: int, batch: pa.RecordBatch, state: pa.RecordBatch | None = None, sync: bool = False
    ) -> Callable[[], object]:
        """A join with this state on the left; called, it takes a batch."""
        folder = self.folder / "pages"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        store = FilePages(str(folder))
        config = WindowJoin(on=(("k", "k"),), within=Always(), method="oa")
        logic = config.logic((ROWS, NARROW), store, Budget(MEMORY), State(()))
        if state is not None:
            exhaust(logic.rows(LEFT, state))

        def take() -> None:
            exhaust(logic.rows(port, batch))
            if sync:
                store.sync()

        return take

    def sent(self) -> Measured:
        """Rows that go to their shards as blobs, and the job that they need."""
        spark = base.session({"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"})
        measured: Measured = []
        for width in (8, *WIDTHS):
            for part in (4, 1):
                paths = []
                for task in range(base.CORES):
                    batch = wide(self.rows(width) // part, width, task)
                    paths.append(str(self.folder / f"{width}-{part}-{task}.arrow"))
                    with pa.ipc.new_file(paths[-1], batch.schema) as file:
                        file.write_table(batch, max_chunksize=1 << 16)
                spent = base.CORES * clocked(lambda paths=paths: partial(through, spark, Sending(paths)), self.rounds)
                rows = base.CORES * batch.num_rows
                measured.append(({"job": 1, "row": rows, "byte": rows * (width + EXTRA)}, spent))
        return measured


def fetch(path: Path, places: np.ndarray) -> pa.Table:
    """Some rows of a file, in the order of their places."""
    with pq.ParquetFile(path, memory_map=True) as file:
        groups, _ = groups_of(file.metadata, places)
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        begins = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        read = np.array([sizes[group] for group in groups])
        moved = begins[groups] - (np.cumsum(read) - read)
        which = places - moved[np.searchsorted(begins[groups], places, "right") - 1]
        return file.read_row_groups(groups.tolist(), ["text"], use_threads=False).take(which)


def groups_of(about: pq.FileMetaData, places: np.ndarray) -> tuple[np.ndarray, int]:
    """The row groups that have some places, and how many rows they have."""
    sizes = np.array([about.row_group(group).num_rows for group in range(about.num_row_groups)])
    groups = np.unique(np.searchsorted(np.cumsum(sizes), places, "right"))
    return groups, int(sizes[groups].sum())


@dataclass(frozen=True, slots=True)
class Sending:
    """A map task: a file of Arrow's for each, cut into blobs by shard."""

    paths: Sequence[str]
    shards: int = base.CORES
    share: int = base.MEMORY_MB * 1_000_000 // base.CORES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send."""
        way = Way((), 0, Entry("join0", ROWS, "drop"))
        for batch in batches:
            for task in batch.column(0).to_pylist():
                with pa.memory_map(self.paths[task]) as source, pa.ipc.open_file(source) as file:
                    for number in range(file.num_record_batches):
                        rows = pa.Table.from_batches([file.get_batch(number)])
                        yield from way.blobs(rows, self.shards, self.share)


def through(spark: SparkSession, task: Sending) -> int:
    """How many rows came to their shards."""
    numbers = spark.range(0, len(task.paths), 1, len(task.paths))
    blobs = numbers.mapInArrow(task, BLOBS).repartitionById(base.CORES, F.col("shard"))
    return sum(blobs.mapInArrow(counted, "rows long").toArrow().column(0).to_pylist())


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(part.num_rows for batch in batches for _, part in opened(batch))
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
