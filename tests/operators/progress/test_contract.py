"""What operators of progress, also those of the lab, have in common: columns, bounds, and nothing left at the end."""

from __future__ import annotations

import pytest

from lab.operators import BSort, Meld, Merge, Paging
from penstock.core.time import TIME_MAX
from penstock.operators.progress import Distinct, DupElim, Guard, Sort, Top
from tests.items import Bound, Host, rows
from tests.streams import COLUMNS, ROWS, Idle

EVERY = [Guard(), DupElim(), Distinct(), Sort(), Top(of="t"), Meld(1), Merge(1), BSort(slack=3), Paging()]


@pytest.fixture(params=EVERY, ids=lambda operator: type(operator).__name__)
def operator(request):
    return request.param


def test_results_have_the_columns_of_the_input(operator):
    assert operator.output((ROWS,)) == COLUMNS
    host = Host(operator).on(rows((1, 5), (2, 3))).end()
    assert [out.rows.schema for out in host.out] == [COLUMNS] * len(host.out)


def test_every_row_comes_out_once_and_nothing_is_left(operator):
    host = Host(operator).on(rows((1, 5), (2, 3), (None, 9)), Bound(0, 4), rows((1, 10))).end()
    assert sorted(host.times()) == [3, 5, 9, 10]
    assert host.logic.bounds().individual == (TIME_MAX, TIME_MAX)
    assert host.logic.state().pages == ()
    assert host.budget.held == 0


def test_nothing_is_put_off_for_quiet_times(operator):
    host = Host(operator).on(rows((1, 5), (2, 3)), Bound(0, 2))
    assert list(host.logic.idle(Idle())) == []


def test_a_batch_without_rows_gives_none(operator):
    assert Host(operator).on(rows(), Bound(0, 2), rows()).end().out == []
