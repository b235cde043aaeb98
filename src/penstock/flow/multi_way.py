"""Multi-way joins: reads and checks the arguments, and builds the join from joins of two by a plan.

Every stream is a relation with an alias. Internally, its columns are prefixed with its number, so that no two have the
same name; the last step restores the names that users know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa

from penstock.core.errors import ConfigError, PlanError
from penstock.core.files import Payload
from penstock.core.rows import RowType, first_twice
from penstock.core.within import Always, Band, Tumbling, Within
from penstock.flow.graph import Node, OperatorNode, SelectNode, SourceNode, WhereNode, time_type
from penstock.flow.keys import check_clocks, check_comparable, common_key
from penstock.flow.plans import Materialize, Part, PlannedJoin
from penstock.operators.multi_way import MultiJoin, MultiJoinMethodLike, read_method
from penstock.operators.multi_way.plan import (
    Leaf,
    Linear,
    Plan,
    Predicate,
    Tree,
    check_predicates,
    leaves,
    left_deep,
    predicates_of,
)
from penstock.operators.window_join import JoinTime, Near
from penstock.planner.multi_way import Planned, first_plan
from penstock.planner.multi_way import Relation as Size
from penstock.planner.payload import HomePilot
from penstock.sql.names import quoted

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

End = tuple[str, str]
"""A column of a relation: (alias, column)."""

KeyLike = str | Sequence[str]
"""The columns that identify a row of a stream: one, or several."""

_OWN = 16
"""Bytes of every row on its way to a join besides its columns: the hash of its key, and its time."""

_TEXT = 16
"""Assumed bytes of a string."""

_PLAIN = 8
"""Assumed bytes of a computed column."""


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """One stream of a join, and its place among the others."""

    alias: str
    place: int
    stream: Stream

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.stream.columns.names)

    @property
    def time(self) -> str:
        """The column with its event time."""
        return str(self.stream._node.time)

    @property
    def prefix(self) -> str:
        """The prefix of its columns' names inside the join."""
        return f"r{self.place}_"

    def inside(self, column: str) -> str:
        """The name of a column inside the join."""
        return f"{self.prefix}{column}"

    def renamed(self) -> Stream:
        """The stream, with the names of its columns inside the join."""
        node = self.stream._node
        return self.stream._made(
            SelectNode(
                columns=pa.schema([field.with_name(self.inside(field.name)) for field in node.columns]),
                time=self.inside(self.time),
                unit=node.unit,
                input=node,
                expressions=tuple(f"{quoted(name)} AS {quoted(self.inside(name))}" for name in self.columns),
            )
        )


class Side(NamedTuple):
    """A part of the plan that has been built: its rows, and the relations in them."""

    rows: Stream
    relations: tuple[Relation, ...]


class MultiWay:
    """One multi-way join while it is built."""

    def __init__(
        self,
        streams: Mapping[str, Stream],
        on: str | Sequence[str],
        within: Within | None,
        key: Mapping[str, KeyLike] | None = None,
        asked: Mapping[str, Materialize] | None = None,
        homes: Mapping[SourceNode, Payload] | None = None,
    ) -> None:
        self._relations = {
            alias: Relation(alias, place, stream) for place, (alias, stream) in enumerate(streams.items())
        }
        self._flow = next(iter(streams.values()))._flow
        self._asked = asked or {}
        self._homes = homes or {}
        self._within = Always() if within is None else within
        self._sql = _conditions()
        self._predicates, self._conditions = self._read(_listed(on))
        self._check()
        self._keys = self._read_keys(key)

    def build(
        self,
        plan: str,
        time: str,
        name: str | None,
        method: MultiJoinMethodLike = "auto",
        when: Literal["at once", "later"] = "at once",
    ) -> Stream:
        """The results, in the epoch of their last row or, with `later`, in the next one."""
        self._check_time(time)
        called, by = self._flow._operator_name(name, "join"), read_method(method)
        chosen, why = self._plan(plan, method, called)
        join = PlannedJoin(
            called, chosen, why, self._keys, self._sizes, self._widths(), self._asked, self._flow._leaves_payload
        )
        if _is_linear(chosen, by):
            results = self._linear(join, time, by, name)
        elif by == "auto":
            results = self._built(join, time, name).rows
        else:
            raise ConfigError(
                f"method={method!r} is for one operator that joins all streams, but plan={plan!r} is a tree of joins. "
                f"Write plan={' '.join(self._relations)!r}, or leave method= out."
            )
        if when == "later":
            ends = (self._inside(end) for each in self._predicates for end in _ends(each))
            key = next(column for column in ends if column in results.columns.names)
            results = results._later(key, None if name is None else f"{name}-later")
        results = self._shown(results)
        for condition in self._conditions:
            if len({alias for alias, _ in self._named(condition)}) > 1:
                results = results.where(self._over_results(condition))
        return results

    def _read(self, on: Sequence[str]) -> tuple[tuple[Predicate, ...], list[Any]]:
        """Equalities of columns of two streams, and all other conditions."""
        if not on:
            raise PlanError(
                "on=[] joins nothing. Write which columns are equal, as in on=['li.orderkey = o.orderkey']."
            )
        predicates, conditions = [], []
        for text in on:
            if not isinstance(text, str):
                raise PlanError.not_a_condition(text)
            for node in self._sql.conditions_of(text):
                equal = self._sql.equal_columns(node)
                self._check_named(text, node)
                if equal is not None and equal[0][0] != equal[1][0]:
                    (ours, mine), (theirs, other) = equal
                    predicates.append(Predicate(ours, mine, theirs, other))
                else:
                    conditions.append(node)
        return predicates_of(predicates), conditions

    def _check_named(self, text: str, node: Any) -> None:
        """Raise unless all columns of a condition are written with the stream they are of."""
        columns = self._sql.columns_of(node)
        if not columns:
            raise PlanError.about_nothing(text)
        for first, *rest in columns:
            if rest and first not in self._relations and not any(first in r.columns for r in self._relations.values()):
                raise PlanError.unknown_alias("on", text, first, self._relations)
            if not rest or first not in self._relations:
                raise PlanError.names_no_stream(text, ".".join([first, *rest]), self._relations)

    def _named(self, condition: Any) -> set[End]:
        """The columns that a condition is about."""
        return {(parts[0], parts[1]) for parts in self._sql.columns_of(condition)}

    def _check(self) -> None:
        aliases = list(self._relations)
        check_predicates(self._predicates, aliases)
        ends = [end for each in self._predicates for end in _ends(each)]
        for alias, column in [*ends, *(end for text in self._conditions for end in sorted(self._named(text)))]:
            known = self._relations[alias].columns
            if column not in known:
                raise ConfigError.unknown_column(f"on={alias}.{column}", column, known)
        for each in self._predicates:
            fields = []
            for rel in (each.left_rel, each.right_rel):
                relation, column = self._relations[rel], each.column(rel)
                if column == relation.time:
                    raise ConfigError(f"on={str(each)!r} compares the time of {rel}, which within= does. Leave it out.")
                fields.append(relation.stream.columns.field(column).with_name(f"{rel}.{column}"))
            common_key(*fields)
        first = next(iter(self._relations.values()))
        for relation in self._relations.values():
            node = relation.stream._node
            if node.time is None:
                raise ConfigError(
                    f"{relation.alias} has no single event time: its time column was dropped, or it has two. "
                    f"Select its time column, or write time= where it was joined."
                )
            if node.unit != first.stream._node.unit:
                raise ConfigError(
                    f"The time of {first.alias} counts {first.stream._node.unit}, that of {relation.alias} "
                    f"{node.unit}: they cannot be compared. Bring both to a timestamp (or both to an integer)."
                )
        check_clocks({alias: time_type(relation.stream._node) for alias, relation in self._relations.items()})
        if not isinstance(self._within, Always | Band | Tumbling):
            raise ConfigError(
                f"within={self._within!r} is not a time condition. "
                f"Write pk.band(before='10 min', after='10 min'), or leave it out to join the full history."
            )

    def _read_keys(self, key: Mapping[str, KeyLike] | None) -> dict[str, tuple[str, ...]]:
        """The columns that tell the rows of streams apart; they exist, each is named once, and they can be compared."""
        if key is None:
            return {}
        if not isinstance(key, Mapping):
            raise ConfigError(
                f"key={key!r} names no stream. Write key={{{next(iter(self._relations))!r}: ['id']}}, with the columns "
                f"that identify a row of a stream."
            )
        keys = {}
        for alias, given in key.items():
            if alias not in self._relations:
                raise ConfigError(
                    f"key={{{alias!r}: …}} names no stream of this join. Its streams are: {', '.join(self._relations)}."
                )
            columns = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (given,)
            if not columns:
                raise ConfigError(
                    f"key={{{alias!r}: []}} names no column. Name the columns that identify a row, or leave {alias} "
                    f"out of key=: its rows are then identified by their position in the stream."
                )
            known = self._relations[alias].stream.columns
            for column in columns:
                if not isinstance(column, str):
                    raise ConfigError.not_a_column(f"key={{{alias!r}: …}}", column)
                if column not in known.names:
                    raise ConfigError.unknown_column(f"key={{{alias!r}: …}}", column, known.names)
                check_comparable(known.field(column), f"key={{{alias!r}: …}}")
            twice = first_twice(columns)
            if twice is not None:
                raise ConfigError(f"key={{{alias!r}: {list(columns)!r}}} names {twice!r} twice. Write it once.")
            keys[alias] = columns
        return keys

    @cached_property
    def _sizes(self) -> dict[str, Size | None]:
        """About how many rows each stream has now, and how wide they are; None of those of which it cannot be told."""
        return {alias: self._size(relation) for alias, relation in self._relations.items()}

    def _size(self, relation: Relation) -> Size | None:
        source = _only_source(relation.stream._node)
        sizes = None if source is None else self._flow._sizes_of(source)
        if sizes is None:
            return None
        ends = {column for each in self._predicates for rel, column in _ends(each) if rel == relation.alias}
        looked_at = ends | {relation.time}
        widths = {column: sizes.widths.get(column, _PLAIN) for column in relation.columns}
        keys = sum(widths[column] for column in looked_at)
        return Size(sizes.rows, _OWN + keys, sum(widths.values()) - keys)

    def _widths(self) -> dict[End, float]:
        """About how many bytes the columns have that streams are joined by."""
        ends = [end for each in self._predicates for end in _ends(each)]
        types = {(alias, name): self._relations[alias].stream.columns.field(name).type for alias, name in ends}
        return {end: kind.bit_width / 8 if pa.types.is_primitive(kind) else _TEXT for end, kind in types.items()}

    def _travels(self, relation: Relation, size: Size | None) -> bool:
        """Whether rows of a stream are expected to bring their payload."""
        asked, source = self._asked.get(relation.alias, "auto"), _only_source(relation.stream._node)
        if asked != "auto" or source is None or size is None or not source.files:
            return asked != "late"
        home = self._homes.get(source, source.payload)
        if home == "auto":
            return not self._flow._leaves_payload or not HomePilot("auto", size.payload).late
        return home == "row"

    def _plan(self, text: str, method: MultiJoinMethodLike, name: str) -> Planned:
        aliases = list(self._relations)
        written = text != "auto"
        if text == "auto" and method != "auto" and not self._has_one_key():
            raise ConfigError(
                f"method={method!r} joins all streams in one operator, which needs every key in every stream; on= does "
                f"not give that. Leave method= out."
            )
        if text == "auto" and (method != "auto" or (len(aliases) > 2 and self._has_one_key())):
            text = " ".join(aliases)
        if text != "auto":
            why = "as plan= says" if written else "one operator sends no partial results, and all streams have its key"
            return Planned(Plan.parse(text, self._predicates, aliases), why)
        before = self._flow._plans_on_record
        if before is None:
            travel = [alias for alias, size in self._sizes.items() if self._travels(self._relations[alias], size)]
            return first_plan(self._predicates, self._sizes, self._keys, travel)
        try:
            return Planned(Plan.parse(before[name], self._predicates, aliases), "chosen at the first start")
        except (KeyError, PlanError):
            # Of a checkpoint from before plans were chosen, or of another join: then starting it tells what differs.
            return Planned(Plan(left_deep(aliases, self._predicates), self._predicates), "in the order of the streams")

    def _built(self, join: PlannedJoin, time: str, name: str | None) -> Side:
        """The whole tree, from the leaves up."""
        plan, built = join.plan, dict[Tree, Side]()
        for node in plan.nodes:
            if isinstance(node, Leaf):
                relation = self._relations[node.rel]
                built[node] = Side(self._filtered(relation).renamed(), (relation,))
                continue
            left, right = (built[child] for child in node.children)
            called = None if name is None else name if node == plan.root else f"{name}-{_spelled(node)}"
            part = Part(join, node, node.children)
            built[node] = self._join(left, right, plan.at(node), time, called, part)
        return built[plan.root]

    def _filtered(self, relation: Relation) -> Relation:
        """A relation without the rows that a condition on it alone drops."""
        stream = relation.stream
        for condition in self._conditions:
            if {alias for alias, _ in self._named(condition)} == {relation.alias}:
                stream = stream.where(self._sql.over(condition, self._relations, lambda _, column: column))
        return replace(relation, stream=stream)

    def _linear(self, join: PlannedJoin, time: str, method: MultiJoinMethodLike, name: str | None) -> Stream:
        """All streams in one operator."""
        relations = [self._filtered(relation) for relation in self._relations.values()]
        on = self._one_key(join.plan)
        types = _row_types(relations, on)
        config = MultiJoin(
            on=on,
            within=self._within,
            time=self._relations[time].place if time in self._relations else time,  # type: ignore[arg-type]
            prefixes=tuple(relation.prefix for relation in relations),
            names=tuple(self._relations),
            unit=relations[0].stream._node.unit,
            method=method,
        )
        stream, clock = relations[0].stream, config.clock(types)
        node = OperatorNode(
            columns=config.output(types),
            time=clock[0] if len(clock) == 1 else None,
            unit=config.unit,
            clock=clock,
            name=stream._flow._operator_name(name, "join"),
            inputs=tuple(relation.stream._node for relation in relations),
            config=config,
            types=types,
            timing=config.timing,
            part=Part(join, join.plan.root, tuple(map(Leaf, self._relations))),
        )
        return stream._made(node)

    def _has_one_key(self) -> bool:
        """Whether one operator can join all streams."""
        return Plan(left_deep(list(self._relations), self._predicates), self._predicates).has_one_key

    def _one_key(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """The key columns of each stream: one for each of the columns that are equal in all of them."""
        keys: dict[str, list[str]] = {alias: [] for alias in self._relations}
        ends = [(each.left_rel, each.left_column) for each in self._predicates]
        for equal in dict.fromkeys(map(self._class_of, ends)):
            columns = {alias: sorted(column for rel, column in equal if rel == alias) for alias in keys}
            missing = next((alias for alias, ours in columns.items() if not ours), None)
            if missing is not None:
                rel, column = min(equal)
                raise ConfigError(
                    f"plan={str(plan)!r} joins all streams in one operator, which needs every key in every stream. "
                    f"{rel}.{column} is a key of this join, but on= sets no column of {missing} equal to it. "
                    f"Write plan={str(left_deep(list(keys), self._predicates))!r}, or add such a column to on=."
                )
            # If one stream has several columns that are equal to a single one of another, that one stands for each.
            most = max(map(len, columns.values()))
            for alias, ours in columns.items():
                keys[alias] += [*ours, *ours[:1] * (most - len(ours))]
        return tuple(map(tuple, keys.values()))

    def _join(
        self, left: Side, right: Side, predicates: Sequence[Predicate], time: str, name: str | None, part: Part
    ) -> Side:
        relations = left.relations + right.relations
        aliases = {relation.alias for relation in left.relations}
        ends = [(each.left_rel, each.right_rel)[:: 1 if each.left_rel in aliases else -1] for each in predicates]
        pairs = tuple(
            (self._relations[ours].inside(each.column(ours)), self._relations[theirs].inside(each.column(theirs)))
            for each, (ours, theirs) in zip(predicates, ends, strict=True)
        )
        kind: JoinTime = "latest"
        members: tuple[Relation, ...] = relations
        if time == "earliest":
            kind = "earliest"
        elif time in self._relations and self._relations[time] in relations:
            members = (self._relations[time],)
            kind = "left" if time in aliases else "right"
        within, near = self._near(left, right)
        rows = left.rows._joined(
            right.rows,
            pairs,
            within,
            time=kind,
            name=name,
            keys="apart",
            near=near,
            clock=tuple(relation.inside(relation.time) for relation in members),
            part=part,
        )
        return Side(rows, relations)

    def _near(self, left: Side, right: Side) -> tuple[Within, tuple[Near, ...]]:
        """How near the times of two sides must be at least, and those of which members exactly.

        Sides go by the latest of their members' times. If every two members are within a band, so are these, within one
        that is as wide as the wider of its ends where some pairs are written the other way round.
        """
        within = self._within
        if not isinstance(within, Band):
            return within, ()
        pairs = [
            (ours, theirs, within if ours.place < theirs.place else _turned(within))
            for ours in left.relations
            for theirs in right.relations
        ]
        if len(pairs) == 1:
            return pairs[0][2], ()
        before = max((band.before for _, _, band in pairs), key=lambda end: end.amount)
        after = max((band.after for _, _, band in pairs), key=lambda end: end.amount)
        near = tuple((ours.inside(ours.time), theirs.inside(theirs.time), band) for ours, theirs, band in pairs)
        return Band(before, after), near

    def _shown(self, rows: Stream) -> Stream:
        """The results with the names that users know."""
        names = self._names()
        expressions = [
            f"{quoted(self._relations[alias].inside(column))} AS {quoted(name)}"
            for (alias, column), name in names.items()
        ]
        shown = rows.select(*expressions)
        # A time that is one stream's is still the event time, under its new name.
        time = next((name for end, name in names.items() if self._inside(end) == rows._node.time), None)
        return rows._made(replace(shown._node, time=time)) if time is not None else shown

    def _inside(self, end: End) -> str:
        return self._relations[end[0]].inside(end[1])

    def _names(self) -> dict[End, str]:
        """What the results call each column: by its own name if no other has it, or all that have it are joined by it.

        Else it is led by the alias, and the relation whose column is shown stands for those that equal it.
        """
        having: defaultdict[str, list[End]] = defaultdict(list)
        for relation in self._relations.values():
            for column in relation.columns:
                having[column].append((relation.alias, column))
        names: dict[End, str] = {}
        for column, ends in having.items():
            if len({self._class_of(end) for end in ends}) == 1:
                names[ends[0]] = column
            else:
                names |= {end: f"{end[0]}_{column}" for end in ends}
        twice = first_twice(names.values())
        if twice is not None:
            ours = ", ".join(f"{alias}.{column}" for (alias, column), name in names.items() if name == twice)
            raise ConfigError(f"{ours} would be called {twice!r}. Rename one of them before the join, with .select(…).")
        # In the order of the relations, as SELECT * would show them.
        order = [(relation.alias, column) for relation in self._relations.values() for column in relation.columns]
        return {end: names[end] for end in order if end in names}

    def _class_of(self, end: End) -> frozenset[End]:
        """All columns that are equal in every result because `on` says so."""
        equal = {end}
        while more := {each for p in self._predicates if equal & _ends(p) for each in _ends(p)} - equal:
            equal |= more
        return frozenset(equal)

    def over_results(self, expression: str) -> str:
        """An expression over ``alias.column`` as one over the columns of the results."""
        return expression if expression == "*" else self._over_results(self._sql.parsed(expression))

    def _over_results(self, condition: Any) -> str:
        shown = self._names()

        def name(alias: str, column: str) -> str:
            if column not in self._relations[alias].columns:
                raise ConfigError.unknown_column(alias, column, self._relations[alias].columns)
            end = (alias, column)
            return shown.get(end) or next(shown[twin] for twin in self._class_of(end) if twin in shown)

        return str(self._sql.over(condition, self._relations, name))

    def _check_time(self, time: str) -> None:
        if time not in ("latest", "earliest", *self._relations):
            raise ConfigError(
                f"time={time!r} is not a time of the results. Write 'latest', 'earliest', or one of "
                f"{', '.join(self._relations)}."
            )


def _is_linear(plan: Plan, method: MultiJoinMethodLike) -> bool:
    """Whether a plan is one operator; two streams are joined by one tree only, which is linear if a method asks so."""
    flat = all(isinstance(child, Leaf) for child in plan.root.children)
    return isinstance(plan.root, Linear) or (flat and method != "auto")


def _only_source(node: Node) -> SourceNode | None:
    """The source whose rows a stream has, if it is one alone and no operator came between."""
    while isinstance(node, SelectNode | WhereNode):
        if isinstance(node, SelectNode) and node.expands:
            return None
        node = node.input
    return node if isinstance(node, SourceNode) else None


def _row_types(relations: Sequence[Relation], on: Sequence[Sequence[str]]) -> tuple[RowType, ...]:
    """The rows of each port, with keys of types that can be compared."""
    columns = [relation.stream.columns for relation in relations]
    # A column may be a key more than once: each may widen it, and with it those that it is compared with elsewhere.
    for names in [names for _ in relations for names in zip(*on, strict=True)]:
        shown = [
            kinds.field(name).with_name(f"{relation.alias}.{name}")
            for relation, kinds, name in zip(relations, columns, names, strict=True)
        ]
        common = reduce(lambda key, other: key.with_type(common_key(key, other)), shown)
        for port, (kinds, name) in enumerate(zip(columns, names, strict=True)):
            columns[port] = kinds.set(kinds.get_field_index(name), kinds.field(name).with_type(common.type))
    return tuple(
        RowType(kinds, tuple(keys), relation.stream._node.time)
        for kinds, keys, relation in zip(columns, on, relations, strict=True)
    )


def _conditions() -> Any:
    """The module that reads conditions; its parser is loaded only once one is asked for."""
    try:
        from penstock.sql import conditions
    except ModuleNotFoundError as missing:
        raise ConfigError("Joins of several streams need one more package: pip install 'penstock[local]'.") from missing
    return conditions


def _listed(on: object) -> Sequence[Any]:
    """Conditions, where one may stand for itself."""
    if isinstance(on, str):
        return [on]
    if isinstance(on, Mapping):
        pairs = ", ".join(repr(f"{ours} = {theirs}") for ours, theirs in on.items())
        raise PlanError(f"on={on!r} is a mapping, which a.join(b, on=…) takes. Write conditions: on=[{pairs}].")
    if not isinstance(on, Sequence):
        raise PlanError(
            f"on={on!r} is not a list of conditions. Write on=['a.k = b.k', …]; pk.near and pk.intersects join two "
            f"streams, by a.join(b, on=…)."
        )
    return on


def _ends(predicate: Predicate) -> set[End]:
    return {(predicate.left_rel, predicate.left_column), (predicate.right_rel, predicate.right_column)}


def _spelled(tree: Tree) -> str:
    """A part of a plan as part of a name."""
    return "-".join(leaf.rel for leaf in leaves(tree))


def _turned(band: Band) -> Band:
    """The same band, seen from the other row."""
    ends = {"[)": "(]", "(]": "[)"}.get(band.ends, band.ends)
    return Band(band.after, band.before, ends)  # type: ignore[arg-type]
