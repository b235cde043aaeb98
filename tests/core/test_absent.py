"""Columns without a value are stored and sent without their bytes, and come back as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.absent import absent, is_absent, with_absent, without_absent

KINDS = [
    pa.int8(), pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(20, 3),
    pa.string(), pa.binary(), pa.list_(pa.int64()), pa.struct({"a": pa.string()}), pa.map_(pa.string(), pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_a_column_without_a_value_is_null_in_every_row(kind, rows):
    column = absent(rows, kind)
    column.validate(full=True)
    assert column.equals(pa.nulls(rows, kind))
    assert column.slice(rows // 2).null_count == rows - rows // 2


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.text(max_size=3), st.none()), max_size=5))
def test_batches_come_back_as_they_were(rows):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    batch = pa.record_batch(
        [pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.string()), pa.array(columns[2], pa.float64())],
        names=["n", "s", "f"],
    )
    sent = without_absent(batch)
    assert with_absent(sent).equals(batch)
    assert with_absent(sent).schema.equals(batch.schema)
    kept = [name for name in batch.schema.names if not is_absent(batch.column(name))]
    assert sent.schema.names == (kept or batch.schema.names)
