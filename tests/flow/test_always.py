"""A join without within=: every pair ever, as users write it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.window_join import METHODS

ORDERS = pa.table({"id": [1, 2, None], "t": [0, 5, 7]})
PAID = pa.table({"id": [1, 1, 3], "t": [900, 70_000, 4]})
PROGRESSIVE = [name for name, method in METHODS.items() if method.parameters.windowless]


def joined(how="inner", **arguments):
    flow = pk.LocalFlow(memory="1 MB")
    orders, paid = flow.source(ORDERS, time="t", name="orders"), flow.source(PAID, time="t", name="paid")
    rows = orders.join(paid, on="id", how=how, **arguments).to_memory()
    return sorted(map(str, (row.values() for row in rows_of(flow, rows)))), flow


def rows_of(flow, rows):
    flow.run()
    return rows.table().to_pylist()


@pytest.mark.parametrize("method", ["auto", "oa", *PROGRESSIVE])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_no_window_is_always(how, method):
    assert joined(how, method=method)[0] == joined(how, within=pk.always(), method="oa")[0]


def test_rows_that_nobody_met_come_out_at_the_end():
    assert joined("anti")[0] == sorted(map(str, ({"id": 2, "t": 5}.values(), {"id": None, "t": 7}.values())))


def test_explain_says_why_nothing_is_put_off():
    flow = pk.LocalFlow(memory="1 MB")
    orders, paid = flow.source(ORDERS, time="t", name="orders"), flow.source(PAID, time="t", name="paid")
    orders.join(paid, on="id").to_memory()
    said = str(flow.run().explain())
    assert "within always()" in said
    assert "method oa (OA-Join:" in said
