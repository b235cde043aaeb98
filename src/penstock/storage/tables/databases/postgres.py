"""PostgreSQL, through ADBC: Arrow columns both ways, any number of keys in one request as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.storage.tables.databases.protocol import (
    PART,
    Column,
    Parameter,
    Parts,
    TableName,
    apart,
    bound,
    quoted,
    selected,
    typed,
)

_COLUMNS = """
SELECT a.attname::text, coalesce(base.typname, t.typname)::text,
       CASE WHEN base.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_type AS base ON t.typtype = 'd' AND base.oid = t.typbasetype
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_UNIQUE = """
SELECT i.indexrelid::int8, a.attname::text
FROM pg_index AS i
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
"""

_COUNT = "SELECT CASE WHEN relkind = 'r' THEN reltuples::int8 ELSE -1 END FROM pg_class WHERE oid = to_regclass($1)"

_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"

_SETTINGS = "SET timezone TO 'UTC'", "SET datestyle TO 'ISO'", "SET default_transaction_read_only TO on"

_TYPES: dict[str, tuple[pa.DataType, str, pa.DataType]] = {
    "bool": (pa.bool_(), "bool", pa.bool_()),
    "int2": (pa.int16(), "int2", pa.int64()),
    "int4": (pa.int32(), "int4", pa.int64()),
    "int8": (pa.int64(), "int8", pa.int64()),
    "float4": (pa.float32(), "float8", pa.float64()),
    "float8": (pa.float64(), "float8", pa.float64()),
    "text": (pa.string(), "text", pa.string()),
    "varchar": (pa.string(), "text", pa.string()),
    "bpchar": (pa.string(), "bpchar", pa.string()),
    "bytea": (pa.binary(), "bytea", pa.binary()),
    "uuid": (pa.string(), "uuid", pa.string()),
    "date": (pa.date32(), "date", pa.string()),
    "timestamp": (pa.timestamp("us"), "timestamp", pa.string()),
    "timestamptz": (pa.timestamp("us", "UTC"), "timestamptz", pa.string()),
}
"""Of each type: what it is in Arrow, the type of keys to look it up by, and in which Arrow type these are sent."""

_WIRE = {key: wire for _, key, wire in _TYPES.values()} | {"numeric": pa.string()}

_ENDS = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp": ("0001-01-01", "9999-12-31 23:59:59.999999"),
    "timestamptz": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}
"""'infinity' becomes the last day that Spark shows, as it does when Spark reads the table."""

_AT_ENDS = r"^(0001-01-01|9999-12-31)"

_LEAST = {"int2": -(1 << 15), "int4": -(1 << 31)}

_UUID = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"

_YEARS = r"^(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
"""Of times, those between the ends: Arrow and PostgreSQL write all others differently."""


class Postgres:
    """A connection to PostgreSQL."""

    lasting = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        for setting in _SETTINGS:
            self._run(setting)

    @classmethod
    def at(cls, url: str) -> Postgres:
        """Connect; without a transaction, so that every query sees what is committed then."""
        from adbc_driver_postgresql import dbapi

        return cls(dbapi.connect(url, autocommit=True))

    def columns(self, table: TableName) -> list[Column]:
        """By the catalogue."""
        found = self._run(_COLUMNS, [quoted(*table)])
        return [_column(*row.values()) for row in found.to_pylist()]

    def unique(self, table: TableName) -> list[frozenset[str]]:
        """By its unique indexes."""
        rows = self._run(_UNIQUE, [quoted(*table)]).to_pylist()
        indexes = {row["indexrelid"] for row in rows}
        sets = [frozenset(row["attname"] for row in rows if row["indexrelid"] == index) for index in indexes]
        return apart(sets, [column.name for column in self.columns(table) if column.folded or column.key in _ENDS])

    def count(self, table: TableName) -> int:
        """As the planner of the database believes it is; counted where it has never looked."""
        (known,) = self._run(_COUNT, [quoted(*table)]).column(0).to_pylist()
        if known > 0:
            return int(known)
        return int(self._run(f"SELECT count(*) FROM {quoted(*table)}").column(0)[0].as_py())

    def query(self, sql: str, parameters: Sequence[Parameter], columns: Sequence[Column]) -> Parts:
        """The rows of a query that reads these columns, in parts."""
        return self._parts(sql, parameters, columns)

    def value(self, sql: str) -> str | None:
        """The only value of a query."""
        found: str | None = self._run(f"SELECT ({sql})::text").column(0)[0].as_py()
        return found

    def compare(self, column: Column, sign: str) -> str:
        """The condition that compares a column with the parameter of a query."""
        return f"{quoted(column.name)} {sign} $1::{column.key or 'text'}"

    def look_up(
        self, table: TableName, columns: Sequence[Column], keys: Sequence[Column], values: Sequence[pa.Array]
    ) -> Parts:
        """All keys as one array for each key column, joined with the table where it is."""
        sent = _well_formed([_sent(array, key) for array, key in zip(values, keys, strict=True)], keys)
        sql = _found(f"SELECT {selected(columns)} FROM {quoted(*table)}", sent, keys)
        lists = [pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array) for array in sent]
        parameters = pa.RecordBatch.from_arrays(lists, names=[str(place) for place in range(len(lists))])
        return self._parts(sql, parameters, columns)

    def confine(self, memory: int) -> int:
        """The database has its memory elsewhere."""
        return 0

    def marker(self, place: int) -> str:
        """Stands for a parameter in a query."""
        return f"${place}"

    def alive(self) -> bool:
        """Whether the connection still answers."""
        try:
            self._run("SELECT 1")
        except self._connection.Error:
            return False
        return True

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()

    def _parts(self, sql: str, parameters: Sequence[Parameter] | pa.RecordBatch, columns: Sequence[Column]) -> Parts:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(PART)})
            cursor.execute(sql, parameters=parameters if len(parameters) else None)
            for batch in cursor.fetch_record_batch():
                yield typed(pa.Table.from_batches([batch]), columns)

    def _run(self, sql: str, parameters: Sequence[Parameter] | pa.RecordBatch | None = None) -> pa.Table:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters=parameters if parameters is not None and len(parameters) else None)
            return cursor.fetch_arrow_table()


def _column(name: str, kind: str, modifier: int) -> Column:
    """A column, as Spark reads it: what Spark has no type for comes as text."""
    plain = quoted(name)
    if kind == "numeric":
        precision, scale = _decimal(modifier)
        read = f"nullif({plain}, 'NaN')::numeric({precision}, {scale})::text"
        # An index on this very expression serves look-ups.
        folded = f"round({plain}, {scale})" if _rounds(modifier) else None
        return Column(name, read, pa.string(), pa.decimal128(precision, scale), "numeric", folded)
    if kind not in _TYPES:
        return Column(name, f"{plain}::text", pa.string(), pa.string(), None)
    arrow, key, _ = _TYPES[kind]
    if kind in _ENDS:
        first, last = _ends(kind)
        # Not least and greatest, which pass over nulls.
        plain = f"CASE WHEN {plain} < {first} THEN {first} WHEN {plain} > {last} THEN {last} ELSE {plain} END"
    return Column(name, f"{plain}::text" if kind in ("bpchar", "uuid") else plain, arrow, arrow, key)


def _decimal(modifier: int) -> tuple[int, int]:
    """Precision and scale of a numeric column: 38 and 18 if it has none, as in Spark."""
    if modifier < 0:
        return 38, 18
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, _scale(modifier)
    if scale < 0:
        return min(precision - scale, 38), 0
    return min(max(precision, scale), 38), min(scale, 38)


def _scale(modifier: int) -> int:
    return ((modifier - 4 & 0x7FF) ^ 1024) - 1024


def _rounds(modifier: int) -> bool:
    """Whether a numeric column may have more places than are read."""
    return modifier < 0 or _scale(modifier) > 38


def _found(select: str, values: Sequence[pa.Array], keys: Sequence[Column]) -> str:
    """The query of the rows that have one of these keys: by the columns themselves, which may have an index.

    Only a key that is one of the ends stands for all times beyond it, too; such rows are found by what is read.
    """
    usual = f"{select} WHERE {_among(keys, [key.compared for key in keys])}"
    timed = [key for key in keys if key.key in _ENDS]
    ended = [pc.match_substring_regex(array, _AT_ENDS) for array, key in zip(values, keys, strict=True) if key in timed]
    if not any(pc.any(some).as_py() for some in ended):
        return usual
    between = " AND ".join(
        f"{key.compared} > {first} AND {key.compared} < {last}"
        for key in timed
        for first, last in [_ends(str(key.key))]
    )
    read = _among(keys, [key.read if key in timed else key.compared for key in keys])
    return f"{usual} AND {between} UNION ALL {select} WHERE {read} AND NOT ({between})"


def _ends(kind: str) -> tuple[str, str]:
    first, last = _ENDS[kind]
    return f"'{first}'::{kind}", f"'{last}'::{kind}"


def _among(keys: Sequence[Column], compared: Sequence[str]) -> str:
    """The condition that a row's key is among those that are given."""
    names = ", ".join(compared)
    arrays = ", ".join(f"${place}::{key.key}[]" for place, key in enumerate(keys, 1))
    if len(keys) == 1 and keys[0].type != pa.float32():
        # Twice as fast as IN for many keys: PostgreSQL sorts or hashes an array, if it is of the column's own type.
        return f"{names} = ANY ({arrays})"
    return f"({names}) IN (SELECT * FROM unnest({arrays}))"


def _sent(values: pa.Array, key: Column) -> pa.Array:
    """Keys as they are sent: instants by the clock of Greenwich, where years begin and end as the column's do."""
    if key.key == "timestamptz" and pa.types.is_timestamp(values.type) and values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    return bound(values, key, _WIRE[str(key.key)])


def _well_formed(values: list[pa.Array], keys: Sequence[Column]) -> list[pa.Array]:
    """Without keys that no row can have because its column's type has no such value: the database would refuse."""
    good = np.ones(len(values[0]), np.bool_)
    for array, key in zip(values, keys, strict=True):
        if key.key == "uuid":
            fits = pc.match_substring_regex(array, _UUID)
        elif key.key in _ENDS:
            fits = pc.match_substring_regex(array, _YEARS)
        elif key.key in ("text", "bpchar"):
            fits = pc.invert(pc.match_substring(array, "\0"))
        elif key.key in _LEAST:
            fits = pc.and_(pc.greater_equal(array, _LEAST[key.key]), pc.less(array, -_LEAST[key.key]))
        else:
            continue
        good &= pc.fill_null(fits, fill_value=False).to_numpy(zero_copy_only=False)
    return values if good.all() else [array.filter(pa.array(good)) for array in values]
