"""What has been seen of a multi-way join: rows and bytes by relation, and the rows of each of its nodes.

From it come the mean payload, which orders the reconstruction, and how selective predicates are. Counts add up, so
those of several shards, or of several epochs, are one count; they are saved as a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.operators.multi_way import Linear, Plan, Tree
from penstock.planner.multi_way.costs import JoinLoad, Relation, Rels

Counts = Mapping[str, int]
"""By relation."""


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

    def arrived(self, rel: str, rows: int, keys: int, payload: int) -> Self:
        """With more input rows, whose keys and payload have so many bytes in all."""
        return self.merged([type(self)({rel: rows}, {rel: keys}, {rel: payload})])

    def joined(self, rels: Iterable[str], rows: int) -> Self:
        """With more rows of the join of some relations."""
        return self.merged([type(self)(nodes={frozenset(rels): rows})])

    def merged(self, others: Iterable[Statistics]) -> Self:
        """With what others have seen."""
        rows, keys, payload, nodes = dict(self.rows), dict(self.keys), dict(self.payload), dict(self.nodes)
        for other in others:
            for mine, theirs in ((rows, other.rows), (keys, other.keys), (payload, other.payload)):
                for rel, count in theirs.items():
                    mine[rel] = mine.get(rel, 0) + count
            for rels, count in other.nodes.items():
                nodes[rels] = nodes.get(rels, 0) + count
        return type(self)(rows, keys, payload, nodes)

    def mean_payload(self, rel: str) -> float:
        """Bytes of a relation's payload so far, 0 before its first row."""
        return self.payload.get(rel, 0) / self.rows[rel] if self.rows.get(rel) else 0.0

    def selectivity(self, left: str, right: str) -> float | None:
        """f̂ of a pair that is joined directly, None before both have rows and their join was counted."""
        product = self.rows.get(left, 0) * self.rows.get(right, 0)
        joined = self.nodes.get(frozenset((left, right)))
        return joined / product if product and joined is not None else None

    def load(self, plan: Plan) -> JoinLoad:
        """The load of a plan, estimated.

        A node's selectivity is its rows over the product of its sides' rows, shared evenly by the pairs of relations
        that its predicates connect. A pair of which nothing was counted is taken to join each row of the larger
        relation once, as a foreign key does.
        """
        relations = {rel: self._relation(rel) for rel in plan.rels}
        selectivities = {
            pair: 1 / max(1.0, *(relations[rel].rows for rel in pair)) for pair in {p.rels for p in plan.predicates}
        }
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
        nodes = {" ".join(sorted(rels)): count for rels, count in self.nodes.items()}
        return {"rows": dict(self.rows), "keys": dict(self.keys), "payload": dict(self.payload), "nodes": nodes}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """What `as_dict` gave.

        >>> seen = Statistics().arrived("a", 1, 8, 20).joined({"a", "b"}, 2)
        >>> Statistics.from_dict(seen.as_dict()) == seen
        True
        """
        nodes = {frozenset(names.split()): count for names, count in saved["nodes"].items()}
        return cls(dict(saved["rows"]), dict(saved["keys"]), dict(saved["payload"]), nodes)

    def _relation(self, rel: str) -> Relation:
        rows = self.rows.get(rel, 0)
        return Relation(rows, self.keys.get(rel, 0) / max(1, rows), self.mean_payload(rel))

    def _rows(self, node: Tree) -> int | None:
        return self.nodes.get(node.rels) if node.children else self.rows.get(next(iter(node.rels)), 0)
