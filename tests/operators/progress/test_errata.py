"""Wrong forms must fail: the source's errata about progress, and each subtle rule of its operators broken on purpose.

Every mutant comes with the smallest stream that shows it; the real operator passes on the same stream.
"""

from __future__ import annotations

from penstock.core.time import TIME_MAX, clamp
from penstock.core.within import band, horizon, windows
from penstock.operators.progress import Describe, DupElim, Guard, Sort, guard
from penstock.operators.progress.dup_elim import Eliminating
from penstock.operators.progress.guard import Guarding
from penstock.operators.progress.held import Held
from penstock.operators.window_join import WindowJoin
from penstock.operators.window_join.baselines.opob import OPOBJoin
from penstock.operators.window_join.pairing import OneWay, Pairing
from tests.items import Bound, Host, is_sorted, rows
from tests.streams import Case, Run, advance, left, right, run

# Punctuation is strict: after p, a row at p may come (spec 2.1)


def test_a_guard_that_turns_away_the_row_at_the_bound_loses_it(monkeypatch):
    stream = Bound(0, 5), rows((1, 5))
    assert Host(Guard()).on(*stream).times() == [5]
    strict = Guarding.rows

    def lax(self, port, batch):
        self._bound += 1
        yield from strict(self, port, batch)

    monkeypatch.setattr(guard.Guarding, "rows", lax)
    assert Host(Guard()).on(*stream).times() == []


def test_a_duplicate_at_the_bound_passes_if_what_was_seen_there_is_forgotten(monkeypatch):
    stream = rows((1, 5)), Bound(0, 5), rows((1, 5))
    assert Host(DupElim()).on(*stream).times() == [5]
    strict = Eliminating.advance
    monkeypatch.setattr(Eliminating, "advance", lambda self, port, bound: strict(self, port, clamp(bound + 1)))
    assert Host(DupElim()).on(*stream).times() == [5, 5]


# Sort


def test_rows_that_have_left_leave_again_if_their_page_has_no_floor(monkeypatch):
    stream = rows((1, 5), (1, 9)), Bound(0, 6), Bound(0, 10)
    assert Host(Sort()).on(*stream).times() == [5, 9]
    monkeypatch.setattr(Held, "forget", lambda self, until: None)
    assert Host(Sort()).on(*stream).times() == [5, 5, 9]


# Describe


def test_a_bound_rolled_up_to_the_boundary_above_is_unsound():
    """At 7, rows of 7 to 9 may still come: 5 may be said, 10 not."""
    assert Describe((5,)).boundary(7) == 5 <= 7
    assert -(-7 // 5) * 5 == 10 > 7


# The ordered joins (spec 2.4, 2.9)


def results(case: Case) -> list[int]:
    """Left times in the order in which results come."""
    return [t for out in run(case).out for t in out.column("t").to_pylist()]


def test_a_left_row_processed_when_the_right_bound_reaches_its_range_misses_the_row_there(monkeypatch):
    """b1 >= a + RANGE_0 instead of >: strict punctuation leaves a row at a + RANGE_0 to come."""
    events = [left(5, 1), advance(left=6), advance(right=8), right(8, 1)]
    case = Case(windows(left=3, right=2), "inner", events, method="opib")
    assert run(case).results == case.expected()
    strict = WindowJoin.bounds
    monkeypatch.setattr(WindowJoin, "bounds", lambda self, b0, b1: strict(self, b0, clamp(b1 + 1)))
    assert run(case).results != case.expected()


def test_ranges_the_wrong_way_round_let_go_of_left_rows_too_early(monkeypatch):
    """The swapped form holds a left row for the *right* range."""
    events = [left(10, 1), advance(left=11), advance(right=13), right(13, 1)]
    case = Case(windows(left=3, right=2), "inner", events, method="opib")
    assert run(case).results == case.expected()
    swapped = windows(left=2, right=3).reach("ticks")
    monkeypatch.setattr(
        "penstock.operators.window_join.config.horizon", lambda reach, port, bound: horizon(swapped, port, bound)
    )
    assert run(case).results != case.expected()


def test_opob_released_by_the_left_bound_alone_is_out_of_order(monkeypatch):
    """A left row below the left bound may meet right rows yet, and give results that others have passed."""
    events = [left(3, 1), left(5, 1), right(5, 1, id=1), advance(left=6), right(4, 1, id=2)]
    case = Case(band(5, 1), "inner", [left(3, 2), *events, right(3, 2)], method="opob")
    assert is_sorted(results(case))
    strict = OPOBJoin.bounds

    def hasty(self):
        bounds = strict(self)
        return type(bounds)((self._join._bounds[0], bounds.individual[1]), bounds.joint)

    monkeypatch.setattr(OPOBJoin, "bounds", hasty)
    assert not is_sorted(results(case))


def test_pairs_looked_up_from_the_fewer_rows_are_not_born_in_order(monkeypatch):
    events = [*(left(t, 1) for t in range(40)), right(20, 1, id=1), right(19, 1, id=2)]
    case = Case(band(50, 50), "inner", events, method="opib")
    assert is_sorted(results(case))
    monkeypatch.setattr(OneWay, "_pairs", Pairing._pairs)
    assert not is_sorted(results(case))


def test_a_right_row_let_go_of_while_a_left_row_waits_for_it_is_missed(monkeypatch):
    """OPIB purges right rows by the left rows still to be processed, not by the left bound."""
    events = [left(5, 1), right(4, 1), advance(left=90)]
    case = Case(windows(left=3, right=2), "inner", events, method="opib")
    assert run(case).results == case.expected()
    monkeypatch.setattr(
        "penstock.operators.window_join.baselines.opib.horizon",
        lambda reach, port, bound: 90 if bound < TIME_MAX else bound,
    )
    assert run(case).results != case.expected()


def test_the_right_bound_of_results_that_are_held_back_is_that_of_their_left_rows():
    """OA-Join's own right bound would be broken by a result that waits."""
    at_work = Run(WindowJoin((("k", "k"),), windows(left=3, right=2), method="opob"))
    for event in (left(5, 1), right(4, 1), advance(left=5), advance(right=7)):
        at_work.on(event)
    promised = at_work.logics[0].bounds().individual[1]
    at_work.end()
    assert at_work.out[0].column("t_right").to_pylist() == [4]
    assert promised <= 4
