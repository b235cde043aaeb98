"""Column stores: whenever rows are stitched, the same rows pass; what is stitched and read again differs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.column_store import STITCHINGS, early, full_late, partial_late, sort_merge


def drawn(seed: int, rows: int = 60):
    rng = np.random.default_rng(seed)
    table = {name: rng.integers(0, 10, rows) for name in "kabc"}
    limits = rng.integers(1, 10, 2)
    return table, [("a", lambda a: a < limits[0]), ("b", lambda b: b < limits[1])]


def brute(table, filters):
    rows = range(len(table["k"]))
    return [row for row in rows if all(bool(test(table[name][row : row + 1])[0]) for name, test in filters)]


@given(st.integers(0, 10_000))
def test_f36_the_same_rows_pass_whenever_they_are_stitched(seed):
    table, filters = drawn(seed)
    for stitch in STITCHINGS.values():
        assert stitch(table, filters).places.tolist() == brute(table, filters)


@given(st.integers(0, 10_000))
def test_f36_early_stitches_all_rows_and_full_late_only_survivors(seed):
    table, filters = drawn(seed)
    survivors = len(brute(table, filters))
    assert early(table, filters)[1:] == (60, 0)
    assert full_late(table, filters)[1:] == (survivors, 2 * survivors)
    first = len(brute(table, filters[:1]))
    assert partial_late(table, filters)[1:] == (first, first)
    assert survivors <= first <= 60


def test_f36_late_reads_more_again_the_more_survive():
    table, _ = drawn(1)
    cells = [full_late(table, [("a", lambda a, n=n: a < n), ("b", lambda b: b >= 0)]).read_again for n in range(11)]
    assert cells == sorted(cells)
    assert (cells[0], cells[-1]) == (0, 120)


def test_f36_without_predicates_all_is_stitched():
    table, _ = drawn(2)
    assert {stitch(table, []).stitched for stitch in STITCHINGS.values()} == {60}


@given(st.integers(0, 10_000))
def test_f36_sort_merge_gives_the_pairs_of_a_nested_loop(seed):
    (left, some), (right, others) = drawn(seed, 25), drawn(seed + 1, 25)
    pairs = sorted((i, j) for i in brute(left, some) for j in brute(right, others) if left["k"][i] == right["k"][j])
    for when in STITCHINGS:
        joined = sort_merge(left, right, "k", (some, others), when)
        assert sorted(zip(joined.left.tolist(), joined.right.tolist(), strict=True)) == pairs


@pytest.mark.parametrize(("when", "stitched"), [("early", 120), ("full", 0)])
def test_f36_a_join_without_results_stitches_nothing_when_it_waits_for_all_predicates(when, stitched):
    left, right = drawn(1)[0], drawn(2)[0]
    apart = {**right, "k": right["k"] + 100}
    assert sort_merge(left, apart, "k", ((), ()), when).stitched == stitched


def test_f36_partial_sort_merge_stitches_between_early_and_full_where_few_pairs_match():
    left, right = drawn(3)[0], drawn(4)[0]
    rare = {**right, "k": right["k"] + 9}
    few = ([("a", lambda a: a < 5), ("b", lambda b: b < 3)],) * 2
    by = {when: sort_merge(left, rare, "k", few, when).stitched for when in STITCHINGS}
    assert by["full"] < by["partial"] < by["early"]
