"""Spark SQL expressions over Arrow tables, in process: parsed as Spark's, evaluated by DuckDB.

Only expressions that compute something, and only the columns they name, go through DuckDB; other columns, and fields of
structs, pass as they are, and Arrow itself compares with literals. DuckDB can read nothing else: no files, no
extensions, no Python variables.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.errors import ConfigError, FlowError
from penstock.core.files import Path
from penstock.core.rows import TIME, Indices
from penstock.expressions.kinds import Value, check_condition, quoted
from penstock.expressions.view import View, minutes
from penstock.flow.failures import in_a_line

if TYPE_CHECKING:
    from sqlglot import exp

    from penstock.expressions.native import Computation

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
    return selected(View.of(rows), expressions).table()


def where(rows: pa.Table, condition: str) -> pa.Table:
    """The rows for which `condition` holds.

    >>> where(pa.table({"a": [1, 2]}), "a > 1").num_rows
    1
    """
    return held(View.of(rows), condition).table()


def selected(rows: View, expressions: Sequence[str]) -> View:
    """The same of rows whose columns are copied when they are asked for; what is computed is computed now."""
    for text in expressions:
        _parsed(text)
    columns, shown = _shown(rows.schema, tuple(expressions))
    computed = [item for item in shown if isinstance(item, _Computed)]
    if any(item.expands for item in computed):
        # How many columns it makes only DuckDB knows: all go through it, to come out in order.
        everything = [item if isinstance(item, _Computed) else columns.computed(item) for item in shown]
        return View.of(_as_given(_run(rows, columns, everything, expressions), rows.schema))
    values = iter(_made(rows, columns, computed, expressions))
    return rows.showing(
        (item.name, next(values), ()) if isinstance(item, _Computed) else (item.name, item.column, item.path)
        for item in shown
    )


def held(rows: View, condition: str) -> View:
    """The rows for which a condition holds, their columns not yet copied."""
    _parsed(condition)
    columns, test = _tested(rows.schema, condition)
    if test.native is not None:
        return rows.kept(test.native(rows).combine_chunks())
    return rows.kept(_truth(_made(rows, columns, [test], [condition])[0]))


def where_pairs(rows: pa.Table, condition: str, sides: Sides) -> pa.Table:
    """The pairs for which `condition` over ``l`` and ``r`` holds; `sides` says which columns those names are."""
    known = tuple(tuple(side.items()) for side in sides)
    columns, test = _tested_pairs(rows.schema, condition, (known[0], known[1]))
    if test.native is not None:
        return rows.filter(test.native(View.of(rows)))
    return rows.filter(_truth(_run(View.of(rows), columns, [test], [condition]).column(0)))


def _truth(found: pa.ChunkedArray) -> pa.BooleanArray:
    return found.cast(pa.bool_()).combine_chunks()


def goes_by_zone(expression: str, columns: pa.Schema, sides: Sides | None = None) -> bool:
    """Whether the value of an expression over some columns, or pairs, depends on the time zone of Spark's session.

    >>> columns = pa.schema({"at": pa.timestamp("us", "UTC"), "price": pa.int64()})
    >>> [goes_by_zone(text, columns) for text in ("price > 5", "at + INTERVAL 10 SECONDS", "hour(at)")]
    [False, False, True]
    """
    return any(value.by_zone for value in _meanings(expression, columns, sides))


def goes_by_ansi(expression: str, columns: pa.Schema, sides: Sides | None = None) -> bool:
    """Whether an expression over some columns, or pairs, may have another value where Spark's ANSI mode is off.

    >>> columns = pa.schema({"price": pa.int64(), "name": pa.string()})
    >>> [goes_by_ansi(text, columns) for text in ("price > 5", "upper(name)", "price + 1", "cast(name AS INT)")]
    [False, False, True, True]
    """
    return any(value.by_ansi for value in _meanings(expression, columns, sides))


def _meanings(expression: str, columns: pa.Schema, sides: Sides | None) -> Iterator[Value]:
    """What an expression over some columns, or pairs, computes."""
    known = _Columns(columns)
    if sides is not None:
        items: Iterable[_Item] = [known.bound(_parsed(expression), expression, _of_pairs(sides))]
    else:
        items = _items(expression, known)
    yield from (item.value for item in items if isinstance(item, _Computed) and item.value is not None)


def _of_pairs(sides: Sides) -> Find:
    """How names in a condition on pairs are found."""
    names = {side: _Names(columns, "this side of the join") for side, columns in zip("lr", sides, strict=True)}

    def find(parts: Sequence[str]) -> tuple[str, Sequence[str]]:
        side = parts[0].lower()
        if side not in names or len(parts) < 2:
            raise ConfigError(
                f"{'.'.join(parts)} is not a column of a pair. Write l.{parts[-1]} for the left row, or r.{parts[-1]} "
                f"for the right row."
            )
        return sides["lr".index(side)][names[side].find(parts[1])], parts[2:]

    return find


def paths(expression: str, columns: pa.Schema) -> set[Path]:
    """The columns, and fields of structs, that an expression names.

    >>> sorted(paths("s.a + n", pa.schema({"s": pa.struct({"a": pa.int64(), "b": pa.int64()}), "n": pa.int64()})))
    [('n',), ('s', 'a')]
    """
    from sqlglot import exp

    known, tree = _Columns(columns), _parsed(expression)
    named: set[Path] = set()
    for node in tree.find_all(exp.Column):
        parts = [part.name for part in node.parts if not isinstance(part, exp.Star)]
        if parts:
            column, fields = known.find(parts)
            named.add((column, *known.fields(column, fields)))
    stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Column)]
    return named | {(name,) for name in known.names} if stars else named


def passing(expression: str, columns: pa.Schema) -> list[tuple[str, Path]] | None:
    """The columns, or fields of structs, that an expression passes on, by their new names; None if it computes.

    >>> columns = pa.schema({"s": pa.struct({"a": pa.int64()}), "n": pa.int64()})
    >>> passing("*", columns), passing("s.a AS a", columns), passing("n + 1", columns)
    ([('s', ('s',)), ('n', ('n',))], [('a', ('s', 'a'))], None)
    """
    from sqlglot import exp

    known, tree = _Columns(columns), _parsed(expression)
    plain = tree.this if isinstance(tree, exp.Alias) else tree
    if isinstance(plain, exp.Column) and len(plain.parts) > 1 and not isinstance(plain.this, exp.Star):
        column, fields = known.find([part.name for part in plain.parts])
        path = (column, *known.fields(column, fields))
        return [(tree.alias or path[-1], path)]
    items = list(_items(expression, known))
    passed: list[tuple[str, Path]] = [(item.name, (item.column,)) for item in items if isinstance(item, _Passing)]
    return passed if len(passed) == len(items) else None


def needs_of_pairs(condition: str, columns: pa.Schema, sides: Sides) -> frozenset[str]:
    """The columns of pairs that a condition over ``l`` and ``r`` names."""
    return _Columns(columns).bound(_parsed(condition), condition, _of_pairs(sides)).needs


@dataclass(frozen=True, slots=True)
class _Passing:
    """A column of the rows, or a field of one, under a name of its own."""

    name: str
    column: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Repeated:
    """What an expression goes by if many rows have it in common: the texts of columns, and the minutes of times."""

    texts: frozenset[str]
    moments: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Computed:
    """An expression that DuckDB computes, and the columns it needs."""

    name: str
    text: str
    needs: frozenset[str]
    value: Value | None = None
    """What is computed, if it is one value that an expression means."""
    expands: bool = False
    """Whether it may be several columns, as ``struct.*`` is."""
    repeated: _Repeated | None = None
    """What it is enough to compute it once for."""
    native: Computation | None = None
    """How it is computed without DuckDB, if it can be."""


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
                f"column={name!r} is ambiguous: it may be {' or '.join(map(repr, alike))}. Write the name exactly as "
                f"the column spells it, in upper and lower case."
            )
        if not alike:
            raise ConfigError.unknown_column("column", name, self._names, self._of)
        return alike[0]


class _Columns:
    """The columns of some rows, and what DuckDB, to which ``a`` and ``A`` are one name, calls them."""

    def __init__(self, columns: pa.Schema) -> None:
        self._schema = columns
        self.names = [name for name in columns.names if name != TIME]
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

    def place(self, parts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The column of a dotted name, and the fields that its other parts mean."""
        column, fields = self.find(parts)
        return column, tuple(self.fields(column, fields))

    def passes(self, parts: Sequence[str]) -> bool:
        """Whether a field comes out of DuckDB in the type that it has."""
        column, path = self.place(parts)
        kind = self._schema.field(column).type
        for name in path:
            kind = next(field.type for field in kind if field.name == name)
        return kind in _AS_THEY_ARE

    def fields(self, column: str, names: Sequence[str]) -> Iterator[str]:
        """The fields of a column that names, one in the other, mean."""
        kind, path = self._schema.field(column).type, column
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

    def given(self, rows: View, needs: Collection[str]) -> pa.Table:
        """Some columns, and how many rows there are, as DuckDB sees them."""
        needed = [name for name in self._schema.names if name in needs]
        columns = [*(rows.column(name).plain() for name in needed), pa.nulls(rows.num_rows)]
        return pa.table(columns, names=[*(self.inside[name] for name in needed), _ROW])

    def seen(self, needs: Collection[str]) -> pa.Schema:
        """The types of these."""
        fields = [self._schema.field(name).with_name(self.inside[name]) for name in self._schema.names if name in needs]
        return pa.schema([*fields, pa.field(_ROW, pa.null())])

    def computed(self, item: _Passing) -> _Computed:
        """A column that passes, as an expression."""
        path = ".".join(quoted(name) for name in (self.inside[item.column], *item.path))
        return _Computed(item.name, f"{path} AS {quoted(item.name)}", frozenset([item.column]))

    def condition(self, written: str, find: Find) -> _Computed:
        """A condition over these columns."""
        bound = self.bound(_parsed(written), written, find)
        if bound.value is None:
            raise ConfigError(f"{written!r} is not a condition: it gives several columns. Compare one of them.")
        try:
            check_condition(bound.value, written)
        except ConfigError as error:
            raise _cannot([written], error) from error
        return bound

    def repeated(self, tree: exp.Expression) -> _Repeated | None:
        """What an expression goes by, if it costs enough to look for rows that have the same of it."""
        from sqlglot import exp

        if all(isinstance(node, exp.Connector) for node in tree.find_all(exp.Func)):
            return None
        texts, moments = set(), set()
        for node in tree.find_all(exp.Column):
            column, fields = self.find([part.name for part in node.parts])
            kind = self._schema.field(column).type
            if not fields and pa.types.is_string(kind):
                texts.add(column)
            elif not fields and pa.types.is_timestamp(kind) and _by_minutes(node.parent):
                moments.add(column)
            else:
                return None
        return _Repeated(frozenset(texts), frozenset(moments)) if texts or moments else None

    def native(self, tree: exp.Expression) -> Computation | None:
        """How a value is computed without DuckDB, if it can be."""
        from penstock.expressions import native

        return native.value(tree, self._schema, self.place)

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
                return _Computed("", bound.sql(dialect="duckdb"), frozenset(needs), expands=True)
            value, name = (bound.this, bound.alias) if isinstance(bound, exp.Alias) else (bound, written)
            meant = _meant(_Bound(written, tuple(meant_by_names), self.seen(needs), value))
            return _Computed(name, f"{meant.sql} AS {quoted(name)}", frozenset(needs), meant)
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


@lru_cache(maxsize=256)
def _shown(columns: pa.Schema, expressions: tuple[str, ...]) -> tuple[_Columns, list[_Item]]:
    """What a select shows; the event time is always among it."""
    known = _Columns(columns)
    shown = [item for text in expressions for item in _items(text, known)]
    return known, [*shown, _Passing(TIME, TIME)] if TIME in columns.names else shown


@lru_cache(maxsize=256)
def _tested(columns: pa.Schema, written: str) -> tuple[_Columns, _Computed]:
    """A condition, and how Arrow computes it, if it can."""
    from penstock.expressions import native

    known = _Columns(columns)
    test, tree = known.condition(written, known.find), _parsed(written)
    return known, replace(test, repeated=known.repeated(tree), native=native.condition(tree, columns, known.place))


_Named = tuple[tuple[str, str], ...]
"""What a condition on pairs may call the columns of a side."""


@lru_cache(maxsize=256)
def _tested_pairs(columns: pa.Schema, written: str, sides: tuple[_Named, _Named]) -> tuple[_Columns, _Computed]:
    """A condition on pairs, and how Arrow computes it, if it can."""
    from penstock.expressions import native

    known, find = _Columns(columns), _of_pairs((dict(sides[0]), dict(sides[1])))

    def place(parts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        column, fields = find(parts)
        return column, tuple(known.fields(column, fields))

    return known, replace(known.condition(written, find), native=native.condition(_parsed(written), columns, place))


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
        return
    bound = columns.bound(tree, text, columns.find)
    if bound.expands:
        yield bound
    elif isinstance(plain, exp.Column) and columns.passes(parts := [part.name for part in plain.parts]):
        yield _Passing(bound.name, *columns.place(parts))
    else:
        yield replace(bound, repeated=columns.repeated(plain), native=columns.native(plain))


def _by_minutes(node: exp.Expression | None) -> bool:
    """Whether what a function gives of a time depends on its minute alone."""
    from sqlglot import exp

    if isinstance(node, exp.Cast | exp.TryCast):
        return bool(node.to.this == exp.DataType.Type.DATE)
    return isinstance(node, exp.Minute | exp.Hour | exp.Day | exp.Month | exp.Year)


def _made(
    rows: View, columns: _Columns, computed: Sequence[_Computed], written: Sequence[str]
) -> list[pa.ChunkedArray]:
    """What DuckDB computes; where many rows have in common what an expression goes by, once for all of these."""
    found = {}
    for place, item in enumerate(computed):
        if item.native is not None:
            with suppress(pa.ArrowInvalid):
                found[place] = item.native(rows)
    others = [place for place in range(len(computed)) if place not in found]
    for repeated in dict.fromkeys(computed[place].repeated for place in others):
        places = [place for place in others if computed[place].repeated == repeated]
        items = [computed[place] for place in places]
        alike = None if repeated is None else rows.alike(sorted(repeated.texts), sorted(repeated.moments))
        if alike is None:
            values = _run(rows, columns, items, written).columns
        else:
            firsts, which = alike
            needs = frozenset[str]().union(*(item.needs for item in items))
            few = pa.table({name: rows.column(name).at(firsts) for name in sorted(needs)})
            values = [_spread(column, which) for column in _of_few(few, columns, items, repeated, written).columns]
        found |= dict(zip(places, values, strict=True))
    return [found[place] for place in range(len(computed))]


def _of_few(
    rows: pa.Table, columns: _Columns, items: Sequence[_Computed], repeated: _Repeated | None, written: Sequence[str]
) -> pa.Table:
    """What DuckDB computes of a few rows; where it did so for rows that have the same in common, that is remembered."""
    if repeated is None or rows.nbytes > _SMALL:
        return _run(View.of(rows), columns, items, written).combine_chunks()
    held = [minutes(rows[name]) if name in repeated.moments else rows[name] for name in rows.column_names]
    key = (rows.schema, tuple(item.text for item in items), *(tuple(values.to_pylist()) for values in held))
    found = _REMEMBERED.get(key)
    if found is None:
        found = _run(View.of(rows), columns, items, written).combine_chunks()
        if len(_REMEMBERED) >= _MOST:
            _REMEMBERED.clear()
        if found.nbytes <= _SMALL:
            _REMEMBERED[key] = found
    return found


_REMEMBERED: dict[Any, pa.Table] = {}
"""What expressions gave for a few rows."""

_SMALL = 1 << 10
"""Bytes of such rows, and of what they gave, at most,"""

_MOST = 1 << 8
"""and how many of them are remembered: pieces that are read one after the other mostly have the same in common."""


def _spread(values: pa.ChunkedArray, which: Indices) -> pa.ChunkedArray:
    """For each row the value that it has in common with others."""
    if len(values) == 1:
        return pa.chunked_array([pa.repeat(values[0], len(which))], values.type)
    return values.take(pa.array(which))


def _run(rows: View, columns: _Columns, computed: Sequence[_Computed], written: Sequence[str]) -> pa.Table:
    """What DuckDB computes."""
    import duckdb

    try:
        with _engine(columns.given(rows, frozenset().union(*(item.needs for item in computed)))) as engine:
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


def _as_given(found: pa.Table, rows: pa.Schema) -> pa.Table:
    """DuckDB gives back some types as others (large strings, zones); a column that only passed keeps its own."""
    for place, name in enumerate(found.column_names):
        column, given = found.column(place), rows.get_field_index(name)
        if given >= 0 and _same_family(column.type, rows.field(given).type):
            found = found.set_column(place, name, column.cast(rows.field(given).type))
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

_AS_THEY_ARE = {
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
}  # fmt: skip
"""Types that DuckDB gives back as they are."""


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
            f"{written[:60]!r}… is nested too deeply to be read. Compute parts of it in an earlier .select(…)."
        )
    return ConfigError(f"{written!r} is not a Spark SQL expression: {_COLOURS.sub('', str(error))}")
