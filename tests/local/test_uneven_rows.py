"""Rows of very different widths fit a small memory as even ones do: pieces are cut by bytes, not by rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk

MEMORY = 1_000_001
ROWS = 900
WIDE = 40_000

pytestmark = pytest.mark.slow

Query = Callable[[pk.LocalFlow, Callable[[int], Any]], Any]
"""What is asked of a flow; its streams are numbered."""

BAND = {"within": pk.band(before=100, after=100)}

QUERIES: dict[str, Query] = {
    **{
        method: lambda _, of, method=method: of(0).join(of(1), on="k", method=method, **BAND)
        for method in ("oa", "ewj", "ah_ewj", "rpwj")
    },
    **{
        f"always {method}": lambda _, of, method=method: of(0).join(of(1), on="k", method=method)
        for method in ("oa", "rrpj", "xjoin")
    },
    "near": lambda _, of: of(0).join(of(1), on=pk.near(["x", "y"], distance=1), **BAND),
    "boxes": lambda _, of: of(0).join(of(1), on=pk.dwithin(["x", "y"], ["x", "y"], distance=1), **BAND),
    "several": lambda flow, of: flow.join(a=of(0), b=of(1), on=["a.k = b.k"]),
    "head of a join": lambda _, of: of(0).join(of(1), on="k").head(200),
    "last": lambda _, of: of(0).window(range=100, slide=50).by("g").agg(last=pk.last("note")),
    "last, adapt": lambda _, of: of(0).window(range=100, slide=50).by("g").agg(last=pk.last("note"), method="adapt"),
    "rows by order": lambda _, of: of(0).window(pk.rows(4, 2, partition="g", order="t")).by("g").agg(n=pk.last("note")),
    "rows": lambda _, of: of(0).window(pk.rows(4, 2, partition="g")).by("g").agg(n=pk.last("note")),
    "top": lambda _, of: of(0).window(range=100).by("g").top(1, "x"),
    "distinct": lambda _, of: of(0).distinct(on="g", within=20),
    "sort": lambda _, of: of(0).sort(),
}


def side(seed: int) -> pa.Table:
    """Rows of some 60 bytes, and one in twenty of 40 kB."""
    rng = np.random.default_rng(seed)
    wide = rng.random(ROWS) < 0.05
    return pa.table(
        {
            "k": rng.integers(0, ROWS, ROWS),
            "g": rng.integers(0, 300, ROWS),
            "x": rng.random(ROWS) * 100,
            "y": rng.random(ROWS) * 100,
            "t": np.arange(ROWS),
            "note": [f"{n:06d}" * (WIDE // 6 if large else 1) for n, large in enumerate(wide)],
        }
    )


def ran(query: Query, memory: int) -> Counter[Any]:
    flow = pk.LocalFlow(memory=memory)
    rows = query(flow, lambda n: flow.source(side(n), time="t", progress=pk.ordered(), name=f"s{n}")).to_memory()
    flow.run()
    # Texts are told apart by what they begin with and how long they are.
    short = [{name: _short(value) for name, value in row.items()} for row in rows.table().to_pylist()]
    return Counter(tuple(sorted(row.items())) for row in short)


def _short(value: object) -> object:
    return (value[:6], len(value)) if isinstance(value, str) else value


@pytest.mark.parametrize("name", QUERIES)
def test_a_few_wide_rows_among_many_need_no_more_memory(name):
    expected = ran(QUERIES[name], 10**9)
    assert expected
    assert ran(QUERIES[name], MEMORY) == expected
