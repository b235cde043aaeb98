from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.keep import Kept

TYPES = (
    *(pa.string(), pa.binary(), pa.large_string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.timestamp("us", "UTC"), pa.date32(), pa.decimal128(5, 2)),
    *(pa.dictionary(pa.int32(), pa.string()), pa.struct({"a": pa.string()})),
)

rows = st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 99), st.booleans()), max_size=40)
"""Whether a row stays; its value, if it has one; whether it is nothing where the row goes."""


def value_of(number: int | None, kind: pa.DataType) -> object:
    if number is None:
        return None
    if pa.types.is_struct(kind):
        return {"a": str(number)}
    if pa.types.is_dictionary(kind) or kind in (pa.string(), pa.large_string()):
        return "x" * (number % 7)
    return b"x" * (number % 7) if kind == pa.binary() else number


@given(rows, st.sampled_from(TYPES), st.integers(0, 3), st.booleans())
def test_what_stays_is_what_arrow_keeps(rows, kind, skipped, sparse):
    """`sparse` columns have nothing where rows go, as a struct of another kind of events."""
    numbers = [None if sparse and not stays and empty else number for stays, number, empty in rows]
    if kind == pa.bool_():
        values = pa.array([None if number is None else number > 50 for number in numbers], kind)
    else:
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        raw = [value_of(number, kind) for number in numbers]
        number_like = pa.types.is_primitive(plain) and not pa.types.is_decimal(plain)
        values = (
            pa.array(raw, pa.int64()).cast(pa.int32() if plain == pa.date32() else pa.int64())
            if number_like
            else pa.array(raw, plain)
        )
        values = values.cast(plain).cast(kind)
    values, mask = values.slice(skipped), pa.array([stays for stays, *_ in rows], pa.bool_()).slice(skipped)
    found = Kept(mask).of(values)
    found.validate(full=True)
    assert found.equals(values.filter(mask))
    whole = Kept(mask).of_chunks(pa.chunked_array([values], values.type))
    assert whole.equals(pa.chunked_array([values.filter(mask)], values.type))


def test_texts_that_stay_are_not_copied_where_those_that_go_are_empty():
    values = pa.array(["one", None, "two", ""])
    kept = Kept(pa.array([True, False, True, False])).of(values)
    assert kept.to_pylist() == ["one", "two"]
    assert kept.buffers()[2].address == values.buffers()[2].address
    assert kept.null_count == 0
    other = Kept(pa.array([True, True, False, True])).of(values)
    assert other.to_pylist() == ["one", None, ""]
    assert other.buffers()[2].address != values.buffers()[2].address


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_nothing_stays_of_nothing(kind):
    assert len(Kept(pa.array([], pa.bool_())).of(pa.array([], kind))) == 0
    assert len(Kept(pa.array([False, False])).of(pa.array([None, None], kind))) == 0
