"""Reads a query: its plain part by sqlglot, its window clauses by `scan` and `clause`; says where it cannot."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from penstock.core.durations import Duration
from penstock.core.errors import SqlError
from penstock.core.windows import Sliding, Window
from penstock.sql.aggregates import PenstockSql, is_call, read_call
from penstock.sql.clause import Clause, Meaning, aggregate_window
from penstock.sql.description import Call, Column, Query
from penstock.sql.joins import read_join, read_several
from penstock.sql.names import quoted
from penstock.sql.scan import Place, scan
from penstock.sql.sources import Columns, names_of_join, names_of_one, read_sources
from penstock.sql.text import Names, Node, Text, rewritten, spelled, unaliased

WINDOW_COLUMNS = ("window_start", "window_end")
"""Columns of the result that say which window it is of."""

_SEVERAL = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}
_UNITS = ("second", "minute", "hour", "day")


def read(sql: str, columns: Columns | None = None) -> Query:
    """What a query says; `columns` are those of each stream that it may name.

    >>> read("SELECT * FROM a [RANGE 3 minutes], b [RANGE 2 minutes] WHERE a.srcIP = b.destIP").join.on
    (('srcIP', 'destIP'),)
    """
    if not isinstance(sql, str):
        raise SqlError(f"{sql!r} is a {type(sql).__name__}, not a query. Write it as text: 'SELECT … FROM …'.")
    try:
        return _read(sql, columns or {})
    except RecursionError as error:
        raise _unreadable(sql, error) from error


def _read(sql: str, columns: Columns) -> Query:
    plain, clauses = scan(sql)
    text, tree = Text(sql), _tree(sql, plain)
    sources = read_sources(text, tree, clauses)
    aliases = tuple(source.alias for source in sources)
    if len(sources) == 1:
        names, where = names_of_one(text, sources[0], columns), tree.args.get("where")
        asked = _Asked(text, tree, names, aliases, clauses, ())
        condition = rewritten(where.this, names) if where else None
        return Query(asked.select(), sources, where=condition, **asked.grouped())
    join, several = None, None
    if len(sources) == 2:
        join, sources = read_join(text, tree, sources, clauses, columns)
    else:
        several = read_several(text, tree, sources, clauses, columns)
    times = tuple(f"{source.alias}.{quoted(source.time)}" for source in sources if source.time)
    after = {place: clause for place, clause in clauses.items() if place[0] == "SELECT"}
    asked = _Asked(text, tree, names_of_join(text, sources, columns), aliases, after, times)
    return Query(asked.select(), sources, join, several, **asked.grouped())


class _Grouping(NamedTuple):
    """What GROUP BY says: columns, and the window of ``ts(minute)``."""

    columns: tuple[str, ...]
    window: Meaning | None


class _Asked:
    """What is asked of the rows of the sources: the window, the groups, the columns of the result.

    `closing` are the columns that a group is complete by without a window.
    """

    def __init__(
        self,
        text: Text,
        tree: Node,
        names: Names,
        aliases: tuple[str, ...],
        clauses: dict[Place, Clause],
        closing: tuple[str, ...],
    ) -> None:
        self._aliases = aliases
        self._text, self._tree, self._names = text, tree, names
        self._check_plain()
        grouping = self._grouping()
        meaning = self._meaning(clauses, grouping)
        partition = meaning.partition if meaning is not None else ()
        self._groups = (*partition, *(column for column in grouping.columns if column not in partition))
        self._window: Window | None = meaning.window if meaning is not None else None
        self._time = meaning.time if meaning is not None else None
        self._closed = meaning is not None or bool(set(self._groups) & set(closing))

    def grouped(self) -> dict[str, Any]:
        """The fields of a query that are about groups and windows."""
        having = self._having(self.select())
        return {"window": self._window, "time": self._time, "groups": self._groups, "having": having}

    def select(self) -> tuple[Column | Call, ...]:
        """The columns of the result."""
        nodes = self._tree.expressions
        items = tuple(self._item(node) for node in nodes)
        first = next((node for node, item in zip(nodes, items, strict=True) if isinstance(item, Call)), None)
        if first is not None:
            self._check_grouped(nodes, items, first)
        elif self._groups or self._window is not None:
            raise self._text.wrong(nodes[0], "Windows and groups are for aggregates. Select one, as count(*).")
        return items

    def _check_plain(self) -> None:
        """Refuse what changes the meaning of aggregates and groups, before it is taken for something else."""
        for node in self._tree.expressions:
            if (filtered := node.find(exp.Filter)) is not None:
                raise self._text.wrong(
                    filtered,
                    "FILTER is not supported. Aggregate values only where the condition holds, as in "
                    "count(CASE WHEN k > 1 THEN 1 END).",
                )
        group = self._tree.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            raise self._text.wrong_group("ALL", "GROUP BY ALL is not supported. Name the columns, as in GROUP BY k.")
        for kind, word in _SEVERAL.items():
            if group.find(kind) is not None:
                raise self._text.wrong_group(
                    word, f"{word} would group rows in several ways at once. Write a query for each way."
                )

    def _check_grouped(self, nodes: list[Node], items: tuple[Column | Call, ...], first: Node) -> None:
        if not self._closed:
            raise self._text.wrong(
                first,
                "Without a window this has no end, and so no result. Write a clause after it, as in "
                "count(*) [RANGE 10 minutes SLIDE 1 minute WATTR ts].",
            )
        names = [item.name for item in items]
        for node, item in zip(nodes, items, strict=True):
            if names.count(item.name) > 1:
                raise self._text.wrong(node, f"Two columns are called {item.name}. Write AS and another name.")
            if isinstance(item, Column) and item.expression not in (*self._groups, *WINDOW_COLUMNS):
                raise self._text.wrong(
                    node,
                    f"{item.expression} differs from row to row. Add it to GROUP BY, or aggregate it.",
                )

    def _item(self, node: Node) -> Column | Call:
        inner = unaliased(node)
        if is_call(self._text, inner):
            return read_call(self._text, inner, node.alias, self._names)
        for part in inner.walk():
            if is_call(self._text, part):
                raise self._text.wrong(
                    part,
                    "Aggregates are selected by themselves. Compute with them in a .select(…) of the results.",
                )
        if self._is_all(inner):
            return Column("*", "*")
        written = str(inner.name) if _is_window_column(inner) else rewritten(inner, self._names)
        return Column(written, node.alias or (inner.name if isinstance(inner, exp.Column | exp.Dot) else written))

    def _is_all(self, node: Node) -> bool:
        """Whether a node is ``s.*`` of the only stream."""
        return (
            len(self._aliases) == 1
            and isinstance(node, exp.Column)
            and (isinstance(node.this, exp.Star) and node.table == self._aliases[0])
        )

    def _grouping(self) -> _Grouping:
        group = self._tree.args.get("group")
        columns, window = [], None
        for item in group.expressions if group else ():
            if isinstance(item, exp.Column) and not self._is_field(item):
                columns.append(rewritten(item, self._names))
            elif (window := _tumbling(item)) is None:
                raise self._text.wrong(
                    item, "GROUP BY takes columns and ts(minute). Compute other groups in a .select(…) of the stream."
                )
        return _Grouping(tuple(columns), window)

    def _is_field(self, column: Node) -> bool:
        """Whether a column is a field of a struct: its name has more parts than an alias and a column."""
        return len(sqlglot.parse_one(rewritten(column, self._names), read=PenstockSql).parts) > len(self._aliases)

    def _meaning(self, clauses: dict[Place, Clause], grouping: _Grouping) -> Meaning | None:
        """The one window that all clauses ask for."""
        meaning = grouping.window
        for place, clause in clauses.items():
            if place[0] == "SELECT" and not is_call(self._text, unaliased(self._tree.expressions[place[1]])):
                raise clause.wrong(
                    None, "A window clause follows an aggregate, as in count(*) [RANGE …]. Move it there."
                )
            another = aggregate_window(clause)
            if meaning not in (None, another):
                raise clause.wrong(
                    None, f"A query has one window, and it was {meaning.window} before. Write two queries."
                )
            meaning = another
        return meaning

    def _having(self, select: tuple[Column | Call, ...]) -> str | None:
        """The condition on results, with the names of aggregates instead of them."""
        having = self._tree.args.get("having")
        if having is None:
            return None
        names = {_same(item): item.name for item in select if isinstance(item, Call)}
        shown = {item.name for item in select} - set(self._aliases)

        def named(node: Node) -> Node:
            if isinstance(node, exp.Column) and node.table and node.parts[0].name not in shown:
                return exp.var(self._names(node))
            if not is_call(self._text, node):
                return node
            call = _same(read_call(self._text, node, "", self._names))
            if call not in names:
                raise self._text.wrong(node, "HAVING is about columns of the result. Select this aggregate as well.")
            return exp.var(quoted(names[call]))

        return spelled(having.this.copy().transform(named))


def _unreadable(sql: str, error: Exception) -> SqlError:
    if isinstance(error, RecursionError):
        return SqlError("The query is nested too deeply to be read. Compute parts of it in an earlier .select(…).")
    return SqlError.at(sql, 0, len(sql), f"This cannot be read as SQL: {error}.")


def _tree(sql: str, plain: str) -> Node:
    try:
        tree = sqlglot.parse_one(plain, read=PenstockSql)
    except sqlglot.errors.ParseError as error:
        raise _not_sql(sql, error.errors) from error
    except Exception as error:  # sqlglot raises whatever it meets
        raise _unreadable(sql, error) from error
    if not isinstance(tree, exp.Select):
        raise SqlError.at(sql, 0, len(sql), "Only SELECT is supported. Write SELECT … FROM …")
    return tree


def _tumbling(item: Node) -> Meaning | None:
    """The window that ``ts(minute)`` in GROUP BY stands for."""
    if not isinstance(item, exp.Anonymous) or len(item.expressions) != 1:
        return None
    unit = item.expressions[0].name.lower()
    if unit not in _UNITS:
        return None
    length = Duration.of(f"1 {unit}")
    return Meaning(Sliding(length, length), item.name, ())


def _is_window_column(node: Node) -> bool:
    return isinstance(node, exp.Column) and not node.table and node.name in WINDOW_COLUMNS


def _same(call: Call) -> tuple[Any, ...]:
    """What makes two aggregates the same, whatever they are called."""
    return call.function, call.column, call.arguments


def _not_sql(sql: str, errors: list[dict[str, Any]]) -> SqlError:
    hint = "Write SELECT … FROM … WHERE … GROUP BY … HAVING …"
    if not errors or not (word := errors[0]["highlight"] or "").strip():
        return SqlError.at(sql, len(sql.rstrip()), len(sql), f"The query ends too early. {hint}")
    before = sum(len(line) + 1 for line in sql.split("\n")[: errors[0]["line"] - 1])
    start = before + errors[0]["col"] - len(word)
    return SqlError.at(sql, start, start + len(word), f"{word!r} is not allowed here. {hint}")
