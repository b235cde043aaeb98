"""Slide-by-tuple windows in little memory: however many close at once, and however much one of them holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk


def results(window, memory: str, rows: pa.Table, **aggregates: object) -> pa.Table:
    flow = pk.LocalFlow(memory=memory)
    half = rows.num_rows // 2
    source = flow.source([rows.slice(0, half), rows.slice(half)], time="t", progress=pk.ordered(), name="rows")
    out = source.window(window).by("g").agg(**aggregates).to_memory()
    flow.run()
    return out.table().sort_by([("window_end", "ascending"), ("g", "ascending")])


def drawn(rows: int, groups: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"t": np.arange(rows) // 10, "x": rng.integers(0, 50, rows), "g": rng.integers(0, groups, rows)})


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 300])
@pytest.mark.parametrize("slide", [{}, {"every": 5, "by": "rank"}, {"every": 5, "by": "row-num"}])
def test_windows_that_close_at_once_are_made_in_pieces(groups, slide):
    rows, window = drawn(8_000, groups), pk.slide_by_tuple(20, **slide)
    asked = {"n": pk.count(), "most": pk.max("x"), "half": pk.median("x")}
    assert results(window, "1 MB", rows, **asked) == results(window, "1 GB", rows, **asked)


@pytest.mark.slow
@pytest.mark.parametrize("slide", [{}, {"every": 5, "by": "rank"}])
def test_a_window_may_hold_more_times_than_memory(slide):
    rows, window = drawn(4_000, 1), pk.slide_by_tuple(350, **slide)
    asked = {"n": pk.count(), "most": pk.max("x")}
    assert results(window, "60 kB", rows, **asked) == results(window, "1 GB", rows, **asked)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["rank", "row-num"])
def test_the_counts_of_many_groups_may_outgrow_memory(by):
    rows, window = drawn(40_000, 30_000), pk.slide_by_tuple(20, every=2, by=by)
    assert results(window, "1 MB", rows, n=pk.count()) == results(window, "1 GB", rows, n=pk.count())
