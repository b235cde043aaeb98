"""Group-wise punctuation: the windows of a group close by its own bound, exactly and no later than stated."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from penstock.core.errors import ConfigError
from penstock.core.windows import landmark, session, sliding
from penstock.operators.aggregate import spellings as pk
from penstock.operators.aggregate.config import WindowAggregate, early
from penstock.operators.aggregate.group_bounds import GroupBoundTable
from penstock.operators.aggregate.partials import Partials
from penstock.operators.aggregate.wid import WidAggregation
from penstock.operators.progress.guard import Guarding
from tests.aggregates import row, sessions, slidings
from tests.groupwise import Case, Epoch, Host, cases, definition, run
from tests.oracle.aggregate import plain
from tests.streams import examples

TUMBLING = sliding(10, 10)


def count(window, *epochs: Epoch, **options) -> tuple[list[Counter], list]:
    case = Case(window, ("rows.x",), epochs, **options)
    results, host = run(case)
    assert (results, host.late) == definition(case)
    return results, [late["t"] for late in host.late]


def test_a_group_does_not_wait_for_the_others():
    rows = row(1, k=1), row(2, k=2)
    results, _ = count(TUMBLING, Epoch(rows, ((1, None, 10),)), Epoch((row(3, k=2),), ((2, None, 9),)))
    assert results == [{(1, 0, 10, 1): 1}, {}, {(2, 0, 10, 2): 1}], "9 is before the window's end"


def test_a_row_is_late_by_the_bound_of_its_own_group_from_the_next_epoch_on():
    first = Epoch((row(1, k=1), row(9, k=1), row(1, k=2)), ((1, None, 10),))
    _, late = count(TUMBLING, first, Epoch((row(9, k=1), row(10, k=1), row(9, k=2))))
    assert late == [9]


def test_the_bound_of_a_group_is_kept_over_epochs_and_other_shards():
    first = Epoch((row(1, k=1),), ((1, None, 10),), shards=3)
    _, late = count(TUMBLING, first, Epoch((), shards=2), Epoch((row(9, k=1), row(9, k=3))))
    assert late == [9]


def test_a_bound_of_all_closes_groups_that_said_less_and_is_kept_instead_of_their_bounds():
    case = Case(TUMBLING, ("rows.x",), (Epoch((row(1, k=1),), ((1, None, 5),)), Epoch((), (), 10)))
    results, host = run(case)
    assert results[1] == {(1, 0, 10, 1): 1}
    assert host.held(0) == 0


def test_no_window_comes_out_twice_where_windows_overlap():
    said = Epoch((row(1, k=1), row(7, k=1)), ((1, None, 10),))
    results, _ = count(sliding(10, 5), said, Epoch((), ((1, None, 10), (1, None, 15))))
    assert [sum(each.values()) for each in results] == [2, 1, 0]


def test_what_a_group_has_given_out_is_gone_and_a_group_that_is_over_holds_nothing():
    case = Case(TUMBLING, ("rows.x",), (Epoch((row(1, k=1), row(25, k=1), row(1, k=2)), ((1, None, 10),)),))
    host = run_only(case)
    assert host.held(1) == 2, "25 of group 1, 1 of group 2"


def run_only(case: Case):
    """A case that goes on."""
    host = Host(case)
    for epoch in case.epochs:
        host.epoch(epoch)
    return host


def test_a_session_closes_by_the_bound_of_its_own_group():
    rows = row(1, k=1), row(4, k=1), row(1, k=2)
    results, _ = count(session(5), Epoch(rows, ((1, None, 9),)), Epoch((), ((1, None, 10),)))
    assert results == [{}, {(1, 1, 9, 2): 1}, {(2, 1, 6, 1): 1}], "a row at 9 would still join"


@given(cases(slidings))
@examples(0.3)
def test_sliding_windows_close_as_defined_and_late_rows_are_those_below_their_groups_bound(case):
    check(case)


@given(cases(sessions))
@examples(0.3)
def test_sessions_close_as_defined_and_late_rows_are_those_below_their_groups_bound(case):
    check(case)


def check(case: Case) -> None:
    results, host = run(case)
    expected, late = definition(case)
    assert results == expected
    assert rows_of(host.late) == rows_of(late)
    assert host.peak <= case.memory
    assert host.held(0) == host.held(1) == 0


def rows_of(rows) -> Counter:
    return Counter(tuple(map(plain, late.values())) for late in rows)


def test_many_groups_have_bounds_within_little_memory():
    keys = range(4_000)
    rows = tuple(row(1, k=k) for k in keys)
    late = tuple(row(2, k=k) for k in keys if k % 2)
    said = tuple((k, None, 10) for k in keys if k % 2)
    case = Case(TUMBLING, ("rows.x",), (*(Epoch((), said[n::8]) for n in range(8)), Epoch(rows + late)), memory=150_000)
    results, host = run(case)
    assert len(host.late) == 4_000
    assert sum(results[-1].values()) == 2_000
    assert host.peak <= 150_000


@pytest.mark.parametrize(
    ("window", "options"),
    [
        (sliding(10, 5), {}),
        (sliding(10, 5), {"method": "paned"}),
        (sliding(10, 5), {"method": "adapt"}),
        (sliding(10, 5), {"emit": "update"}),
        (sliding(10, 5), {"emit": early(5)}),
        (landmark(10), {}),
        (sliding(10, 5), {"method": "wid", "by": ("g",)}),
    ],
)
def test_what_cannot_close_one_group_refuses_to(window, options):
    with pytest.raises(
        ConfigError, match=r"cannot close the windows of one group of k before the others\. Use sliding"
    ):
        WindowAggregate(
            **{"window": window, "by": ("k",), "aggregates": (("n", pk.count()),), "punctuated": ("k",), **options}
        )


# Mutations: what would go wrong without one of the rules.

LATE = Case(TUMBLING, ("rows.x",), (Epoch((row(1, k=1),), ((1, None, 10),)), Epoch(()), Epoch((row(9, k=1),))))


def test_statements_that_hold_at_once_make_rows_of_their_own_epoch_late(monkeypatch):
    case = Case(TUMBLING, ("rows.x",), (Epoch((row(1, k=1),), ((1, None, 10),)),))
    assert run(case)[1].late == []

    def at_once(self, port, rows):
        if port:
            self._groups.add(rows)
            return
        yield from rows_at(self, port, rows)

    rows_at = Guarding.rows
    monkeypatch.setattr(Guarding, "rows", at_once)
    assert run(case)[1].late == [row(1, k=1)]


def test_bounds_that_stay_where_statements_wait_are_forgotten_by_the_next_epoch(monkeypatch):
    assert len(run(LATE)[1].late) == 1
    monkeypatch.setattr(GroupBoundTable, "take_over", lambda self, other: other.clear())
    assert run(LATE)[1].late == []


def test_windows_that_stay_when_they_have_come_out_come_out_twice(monkeypatch):
    assert sum(sum(each.values()) for each in run(LATE)[0]) == 1
    monkeypatch.setattr(Partials, "remove", lambda self, gone: None)
    assert sum(sum(each.values()) for each in run(LATE)[0]) == 2


def test_groups_told_apart_by_their_hash_alone_close_each_other(monkeypatch):
    rows = row(1, k=1), row(1, k=2), row(1, k=3)
    case = Case(TUMBLING, ("rows.x",), (Epoch(rows, ((1, None, 10),)),), collide=True)
    assert sum(run(case)[0][0].values()) == 1
    alone = WidAggregation._stated_of

    def largest(self, stated, lane, partials):
        found = alone(self, stated, lane, partials)
        found[:] = found.max()
        return found

    monkeypatch.setattr(WidAggregation, "_stated_of", largest)
    assert sum(run(case)[0][0].values()) == 3
