"""Runs of window aggregation: pictures of disorder, work per tuple, slack, panes, group sizes, memory per group.

What is counted is what the operators count: updates of partials, partials merged, tuples and partials held. Buffering
as the thesis has it, with the tuples of a window kept and aggregated when it closes, is counted here by its definition,
since penstock's own baseline keeps partials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from lab.feeding import SECOND, Counted, Fed, cut_at, totals
from lab.measures import Measure, Point
from lab.simulation import Watch
from lab.workloads.disorder import BandDisorder, BlockDisorder, max_disorder, punctuations
from lab.workloads.netflow import DataSet, Packets
from penstock.core.rows import Indices, RowType
from penstock.core.time import Times, as_times
from penstock.core.windows import Sliding, sliding
from penstock.operators.aggregate import AdaptWid, Buffering
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.functions import Count, Extreme, Mean, Sum

ARRIVED = Measure("arrived", "time stamp", "s")
DISORDER = Measure("disorder", "largest disorder", "s")
WORK = Measure("work", "updates and reads per tuple", "count", axis="log")
HELD = Measure("held", "most tuples or partials held", "count", axis="log")
ERROR = Measure("error", "mean error", "%")
WRONG = Measure("wrong", "wrong answers", "%")
LATENCY = Measure("latency", "output after the punctuation that covers it", "s")
WAIT = Measure("wait", "output after the first row past the window", "s")
RATIO = Measure("ratio", "work of Paned-WID / work of WID", "ratio", axis="log")
SHARE = Measure("share", "share of the groups", "%")
MEMORY = Measure("memory", "most memory by the model", "bytes")

_NUMBERED = RowType(pa.schema({"x": pa.int64(), "t": pa.int64()}), keys=(), time="t")
_LENGTHS = RowType(
    pa.schema({"srcIP": pa.string(), "len": pa.int32(), "ts": pa.timestamp("us", "UTC")}), ("srcIP",), "ts"
)

_DOTS = 3_000
"""How many rows a picture of disorder shows."""


@dataclass(frozen=True, slots=True)
class Disordered(Counted):
    """A stream of `rate` tuples a second out of order, as a picture: the time stamp at each place of arrival."""

    order: BandDisorder | BlockDisorder
    rate: float
    seconds: float

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Every so many-th row, and how far out of order the worst is."""
        rows = self.order(_packets(self.rate * scale, self.seconds, seed))
        shown = np.linspace(0, rows.num_rows - 1, min(_DOTS, rows.num_rows)).astype(np.int64)
        stamps = as_times(rows.column("ts")).to_numpy()[shown] / SECOND
        # Places are shown at the size of the thesis.
        return Point({DISORDER.name: max_disorder(rows) / SECOND}, shown / scale, {ARRIVED.name: stamps})

    def __str__(self) -> str:
        return f"{self.order}"


@dataclass(frozen=True, slots=True)
class RowWindows(Counted):
    """Exp1: max over windows of `range` rows, ordered, by WID or by a buffer of tuples; `overlap` windows per tuple."""

    method: Literal["wid", "buffering", "scan"]
    overlap: float = 1
    range: int = 4_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Work per tuple of a stream of several windows, and the most that is held at a time."""
        slide = max(1, round(self.range / self.overlap))
        rows = max(2 * self.range, round(200_000 * scale))
        if self.method == "wid":
            work, held = self._wid(rows, slide, seed)
        else:
            work, held = rows, 1
            if self.method == "buffering":
                ends = np.arange(slide, rows + self.range, slide)
                extents = np.minimum(ends, rows) - np.maximum(ends - self.range, 0)
                # Each tuple enters and leaves the buffer once, and is read for every window that it is in.
                work, held = 2 * rows + int(np.maximum(extents, 0).sum()), min(self.range, rows)
        return totals({WORK: work / rows, HELD: held})

    def _wid(self, rows: int, slide: int, seed: int) -> tuple[int, int]:
        config = WindowAggregate(
            sliding(self.range, slide), by=(), aggregates=(("x", Extreme("x", "max")),), method="wid"
        )
        fed, most = Fed(config, _NUMBERED), 0
        values = np.random.default_rng(seed).integers(0, 1500, rows)
        step = self.range // 20
        for start in range(0, rows, step):
            part = np.arange(start, min(start + step, rows))
            fed.rows(pa.table({"x": values[part], "t": part}))
            fed.advance(int(part[-1]) + 1)
            most = max(most, fed.held("partials"))
        return fed.tally.updates, most

    def __str__(self) -> str:
        return f"{self.method}, {self.overlap:g} windows per tuple"


@dataclass(frozen=True, slots=True)
class Late(Counted):
    """Windows over disorder: closed by punctuation, or by slack of so many seconds, consistent or generous."""

    window: Sliding
    order: BandDisorder | BlockDisorder
    what: Literal["mean", "count"]
    late: Literal["consistent", "generous", "punctuation"]
    rate: float
    seconds: float
    slack: float = 0.0

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Errors against the answer over the whole stream, and when windows came out."""
        packets = _packets(self.rate * scale, self.seconds, seed, hosts=16)
        right = _answers(self._fed("wid").rows_then_end(packets))
        rows = self.order(packets)
        places, bounds = punctuations(rows, self.window.slide)
        if self.late == "punctuation":
            fed, parts = self._fed("wid"), []
            for part, bound in zip(cut_at(rows, places.tolist()), [*bounds.tolist(), None], strict=True):
                parts.append(fed.rows(part))
                parts.append(fed.end() if bound is None else fed.advance(bound))
            got = _answers(pa.concat_tables(parts))
        else:
            got = _answers(self._fed(Buffering(f"{round(self.slack * 1000)} ms", self.late)).rows_then_end(rows))
        errors = np.array([abs(got.get(cell, 0.0) - value) / value for cell, value in right.items()])
        latency, wait = self._moments(rows, places, bounds, scale)
        return totals(
            {
                ERROR: 100 * errors.mean(),
                WRONG: 100 * (errors > 0).mean(),
                LATENCY: latency,
                WAIT: wait,
            }
        )

    def _fed(self, method: Literal["wid"] | Buffering) -> _Whole:
        function = Mean("len") if self.what == "mean" else Count()
        config = WindowAggregate(
            self.window, by=("srcIP",), aggregates=(("x", function),), unit="microseconds", method=method
        )
        return _Whole(config, _LENGTHS)

    def _moments(self, rows: pa.Table, places: Indices, bounds: Times, scale: float) -> tuple[float, float]:
        """When windows come out, on average, in seconds of a stream whose rows arrive evenly.

        A window that comes out before its punctuation, whether right or wrong, is not late for it.
        """
        highest = np.maximum.accumulate(as_times(rows.column("ts")).to_numpy())
        closing = np.searchsorted(highest, bounds + round(self.slack * SECOND))
        if self.late == "punctuation":
            closing = places
        # Rows are evenly spread, so that places are moments.
        pace = self.rate * scale
        late = np.maximum(closing - places, 0) / pace
        return float(late.mean()), float((closing - np.searchsorted(highest, bounds)).mean() / pace)

    def __str__(self) -> str:
        return f"{self.late}, slack {self.slack:g} s"


@dataclass(frozen=True, slots=True)
class Paning(Counted):
    """Max over sliding windows of `panes` panes with `tuples` each: the work of Paned-WID as a part of WID's."""

    panes: int
    tuples: float = 20

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Count both over some windows."""
        size, count = round(self.tuples), self.panes + max(2, round(1000 * scale))
        paned, wid = (self._work(method, size, count, seed) for method in ("paned", "wid"))
        return totals({RATIO: paned / wid})

    def _work(self, method: Literal["paned", "wid"], size: int, count: int, seed: int) -> int:
        window = sliding(self.panes * size, size)
        fed = Fed(WindowAggregate(window, by=(), aggregates=(("x", Extreme("x", "max")),), method=method), _NUMBERED)
        values = np.random.default_rng(seed).integers(0, 1500, size)
        for start in range(0, count * size, size):
            fed.rows(pa.table({"x": values, "t": np.arange(start, start + size)}))
            fed.advance(start + size)
        fed.end()
        return fed.tally.updates + fed.tally.partials

    def __str__(self) -> str:
        return f"{self.tuples:g} tuples in a pane, {self.panes} panes in a window"


@dataclass(frozen=True, slots=True)
class Sizes(Counted):
    """Table 6-2: which share of the groups of a data set is small, medium or large."""

    kind: Literal["small", "medium", "large"]
    number: float = 1

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Count groups by size."""
        records = DataSet(round(self.number), records=round(1_000_000 * scale), seed=seed).table()
        sizes = np.unique(records.column("srcIP").to_numpy(), return_counts=True)[1]
        low, high = {"small": (0, 1), "medium": (1, 100), "large": (100, np.inf)}[self.kind]
        return totals({SHARE: 100 * ((sizes > low) & (sizes <= high)).mean()})

    def __str__(self) -> str:
        return f"{self.kind} groups of DS{self.number:g}"


Keeping = Literal["eager", "lazy", "adapt"]
_THRESHOLDS = {"eager": -1.0, "lazy": float("inf"), "adapt": None}


@dataclass(frozen=True, slots=True)
class Groups(Counted):
    """Q6-7: sums by source over windows of a second of DS1 to DS5, groups kept as partials, as tuples, or as it pays.

    Sizes of groups are over the data set, or over each window.
    """

    keeping: Keeping
    sizes: Literal["data set", "window"]
    number: float = 1

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """The most memory, by the sizes of the columns that the query needs."""
        window = "1 s" if self.sizes == "window" else None
        records = DataSet(round(self.number), round(1_000_000 * scale), window=window, seed=seed)
        rows = records.table().select(_LENGTHS.columns.names)
        moments = as_times(rows.column("ts")).to_numpy()
        return totals({MEMORY: _memory(sliding("1 s"), Sum("len"), self.keeping, rows, moments, 0.0)})

    def __str__(self) -> str:
        return f"{self.keeping}, DS{self.number:g}, sizes per {self.sizes}"


@dataclass(frozen=True, slots=True)
class ThreeLinks(Counted):
    """Q6-8: counts by source over 10 s that slide by 1 s, of two busy links and a quiet one that is `late`."""

    keeping: Keeping
    late: float = 0.0
    rate: float = 4_000
    seconds: float = 30
    hosts: int = 4_096
    flows: int = 20_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """The most memory, while bounds wait for the quiet link."""
        links = [
            Packets(
                rate,
                f"{self.seconds:g} s",
                max(1, round(self.flows * scale)),
                max(1, round(self.hosts * scale)),
                reverse=reverse,
                seed=3 * seed + place,
            ).table()
            for place, (rate, reverse) in enumerate([(self.rate * scale, False), (self.rate * scale, True), (1, False)])
        ]
        rows = pa.concat_tables([link.select(_LENGTHS.columns.names) for link in links])
        arrivals = as_times(rows.column("ts")).to_numpy().copy()
        arrivals[rows.num_rows - links[2].num_rows :] += round(self.late * SECOND)
        order = np.argsort(arrivals, kind="stable")
        rows, arrivals = rows.take(pa.array(order)), arrivals[order]
        most = _memory(sliding("10 s", "1 s"), Count(), self.keeping, rows, arrivals, self.late)
        return totals({MEMORY: most / scale})

    def __str__(self) -> str:
        return f"{self.keeping}, the quiet link {self.late:g} s late"


class _Whole(Fed):
    def rows_then_end(self, rows: pa.Table) -> pa.Table:
        return pa.concat_tables([self.rows(rows), self.end()])


def _memory(
    window: Sliding, function: Count | Sum, keeping: Keeping, rows: pa.Table, arrivals: Times, late: float
) -> int:
    """The most bytes held, fed by the quarter second and told of each second that is over on every link."""
    method = AdaptWid(threshold=_THRESHOLDS[keeping])
    fed = Fed(
        WindowAggregate(window, by=("srcIP",), aggregates=(("x", function),), unit="microseconds", method=method),
        _LENGTHS,
    )
    most, tick = 0, SECOND // 4
    moments = range(tick, int(arrivals[-1]) + tick, tick)
    for moment, part in zip(moments, cut_at(rows, np.searchsorted(arrivals, moments).tolist()), strict=False):
        if part.num_rows:
            fed.rows(part)
        most = max(most, fed.logic.footprint)  # type: ignore[attr-defined]
        bound = moment - round(late * SECOND)
        if bound % SECOND == 0 and bound > 0:
            fed.advance(bound)
    return most


def _packets(rate: float, seconds: float, seed: int, hosts: int = 4_096) -> pa.Table:
    """Packets of one link, evenly spread so that a place is a moment."""
    rows = Packets(rate, f"{seconds:g} s", hosts=hosts, seed=seed).table()
    even = (np.arange(rows.num_rows) * (seconds * SECOND / max(1, rows.num_rows))).astype(np.int64)
    stamped = rows.set_column(5, rows.schema.field("ts"), pa.array(even.view("M8[us]"), rows.schema.field("ts").type))
    return stamped.select(_LENGTHS.columns.names)


def _answers(results: pa.Table) -> dict[tuple[str, int], float]:
    ends = as_times(results.column("window_end")).to_pylist()
    cells = zip(results.column("srcIP").to_pylist(), ends, strict=True)
    return dict(zip(cells, map(float, results.column("x").to_pylist()), strict=True))
