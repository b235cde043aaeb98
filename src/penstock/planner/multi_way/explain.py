"""A join of several streams in words: its plan and why, what each edge sends, and what would be cheaper."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from penstock.core.budget import show_bytes
from penstock.operators.multi_way import Leaf, Linear, Plan, Tree
from penstock.planner.multi_way.assumptions import Keys, assumed_load, unique_sides
from penstock.planner.multi_way.costs import JoinLoad, Relation
from penstock.planner.multi_way.planning import cheaper_plan, edges, saved
from penstock.planner.multi_way.probing import probe_orders
from penstock.planner.multi_way.statistics import Statistics
from penstock.planner.table import aligned

_HEAD = ("edge", "predicted messages", "bytes", "measured messages", "bytes", "")


@dataclass(frozen=True, slots=True)
class JoinOutlook:
    """A join that runs, or is about to: its plan, what is known of its relations, and whose payload travels now."""

    plan: Plan
    why: str
    keys: Keys = field(default_factory=dict)
    sizes: Mapping[str, Relation | None] = field(default_factory=dict)
    """What was known of the relations when the plan was chosen."""
    seen: Statistics = field(default_factory=Statistics)
    carried: Collection[str] = ()

    @property
    def has_run(self) -> bool:
        """Whether any row was measured."""
        return any(self.seen.rows.values())

    @property
    def assumed(self) -> JoinLoad | None:
        """What keys alone predict of the rows so far, or of those that files have before the first; None if unknown."""
        known = self.seen.load(self.plan).relations if self.has_run else self.sizes
        relations = {rel: about for rel, about in known.items() if about is not None}
        if len(relations) < len(self.plan.rels):
            return None
        return assumed_load(self.plan.predicates, relations, self.keys)

    @property
    def measured(self) -> JoinLoad:
        """What was counted."""
        return self.seen.load(self.plan, self.keys)


def explain_join(join: JoinOutlook) -> list[str]:
    """The lines that `explain()` shows of a join of several streams.

    >>> plan = Plan.parse("(li o) s", ["li.ok = o.ok", "li.sk = s.sk"])
    >>> for line in explain_join(JoinOutlook(plan, "as plan= says", {"o": ("ok",)})):
    ...     print(line)
    plan (li o) s: as plan= says
    key of o: ok
    """
    return [
        f"plan {join.plan}: {join.why}",
        *(f"key of {rel}: {', '.join(columns)}" for rel, columns in join.keys.items()),
        *_edges(join),
        *_measured(join),
        *_repeated(join),
        *_cheaper(join),
    ]


def explain_chain(join: JoinOutlook, instead: str) -> list[str]:
    """What `explain()` says of a chain of joins of two: nothing, unless another plan is predicted to be cheaper.

    `instead` is how to write it as one join, ``…plan`` standing for the plan.
    """
    found = cheaper_plan(join.plan, join.measured, join.carried) if _counted(join) else None
    if found is None:
        return []
    plan, now, then = found
    return [
        f"one join would be {saved(now, then):.0%} cheaper: this chain sent {now}, {then} are predicted for "
        f"{instead.replace('…plan', str(plan))}"
    ]


def _edges(join: JoinOutlook) -> list[str]:
    load, seen = join.assumed, join.seen
    if load is None:
        return []
    rows: list[Sequence[str]] = [_HEAD]
    for store, edge in zip(join.plan.stores, edges(join.plan, load, join.carried), strict=True):
        counted = ("", "")
        if join.has_run:
            counted = f"{seen.sent.get(store.rels, 0):,}", show_bytes(seen.sent_bytes.get(store.rels, 0))
        predicted = f"{edge.messages:,.0f}", show_bytes(round(edge.bytes))
        rows.append((f"{edge.source} → {edge.target}", *predicted, *counted, ""))
    results = f"{seen.nodes.get(join.plan.root.rels, 0):,}" if join.has_run else ""
    rows.append(("results", f"{load.results:,.0f}", "", results, "", ""))
    lines = aligned(rows)
    if isinstance(join.plan.root, Linear):
        orders = probe_orders(load, join.plan.predicates)
        lines.append("partial results stay in the operator; predicted probe orders: " + _shown(orders))
    return lines


def _shown(orders: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{rel} → {' → '.join(order)}" for rel, order in orders.items())


def _measured(join: JoinOutlook) -> list[str]:
    if not join.has_run:
        return []
    load = join.measured
    sizes = [
        f"|{rel}| = {about.rows:,.0f} ({about.keys:.0f} B keys, {about.payload:.0f} B payload)"
        for rel, about in load.relations.items()
    ]
    pairs = [pair for pair in combinations(join.plan.rels, 2) if frozenset(pair) in load.selectivities]
    known = [f"f({one}, {other}) = {load.selectivities[frozenset((one, other))]:.3g}" for one, other in pairs]
    return [f"measured: {'; '.join(sizes)}", *([f"selectivities: {', '.join(known)}"] if _counted(join) else [])]


def _repeated(join: JoinOutlook) -> Iterator[str]:
    """Keys of which the counts say that they do not tell rows apart: then a row of the other side met more than one."""
    for node in join.plan.nodes:
        if isinstance(node, Leaf | Linear):
            continue
        found = join.seen.nodes.get(node.rels, 0)
        for side in unique_sides(node.left.rels, node.right.rels, join.plan.at(node), join.keys):
            rel, other = next(iter(side)), node.right if side == node.left.rels else node.left
            if found > _rows(join.seen, other):
                yield (
                    f"key={{{rel!r}: {list(join.keys[rel])!r}}} does not hold: {_rows(join.seen, other):,} rows of "
                    f"{other} met {found:,} of {rel}. All of them are results; keys only serve predictions"
                )


def _cheaper(join: JoinOutlook) -> list[str]:
    if not _counted(join):
        return []
    if isinstance(join.plan.root, Linear) or len(join.plan.rels) < 3:
        return []
    found = cheaper_plan(join.plan, join.measured, join.carried)
    if found is None:
        return ["by these measurements, no other plan would be clearly cheaper"]
    plan, now, then = found
    return [
        f"by these measurements, plan {plan} would be {saved(now, then):.0%} cheaper: it would have sent {then}; "
        f"this one sent {now}. Plans cannot share state: to use it, write plan={str(plan)!r} and start with a new "
        f"checkpoint folder"
    ]


def _counted(join: JoinOutlook) -> bool:
    """Whether rows have met at every join, so that all selectivities are measured."""
    inner = [node for node in join.plan.nodes if not isinstance(node, Leaf)]
    return join.has_run and all(all(_rows(join.seen, child) for child in node.children) for node in inner)


def _rows(seen: Statistics, node: Tree) -> int:
    return seen.rows.get(node.rel, 0) if isinstance(node, Leaf) else seen.nodes.get(node.rels, 0)
