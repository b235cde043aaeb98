"""Pages in memory: charged to the budget, and elsewhere when they do not fit."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError, StateError
from penstock.core.pages import Debts, Page, ProbeLog, names_of, write_page
from penstock.core.rows import HASH, TIME
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


def page(store: MemoryPages, times: list[int]) -> Page:
    """Rows whose hashes are their places."""
    columns = {HASH: pa.array(range(len(times)), pa.uint64()), TIME: pa.array(times, pa.int64())}
    return write_page(store, 3, pa.record_batch(columns))


def put_marks(store: MemoryPages, *met: bool) -> str:
    return store.put(pa.record_batch({"met": list(met)}))


def test_saved_pages_are_in_the_other_store_and_leave_memory(tmp_path):
    budget = Budget(10_000)
    files = FilePages(str(tmp_path))
    store = MemoryPages(budget, files)
    kept, gone, elsewhere = page(store, [5, 6]), page(store, [7]), page(store, list(range(400)))
    store.drop(gone.name)
    marked = replace(kept, marks=put_marks(store, False, True), maker="run")
    saved, same = store.saved([marked, elsewhere])
    assert same == elsewhere
    assert budget.held == store.held == 0
    assert {saved.name, saved.marks, same.name} == set(os.listdir(tmp_path))
    assert files.get(saved.name).column(TIME).to_pylist() == [5, 6]
    assert files.get(str(saved.marks)).column("met").to_pylist() == [False, True]
    assert replace(saved, name=kept.name, marks=marked.marks) == marked


def test_rows_below_the_floor_are_not_saved(tmp_path):
    files = FilePages(str(tmp_path))
    store = MemoryPages(Budget(10_000), files)
    met = put_marks(store, True, True, False, False)
    half, dead = replace(page(store, [5, 1, 6, 2]), floor=5, marks=met, maker="run"), replace(page(store, [1]), floor=2)
    (saved,) = store.saved([half, dead])
    assert files.get(saved.name).column(TIME).to_pylist() == [5, 6]
    assert files.get(str(saved.marks)).column("met").to_pylist() == [True, False]
    assert (saved.begin, saved.end, saved.min_time, saved.max_time) == (0, 2, 5, 6)
    assert (saved.min_hash, saved.max_hash, saved.kind, saved.maker) == (0, 2, 3, "run")
    assert store.held == 0
    assert len(os.listdir(tmp_path)) == 2


def test_what_pages_share_and_what_is_known_by_its_place_is_saved_whole_and_once(tmp_path):
    files = FilePages(str(tmp_path))
    store = MemoryPages(Budget(10_000), files)
    whole = replace(page(store, [5, 1, 6, 2]), floor=5)
    owing = replace(page(store, [1, 9]), floor=5, debts=Debts(births=store.put(rows(2))))
    noted = replace(page(store, [1, 9]), floor=5, log=ProbeLog(births=store.put(rows(2))))
    first, second, third, fourth = store.saved([replace(whole, end=2), replace(whole, begin=2), owing, noted])
    assert first.name == second.name
    assert [files.get(each.name).num_rows for each in (first, third, fourth)] == [4, 2, 2]
    assert third.debts is not None
    assert fourth.log is not None
    assert [files.get(str(each)).num_rows for each in (third.debts.births, fourth.log.births)] == [2, 2]
    assert names_of([first, second, third, fourth]) == set(os.listdir(tmp_path))


def test_what_is_for_a_segment_goes_there(tmp_path):
    store = MemoryPages(Budget(10_000), FilePages(str(tmp_path)))
    assert store.put(rows(1), "cold") in os.listdir(tmp_path)
    assert store.held == 0
