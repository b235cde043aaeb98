"""Every algorithm against the definition: random streams, epochs, shards and memory (F03, F10, F12, F13)."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.windows import PartitionedWindow, TupleWindow, sliding
from penstock.operators.aggregate import AdaptWid
from penstock.operators.aggregate.config import early
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.tuples import ArrivalAggregation
from tests.aggregates import (
    BOUNDED,
    HOLISTIC,
    SUBTRACTABLE,
    Advance,
    Arrive,
    Case,
    EpochEnd,
    cases,
    landmarks,
    partitioned,
    plain_rows,
    row,
    row_windows,
    run,
    sessions,
    tuple_slides,
)
from tests.streams import examples


def check(case: Case) -> None:
    aggregation = run(case)
    assert aggregation.results == case.expected()
    assert aggregation.held == 0, "nothing is left after the end"
    assert all(budget.peak <= case.memory for budget in aggregation.budgets)
    assert sum(budget.held for budget in aggregation.budgets) == 0


@given(cases(methods=["wid"]))
@examples(0.06)
def test_f10_wid_equals_its_definition(case):
    check(case)


@given(cases(methods=["wid"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_wid_equals_its_definition_for_holistic_aggregates_beside_others(case):
    check(case)


@given(cases(methods=["paned"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_f12_panes_equal_their_definition(case):
    check(case)


@given(cases(methods=["paned"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.04)
def test_f12_panes_on_two_stacks_equal_their_definition(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PanedAggregation, "direct_rows", 0)
        check(case)


@given(cases(methods=["differential"], names=[*SUBTRACTABLE, *HOLISTIC]))
@examples(0.04)
def test_f13_windows_that_slide_by_subtraction_equal_their_definition(case):
    check(case)


@given(cases(window=landmarks, methods=["auto"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.04)
def test_f06_landmark_windows_equal_their_definition(case):
    check(case)


@given(cases(window=sessions, methods=["auto"], names=[*BOUNDED, *HOLISTIC]))
@examples(0.06)
def test_sessions_equal_their_definition(case):
    check(case)


@given(cases(window=row_windows, methods=["auto", "wid", "paned", "adapt"], names=[*BOUNDED, *HOLISTIC], native=False))
@examples(0.06)
def test_f04_windows_of_rows_equal_their_definition(case):
    check(single(case))


@pytest.mark.parametrize("method", ["auto", "wid", "paned", "adapt"])
def test_first_last_and_lists_of_windows_of_rows_go_by_time_then_value(method):
    rows = [row(5, s="d"), row(1, s="c"), row(9, s="b"), row(9, s="a"), row(1, s="e"), row(7, s=None)]
    names = ("first.x", "last.s", "list.s", "max.t")
    events = [Arrive(rows[:2]), EpochEnd(1), Arrive(rows[2:])]
    for window in (TupleWindow(6, 6), PartitionedWindow(6, 6, partition=("k",))):
        case = Case(window, names, events, method=method if isinstance(window, TupleWindow) else "auto")
        assert run(case).results == Counter([(1, 0, 6, 1.0, "a", ("c", "e", "d", "a", "b"), 9)])


def test_row_numbers_taken_for_times_would_be_noticed(monkeypatch):
    rows = [row(2, x=1.0, s="a"), row(1, x=2.0, s="b")]
    case = Case(TupleWindow(2, 2), ("first.x", "last.s", "list.s", "max.t"), [Arrive(rows)])
    check(case)
    numbered = ArrivalAggregation.rows
    monkeypatch.setattr(
        ArrivalAggregation,
        "rows",
        lambda self, port, rows: numbered(self, port, rows.set_column(1, rows.schema.field(1), pa.array([0, 1]))),
    )
    (found,), (expected,) = run(case).results, case.expected()
    assert all(ours != theirs for ours, theirs in zip(found[3:], expected[3:], strict=True))


@given(cases(window=partitioned, methods=["auto"], names=[*BOUNDED, *HOLISTIC], native=False))
@examples(0.06)
def test_f05_windows_of_rows_in_partitions_equal_their_definition(case):
    check(replace(case, by=("g", "k"), memory=max(60_000, case.memory)))


@given(cases(window=partitioned, methods=["auto"], names=[*BOUNDED, *HOLISTIC], native=False))
@examples(0.06)
def test_f05_ranks_by_time_equal_their_definition(case):
    timed = number_times(case)
    check(replace(timed, window=replace(case.window, order="t"), by=("g", "k"), memory=max(60_000, case.memory)))


@pytest.mark.parametrize("size", [250, pytest.param(1000, marks=pytest.mark.deep)])
@pytest.mark.parametrize("order", [None, "t"])
def test_f05_windows_of_many_rows_come_out_within_little_memory(order, size):
    window = PartitionedWindow(size, 1, partition=("k",), order=order)
    arrivals = [row(t, k=1 if t % 20 else t % 3) for t in range(100)]
    events = [Arrive(arrivals[:90]), EpochEnd(1), Arrive(arrivals[90:])]
    check(Case(window, ("sum.x", "distinct.x"), events, by=("k",), memory=64_000))


def single(case: Case) -> Case:
    """On one shard: arrivals are counted where they are."""
    events = [replace(event, shards=1) if isinstance(event, EpochEnd) else event for event in case.events]
    return replace(case, events=events, shards=1)


def number_times(case: Case) -> Case:
    """The same rows at different times, so that they have one order."""
    count, events = itertools.count(), []
    for event in case.events:
        if isinstance(event, Arrive):
            event = replace(event, rows=[{**row, "t": 1000 * row["t"] + next(count)} for row in event.rows])
        elif isinstance(event, Advance):
            event = Advance(1000 * event.bound)
        events.append(event)
    return replace(case, events=events)


@given(cases(window=tuple_slides, methods=["auto"], names=[*BOUNDED, *HOLISTIC], native=False))
@examples(0.06)
def test_f07_slide_by_tuple_windows_equal_their_definition(case):
    check(case)


adapting = st.builds(
    AdaptWid,
    partial=st.just(16),
    row=st.just(8),
    threshold=st.sampled_from([None, 0.5, 1.5, 2.5, 4.5, 1e9]),
    relapse=st.sampled_from([0.0, 0.8, 1.0]),
)


@given(cases(methods=["adapt"], names=[*BOUNDED, *HOLISTIC]), adapting)
@examples(0.06)
def test_f15_eager_and_lazy_groups_equal_their_definition(case, method):
    check(replace(case, method=method, memory=max(60_000, case.memory)))


@given(cases(methods=["paned"], names=[*BOUNDED, *HOLISTIC]), st.sampled_from(["update", early(3)]))
@examples(0.06)
def test_windows_that_come_out_early_come_out_once_as_final(case, emit):
    case = replace(case, emit=emit)
    aggregation = run(case)
    results = [result for out in aggregation.out for result in plain_rows([out])]
    assert Counter(result[:-1] for result in results if result[-1] == "final") == case.expected()
    assert {result[-1] for result in results} <= {"final", "update" if emit == "update" else "early"}
    assert aggregation.held == 0


def test_an_epoch_puts_out_only_what_it_changed():
    events = [Arrive([row(1), row(1, k=2)]), EpochEnd(1), Arrive([row(2)]), EpochEnd(1), EpochEnd(1), Advance(5)]
    aggregation = run(Case(sliding(5), ("rows.x",), events, emit="update"))
    updates = sorted(result[:-1] for result in aggregation.results if result[-1] == "update")
    assert updates == [(1, 0, 5, 1), (1, 0, 5, 2), (2, 0, 5, 1)]
    assert sorted(result[:-1] for result in aggregation.results if result[-1] == "final") == [
        (1, 0, 5, 2),
        (2, 0, 5, 1),
    ]


def test_open_windows_are_shown_each_time_that_event_time_passes_a_multiple_of_every():
    events = [
        Arrive([row(1)]),
        Advance(2),
        EpochEnd(1),
        Arrive([row(6)]),
        Advance(6),
        EpochEnd(1),
        Advance(7),
        EpochEnd(1),
    ]
    aggregation = run(Case(sliding(20), ("rows.x",), [*events, Advance(11), EpochEnd(1)], emit=early(5)))
    shown = {result[:-1]: times for result, times in aggregation.results.items() if result[-1] == "early"}
    assert shown == {(1, 0, 20, 1): 1, (1, 0, 20, 2): 2}


def test_results_may_not_be_shown_never():
    with pytest.raises(
        ConfigError, match=r"^early\(every=0\) must be positive\. Write how often to send updates, like '1 min'\.$"
    ):
        early(0)
