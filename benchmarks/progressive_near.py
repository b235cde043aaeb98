"""Vectors that are near each other, without a window: ``penstock bench progressive-near``.

The job: two streams of 200,000 vectors each, in 9 dimensions (like the colour moments of photographs: float64 in
clusters of different sizes, in [0, 1]) and in 128 (like embeddings: float32 in clusters, of length 1), all pairs
within a distance that gives a row about two partners, in five micro-batches. The same files go through

- ``penstock``: reading the files as Arrow columns, by the method that it chooses, with a quarter of what the vectors
  take as memory;
- ``numpy``: every vector against every other, in blocks, by one matrix product of float32 each, on two cores; pairs
  close to the limit again in float64;
- ``duckdb``: a join on ``array_distance``, which compares every vector with every other, too.

Brute force takes the same time for every left row: peers run over some of the left rows, for about ``SECONDS``
seconds, and what they would take for all is computed from that. penstock's results for these rows are compared with
theirs pair by pair. Ratios in the JSON: ``numpy@9d`` and ``numpy@128d`` are NumPy's seconds ÷ penstock's,
``duckdb@9d`` likewise. penstock runs over some thousand vectors first, so that its tasks have been started.
``--quick`` has 40,000 vectors of either stream in 9 dimensions and 20,000 in 128; ``--only 128d`` runs one case.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import window_join as base

SIDES = ("left", "right")
BATCHES = 5
MEMORY = 0.25
SECONDS, QUICK_SECONDS = 20.0, 4.0
BLOCK = 1 << 22
"""Pairs that NumPy compares at a time."""

Vectors = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Case:
    """So many vectors of either stream, and how far apart two may be."""

    dimensions: int
    rows: int
    distance: float

    @property
    def name(self) -> str:
        """As in the names of ratios."""
        return f"{self.dimensions}d"


FULL = (Case(9, 200_000, 0.04), Case(128, 200_000, 0.38))
QUICK = (Case(9, 40_000, 0.04), Case(128, 20_000, 0.385))
WARM = 20_000
"""Vectors that go first, at most: enough for penstock to run in tasks, as it does later."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one engine took for the whole job, and the pairs that it found of some of the left rows."""

    seconds: float
    pairs: frozenset[tuple[int, int]]
    rows: int
    """How many of the left rows these are of."""


def main(quick: bool, cases: tuple[Case, ...] | None = None) -> dict[str, object]:
    """Run every engine on both cases, print the table and, as the last line, the JSON that is also returned."""
    cases, seconds = cases or (QUICK if quick else FULL), QUICK_SECONDS if quick else SECONDS
    results: dict[str, dict[str, Told]] = {}
    with tempfile.TemporaryDirectory(prefix="progressive-near-", ignore_cleanup_errors=True) as directory:
        for case in cases:
            few = replace(case, rows=min(case.rows, WARM))
            penstock(Path(directory) / f"few-{few.name}", few, vectors(few))
            sides = vectors(case)
            peers = {"numpy": brute_force(case, sides, seconds), "duckdb": in_duckdb(case, sides, seconds / 2)}
            own = penstock(Path(directory) / case.name, case, sides)
            results[case.name] = {"penstock": own, **peers}
            for name, told in peers.items():
                check(case, name, told, own)
            print(f"  {case.name}: {len(own.pairs):,} pairs", file=sys.stderr, flush=True)
    base.print_plain(table(cases, results))
    summary = summarise(cases, results)
    print(json.dumps(summary))
    return summary


def check(case: Case, name: str, told: Told, own: Told) -> None:
    """Raise unless penstock found the pairs that brute force did."""
    ours = {pair for pair in own.pairs if pair[0] < told.rows}
    if ours != told.pairs:
        differ = len(ours ^ told.pairs)
        message = f"penstock and {name} differ in {differ:,} pairs of {case.name}: their times mean nothing."
        raise base.WrongResultError(message)


def vectors(case: Case) -> list[Vectors]:
    """Both streams: clusters of different sizes and spreads, the same for both."""
    rng = np.random.default_rng(case.dimensions)
    count = max(4, case.rows // 200)
    weights = 1 / np.arange(1, count + 1) ** 0.5
    if case.dimensions < 32:
        middles, spreads = rng.random((count, case.dimensions)), rng.uniform(0.01, 0.1, count)
    else:
        middles, spreads = _unit(rng.normal(size=(count, case.dimensions))), np.full(count, 0.03)
    sides = []
    for _ in SIDES:
        which = rng.choice(count, case.rows, p=weights / weights.sum())
        points = middles[which] + spreads[which][:, None] * rng.normal(size=(case.rows, case.dimensions))
        sides.append(points.clip(0, 1) if case.dimensions < 32 else _unit(points).astype(np.float32))
    return sides


def _unit(points: Vectors) -> Vectors:
    return points / np.linalg.norm(points, axis=1, keepdims=True)  # type: ignore[no-any-return]


def penstock(directory: Path, case: Case, sides: list[Vectors]) -> Told:
    """From files to files, by micro-batches."""
    import penstock as pk

    for name, points in zip(SIDES, sides, strict=True):
        offsets = np.arange(0, points.size + 1, case.dimensions, dtype=np.int32)
        column = pa.ListArray.from_arrays(offsets, pa.array(points.ravel()))
        rows = pa.table({"v": column, "id": np.arange(case.rows), "t": np.arange(case.rows)})
        base.write_parquet(rows, directory / name, -(-case.rows // BATCHES))
    spark = base.session({})
    state = sum(points.nbytes for points in sides)
    flow = pk.Flow(spark, checkpoint=str(directory / "checkpoint"), memory=max(16_000_000, round(MEMORY * state)))
    left, right = (flow.parquet(directory / name, time="t", name=name, max_files=1) for name in SIDES)
    joined = left.join(right, on=pk.near("v", distance=case.distance))
    joined.select("id", "id_right").to_parquet(str(directory / "out"))
    begun = time.perf_counter()
    flow.run()
    seconds = time.perf_counter() - begun
    found = pq.read_table(directory / "out")
    pairs = list(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True))
    if len(set(pairs)) < len(pairs):
        raise base.WrongResultError(f"penstock gave a pair of {case.name} twice: its time means nothing.")
    return Told(seconds, frozenset(pairs), case.rows)


def brute_force(case: Case, sides: list[Vectors], patience: float) -> Told:
    """Every pair, by matrix products."""
    a, b = (points.astype(np.float32) for points in sides)
    squares = np.einsum("ij,ij->i", b, b)
    limit, step = case.distance**2, max(1, BLOCK // case.rows)
    spread = 1e-5 * (1 + float(squares.max()))
    pairs: list[tuple[int, int]] = []
    begun, done = time.perf_counter(), 0
    while done < case.rows and time.perf_counter() - begun < patience:
        block = a[done : done + step]
        apart = block @ b.T
        apart *= -2
        apart += squares
        apart += np.einsum("ij,ij->i", block, block)[:, None]
        i, j = np.nonzero(apart <= limit + spread)
        i += done
        difference = sides[0][i].astype(np.float64) - sides[1][j].astype(np.float64)
        near = np.einsum("ij,ij->i", difference, difference) <= limit
        pairs += zip(i[near].tolist(), j[near].tolist(), strict=True)
        done = min(case.rows, done + step)
    return Told((time.perf_counter() - begun) * case.rows / done, frozenset(pairs), done)


def in_duckdb(case: Case, sides: list[Vectors], patience: float) -> Told:
    """Every pair, by DuckDB."""
    kind = f"{'FLOAT' if sides[0].dtype == np.float32 else 'DOUBLE'}[{case.dimensions}]"
    with duckdb.connect(config={"threads": base.CORES}) as connection:
        for name, points in zip(SIDES, sides, strict=True):
            held = pa.table({"v": list(points), "id": np.arange(case.rows)})
            connection.register("held", held)
            connection.sql(f"CREATE TABLE {name}_side AS SELECT id, v::{kind} AS v FROM held")
        pairs: list[tuple[int, int]] = []
        begun, done, step = time.perf_counter(), 0, 64
        while done < case.rows and time.perf_counter() - begun < patience:
            query = f"""SELECT l.id, r.id FROM (FROM left_side WHERE id >= {done} AND id < {done + step}) l
                JOIN right_side r ON array_distance(l.v, r.v) <= {case.distance!r}::{kind.partition("[")[0]}"""
            pairs += connection.sql(query).fetchall()
            done = min(case.rows, done + step)
        return Told((time.perf_counter() - begun) * case.rows / done, frozenset(pairs), done)


def table(cases: tuple[Case, ...], results: Mapping[str, Mapping[str, Told]]) -> list[tuple[str, ...]]:
    """A line for each engine and case."""
    rows: list[tuple[str, ...]] = [("case", "engine", "seconds", "rows/s", "÷ penstock's seconds")]
    for case in cases:
        own = results[case.name]["penstock"]
        for name, told in results[case.name].items():
            part = "" if told.rows == case.rows else f" (of {told.rows:,} left rows)"
            times = f"{told.seconds / own.seconds:.1f}"
            rate = f"{2 * case.rows / told.seconds:,.0f}"
            rows.append((case.name, name + part, f"{told.seconds:.1f}", rate, times))
    return rows


def summarise(cases: tuple[Case, ...], results: Mapping[str, Mapping[str, Told]]) -> dict[str, object]:
    """Seconds and ratios."""
    return {
        "bench": "progressive-near",
        "seconds": {f"{name}@{case}": round(t.seconds, 2) for case, by in results.items() for name, t in by.items()},
        "pairs": {case.name: len(results[case.name]["penstock"].pairs) for case in cases},
        "ratio": {
            f"{name}@{case}": round(told.seconds / by["penstock"].seconds, 2)
            for case, by in results.items()
            for name, told in by.items()
            if name != "penstock"
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=[case.name for case in FULL])
    told = parser.parse_args()
    main(told.quick, tuple(case for case in (QUICK if told.quick else FULL) if told.only in (None, case.name)))
