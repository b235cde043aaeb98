"""The plan of a multi-way join: a tree of stores over named relations, and the equalities that join them.

Every leaf is a relation store and every inner node but the root an intermediate store. A row that enters a store probes
the sibling's store; what matches is a row of their parent, which enters the parent's store in turn, or is a result at
the root. All predicates between the two sides of a node apply there, so several may connect a pair of relations and
they may form a cycle. An n-ary root (`Linear`) has no intermediate stores: a row probes the other relations one by one.

Plans are written as names in parentheses: ``(li o) s`` is two joins in turn, ``(li s) (o c)`` a bushy tree, and
``li o s`` one linear operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal, Self

from penstock.core.errors import ConfigError, PlanError

MOST_ENUMERATED = 6
"""Trees are enumerated for up to this many relations: a clique of six has 945."""

Columns = tuple[str, ...]
"""Names of columns."""

_PREDICATE = re.compile(r"\s*(\w+)\.(`[^`]+`|\w+)\s*==?\s*(\w+)\.(`[^`]+`|\w+)\s*")
_TOKEN = re.compile(r"[()]|[^()\s]+")


@dataclass(frozen=True, slots=True)
class Predicate:
    """An equality of two columns of different relations.

    >>> str(Predicate.parse("li.orderkey = o.orderkey"))
    'li.orderkey = o.orderkey'
    """

    left_rel: str
    left_column: str
    right_rel: str
    right_column: str

    def __post_init__(self) -> None:
        if self.left_rel == self.right_rel:
            raise PlanError.one_sided(self, self.left_rel)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``alias.column = alias.column``; a column with special characters goes in backticks."""
        found = _PREDICATE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise PlanError.not_a_predicate(text)
        return cls(*(part.strip("`") for part in found.groups()))

    @property
    def rels(self) -> frozenset[str]:
        """The two relations."""
        return frozenset((self.left_rel, self.right_rel))

    def column(self, rel: str) -> str:
        """The column of one of the two relations."""
        return self.left_column if rel == self.left_rel else self.right_column

    def connects(self, left: frozenset[str], right: frozenset[str]) -> bool:
        """Whether one relation is on each side."""
        return bool(self.rels & left) and bool(self.rels & right) and self.rels <= left | right

    def __str__(self) -> str:
        ends = ((self.left_rel, self.left_column), (self.right_rel, self.right_column))
        return " = ".join(f"{rel}.{name}" if name.isidentifier() else f"{rel}.`{name}`" for rel, name in ends)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation."""

    rel: str

    @property
    def rels(self) -> frozenset[str]:
        """The relation alone."""
        return frozenset((self.rel,))

    @property
    def children(self) -> tuple[Tree, ...]:
        """None."""
        return ()

    def __str__(self) -> str:
        return self.rel


@dataclass(frozen=True, slots=True)
class Node:
    """A join of two sides."""

    left: Leaf | Node
    right: Leaf | Node

    @property
    def rels(self) -> frozenset[str]:
        """The relations of both sides."""
        return self.left.rels | self.right.rels

    @property
    def children(self) -> tuple[Tree, ...]:
        """Both sides."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"{_in_parentheses(self.left)} {_in_parentheses(self.right)}"


@dataclass(frozen=True, slots=True)
class Linear:
    """One operator that joins all relations, without intermediate stores: the linear MSJ."""

    names: tuple[str, ...]

    @property
    def rels(self) -> frozenset[str]:
        """All relations."""
        return frozenset(self.names)

    @property
    def children(self) -> tuple[Tree, ...]:
        """A leaf per relation."""
        return tuple(Leaf(name) for name in self.names)

    def __str__(self) -> str:
        return " ".join(self.names)


Tree = Leaf | Node | Linear
"""A plan without its predicates. Each relation occurs once, so that equal subtrees are the same subtree."""

Kind = Literal["ingest", "probe", "store", "forward", "reconstruct", "emit"]
"""What an edge carries: input rows to their own store; stored rows to the sibling; partial results to their own store;
results without payload to the first store of the reconstruction, and from there to the next; results."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A channel between two stores, named by their trees; `source` or `target` is empty outside the plan.

    Rows find the task of the target by the values of `on`, which are ``rel.column`` of the rows that are sent; with
    none, they go to all its tasks.
    """

    kind: Kind
    source: str
    target: str
    on: Columns = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A tree and the predicates that join its relations.

    >>> plan = Plan.parse("(li o) s", ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> str(plan.sibling(Leaf("s"))), str(plan.parent(Leaf("li"))), plan.parent(plan.root)
    ('li o', 'li o', None)
    >>> [str(predicate) for predicate in plan.at(plan.root)]
    ['li.suppkey = s.suppkey']
    """

    root: Tree
    predicates: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        names = [leaf.rel for leaf in leaves(self.root)]
        _check(str(self.root), names, _mentioned(self.predicates) or names, self.predicates)
        for node in nodes(self.root):
            if isinstance(node, Node) and not _between(self.predicates, node.left.rels, node.right.rels):
                instead = str(left_deep(names, self.predicates))
                raise PlanError.cross_product(self.root, str(node.left), str(node.right), instead)

    @classmethod
    def parse(cls, text: str, on: Iterable[str | Predicate], rels: Iterable[str] = ()) -> Self:
        """Read a plan; `rels` are the relations of the join, those of the predicates if not given."""
        predicates = predicates_of(on)
        aliases = list(dict.fromkeys(rels)) or _mentioned(predicates)
        check_predicates(predicates, aliases)
        tree = _tree(text)
        _check(text, [leaf.rel for leaf in leaves(tree)], aliases or [text], predicates)
        return cls(tree, predicates)

    @property
    def rels(self) -> Columns:
        """The names of all relations, from left to right."""
        return tuple(leaf.rel for leaf in leaves(self.root))

    @property
    def nodes(self) -> tuple[Tree, ...]:
        """All subtrees, children before their parent, the root last."""
        return tuple(nodes(self.root))

    @property
    def stores(self) -> tuple[Tree, ...]:
        """All subtrees that have a store: all but the root."""
        return self.nodes[:-1]

    @property
    def intermediates(self) -> tuple[Node, ...]:
        """The inner nodes that have a store."""
        return tuple(node for node in self.stores if isinstance(node, Node))

    @property
    def has_one_key(self) -> bool:
        """Whether every relation has all keys, so that one operator can join them: its rows are sent to shards once.

        >>> Plan.parse("(a b) c", ["a.k = b.k", "b.k = c.j"]).has_one_key
        True
        """
        ends = [{(p.left_rel, p.left_column), (p.right_rel, p.right_column)} for p in self.predicates]
        return all({rel for rel, _ in _grown(each, ends)} == {*self.rels} for each in ends)

    def parent(self, node: Tree) -> Tree | None:
        """The node above, None for the root."""
        return next((each for each in self.nodes if node in each.children), None)

    def sibling(self, node: Tree) -> Tree:
        """The other side of the node above; only binary nodes have one."""
        parent = self.parent(node)
        if not isinstance(parent, Node):
            raise PlanError(f"{str(node)!r} has no sibling in plan={str(self)!r}: it is not one side of a binary join.")
        return parent.right if node == parent.left else parent.left

    def at(self, node: Tree) -> tuple[Predicate, ...]:
        """The predicates that a node evaluates: those between its sides, for a linear root all."""
        if isinstance(node, Leaf):
            return ()
        if isinstance(node, Linear):
            return self.predicates
        return _between(self.predicates, node.left.rels, node.right.rels)

    def grouping(self, node: Tree, other: Tree | None = None) -> Columns:
        """``rel.column`` of the rows of a side by which they meet those of its sibling, or of `other`.

        The n-th column of a side equals the n-th of the other.

        >>> plan = Plan.parse("(li o) s", ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
        >>> plan.grouping(plan.root.left), plan.grouping(plan.root.right)
        (('li.suppkey',), ('s.suppkey',))
        """
        sides = node.rels, (other or self.sibling(node)).rels
        own = [(each, rel) for each in _between(self.predicates, *sides) for rel in each.rels & sides[0]]
        return tuple(f"{rel}.{each.column(rel)}" for each, rel in own)

    def partition(self, node: Tree) -> Columns:
        """The columns that a store is partitioned by.

        A store under a binary node is partitioned for its sibling's probes. One under a linear root can serve only one
        of several: the first predicate that names it.
        """
        if isinstance(self.parent(node), Linear):
            first = next(each for each in self.predicates if each.rels & node.rels)
            return tuple(f"{rel}.{first.column(rel)}" for rel in node.rels)
        return self.grouping(node)

    def carried(
        self,
        node: Tree,
        identifiers: Mapping[str, Columns],
        partitions: Mapping[str, Columns] | None = None,
        later: Mapping[str, Columns] | None = None,
    ) -> dict[str, Columns]:
        """By relation, the columns that a row of a node carries when its payload stays behind.

        These are the `identifiers` of its members, the columns that ancestors join by, and the columns by which a
        relation's store is partitioned, without which a request for payload could not be routed (those of `partition`
        unless `partitions` says otherwise). `later` names columns that a filter above still needs. A column whose
        predicate has been evaluated is dropped unless one of these keeps it.

        >>> on = ["li.suppkey = s.suppkey", "o.custkey = c.custkey", "li.orderkey = o.orderkey"]
        >>> plan = Plan.parse("(li s) (o c)", on)
        >>> keys = {"li": ("orderkey", "linenumber"), "s": ("suppkey",), "o": ("orderkey",), "c": ("custkey",)}
        >>> plan.carried(plan.root.left, keys)
        {'li': ('orderkey', 'linenumber', 'suppkey'), 's': ('suppkey',)}
        """
        inside = node.rels
        needed = [each for each in self.predicates if each.rels & inside and not each.rels <= inside]
        routes = partitions if partitions is not None else self._routes()
        kept: dict[str, Columns] = {}
        for rel in (leaf.rel for leaf in leaves(node)):
            joins = [each.column(rel) for each in needed if rel in each.rels]
            if isinstance(node, Leaf) and isinstance(self.root, Linear):
                joins = [each.column(rel) for each in self.predicates if rel in each.rels]
            columns = (*identifiers.get(rel, ()), *joins, *routes.get(rel, ()), *(later or {}).get(rel, ()))
            kept[rel] = tuple(dict.fromkeys(columns))
        return kept

    def edges(
        self, reconstruction: Sequence[str] = (), orders: Mapping[str, Sequence[str]] | None = None
    ) -> tuple[Edge, ...]:
        """Every channel that rows take, once each.

        With a `reconstruction` order, results leave from its last store and reach the first as identifiers; without,
        whole results leave from where they are found. A linear root needs `orders`: by relation, which stores its rows
        probe in turn.
        """
        ingest = [Edge("ingest", "", leaf.rel, self.partition(leaf)) for leaf in leaves(self.root)]
        inner = self._linear_edges(orders or {}) if isinstance(self.root, Linear) else self._tree_edges()
        return tuple(dict.fromkeys((*ingest, *inner, *self._way_out(reconstruction, orders or {}))))

    def _tree_edges(self) -> Iterator[Edge]:
        for node in self.stores:
            sibling, parent = self.sibling(node), self.parent(node)
            yield Edge("probe", str(node), str(sibling), self.grouping(node))
            if parent is not None and parent != self.root:
                yield Edge("store", str(sibling), str(parent), self.grouping(parent))

    def _linear_edges(self, orders: Mapping[str, Sequence[str]]) -> Iterator[Edge]:
        for origin in self.rels:
            path = (origin, *orders.get(origin, connected_order(origin, self.rels, self.predicates)))
            for place, (source, target) in enumerate(pairwise(path)):
                yield Edge("probe", source, target, self.probe_route(path[: place + 1], target))

    def probe_route(self, seen: Sequence[str], target: str) -> Columns:
        """The columns of relations `seen` that tell the task of a linear operator's `target`; none if they do not."""
        wanted = {name.partition(".")[2] for name in self.partition(Leaf(target))}
        for each in _between(self.predicates, frozenset(seen), frozenset((target,))):
            if each.column(target) in wanted:
                rel = next(iter(each.rels - {target}))
                return (f"{rel}.{each.column(rel)}",)
        return ()

    def _way_out(self, reconstruction: Sequence[str], orders: Mapping[str, Sequence[str]]) -> Iterator[Edge]:
        if isinstance(self.root, Linear):
            paths = [orders.get(rel, connected_order(rel, self.rels, self.predicates)) for rel in self.rels]
            born = list(dict.fromkeys(path[-1] for path in paths))
        else:
            born = [str(side) for side in self.root.children] or [str(self.root)]
        if not reconstruction:
            yield from (Edge("emit", store, "") for store in born)
            return
        first, last = reconstruction[0], reconstruction[-1]
        yield from (Edge("forward", store, first, self.partition(Leaf(first))) for store in born if store != first)
        yield from (Edge("reconstruct", a, b, self.partition(Leaf(b))) for a, b in pairwise(reconstruction))
        yield Edge("emit", last, "")

    def _routes(self) -> dict[str, Columns]:
        """By relation, the bare names of the columns that its store is partitioned by."""
        if isinstance(self.root, Leaf):
            return {}
        parts = {leaf.rel: self.partition(leaf) for leaf in leaves(self.root)}
        return {rel: tuple(name.partition(".")[2] for name in columns) for rel, columns in parts.items()}

    def __str__(self) -> str:
        return str(self.root)


def predicates_of(on: Iterable[str | Predicate]) -> tuple[Predicate, ...]:
    """The predicates of ``on=``, each once, however often and in whichever direction it is written.

    >>> [str(each) for each in predicates_of(["a.x = b.y", "b.y = a.x"])]
    ['a.x = b.y']
    """
    if isinstance(on, str):
        on = (on,)
    read = [each if isinstance(each, Predicate) else Predicate.parse(each) for each in on]
    ends = {frozenset(((p.left_rel, p.left_column), (p.right_rel, p.right_column))): p for p in reversed(read)}
    return tuple(each for each in read if any(each is kept for kept in ends.values()))


def check_predicates(predicates: Sequence[Predicate], aliases: Sequence[str]) -> None:
    """Complain unless the predicates name relations of the join only, and connect all of them."""
    for each in predicates:
        for rel in (each.left_rel, each.right_rel):
            if rel not in aliases:
                raise PlanError.unknown_alias("on", each, rel, aliases)
    _check_connected(aliases, predicates)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """The leaves from left to right."""
    if isinstance(tree, Leaf):
        yield tree
    for child in tree.children:
        yield from leaves(child)


def nodes(tree: Tree) -> Iterator[Tree]:
    """All subtrees, children before their parent."""
    for child in tree.children:
        yield from nodes(child)
    yield tree


def trees(rels: Sequence[str], predicates: Sequence[Predicate]) -> Iterator[Leaf | Node]:
    """Every binary tree without a cross product, each once: the sides of a node have no order.

    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> [str(tree) for tree in trees(["li", "o", "s"], on)]
    ['(li o) s', '(li s) o']
    """
    if len(rels) > MOST_ENUMERATED:
        raise ConfigError(
            f"{len(rels)} relations have too many trees to list; the limit is {MOST_ENUMERATED}. Write plan=… yourself."
        )
    places = {rel: place for place, rel in enumerate(rels)}
    links = tuple(frozenset(places[rel] for rel in each.rels) for each in predicates if each.rels <= places.keys())

    @cache
    def below(members: frozenset[int]) -> tuple[Leaf | Node, ...]:
        if len(members) == 1:
            return (Leaf(rels[min(members)]),)
        return tuple(
            Node(left, right)
            for one, other in splits(members)
            if any(link & one and link & other and link <= members for link in links)
            for left in below(one)
            for right in below(other)
        )

    found = below(frozenset(range(len(rels))))
    yield from sorted(
        found, key=lambda tree: (_depth(tree), [places[leaf.rel] for leaf in leaves(tree)]), reverse=False
    )


def left_deep(rels: Sequence[str], predicates: Sequence[Predicate]) -> Leaf | Node:
    """A tree without a cross product, for any number of relations: each joins what is left of it.

    >>> str(left_deep(["o", "s", "li"], predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])))
    '(o li) s'
    """
    tree: Leaf | Node = Leaf(rels[0])
    for rel in connected_order(rels[0], rels, predicates):
        tree = Node(tree, Leaf(rel))
    return tree


def splits(members: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Every way to split a set of numbers in two, the smallest number being on the first side."""
    first, *others = sorted(members)
    for mask in range(2 ** len(others) - 1):
        one = frozenset([first, *(each for bit, each in enumerate(others) if mask >> bit & 1)])
        yield one, members - one


def connected_order(origin: str, rels: Sequence[str], predicates: Sequence[Predicate]) -> Columns:
    """The other relations in an order in which a predicate connects each to those before it, by name if several do.

    >>> on = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
    >>> connected_order("s", ["s", "o", "li"], on)
    ('li', 'o')
    """
    order, left = [origin], set(rels) - {origin}
    while left:
        order.append(min(rel for rel in left if _between(predicates, frozenset(order), frozenset((rel,)))))
        left.remove(order[-1])
    return tuple(order[1:])


def _grown(some: set[tuple[str, str]], ends: Sequence[set[tuple[str, str]]]) -> set[tuple[str, str]]:
    """Columns that are equal to some, by all pairs of equal ones."""
    while more := [each for each in ends if each & some and not each <= some]:
        some = some.union(*more)
    return some


def _between(predicates: Sequence[Predicate], left: frozenset[str], right: frozenset[str]) -> tuple[Predicate, ...]:
    return tuple(each for each in predicates if each.connects(left, right))


def _mentioned(predicates: Sequence[Predicate]) -> list[str]:
    return list(dict.fromkeys(rel for each in predicates for rel in (each.left_rel, each.right_rel)))


def _check(text: str, names: Sequence[str], aliases: Sequence[str], predicates: Sequence[Predicate]) -> None:
    """Complain unless a plan names every relation once."""
    for place, name in enumerate(names):
        if name not in aliases:
            raise PlanError.unknown_alias("plan", text, name, aliases)
        if name in names[:place]:
            raise PlanError.alias_twice(text, name)
    _check_connected(aliases, predicates)
    if missing := [alias for alias in aliases if alias not in names]:
        raise PlanError.alias_missing(text, missing, str(left_deep(aliases, predicates)))


def _check_connected(rels: Sequence[str], predicates: Sequence[Predicate]) -> None:
    reached = {*rels[:1]}
    while grown := {rel for each in predicates if each.rels & reached for rel in each.rels & {*rels}} - reached:
        reached |= grown
    if others := [rel for rel in rels if rel not in reached]:
        raise PlanError.unconnected([rel for rel in rels if rel in reached], others)


def _in_parentheses(tree: Tree) -> str:
    return str(tree) if isinstance(tree, Leaf) else f"({tree})"


def _depth(tree: Tree) -> int:
    return 1 + max((_depth(child) for child in tree.children), default=0)


def _tree(text: str) -> Tree:
    """Read the text form."""
    if not isinstance(text, str):
        raise PlanError.unreadable(text, "it is not a string")
    stack: list[list[Tree]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(Leaf(token))
        elif len(stack) == 1:
            raise PlanError.unreadable(text, "a parenthesis is closed that was not opened")
        else:
            inner = stack.pop()
            stack[-1].append(_joined(text, inner))
    if len(stack) > 1:
        raise PlanError.unreadable(text, "a parenthesis is not closed")
    return _joined(text, stack[0])


def _joined(text: str, parts: list[Tree]) -> Tree:
    if not parts:
        raise PlanError.unreadable(text, "it names no relation" if not text.strip(" ()") else "'()' is empty")
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2 and not any(isinstance(part, Linear) for part in parts):
        left, right = parts
        return Node(left, right)  # type: ignore[arg-type]
    if all(isinstance(part, Leaf) for part in parts):
        return Linear(tuple(str(part) for part in parts))
    raise PlanError.unreadable(text, "three or more relations side by side must be the whole plan")
