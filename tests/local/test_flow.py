"""Flows in process: chains, unions, selections, late rows, units of time, policies, reports."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError, DurationError, FlowError, PenstockError
from penstock.storage.sharing import SharedPages
from tests.oracle import window_join as oracle
from tests.streams import COLUMNS, examples

DELAY = 8


def table(*rows: tuple[int | None, int | None], first: int = 0) -> pa.Table:
    """Rows (key, time); ids count from `first`."""
    columns = {"k": [k for k, _ in rows], "t": [t for _, t in rows], "id": range(first, first + len(rows))}
    return pa.table(columns, schema=COLUMNS)


def flow_of(*streams, progress=None, **options):
    """A flow and its sources, called a, b, c …; each stream is a table, or a list of tables: its epochs."""
    flow = pk.LocalFlow(**options)
    sources = [
        flow.source(stream, time="t", progress=progress, name=name)
        for name, stream in zip("abcd", streams, strict=False)
    ]
    return flow, *sources


def ids(rows: pa.Table, *names: str) -> Counter[tuple]:
    return Counter(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


# Chains against the definition


@st.composite
def epochs(draw) -> list[pa.Table]:
    """A stream no row of which comes more than DELAY after a later one, cut into one to four epochs."""
    rows, top = [], 0
    for key, time in draw(st.lists(st.tuples(st.sampled_from([1, 1, 2, 3, None]), st.integers(0, 40)), max_size=14)):
        rows.append((key, max(time, top - DELAY)))
        top = max(top, rows[-1][1])
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    ends = [0, *cuts, len(rows)]
    return [table(*rows[a:b], first=a) for a, b in pairwise(ends)]


def listed(tables: list[pa.Table]) -> list[dict]:
    return pa.concat_tables(tables).to_pylist()


def joined_rows(lefts: list[dict], rights: list[dict], near: oracle.Near, how: str, time: str) -> list[dict]:
    """The rows of a join by its definition, with the event time that `time` gives them."""
    left_by, right_by = {row["id"]: row for row in lefts}, {row["id"]: row for row in rights}
    rows = []
    for left, right in oracle.window_join(lefts, rights, near, how).elements():
        there = [side for side in (left_by.get(left), right_by.get(right)) if side is not None]
        times = [side["t"] for side in there]
        t = {"left": times[0], "right": times[-1], "latest": max(times), "earliest": min(times)}[time]
        rows.append({"k": there[0]["k"], "t": t, "id": (left, right)})
    return rows


chains = st.sampled_from(
    [
        *[("inner", time) for time in ("left", "right", "latest", "earliest")],
        *[("left", time) for time in ("left", "latest", "earliest")],
        *[("right", "right"), ("full", "latest"), ("full", "earliest")],
    ]
)


@given(epochs(), epochs(), epochs(), chains, st.sampled_from(["inner", "left", "full", "anti"]), st.integers(1, 3))
@examples(0.06)
def test_a_chain_of_joins_equals_its_definition_however_it_is_cut(a, b, c, first, second, shards):
    how, time = first
    flow, *streams = flow_of(a, b, c, progress=pk.bounded_delay(DELAY), shards=shards)
    pairs = streams[0].join(streams[1], on="k", within=pk.band(3, 5), how=how, time=time)
    chain = pairs.join(streams[2], on="k", within=pk.windows(left=6, right=2), how=second, suffix="_c")
    out = chain.to_memory()
    query = flow.run()
    middle = joined_rows(listed(a), listed(b), oracle.band(-3, 5), how, time)
    expected = oracle.window_join(middle, listed(c), oracle.band(-2, 6), second)
    assert query.progress().late == 0
    found = Counter()
    for row in out.table().to_pylist():
        pair = (row["id"], row["id_right"])
        found[None if pair == (None, None) else pair, row.get("id_c")] += 1
    assert found == expected
    assert query.progress().epochs[-1].operators["join1"].state_rows == 0


@given(epochs(), epochs(), epochs(), st.integers(1, 3))
@examples(0.03)
def test_a_join_with_a_union_equals_the_join_with_all_its_rows(a, b, c, shards):
    flow, *streams = flow_of(a, b, c, progress=pk.bounded_delay(DELAY), shards=shards)
    out = streams[0].union(streams[1]).join(streams[2], on="k", within=pk.tumbling(10), how="left").to_memory()
    flow.run()
    lefts = [{**row, "id": (row["id"], n)} for n, side in enumerate((a, b)) for row in listed(side)]
    expected = oracle.window_join(lefts, listed(c), oracle.tumbling(10), "left")
    assert ids(out.table(), "id", "id_right") == Counter((left[0], right) for left, right in expected.elements())


@given(epochs(), epochs())
@examples(0.008)
def test_where_on_pairs_keeps_the_pairs_for_which_it_holds(a, b):
    flow, left, right = flow_of(a, b)
    out = left.join(right, on="k", within=pk.band(9, 9), where="l.t < r.t AND r.id % 2 = 0").to_memory()
    flow.run()
    rows = {side: {row["id"]: row for row in listed(tables)} for side, tables in (("l", a), ("r", b))}
    pairs = oracle.window_join(listed(a), listed(b), oracle.band(-9, 9), "inner")
    expected = Counter(
        {(i, j): n for (i, j), n in pairs.items() if rows["l"][i]["t"] < rows["r"][j]["t"] and j % 2 == 0}
    )
    assert ids(out.table(), "id", "id_right") == expected


def test_a_stream_may_be_joined_with_itself():
    flow, a = flow_of(table((1, 0), (1, 2)))
    out = a.join(a, on="k", within=pk.band(0, 5)).to_memory()
    flow.run()
    assert sorted(ids(out.table(), "id", "id_right")) == [(0, 0), (0, 1), (1, 1)]


def test_a_join_of_two_sinks_is_computed_once_and_given_to_both():
    flow, a, b = flow_of(table((1, 0)), table((1, 1)))
    pairs = a.join(b, on="k", within=pk.band(5, 5))
    one, other = pairs.to_memory(), pairs.where("t >= 0").to_memory()
    query = flow.run()
    assert one.table().num_rows == other.table().num_rows == 1
    assert sum(epoch.operators["join0"].rows_out for epoch in query.progress().epochs) == 1


# Selections


def test_event_time_stays_with_the_rows_though_its_column_is_not_selected():
    flow, a, b = flow_of(table((1, 0), (1, 50)), table((1, 1)))
    out = a.select("k", "id").join(b.select("k", "id AS other"), on="k", within=pk.band(5, 5)).to_memory()
    flow.run()
    assert out.table().to_pylist() == [{"k": 1, "id": 0, "other": 0}]


def test_a_column_that_takes_the_time_columns_name_is_not_the_event_time():
    flow, a, b = flow_of(table((1, 0)), table((1, 1)))
    out = a.select("k", "t + 1000 AS t").join(b, on="k", within=pk.band(5, 5)).to_memory()
    flow.run()
    assert out.table().to_pylist() == [{"k": 1, "t": 1000, "t_right": 1, "id": 0}]


def test_select_and_where_pass_progress_on():
    """F22: the unmatched row comes out when the filtered stream's bound allows it, not only at the end."""
    flow, a, b = flow_of([table((1, 0)), table((1, 90))], [table((9, 0)), table((9, 90))], progress=pk.ordered())
    out = a.where("k = 1").join(b.where("false").select("k", "t"), on="k", within=pk.band(5, 5), how="left").to_memory()
    flow.run(end=False)
    assert out.table().column("t").to_pylist() == [0]


@pytest.mark.parametrize(("method", "closed_by"), [("oa", 2), ("auto", 2), ("ewj", 4)])
def test_windows_over_the_later_time_of_pairs_close_by_the_joint_bound(method, closed_by):
    """Q7-1 (F18): a left and a right row each minute, ±2 minutes; the window of minute 1 needs both bounds at 2.

    A method that puts joins off may still owe a pair there, so it waits for the join's window, two minutes more.
    """
    minutes = [table((1, minute), first=minute) for minute in range(6)]
    flow, a, b = flow_of(minutes, minutes, progress=pk.ordered())
    pairs = a.join(b, on="k", within=pk.band(before=2, after=2), time="latest", method=method)
    out = pairs.window(range=1).by("k").agg(n=pk.count()).to_memory()
    flow.run()
    counts = {epoch: ids(rows, "window_start", "n") for epoch, rows in out.sink.epochs.items()}
    assert [epoch for epoch, rows in counts.items() if (1, 3) in rows] == [closed_by]
    assert sum(counts.values(), Counter()) == {(0, 1): 1, (1, 3): 1, **{(t, 5): 1 for t in range(2, 6)}}


def test_a_union_progresses_as_its_slowest_member_and_holds_no_rows():
    """F21, Meld: rows pass at once; the join behind it lets go only when both members have promised."""
    slow, fast = [table((1, 0)), table((1, 1))], [table((2, 0)), table((2, 90))]
    flow, a, b, c = flow_of(slow, fast, [table((3, 0)), table((3, 90))], progress=pk.ordered())
    melded = a.union(b)
    passed, joined = melded.to_memory(), c.join(melded, on="k", within=pk.band(5, 5), how="left").to_memory()
    flow.run(end=False)
    assert passed.table().num_rows == 4
    assert joined.table().num_rows == 0, "member a has only promised 1: a partner of c's row at 0 may still come"


# Late rows


def test_a_row_below_its_bound_leaves_by_the_late_outlet_and_one_at_it_does_not():
    """F01: the violator is put aside and counted."""
    flow, a = flow_of([table((1, 10)), table((2, 9), (3, 10))], progress=pk.ordered())
    rows, late = a.to_memory(), a.late.to_memory()
    report = flow.run().progress()
    assert rows.table().column("t").to_pylist() == [10, 10]
    assert late.table().to_pylist() == [{"k": 2, "t": 9, "id": 0, "late_source": "a", "late_reason": "late"}]
    assert report.late == 1
    assert [epoch.late for epoch in report.epochs] == [{"a": 0}, {"a": 1}, {"a": 0}]


def test_a_row_without_time_leaves_by_the_late_outlet_with_its_reason():
    flow, a = flow_of(table((1, None), (2, 5)))
    rows, late = a.to_memory(), a.late.to_memory()
    report = flow.run().progress()
    assert rows.table().column("k").to_pylist() == [2]
    assert late.table().select(["k", "late_reason"]).to_pylist() == [{"k": 1, "late_reason": "no-time"}]
    assert report.epochs[0].no_time == {"a": 1}


def test_late_rows_take_no_part_in_progress():
    flow, a = flow_of([table((1, 10)), table((1, 3)), table((1, 5), (1, 12))], progress=pk.bounded_delay(5))
    late = a.late.to_memory()
    query = flow.run(end=False)
    assert late.table().column("t").to_pylist() == [3]
    assert [epoch.bounds["a"] for epoch in query.progress().epochs] == ["5", "5", "7"]


def test_the_late_rows_of_a_join_are_those_of_all_its_sources():
    flow, a, b = flow_of([table((1, 10)), table((1, 2))], [table((1, 10)), table((1, None))], progress=pk.ordered())
    late = a.join(b, on="k", within=pk.band(5, 5)).late.to_memory()
    flow.run()
    assert ids(late.table(), "late_source", "late_reason") == {("a", "late"): 1, ("b", "no-time"): 1}


def test_late_rows_of_sources_whose_columns_share_a_name_but_not_a_type_come_out_together():
    flow = pk.LocalFlow()
    a = flow.source(pa.table({"k": [1], "t": pa.array([None], pa.int64()), "note": ["x"]}), time="t", name="a")
    b = flow.source(pa.table({"k": [1], "t": pa.array([None], pa.int64()), "note": [1.5]}), time="t", name="b")
    late = a.join(b, on="k", within=pk.band(5, 5)).late.to_memory()
    flow.run()
    assert ids(late.table(), "late_source", "late_reason") == {("a", "no-time"): 1, ("b", "no-time"): 1}


def test_before_anything_ran_the_late_outlet_has_its_two_columns_already():
    _, a = flow_of(table((1, 0)))
    assert a.late.to_memory().table().column_names == ["k", "t", "id", "late_source", "late_reason"]


# Keys, names, kinds


@pytest.mark.parametrize(
    ("written", "kind"),
    [("inner", "inner"), ("LEFT", "left"), ("left_outer", "left"), ("leftouter", "left"), ("right outer", "right"),
     ("outer", "full"), ("full_outer", "full"), ("left_semi", "semi"), ("leftanti", "anti"), ("semi", "semi")],
)  # fmt: skip
def test_kinds_of_join_are_written_as_spark_does(written, kind):
    results = []
    for how in (written, kind):
        flow, a, b = flow_of(table((1, 0), (2, 0)), table((1, 1), (3, 1)))
        out = a.join(b, on="k", within=pk.band(5, 5), how=how).to_memory()
        flow.run()
        results.append(out.table())
    assert results[0].equals(results[1])


def test_a_null_key_never_matches_and_its_outer_side_comes_out_unmatched():
    flow, a, b = flow_of(table((None, 0)), table((None, 0)))
    out = a.join(b, on="k", within=pk.band(5, 5), how="full").to_memory()
    flow.run()
    assert sorted(ids(out.table(), "id", "id_right"), key=str) == [(0, None), (None, 0)]


WIDENED = {
    (pa.int32(), pa.int64()): pa.int64(),
    (pa.int8(), pa.int16()): pa.int16(),
    (pa.float32(), pa.float64()): pa.float64(),
    (pa.decimal128(10, 2), pa.decimal128(8, 3)): pa.decimal128(11, 3),
}


def numbers(kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal(1), Decimal(2)] if pa.types.is_decimal(kind) else [1, 2], kind)


@pytest.mark.parametrize("kinds", WIDENED, ids=str)
def test_keys_of_two_widths_are_compared_as_the_wider(kinds):
    flow = pk.LocalFlow(shards=3)
    a, b = (
        flow.source(pa.table({"k": numbers(kind), "t": [0, 0]}), time="t", name=str(port))
        for port, kind in enumerate(kinds)
    )
    pairs = a.join(b, on="k", within=pk.band(0, 0))
    out = pairs.to_memory()
    flow.run()
    assert pairs.columns.field("k").type == WIDENED[kinds]
    assert out.table().num_rows == 2


def test_names_that_are_taken_get_the_suffix():
    _, a, b = flow_of(table((1, 0)), table((1, 1)))
    assert a.join(b, on="k", within=pk.band(5, 5)).columns.names == ["k", "t", "id", "t_right", "id_right"]
    assert a.join(b, on="k", within=pk.band(5, 5), suffix="2").columns.names == ["k", "t", "id", "t2", "id2"]


def test_keys_of_different_names_are_both_shown():
    flow, a, b = flow_of(table((1, 0)), table((1, 1)))
    out = a.join(b.select("k AS other", "t"), on={"k": "other"}, within=pk.band(5, 5), how="left").to_memory()
    flow.run()
    assert out.table().to_pylist() == [{"k": 1, "t": 0, "id": 0, "other": 1, "t_right": 1}]


def test_columns_called_l_and_r_may_be_asked_for_in_where():
    flow = pk.LocalFlow()
    a = flow.source(pa.table({"k": [1, 1], "t": [0, 0], "l": [7, 9]}), time="t", name="a")
    b = flow.source(pa.table({"k": [1], "t": [0], "r": [8]}), time="t", name="b")
    out = a.join(b, on="k", within=pk.band(5, 5), where="l.l < r.r").to_memory()
    flow.run()
    assert out.table().select(["l", "r"]).to_pylist() == [{"l": 7, "r": 8}]


# Units of time

MOMENT = dt.datetime(2024, 2, 29, 12)
UNITS = {
    "timestamp": (pa.timestamp("us"), [MOMENT, MOMENT + dt.timedelta(minutes=10)], "10 min"),
    "timestamp with zone": (
        pa.timestamp("us", "Asia/Tokyo"),
        [m.replace(tzinfo=dt.UTC) for m in (MOMENT, MOMENT + dt.timedelta(minutes=10))],
        "10 min",
    ),
    "timestamp in milliseconds": (pa.timestamp("ms"), [MOMENT, MOMENT + dt.timedelta(minutes=10)], "10 min"),
    "date": (pa.date32(), [dt.date(2024, 2, 28), dt.date(2024, 3, 1)], "2 days"),
    "integer": (pa.int64(), [0, 10], 10),
    "small integer": (pa.int16(), [0, 10], 10),
}


@pytest.mark.parametrize("unit", UNITS)
def test_any_unit_of_time_will_do_and_comes_out_as_it_went_in(unit):
    kind, (early, late), apart = UNITS[unit]

    def pairs(before, ends):
        flow = pk.LocalFlow()
        a = flow.source(pa.table({"k": [1], "t": pa.array([late], kind)}), time="t", name="a")
        b = flow.source(pa.table({"k": [1], "t": pa.array([early], kind)}), time="t", name="b")
        out = a.join(b, on="k", within=pk.band(before, 0, ends=ends)).to_memory()
        flow.run()
        assert out.table().schema.field("t_right").type == kind
        return out.table().select(["t", "t_right"]).to_pylist()

    assert pairs(apart, "[]") == [{"t": late, "t_right": early}]
    assert pairs(apart, "(]") == []


@pytest.mark.parametrize("first", ["left", "right"])
def test_at_the_very_ends_of_the_axis_rows_meet_as_they_do_elsewhere_whichever_comes_first(first):
    """r must be 5 to 10 after l: at the end of int64 nothing is, and saturated arithmetic must not pretend so."""
    last, empty = 2**63 - 1, table()
    lefts, rights = table((1, last - 3)), table((1, last))
    order = ([lefts, empty], [empty, rights]) if first == "left" else ([empty, lefts], [rights, empty])
    flow, a, b = flow_of(*order)
    out = a.join(b, on="k", within=pk.band(before=-5, after=10)).to_memory()
    flow.run()
    assert out.table().num_rows == 0


# Progress end to end


def released(policy, *epochs_: pa.Table, clock=None, busy=None) -> list[int]:
    """How many unmatched left rows (t=0, band ±5) are out after each epoch, the right stream having `policy`."""
    flow = pk.LocalFlow(now=clock)
    lefts = [table((1, 0)), *[table()] * (len(epochs_) - 1)]
    a = flow.source(lefts, time="t", progress=busy, name="a")
    b = flow.source(list(epochs_), time="t", progress=policy, name="b")
    out = a.join(b, on="k", within=pk.band(5, 5), how="left").to_memory()
    flow.run(end=False)
    counts, total = [], 0
    for epoch in sorted(out.sink.epochs):
        total += out.sink.epochs[epoch].num_rows
        counts.append(total)
    return counts


def test_each_policy_lets_go_when_it_promises_that_no_partner_can_come():
    """A left row at 0 waits for right rows up to 5: it is out once the right bound is 6."""
    assert released(pk.ordered(), table((9, 5)), table((9, 6))) == [0, 1]
    assert released(pk.bounded_delay(10), table((9, 15)), table((9, 16))) == [0, 1]
    assert released(pk.bounded_tuples(2), table((9, 6)), table((9, 7)), table((9, 8)), table()) == [0, 0, 1, 1]
    assert released(None, table((9, 5)), table((9, 10**9))) == [0, 0]


def test_punctuated_takes_the_sources_word():
    def said(word):
        return table((9, 50)).append_column("complete", pa.array([word], pa.int64()))

    assert released(pk.punctuated("complete"), said(None), said(5), said(6)) == [0, 0, 1]


def test_timer_lets_go_in_a_lull():
    ticks = iter([0, 4_000_000, 8_000_001])
    flow = pk.LocalFlow(now=lambda: next(ticks))
    kind = pa.schema({"k": pa.int64(), "t": pa.timestamp("us")})

    def at(*times):
        return pa.table({"k": [1] * len(times), "t": pa.array(times, pa.timestamp("us"))}, schema=kind)

    a = flow.source([at(0), at(), at()], time="t", name="a")
    b = flow.source([at(), at(), at()], time="t", progress=pk.timer("3 s"), name="b")
    out = a.join(b, on="k", within=pk.band("5 s", "5 s"), how="left").to_memory()
    flow.run(end=False)
    assert [out.sink.epochs[epoch].num_rows for epoch in range(3)] == [0, 0, 1]


def test_a_source_that_falls_silent_stops_holding_the_others_back():
    clock = iter([0, 10_000_000, 20_000_000])
    quiet = pk.ordered(idle="15 s")
    flow = pk.LocalFlow(now=lambda: next(clock))
    a = flow.source([table((1, 0)), table((1, 90)), table((1, 99))], time="t", progress=pk.ordered(), name="a")
    b = flow.source([table((2, 0)), table(), table()], time="t", progress=quiet, name="b")
    out = a.join(b, on="k", within=pk.band(5, 5), how="left").to_memory()
    query = flow.run(end=False)
    assert [epoch.bounds["b"] for epoch in query.progress().epochs] == ["0", "0", "99"]
    assert sorted(out.table().column("t").to_pylist()) == [0, 90]


# Having


def windowed(**asked):
    flow, a = flow_of(table((1, 0), (1, 1), (2, 2)))
    out = a.window(range=10).by("k").agg(n=pk.count(), **asked)
    return flow, out


def test_having_keeps_the_results_for_which_it_holds_as_where_does():
    flow, some = windowed(having="n > 1 AND window_end = 10")
    rows = some.to_memory()
    flow.run()
    assert rows.table().to_pylist() == [{"k": 1, "window_start": 0, "window_end": 10, "n": 2}]
    flow, all_ = windowed()
    same = all_.where("n > 1 AND window_end = 10").to_memory()
    flow.run()
    assert same.table() == rows.table()


@pytest.mark.parametrize(
    ("having", "message"),
    [
        (
            "m > 1",
            r"having='m > 1' is not a condition on the results, which have k, window_start, window_end, n: .*'m > 1'",
        ),
        ("n >", r"having='n >' is not a condition on the results, .* is not a Spark SQL expression"),
        (
            3,
            r"having=3 is not a condition on the results, .* 3 is a int; in a local flow, write the expression as",
        ),
        (
            pk.count(),
            r"having=Count\(.*\) is an aggregate, but having= is a condition on the results, as having='n > 10'\. "
            r"To get a column called having, use another name here and rename it: \.select\(…, 'n AS having'\)\.$",
        ),
        (pk.median("id"), r"having=.* is an aggregate, but having= is a condition"),
    ],
)
def test_what_is_no_condition_on_the_results_is_refused_by_having(having, message):
    with pytest.raises(ConfigError, match=message):
        windowed(having=having)


# Memory


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "size"), [(1_500, 1), (2_500, 7), (6_000, 7)])
def test_state_that_outgrows_the_memory_goes_to_files_and_results_stay_exact(memory, size):
    """24 epochs of `size` rows a side, all of which stay in state: up to five times the memory."""
    rows = [table(*[(n % 2, n)] * size, first=n) for n in range(24)]
    flow, a, b = flow_of(rows, rows, memory=memory)
    out = a.join(b, on="k", within=pk.band(1000, 1000)).to_memory()
    report = flow.run().progress()
    assert out.table().num_rows == 2 * (12 * size) ** 2
    assert max(epoch.operators["join0"].peak_memory for epoch in report.epochs) <= memory


def crowded(count: int, seed: int, epochs: int = 8, keys: int = 4) -> list[pa.Table]:
    """Epochs of rows of few keys, at random times, so that one key alone has too many to rewrite."""
    rng = np.random.default_rng(seed)
    return [
        pa.table({"k": rng.integers(keys, size=count), "t": rng.integers(10 * count, size=count), "id": numbers})
        for numbers in np.arange(epochs * count).reshape(epochs, count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", pytest.param("right", marks=pytest.mark.deep), "semi"])
def test_a_page_too_large_to_rewrite_is_cut_and_its_parts_keep_the_file_they_share(how):
    """With 1 MB and 4,000 rows of 4 keys an epoch, a part that was marked anew used to delete the other's marks."""
    left, right = crowded(4_000, seed=0), crowded(4_000, seed=1)
    flow, a, b = flow_of(left, right, memory="1 MB")
    out = a.join(b, on="k", within=pk.band(before=5, after=5), how=how, method="oa").to_memory()
    flow.run()
    columns = "l.id" if how == "semi" else "l.id, r.id"
    l, r = pa.concat_tables(left), pa.concat_tables(right)  # noqa: F841, E741
    expected = duckdb.sql(f"SELECT {columns} FROM l {how} JOIN r ON l.k = r.k AND abs(l.t - r.t) <= 5").fetchall()
    assert ids(out.table(), *(["id"] if how == "semi" else ["id", "id_right"])) == Counter(expected)


def test_parts_that_delete_the_file_they_share_are_noticed(monkeypatch):
    monkeypatch.setattr(SharedPages, "drop", lambda self, name: self._store.drop(name))
    with pytest.raises(PenstockError, match="is missing"):
        test_a_page_too_large_to_rewrite_is_cut_and_its_parts_keep_the_file_they_share("left")


@pytest.mark.slow
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.sampled_from([("oa", 6_000), ("oa", 12_000), ("ewj", 6_000), ("ah_ewj", 24_000), ("rpwj", 24_000)]),
)
@examples(0.05)
def test_hot_keys_in_little_memory_equal_the_definition(seed, keys, how, run_by):
    """State is 17 kB, half of it of one key. Methods with hash partitions refuse to run in less than this."""
    method, memory = run_by
    left, right = crowded(30, seed, 7, keys), crowded(30, seed + 1, 7, keys)
    flow, a, b = flow_of(left, right, progress=pk.bounded_delay(300), memory=memory)
    out = a.join(b, on="k", within=pk.band(before=5, after=5), how=how, method=method).to_memory()
    flow.run()
    got = ids(out.table(), "id") if how in ("semi", "anti") else ids(out.table(), "id", "id_right")
    expected = oracle.window_join(listed(left), listed(right), oracle.band(-5, 5), how)
    assert got == Counter({pair[: len(next(iter(got), pair))]: count for pair, count in expected.items()})


def test_memory_too_small_for_one_page_is_refused_where_it_is_written():
    with pytest.raises(ConfigError, match=r"memory=.*too small.*Write at least"):
        pk.LocalFlow(memory=100)


# Sinks, reports, ends


def test_parquet_gets_a_folder_per_epoch(tmp_path):
    _, a = flow_of([table((1, 0)), table((2, 1))])
    a.to_parquet(str(tmp_path / "out")).run()
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert folders == ["epoch=0", "epoch=1", "epoch=2"]
    assert pq.read_table(tmp_path / "out" / "epoch=1" / "part-0.parquet").column("k").to_pylist() == [2]


def test_the_console_shows_the_first_rows_of_epochs_that_have_any(capsys):
    _, a = flow_of([table((1, 0), (2, 1)), table()])
    a.to_console(rows=1).run()
    shown = capsys.readouterr().out
    assert shown.count("-- epoch") == 1
    assert "k: " in shown


def test_a_writer_of_sparks_is_refused_with_what_to_use_instead():
    _, a = flow_of(table((1, 0)))
    with pytest.raises(ConfigError, match=r"format kafka is a Spark writer\. In a local flow use to_parquet"):
        a.to_format("kafka", topic="x").run()


def test_an_ended_flow_refuses_more():
    flow, a = flow_of(table((1, 0)))
    a.to_memory()
    query = flow.run()
    assert query.await_end()
    with pytest.raises(FlowError, match=r"The streams of this flow have ended\. Make a new flow to run again"):
        query.epoch({})


def test_a_flow_that_was_started_goes_on_until_it_is_told_to_end():
    flow, a = flow_of(table((1, 0)))
    out = a.to_memory()
    query = flow.start()
    query.epoch({a._node: table((2, 1))})
    query.stop()
    assert out.table().column("k").to_pylist() == [1, 2]


def test_a_source_that_changes_its_columns_is_refused():
    flow, a = flow_of([table((1, 0)), table((1, 0)).drop_columns(["id"])])
    a.to_memory()
    with pytest.raises(FlowError, match=r"(?s)Source 'a' changed its columns from k: int64.* to k: int64"):
        flow.run()


def test_a_flow_without_sink_or_with_an_unused_source_is_refused():
    flow, a, _ = flow_of(table((1, 0)), table((1, 0)))
    with pytest.raises(FlowError, match=r"The flow has no sink, so nothing would come out\. Add one, as in"):
        flow.run()
    a.to_memory()
    with pytest.raises(FlowError, match=r"Source 'b' leads to no sink\. Leave it out, or write its stream to a sink"):
        flow.run()


@pytest.mark.parametrize(
    ("data", "kind"), [([1, 2], "list"), ("orders.csv", "str"), ("", "str"), (iter([1]), "list_iterator")]
)
def test_a_source_that_is_no_arrow_table_is_refused(data, kind):
    with pytest.raises(ConfigError, match=f"reads Arrow tables, but this source is a {kind}. Pass a pyarrow.Table"):
        pk.LocalFlow().source(data, time="t")


def test_a_source_without_a_table_is_refused():
    with pytest.raises(ConfigError, match=r"This source is empty, .* Pass at least one pyarrow.Table"):
        pk.LocalFlow().source([], time="t")


def test_no_shards_are_refused():
    with pytest.raises(ConfigError, match=r"^shards=0 must be a whole number of at least 1\.$"):
        pk.LocalFlow(shards=0)


def test_a_time_that_does_not_fit_its_column_is_not_a_crash_in_mid_flow():
    """Nanoseconds have no place among microseconds: refused when the flow is built, or rounded; not an Arrow error."""
    flow = pk.LocalFlow()
    rows = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    try:
        flow.source(rows, time="t").to_memory()
    except (ConfigError, DurationError):
        return
    flow.run()


def test_windows_that_slide_by_tuple_go_on_from_epoch_to_epoch():
    flow = pk.LocalFlow()
    tables = [pa.table({"t": [time, time + 1]}) for time in (0, 10, 20)]
    out = flow.source(tables, time="t", progress=pk.ordered()).window(pk.slide_by_tuple(12)).agg(n=pk.count())
    rows = out.to_memory()
    flow.run()
    ends = rows.table().sort_by("window_end").select(["window_end", "n"]).to_pylist()
    assert [(row["window_end"] - 1, row["n"]) for row in ends] == [(0, 1), (1, 2), (10, 3), (11, 4), (20, 3), (21, 4)]


def many_panes(flow, epochs: int = 30, **more):
    """Sums of whole numbers by 3,000 keys, windows of 40 panes, an epoch each."""
    keys = list(range(3_000))
    tables = [pa.table({"k": keys, "v": keys, "t": [n] * len(keys)}) for n in range(epochs)]
    stream = flow.source(tables, time="t", name="ticks", progress=pk.ordered())
    return (
        stream.window(range=40, slide=1).by("k").agg(n=pk.count(), total=pk.sum("v"), name="sums", **more).to_memory()
    )


@pytest.mark.slow
def test_windows_turn_to_differences_once_they_are_seen_to_pay_and_results_stay_the_same():
    steered, named = pk.LocalFlow(), pk.LocalFlow()
    out, expected = many_panes(steered), many_panes(named, method="paned")
    query = steered.run()
    named.run()
    methods = [epoch.operators["sums"].method for epoch in query.progress().epochs]
    assert (methods[0], methods[-1]) == ("paned", "differential")
    assert methods == sorted(methods, reverse=True), "it changes once"
    columns = ["k", "window_end", "n", "total"]
    ours, theirs = (
        sink.table().select(columns).sort_by([("window_end", "ascending"), ("k", "ascending")])
        for sink in (out, expected)
    )
    assert ours.equals(theirs)
    lines = [line.strip() for line in query.explain().splitlines()]
    assert "method differential (Differential panes: windows slide by the panes that enter and leave)" in lines
    assert [line.split()[0] for line in lines if "as much" in line] == ["paned", "wid", "adapt"]


# What a query reports


def test_progress_counts_all_rows_that_came_and_those_that_sinks_got():
    flow = pk.LocalFlow()
    rows = flow.source([table((1, 20), (2, 30)), table((1, 7), (1, 31), (2, 40))], time="t", progress=pk.ordered())
    counts = rows.window(range=10).by("k").agg(n=pk.count()).where("n > 0 AND k = 1")
    counts.to_memory()
    counts.foreach_epoch(lambda rows, epoch: None)
    counts.late.to_memory()
    report = flow.run().progress()
    assert (report.rows_in, report.late, report.rows_out) == (5, 1, 2), "k = 1 has two windows, at 20 and 31"
    assert str(report).startswith("3 epochs, 5 rows in (1 late), 2 out, ")


def test_a_flow_without_an_operator_tells_what_went_out_too():
    flow = pk.LocalFlow()
    a, b = (flow.source(table((1, 1), (2, 2)), time="t", name=name) for name in "ab")
    a.union(b).to_memory()
    a.where("k = 1").to_memory()
    report = flow.run().progress()
    assert (report.rows_in, report.rows_out) == (4, 5)


def test_a_flow_runs_once():
    flow = pk.LocalFlow()
    flow.source((pa.table({"t": [n]}) for n in range(3)), time="t").to_memory()
    flow.run(end=False)
    with pytest.raises(FlowError, match=r"This flow has already run\. .* Build it again to run it again\."):
        flow.run()


def test_results_of_another_flow_are_neither_replaced_nor_mixed_with_new_ones(tmp_path):
    def run(*epochs):
        flow = pk.LocalFlow()
        flow.source([pa.table({"t": [t]}) for t in epochs], time="t").to_parquet(tmp_path / "out")
        flow.run()

    run(1, 2, 3, 4)
    with pytest.raises(ConfigError, match=r"the folder already has results of another flow, such as epoch=\d"):
        run(100)
    assert sorted(pq.read_table(tmp_path / "out").column("t").to_pylist()) == [1, 2, 3, 4]
