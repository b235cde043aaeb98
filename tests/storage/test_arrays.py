"""Columns that are one array each in a file: what was written piece by piece comes back, and rows in any order."""

from __future__ import annotations

import datetime
import os
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.storage import arrays
from penstock.storage.arrays import TooLongError, can_hold, map_arrays, size_on_disk, write_arrays

COLUMNS = pa.schema(
    {
        "long": pa.int64(),
        "byte": pa.int8(),
        "bit": pa.bool_(),
        "text": pa.string(),
        "bytes": pa.binary(),
        "price": pa.decimal128(10, 2),
        "day": pa.date32(),
        "ts": pa.timestamp("us", tz="UTC"),
        "five": pa.binary(5),
    }
)
VALUES = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "byte": st.integers(-128, 127),
    "bit": st.booleans(),
    "text": st.text(max_size=9),
    "bytes": st.binary(max_size=9),
    "price": st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100),
    "day": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "ts": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)).map(
        lambda time: time.replace(tzinfo=datetime.UTC)
    ),
    "five": st.binary(min_size=5, max_size=5),
}
PIECES = st.lists(
    st.tuples(
        st.lists(st.fixed_dictionaries({name: st.none() | each for name, each in VALUES.items()}), max_size=20),
        st.integers(0, 5),
    ),
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES)
def test_what_is_written_comes_back_and_is_taken_in_any_order(tmp_path, pieces):
    """Pieces are slices of others, as readers give them: their bits and offsets begin anywhere."""
    tables = [pa.Table.from_pylist(rows, COLUMNS).slice(skip) for rows, skip in pieces]
    whole = pa.concat_tables([COLUMNS.empty_table(), *tables])
    path = str(tmp_path / "rows.arrays")
    write_arrays(path, COLUMNS, whole.num_rows, iter(tables))
    mapped = map_arrays(path, COLUMNS)
    os.unlink(path)
    mapped.validate(full=True)
    assert mapped.to_pylist() == whole.to_pylist()
    backwards = pa.array(range(whole.num_rows - 1, -1, -1), pa.int64())
    assert mapped.take(backwards).to_pylist() == whole.to_pylist()[::-1]


def test_nulls_may_begin_after_many_rows_without(tmp_path):
    columns = pa.schema({"n": pa.int32()})
    pieces = [pa.table({"n": pa.array(range(100_003), pa.int32())}), pa.table({"n": pa.array([None, 5], pa.int32())})]
    write_arrays(str(tmp_path / "rows"), columns, 100_005, iter(pieces))
    mapped = map_arrays(str(tmp_path / "rows"), columns).column("n")
    assert mapped.null_count == 1
    assert mapped.slice(100_002).to_pylist() == [100_002, None, 5]


def test_holes_take_no_room(tmp_path):
    columns = pa.schema({name: pa.string() for name in "abc"})
    write_arrays(str(tmp_path / "rows"), columns, 1, iter([pa.table({name: ["x"] for name in "abc"})]))
    about = os.stat(tmp_path / "rows")
    assert about.st_size > 1 << 32
    assert size_on_disk(about) < 1 << 20


def test_texts_too_long_for_one_array_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_LONGEST", 1 << 16)
    columns, texts = pa.schema({"text": pa.string()}), pa.table({"text": ["x" * 40_000]})
    with pytest.raises(TooLongError):
        write_arrays(str(tmp_path / "rows"), columns, 2, iter([texts, texts]))


def test_rows_that_are_missing_are_noticed(tmp_path):
    with pytest.raises(ValueError, match="1 rows arrived instead of 2"):
        write_arrays(str(tmp_path / "rows"), pa.schema({"n": pa.int64()}), 2, iter([pa.table({"n": [1]})]))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), pa.large_string(), pa.null()])
def test_other_types_are_not_held(kind):
    assert not can_hold(pa.schema({"n": pa.int64(), "other": kind}))


def test_of_texts_there_may_be_so_many():
    assert can_hold(pa.schema({f"c{n}": pa.string() for n in range(64)} | {f"n{n}": pa.int8() for n in range(999)}))
    assert not can_hold(pa.schema({f"c{n}": pa.string() for n in range(65)}))
