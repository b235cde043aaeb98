"""What a window costs by each method of aggregation, in process: ``python benchmarks/aggregate_methods.py``.

Counts and sums by group over windows of several panes, slide by slide, from partials as Spark makes them: one for each
pane and group. Each slide is an epoch, after which state is saved and taken up again; windows are full before the clock
starts. `results` is how many groups a window has. Seconds are of the processor, per window, the better of two
runs. Then the constants of `penstock.planner.window_aggregate.costs` are fitted to the table; those there came from
it. At the end panes and AdaptWID are compared on rows, with much memory and with little.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import State
from penstock.core.rows import TIME, RowType
from penstock.core.windows import sliding
from penstock.kernels.hashing import hash_keys
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.functions import Count, Sum
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.storage.files import FilePages

TYPES = RowType(pa.schema({"k": pa.int64(), "v": pa.int64(), "t": pa.int64()}), ("k",), "t")
BUDGET = 256_000_000
SMALL = 4_000_000
PANE = 60
METHODS: tuple[str, ...] = ("wid", "paned", "differential")


@dataclass(frozen=True, slots=True)
class Point:
    """Windows of `panes` that slide by `step` of them; `groups` in each pane, out of so many that there are."""

    panes: int
    step: int
    groups: int
    out_of: int

    @property
    def arriving(self) -> int:
        """Partials that a slide brings."""
        return self.groups * self.step

    @property
    def spread(self) -> float:
        """Partials that a window is made of."""
        return self.groups * self.panes


@dataclass(frozen=True, slots=True)
class Measured:
    """A point and what a window took."""

    point: Point
    results: float
    seconds: Mapping[str, float]


def main(quick: bool) -> None:
    """Print a line for each point, and the constants."""
    measured = []
    for point in points(quick):
        runs = {method: [per_window(point, method) for _ in range(1 if quick else 2)] for method in METHODS}
        seconds = {method: min(run[0] for run in of) for method, of in runs.items()}
        measured.append(Measured(point, runs["paned"][0][1], seconds))
        shown = {method: round(1e3 * spent, 2) for method, spent in seconds.items()}
        print(json.dumps({**asdict(point), "results": measured[-1].results, "ms": shown}), flush=True)
    print(json.dumps(fit(measured)))
    for panes, rows, budget in ((12, 5_000, BUDGET), (12, 5_000, SMALL), (40, 2_000, BUDGET), (40, 2_000, SMALL)):
        seconds = {method: from_rows(panes, rows, method, budget) for method in ("paned", "adapt")}
        print(json.dumps({"panes": panes, "rows": rows, "budget": budget, "seconds": seconds}), flush=True)


def points(quick: bool) -> Iterator[Point]:
    """Few and many groups and panes; the same groups in every pane, or others."""
    for groups in (100, 1_000, 10_000, 50_000):
        for panes in (1, 2, 4, 12, 60, 240):
            if groups * panes <= (60_000 if quick else 600_000):
                yield Point(panes, 1, groups, groups)
                if panes in (2, 4, 12):
                    yield Point(panes, 1, groups, 20 * groups)
    yield Point(9, 6, 1_000, 1_000)
    yield Point(9, 6, 10_000, 200_000)


def per_window(point: Point, method: str) -> tuple[float, float]:
    """Seconds, and results, of a slide: partials in, a window out, state saved and taken up."""
    window = sliding(point.panes * PANE, point.step * PANE)
    config = WindowAggregate(window, ("k",), (("n", Count()), ("v", Sum("v"))), method=method)
    rng = np.random.default_rng(1)
    slides = turns(point, method)
    with tempfile.TemporaryDirectory() as folder:
        store, state, bound, pane = FilePages(folder), State(), 0, 0
        spent, results = 0.0, 0
        for slide in range(-1, slides):
            panes = point.step if slide >= 0 else point.panes + point.step
            rows = [partials(config, point, rng, number) for number in range(pane, pane + panes)]
            pane += panes
            begun = time.process_time()
            logic = config.logic((TYPES,), store, Budget(BUDGET), state)
            out = list(logic.advance(0, bound))
            for batch in rows:
                out += logic.rows(1, batch)
            bound = pane * PANE
            out += logic.advance(0, bound)
            state = logic.state()
            if slide >= 0:
                spent += time.process_time() - begun
                results += sum(o.rows.num_rows for o in out)
        return spent / slides, results / slides


def from_rows(panes: int, rows: int, method: str, budget: int) -> float:
    """Seconds of a slide that brings `rows`, each of another group, which AdaptWID keeps as they are."""
    config = WindowAggregate(sliding(panes * PANE, PANE), ("k",), (("n", Count()), ("v", Sum("v"))), method=method)
    rng, spent = np.random.default_rng(1), 0.0
    with tempfile.TemporaryDirectory() as folder:
        store, state, bound = FilePages(folder), State(), 0
        for slide in range(2 * panes):
            table = pa.table({name: pa.array(rng.integers(0, 10**7, rows)) for name in ("k", "v", "t")})
            times = pa.array(np.full(rows, slide * PANE))
            batch = TYPES.enter(table.append_column(TIME, times), hash_keys([table.column("k").combine_chunks()]))
            begun = time.process_time()
            logic = config.logic((TYPES,), store, Budget(budget), state)
            done = [*logic.advance(0, bound), *logic.rows(0, batch), *logic.advance(0, (slide + 1) * PANE)]
            bound, state = (slide + 1) * PANE, logic.state()
            spent += (time.process_time() - begun) * (slide >= panes)
            del done
    return round(spent / panes, 4)


def turns(point: Point, method: str) -> int:
    """Slides to time: two rounds of the two stacks, whose work is not the same in each; a few where all are alike."""
    if method == "paned":
        return max(24, 2 * point.panes // point.step)
    return 24 if point.spread <= 100_000 or method == "differential" else 6


def partials(config: WindowAggregate, point: Point, rng: np.random.Generator, pane: int) -> pa.RecordBatch:
    """What Spark would make of a pane's rows."""
    keys = np.arange(point.groups)
    if point.out_of > point.groups:
        keys = rng.choice(point.out_of, point.groups, replace=False)
    (lane,) = config.lanes((TYPES,))
    columns = [pa.array(hash_keys([pa.array(keys)])), pa.array(np.full(keys.size, pane * PANE)), pa.array(keys)]
    columns += [pa.array(np.ones(keys.size, np.int64)).cast(field.type) for field in list(lane.schema)[3:]]
    return pa.RecordBatch.from_arrays(columns, schema=lane.schema)


def fit(measured: Sequence[Measured]) -> dict[str, list[float]]:
    """Nanoseconds for each of a method's counts, and for a window by itself: least squares of relative errors."""
    terms = {"wid": list(measured), "direct": [], "stacked": [], "differential": list(measured)}
    for one in measured:
        few = one.point.spread <= PanedAggregation.direct_rows or one.point.panes <= 2 * one.point.step
        terms["direct" if few else "stacked"].append(one)
    counts = {
        "wid": lambda one: [one.point.spread, one.results, 1.0],
        "direct": lambda one: [one.point.arriving + one.point.spread, one.results, 1.0],
        "stacked": lambda one: [one.point.arriving, one.results, 1.0],
        "differential": lambda one: [2 * one.point.arriving, one.results, 1.0],
    }
    fitted = {}
    for name, some in terms.items():
        seconds = np.array([one.seconds["paned" if name in ("direct", "stacked") else name] for one in some])
        table = np.array([counts[name](one) for one in some])
        fitted[name] = [round(1e9 * float(x), 1) for x in _not_negative(table / seconds[:, None])]
    return fitted


def _not_negative(table: np.ndarray) -> np.ndarray:
    """The factors that bring each row's sum closest to one, none below zero."""
    used = list(range(table.shape[1]))
    while True:
        found = np.linalg.lstsq(table[:, used], np.ones(len(table)), rcond=None)[0]
        if (found >= 0).all():
            whole = np.zeros(table.shape[1])
            whole[used] = found
            return whole
        used.pop(int(found.argmin()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
