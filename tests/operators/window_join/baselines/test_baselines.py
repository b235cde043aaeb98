"""F20: the joins of in-order processing. OPOB and OPIB equal OA-Join, by the left row's time; global order is wrong."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError, StateError
from penstock.core.within import band, tumbling, windows
from penstock.operators.window_join import METHODS, WindowJoin
from penstock.operators.window_join.baselines.opib import OPIBJoin
from tests.items import is_sorted
from tests.streams import (
    LEFT,
    RIGHT,
    Advance,
    Arrive,
    Case,
    EpochEnd,
    Run,
    advance,
    cases,
    examples,
    host_cases,
    left,
    right,
    run,
)

ORDERED = ("opob", "opib")


def join(method: str, within=None) -> WindowJoin:
    return WindowJoin((("k", "k"),), within or windows(left=3, right=2), method=method)


def left_times(at_work: Run) -> list[int]:
    return [t for out in at_work.out for t in out.column("t").to_pylist()]


def pairs(config: WindowJoin, *events) -> list[tuple[int, int]]:
    """(left id, right id) in the order in which they come out."""
    at_work = Run(config)
    for event in events:
        at_work.on(event)
    out = [(o.column("id").to_pylist(), o.column("id_right").to_pylist()) for o in at_work.out]
    return [pair for ids in out for pair in zip(*ids, strict=True)]


ARRIVALS = (left(5, 1), left(3, 1), right(4, 1), right(6, 1), left(1, 1))


def test_f20_oa_gives_results_at_once_in_any_order():
    assert pairs(join("oa"), *ARRIVALS) == [(5, 4), (3, 4), (5, 6), (3, 6), (1, 4)]


@pytest.mark.parametrize("method", ORDERED)
def test_f20_results_wait_until_both_bounds_have_passed_and_leave_by_the_left_time(method):
    assert pairs(join(method), *ARRIVALS) == []
    assert pairs(join(method), *ARRIVALS, advance(left=9)) == [], "right rows may still come"
    assert pairs(join(method), *ARRIVALS, advance(right=7)) == [], "left rows may still come"
    out = pairs(join(method), *ARRIVALS, advance(left=9), advance(right=7))
    assert [ids[0] for ids in out] == [1, 3, 3], "left row 5 can meet right rows up to 8"
    assert sorted(out) == [(1, 4), (3, 4), (3, 6)]


@pytest.mark.parametrize("method", ORDERED)
def test_f20_a_left_row_is_processed_once_the_right_bound_is_beyond_its_range(method):
    """b1 > a + RANGE_0, strictly: at b1 = 8 the row at 5 can still meet one at 8."""
    events = (left(5, 1), right(4, 1), advance(left=9))
    assert pairs(join(method), *events, advance(right=8)) == []
    assert pairs(join(method), *events, advance(right=9)) == [(5, 4)]


def test_f20_what_opib_and_opob_hold():
    """One left row, ten partners: OPIB holds rows, OPOB holds the results besides."""
    events = [left(0, 1), *(right(1, 1, id=n) for n in range(10))]
    waiting = {}
    for method in ORDERED:
        at_work = Run(join(method))
        for event in events:
            at_work.on(event)
        waiting[method] = at_work.logics[0].held
    assert waiting == {"opob": 10, "opib": 11}


@pytest.mark.parametrize("method", ORDERED)
@given(data=st.data())
@examples(0.12)
def test_f20_opob_and_opib_equal_their_definition_and_are_ordered(method, data):
    drawn = st.one_of(cases(hows=["inner"], methods=st.just(method)), host_cases(["inner"], methods=st.just(method)))
    case: Case = data.draw(drawn)
    at_work = run(case)
    assert at_work.results == case.expected()
    assert at_work.held == 0
    assert at_work.budget.held == 0
    assert at_work.budget.peak <= case.memory
    if case.shards == 1 and not any(isinstance(event, EpochEnd) and event.shards > 1 for event in case.events):
        assert is_sorted(left_times(at_work))


@pytest.mark.parametrize("method", ORDERED)
@given(data=st.data())
@examples(0.06)
def test_f20_no_result_comes_below_the_bounds_that_were_given_out(method, data):
    case: Case = data.draw(cases(hows=["inner"], methods=st.just(method)))
    at_work = Run(case.config)
    for event in case.events:
        bounds = [at_work.logics[0].bounds().individual[side] for side in (LEFT, RIGHT)]
        done = len(at_work.out)
        at_work.on(replace(event, shards=1) if isinstance(event, EpochEnd) else event)
        for out in at_work.out[done:]:
            assert min(out.column("t").to_pylist()) >= bounds[LEFT]
            assert min(out.column("t_right").to_pylist()) >= bounds[RIGHT]


def many(port: int, count: int, seed: int) -> Arrive:
    rng = np.random.default_rng(seed)
    drawn = zip(rng.integers(3, size=count).tolist(), rng.integers(200, size=count).tolist(), strict=True)
    return Arrive(port, [{"k": k, "t": t, "id": n} for n, (k, t) in enumerate(drawn)])


@pytest.mark.slow
@pytest.mark.parametrize("method", ORDERED)
@pytest.mark.parametrize("within", [band(20, 20), tumbling(50)])
def test_f20_order_is_kept_where_rows_and_results_are_many_times_the_memory(method, within):
    events = [many(LEFT, 300, 1), many(RIGHT, 300, 2), Advance(LEFT, 120), Advance(RIGHT, 120)]
    tight, loose = (run(Case(within, "inner", events, memory=memory, method=method)) for memory in (60_000, 1 << 24))
    assert is_sorted(left_times(tight))
    assert tight.results == loose.results
    assert tight.budget.peak <= 60_000


@pytest.mark.parametrize("method", ORDERED)
def test_f20_many_rows_of_one_time_meet_page_by_page(method):
    rows = [{"k": 1, "t": 7, "id": n} for n in range(150)]
    at_work = run(Case(band(5, 5), "inner", [Arrive(LEFT, rows), Arrive(RIGHT, rows)], memory=20_000, method=method))
    assert sum(at_work.results.values()) == 150 * 150
    assert at_work.budget.peak <= 20_000


def test_f20_pairs_of_one_span_come_by_left_time_even_if_many_left_rows_meet_few():
    """Mutation: looking the fewer right rows up in the left ones would give pairs in the right rows' order."""
    events = [*(left(t, 1, id=t) for t in range(40)), right(20, 1, id=1), right(19, 1, id=2)]
    at_work = Run(join("opib", band(50, 50)))
    for event in events:
        at_work.on(event)
    at_work.end()
    assert is_sorted(left_times(at_work))
    assert isinstance(at_work.logics[0], OPIBJoin)


# The global-order join

MINUTE = 60
NEAR = windows(left=20, right=20)


def arriving(*streams: tuple[Callable[[int, int], Arrive], int]) -> list[Arrive]:
    """Streams of a row every ten seconds, each by time, on two keys; those of a stream come so many seconds late."""
    arrivals = [(t + late, side(t, t // 10 % 2)) for side, late in streams for t in range(0, 600, 10)]
    return [arrival for _, arrival in sorted(arrivals, key=lambda arrival: arrival[0])]


def by(method: str, events: list[Arrive]) -> tuple[Counter, Counter]:
    """What comes out, and what should."""
    case = Case(NEAR, "inner", events, method=method)
    return run(case).results, case.expected()


def test_f20_global_order_is_right_where_there_is_one_order():
    results, expected = by("global_order", arriving((left, 0), (right, 0)))
    assert results == expected
    assert sum(expected.values()) > 100


def test_f20_with_a_minute_of_skew_global_order_gives_false_pairs():
    """The right stream is a minute behind, so its rows find left ones that are too young for them."""
    events = arriving((left, 0), (right, MINUTE))
    results, expected = by("global_order", events)
    assert results - expected
    assert all(ours - theirs > 20 for ours, theirs in (results - expected))
    for method in ("oa", *ORDERED):
        assert by(method, events) == (expected, expected)


def test_f20_with_a_part_a_minute_late_global_order_misses_pairs():
    """The left stream is a union with a link that is a minute late: what its rows should meet is gone."""
    events = arriving((left, 0), (left, MINUTE), (right, 0))
    results, expected = by("global_order", events)
    assert expected - results
    for method in ("oa", *ORDERED):
        assert by(method, events) == (expected, expected)


def test_f20_global_order_goes_on_after_a_restart():
    events = [left(5, 1), EpochEnd(2), right(6, 1), advance(left=9), EpochEnd(1), right(7, 1)]
    at_work = run(Case(NEAR, "inner", events, method="global_order"))
    assert at_work.results == {(5, 6): 1, (5, 7): 1}
    assert at_work.held == 0


def test_f20_a_false_pair_by_hand():
    events = [left(60, 1), right(0, 1)]
    case = Case(windows(left=20, right=20), "inner", events, method="global_order")
    assert run(case).results == {(60, 0): 1}
    assert not case.expected()
    assert not run(replace(case, method="oa")).results


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 2)), max_size=30), st.integers(1, 9))
@examples(0.05)
def test_f20_global_order_does_row_by_row_what_its_definition_says(steps, size):
    """An arrival purges the other buffer by its own time, then meets all that is left there."""
    count, clock = itertools.count(), 5
    rows = []
    for port, k, back in steps:
        clock += 2
        rows.append((port, {"k": k, "t": clock - 4 * back, "id": next(count)}))
    held, expected = {LEFT: [], RIGHT: []}, []
    for port, row in rows:
        held[1 - port] = [other for other in held[1 - port] if other["t"] >= row["t"] - size]
        for other in held[1 - port]:
            pair = (row["id"], other["id"]) if port == LEFT else (other["id"], row["id"])
            expected += [pair] * (other["k"] == row["k"])
        held[port].append(row)
    runs = itertools.groupby(rows, key=lambda row: row[0])
    events = [Arrive(port, [row for _, row in part]) for port, part in runs]
    results = run(Case(windows(size, size), "inner", events, method="global_order")).results
    assert sorted(results.elements()) == sorted(expected)


# What is refused, and what is not chosen


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].parameters.inner_only])
@pytest.mark.parametrize("how", ["left", "full", "semi", "anti"])
def test_f20_only_inner_joins_are_to_be_had_by_a_baseline(method, how):
    with pytest.raises(ConfigError) as refused:
        WindowJoin((("k", "k"),), band(5, 5), how, time="latest" if how == "full" else "left", method=method)
    assert str(refused.value) == (
        f"method={method!r} is for inner joins only, but how={how!r}. "
        f"Write method='oa', which does every kind of join, or how='inner'."
    )


@pytest.mark.parametrize(
    ("before", "after"), [("opob", "oa"), ("opib", "oa"), ("opib", "opob"), ("opob", "ewj"), ("oa", "opib")]
)
def test_state_that_only_one_method_understands_is_refused_by_others(before, after):
    at_work = Run(join(before))
    for event in (left(5, 1), right(5, 1)):
        at_work.on(event)
    with pytest.raises(
        StateError, match=f"^The state was written by method='{before}', and method='{after}' cannot resume"
    ):
        at_work.on(EpochEnd(1, method=after))


def test_opob_goes_on_from_oa():
    at_work = Run(join("oa"))
    for event in (left(5, 1), EpochEnd(1, method="opob"), right(5, 1)):
        at_work.on(event)
    at_work.end()
    assert at_work.results == {(5, 5): 1}


@pytest.mark.parametrize("method", ORDERED)
def test_a_flow_takes_a_baseline_by_name(method):
    flow = pk.LocalFlow()
    a = flow.source(pa.table({"k": [1, 1], "t": [5, 3]}), time="t", name="a")
    b = flow.source(pa.table({"k": [1], "t": [4]}), time="t", name="b")
    rows = a.join(b, on="k", within=band(5, 5), method=method).to_memory()
    query = flow.run()
    assert rows.table().column("t").to_pylist() == [3, 5]
    assert f"because method='{method}' was asked for" in query.explain()
