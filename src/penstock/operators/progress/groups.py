"""The bounds of single groups, for punctuations that are about one group."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.rows import RowType


def group_type(rows: RowType) -> RowType:
    """The shape of the bounds of a stream's groups: the group's hash, its bound as the time, and the stream's keys.

    The hash only finds groups; their values tell them apart.

    >>> group_type(RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")).inside.names
    ['__hash', '__time', 'k']
    """
    return RowType(pa.schema([rows.columns.field(key) for key in rows.keys]), rows.keys)
