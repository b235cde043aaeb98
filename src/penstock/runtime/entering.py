"""Rows on their way into an operator: in the columns and types of its port, with the hash that places them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import FlowError
from penstock.core.operator import NullKeys
from penstock.core.rows import TIME, HashedBy, Hashes, RowType
from penstock.flow.graph import OperatorNode
from penstock.kernels.hashing import hash_keys
from penstock.kernels.xxhash import xxhash64


@dataclass(frozen=True, slots=True)
class Entry:
    """A port of an operator as rows see it that enter by it."""

    operator: str
    types: RowType
    nulls: NullKeys

    @classmethod
    def of(cls, node: OperatorNode, port: int) -> Entry:
        """A port of `node`."""
        return cls(node.name, node.types[port], node.config.null_keys(port))

    def enter(self, rows: pa.Table, hashed_by: HashedBy) -> pa.RecordBatch:
        """Rows as the operator takes them; on Spark's hashes, those whose null key makes them useless stay out."""
        types = self.types
        for key in types.keys:
            kind, held = types.columns.field(key).type, rows.schema.field(key).type
            if pa.types.is_dictionary(kind) and pa.types.is_dictionary(held):
                rows = rows.set_column(rows.schema.get_field_index(key), key, rows.column(key).cast(held.value_type))
        try:
            cast = rows.select([*types.columns.names, TIME]).cast(types.columns.append(pa.field(TIME, pa.int64())))
        except pa.ArrowInvalid as wrong:
            raise FlowError(f"A key of {self.operator} cannot be compared: {wrong}.") from wrong
        if not types.keys:
            return types.enter(cast, np.zeros(cast.num_rows, np.uint64))
        if hashed_by == "hash_keys":
            return types.enter(cast, hash_keys(self._keys(cast)))
        return self._as_on_spark(cast)

    def _as_on_spark(self, rows: pa.Table) -> pa.RecordBatch:
        """With Spark's hashes, and rows with null in a key treated as there: see `spark/layout`."""
        keys = self._keys(rows)
        if self.nulls == "group" or not any(key.null_count for key in keys):
            return self.types.enter(rows, xxhash64(keys))
        missing = keys[0].is_null()
        for key in keys[1:]:
            missing = pc.or_(missing, key.is_null())
        if self.nulls == "drop":
            rows = rows.filter(pc.invert(missing))
            return self.types.enter(rows, xxhash64(self._keys(rows)))
        hashes: Hashes = np.where(
            missing.to_numpy(zero_copy_only=False), xxhash64([rows.column(TIME).combine_chunks()]), xxhash64(keys)
        )
        return self.types.enter(rows, hashes)

    def _keys(self, rows: pa.Table) -> list[pa.Array]:
        return [rows.column(key).combine_chunks() for key in self.types.keys]
