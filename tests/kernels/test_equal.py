"""Equality of key values, by Spark's rules, over every type a key can have."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.equal import same
from penstock.kernels.hashing import hash_keys
from tests.streams import examples

NAN = float("nan")

small = st.integers(-2, 2)
texts = st.sampled_from(["", "a", "b", "ab", "é", "\x00", "a\x00"])
floats = st.sampled_from([0.0, -0.0, 1.0, -1.0, NAN, float("inf"), -float("inf"), 0.1])
dates = st.sampled_from([dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)])
times = st.sampled_from([dt.time(0), dt.time(1), dt.time(23, 59, 59)])
moments = st.sampled_from([dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(1900, 1, 1)])
decimals = st.sampled_from([Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("99.99")])


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.none(), values)


TYPES = {
    pa.int64(): small,
    pa.int32(): small,
    pa.int8(): small,
    pa.float64(): floats,
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, NAN]),
    pa.string(): texts,
    pa.large_string(): texts,
    pa.binary(): texts.map(str.encode),
    pa.large_binary(): texts.map(str.encode),
    pa.binary(2): st.sampled_from([b"ab", b"ba", b"\x00\x00"]),
    pa.bool_(): st.booleans(),
    pa.uint64(): st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    pa.time32("s"): times,
    pa.time64("us"): times,
    pa.date32(): dates,
    pa.timestamp("us"): moments,
    pa.timestamp("us", "UTC"): moments.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    pa.decimal128(10, 2): decimals,
    pa.decimal128(38, 2): decimals,
    pa.struct({"a": pa.int64(), "b": pa.string()}): st.fixed_dictionaries({"a": maybe(small), "b": maybe(texts)}),
    pa.struct({"a": pa.float64()}): st.fixed_dictionaries({"a": maybe(floats)}),
    pa.list_(pa.int64()): st.lists(maybe(small), max_size=3),
    pa.list_(pa.string()): st.lists(maybe(texts), max_size=3),
    pa.large_list(pa.float64()): st.lists(maybe(floats), max_size=3),
    pa.list_(pa.list_(pa.int64())): st.lists(maybe(st.lists(maybe(small), max_size=2)), max_size=2),
    pa.list_(pa.struct({"a": pa.int64()})): st.lists(maybe(st.fixed_dictionaries({"a": maybe(small)})), max_size=2),
    pa.struct({"l": pa.list_(pa.int64())}): st.fixed_dictionaries({"l": maybe(st.lists(small, max_size=2))}),
    pa.list_(pa.float64(), 2): st.lists(maybe(floats), min_size=2, max_size=2),
    pa.dictionary(pa.int32(), pa.string()): texts,
    pa.dictionary(pa.int8(), pa.float64()): floats,
    pa.struct({"d": pa.dictionary(pa.int32(), pa.string())}): st.fixed_dictionaries({"d": maybe(texts)}),
    pa.decimal32(4, 2): decimals,
    pa.decimal256(50, 2): decimals,
    pa.null(): st.none(),
}
"""Key types, each with few values, so that equal ones are common."""


def equal(a: object, b: object) -> bool:
    """By Spark's rules: NaN is NaN, 0.0 is -0.0, nulls inside a key are equal."""
    if a is None or b is None:
        return a is b
    if isinstance(a, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, dict):
        return all(equal(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def sliced(values: list, kind: pa.DataType) -> pa.Array:
    """The values as a slice of a longer array, as a page's column often is."""
    padding = [value for value in values[:1] if value is not None]
    return pa.array([*padding, *values, *padding], kind).slice(len(padding), len(values))


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_same_is_equality_and_equal_values_have_equal_hashes(kind):
    pairs = st.lists(st.tuples(maybe(TYPES[kind]), maybe(TYPES[kind])), max_size=12)

    @given(pairs, st.sampled_from([pa.array, sliced]), st.sampled_from([pa.array, sliced]))
    @examples(0.02)
    def check(pairs, make_left, make_right):
        left, right = make_left([a for a, _ in pairs], kind), make_right([b for _, b in pairs], kind)
        expected = [equal(a, b) for a, b in pairs]
        assert same(left, right).tolist() == expected
        hashes = zip(hash_keys([left]).tolist(), hash_keys([right]).tolist(), strict=True)
        assert all(a == b for (a, b), are in zip(hashes, expected, strict=True) if are)

    check()


def test_by_hand():
    nan = pa.array([NAN, NAN, 0.0, None, None])
    assert same(nan, pa.array([NAN, 0.0, -0.0, None, 1.0])).tolist() == [True, False, True, True, False]
    lists = pa.array([[1, None], [1, 2], [], None])
    assert same(lists, pa.array([[1, None], [1], [], []], lists.type)).tolist() == [True, False, True, False]
    structs = pa.array([{"a": 1, "b": None}, {"a": 1, "b": 2}])
    assert same(structs, pa.array([{"a": 1, "b": None}, {"a": 1, "b": None}], structs.type)).tolist() == [True, False]


def test_nothing_is_the_same_as_nothing_in_columns_without_rows():
    assert same(pa.array([], pa.int64()), pa.array([], pa.int64())).tolist() == []


def test_a_dictionary_is_the_same_as_what_it_stands_for_and_hashes_alike():
    plain = pa.array(["a", None, "b", "a"])
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, 2, 0, None], pa.int8()), pa.array(["b", "a", None]))
    assert same(plain, encoded).tolist() == same(encoded, plain).tolist() == [True, True, True, False]
    assert hash_keys([plain])[:3].tolist() == hash_keys([encoded])[:3].tolist()
