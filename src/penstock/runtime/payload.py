"""Payload that stays in its source: which columns of a flow may stay, and where rows fetch them.

A join only needs keys and times; its other columns matter only for rows that become results. Such a column may be left
behind: the row has null in it, and one more column has the row's place in its source. The first step that needs the
column, at the latest a sink, fetches it from there. A row whose place is null carries all its columns; so what rows of
a source carry may change from one epoch to the next, and state never has to be rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.core.files import Path, Payload
from penstock.core.operator import Origin
from penstock.core.rows import PLACE
from penstock.expressions import evaluate
from penstock.flow.graph import (
    Fetched,
    FetchNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
)
from penstock.flow.sinks import Sink
from penstock.runtime.steps import quoted
from penstock.storage.payload import Paths


class Late(NamedTuple):
    """The columns of a source that may be left behind, what fetches them, and the host's data with one more column.

    Steps before a join may still need some of `paths`; `lets_go` are the others.
    """

    paths: Paths
    lets_go: Paths
    home: Any
    data: Any
    payload: Payload
    """What is asked for."""
    width: float = 0.0
    """About how many bytes `lets_go` takes per row."""
    why: str = ""
    """Why payload is where it is, if that does not change while the flow runs."""


def place_of(source: SourceNode) -> str:
    """The column that says where a row of a source is in it."""
    return f"{PLACE}{source.name}"


def untouched(sinks: Sequence[Sink], sources: Collection[SourceNode]) -> dict[SourceNode, Paths]:
    """The columns of some sources, and fields of structs, that joins pass on and only sinks need.

    They include columns that nothing uses after a join. A source whose rows reach no join has none.
    """
    found = _Found.on_the_way_to(sinks, sources)
    guarded = {node.input for node in found.seen if isinstance(node, StatementNode)}
    return {
        source: frozenset(path for path in found.carried[source] if not _overlaps(path, found.used[source]))
        for source in sources
        if source in found.carried and source not in guarded
    }


def detached(sinks: Sequence[Sink], late: Mapping[SourceNode, Late]) -> list[Sink]:
    """The sinks of the same flow, over streams that leave some columns behind and fetch them where they are needed."""
    return detached_and_told(sinks, late)[0]


def detached_and_told(sinks: Sequence[Sink], late: Mapping[SourceNode, Late]) -> tuple[list[Sink], Told]:
    """The same, and which columns of the ports of operators rows may lack in state, and what these are in a source."""
    making = _Making(late)
    return [making.sink(sink) for sink in sinks], making.told


def read_late(source: SourceNode, paths: Paths, sinks: Sequence[Sink]) -> Paths:
    """The paths of a source that need not be read: those of `paths` that no step before a join asks for."""
    found = _Found.on_the_way_to(sinks, [source])
    return frozenset(path for path in paths if not _overlaps(path, found.used_before_joins[source]))


class _Origin(NamedTuple):
    """Where a column comes from untouched, and whether it has passed a join."""

    source: SourceNode
    path: Path
    joined: bool


@dataclass
class _Found:
    """Follows columns from sources to sinks: which are used on the way, and which only pass a join."""

    sources: frozenset[SourceNode]
    used: dict[SourceNode, set[Path]] = field(default_factory=dict)
    used_before_joins: dict[SourceNode, set[Path]] = field(default_factory=dict)
    carried: dict[SourceNode, set[Path]] = field(default_factory=dict)
    seen: dict[Node, dict[str, _Origin]] = field(default_factory=dict)
    """Of each stream, the columns that come from a source untouched, and whether they have passed a join."""

    @classmethod
    def on_the_way_to(cls, sinks: Sequence[Sink], sources: Collection[SourceNode]) -> _Found:
        """What is found of some sources; a sink that takes their rows without a join uses all it takes."""
        found = cls(frozenset(sources))
        for sink in sinks:
            if sink.emits == "results":
                origins = found.of(sink.node)
                found._use([(name,) for name, (*_, joined) in origins.items() if not joined], origins)
        return found

    def of(self, node: Node) -> dict[str, _Origin]:
        """The columns of a stream that come from a source untouched."""
        if node not in self.seen:
            self.seen[node] = self._follow(node)
        return self.seen[node]

    def _follow(self, node: Node) -> dict[str, _Origin]:
        if isinstance(node, SourceNode):
            if node not in self.sources:
                return {}
            self.used.setdefault(node, {(str(node.time),)})
            self.used_before_joins.setdefault(node, {(str(node.time),)})
            return {name: _Origin(node, (name,), False) for name in node.given.names}
        given = [self.of(part) for part in node.inputs]
        if isinstance(node, WhereNode):
            self._use(evaluate.paths(node.condition, node.input.columns), given[0])
            return given[0]
        if isinstance(node, SelectNode):
            return self._selected(node, given[0])
        if isinstance(node, OperatorNode):
            return self._operated(node, given)
        for part, origins in zip(node.inputs, given, strict=True):
            self._use([(name,) for name in part.columns.names], origins)
        return {}

    def _selected(self, node: SelectNode, given: Mapping[str, _Origin]) -> dict[str, _Origin]:
        origins = {}
        for text in node.expressions:
            passed = evaluate.passing(text, node.input.columns)
            if passed is None:
                self._use(evaluate.paths(text, node.input.columns), given)
                continue
            for name, (column, *fields) in passed:
                if column in given:
                    source, path, joined = given[column]
                    origins[name] = _Origin(source, (*path, *fields), joined)
        return origins

    def _operated(self, node: OperatorNode, given: Sequence[Mapping[str, _Origin]]) -> dict[str, _Origin]:
        carried = node.config.carries(node.types)
        for port, (rows, origins) in enumerate(zip(node.types, given, strict=True)):
            needed = _looked_at(node, port, carried)
            for name in rows.columns.names:
                if name in needed:
                    self._use([(name,)], origins)
                elif name in origins:
                    self.carried.setdefault(origins[name].source, set()).add(origins[name].path)
        origins = {
            name: given[origin.port][origin.column]._replace(joined=True)
            for name, origin in carried.items()
            if origin.column in given[origin.port]
        }
        if node.pairs is not None:
            named = evaluate.needs_of_pairs(node.pairs.condition, node.columns, node.pairs.sides)
            self._use([(name,) for name in named], origins)
        return origins

    def _use(self, paths: Iterable[Path], given: Mapping[str, _Origin]) -> None:
        for column, *fields in paths:
            if column in given:
                source, path, joined = given[column]
                self.used[source].add((*path, *fields))
                if not joined:
                    self.used_before_joins[source].add((*path, *fields))


def _looked_at(node: OperatorNode, port: int, carried: Mapping[str, Origin]) -> set[str]:
    """The columns of a port that an operator must have: all that it does not merely carry to its results.

    A column that results do not have at all, as of the right side of a semi join, is never asked for either.
    """
    rows = node.types[port]
    if not carried:
        return set(rows.columns.names)
    passed = {origin.column for origin in carried.values() if origin.port == port}
    shown = {origin.column for origin in node.config.origins(node.types).values() if origin.port == port}
    return {name for name in rows.columns.names if name in rows.keys or name == rows.time or name in shown - passed}


def _overlaps(path: Path, others: Iterable[Path]) -> bool:
    """Whether a column or field is part of another one, or has it as a part."""
    return any(path[: len(other)] == other[: len(path)] for other in others)


class _Missing(NamedTuple):
    """What is missing in a column: which part of the source it is, by which column of places."""

    row: str
    home: Any
    path: Path
    width: float
    """About how many bytes rows have left in the source."""


class _Made(NamedTuple):
    """A stream, rewritten: which of its columns, or fields in them, may be missing."""

    node: Node
    missing: dict[Path, _Missing]

    @property
    def rows(self) -> list[str]:
        """The columns of places that it has."""
        return list(dict.fromkeys(each.row for each in self.missing.values()))


Told = dict[str, list[dict[str, str]]]
"""By the name of an operator, for each port, what columns are that rows may lack."""


class _Making:
    """Rewrites the flow: adds columns of places, and fetches missing columns where they are needed."""

    def __init__(self, late: Mapping[SourceNode, Late]) -> None:
        self.told: Told = {}
        self._late = late
        self._made: dict[Node, _Made] = {}
        self._whole: dict[Node, Node] = {}

    def sink(self, sink: Sink) -> Sink:
        """A sink; it takes rows that miss nothing."""
        return replace(sink, node=self._of(sink.node).node if sink.emits == "late" else self._complete(sink.node))

    def _of(self, node: Node) -> _Made:
        if node not in self._made:
            self._made[node] = self._write(node)
        return self._made[node]

    def _complete(self, node: Node) -> Node:
        """A stream with all its columns, and no others."""
        if node not in self._whole:
            made = self._of(node)
            fetched = _joined(node) or not made.rows
            self._whole[node] = self._fetch(made, node, made.rows).node if fetched else _without_rows(made.node, node)
        return self._whole[node]

    def _write(self, node: Node) -> _Made:
        if isinstance(node, SourceNode):
            return self._source(node)
        if isinstance(node, WhereNode):
            made = self._with(node.input, evaluate.paths(node.condition, node.input.columns))
            return _Made(replace(node, columns=_with_rows(node.columns, made), input=made.node), made.missing)
        if isinstance(node, SelectNode):
            return self._select(node)
        if isinstance(node, UnionNode):
            return _Made(replace(node, members=tuple(map(self._complete, node.members))), {})
        if isinstance(node, StatementNode):
            source = self._of(node.input).node
            if not isinstance(source, SourceNode):
                raise TypeError(source)
            return _Made(replace(node, input=source), {})
        if isinstance(node, OperatorNode):
            return self._operator(node)
        raise TypeError(node)

    def _source(self, node: SourceNode) -> _Made:
        if node not in self._late:
            return _Made(node, {})
        row, late = place_of(node), self._late[node]
        columns = node.columns.append(pa.field(row, pa.int64()))
        made = replace(
            node,
            columns=columns,
            row=row,
            home=late.home,
            data=late.data,
            lets_go=late.lets_go,
            payload=late.payload,
            width=late.width,
            why=late.why,
        )
        return _Made(made, {path: _Missing(row, late.home, path, late.width) for path in sorted(late.paths)})

    def _select(self, node: SelectNode) -> _Made:
        columns, texts, used = node.input.columns, [], set()
        passed: list[tuple[str, Path]] = []
        for text in node.expressions:
            names = evaluate.passing(text, columns)
            if names is None:
                used |= evaluate.paths(text, columns)
                texts.append(text)
                continue
            passed += names
            star = all(len(path) == 1 for _, path in names)
            texts += [f"{quoted(p[0])} AS {quoted(n)}" for n, p in names] if star else [text]
        made = self._with(node.input, used)
        missing = {
            (name, *part[len(path) :]): what
            for name, path in passed
            for part, what in made.missing.items()
            if part[: len(path)] == path
        }
        rows = list(dict.fromkeys(each.row for each in missing.values()))
        whole = pa.schema([*node.columns, *(pa.field(row, pa.int64()) for row in rows)])
        expressions = (*texts, *map(quoted, rows))
        return _Made(replace(node, columns=whole, input=made.node, expressions=expressions), missing)

    def _operator(self, node: OperatorNode) -> _Made:
        carried = node.config.carries(node.types)
        parts: list[_Made] = []
        for port, part in enumerate(node.inputs):
            made = self._with(part, [(name,) for name in _looked_at(node, port, carried)])
            if not carried:
                made = _Made(made.node, {})
            taken = {row for earlier in parts for row in earlier.rows}
            parts.append(self._told_apart(made, taken, f"{node.name}:{port}"))
        self.told[node.name] = [
            {".".join(part): f"{what.row}: {'.'.join(what.path)}" for part, what in made.missing.items()}
            for made in parts
        ]
        types = tuple(
            replace(rows, columns=pa.schema([*rows.columns, *(pa.field(row, pa.int64()) for row in made.rows)]))
            for rows, made in zip(node.types, parts, strict=True)
        )
        whole = replace(node, columns=node.config.output(types), inputs=tuple(made.node for made in parts), types=types)
        origins = node.config.carries(types)
        shown = {tuple(origin): name for name, origin in origins.items()}
        missing = {
            (name, *part[1:]): what._replace(row=shown[origin.port, what.row])
            for name, origin in origins.items()
            for part, what in parts[origin.port].missing.items()
            if part[0] == origin.column
        }
        if node.pairs is not None:
            named = evaluate.needs_of_pairs(node.pairs.condition, node.columns, node.pairs.sides)
            clash = next((name for name in sorted(named) if (name,) in missing), None)
            if clash is not None:
                raise AskedTooSoonError(node.name, clash)
        return _Made(whole, missing)

    def _told_apart(self, made: _Made, taken: Collection[str], where: str) -> _Made:
        """A stream whose columns of places have names that no other stream of the same operator has."""
        again = {row: f"{row}@{where}" for row in made.rows if row in taken}
        if not again:
            return made
        node = made.node
        columns = pa.schema([field.with_name(again.get(field.name, field.name)) for field in node.columns])
        texts = tuple(f"{quoted(name)} AS {quoted(again.get(name, name))}" for name in node.columns.names)
        step = SelectNode(
            columns=columns, time=node.time, unit=node.unit, timed=node.timed, input=node, expressions=texts
        )
        return _Made(step, {p: m._replace(row=again.get(m.row, m.row)) for p, m in made.missing.items()})

    def _with(self, node: Node, used: Iterable[Path]) -> _Made:
        """A stream that has what is used of it; before a join, the source itself brings that."""
        made, used = self._of(node), list(used)
        wanted = {m.row for part, m in made.missing.items() if _overlaps(part, used)}
        if not wanted or not _joined(node):
            return made
        return self._fetch(made, node, [row for row in made.rows if row in wanted])

    def _fetch(self, made: _Made, node: Node, rows: Sequence[str]) -> _Made:
        """A stream with what is missing by some columns of places, and without these columns.

        Unlike between stores (F08), no order moves fewer bytes: each payload is read from files by its own places, and
        none is handed on to the next source. By the order rows are sorted as well: the units of the source with the
        most payload, which comes last, are read one after the other. Its widths are those of the start, so that a
        repeated epoch does the same.
        """
        if not rows:
            return made
        fetched = []
        widths = {what.row: what.width for what in made.missing.values()}
        for row in sorted(rows, key=lambda each: widths[each]):
            ours = {(part, what) for part, what in made.missing.items() if what.row == row}
            columns = {part[0]: what.path[: len(what.path) - len(part) + 1] for part, what in sorted(ours, key=str)}
            home = next(iter(ours))[1].home
            fetched.append(Fetched(row, home, tuple(sorted(columns.items()))))
        missing = {part: what for part, what in made.missing.items() if what.row not in rows}
        left = [row for row in made.rows if row not in rows]
        whole = FetchNode(
            columns=pa.schema([*node.columns, *(pa.field(row, pa.int64()) for row in left)]),
            time=node.time,
            unit=node.unit,
            timed=node.timed,
            input=made.node,
            fetched=tuple(fetched),
        )
        return _Made(whole, missing)


class AskedTooSoonError(Exception):
    """A condition on pairs needs a column that state has without its values."""

    def __init__(self, operator: str, column: str) -> None:
        super().__init__(
            f"where= of {operator} needs {column!r}, which rows in its state have left in their source. Write the "
            f"condition as .where(…) of the results."
        )


def _with_rows(columns: pa.Schema, made: _Made) -> pa.Schema:
    return pa.schema([*columns, *(pa.field(row, pa.int64()) for row in made.rows)])


def _without_rows(made: Node, node: Node) -> Node:
    """A stream that no operator has made, without its columns of places: its source has read what it needs."""
    return SelectNode(
        columns=node.columns,
        time=node.time,
        unit=node.unit,
        timed=node.timed,
        input=made,
        expressions=tuple(map(quoted, node.columns.names)),
    )


def _joined(node: Node) -> bool:
    """Whether an operator has made a stream's rows: a source itself reads what steps before need."""
    while isinstance(node, SelectNode | WhereNode):
        node = node.input
    return isinstance(node, OperatorNode)
