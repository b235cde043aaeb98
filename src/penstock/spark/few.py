"""Fetches rows to the driver only if they are few: Spark sends no more than there is memory for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.spark.types import quoted

OVER = "__over"
"""Beside rows of which only so many are wanted: whether there are more."""

_PLACE = "monotonically_increasing_id() & 8589934591L"
"""A row's place in its partition."""


class Cap(NamedTuple):
    """Limits the rows that Spark sends: which are kept, by `__place`, and which of their columns."""

    where: str
    columns: Sequence[str]

    def of(self, rows: DataFrame) -> DataFrame:
        """Those of a DataFrame. In a query over a view of it Spark would not find what is observed of its rows."""
        numbered = rows.selectExpr("*", f"{_PLACE} AS __place")
        return numbered.where(self.where).selectExpr(*self.columns)

    def of_query(self, rows: str) -> str:
        """Those of a query, as a query: a DataFrame would be analysed three times more."""
        numbered = f"SELECT *, {_PLACE} AS __place FROM ({rows})"
        return f"SELECT {', '.join(self.columns)} FROM ({numbered}) WHERE {self.where}"


def at_most(size: int, schema: pa.Schema, rows: int | None = None, more: Sequence[str] = ()) -> Cap:
    """So many rows of each partition, and about so many bytes; `OVER` is true somewhere if that is not all.

    A row is over if it and as many others as are before it, were they of its width, are more than `size`. So what is
    not is a small multiple of `size` however widths differ, and nothing must be counted first. `more` are columns
    beside those of the schema.
    """
    fixed = sum(_fixed(field.type) for field in schema)
    varying = {field.name: _varying(field.type, quoted(field.name)) for field in schema}
    texts = {name: width for name, width in varying.items() if width is not None}
    width = " + ".join([f"{fixed}L", *texts.values()])
    most = size // fixed if rows is None else min(rows, size // fixed)
    over = f"__place >= {most}L OR (__place + 1L) * ({width}) > {size}L"
    columns = [
        f"CASE WHEN NOT ({over}) THEN {quoted(name)} END AS {quoted(name)}" if name in texts else quoted(name)
        for name in (*schema.names, *more)
    ]
    return Cap(f"__place <= {most}L", [*columns, f"{over} AS {OVER}"])


def if_few(capped: DataFrame) -> pa.Table | None:
    """Rows under a cap, fetched; None if there are more."""
    table = capped.toArrow()
    return None if pc.any(table.column(OVER)).as_py() else table.drop_columns([OVER])


def _fixed(kind: pa.DataType) -> int:
    """Bytes that each value of a type takes at least."""
    if pa.types.is_struct(kind):
        return 1 + sum(_fixed(field.type) for field in kind)
    return 16 if pa.types.is_decimal(kind) else 8


def _varying(kind: pa.DataType, value: str, depth: int = 0) -> str | None:
    """Bytes that a value takes beyond, as SQL; None if it is none."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return f"coalesce(octet_length({value}), 0)"
    if pa.types.is_struct(kind):
        parts = [_varying(field.type, f"{value}.{quoted(field.name)}", depth) for field in kind]
        return " + ".join(part for part in parts if part is not None) or None
    if pa.types.is_map(kind):
        entries = pa.struct({"key": kind.key_type, "value": kind.item_type})
        return _varying(pa.list_(entries), f"map_entries({value})", depth)
    if pa.types.is_nested(kind):
        one = f"e{depth}"
        each = _varying(kind.value_type, one, depth + 1)
        fixed = f"coalesce(size({value}), 0) * {_fixed(kind.value_type)}L"
        if each is None:
            return fixed
        return f"{fixed} + coalesce(aggregate({value}, 0L, (sum, {one}) -> sum + {each}), 0L)"
    return None
