"""Rows on their way into an operator: in the columns and types of its port, with the hash that places them.

Rows that are not placed by key may be copied to several sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import FlowError
from penstock.core.operator import NullKeys
from penstock.core.routes import Anywhere, Cells, Everywhere, Keyed, Route, as_hashes, numbered_site
from penstock.core.rows import TIME, HashedBy, Hashes, Indices, RowType
from penstock.flow.graph import OperatorNode
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import shard_of
from penstock.kernels.xxhash import xxhash64

_AT_ONCE = 1 << 12
"""Number of rows whose cells are computed at a time, and"""

_HASHED = 1 << 17
"""Bytes that are hashed at a time, where their hash says where rows go: that takes many times as much."""

_COPIES = 1 << 16
"""number of copies of them that are made at a time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A port of an operator, as the rows that enter it see it."""

    operator: str
    types: RowType
    nulls: NullKeys
    route: Route
    sites: int
    """How many sites there are for rows that may be anywhere."""

    @classmethod
    def of(cls, node: OperatorNode, port: int, sites: int) -> Entry:
        """A port of `node`."""
        return cls(node.name, node.types[port], node.config.null_keys(port), node.config.route(port), max(1, sites))

    def enter(self, rows: pa.Table, hashed_by: HashedBy) -> Iterator[pa.RecordBatch]:
        """Rows in the operator's form, as one batch or, if they are copied, several."""
        return self.placed(self._keyed(rows, hashed_by))

    def placed(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows in the columns of the port, with the sites that they go to.

        The sites depend on the content of the rows alone, so a repeated epoch sends them to the same ones.
        """
        if isinstance(self.route, Keyed):
            yield rows
        elif isinstance(self.route, Anywhere):
            yield _at(rows, self._anywhere(rows, self.route))
        elif isinstance(self.route, Everywhere):
            for site in range(self.sites):
                yield _at(rows, np.full(rows.num_rows, numbered_site(site, self.sites), np.uint64))
        else:
            yield from self._in_cells(rows, self.route)

    def _anywhere(self, rows: pa.RecordBatch, route: Anywhere) -> Hashes:
        """One of the sites for each row."""
        said = [rows.column(1), *(self.types.column(rows, name) for name in route.columns)]
        step = max(1, _HASHED * rows.num_rows // max(1, sum(column.nbytes for column in said)))
        numbers = np.empty(rows.num_rows, np.int64)
        for start in range(0, rows.num_rows, step):
            some = slice(start, start + step)
            numbers[some] = shard_of(hash_keys([column.slice(start, step) for column in said]), self.sites)
        return np.array([numbered_site(site, self.sites) for site in range(self.sites)], np.uint64)[numbers]

    def _in_cells(self, rows: pa.RecordBatch, cells: Cells) -> Iterator[pa.RecordBatch]:
        held: list[tuple[Indices, Hashes]] = []
        count = 0
        for start in range(0, rows.num_rows, _AT_ONCE):
            which, sites = cells.touched(self.types, rows.slice(start, _AT_ONCE))
            held.append((which + start, as_hashes(sites)))
            count += which.size
            if count >= _COPIES or start + _AT_ONCE >= rows.num_rows:
                which, hashes = (np.concatenate(parts) for parts in zip(*held, strict=True))
                for first in range(0, count, _COPIES):
                    some = slice(first, first + _COPIES)
                    yield _at(rows.take(pa.array(which[some])), hashes[some])
                held, count = [], 0

    def _keyed(self, rows: pa.Table, hashed_by: HashedBy) -> pa.RecordBatch:
        """With the hash of their key; on Spark's hashes, those whose null key makes them useless stay out."""
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


def _at(rows: pa.RecordBatch, hashes: Hashes) -> pa.RecordBatch:
    return rows.set_column(0, rows.schema.field(0), pa.array(hashes, pa.uint64()))
