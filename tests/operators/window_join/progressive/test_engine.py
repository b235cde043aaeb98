"""Joins without a window (E1–E5): every pair once, whatever leaves memory, and whenever what is on disk is met."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import BudgetError
from penstock.core.meter import Tally
from penstock.core.time import TIME_MAX
from penstock.core.within import always
from penstock.operators.window_join import Rrpj, WindowJoin
from penstock.operators.window_join.config import default_time
from penstock.operators.window_join.progressive import side
from penstock.operators.window_join.progressive.baselines.parameters import Pmj, XJoin
from penstock.operators.window_join.progressive.engine import ProgressiveJoin
from tests.streams import (
    LEFT,
    PROGRESSIVE,
    RIGHT,
    Advance,
    Arrive,
    Case,
    EpochEnd,
    EpochPages,
    Idle,
    Run,
    cases,
    ever,
    ever_trace,
    examples,
    host_cases,
    left,
    progressives,
    right,
    run,
)

TIGHT = XJoin(memory=2, row=1, partitions=1, flush=1.0)
"""Room for two rows; all of them leave together."""


def join(method, how="inner", **kwargs) -> Run:
    return Run(WindowJoin((("k", "k"),), always(), how, default_time(how), method=method), **kwargs)


def check(case: Case) -> None:
    at_work = run(case)
    assert at_work.results == case.expected()
    assert at_work.held == 0
    assert at_work.budget.held == 0
    assert at_work.budget.peak <= case.memory


# E1, E4, E5: the definition


@given(cases(within=ever, methods=progressives()))
def test_e1_every_pair_comes_out_once(case):
    """Blocks and flushes at random, streams of any length, one of which may bring nothing."""
    check(case)


@given(host_cases(within=ever, methods=progressives()))
@examples(0.5)
def test_e1_e4_every_pair_comes_out_once_in_epochs_as_hosts_run_them(case):
    check(case)


@pytest.mark.parametrize("kind", range(len(PROGRESSIVE)), ids=lambda kind: PROGRESSIVE[kind][0].__name__)
def test_p3_each_policy_on_longer_streams(kind):
    """P3: every policy, with results that do not depend on it."""
    for seed in range(3):
        check(ever_trace(seed, kind))


@given(cases(within=ever), st.lists(st.one_of(st.just("oa"), progressives()), min_size=4, max_size=4))
@examples(0.5)
def test_from_each_method_to_each_other(case, methods):
    later = iter(methods[1:] * len(case.events))
    events = [replace(e, method=next(later)) if isinstance(e, EpochEnd) else e for e in case.events]
    check(replace(case, events=events, method=methods[0]))


@given(cases(within=ever, methods=progressives()))
@examples(0.5)
def test_pages_on_disk_may_be_merged(case):
    """Two of about one size are, so that it happens with few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side, "_FAN", 2)
        check(case)


def test_rows_of_a_load_owe_a_join_to_what_is_in_memory():
    """Found by a longer stream: rows that never were in memory were taken for met by what was there before them."""
    check(ever_trace(15))


# E2: progress


@given(cases(within=ever, methods=progressives(), hows=["inner", "left", "semi"]))
@examples(0.5)
def test_e2_results_are_always_some_of_the_final_ones(case):
    at_work, expected = Run(case.config, case.shards, case.memory), case.expected()
    for event in case.events:
        at_work.on(event)
        assert not at_work.results - expected


def test_e2_a_result_comes_with_its_later_row_if_the_other_is_in_memory():
    at_work = join(TIGHT)
    at_work.on(left(t=0, k=1), right(t=9, k=1))
    assert at_work.results == Counter([(0, 9)])


def test_a_result_waits_for_quiet_times_if_the_other_has_left():
    at_work = join(TIGHT, meter=(meter := Tally()))
    at_work.on(left(t=0, k=1), left(t=1, k=2), left(t=2, k=3), right(t=9, k=1))
    assert at_work.results == Counter()
    at_work.on(Idle(work=False))
    assert at_work.results == Counter()
    at_work.on(EpochEnd(1), Idle(), Idle())
    assert at_work.results == Counter([(0, 9)])
    assert meter.deferred == 1


def test_e4_two_rows_on_disk_meet_there_once():
    at_work = join(TIGHT)
    at_work.on(left(t=0, k=1), left(t=1, k=2), left(t=2, k=3))
    at_work.on(right(t=5, k=1), right(t=6, k=8), right(t=7, k=9))
    assert at_work.results == Counter()
    at_work.on(Idle(), EpochEnd(1), Idle(), Idle())
    assert at_work.results == Counter([(0, 5)])
    at_work.end()
    assert at_work.results == Counter([(0, 5)])


def test_deferred_work_stops_when_the_allowance_is_used_up_and_goes_on_later():
    class Once:
        def __init__(self, times: int) -> None:
            self.times = times

        def left(self) -> bool:
            self.times -= 1
            return self.times >= 0

    at_work = join(Rrpj(memory=4, row=1, partitions=4, flush=1.0))
    rows = [{"k": k, "t": k, "id": k} for k in range(40)]
    at_work.on(Arrive(LEFT, rows), Arrive(RIGHT, rows))
    seen = [sum(at_work.results.values())]
    (logic,) = at_work.logics
    for _ in range(60):
        at_work.take(logic.idle(Once(2)))
        seen.append(sum(at_work.results.values()))
    assert seen[0] < seen[-1] == 40
    assert len(set(seen)) > 3
    at_work.end()
    assert at_work.results == Counter((k, k) for k in range(40))


# E3: memory


@pytest.mark.parametrize("kind", range(len(PROGRESSIVE)), ids=lambda kind: PROGRESSIVE[kind][0].__name__)
def test_e3_memory_is_never_exceeded_and_no_row_is_lost(kind):
    for seed in range(3):
        case = replace(ever_trace(seed, kind), how="inner", shards=1)
        at_work = Run(case.config, 1, case.memory)
        arrived = 0
        for event in case.events:
            at_work.on(replace(event, shards=1) if isinstance(event, EpochEnd) else event)
            arrived += sum(row["k"] is not None for row in getattr(event, "rows", ()))
            (logic,) = at_work.logics
            assert isinstance(logic, ProgressiveJoin)
            assert logic.resident <= case.method.memory
            gone = sum(page.rows for port in logic.sides for page in port.pages)
            waiting = sum(page.rows for page in logic._asleep) + sum(rows.num_rows for _, rows in logic._gathered)
            assert logic.resident + gone + waiting == arrived


def test_state_of_many_times_the_budget_is_joined_within_it():
    rng = np.random.default_rng(1)
    rows = [
        [{"k": int(k), "t": n, "id": 10_000 * port + n} for n, k in enumerate(rng.integers(0, 900, 1500))]
        for port in (0, 1)
    ]
    events = [Arrive(port, rows[port][at : at + 500]) for at in range(0, 1500, 500) for port in (0, 1)]
    case = Case(always(), "full", [*events, Idle(), EpochEnd(2)], memory=30_000, method="rrpj")
    check(case)


def test_without_flushing_a_join_that_outgrows_its_budget_fails():
    at_work = join("shj", memory=20_000)
    arrivals = [Arrive(LEFT, [{"k": k, "t": 0, "id": k} for k in range(n, n + 100)]) for n in range(0, 4000, 100)]
    with pytest.raises(BudgetError, match="Give the flow more memory="):
        at_work.on(*arrivals)


@given(cases(within=ever, methods=st.just("shj")).filter(lambda case: case.memory > 20_000))
@examples(0.25)
def test_without_flushing_every_pair_comes_out_once_if_all_fits(case):
    check(case)


def test_what_leaves_memory_together_is_one_batch_however_many_partitions_it_is_of():
    """Found: a file for each partition of each flush, of a few rows, took nearly all of the time."""

    class Counting(EpochPages):
        puts = 0

        def put(self, rows, segment="main"):
            self.puts += 1
            return super().put(rows, segment)

    store = Counting()
    at_work = join(Rrpj(memory=640, row=1, partitions=64, flush=0.1), store=store)
    rng = np.random.default_rng(5)
    for n in range(100):
        rows = [{"k": int(k), "t": n, "id": 64 * n + i} for i, k in enumerate(rng.integers(0, 5000, 64))]
        at_work.on(Arrive(n % 2, rows))
    gone = 6400 - 640
    assert store.puts <= 2 * 2 * (gone / 64 + 2)  # rows and when they came, of either side
    pages = [page for side_ in at_work.logics[0].sides for page in side_.pages]
    assert sum(page.rows for page in pages) >= gone
    at_work.end()
    assert at_work.held == 0


# E5: ends


def test_e5_a_stream_that_ends_first_leaves_the_other_alone():
    at_work = join(TIGHT, how="left")
    at_work.on(left(t=0, k=1), left(t=1, k=2), left(t=2, k=3), Advance(LEFT, TIME_MAX), Idle())
    assert at_work.results == Counter()
    at_work.on(right(t=9, k=1), right(t=10, k=3))
    at_work.end()
    assert at_work.results == Counter([(0, 9), (2, 10), (1, None)])


def test_bounds_promise_nothing_until_both_streams_have_ended():
    at_work = join(TIGHT)
    (logic,) = at_work.logics
    at_work.on(Advance(LEFT, TIME_MAX), Advance(RIGHT, 100))
    assert logic.bounds().individual[LEFT] < 0
    at_work.on(Advance(RIGHT, TIME_MAX))
    assert logic.bounds().individual == (TIME_MAX, TIME_MAX)


def test_rows_of_a_load_that_is_not_joined_yet_survive_an_epoch():
    at_work = join(Pmj(memory=10, row=1, partitions=2), how="full")
    at_work.on(left(t=0, k=1), right(t=1, k=1), EpochEnd(2), left(t=2, k=1), EpochEnd(1))
    assert at_work.results == Counter()
    at_work.end()
    assert at_work.results == Counter([(0, 1), (2, 1)])


# State


def test_many_epochs_leave_few_pages():
    at_work = join(Rrpj(memory=50, row=1, partitions=2))
    rng = np.random.default_rng(0)
    for n in range(120):
        rows = [{"k": int(k), "t": n, "id": 20 * n + i} for i, k in enumerate(rng.integers(0, 60, 20))]
        at_work.on(Arrive(n % 2, rows), Idle(work=False), EpochEnd(1))
    (logic,) = at_work.logics
    assert len(logic.state().pages) < 120


def test_what_a_policy_knows_goes_with_the_pages_to_other_shards():
    at_work = join(Rrpj(memory=100, row=1, partitions=4))
    rows = [{"k": k, "t": k, "id": k} for k in (1, 1, 1, 2, 3, 4, 5)]
    at_work.on(Arrive(LEFT, rows), right(t=9, k=1))
    (logic,) = at_work.logics
    before = logic._policy.results.copy(), logic._policy.arrived.copy()
    assert before[0].sum() == 3
    at_work.on(EpochEnd(2), EpochEnd(1))
    (logic,) = at_work.logics
    assert np.allclose(logic._policy.results, before[0])
    assert np.allclose(logic._policy.arrived, before[1])
