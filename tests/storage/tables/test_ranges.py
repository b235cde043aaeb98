"""Cutting tables into ranges (000-30): sizes between θ and 2θ, and places that equal a bisection."""

from __future__ import annotations

from bisect import bisect_right
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.kernels.bisect import bisect_within, runs_within
from penstock.storage.tables.ranges import (
    SlotArray,
    check_order,
    cut_rows,
    merge_slots,
    order_values,
    route_over,
    sort_order,
)
from tests.streams import examples

WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBERS = WHOLE | st.integers(-50, 50)


def sizes_of(ends) -> list[int]:
    return np.diff(ends, prepend=0).tolist()


@examples(0.2)
@given(st.lists(st.integers(-1000, 1000) | WHOLE, min_size=1, max_size=300, unique=True), st.integers(1, 20))
def test_000_30_slots_hold_between_theta_and_twice_theta_and_a_lookup_equals_bisection(keys, theta):
    values = sorted(keys)
    cut = cut_rows(pa.array(values, pa.int64()), theta)
    sizes = sizes_of(cut.ends)
    assert sum(sizes) == len(keys)
    assert all(theta <= size <= 2 * theta for size in sizes[:-1])
    assert sizes[-1] <= 2 * theta
    low = cut.low.to_pylist()
    probes = [*values, *(value + 1 for value in values if value < 2**63 - 1), -(2**63), 2**63 - 1]
    places = SlotArray(np.array(low)).of(np.array(probes))
    assert places.tolist() == [max(0, bisect_right(low, probe) - 1) for probe in probes]
    held = SlotArray(np.array(low)).of(np.array(values))
    assert held.tolist() == np.repeat(np.arange(len(sizes)), sizes).tolist()


def test_000_30_an_even_domain_takes_the_fewest_slots_and_one_step():
    cut = cut_rows(pa.array(range(1000)), theta=100)
    slots = SlotArray(cut.low.to_numpy())
    assert sizes_of(cut.ends) == [128] * 7 + [104]
    assert int(slots.shift) == 7
    assert slots.slot.tolist() == list(range(8))


def test_000_30_slots_are_merged_until_they_have_theta():
    keys = [*range(64), *range(1024, 2048, 32)]
    cut = cut_rows(pa.array(keys), theta=32)
    assert sizes_of(cut.ends) == [32, 32, 32]
    assert cut.high.to_pylist() == [31, 63, 2016]


def test_a_hot_key_has_a_partition_of_its_own():
    cut = cut_rows(pa.array([1, 2, *[3] * 50, 4, 5, 6]), theta=3)
    assert sizes_of(cut.ends) == [2, 50, 3]


def test_keys_too_uneven_for_slots_are_cut_all_the_same():
    keys = sorted([*range(100), 2**60])
    cut = cut_rows(pa.array(keys), theta=10)
    assert sizes_of(cut.ends) == [10] * 9 + [11]
    assert SlotArray(cut.low.to_numpy()).of(np.array(keys)).tolist() == [*np.repeat(range(9), 10), *[9] * 11]


@examples(0.2)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 10))
def test_merged_slots_fall_short_only_before_a_hot_one_or_at_the_end(sizes, theta):
    ends = merge_slots(np.array(sizes, np.int64), theta)
    parts = [sizes[a:b] for a, b in pairwise([0, *ends])]
    assert [size for part in parts for size in part] == sizes
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        hot = max(part) > theta
        assert sum(part) <= 2 * theta or (hot and sum(size > 0 for size in part) == 1)
        assert sum(part) >= theta or after is None or max(after) > theta


@pytest.mark.parametrize(
    ("values", "probes"),
    [
        (["a", "b", "ba", "z", "é"], ["", "ab", "b", "zz", "é"]),
        ([b"a", b"b", b"\xff"], [b"", b"ab", b"\xff\xff"]),
        ([-1.5, 0.0, 2.0, float("inf")], [-2.0, -0.0, 1.9, float("nan")]),
        ([Decimal("1.10"), Decimal("2.20")], [Decimal("0.00"), Decimal("2.20")]),
    ],
)
def test_strings_fractions_and_decimals_are_found_by_their_order(values, probes):
    low = pa.array(values)
    found = route_over(low).place(pa.array(probes, low.type)).tolist()
    expected = [len(values) if probe != probe else bisect_right(values, probe) for probe in probes]
    assert found == [max(0, place - 1) for place in expected]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([Decimal(n) / 10 for n in range(-9, 9)], pa.decimal32(3, 1)),
        pa.array([Decimal(n) / 10 for n in range(-9, 9)], pa.decimal64(12, 1)),
        pa.array(range(2**63 - 9, 2**63 + 9), pa.uint64()),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_that_arrow_cannot_sort_or_that_pass_64_bits_with_a_sign_are_found_where_they_were_put(keys):
    values = order_values("range", np.zeros(len(keys), np.uint64), [keys])
    order = sort_order(values)
    cut = cut_rows(values.take(pa.array(order)), theta=4)
    put = np.searchsorted(cut.ends, np.argsort(order), "right")
    assert cut.ends.size > 2
    assert route_over(cut.low).place(values).tolist() == put.tolist()


def test_nan_is_one_key_and_the_greatest_and_both_zeros_are_one():
    values = pa.array([0.0, float("nan"), -0.0, 1.0, float("nan")])
    ordered = values.take(pa.array(sort_order(values)))
    cut = cut_rows(ordered, theta=1)
    assert sizes_of(cut.ends) == [2, 1, 2]


@examples(0.3)
@given(st.data())
def test_many_stretches_are_bisected_at_once(data):
    stretches = data.draw(st.lists(st.lists(st.integers(0, 9).map(lambda n: n * 2**60 + 2**60 - 1)), min_size=1))
    stretches = [sorted(stretch) for stretch in stretches]
    ends = np.cumsum([len(stretch) for stretch in stretches])
    values = np.array([value for stretch in stretches for value in stretch], np.uint64)
    which = np.array(data.draw(st.lists(st.integers(0, len(stretches) - 1), max_size=20)), np.int64)
    wanted = np.array([data.draw(st.integers(0, 2**64 - 1) | st.just(2**60 - 1)) for _ in which], np.uint64)
    begin, end = np.concatenate([[0], ends[:-1]])[which], ends[which]
    if not values.size:
        values = np.zeros(1, np.uint64)
    first = bisect_within(values, wanted, begin, end)
    assert first.tolist() == [b + np.searchsorted(values[b:e], w) for w, b, e in zip(wanted, begin, end, strict=True)]
    _, count = runs_within(values, wanted, begin, end)
    assert count.tolist() == [int((values[b:e] == w).sum()) for w, b, e in zip(wanted, begin, end, strict=True)]


def test_ranges_of_what_has_no_order_are_refused():
    columns = pa.schema({"k": pa.list_(pa.int64()), "n": pa.int64()})
    with pytest.raises(
        ConfigError, match=r"by='range' needs one key .* this table's is k \(list<item: int64>\)\. Write"
    ):
        check_order("range", ["k"], columns)
    with pytest.raises(ConfigError, match=r"this table's is n \(int64\), k \(list"):
        check_order("range", ["n", "k"], columns)
    with pytest.raises(ConfigError, match=r"by='heap' is not a way to partition a table\. Write 'hash'"):
        check_order("heap", ["n"], columns)
