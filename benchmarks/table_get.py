"""A page table of 10 M rows of 120 bytes: how long it takes to write, and to look 50,000 keys up in it.

Rows are an id, two numbers and a payload, keyed by the id, written in ranges of the hash or of the id itself. Looked
up are keys drawn at random, all alike or by Zipf's law, each drawn key once as a join would ask. Timed are calls of
`get` in a process that did not write the table: the first calls, in which pages are mapped and checked, and the
median of those after them, with the processor's time beside it because other programs may be running.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from penstock.kernels.hashing import hash_keys
from penstock.storage.tables import PageTable, build_page_table

ROWS, KEYS, CALLS = 10_000_000, 50_000, 15
PAYLOAD = 92


def main(rows: int, by: str) -> dict[str, object]:
    """Build, look up, print, and give back what was printed as JSON."""
    with tempfile.TemporaryDirectory(prefix="table-get-") as folder:
        writer = get_context("spawn").Pool(1)
        figures: dict[str, object] = {"rows": rows, "by": by, **writer.apply(build, (folder, rows, by))}
        writer.terminate()
        table = PageTable(folder)
        figures["partitions"] = table.open().partitions
        rng = np.random.default_rng(7)
        uniform = [rng.integers(0, rows, KEYS) for _ in range(CALLS)]
        zipf = [np.minimum(rng.zipf(1.1, KEYS) - 1, rows - 1) * 7919 % rows for _ in range(CALLS)]
        for name, drawn in {"cold": uniform[:1], "warm up": uniform, "uniform": uniform, "zipf": zipf}.items():
            figures[name] = timed(table, [np.unique(ids) for ids in drawn])
    print(json.dumps(figures))
    return figures


def build(folder: str, rows: int, by: str) -> dict[str, float]:
    """Write the table; seconds, files, and the private memory it took at most beyond what there was before."""
    before, over, samples = private(), Event(), [0]

    def watch() -> None:
        while not over.wait(0.02):
            samples.append(private() - before)

    watcher = Thread(target=watch)
    watcher.start()
    start = perf_counter()
    build_page_table(folder, batches(rows), keys=["id"], by=by, memory="512 MB")
    took = perf_counter() - start
    over.set()
    watcher.join()
    files = len(list(Path(folder, "pages").iterdir()))
    return {"build_s": round(took, 1), "files": files, "private_mb": max(samples) >> 10}


def private() -> int:
    """Kilobytes of private memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """The table's rows, in no order."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(rows)
    for first in range(0, rows, 1 << 17):
        some = ids[first : first + (1 << 17)]
        offsets = np.arange(0, PAYLOAD * (some.size + 1), PAYLOAD, dtype=np.int32)
        body = [None, pa.py_buffer(offsets), pa.py_buffer(rng.bytes(PAYLOAD * some.size))]
        yield pa.record_batch(
            {
                "id": pa.array(some),
                "a": pa.array(some * 3),
                "b": pa.array(some.astype(np.float64)),
                "payload": pa.Array.from_buffers(pa.binary(), some.size, body),
            }
        )


def timed(table: PageTable, drawn: list[np.ndarray]) -> dict[str, float]:
    """Milliseconds of a call, and of telling the partitions of the same keys."""
    wall, busy, told = [], [], []
    for ids in drawn:
        keys = [pa.array(ids)]
        hashes = hash_keys(keys)
        opened = table.open()
        start, began = perf_counter(), process_time()
        found = opened.get(hashes, keys)
        wall.append(1e3 * (perf_counter() - start))
        busy.append(1e3 * (process_time() - began))
        assert found.num_rows == ids.size
        start = perf_counter()
        opened.partition_of(hashes, keys)
        told.append(1e3 * (perf_counter() - start))
    distinct = median(ids.size for ids in drawn)
    figures = {"keys": distinct, "get_ms": median(wall), "cpu_ms": median(busy), "partition_of_ms": median(told)}
    return {name: round(value, 1) for name, value in figures.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--by", choices=["hash", "range"], default="hash")
    given = parser.parse_args()
    main(given.rows, given.by)
