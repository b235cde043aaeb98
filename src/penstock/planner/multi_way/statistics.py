"""What has been seen of a multi-way join: rows and bytes by relation, and the rows of each of its nodes.

From it come the mean payload, which orders the reconstruction, and how selective predicates are. Counts add up, so
those of several shards, or of several epochs, are one count; they are saved as a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

from penstock.operators.multi_way import Linear, Plan, Tree
from penstock.planner.multi_way.assumptions import Keys, assumed_load
from penstock.planner.multi_way.costs import JoinLoad, Relation, Rels

Counts = Mapping[str, int]
"""By relation."""

_BY_STORE = ("nodes", "sent", "sent_bytes")
"""What is counted by sets of relations."""

T = TypeVar("T", str, Rels)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts so far.

    >>> seen = Statistics().arrived("li", rows=4, keys=48, payload=460).arrived("o", rows=2, keys=16, payload=200)
    >>> seen = seen.joined({"li", "o"}, 4)
    >>> seen.mean_payload("li"), seen.selectivity("li", "o")
    (115.0, 0.5)
    """

    rows: Counts = field(default_factory=dict)
    keys: Counts = field(default_factory=dict)
    """Bytes."""
    payload: Counts = field(default_factory=dict)
    """Bytes."""
    nodes: Mapping[Rels, int] = field(default_factory=dict)
    """By the relations below a node, how many rows it had."""
    sent: Mapping[Rels, int] = field(default_factory=dict)
    """By the relations below a store, how many rows it has sent to its sibling,"""
    sent_bytes: Mapping[Rels, int] = field(default_factory=dict)
    """and how many bytes these had."""

    def arrived(self, rel: str, rows: int, keys: int, payload: int) -> Self:
        """With more input rows, whose keys and payload have so many bytes in all."""
        return self.merged([type(self)({rel: rows}, {rel: keys}, {rel: payload})])

    def joined(self, rels: Iterable[str], rows: int) -> Self:
        """With more rows of the join of some relations."""
        return self.merged([type(self)(nodes={frozenset(rels): rows})])

    def probed(self, rels: Iterable[str], rows: int, size: int) -> Self:
        """With more rows, of so many bytes, that the store of some relations has sent to its sibling."""
        store = frozenset(rels)
        return self.merged([type(self)(sent={store: rows}, sent_bytes={store: size})])

    def merged(self, others: Iterable[Statistics]) -> Self:
        """With what others have seen."""
        every = [self, *others]
        return type(self)(**{each.name: _added(getattr(seen, each.name) for seen in every) for each in fields(self)})

    def mean_payload(self, rel: str) -> float:
        """Bytes of a relation's payload so far, 0 before its first row."""
        return self.payload.get(rel, 0) / self.rows[rel] if self.rows.get(rel) else 0.0

    def selectivity(self, left: str, right: str) -> float | None:
        """f̂ of a pair that is joined directly, None before both have rows and their join was counted."""
        product = self.rows.get(left, 0) * self.rows.get(right, 0)
        joined = self.nodes.get(frozenset((left, right)))
        return joined / product if product and joined is not None else None

    def load(self, plan: Plan, keys: Keys | None = None) -> JoinLoad:
        """The load of a plan, estimated.

        A node's selectivity is its rows over the product of its sides' rows, shared evenly by the pairs of relations
        that its predicates connect. Of a pair of which nothing was counted, `keys` tell what to assume.
        """
        relations = {rel: self._relation(rel) for rel in plan.rels}
        selectivities = dict(assumed_load(plan.predicates, relations, keys or {}).selectivities)
        counted: dict[Rels, float] = {}
        for node in plan.nodes:
            if (rows := self._rows(node)) is None or not node.children:
                continue
            counted[node.rels] = float(rows)
            product = 1.0
            for child in node.children:
                product *= self._rows(child) or 0
            pairs = {each.rels for each in plan.at(node)}
            if product:
                selectivities |= dict.fromkeys(pairs, (rows / product) ** (1 / len(pairs)))
        if isinstance(plan.root, Linear):
            for pair in {p.rels for p in plan.predicates}:
                if (found := self.selectivity(*pair)) is not None:
                    selectivities[pair] = found
        return JoinLoad(relations, selectivities, counted)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can write."""
        relations = {name: dict(getattr(self, name)) for name in ("rows", "keys", "payload")}
        return relations | {
            name: {" ".join(sorted(rels)): count for rels, count in getattr(self, name).items()} for name in _BY_STORE
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """What `as_dict` gave.

        >>> seen = Statistics().arrived("a", 1, 8, 20).joined({"a", "b"}, 2)
        >>> Statistics.from_dict(seen.as_dict()) == seen
        True
        """
        stores = {name: {frozenset(names.split()): count for names, count in saved[name].items()} for name in _BY_STORE}
        return cls(dict(saved["rows"]), dict(saved["keys"]), dict(saved["payload"]), **stores)

    def _relation(self, rel: str) -> Relation:
        rows = self.rows.get(rel, 0)
        return Relation(rows, self.keys.get(rel, 0) / max(1, rows), self.mean_payload(rel))

    def _rows(self, node: Tree) -> int | None:
        return self.nodes.get(node.rels) if node.children else self.rows.get(next(iter(node.rels)), 0)


def _added(counts: Iterable[Mapping[T, int]]) -> dict[T, int]:
    total: dict[T, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total
