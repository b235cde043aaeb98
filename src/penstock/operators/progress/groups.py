"""Bounds of single groups: how far each has got where a punctuation spoke of it alone.

A batch of group bounds has the shape of rows inside an operator: the group's hash, its bound as the time, and the
columns that make the group. Groups are told apart by their values; the hash only finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.errors import PunctuationError
from penstock.core.punctuation import Punctuation
from penstock.core.rows import TIME, RowType
from penstock.kernels.hashing import hash_keys


def group_type(rows: RowType) -> RowType:
    """The shape of the bounds of a stream's groups, which are what its keys say.

    >>> group_type(RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")).inside.names
    ['__hash', '__time', 'k']
    """
    return RowType(pa.schema([rows.columns.field(key) for key in rows.keys]), rows.keys)


def group_batch(rows: RowType, punctuations: Sequence[Punctuation]) -> pa.RecordBatch:
    """Group-wise punctuations on a stream's time, as a batch of bounds.

    Groups are hashed in process: a host whose rows bring other hashes along must put these in the first column.

    >>> from penstock.core.punctuation import below
    >>> rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")
    >>> group_batch(rows, [Punctuation.of(t=below(5), k=1)]).select([TIME, "k"]).to_pylist()
    [{'__time': 5, 'k': 1}]
    """
    said: list[tuple[tuple[Any, ...], Any]] = []
    for punctuation in punctuations:
        one = punctuation.group_wise(rows.time or TIME, rows.keys)
        if one is None:
            raise PunctuationError(
                f"{punctuation} is not group-wise linear. Write {rows.time}=below(…) and a constant for each of "
                f"{', '.join(rows.keys)}, and leave the other columns out."
            )
        said.append(one)
    kinds = group_type(rows).columns
    columns = [pa.array([group[n] for group, _ in said], kind) for n, kind in enumerate(kinds.types)]
    table = pa.table([pa.array([stop for _, stop in said], pa.int64()), *columns], names=[TIME, *kinds.names])
    return group_type(rows).enter(table, hash_keys(columns))
