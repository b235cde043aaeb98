"""How two sources are joined: keys, nearness in time, the kind, and what else is asked of each side and of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from penstock.core.within import Always
from penstock.sql.clause import Clause, join_window
from penstock.sql.description import Join, JoinKind, Several, Source
from penstock.sql.scan import Place
from penstock.sql.sources import Columns, from_items, names_of_join, names_of_one
from penstock.sql.text import Names, Node, Text, rewritten

_KINDS: dict[str, JoinKind] = {
    "": "inner",
    "INNER": "inner",
    "CROSS": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "LEFT SEMI": "semi",
    "LEFT ANTI": "anti",
}


def read_join(
    text: Text, tree: Node, sources: tuple[Source, ...], clauses: dict[Place, Clause], columns: Columns
) -> tuple[Join, tuple[Source, ...]]:
    """The join, and its sources with the conditions on each alone.

    Equalities of columns, one of either side, are keys. A condition on one side is asked of it before the join, one on
    both of the pairs.
    """
    left, right = sources
    how = _how(text, tree)
    names = names_of_join(text, sources, columns)
    conditions = [(condition, _sides(condition, names)) for condition in _conditions(tree)]
    keys = [key for condition, _ in conditions if (key := _key(condition, left)) is not None]
    rest = [(condition, sides) for condition, sides in conditions if _key(condition, left) is None]
    if not keys:
        _refuse_fields(text, (condition for condition, sides in conditions if len(sides) == 2))
        raise text.wrong(
            from_items(text, tree)[1],
            f"No key joins {left.alias} and {right.alias}. Write WHERE {left.alias}.k = {right.alias}.k.",
        )
    if rest and how != "inner":
        raise text.wrong(rest[0][0], f"ON of a {how} join takes keys only. Filter the streams before they meet.")
    within = (
        join_window(*(_clause(text, tree, sources, clauses, number) for number in (0, 1)))
        if any(("FROM", number) in clauses for number in (0, 1))
        else Always()
    )
    pairs = _all([c for c, sides in rest if len(sides) != 1], names_of_join(text, sources, columns, ("l", "r")))
    alone = [_all([c for c, sides in rest if sides == {s.alias}], names_of_one(text, s, columns)) for s in sources]
    filtered = (replace(source, where=where) for source, where in zip(sources, alone, strict=True))
    return Join(tuple(keys), within, how, pairs), tuple(filtered)


def read_several(
    text: Text, tree: Node, sources: tuple[Source, ...], clauses: dict[Place, Clause], columns: Columns
) -> Several:
    """A join of three sources or more. Without windows it is over all rows there ever were; else all have the same."""
    for join in tree.args["joins"]:
        if _said(join) not in ("", "INNER", "CROSS"):
            raise text.wrong(
                join.this, f"{_said(join)} JOIN takes two streams. Join these in a query of their own, or write JOIN."
            )
    names = names_of_join(text, sources, columns)
    on = tuple(rewritten(condition, names) for condition in _conditions(tree))
    given = [clauses.get(("FROM", number)) for number in range(len(sources))]
    first = next((clause for clause in given if clause is not None), None)
    if first is None:
        return Several(on, None)
    for number, clause in enumerate(given):
        if clause is None or clause.text("RANGE") != first.text("RANGE") or clause.text("SLIDE") != first.text("SLIDE"):
            raise text.wrong(
                from_items(text, tree)[number],
                f"In a join of several streams all have the same window, and another has RANGE {first.text('RANGE')}. "
                f"Write {sources[number].alias} [RANGE {first.text('RANGE')}], or no window at all.",
            )
    return Several(on, join_window(first, first))


def _said(join: Node) -> str:
    return f"{join.side} {join.kind}".upper().replace("OUTER", "").strip()


def _how(text: Text, tree: Node) -> JoinKind:
    join, where = tree.args["joins"][0], tree.args.get("where")
    said = _said(join)
    if said not in _KINDS:
        known = ", ".join(kind for kind in _KINDS if kind)
        raise text.wrong(join.this, f"{said} JOIN is not supported. Write one of {known} before JOIN.")
    if where is not None and _KINDS[said] != "inner":
        raise text.wrong(
            where, f"WHERE would also drop unmatched rows of a {said} JOIN. Filter the streams before they meet."
        )
    return _KINDS[said]


def _conditions(tree: Node) -> Iterator[Node]:
    """All that WHERE and ON ask for, one by one."""
    where = tree.args.get("where")
    for condition in (where.this if where else None, *(join.args.get("on") for join in tree.args["joins"])):
        if condition is not None:
            yield from condition.flatten() if isinstance(condition, exp.And) else [condition]


def _sides(condition: Node, names: Names) -> set[str]:
    """The aliases of the sources that a condition is about."""
    return {names(column).split(".")[0] for column in condition.find_all(exp.Column)}


def _key(condition: Node, left: Source) -> tuple[str, str] | None:
    """The columns (left, right) that a condition says are equal, if that is what it says."""
    both = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
    whole = all(isinstance(part, exp.Column) and len(part.parts) == 2 for part in both)
    if not both or not whole or both[0].table == both[1].table:
        return None
    ours, theirs = both if both[0].table == left.alias else both[::-1]
    return ours.name, theirs.name


def _refuse_fields(text: Text, conditions: Iterable[Node]) -> None:
    """Refuse fields of structs as the only keys of a join."""
    for condition in conditions:
        both = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
        field = next((part for part in both if isinstance(part, exp.Column) and len(part.parts) > 2), None)
        if field is not None:
            stream, name = field.parts[0].name, ".".join(part.name for part in field.parts[1:])
            raise text.wrong(
                field,
                f"A key is a column, not a field of one. Make it one: flow.sql(query, {stream}=stream.select('*', "
                f"'{name} AS {field.name}')).",
            )


def _clause(text: Text, tree: Node, sources: tuple[Source, ...], clauses: dict[Place, Clause], number: int) -> Clause:
    if ("FROM", number) not in clauses:
        raise text.wrong(
            from_items(text, tree)[number],
            f"A join must say how long a row can be met. Write {sources[number].alias} [RANGE 2 minutes WATTR ts].",
        )
    return clauses["FROM", number]


def _all(conditions: list[Node], names: Names) -> str | None:
    return " AND ".join(rewritten(condition, names) for condition in conditions) or None
