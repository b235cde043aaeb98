"""What a window join promises about the results still to come (F17, F18), and what it still holds (F16).

Bounds are strict: no later result lies below one, one at it may still come.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress import Bounds
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.within import band, tumbling
from penstock.operators.window_join import Ewj, Rpwj, WindowJoin
from tests.oracle import window_join as oracle
from tests.streams import (
    HOWS,
    LEFT,
    RIGHT,
    Advance,
    Arrive,
    Case,
    EpochEnd,
    Idle,
    Run,
    advance,
    ah_ewjs,
    cases,
    ewjs,
    examples,
    host_cases,
    left,
    near,
    right,
    rpwjs,
    trace,
)

TIMES = ("left", "right", "latest", "earliest")


def steps(case: Case):
    """After each event: the bounds before it, and the (left time, right time) of the results that came with it.

    A time is None on the side that an unmatched row does not have.
    """
    join = Run(case.config, case.shards, case.memory)
    bounds = case.config.bounds(TIME_MIN, TIME_MIN)
    for event in [*case.events, None]:
        before = len(join.out)
        join.on(event) if event is not None else join.end()
        yield bounds, [times for out in join.out[before:] for times in times_of(out)]
        bounds = case.config.bounds(*join.heard)
        assert event is None or all(logic.bounds() == bounds for logic in join.logics)


def times_of(out) -> list[tuple[int | None, int | None]]:
    lefts = out.column("t").to_pylist()
    rights = out.column("t_right").to_pylist() if "t_right" in out.schema.names else [None] * out.num_rows
    return list(zip(lefts, rights, strict=True))


METHODS = {"oa": st.just("oa"), "ewj": ewjs(), "ah_ewj": ah_ewjs(), "rpwj": rpwjs()}


@pytest.mark.parametrize("method", METHODS)
def test_no_later_pair_lies_below_an_individual_bound_or_inside_the_joint_box(method):
    @given(st.one_of(made(hows=["inner"], methods=METHODS[method]) for made in (cases, host_cases)))
    @examples(0.06)
    def check(case):
        for bounds, pairs in steps(case):
            for first, second in pairs:
                assert first >= bounds.individual[LEFT]
                assert second >= bounds.individual[RIGHT]
                assert not (first < bounds.joint[LEFT] and second < bounds.joint[RIGHT])

    check()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["ewj", "ah_ewj", "rpwj"])
def test_what_was_put_off_comes_before_the_bounds_pass_it(method, seed):
    """On longer streams, most of whose pairs are put off; unmatched rows are bound as well."""
    for bounds, results in steps(trace(seed, method)):
        for first, second in results:
            assert first is None or first >= bounds.individual[LEFT]
            assert second is None or second >= bounds.individual[RIGHT]


def event_time(time: str, first: int | None, second: int | None) -> int:
    """The event time of a result by what `time` says it is."""
    there = [t for t in (first, second) if t is not None]
    return {"left": first, "right": second, "latest": max(there), "earliest": min(there)}[time]


def allowed(how: str, time: str) -> bool:
    try:
        WindowJoin((("k", "k"),), band(1, 1), how, time)
    except Exception:
        return False
    return True


@pytest.mark.parametrize(("how", "time"), [(how, time) for how in HOWS for time in TIMES if allowed(how, time)])
def test_the_bound_on_event_time_is_sound_for_every_kind_of_join(how, time):
    @given(st.one_of(made(hows=[how], methods=st.one_of(*METHODS.values())) for made in (cases, host_cases)))
    @examples(0.05)
    def check(case):
        config = replace(case.config, time=time)
        for bounds, results in steps(case):
            for times in results:
                assert event_time(time, *times) >= config.bound(bounds)

    check()


@pytest.mark.parametrize("time", ["latest", "earliest"])
@given(case=host_cases(hows=["inner", "full"]), methods=st.lists(st.one_of(*METHODS.values()), min_size=5, max_size=5))
@examples(0.06)
def test_a_promise_holds_though_another_method_goes_on_from_it(time, case, methods):
    """OA-Join promises more than a method that puts joins off; whichever follows must keep what it has promised.

    Hosts promise when an epoch has done all its work; a shard may be told less when the next one begins.
    """
    join = Run(replace(case.config, time=time), case.shards, case.memory)
    others = iter(methods)
    promised = TIME_MIN
    for event in case.events:
        before = len(join.out)
        join.on(replace(event, method=next(others)) if isinstance(event, EpochEnd) else event)
        for out in join.out[before:]:
            assert all(event_time(time, *times) >= promised for times in times_of(out))
        if isinstance(event, Idle):
            promised = max(promised, join.config.bound(join.config.bounds(*join.bounds)))


@pytest.mark.parametrize(
    ("time", "how", "method", "bound"),
    [
        ("left", "inner", "oa", 7),
        ("right", "inner", "oa", 8),
        ("earliest", "inner", "oa", 7),
        ("latest", "inner", "oa", 10),
        ("latest", "inner", "global_order", 10),
        ("latest", "inner", "ewj", 8),
        ("latest", "inner", "opob", 7),
        ("latest", "left", "oa", 7),
        ("latest", "right", "oa", 8),
        ("latest", "full", "oa", 7),
    ],
)
def test_the_later_time_progresses_to_both_bounds_unless_rows_may_wait(time, how, method, bound):
    """Both streams have come to 10, the band is l-2 … l+3."""
    config = WindowJoin((("k", "k"),), band(before=2, after=3), how, time, method=method)
    assert config.bound(config.bounds(10, 10)) == bound


@pytest.mark.parametrize("within", [band(2, 3), band(before=-1, after=3), tumbling(4), tumbling(5, origin=2)], ids=str)
def test_the_later_time_never_waits_for_more_than_both_bounds(within):
    config = WindowJoin((("k", "k"),), within, time="latest")
    bounds = [(b0, b1) for b0 in range(-8, 9) for b1 in range(-8, 9)]
    assert all(config.bound(config.bounds(*b)) >= min(b) for b in bounds)


def joint_by_either_side(bounds: Bounds) -> int:
    """Mutation: a pair inside the box must be below both of its sides."""
    return max(bounds.joint)


def box_despite_debts(config: WindowJoin, *bounds: int) -> Bounds:
    """Mutation: the joint box of OA-Join for a method that puts joins off."""
    return replace(config, method="oa").bounds(*bounds)


def test_the_larger_side_of_the_joint_box_would_be_broken_by_a_later_pair():
    """Left is at 10, right at 0: the left row at 1 may still meet a right one at 1."""
    join = Run(WindowJoin((("k", "k"),), band(2, 3), time="latest"))
    join.on(left(t=1, k=1), advance(left=10), advance(right=0), right(t=1, k=1))
    assert list(join.results) == [(1, 1)]
    bounds = join.config.bounds(10, 0)
    assert joint_by_either_side(bounds) == 2
    assert join.config.bound(bounds) == 0


def test_the_joint_box_would_be_broken_by_a_pair_that_was_put_off():
    config = WindowJoin((("k", "k"),), band(5, 5), time="latest", method=Ewj(memory=4, page=3, row=1))
    join = Run(config)
    join.on(left(t=0, k=1), left(t=1, k=2), left(t=2, k=2), right(t=0, k=1), advance(left=4), advance(right=4))
    assert config.bound(box_despite_debts(config, 4, 4)) == 4
    assert config.bound(config.bounds(4, 4)) == -1
    join.on(Idle())
    assert list(join.results) == [(0, 0)], "its later time, 0, is not below -1, but below 4"


def bounds_after(within, left_: int, right_: int) -> Bounds:
    return WindowJoin((("k", "k"),), within).bounds(left_, right_)


def test_individual_bounds_by_hand():
    """Spec 2.9: min(b_other - RANGE_own, b_own); the band here is l-2 … l+3."""
    assert bounds_after(band(2, 3), 10, 10).individual == (7, 8)
    assert bounds_after(band(2, 3), 10, 100).individual == (10, 8)
    assert bounds_after(band(2, 3), 100, 10).individual == (7, 10)
    assert bounds_after(tumbling(5), 12, 8).individual == (5, 8)
    assert bounds_after(tumbling(5), 12, 17).individual == (12, 10)


def test_joint_bounds_by_hand():
    """The clipped box (min(b0, b1 + RANGE_1), min(b1, b0 + RANGE_0)); tumbling: clipped to the end of the window."""
    assert bounds_after(band(2, 3), 10, 10).joint == (10, 10)
    assert bounds_after(band(2, 3), 10, 100).joint == (10, 13)
    assert bounds_after(band(2, 3), 100, 10).joint == (12, 10)
    assert bounds_after(tumbling(5), 12, 8).joint == (10, 8)


@pytest.mark.parametrize("method", ["ewj", "ah_ewj"])
def test_a_method_that_puts_joins_off_promises_no_more_than_individual_bounds(method):
    """A pair below both bounds may still be owed, so the joint box is not out."""
    bounds = WindowJoin((("k", "k"),), band(2, 3), method=method).bounds(10, 10)
    assert bounds.individual == bounds.joint == (7, 8)


def test_a_pair_that_was_put_off_comes_out_inside_oa_joins_joint_box():
    """The left row is on disk when the right one comes; both bounds pass them before an idle time lets them meet."""
    config = WindowJoin((("k", "k"),), band(5, 5), method=Ewj(memory=4, page=3, row=1))
    join = Run(config)
    join.on(left(t=0, k=1), left(t=1, k=2), left(t=2, k=2), right(t=0, k=1), advance(left=4), advance(right=4))
    assert not join.results
    assert replace(config, method="oa").bounds(4, 4).joint == (4, 4)
    assert config.bounds(4, 4).joint == (-1, -1)
    join.on(Idle())
    assert list(join.results) == [(0, 0)]


@pytest.mark.parametrize(("promised", "taken"), [((11, 11), (8, 8)), ((12, 11), (12, 8)), ((-1, 3), (-4, 0))])
def test_rpwj_moves_its_bounds_by_the_slide(promised, taken):
    """A slide of 4: bounds count as the multiple of 4 below them."""
    by_slide = WindowJoin((("k", "k"),), band(2, 3), method=Rpwj(slide=4)).bounds(*promised)
    at_once = WindowJoin((("k", "k"),), band(2, 3), method="ewj").bounds(*taken)
    assert by_slide == at_once


def test_at_the_end_rpwj_waits_for_no_slide():
    last = WindowJoin((("k", "k"),), band(2, 3), method=Rpwj(slide=4)).bounds(TIME_MAX, TIME_MAX)
    assert last == Bounds((TIME_MAX, TIME_MAX), (TIME_MAX, TIME_MAX))


def test_with_nothing_promised_nothing_follows():
    assert bounds_after(band(2, 3), TIME_MIN, 10) == Bounds((TIME_MIN, TIME_MIN), (TIME_MIN, TIME_MIN))


def test_at_the_end_of_both_streams_everything_is_out():
    assert bounds_after(band(2, 3), TIME_MAX, TIME_MAX) == Bounds((TIME_MAX, TIME_MAX), (TIME_MAX, TIME_MAX))


# F18: when a group (ts0, ts1) is complete


def complete_by_individual(bounds: Bounds, first: int, second: int) -> bool:
    return first < bounds.individual[LEFT] or second < bounds.individual[RIGHT]


def complete_by_joint(bounds: Bounds, first: int, second: int) -> bool:
    return first < bounds.joint[LEFT] and second < bounds.joint[RIGHT]


@pytest.mark.parametrize(
    "within", [band(2, 2), band(1, 4), band(before=-1, after=3), tumbling(4), tumbling(5, origin=2)], ids=str
)
def test_joint_bounds_complete_a_group_no_later_than_individual_ones(within):
    """For every pair of bounds and every pair of times that can match at all."""
    pairs = [(i, j) for i in range(-8, 9) for j in range(-12, 13) if near(within)(i, j)]
    for b0 in range(-8, 9):
        for b1 in range(-8, 9):
            bounds = bounds_after(within, b0, b1)
            assert all(complete_by_joint(bounds, *pair) for pair in pairs if complete_by_individual(bounds, *pair))


@pytest.mark.parametrize("within", [band(2, 2), band(1, 4), tumbling(4), tumbling(5, origin=2)], ids=str)
def test_the_clipped_box_covers_every_pair_that_the_whole_box_does(within):
    pairs = [(i, j) for i in range(-8, 9) for j in range(-12, 13) if near(within)(i, j)]
    for b0 in range(-8, 9):
        for b1 in range(-8, 9):
            bounds = bounds_after(within, b0, b1)
            assert [complete_by_joint(bounds, *p) for p in pairs] == [p[0] < b0 and p[1] < b1 for p in pairs]


def test_on_q7_1_the_joint_bound_completes_group_0_1_strictly_earlier():
    """±2 minutes: once the bounds are (1, 2), the group (0, 1) is out; individual bounds take two minutes more."""
    promises = [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4)]
    bounds = [bounds_after(band(2, 2), *promise) for promise in promises]
    joint = [complete_by_joint(b, 0, 1) for b in bounds]
    individual = [complete_by_individual(b, 0, 1) for b in bounds]
    assert joint == [False, True, True, True, True, True]
    assert individual == [False, False, False, True, True, True]


def test_progress_on_the_earlier_time_takes_both_bounds_not_either():
    """The spec has it the other way round: on the earlier time "either" would be a promise that is broken at once.

    Left promises 100, right 90, and a left row meets right rows up to 200 after it. The left row held at 50 may
    still meet a right row at 95: a pair whose earlier time is 50, far below the right bound of 90.
    """
    join = Run(WindowJoin((("k", "k"),), band(2, 200), time="earliest"))
    join.on(left(t=50, k=1), advance(left=100), advance(right=90))
    bounds = join.config.bounds(100, 90)
    assert bounds.individual == (-110, 90)
    join.on(right(t=95, k=1))
    assert list(join.results) == [(50, 95)]
    either, both = max(bounds.individual), min(bounds.individual)
    assert min(50, 95) < either, "the spec's rule for the earlier time is unsound"
    assert min(50, 95) >= both == bounds.earliest
    assert max(50, 95) >= either == bounds.latest, "and for the later time either suffices"


# F16: what is held


def live_rows(join: Run) -> set[tuple[int, int]]:
    """(port, id) of the rows in state that are not below their page's floor."""
    rows = set()
    for logic in join.logics:
        for page in logic.state().pages:
            stored = join.store.get(page.name).slice(page.begin, page.rows)
            for time, number in zip(stored["__time"].to_pylist(), stored["id"].to_pylist(), strict=True):
                if time >= page.floor:
                    rows.add((page.kind, number))
    return rows


def can_still_meet(case: Case, port: int, time: int, bound: int) -> bool:
    """By definition: whether a row of the other port at or after `bound` could match; the axis is small."""
    near_ = near(case.within)
    others = range(max(bound, time - 40), time + 41)
    return any(near_(time, other) if port == LEFT else near_(other, time) for other in others)


@given(cases(hows=["inner", "left", "right", "full"]))
@examples(0.06)
def test_exactly_the_rows_that_can_still_meet_one_are_held(case):
    join = Run(case.config, case.shards, case.memory)
    arrived: list[tuple[int, dict]] = []
    for event in case.events:
        join.on(event)
        arrived += [(event.port, row) for row in event.rows] if isinstance(event, Arrive) else []
        held = {
            (port, row["id"])
            for port, row in arrived
            if row["k"] is not None and can_still_meet(case, port, row["t"], join.bounds[1 - port])
        }
        assert live_rows(join) == held


@given(cases())
@examples(0.06)
def test_nothing_is_held_after_the_final_bounds(case):
    join = Run(case.config, case.shards, case.memory)
    join.on(*case.events, Advance(LEFT, TIME_MAX), Advance(RIGHT, TIME_MAX))
    assert join.held == 0
    assert join.results == oracle.window_join(*case.rows, near=near(case.within), how=case.how)


@pytest.mark.parametrize(("bound", "held"), [(8, 1), (9, 0)])
def test_a_row_is_let_go_exactly_when_the_bound_passes_its_reach(bound, held):
    """The left row at 5 meets right rows up to 8: a bound of 8 leaves one to come, 9 does not."""
    join = Run(WindowJoin((("k", "k"),), band(2, 3)))
    join.on(left(t=5, k=1), advance(right=bound))
    assert join.held == held


@pytest.mark.parametrize(("time", "held"), [(5, 1), (4, 0)])
def test_a_row_that_comes_when_all_its_partners_have_passed_is_not_held_at_all(time, held):
    join = Run(WindowJoin((("k", "k"),), band(2, 3)))
    join.on(advance(right=8), left(t=time, k=1))
    assert join.held == held
