"""Pages in memory: charged to the budget, and elsewhere when they do not fit."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError, StateError
from penstock.storage.files import FilePages
from penstock.storage.memory import MemoryPages


def rows(count: int) -> pa.RecordBatch:
    """Eight bytes each."""
    return pa.record_batch({"n": pa.array(range(count), pa.int64())})


def test_a_page_is_charged_while_it_is_kept():
    budget = Budget(1000)
    store = MemoryPages(budget)
    name = store.put(rows(10))
    assert budget.held == 80
    assert store.get(name).equals(rows(10))
    store.drop(name)
    assert budget.held == 0


def test_names_are_not_used_again():
    store = MemoryPages(Budget(1000))
    first = store.put(rows(1))
    store.drop(first)
    assert store.put(rows(1)) != first


def test_without_an_overflow_a_page_that_does_not_fit_is_refused():
    store = MemoryPages(Budget(100))
    with pytest.raises(BudgetError, match=r"a page in memory needs 800 B, but 100 B of this task's 100 B are free"):
        store.put(rows(100))


def test_with_an_overflow_a_page_that_leaves_no_room_to_work_goes_there(tmp_path):
    budget = Budget(1000)
    store = MemoryPages(budget, overflow=FilePages(str(tmp_path)))
    small, large = store.put(rows(10)), store.put(rows(100))
    assert budget.held == 80
    assert os.listdir(tmp_path) == [large]
    assert store.get(small).num_rows == 10
    assert store.get(large).num_rows == 100
    store.drop(large)
    assert os.listdir(tmp_path) == []


def test_many_small_pages_leave_the_operator_half_of_the_budget_to_work_in(tmp_path):
    budget = Budget(1000)
    store = MemoryPages(budget, overflow=FilePages(str(tmp_path)))
    for _ in range(100):
        store.put(rows(1))
    assert budget.room >= budget.limit // 2


def test_an_unknown_page_is_missing_and_never_empty():
    with pytest.raises(StateError, match=r"State file memory-7 is missing"):
        MemoryPages(Budget(100)).get("memory-7")
