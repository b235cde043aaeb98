"""What stays between tasks: one part of a task's memory for all that it keeps, shared by whoever uses it."""

from __future__ import annotations

import pytest

from penstock.core.budget import Budget
from penstock.core.kept import KEPT_PART, Kept, give_way, hand_over, kept_by

pytestmark = pytest.mark.usefixtures("nothing_kept")


def keeping(payer: Budget, size: int, count: int, limit: int = 1 << 30) -> Kept[int, str]:
    kept: Kept[int, str] = Kept()
    kept.charge_to(payer, limit)
    for name in range(count):
        kept.put(name, "…", size)
    return kept


def test_all_that_a_task_keeps_is_one_quarter_of_its_memory():
    task = Budget(4000)
    tables = [keeping(task, 10, 200) for _ in range(3)]
    assert sum(kept.held for kept in tables) == kept_by(task) == task.held == 4000 // KEPT_PART


def test_the_one_that_has_most_gives_way():
    task = Budget(4000)
    first, second = keeping(task, 10, 100), keeping(task, 10, 100)
    assert first.held + second.held == 1000
    assert abs(first.held - second.held) <= 20
    assert (first.get(0), first.get(99)) == (None, "…")


def test_one_that_may_keep_little_takes_little_from_the_others():
    task = Budget(4000)
    first, second = keeping(task, 10, 100), keeping(task, 10, 100, limit=50)
    assert (first.held, second.held) == (950, 50)


def test_what_is_more_than_all_that_may_be_kept_takes_nothing_from_the_others():
    task = Budget(4000)
    first, second = keeping(task, 10, 100), keeping(task, 1001, 1)
    assert (first.held, second.held) == (1000, 0)


def test_what_comes_from_another_task_takes_what_is_left():
    task = Budget(4000)
    first, second = keeping(task, 10, 90), keeping(Budget(4000), 10, 90)
    second.charge_to(task, 1000)
    assert (first.held, second.held, task.held) == (900, 100, 1000)


def test_a_smaller_task_keeps_less_of_all():
    tables = [keeping(large, 10, 50) for large in [Budget(4000)] for _ in range(2)]
    hand_over(small := Budget(400), 100)
    assert sum(kept.held for kept in tables) == small.held == 100


def test_all_gives_way_if_it_must_and_what_others_pay_for_does_not():
    task, other = Budget(4000), Budget(4000)
    mine, theirs = keeping(task, 10, 50), keeping(other, 10, 50)
    give_way(task)
    assert (mine.held, task.held) == (0, 0)
    assert theirs.held == other.held == 500
