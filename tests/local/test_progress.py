"""Progress operators in process: distinct, sort, merge – in flows, by random data, against their definitions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError
from tests.oracle import progress as oracle
from tests.streams import COLUMNS, examples

DELAY = 8


def table(*rows: tuple[int | None, int], first: int = 0) -> pa.Table:
    """Rows (key, time); ids count from `first`."""
    columns = {"k": [k for k, _ in rows], "t": [t for _, t in rows], "id": range(first, first + len(rows))}
    return pa.table(columns, schema=COLUMNS)


def pairs(rows: pa.Table) -> Counter[tuple]:
    return Counter(zip(rows.column("k").to_pylist(), rows.column("t").to_pylist(), strict=True))


@st.composite
def epochs(draw: st.DrawFn) -> list[pa.Table]:
    """A stream no row of which comes more than DELAY after a later one, cut into one to four epochs."""
    rows: list[tuple[int | None, int]] = []
    top = 0
    for key, time in draw(st.lists(st.tuples(st.sampled_from([1, 1, 2, 3, None]), st.integers(0, 40)), max_size=16)):
        rows.append((key, max(time, top - DELAY)))
        top = max(top, rows[-1][1])
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return [table(*rows[a:b], first=a) for a, b in pairwise([0, *cuts, len(rows)])]


def source(flow: pk.LocalFlow, tables: list[pa.Table], name: str = "a") -> pk.LocalFlow:
    return flow.source(tables, time="t", progress=pk.bounded_delay(DELAY), name=name)


@given(epochs(), st.sampled_from([None, 1, 5, 1000]), st.integers(1, 3), st.sampled_from(["4 kB", "1 MB"]))
@examples(0.3)
def test_distinct_equals_its_definition_in_any_epochs_on_any_shards(tables, within, shards, memory):
    flow = pk.LocalFlow(memory=memory, shards=shards)
    rows = source(flow, tables).distinct(on="k", within=within).to_memory()
    flow.run()
    whole = pa.concat_tables(tables)
    came = list(zip(whole.column("k").to_pylist(), whole.column("t").to_pylist(), strict=True))
    assert pairs(rows.table()) == Counter(oracle.distinct(came, within or 1))


def test_distinct_keeps_one_of_equal_rows_and_lets_it_go_at_once():
    flow = pk.LocalFlow()
    rows = flow.source([table((1, 5), (2, 5)), table((1, 5))], time="t", progress=pk.bounded_delay(100))
    rows = rows.select("k", "t").distinct().to_memory()
    query = flow.start()
    assert pairs(rows.table()) == Counter([(1, 5), (2, 5)])
    assert "distinct: one of equal rows, at once" in query.explain()


def test_the_time_column_may_be_named_among_the_columns_of_distinct():
    flow = pk.LocalFlow()
    rows = source(flow, [table((1, 5), (1, 5), (1, 6))]).distinct(on=["k", "t"]).to_memory()
    flow.run()
    assert pairs(rows.table()) == Counter([(1, 5), (1, 6)])


def test_windows_can_follow_distinct_rows():
    flow = pk.LocalFlow()
    visits = source(flow, [table((1, 1), (1, 3), (2, 4), (1, 11))]).distinct(on="k", within=5)
    rows = visits.window(range=10).agg(n=pk.count()).to_memory()
    flow.run()
    assert rows.table().to_pylist() == [
        {"window_start": 0, "window_end": 10, "n": 2},
        {"window_start": 10, "window_end": 20, "n": 1},
    ]


def test_distinct_windows_keep_their_time():
    """The time of a window is shown by no column of its own; what follows distinct still goes by it."""
    flow = pk.LocalFlow()
    counts = source(flow, [table((1, 1), (1, 12), (2, 13))]).window(range=5).by("k").agg(n=pk.count())
    rows = counts.distinct(on="n", within=20).window(range=5).agg(n=pk.count()).to_memory()
    flow.run()
    assert rows.table().to_pylist() == [{"window_start": 0, "window_end": 5, "n": 1}]


def test_explain_says_what_distinct_does():
    flow = pk.LocalFlow()
    source(flow, [table((1, 5))]).distinct(on="k", within=10).to_memory()
    assert "distinct0: distinct: one row per k within 10, once the bound has passed it" in flow.run().explain()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": "nope"}, "on='nope' is not a column"),
        ({"on": []}, r"on=\[\] names no column. Write on='id', or leave it out to compare whole rows."),
        ({"on": ["k", "t"], "within": 5}, r"on='t' is the time column: .* Leave out one of the two."),
        ({"on": "k", "within": 0}, r"within=0 is not positive, so nothing would be a duplicate"),
        ({"on": "k", "within": "5 s"}, r"within=5 s is real time, but the time column is an integer"),
    ],
)
def test_distinct_refuses_what_makes_no_sense(given, said):
    with pytest.raises(ConfigError, match=said):
        source(pk.LocalFlow(), [table((1, 5))]).distinct(**given)


def test_distinct_refuses_columns_that_cannot_be_compared():
    columns = pa.schema({"t": pa.int64(), "m": pa.map_(pa.string(), pa.int64())})
    rows = pk.LocalFlow().source(columns.empty_table(), time="t")
    with pytest.raises(ConfigError, match=r"column 'm' is of type map<.*>, which cannot be compared. Name the columns"):
        rows.distinct()


def test_distinct_refuses_updates_of_windows():
    counts = source(pk.LocalFlow(), [table((1, 5))]).window(range=5).agg(n=pk.count(), emit="update")
    with pytest.raises(ConfigError, match=r"distinct1 would take each of them for a row of its own"):
        counts.distinct(on="n")


# Order


@given(epochs(), st.integers(1, 3), st.sampled_from(["4 kB", "1 MB"]))
@examples(0.3)
def test_a_sorted_stream_is_in_order_within_and_across_epochs_and_loses_nothing(tables, shards, memory):
    flow = pk.LocalFlow(memory=memory, shards=shards)
    rows = source(flow, tables).sort().to_memory()
    flow.run()
    came = pa.concat_tables(tables)
    assert rows.table().column("t").to_pylist() == sorted(came.column("t").to_pylist())
    assert Counter(rows.table().column("id").to_pylist()) == Counter(came.column("id").to_pylist())


@given(epochs(), epochs(), st.integers(1, 3))
@examples(0.3)
def test_a_merge_is_the_union_in_order(left, right, shards):
    flow = pk.LocalFlow(memory="100 kB", shards=shards)
    merged = source(flow, left, "a").merge(source(flow, right, "b")).to_memory()
    flow.run()
    came = pa.concat_tables([*left, *right])
    assert merged.table().column("t").to_pylist() == sorted(came.column("t").to_pylist())
    assert pairs(merged.table()) == pairs(came)


def test_each_epoch_brings_what_its_bound_has_passed():
    flow, seen = pk.LocalFlow(), []
    rows = flow.source([table((1, 9), (1, 2)), table((1, 5), (1, 14))], time="t", progress=pk.bounded_delay(5))
    rows.sort().where("t != 9").foreach_epoch(lambda rows, epoch: seen.append(rows.column("t").to_pylist()))
    flow.run()
    assert seen == [[2], [5], [14]]


def test_results_of_windows_can_be_sorted():
    flow = pk.LocalFlow()
    counts = source(flow, [table((1, 31), (2, 7), (1, 2), (3, 16))]).window(range=10).by("k").agg(n=pk.count())
    rows = counts.sort().to_memory()
    flow.run()
    assert rows.table().column("window_end").to_pylist() == [10, 10, 20, 40]


def test_streams_that_go_by_other_columns_can_be_merged():
    rows = pa.table({"s": [5, 1], "e": [6, 8]})
    flow = pk.LocalFlow()
    by_start = flow.source(rows, time="s", name="starts")
    merged = by_start.merge(flow.source(rows, time="e", name="ends")).to_memory()
    flow.run()
    assert merged.table().column("s").to_pylist() == [1, 5, 5, 1]


def test_merge_refuses_streams_of_other_columns_and_none_at_all():
    flow = pk.LocalFlow()
    a = flow.source(table((1, 5)), time="t", name="a")
    with pytest.raises(ConfigError, match=r"merge\(\) names no other stream. Write a.merge\(b\)"):
        a.merge()
    with pytest.raises(ConfigError, match=r"merge: stream 1 has columns k int64, t int64, the first has"):
        a.merge(a.select("k", "t"))


def test_explain_says_what_is_sorted():
    flow = pk.LocalFlow()
    a, b = (flow.source(table((1, 5)), time="t", name=name) for name in "ab")
    a.merge(b).to_memory()
    a.sort().to_memory()
    text = flow.run().explain()
    assert "merge0: merge of 2 streams by time, exact by bounds" in text
    assert "sort1: sort by time, exact by bounds" in text
