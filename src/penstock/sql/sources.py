"""FROM: the streams that a query asks, and the unions of some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp

from penstock.core.errors import SqlError
from penstock.sql.clause import Clause
from penstock.sql.description import Source
from penstock.sql.names import quoted
from penstock.sql.scan import Place
from penstock.sql.text import Names, Node, Text

Columns = Mapping[str, Collection[str]]
"""The columns of each stream, by its name: they tell a field of a struct from a column of a stream."""

_PLAIN = {"expressions", "from", "from_", "kind"}
"""What ``SELECT * FROM a`` has, and no more."""


def from_items(text: Text, tree: Node) -> list[Node]:
    """What stands in FROM, in order."""
    first = _from(tree)
    if first is None:
        raise text.wrong(tree, "There is no stream to ask. Write FROM and its name.")
    return [first.this, *(join.this for join in tree.args.get("joins") or [])]


def read_sources(text: Text, tree: Node, clauses: dict[Place, Clause]) -> tuple[Source, ...]:
    """The sources; in a join they have times of their own."""
    items = from_items(text, tree)
    if len(items) == 1:
        return (_source(text, items[0], None),)
    sources = tuple(_source(text, item, _time(clauses, number)) for number, item in enumerate(items))
    for number, source in enumerate(sources):
        if source.alias in [before.alias for before in sources[:number]]:
            which = "Both" if len(items) == 2 else "Two"
            raise text.wrong(
                items[number], f"{which} streams are called {source.alias}. Write AS and another name after one."
            )
    return sources


def names_of_one(text: Text, source: Source, columns: Columns) -> Names:
    """Columns of the only source, and fields of structs, by their names alone."""

    def name(column: Node) -> str:
        first, *rest = parts = parts_of(text, column, (source,))
        if rest and first == source.alias:
            return ".".join(map(quoted, rest))
        if rest and first not in _columns_of(source, columns):
            raise _unknown(text, column, (source,), columns)
        return ".".join(map(quoted, parts))

    return name


def names_of_join(
    text: Text, sources: tuple[Source, ...], columns: Columns, shown: tuple[str, str] | None = None
) -> Names:
    """Columns of a join, and fields of structs, by the alias of their source, or by what it is to be shown as."""
    aliases = [source.alias for source in sources]

    def name(column: Node) -> str:
        first, *rest = parts_of(text, column, sources)
        if not rest or first not in aliases:
            raise _unknown(text, column, sources, columns)
        return ".".join([(shown or aliases)[aliases.index(first)], *map(quoted, rest)])

    return name


def parts_of(text: Text, column: Node, sources: Sequence[Source]) -> list[str]:
    """What stands between the dots of a column: perhaps an alias, a name, perhaps fields of it."""
    if isinstance(column.this, exp.Star):
        alias = sources[0].alias
        raise text.wrong(
            column, f"All columns are * alone. Write that, or the columns one by one, as in {alias}.k, {alias}.t."
        )
    return [part.name for part in column.parts]


def _columns_of(source: Source, columns: Columns) -> Collection[str]:
    return columns.get(source.streams[0], ())


def _unknown(text: Text, column: Node, sources: Sequence[Source], columns: Columns) -> SqlError:
    """A column whose first part is no alias, as there must be one: the name of a struct, or of no stream."""
    first, *rest = (part.name for part in column.parts)
    whose = next((source for source in sources if first in _columns_of(source, columns)), None)
    asked = [first, *rest] if whose is not None or not rest else rest
    return text.wrong(
        column,
        f"Which stream is {'.'.join([first, *rest])} of? Write what FROM calls it, as in "
        f"{'.'.join([(whose or sources[0]).alias, *asked])}.",
    )


def _time(clauses: dict[Place, Clause], number: int) -> str | None:
    clause = clauses.get(("FROM", number))
    return clause.text("WATTR").strip("`") or None if clause is not None else None


def _source(text: Text, item: Node, time: str | None) -> Source:
    if isinstance(item, exp.Table):
        return Source((item.name,), item.alias_or_name, time=time)
    if isinstance(item, exp.Subquery) and (streams := _united(text, item.this)):
        return Source(tuple(streams), item.alias or "_".join(streams), time=time)
    raise text.wrong(
        item,
        "FROM takes streams and unions, as (SELECT * FROM a UNION ALL SELECT * FROM b) AS ab. Name a stream.",
    )


def _united(text: Text, node: Node) -> list[str]:
    """The streams that a union unites; none if it is not just that."""
    if isinstance(node, exp.Union):
        if node.args.get("distinct"):
            raise text.wrong(node, "UNION would have to remember all rows. Write UNION ALL.")
        members = _united(text, node.this), _united(text, node.expression)
        return [*members[0], *members[1]] if all(members) else []
    if not isinstance(node, exp.Select) or not {part for part, there in node.args.items() if there} <= _PLAIN:
        return []
    source, whole = _from(node), all(isinstance(item, exp.Star) for item in node.expressions)
    return [source.this.name] if whole and source is not None and isinstance(source.this, exp.Table) else []


def _from(tree: Node) -> Node | None:
    return tree.args.get("from_") or tree.args.get("from")
