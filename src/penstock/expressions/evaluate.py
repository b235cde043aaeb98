"""Spark SQL expressions over Arrow tables, in process: parsed as Spark's, evaluated by DuckDB.

Only expressions that compute something, and only the columns they name, go through DuckDB; other columns pass as they
are. DuckDB can read nothing else: no files, no extensions, no Python variables.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.errors import ConfigError, FlowError
from penstock.core.files import Path
from penstock.core.rows import TIME
from penstock.expressions.kinds import Value, check_condition, quoted
from penstock.flow.failures import in_a_line

if TYPE_CHECKING:
    from sqlglot import exp

_ROW = "__row"
"""A column without values: there are as many rows as given even where no expression names a column of theirs."""

Sides = tuple[dict[str, str], dict[str, str]]
"""What a condition on pairs may call each side's columns, and the columns of the pairs they are."""

Find = Callable[[Sequence[str]], tuple[str, Sequence[str]]]
"""A dotted name in an expression to the column that it means, and the fields in that."""


def select(rows: pa.Table, expressions: Sequence[str]) -> pa.Table:
    """Columns computed from `rows`; its event time, if it is there, stays.

    >>> select(pa.table({"a": [1, 2]}), ["a", "a * 2 AS twice"]).column("twice").to_pylist()
    [2, 4]
    """
    columns = _Columns(rows)
    shown = [item for text in expressions for item in _items(text, columns)]
    if TIME in rows.column_names:
        shown.append(_Passing(TIME, TIME))
    computed = [item for item in shown if isinstance(item, _Computed)]
    if any(item.expands for item in computed):
        # How many columns it makes only DuckDB knows: all go through it, to come out in order.
        computed = [columns.computed(item) if isinstance(item, _Passing) else item for item in shown]
        return _as_given(_run(rows, columns, computed, expressions), rows)
    if not computed:
        return _side_by_side(rows, shown, iter(()))
    found = _run(rows, columns, computed, expressions)
    return _side_by_side(rows, shown, zip(found.column_names, found.columns, strict=True))


def where(rows: pa.Table, condition: str) -> pa.Table:
    """The rows for which `condition` holds.

    >>> where(pa.table({"a": [1, 2]}), "a > 1").num_rows
    1
    """
    columns = _Columns(rows)
    return _kept(rows, columns, condition, columns.find)


def where_pairs(rows: pa.Table, condition: str, sides: Sides) -> pa.Table:
    """The pairs for which `condition` over ``l`` and ``r`` holds; `sides` says which columns those names are."""
    return _kept(rows, _Columns(rows), condition, _of_pairs(sides))


def goes_by_zone(expression: str, columns: pa.Schema, sides: Sides | None = None) -> bool:
    """Whether the value of an expression over some columns, or pairs, depends on the time zone of Spark's session.

    >>> columns = pa.schema({"at": pa.timestamp("us", "UTC"), "price": pa.int64()})
    >>> [goes_by_zone(text, columns) for text in ("price > 5", "at + INTERVAL 10 SECONDS", "hour(at)")]
    [False, False, True]
    """
    known = _Columns(columns.empty_table())
    if sides is not None:
        items: Iterable[_Item] = [known.bound(_parsed(expression), expression, _of_pairs(sides))]
    else:
        items = _items(expression, known)
    return any(isinstance(item, _Computed) and item.value is not None and item.value.by_zone for item in items)


def _of_pairs(sides: Sides) -> Find:
    """How names in a condition on pairs are found."""
    names = {side: _Names(columns, "this side of the join") for side, columns in zip("lr", sides, strict=True)}

    def find(parts: Sequence[str]) -> tuple[str, Sequence[str]]:
        side = parts[0].lower()
        if side not in names or len(parts) < 2:
            raise ConfigError(
                f"{'.'.join(parts)} is not a column of a pair. Write l.{parts[-1]} for the left row's or r.{parts[-1]} "
                f"for the right row's."
            )
        return sides["lr".index(side)][names[side].find(parts[1])], parts[2:]

    return find


def paths(expression: str, columns: pa.Schema) -> set[Path]:
    """The columns, and fields of structs, that an expression names.

    >>> sorted(paths("s.a + n", pa.schema({"s": pa.struct({"a": pa.int64(), "b": pa.int64()}), "n": pa.int64()})))
    [('n',), ('s', 'a')]
    """
    from sqlglot import exp

    known, tree = _Columns(columns.empty_table()), _parsed(expression)
    named: set[Path] = set()
    for node in tree.find_all(exp.Column):
        parts = [part.name for part in node.parts if not isinstance(part, exp.Star)]
        if parts:
            column, fields = known.find(parts)
            named.add((column, *known.fields(column, fields)))
    stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Column)]
    return named | {(name,) for name in known.names} if stars else named


@dataclass(frozen=True, slots=True)
class _Passing:
    """A column of the rows, under a name of its own."""

    name: str
    column: str


@dataclass(frozen=True, slots=True)
class _Computed:
    """An expression that DuckDB computes, and the columns it needs."""

    text: str
    needs: frozenset[str]
    value: Value | None = None
    """What is computed, if it is one value that an expression means."""
    expands: bool = False
    """Whether it may be several columns, as ``struct.*`` is."""


_Item = _Passing | _Computed


class _Names:
    """Names that an expression may use: as they are written, or in any case where that is clear."""

    def __init__(self, names: Iterable[str], of: str = "this stream") -> None:
        self._names = list(names)
        self._of = of
        self.folded: dict[str, list[str]] = {}
        for name in self._names:
            self.folded.setdefault(name.lower(), []).append(name)

    def find(self, name: str) -> str:
        """The name that is meant."""
        alike = self.folded.get(name.lower(), [])
        if name in alike:
            return name
        if len(alike) > 1:
            raise ConfigError(
                f"column={name!r} may be {' or '.join(map(repr, alike))}. Write it in upper and lower case as the "
                f"column is."
            )
        if not alike:
            raise ConfigError.unknown_column("column", name, self._names, self._of)
        return alike[0]


class _Columns:
    """The columns of some rows, and what DuckDB, to which ``a`` and ``A`` are one name, calls them."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.names = [name for name in rows.column_names if name != TIME]
        self._known = _Names(self.names)
        self.inside = {TIME: TIME}
        for folded, alike in self._known.folded.items():
            for number, name in enumerate(alike):
                inside = name
                while number and inside.lower() in self._known.folded:
                    inside, number = f"{folded}_{number}", number + 1
                self.inside[name] = inside

    def find(self, parts: Sequence[str]) -> tuple[str, Sequence[str]]:
        """The column of a dotted name, and the fields in it."""
        return self._known.find(parts[0]), parts[1:]

    def fields(self, column: str, names: Sequence[str]) -> Iterator[str]:
        """The fields of a column that names, one in the other, mean."""
        kind, path = self._rows.schema.field(column).type, column
        for name in names:
            if not pa.types.is_struct(kind):
                raise ConfigError(f"{path} has no field {name!r}: it is not a struct.")
            alike = [field for field in kind if field.name.lower() == name.lower()]
            if len(alike) != 1:
                raise ConfigError(
                    f"{path} has {'several fields' if alike else 'no field'} {name!r}. Its fields are: "
                    f"{', '.join(field.name for field in kind)}."
                )
            kind, path = alike[0].type, f"{path}.{alike[0].name}"
            yield alike[0].name

    def given(self, needs: Collection[str]) -> pa.Table:
        """Some columns, and how many rows there are, as DuckDB sees them."""
        needed = [name for name in self._rows.column_names if name in needs]
        given = self._rows.select(needed).rename_columns([self.inside[name] for name in needed])
        return given.append_column(_ROW, pa.nulls(self._rows.num_rows))

    def computed(self, item: _Passing) -> _Computed:
        """A column that passes, as an expression."""
        return _Computed(f"{quoted(self.inside[item.column])} AS {quoted(item.name)}", frozenset([item.column]))

    def bound(self, tree: exp.Expression, written: str, find: Find) -> _Computed:
        """A parsed expression over these columns."""
        from sqlglot import exp

        needs: set[str] = set()
        meant_by_names: list[tuple[str, ...]] = []

        def bind(node: exp.Expression) -> exp.Expression:
            if not isinstance(node, exp.Column):
                return node
            star = isinstance(node.this, exp.Star)
            parts = [part.name for part in node.parts if not isinstance(part, exp.Star)]
            if not parts:
                return node
            column, fields = find(parts)
            needs.add(column)
            inside = (self.inside[column], *self.fields(column, fields))
            meant_by_names.append(inside)
            names = [exp.to_identifier(name, quoted=True) for name in inside]
            if star:
                return exp.Column(this=exp.Star(), table=names[-1], db=names[-2] if len(names) > 1 else None)
            return exp.Dot.build([exp.Column(this=names[0]), *names[1:]]) if fields else exp.Column(this=names[0])

        try:
            bound = tree.copy().transform(bind)
            if isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star):
                return _Computed(bound.sql(dialect="duckdb"), frozenset(needs), expands=True)
            value, name = (bound.this, bound.alias) if isinstance(bound, exp.Alias) else (bound, written)
            meant = _meant(_Bound(written, tuple(meant_by_names), self.given(needs).schema, value))
            return _Computed(f"{meant.sql} AS {quoted(name)}", frozenset(needs), meant)
        except ConfigError as error:
            raise _cannot([written], error) from error
        except Exception as error:  # sqlglot raises whatever it meets
            raise _not_an_expression(written, error) from error


@dataclass(frozen=True, slots=True)
class _Bound:
    """An expression over columns that DuckDB knows: the text that was parsed, and what each name in it means."""

    written: str
    names: tuple[tuple[str, ...], ...]
    columns: pa.Schema
    tree: exp.Expression = field(compare=False)


@lru_cache(maxsize=1024)
def _meant(bound: _Bound) -> Value:
    """How DuckDB computes what an expression means in Spark."""
    import duckdb

    from penstock.expressions.meaning import in_duckdb

    with _engine(bound.columns.empty_table()) as engine:

        def type_of(sql: str) -> str:
            try:
                return str(engine.sql(f"SELECT {sql} FROM given").types[0])
            except (duckdb.Error, RuntimeError, ValueError) as error:
                raise ConfigError(_message(error)) from error

        return in_duckdb(bound.tree, type_of)


def _items(text: str, columns: _Columns) -> Iterator[_Item]:
    """What one expression of a select gives."""
    from sqlglot import exp

    tree = _parsed(text)
    if isinstance(tree, exp.Star):
        left_out = {columns.find([column.name])[0] for column in tree.args.get("except_") or ()}
        yield from (_Passing(name, name) for name in columns.names if name not in left_out)
        return
    plain = tree.this if isinstance(tree, exp.Alias) else tree
    if isinstance(plain, exp.Column) and len(plain.parts) == 1 and not isinstance(plain.this, exp.Star):
        try:
            column, _ = columns.find([plain.name])
        except ConfigError as error:
            raise _cannot([text], error) from error
        yield _Passing(tree.alias or column, column)
    else:
        yield columns.bound(tree, text, columns.find)


def _side_by_side(rows: pa.Table, shown: Sequence[_Item], computed: Iterator[tuple[str, pa.ChunkedArray]]) -> pa.Table:
    both = [next(computed) if isinstance(item, _Computed) else (item.name, rows.column(item.column)) for item in shown]
    return pa.table([column for _, column in both], names=[name for name, _ in both])


def _kept(rows: pa.Table, columns: _Columns, condition: str, find: Find) -> pa.Table:
    """The rows for which a condition holds."""
    bound = columns.bound(_parsed(condition), condition, find)
    if bound.value is None:
        raise ConfigError(f"{condition!r} is no condition: it gives several columns. Compare one with something.")
    try:
        check_condition(bound.value, condition)
    except ConfigError as error:
        raise _cannot([condition], error) from error
    return rows.filter(_run(rows, columns, [bound], [condition]).column(0).cast(pa.bool_()))


def _run(rows: pa.Table, columns: _Columns, computed: Sequence[_Computed], written: Sequence[str]) -> pa.Table:
    """What DuckDB computes."""
    import duckdb

    try:
        with _engine(columns.given(frozenset().union(*(item.needs for item in computed)))) as engine:
            return engine.sql(f"SELECT {', '.join(item.text for item in computed)} FROM given").to_arrow_table()
    except (duckdb.Error, RuntimeError, ValueError) as error:
        if rows.num_rows and isinstance(error, duckdb.DataError | duckdb.InvalidInputException):
            raise FlowError.in_rows(", ".join(written), _message(error)) from error
        raise _cannot(written, error) from error


@contextmanager
def _engine(given: pa.Table) -> Iterator[Any]:
    """A connection to DuckDB that sees some rows, under the name ``given``, and nothing else."""
    with _database().cursor() as engine:
        engine.register("given", given)
        yield engine


@cache
def _database() -> Any:
    """The DuckDB of this process: starting one takes longer than most expressions."""
    import duckdb

    from penstock.expressions import casing, casts, times

    database = duckdb.connect()
    database.execute(casing.macros() + times.MACROS + casts.MACROS + _SETTINGS)
    return database


# A child would have it without its threads, and wait for them at its end.
os.register_at_fork(before=_database.cache_clear)
# What lives longer than its module is told on stderr as a leak.
atexit.register(_database.cache_clear)

_SETTINGS = """
    SET GLOBAL TimeZone = 'UTC';
    SET GLOBAL python_enable_replacements = false;
    SET enable_external_access = false;
    SET lock_configuration = true;
"""


def _as_given(found: pa.Table, rows: pa.Table) -> pa.Table:
    """DuckDB gives back some types as others (large strings, zones); a column that only passed keeps its own."""
    for place, name in enumerate(found.column_names):
        column, given = found.column(place), rows.schema.get_field_index(name)
        if given >= 0 and _same_family(column.type, rows.schema.field(given).type):
            found = found.set_column(place, name, column.cast(rows.schema.field(given).type))
    return found


def _same_family(a: pa.DataType, b: pa.DataType) -> bool:
    return a == b or (pa.types.is_timestamp(a) and pa.types.is_timestamp(b)) or {str(a), str(b)} <= _STRINGS


_KIND = re.compile(r"^[\w ]+ Error: ")
"""How DuckDB begins a message."""

_NO_DATE = "Date out of range"
"""What it says of days after a date that it does not have. Spark counts on from its first date there."""

_COLOURS = re.compile("\\x1b\\[[0-9;]*m")
"""How a parser underlines a word in a terminal."""

_STRINGS = {"string", "large_string", "string_view"}


def _parsed(expression: str) -> exp.Expression:
    """An expression of Spark's, parsed."""
    if not isinstance(expression, str):
        raise ConfigError(
            f"{expression!r} is a {type(expression).__name__}; in a local flow, write the expression as a string."
        )
    return _tree(expression)


@lru_cache(maxsize=1024)
def _tree(expression: str) -> exp.Expression:
    try:
        import sqlglot
        from sqlglot import exp

        from penstock.sql.dialect import Spark4
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "SQL expressions in a local flow need two more packages: pip install 'penstock[local]'."
        ) from missing
    try:
        tree: Any = sqlglot.parse_one(expression, read=Spark4)
    except Exception as error:  # sqlglot raises whatever it meets
        raise _not_an_expression(expression, error) from error
    is_value = isinstance(tree, _values(exp))
    if not is_value or tree.find(exp.Query, exp.DDL, exp.Command, exp.Table) is not None:
        raise ConfigError(
            f"{expression!r} is a statement or holds a query, but an expression computes a value from one row. "
            f"Write one over the stream's columns, as in 'amount * 2'."
        )
    _check_literals(expression, tree)
    return tree


def _check_literals(written: str, tree: exp.Expression) -> None:
    """Refuse dates and timestamps that there are not, as Spark does before there are rows."""
    import duckdb

    from penstock.expressions.meaning import typed_literals

    for literal, sql in typed_literals(tree):
        try:
            with _database().cursor() as engine:
                engine.execute(f"SELECT {sql}")
        except duckdb.Error as error:
            raise _cannot([written], ConfigError(f"{literal}: {_message(error)}")) from error


def _message(error: Exception) -> str:
    """What DuckDB says, in a line."""
    said = _KIND.sub("", in_a_line(str(error)))
    return f"{said}: Spark may have more dates than there are in process" if said == _NO_DATE else said


def _values(exp: Any) -> tuple[type, ...]:
    """What stands for a value."""
    return (exp.Condition, exp.Alias, exp.Star, exp.Paren, exp.Interval, exp.Aliases, exp.Tuple)


def _cannot(written: Sequence[str], error: Exception) -> ConfigError:
    return ConfigError(f"{', '.join(written)!r} cannot be computed: {error}")


def _not_an_expression(written: str, error: Exception) -> ConfigError:
    if isinstance(error, RecursionError):
        return ConfigError(
            f"{written[:60]!r}… is nested too deeply to be read. Compute parts of it in a .select(…) before."
        )
    return ConfigError(f"{written!r} is not a Spark SQL expression: {_COLOURS.sub('', str(error))}")
