"""Spark SQL expressions over Arrow tables, in process: read as Spark writes them, run by DuckDB."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.rows import TIME


def select(rows: pa.Table, expressions: Sequence[str]) -> pa.Table:
    """Columns computed from `rows`; its event time, if it is there, stays.

    >>> select(pa.table({"a": [1, 2]}), ["a", "a * 2 AS twice"]).column("twice").to_pylist()
    [2, 4]
    """
    shown = [_duckdb(text) for text in expressions]
    if TIME in rows.column_names:
        shown = [f"* EXCLUDE ({TIME})" if text == "*" else text for text in shown] + [TIME]
    return _run(f"SELECT {', '.join(shown)} FROM given", rows, expressions)


def where(rows: pa.Table, condition: str) -> pa.Table:
    """The rows for which `condition` holds.

    >>> where(pa.table({"a": [1, 2]}), "a > 1").num_rows
    1
    """
    return _run(f"SELECT * FROM given WHERE {_duckdb(condition)}", rows, [condition])


def where_pairs(rows: pa.Table, condition: str, sides: tuple[dict[str, str], dict[str, str]]) -> pa.Table:
    """The pairs for which `condition` over ``l`` and ``r`` holds; `sides` says which columns those names are."""
    packed = ["{" + ", ".join(f"'{name}': {_quote(shown)}" for name, shown in side.items()) + "}" for side in sides]
    pairs = f"SELECT {packed[0]} AS l, {packed[1]} AS r FROM given"
    holds = _run(f"SELECT coalesce({_duckdb(condition)}, false) AS holds FROM ({pairs})", rows, [condition])
    return rows.filter(holds.column("holds"))


def _run(query: str, rows: pa.Table, written: Sequence[str]) -> pa.Table:
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("given", rows)
        try:
            found = engine.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise ConfigError(f"{', '.join(written)!r} cannot be computed: {error}") from error
    return found.cast(pa.schema([_as_given(field, rows) for field in found.schema]))


def _as_given(field: pa.Field, rows: pa.Table) -> pa.Field:
    """DuckDB gives back some types as others (large strings, zones); a column that only passed keeps its own."""
    if field.name in rows.column_names and _same_family(field.type, rows.schema.field(field.name).type):
        return rows.schema.field(field.name)
    return field


def _same_family(a: pa.DataType, b: pa.DataType) -> bool:
    return a == b or (pa.types.is_timestamp(a) and pa.types.is_timestamp(b)) or {str(a), str(b)} <= _STRINGS


_STRINGS = {"string", "large_string", "string_view"}


def _duckdb(expression: str) -> str:
    if not isinstance(expression, str):
        raise ConfigError(
            f"{expression!r} is a {type(expression).__name__}; in a local flow, write the expression as a string."
        )
    try:
        import sqlglot
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "SQL expressions in a local flow need two more packages: pip install 'penstock[local]'."
        ) from missing
    try:
        return sqlglot.parse_one(expression, read="spark").sql(dialect="duckdb") if expression != "*" else "*"
    except sqlglot.errors.ParseError as error:
        raise ConfigError(f"{expression!r} is not a Spark SQL expression: {error}") from error


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
