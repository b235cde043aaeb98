"""From panes to windows: each partial of a pane goes to every window that the pane is part of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.rows import times_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Wid, Wids
from penstock.operators.aggregate.config import Panes
from penstock.operators.aggregate.lanes import Lane
from penstock.operators.aggregate.partials import Renumber, cost


def spread_over_windows(
    lane: Lane, partials: pa.RecordBatch, panes: Panes, budget: Budget, first: Wid = TIME_MIN, after: Wid = TIME_MAX
) -> Iterator[pa.RecordBatch]:
    """Partials of panes as those of their windows from `first` until before `after`, in chunks that fit the budget."""
    if not partials.num_rows:
        return
    growth = -(-panes.count // panes.step)
    size = max(1, int(partials.num_rows * (budget.room // 2) / max(1, growth * cost(partials))))
    renumber = windows_of_panes(lane, panes, first, after)
    for start in range(0, partials.num_rows, size):
        part = partials.slice(start, size)
        with budget.hold(min(growth * cost(part), budget.room), "the windows of arrivals"):
            yield lane.fold(renumber(part))


def windows_of_panes(lane: Lane, panes: Panes, first: Wid = TIME_MIN, after: Wid = TIME_MAX) -> Renumber:
    """Gives each partial of a pane to every window that the pane is part of, from `first` until before `after`."""
    windows = panes.windows

    def renumber(partials: pa.RecordBatch) -> pa.RecordBatch:
        low, high = windows.wids(times_of(partials))
        return repeated(lane, partials, np.maximum(low, first), np.minimum(high, after))

    return renumber


def repeated(lane: Lane, partials: pa.RecordBatch, low: Wids, high: Wids) -> pa.RecordBatch:
    """Each partial once for every number from its `low` until before its `high`, under that number."""
    sizes = np.maximum(high - low, 0)
    stop = np.cumsum(sizes)
    wids = np.arange(int(stop[-1]) if stop.size else 0) + np.repeat(low - (stop - sizes), sizes)
    return lane.renumbered(partials.take(pa.array(np.repeat(np.arange(low.size), sizes))), wids)
