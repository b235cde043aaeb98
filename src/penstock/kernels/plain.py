"""Columns as plain Arrow types of the same values.

Arrow cannot take rows of views and runs, nor join dictionaries whose values are more than their indices can count.
Geometries as WKB are bytes, whatever type a library has registered for them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigError
from penstock.core.files import is_wkb


def plain_columns(columns: pa.Schema) -> pa.Schema:
    """The columns that `plain_rows` gives.

    >>> plain_columns(pa.schema({"c": pa.string_view(), "n": pa.run_end_encoded(pa.int32(), pa.int64())})).types
    [DataType(string), DataType(int64)]
    """
    for field in columns:
        kind = _held(field.type)
        if _stays(kind) or (pa.types.is_run_end_encoded(field.type) and kind != _plain(kind)):
            raise ConfigError(
                f"Column {field.name!r} is of type {field.type}, which Arrow cannot take rows of. "
                f"Make it a plain column first."
            )
    return pa.schema([field.with_type(_plain(_held(field.type))) for field in columns])


def plain_rows(rows: pa.Table) -> pa.Table:
    """The same rows in plain types; columns that are plain already are not copied.

    >>> plain_rows(pa.table({"c": pa.array(["a", "b"], pa.string_view())})).column("c").type
    DataType(string)
    """
    columns = plain_columns(rows.schema)
    for place, (given, field) in enumerate(zip(rows.schema, columns, strict=True)):
        if given.type != field.type:
            rows = rows.set_column(place, field, _decoded(rows.column(place)).cast(field.type))
    return rows


def _held(kind: pa.DataType) -> pa.DataType:
    """The type of what runs repeat, or of the bytes of geometries."""
    if pa.types.is_run_end_encoded(kind):
        return kind.value_type
    return kind.storage_type if is_wkb(kind) else kind


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if is_wkb(column.type):  # Arrow casts views of an extension type to other bytes
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if not pa.types.is_run_end_encoded(column.type):
        return column
    return pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type of the same values that Arrow can take rows of and put together."""
    if pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        index = kind.index_type if kind.index_type.bit_width >= 32 else pa.int32()
        return pa.dictionary(index, _plain(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type)), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def _stays(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, runs or list views; Arrow casts a slice of list views to wrong offsets."""
    if any(test(kind) for test in (pa.types.is_run_end_encoded, pa.types.is_list_view, pa.types.is_large_list_view)):
        return True
    if pa.types.is_dictionary(kind):
        return _stays(kind.value_type)
    return pa.types.is_nested(kind) and any(_stays(kind.field(place).type) for place in range(kind.num_fields))
