"""What sliding windows cost by each method: time by Eq 6.1–6.3, memory by Eq 6.5–6.9, with constants as measured.

Rows are folded by pane and group before anything else, by Spark or on arrival. That costs the same whatever the
method, so what is counted here are partials: WID, too, updates windows by partials, not by rows. Panes of many partials
are kept on two stacks, which cost about what Eq 6.2 says of differences. Results cost something by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Literal

from penstock.core.errors import ConfigError
from penstock.core.rows import RowType
from penstock.core.windows import Slides
from penstock.operators.aggregate import METHODS, AdaptWid, WindowAggregate
from penstock.operators.aggregate.adapt_wid import TEXT, width
from penstock.operators.aggregate.lanes import counting
from penstock.operators.aggregate.paned import PanedAggregation


@dataclass(frozen=True, slots=True)
class AggregateLoad:
    """What each slide brings, in rows and in partials of panes and groups, and how many results a window has.

    >>> AggregateLoad(rows=1000.0, partials=100.0, results=40.0).shared(4).partials
    25.0
    """

    rows: float
    partials: float
    results: float

    def __post_init__(self) -> None:
        if not 0 < self.partials <= self.rows or not 0 < self.results < float("inf"):
            raise ConfigError(f"{self}: all three must be above 0, with no more partials than rows.")

    def shared(self, tasks: int) -> AggregateLoad:
        """What one of so many tasks bears, each with its shard of the groups."""
        return AggregateLoad(self.rows / tasks, self.partials / tasks, self.results / tasks)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a partial, of each value that is counted beside it, of a row, and of a group and a number of rows."""

    partial: float
    value: float
    row: float
    group: float

    @classmethod
    def of(cls, config: WindowAggregate, inputs: tuple[RowType, ...], each: float | None = None) -> Sizes:
        """By the columns; how large texts are, by how large `each` partial was found to be."""
        main, *values = config.lanes(inputs)
        groups = counting(config.by, (), inputs[0])
        texts, text = width(main.schema, 1) - width(main.schema, 0), float(TEXT)
        if each is not None and texts:
            text = max(text, (each - width(main.schema, 0)) / texts)
        schemas = (main.schema, inputs[0].inside, groups.schema)
        partial, row, group = (width(schema, text) for schema in schemas)
        return cls(partial, sum(width(v.schema, text) for v in values), row, group)


@dataclass(frozen=True, slots=True)
class Price:
    """Nanoseconds for each update, each result, and each window by itself."""

    update: float
    result: float = 0.0
    window: float = 0.0

    def seconds(self, updates: float, results: float) -> float:
        """What a window of so many of them takes."""
        return 1e-9 * (self.update * updates + self.result * results + self.window)


Way = Literal["wid", "direct", "stacked", "differential"]
"""How windows are made; panes know two ways."""

MEASURED: Mapping[Way, Price] = {
    "wid": Price(215.2, 7.4, 2_070_000),
    "direct": Price(130.1, 0.0, 1_880_000),
    "stacked": Price(460.1, 158.7, 5_130_000),
    "differential": Price(73.6, 263.4, 3_410_000),
}
"""As ``python benchmarks/aggregate_methods.py`` fits them, on a server of 2026, to counts and sums by a number."""

_ADAPTING = Price(740.0, 0.0, 5_130_000)
"""What AdaptWID takes for each row of a window, by the same benchmark: lazy groups are folded at each close. That is
with memory to spare; where rows and groups do not fit, it is many times as much."""


@dataclass(frozen=True, slots=True)
class AggregateCost:
    """Seconds of one task for each window, and the bytes of state that it holds."""

    seconds: float
    state: float


def predict(
    slides: Slides, load: AggregateLoad, sizes: Sizes, prices: Mapping[Way, Price] = MEASURED
) -> dict[str, AggregateCost]:
    """What each method costs under this load.

    >>> costs = predict(Slides(60, 1), AggregateLoad(1e5, 1e4, 1e4), Sizes(56, 0, 32, 32))
    >>> min(costs, key=lambda method: costs[method].seconds)
    'differential'
    """
    overlap = slides.range / slides.slide
    way = way_of_panes(slides, load)
    spread = load.partials * overlap
    updates = {
        "wid": spread,
        "direct": load.partials + spread,
        "stacked": load.partials,
        "differential": 2 * load.partials,
    }
    seconds = {each: prices[each].seconds(updates[each], load.results) for each in prices}
    partial = sizes.partial + sizes.value * load.rows / load.partials
    kept, window = spread * partial, load.results * partial
    adapting = _adapting(slides, load, AdaptWid(partial=round(partial), row=round(sizes.row)))
    stacks = window * (2 + isqrt(int(overlap))) if way == "stacked" else 0.0
    costs = {
        "paned": AggregateCost(seconds[way], kept + stacks),
        "differential": AggregateCost(seconds["differential"], kept + window),
        "wid": AggregateCost(seconds["wid"], window * max(1.0, overlap)),
        "adapt": AggregateCost(
            _ADAPTING.seconds(load.rows * overlap, 0.0), adapting + sizes.group * min(spread, load.results * overlap)
        ),
    }
    return METHODS.priced(costs)


def way_of_panes(slides: Slides, load: AggregateLoad) -> Way:
    """Which way panes would go."""
    few = load.partials * slides.range / slides.slide <= PanedAggregation.direct_rows
    return "direct" if few or slides.range <= 2 * slides.slide else "stacked"


def _adapting(slides: Slides, load: AggregateLoad, settings: AdaptWid) -> float:
    """What groups hold if each is as it pays (Eq 6.5–6.8); if they differ in size, it is less than by their mean."""
    rate = load.rows / slides.slide / load.results
    eager, lazy = settings.eager_bytes(slides.range, slides.slide), settings.lazy_bytes(rate, slides.range)
    return load.results * min(eager, lazy)
