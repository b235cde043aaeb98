"""The budget: sizes as people write them, and refusing rather than overrunning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget, parse_bytes, show_bytes
from penstock.core.errors import BudgetError, ConfigError
from tests.streams import examples


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512 MB", 512 * 10**6),
        ("512mb", 512 * 10**6),
        ("1.5 GB", 1_500_000_000),
        ("2 TB", 2 * 10**12),
        ("64 kB", 64_000),
        ("64 KiB", 65_536),
        ("1 GiB", 2**30),
        ("1g", 2**30),
        ("512m", 512 * 2**20),
        ("100 B", 100),
        ("100", 100),
        (100, 100),
    ],
)
def test_sizes_are_read_as_spark_and_people_write_them(written, size):
    assert parse_bytes(written) == size


@pytest.mark.parametrize("written", ["", "much", "-1 GB", "0", 0, -5, "1 XB", "1 GB 5 MB", True, None])
def test_what_is_no_size_is_refused_with_the_value_and_what_to_write(written):
    with pytest.raises(ConfigError) as error:
        parse_bytes(written)
    assert str(error.value) == (
        f"memory={written!r} is not an amount of memory. Write a size like '512 MB' or '2 GiB'."
    )


def test_a_charge_that_does_not_fit_is_refused_and_changes_nothing():
    budget = Budget(1000)
    budget.charge(600, "pages")
    with pytest.raises(BudgetError) as error:
        budget.charge(500, "sorting")
    assert str(error.value) == (
        "sorting needs 500 B, but 400 B of this task's 1.0 kB are free. "
        "Give the flow more memory=, or use fewer cores for it."
    )
    assert (budget.held, budget.room, budget.peak) == (600, 400, 600)


def test_what_exactly_fits_is_granted():
    budget = Budget(1000)
    budget.charge(1000, "all of it")
    assert budget.room == 0


def test_a_block_gives_back_what_it_held_even_if_it_fails():
    budget = Budget(1000)
    with pytest.raises(ZeroDivisionError), budget.hold(700, "work"):
        raise ZeroDivisionError
    assert (budget.held, budget.peak) == (0, 700)


@given(st.lists(st.integers(0, 400), max_size=20))
@examples(0.05)
def test_the_peak_is_the_most_that_was_held_and_never_above_the_limit(sizes):
    budget, held, most = Budget(1000), 0, 0
    for size in sizes:
        try:
            budget.charge(size, "rows")
        except BudgetError:
            budget.release(held)
            held = 0
        else:
            held += size
            most = max(most, held)
    assert (budget.held, budget.peak) == (held, most)
    assert budget.peak <= budget.limit


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2 * 10**9, "2.0 GB")])
def test_sizes_are_shown_as_people_read_them(size, text):
    assert show_bytes(size) == text
