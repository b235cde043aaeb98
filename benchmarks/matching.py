"""Ways to match a batch of arrivals against one page of state: ``python benchmarks/matching.py [--quick]``.

The job: all pairs (arrival, page row) of equal 64-bit hash whose times are at most ``band`` apart, as two index arrays.
Keys and times are uniform, the arrivals come in no order; every way must give the same pairs, or the benchmark fails.

- ``searched``: penstock's own. Sorts the arrivals, then ``ranges`` and ``expand`` on the sorted page.
- ``probe``: the same without the sort, which is paid in any case, as the arrivals become a page themselves.
- ``hashed``: an open-addressing hash table from hash to run of page rows, written in NumPy, probed in arrival order;
  within a run the times are bisected as in ``searched``.
- ``polars``: Polars' join on the hash, then a filter on the band.
- ``arrow``: ``pyarrow.Table.join`` on the hash, then a filter on the band.

Done once per page, so listed apart: the sort of the page, and the build of the hash table on top of it. The two joins
build their own table on each call, as neither can keep one. Where equal hashes alone give more than ``MAX_CANDIDATES``
pairs they are left out, as they would hold all of them in memory.

Times are medians over rounds in which every way runs once. Polars fixes its threads when it is imported, so the script
starts itself with one thread and with two; set POLARS_MAX_THREADS to choose. NumPy always uses one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows import Hashes, Indices
from penstock.core.time import Times
from penstock.kernels.match import _bisect, expand, ranges
from penstock.kernels.sort import page_order

THREADS = os.environ.get("POLARS_MAX_THREADS")
SPAN = 3_600_000_000
CHUNK = 1 << 20
MAX_CANDIDATES = 30_000_000

Pairs = list[tuple[Indices, Indices]]


@dataclass(frozen=True, slots=True)
class Workload:
    """How many arrivals meet how many page rows; `hot` is the share of rows with one key, `known` of known keys."""

    name: str
    arrivals: int
    rows: int
    keys: int
    band: float = 0.1
    hot: float = 0.0
    known: float = 1.0

    def tenth(self) -> Workload:
        """Shrink to a tenth of the rows and keys."""
        return replace(self, arrivals=self.arrivals // 10, rows=self.rows // 10, keys=self.keys // 10)


WORKLOADS = [
    Workload("even sizes", arrivals=50_000, rows=50_000, keys=20_000),
    Workload("more arrivals than rows", arrivals=100_000, rows=50_000, keys=20_000),
    Workload("large page", arrivals=100_000, rows=500_000, keys=200_000),
    Workload("large page, runs of 10", arrivals=100_000, rows=500_000, keys=50_000),
    Workload("large page, 1 in 5 known", arrivals=100_000, rows=500_000, keys=200_000, known=0.2),
    Workload("few arrivals", arrivals=1_000, rows=1_000_000, keys=200_000),
    Workload("hot key, small", arrivals=5_000, rows=20_000, keys=10_000, hot=0.5, band=0.01),
    Workload("hot key", arrivals=50_000, rows=500_000, keys=200_000, hot=0.5, band=0.00002),
]


@dataclass(frozen=True, slots=True)
class Case:
    """A sorted page, and arrivals in the order in which they came."""

    page_hash: Hashes
    page_time: Times
    hash: Hashes
    lo: Times
    hi: Times
    time: Times

    @classmethod
    def of(cls, workload: Workload) -> Case:
        """Draw the rows, always the same ones for the same workload."""
        rng = np.random.default_rng(7)
        unknown = round(workload.keys * (1 - workload.known))
        keys = rng.integers(0, 2**64, workload.keys + unknown, np.uint64)
        page_hash, page_time = draw(rng, keys[: workload.keys], workload.rows, workload.hot)
        hash_, time = draw(rng, keys[unknown:], workload.arrivals, workload.hot)
        order = page_order(page_hash, page_time)
        band = round(workload.band * SPAN)
        return cls(page_hash[order], page_time[order], hash_, time - band, time + band, time)

    def candidates(self) -> int:
        """Count the pairs of equal hash, whatever their times."""
        everything = np.iinfo(np.int64)
        lo, hi = np.full(len(self.hash), everything.min), np.full(len(self.hash), everything.max)
        begin, end = ranges(self.page_hash, self.page_time, self.hash, lo, hi)
        return int((end - begin).sum())


def draw(rng: np.random.Generator, keys: Hashes, rows: int, hot: float) -> tuple[Hashes, Times]:
    hashes = keys[rng.integers(0, len(keys), rows)]
    hashes[rng.random(rows) < hot] = np.uint64(2**63)
    return hashes, rng.integers(0, SPAN, rows)


def searched(case: Case) -> Callable[[], Pairs]:
    return lambda: probed(case, page_order(case.hash, case.time))


def probe(case: Case) -> Callable[[], Pairs]:
    order = page_order(case.hash, case.time)
    return lambda: probed(case, order)


def probed(case: Case, order: Indices) -> Pairs:
    begin, end = ranges(case.page_hash, case.page_time, case.hash[order], case.lo[order], case.hi[order])
    return [(order[needle], row) for needle, row in expand(begin, end, CHUNK)]


def hashed(case: Case) -> Callable[[], Pairs]:
    table = HashTable.of(case.page_hash)

    def run() -> Pairs:
        hit, first, length = table.runs(case.hash)
        begin = _bisect(case.page_time, case.lo[hit], first, length, np.less)
        end = _bisect(case.page_time, case.hi[hit], first, length, np.less_equal)
        return [(hit[needle], row) for needle, row in expand(begin, end, CHUNK)]

    return run


def polars(case: Case) -> Callable[[], Pairs]:
    arrivals = pl.DataFrame({"hash": case.hash, "lo": case.lo, "hi": case.hi}).with_row_index("arrival")
    page = pl.DataFrame({"hash": case.page_hash, "time": case.page_time}).with_row_index("row")
    pairs = arrivals.lazy().join(page.lazy(), on="hash").filter(pl.col("time").is_between("lo", "hi"))

    def run() -> Pairs:
        found = pairs.select("arrival", "row").collect()
        return [(found["arrival"].to_numpy(), found["row"].to_numpy())]

    return run


def arrow(case: Case) -> Callable[[], Pairs]:
    arrivals = pa.table({"hash": case.hash, "lo": case.lo, "hi": case.hi, "arrival": np.arange(len(case.hash))})
    page = pa.table({"hash": case.page_hash, "time": case.page_time, "row": np.arange(len(case.page_hash))})
    in_band = (pc.field("time") >= pc.field("lo")) & (pc.field("time") <= pc.field("hi"))

    def run() -> Pairs:
        joined = arrivals.join(page, "hash", join_type="inner", use_threads=pa.cpu_count() > 1)
        found = joined.filter(in_band)
        return [(found["arrival"].to_numpy(), found["row"].to_numpy())]

    return run


WAYS: list[Callable[[Case], Callable[[], Pairs]]] = [searched, probe, hashed, polars, arrow]
JOINS = [polars, arrow]
APART = ["sort page", "build table"]
VERDICT = """\
Kept: searched. The arrivals must be sorted anyway, and the probe that remains costs little more than a hash table's,
without a table to build and hold in memory; a join on the hash alone, though Polars' is faster than sort and probe
together on large batches of many keys, visits the whole page for a few arrivals and holds every pair of a hot key."""


@dataclass(frozen=True, slots=True)
class HashTable:
    """Open addressing with linear probing, at most half full: a slot owns one distinct hash of the page, or -1."""

    owner: Indices
    hash: Hashes
    first: Indices
    length: Indices

    @classmethod
    def of(cls, page_hash: Hashes) -> HashTable:
        """Build the table over a sorted page: all homeless hashes try a slot at once, and the losers try the next."""
        first = np.flatnonzero(np.concatenate([[True], page_hash[1:] != page_hash[:-1]]))
        hashes = page_hash[first]
        owner = np.full(1 << (2 * len(hashes) - 1).bit_length(), -1)
        homeless, slot = np.arange(len(hashes)), cls._home(hashes, owner)
        while homeless.size:
            free = owner[slot] < 0
            owner[slot[free]] = homeless[free]
            lost = owner[slot] != homeless
            homeless, slot = homeless[lost], (slot[lost] + 1) % len(owner)
        return cls(owner, hashes, first, np.diff(first, append=len(page_hash)))

    def runs(self, hashes: Hashes) -> tuple[Indices, Indices, Indices]:
        """Return which of the hashes the page has, and where their runs start and how long they are."""
        found = np.full(len(hashes), -1)
        searching, slot = np.arange(len(hashes)), self._home(hashes, self.owner)
        while searching.size:
            owner = self.owner[slot]
            same = (self.hash[owner] == hashes[searching]) & (owner >= 0)
            found[searching[same]] = owner[same]
            other = (owner >= 0) & ~same
            searching, slot = searching[other], (slot[other] + 1) % len(self.owner)
        hit = np.flatnonzero(found >= 0)
        return hit, self.first[found[hit]], self.length[found[hit]]

    @staticmethod
    def _home(hashes: Hashes, owner: Indices) -> Indices:
        return (hashes & np.uint64(len(owner) - 1)).astype(np.int64)


def timed(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def medians(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(timed(run))
    return {name: median(taken) for name, taken in seconds.items()}


def canonical(pairs: Pairs, rows: int) -> Indices:
    """Number the pairs and sort them, so that equal multisets become equal arrays."""
    return np.sort(np.concatenate([np.array([], np.int64), *(np.int64(rows) * a + r for a, r in pairs)]))


def check(runs: dict[str, Callable[[], Pairs]], rows: int) -> int:
    """Return how many pairs there are; fail if two ways differ."""
    found = {name: canonical(run(), rows) for name, run in runs.items()}
    expected = found["searched"]
    for name, pairs in found.items():
        if not np.array_equal(pairs, expected):
            sys.exit(f"{name} gives {len(pairs)} pairs, or other ones than the {len(expected)} of searched.")
    return len(expected)


def measure(workload: Workload, rounds: int) -> tuple[int, dict[str, float]]:
    """Return the number of pairs, and the seconds of each way and of each step that is listed apart."""
    case = Case.of(workload)
    joins_fit = case.candidates() <= MAX_CANDIDATES
    runs = {way.__name__: way(case) for way in WAYS if joins_fit or way not in JOINS}
    pairs = check(runs, workload.rows)
    shuffled = np.random.default_rng(8).permutation(workload.rows)
    hashes, times = case.page_hash[shuffled], case.page_time[shuffled]
    apart: dict[str, Callable[[], object]] = {
        "sort page": lambda: page_order(hashes, times),
        "build table": lambda: HashTable.of(case.page_hash),
    }
    return pairs, medians({**runs, **apart}, rounds)


def line(workload: Workload, pairs: int, seconds: dict[str, float]) -> str:
    ways = [way.__name__ for way in WAYS]
    cells = [
        f"{seconds[w]:8.4f} {seconds[w] / seconds['searched']:6.2f}" if w in seconds else f"{'–':>15}" for w in ways
    ]
    apart = [f"{seconds[step]:13.4f}" for step in APART]
    return f"{workload.name:25}{pairs:>9}  {'  '.join(cells)}{''.join(apart)}"


def report(workloads: list[Workload], rounds: int) -> None:
    pa.set_cpu_count(pl.thread_pool_size())
    print(f"Polars and Arrow with {pl.thread_pool_size()} thread(s); seconds, then the ratio to searched:\n")
    ways = "  ".join(f"{way.__name__:>15}" for way in WAYS)
    print(f"{'':25}{'pairs':>9}  {ways}{''.join(f'{step:>13}' for step in APART)}")
    for workload in workloads:
        print(line(workload, *measure(workload, rounds)), flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, three rounds")
    quick = parser.parse_args().quick
    if THREADS:
        report([workload.tenth() for workload in WORKLOADS] if quick else WORKLOADS, rounds=3 if quick else 11)
        return
    for threads in ("1", "2"):
        subprocess.run([sys.executable, *sys.argv], env={**os.environ, "POLARS_MAX_THREADS": threads}, check=True)
    print(VERDICT)


if __name__ == "__main__":
    main()
