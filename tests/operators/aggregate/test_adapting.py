"""AdaptWID on DS1 to DS5, whose groups are of one record, of about 15 and of about 300 (F15)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from lab.feeding import SECOND, Fed
from lab.workloads.netflow import PACKETS, DataSet
from penstock.core.rows import RowType
from penstock.core.time import as_times
from penstock.core.windows import sliding
from penstock.operators.aggregate import AdaptWid
from penstock.operators.aggregate import spellings as pk
from penstock.operators.aggregate.config import WindowAggregate

THRESHOLDS = {"eager": 0.0, "lazy": float("inf"), "adapt": None}
COLUMNS = pa.schema([PACKETS.field(name) for name in ("srcIP", "len", "ts")])
TYPES = RowType(COLUMNS, ("srcIP",), "ts")


class Ran(NamedTuple):
    """A run: the most bytes of partials and rows that groups held, each partial once, and all results in order."""

    most: int
    results: pa.Table


@cache
def packets(number: int) -> pa.Table:
    return DataSet(number, records=25_000, seed=7).table().select(COLUMNS.names)


def quarters(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Rows by the quarter second, and the moment after them."""
    times = as_times(rows.column("ts")).to_numpy()
    ends = np.arange(SECOND // 4, int(times[-1]) + SECOND // 2, SECOND // 4)
    cuts = [0, *np.searchsorted(times, ends).tolist()]
    for end, begin, stop in zip(ends.tolist(), cuts[:-1], cuts[1:], strict=True):
        yield end, rows.slice(begin, stop - begin)


@cache
def ran(number: int, keeping: str) -> Ran:
    """Sums and counts by source, over 10 s that slide by one; bounds come with every second."""
    config = WindowAggregate(
        sliding("10 s", "1 s"),
        by=("srcIP",),
        aggregates=(("n", pk.count()), ("bytes", pk.sum("len"))),
        unit="microseconds",
        method=AdaptWid(threshold=THRESHOLDS[keeping]),
    )
    fed, most, out = Fed(config, TYPES), 0, []
    for end, rows in quarters(packets(number)):
        fed.rows(rows)
        most = max(most, fed.logic.footprint)
        if end % SECOND == 0:
            out.append(fed.advance(end))
    out.append(fed.end())
    order = [("window_end", "ascending"), ("srcIP", "ascending")]
    return Ran(most, pa.concat_tables(out).sort_by(order))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.slow
def test_f15_adapting_gives_on_each_data_set_what_eager_and_lazy_give(number):
    adapt = ran(number, "adapt").results
    assert adapt.num_rows > 1_000
    assert adapt == ran(number, "eager").results
    assert adapt == ran(number, "lazy").results


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 4, 5])
def test_f15_adapting_holds_less_than_eager_and_than_lazy_on_ds3_to_ds5(number):
    adapt, eager, lazy = (ran(number, keeping).most for keeping in ("adapt", "eager", "lazy"))
    assert adapt < 0.95 * min(eager, lazy)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_f15_adapting_holds_no_more_than_the_better_of_both_on_ds1_and_ds2(number):
    adapt, eager, lazy = (ran(number, keeping).most for keeping in ("adapt", "eager", "lazy"))
    assert adapt <= 1.01 * min(eager, lazy)
