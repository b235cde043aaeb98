from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.xxhash import can_xxhash, xxhash64
from tests.oracle.xxhash import spark_hash
from tests.streams import examples

WIDE = Context(prec=60)
DECIMALS = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(digits).scaleb(-4, WIDE))
NARROW = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda digits: Decimal(digits).scaleb(-3))

KINDS = {
    "boolean": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes()),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "string": (pa.string(), st.text(max_size=80)),
    "binary": (pa.binary(), st.binary(max_size=140)),
    "decimal(18,3)": (pa.decimal128(18, 3), NARROW),
    "decimal(38,4)": (pa.decimal128(38, 4), DECIMALS),
}
STRUCT = pa.struct({"a": pa.int32(), "b": pa.string()})


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
@examples(0.25)
def test_the_hash_of_a_column_is_that_of_its_definition(name: str, data: st.DataObject):
    kind, values = KINDS[name]
    given_values = data.draw(st.lists(st.none() | values, max_size=40))
    assert can_xxhash(kind)
    array = pa.array(given_values, kind)
    assert xxhash64([array]).tolist() == [spark_hash([value], [kind]) for value in array.to_pylist()]


@given(st.lists(st.tuples(st.none() | st.text(max_size=40), st.none() | st.integers(0, 9), st.none() | st.floats())))
def test_each_column_hashes_on_from_the_one_before(rows):
    kinds = [pa.string(), pa.int32(), pa.float64()]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    assert xxhash64(columns).tolist() == [spark_hash(list(row), kinds) for row in rows]


@given(st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.text()})))
def test_a_struct_is_hashed_field_by_field(rows):
    array = pa.array(rows, STRUCT)
    assert xxhash64([array]).tolist() == [spark_hash([row], [STRUCT]) for row in rows]


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
@examples(0.25)
def test_a_slice_is_hashed_as_what_it_shows(name: str, data: st.DataObject):
    kind, values = KINDS[name]
    array = pa.array([None, data.draw(values), None] * 3, kind)
    assert xxhash64([array.slice(4, 3)]).tolist() == xxhash64([array])[4:7].tolist()


def test_many_long_texts_are_hashed_block_by_block():
    texts = ["x" * (n % 97) + str(n) for n in range(70_000)]
    hashed = xxhash64([pa.array(texts)])
    some = range(0, 70_000, 1_111)
    assert [int(hashed[n]) for n in some] == [spark_hash([texts[n]], [pa.string()]) for n in some]


def test_one_text_may_be_much_longer_than_the_others():
    texts = ["a", "b" * 100_003, "", "c"]
    assert xxhash64([pa.array(texts)]).tolist() == [spark_hash([text], [pa.string()]) for text in texts]


def test_what_spark_said_once_is_what_is_said_here():
    """``SELECT xxhash64(…)`` on Spark 4.3."""
    said = np.array([int(xxhash64([pa.array([value])])[0]) for value in (1, "Spark", True)], np.uint64)
    assert said.view(np.int64).tolist() == [-7001672635703045582, -4294468057691064905, -6698625589789238999]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.timestamp("ns"), pa.float16(), pa.uint64(), pa.time64("us")])
def test_types_that_spark_hashes_otherwise_or_does_not_have_are_told(kind: pa.DataType):
    assert not can_xxhash(kind)
