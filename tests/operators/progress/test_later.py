"""Later: rows leave in the epoch after the one in which they came, each once, whatever happens in between."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.rows import RowType
from penstock.operators.progress import Later
from tests.items import Bound, Host, Restart, memories, rows
from tests.streams import examples

epochs = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=12), min_size=1, max_size=4)


def test_rows_leave_in_the_next_epoch():
    host = Host(Later()).on(Bound(0, 0), rows((1, 7), (2, 3)), Bound(0, 9))
    assert host.times() == []
    assert host.on(Restart(), Bound(0, 9)).times() == [3, 7]
    assert host.on(rows((1, 12)), Bound(0, 20)).times() == [3, 7]
    assert host.on(Restart(), Bound(0, 20)).times() == [3, 7, 12]


def test_all_leave_at_the_end():
    assert Host(Later()).on(Bound(0, 0), rows((1, 7)), Bound(0, 9)).end().times() == [7]


def test_it_looks_at_keys_and_times_only():
    types = RowType(pa.schema({"k": pa.int64(), "t": pa.int64(), "note": pa.string()}), keys=("k",), time="t")
    assert set(Later().carries((types,))) == {"note"}


@given(epochs, memories)
@examples(0.2)
def test_every_row_leaves_once_in_the_epoch_after_its_own(epochs, memory):
    host = Host(Later(), memory=memory)
    came: list[tuple[int, int]] = []
    for some in epochs:
        host.on(Restart(), Bound(0, 0))
        assert Counter(host.pairs()) == Counter(came)
        host.on(rows(*some))
        came += some
    host.end()
    assert Counter(host.pairs()) == Counter(came)
    assert host.budget.peak <= memory
    assert host.budget.held == 0
    assert host.logic.state().pages == ()


def decoupled(shards: int, **options: object) -> tuple[pk.LocalFlow, object]:
    flow = pk.LocalFlow(shards=shards)
    tables = [[pa.table({"k": [n, n], "t": [n, n + 1], "note": [f"{x}{n}", None]}) for n in range(3)] for x in "abc"]
    a, b, c = (flow.source(some, time="t", progress=pk.bounded_delay(1), **options) for some in tables)
    on = ["a.k = b.k", "b.k = c.k"]
    joined = flow.join(a=a, b=b, c=c, on=on, within=pk.band(2, 2), materialize=pk.late(decoupled=True), plan="(a b) c")
    return flow, joined


def test_f20_results_of_a_join_follow_an_epoch_later():
    flow, joined = decoupled(2)
    out = joined.to_memory()
    windows = joined.window(range=4).agg(n=pk.count()).to_memory()
    query = flow.run()
    assert [epoch.operators["later2"].rows_out for epoch in query.progress().epochs] == [0, 8, 8, 8]
    assert out.table().num_rows == 24
    notes = Counter(map(tuple, map(dict.values, out.table().select(["a_note", "b_note", "c_note"]).to_pylist())))
    assert notes[("a1", None, "c1")] == 1
    assert sum(windows.table().column("n").to_pylist()) == 24


def test_streams_that_stay_open_get_what_waits_in_silent_epochs():
    flow, joined = decoupled(1)
    out = joined.to_memory()
    query = flow.start()
    assert out.table().num_rows == 24
    assert len(query.progress().epochs) == 4
