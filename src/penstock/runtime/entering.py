"""Rows on their way into an operator: in the columns and types of its port, with the hash that places them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import FlowError
from penstock.core.rows import TIME, HashedBy, Hashes
from penstock.flow.graph import OperatorNode
from penstock.kernels.hashing import hash_keys
from penstock.kernels.xxhash import xxhash64


def entering(node: OperatorNode, port: int, rows: pa.Table, hashed_by: HashedBy) -> pa.RecordBatch:
    """The rows of a port as its operator takes them; those whose null key makes them useless stay out."""
    types = node.types[port]
    for key in types.keys:
        kind, held = types.columns.field(key).type, rows.schema.field(key).type
        if pa.types.is_dictionary(kind) and pa.types.is_dictionary(held):
            rows = rows.set_column(rows.schema.get_field_index(key), key, rows.column(key).cast(held.value_type))
    try:
        cast = rows.select([*types.columns.names, TIME]).cast(types.columns.append(pa.field(TIME, pa.int64())))
    except pa.ArrowInvalid as wrong:
        raise FlowError(f"A key of {node.name} cannot be compared: {wrong}.") from wrong
    if hashed_by == "hash_keys":
        keys = [cast.column(key).combine_chunks() for key in types.keys]
        return types.enter(cast, hash_keys(keys) if keys else np.zeros(cast.num_rows, np.uint64))
    return _as_on_spark(node, port, cast)


def _as_on_spark(node: OperatorNode, port: int, rows: pa.Table) -> pa.RecordBatch:
    """With Spark's hashes, and rows with null in a key treated as there: see `spark/layout`."""
    types = node.types[port]
    keys = [rows.column(key).combine_chunks() for key in types.keys]
    if not keys:
        return types.enter(rows, np.zeros(rows.num_rows, np.uint64))
    nulls = node.config.null_keys(port)
    if nulls == "group" or not any(key.null_count for key in keys):
        return types.enter(rows, xxhash64(keys))
    missing = keys[0].is_null()
    for key in keys[1:]:
        missing = pc.or_(missing, key.is_null())
    if nulls == "drop":
        rows = rows.filter(pc.invert(missing))
        return types.enter(rows, xxhash64([rows.column(key).combine_chunks() for key in types.keys]))
    hashes: Hashes = np.where(
        missing.to_numpy(zero_copy_only=False), xxhash64([rows.column(TIME).combine_chunks()]), xxhash64(keys)
    )
    return types.enter(rows, hashes)
