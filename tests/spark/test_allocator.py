"""When freed memory goes back to the system."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.spark import allocator
from penstock.spark.allocator import TrimmedBudget, allocating_within, give_back

SMALL, LARGE = 1 << 25, 1 << 28


@pytest.fixture
def process(monkeypatch):
    """A process of which the test says how much memory it has; it counts how often that is returned."""

    class Process:
        private = 50 << 20
        returned = 0

        def give(self) -> None:
            self.returned += 1

    process = Process()
    monkeypatch.setattr(allocator, "_LEFT", allocator._Left())
    monkeypatch.setattr(allocator, "_private_memory", lambda: process.private)
    monkeypatch.setattr(allocator, "_return_it", process.give)
    return process


def test_a_small_share_keeps_nothing(process):
    for _ in range(3):
        give_back(1 << 25)
        give_back()
    assert process.returned == 6


def test_a_large_share_keeps_what_is_little_beside_it(process):
    give_back(LARGE)
    assert process.returned == 1
    process.private += LARGE // 4
    give_back(LARGE)
    assert process.returned == 1
    process.private += 1
    give_back(LARGE)
    assert process.returned == 2
    give_back(LARGE)
    assert process.returned == 2


def test_what_is_charged_is_not_kept_for_later(process):
    budget = TrimmedBudget(LARGE)
    budget.give_back()
    budget.charge(LARGE // 2, "rows")
    process.private += LARGE // 2 + LARGE // 4
    budget.give_back()
    assert process.returned == 1
    budget.release(LARGE // 2)
    assert process.returned == 2


def test_memory_that_fell_is_looked_at_anew(process):
    give_back(LARGE)
    process.private -= 1
    give_back(LARGE)
    assert process.returned == 2


def test_where_the_system_tells_nothing_all_goes_back(process):
    process.private = 0
    for _ in range(2):
        give_back(LARGE)
    assert process.returned == 2


@pytest.fixture
def eager():
    """Arrow's usual allocator, for the length of a test."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    yield
    pa.set_memory_pool(before)


def backend() -> str:
    return pa.default_memory_pool().backend_name


def test_a_large_share_keeps_what_is_freed_for_the_next_allocation(eager):
    with allocating_within(LARGE):
        assert backend() == "jemalloc"
    assert backend() == "mimalloc"


def test_while_a_small_share_is_at_work_nothing_is_kept(eager):
    with allocating_within(LARGE):
        with allocating_within(1 << 25), allocating_within(LARGE):
            assert backend() == "system"
        assert backend() == "jemalloc"
    assert backend() == "mimalloc"


def test_an_allocator_that_the_user_chose_stays():
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        with allocating_within(LARGE):
            assert backend() == "system"
    finally:
        pa.set_memory_pool(before)


def test_an_error_leaves_the_allocator_as_it_was(eager):
    with pytest.raises(ValueError, match="wrong"), allocating_within(LARGE):
        raise ValueError("wrong")
    assert backend() == "mimalloc"


def test_once_a_process_has_grown_by_much_of_a_small_share_numpy_keeps_nothing(process, monkeypatch):
    emptied = []
    monkeypatch.setattr(allocator, "_empty_cache", lambda: emptied.append(process.private))
    give_back(SMALL)
    process.private += SMALL // 16
    give_back(SMALL)
    process.private += SMALL // 2
    give_back(SMALL, held=SMALL // 2)
    assert not emptied
    process.private += 1
    give_back(SMALL, held=SMALL // 2)
    assert len(emptied) == 1
    give_back(SMALL, held=SMALL // 2)
    give_back(LARGE)
    assert len(emptied) == 1
