"""The bounds of single groups: how far each has got where a punctuation spoke of it alone."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.rows import RowType


def group_type(rows: RowType) -> RowType:
    """The shape of the bounds of a stream's groups: the group's hash, its bound as the time, and the stream's keys.

    Groups are told apart by their values; the hash only finds them.

    >>> group_type(RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")).inside.names
    ['__hash', '__time', 'k']
    """
    return RowType(pa.schema([rows.columns.field(key) for key in rows.keys]), rows.keys)
