"""F11: the buffering baseline holds tuples, is exact once the slack covers the disorder, and loses the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError, StateError
from penstock.core.operator import State
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Sliding, sliding
from penstock.operators.aggregate import Buffering
from penstock.operators.aggregate.baselines.buffering import BufferingAggregation
from penstock.operators.aggregate.roles import role_of
from tests.aggregates import BOUNDED, HOLISTIC, Advance, Arrive, Case, EpochEnd, Run, cases, row, run
from tests.oracle import aggregate as oracle
from tests.streams import examples

Late = Literal["consistent", "generous"]
lates = st.sampled_from(["consistent", "generous"])


def disorder(rows: list[dict[str, Any]]) -> int:
    """The furthest that a row comes behind the latest before it."""
    latest, most = rows[0]["t"] if rows else 0, 0
    for each in rows:
        latest, most = max(latest, each["t"]), max(most, latest - each["t"])
    return most


def buffered(case: Case, slack: int, late: Late) -> Counter[tuple]:
    """By the definition, row by row: a window closes once a row arrives `slack` past its end."""
    assert isinstance(case.window, Sliding)
    slides, latest = case.window.on("ticks"), TIME_MIN
    held: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for each in case.rows:
        near = range(each["t"] // slides.slide - 40, each["t"] // slides.slide + 40)
        mine = [(start, end) for start, end in map(slides.extent, near) if start <= each["t"] < end]
        open_ = [window for window in mine if latest < window[1] + slack]
        for window in open_ if late == "generous" or len(open_) == len(mine) else ():
            held.setdefault(window, []).append(each)
        latest = max(latest, each["t"])
    return Counter(
        (*group, start, end, *(oracle.aggregate(rows, *name.split(".")) for name in case.names))
        for (start, end), mine in held.items()
        for group, rows in oracle.by_group(mine, case.by).items()
    )


def with_buffering(case: Case, slack: int, late: Late, **changes: Any) -> Case:
    """The same case, without bounds in between."""
    events = [event for event in case.events if not isinstance(event, Advance)]
    return replace(case, events=events, method=Buffering(slack, late), **changes)


@given(cases(native=False, names=[*BOUNDED, *HOLISTIC]), lates)
@examples(0.08)
def test_f11_buffering_equals_the_definition_of_windows_once_the_slack_covers_the_disorder(case, late):
    """On any shards, in any memory that has room, however state moves between shards."""
    case = with_buffering(case, disorder(case.rows), late)
    aggregation = run(case)
    assert aggregation.results == case.expected()
    assert aggregation.held == 0, "nothing is left after the end"
    assert all(budget.peak <= case.memory for budget in aggregation.budgets)
    assert sum(budget.held for budget in aggregation.budgets) == 0


@given(cases(native=False), st.integers(0, 6), lates)
@examples(0.06)
def test_f11_with_less_slack_it_loses_what_its_definition_says_over_any_epochs(case, slack, late):
    events = [replace(event, shards=1) if isinstance(event, EpochEnd) else event for event in case.events]
    case = with_buffering(replace(case, events=events, shards=1), slack, late)
    assert run(case).results == buffered(case, slack, late)


@given(cases(native=False, names=["rows.x"]), st.integers(0, 6))
@examples(0.03)
def test_f11_generous_slack_is_never_further_from_the_answer_than_consistent(case, slack):
    case = replace(case, shards=1, events=[Arrive(case.rows)])
    right = case.expected()
    errors = {}
    for late in ("consistent", "generous"):
        got = {key[:-1]: key[-1] for key in run(with_buffering(case, slack, late)).results}
        errors[late] = sum(abs(got.get(key[:-1], 0) - key[-1]) for key in right)
    assert errors["generous"] <= errors["consistent"]


def counted(*rows: int, method: Any = "buffering") -> Run:
    aggregation = Run(Case(sliding(10, 5), ("rows.x",), [], method=method).config)
    aggregation.on(Arrive([row(t) for t in rows]))
    return aggregation


def test_f11_the_first_row_past_the_end_closes_a_window_and_bounds_do_not():
    aggregation = counted(0, 7, 9)
    aggregation.on(Advance(1_000))
    assert aggregation.results == {(1, -5, 5, 1): 1}
    aggregation.on(Arrive([row(10)]))
    assert aggregation.results == {(1, -5, 5, 1): 1, (1, 0, 10, 3): 1}
    aggregation.end()
    assert aggregation.results == {(1, -5, 5, 1): 1, (1, 0, 10, 3): 1, (1, 5, 15, 3): 1, (1, 10, 20, 1): 1}


def test_f11_a_window_waits_for_its_slack():
    aggregation = counted(0, 12, method=Buffering(3))
    assert aggregation.results == {(1, -5, 5, 1): 1}
    aggregation.on(Arrive([row(13)]))
    assert aggregation.results == {(1, -5, 5, 1): 1, (1, 0, 10, 1): 1}


def waiting(aggregation: Run) -> list[int]:
    """The times of the rows that wait."""
    pages = aggregation.logics[0].state().pages
    assert {role_of(page.kind) for page in pages} <= {"buffered"}, "tuples, and nothing else"
    live = [(aggregation.store.get(page.name), page) for page in pages]
    return sorted(t for rows, page in live for t in rows.column(1).to_pylist() if t >= page.floor)


def test_f11_tuples_wait_in_pages_until_no_open_window_needs_them():
    aggregation = counted(0, 1, 2, 3, 7, 8)
    assert waiting(aggregation) == [0, 1, 2, 3, 7, 8]
    aggregation.on(Arrive([row(11)]))
    assert waiting(aggregation) == [7, 8, 11], "the extent of the first open window starts at 5"


def test_f11_what_waits_is_charged_to_the_budget_as_it_is_written_and_read():
    aggregation = Run(Case(sliding(100, 50), ("rows.x",), [], method="buffering").config, memory=60_000)
    for start in range(0, 1_000, 20):
        aggregation.on(Arrive([row(start + n, k=n) for n in range(20)]))
        aggregation.restart(1)
    assert max(budget.peak for budget in aggregation.budgets) > 1_000
    assert all(budget.peak <= 60_000 for budget in aggregation.budgets)


@pytest.mark.parametrize("late", ["consistent", "generous"])
def test_f11_a_late_row_is_lost_to_all_its_windows_or_to_the_closed_ones(late):
    aggregation = counted(3, 10, 7, method=Buffering(0, late))
    aggregation.end()
    generous = {(1, 5, 15, 2): 1} if late == "generous" else {(1, 5, 15, 1): 1}
    assert aggregation.results == {(1, -5, 5, 1): 1, (1, 0, 10, 1): 1, **generous, (1, 10, 20, 1): 1}
    assert aggregation.logics[0].lost == (1 if late == "generous" else 2)


def moved(shards: int) -> Run:
    """Windows that closed before state moved to other shards, and after."""
    aggregation = Run(Case(sliding(10, 5), ("rows.x",), [], method="buffering").config)
    aggregation.on(Arrive([row(t, k=k) for t in (1, 6, 11) for k in range(9)]))
    aggregation.restart(shards)
    aggregation.on(Arrive([row(t, k=k) for t in (12, 21) for k in range(9)]))
    aggregation.end()
    return aggregation


WHOLE = Case(sliding(10, 5), ("rows.x",), [Arrive([row(t, k=k) for t in (1, 6, 11, 12, 21) for k in range(9)])])


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_f11_windows_come_out_once_however_state_moves_between_shards(shards):
    assert moved(shards).results == WHOLE.expected()


def test_f11_mutation_pages_that_do_not_say_what_has_closed_give_windows_twice(monkeypatch):
    monkeypatch.setattr(BufferingAggregation, "_raise", lambda self: None)
    assert moved(5).results != WHOLE.expected()


def test_f11_mutation_rows_that_do_not_say_when_they_came_are_counted_in_closed_windows(monkeypatch):
    rows = [Arrive([row(3), row(10), row(7)])]
    case = Case(sliding(10, 5), ("rows.x",), rows, method=Buffering(0, "generous"))
    assert run(case).results == buffered(case, 0, "generous")
    keep = BufferingAggregation._keep
    monkeypatch.setattr(BufferingAggregation, "_keep", lambda self, rows, first: keep(self, rows, first * 0 + TIME_MIN))
    assert run(case).results != buffered(case, 0, "generous")


def test_f11_results_promise_nothing_before_the_end():
    config = Case(sliding(10, 5), ("rows.x",), [], method="buffering").config
    assert config.bounds(1_000).individual == (TIME_MIN, TIME_MIN)
    assert config.bounds(TIME_MAX).individual == (TIME_MAX, TIME_MAX)


def test_f11_no_other_method_goes_on_with_its_rows():
    aggregation = counted(1, 2, 3)
    state = aggregation.logics[0].state()
    other = Case(sliding(10, 5), ("rows.x",), [], method="wid").config
    with pytest.raises(StateError, match="The state holds buffered"):
        other.logic((aggregation.types,), aggregation.store, aggregation.budgets[0], State(state.pages))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Buffering("-5 s"),
            r"slack='-5 s' is negative\. Write how far rows may be out of order",
        ),
        (lambda: Buffering("5 s", "strict"), r"late='strict' is not one of 'consistent', 'generous'\."),
    ],
)
def test_f11_parameters_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_f11_a_slack_in_another_unit_than_the_time_is_refused_while_the_flow_is_built():
    windows = pk.LocalFlow().source(pa.table({"t": [1]}), time="t", name="s").window(range=5)
    with pytest.raises(ConfigError, match="slack=5 s is real time, but the time column is an integer"):
        windows.agg(n=pk.count(), method=pk.Buffering("5 s"))


def test_f11_explain_says_what_buffering_does():
    flow = pk.LocalFlow()
    rows = flow.source(pa.table({"t": [1]}), time="t", name="s").window(range=5)
    for method in ("buffering", pk.Buffering(2)):
        rows.agg(n=pk.count(), method=method).to_memory()
    assert str(flow.run().explain()).count("rows wait until a row past the end of their window closes it") == 2


@pytest.mark.parametrize("shards", [1, 3])
def test_f11_runs_in_a_flow_by_name_and_with_parameters(shards):
    tables = [pa.table({"k": [n % 3, n % 2], "t": [n, n - 2]}) for n in range(2, 40, 2)]

    def results(method: Any) -> list[dict[str, Any]]:
        flow = pk.LocalFlow(shards=shards)
        rows = flow.source(tables, time="t", progress=pk.bounded_delay(5), name="s")
        out = rows.window(range=10, slide=5).by("k").agg(n=pk.count(), method=method).to_memory()
        flow.run()
        return out.table().sort_by([("k", "ascending"), ("window_end", "ascending")]).to_pylist()

    assert results(pk.Buffering(slack=5)) == results("wid")
    assert len(results("buffering")) > 0
