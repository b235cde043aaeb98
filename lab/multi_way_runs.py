"""Simulated multi-way joins as trials of experiments: stars, orders to fetch in, rates, and the thesis's cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np

from lab.feeding import Counted, totals
from lab.measures import Measure, Point
from lab.multi_way_simulation import simulate
from lab.multi_way_topology import Input, Outcome, Row, Topology, Work, durations
from lab.simulation import Watch
from lab.workloads.tpch import JOINS, KB, Tpch, widths
from lab.workloads.tpch import KEYS as IDENTIFIERS
from penstock.operators.multi_way import Plan
from penstock.planner.multi_way import JoinLoad, Relation
from penstock.planner.multi_way.costs import reconstruction

JOIN_BYTES = Measure("join_bytes", "moved by the join", "MB")
FETCH_BYTES = Measure("fetch_bytes", "moved by the reconstruction", "MB")
ALL_BYTES = Measure("all_bytes", "moved in all", "MB")
JOIN_MESSAGES = Measure("join_messages", "messages of the join", "M")
FETCH_MESSAGES = Measure("fetch_messages", "messages of the reconstruction", "M")
PER_FACT = Measure("per_fact", "moved per fact row", "KB")
PREDICTED = Measure("predicted", "predicted for the reconstruction", "MB")
EFFECTIVE = Measure("effective", "effective duration, simulated", "s")
ACTUAL = Measure("actual", "actual duration, simulated", "s")
BUSIEST = Measure("busiest", "work of the busiest worker, simulated", "s")
RATIO = Measure("ratio", "late / early, work of the busiest worker", "part")
EFFECTIVE_RATIO = Measure("effective_ratio", "late / early, effective duration", "part")
ACTUAL_RATIO = Measure("actual_ratio", "late / early, actual duration", "part")
DROPPED = Measure("dropped", "dropped rows", "%")
LOST = Measure("lost", "lost results", "%")

Mode = Literal["early", "late"]
Shape = Literal["3-way", "4-way"]
_MODES: tuple[Mode, ...] = ("early", "late")

PLANS: Mapping[str, Plan] = {
    "3-way": Plan.parse("(li o) s", ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"]),
    "4-way": Plan.parse(
        "(li s) (o c)", ["li.suppkey = s.suppkey", "o.custkey = c.custkey", "li.orderkey = o.orderkey"]
    ),
}
ORDERS: Mapping[str, tuple[str, ...]] = {"3-way": ("s", "o", "li"), "4-way": ("c", "o", "s", "li")}
"""As the thesis has them, hard-coded."""
KEY_BYTES: Mapping[str, float] = {"li": 12.0, "o": 8.0, "s": 4.0, "c": 4.0}
"""Assumed, as in the spec."""
WORKERS = 8
MICROSECONDS = 20.0
"""Assumed for a message; its bytes take 10 ns each, 100 MB/s. The thesis gives neither."""
_BYTE = 10e-9

_SUPPLIERS = 12
"""Two for each of six tasks: as many as the scale leaves could not be shared out."""
_MB = 1e6


class Simulated(Counted):
    """What simulated joins have in common."""

    __slots__ = ()

    @property
    def stem(self) -> str:
        """The name of the class."""
        return f"multi-{type(self).__name__.lower()}"

    @property
    def code(self) -> tuple[str, ...]:
        """Plans and costs, the simulation, its data and this module."""
        own = ("lab.multi_way_topology", "lab.multi_way_simulation", "lab.workloads.tpch", type(self).__module__)
        return ("penstock.operators.multi_way", "penstock.planner.multi_way", *own)


@dataclass(frozen=True, slots=True)
class Case(Simulated):
    """A case of the measurements: a plan over the first `lines` lineitems, with `payload` KB more in each or none."""

    shape: Shape
    mode: Mode
    payload: float = 0
    tasks: int = 1
    lines: float = 500_000
    order: tuple[str, ...] = ()
    message: float = MICROSECONDS

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Bytes, messages and seconds, at the thesis's size.

        Bytes, messages and work are those of a run in which all workers keep up. Durations, from the first result or
        from the start to the last result, are those of a run in which all rows are there from the start.
        """
        outcome = simulate(self.topology(), self.inputs(scale, seed))
        hasty = simulate(self.topology(), self.inputs(scale, seed, every=0.0))
        join, fetch = outcome.traffic("probe"), outcome.traffic("reconstruct")
        return totals(
            {
                JOIN_BYTES: join.bytes / scale / _MB,
                FETCH_BYTES: fetch.bytes / scale / _MB,
                ALL_BYTES: outcome.charged.bytes / scale / _MB,
                JOIN_MESSAGES: join.messages / scale / _MB,
                FETCH_MESSAGES: fetch.messages / scale / _MB,
                EFFECTIVE: durations(hasty.log).effective / scale,
                ACTUAL: durations(hasty.log).actual / scale,
                BUSIEST: max(outcome.busy.values()) / scale,
            }
        )

    def topology(self, **more: Any) -> Topology:
        """As the thesis deployed it, on eight workers."""
        settings: dict[str, Any] = {
            "tasks": self.tasks,
            "work": Work(self.message * 1e-6, _BYTE),
            "workers": WORKERS,
            "trace": "none",
        }
        plan = PLANS[self.shape]
        carried = frozenset(plan.rels if self.mode == "early" else ())
        order = self.order or ORDERS[self.shape]
        return Topology(plan, IDENTIFIERS, KEY_BYTES, order, carried, **(settings | more))

    def inputs(self, scale: float, seed: int, every: float = 1e-3) -> list[Input]:
        """The rows, one of each relation in turn, `every` so many seconds: slow enough for all workers to keep up."""
        extra = (("li", round(self.payload * KB)),) if self.payload else ()
        data = Tpch(scale, extra, seed, suppliers=_SUPPLIERS)
        lines = max(1, round(self.lines * scale))
        return in_turn({rel: rows_of(data, rel, lines) for rel in PLANS[self.shape].rels}, every)

    def __str__(self) -> str:
        machine = f"{self.tasks} tasks, {self.message:g} µs a message"
        return f"{self.shape}, {self.mode}, {self.lines:g} lineitems, {self.payload:g} KB, {machine}"


@dataclass(frozen=True, slots=True)
class Versus(Simulated):
    """Late against early in one case, on a machine that takes `message` µs for a message."""

    shape: Shape
    payload: float
    tasks: int
    message: float = MICROSECONDS
    lines: float = 2_000_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """What part of early's work and duration late has."""
        early, late = (
            Case(self.shape, mode, self.payload, self.tasks, self.lines, message=self.message)
            .point(scale, seed, watch)
            .totals
            for mode in _MODES
        )
        ratios = {EFFECTIVE_RATIO: EFFECTIVE, ACTUAL_RATIO: ACTUAL, RATIO: BUSIEST}
        return totals({ratio: late[of.name] / early[of.name] for ratio, of in ratios.items()})

    def __str__(self) -> str:
        return f"late / early, {self.shape}, {self.payload:g} KB, {self.tasks} tasks, {self.message:g} µs"


@dataclass(frozen=True, slots=True)
class Ordered(Simulated):
    """The reconstruction of the 4-way join in the order that the model ranks `rank`-th of all."""

    rank: float = 1
    lines: float = 500_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Bytes predicted and moved, and seconds."""
        case = Case("4-way", "late", lines=self.lines)
        inputs = case.inputs(scale, seed)
        load = _load(inputs)
        ranked = sorted(permutations(PLANS["4-way"].rels), key=lambda order: (reconstruction(load, order), order))
        order = ranked[round(self.rank) - 1]
        outcome = simulate(Case("4-way", "late", lines=self.lines, order=order).topology(), inputs)
        return totals(
            {
                FETCH_BYTES: outcome.traffic("reconstruct").bytes / scale / _MB,
                PREDICTED: reconstruction(load, order) / scale / _MB,
                BUSIEST: max(outcome.busy.values()) / scale,
            }
        )

    def __str__(self) -> str:
        return f"order {self.rank:g} of 24"


@dataclass(frozen=True, slots=True)
class Rated(Simulated):
    """The 3-way join with lineitems of 3 KB at a rate, where a task has room for a few messages that wait.

    All tasks share one worker, or have one each.
    """

    mode: Mode
    workers: Literal["shared", "own"]
    rate: float = 100
    buffer: int | None = 20
    lines: float = 600_000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """Rows dropped and results lost, in a hundred."""
        inputs = Case("3-way", self.mode, payload=3, lines=self.lines).inputs(scale, seed, every=1 / self.rate)
        whole, short = (self.run(inputs, buffer) for buffer in (None, self.buffer))
        lost = len(whole.results) - len(short.results)
        return totals({DROPPED: 100 * short.dropped / len(inputs), LOST: 100 * lost / max(1, len(whole.results))})

    def run(self, inputs: Sequence[Input], buffer: int | None) -> Outcome:
        """With room for so many messages, or any number."""
        workers = 1 if self.workers == "shared" else None
        case = Case("3-way", self.mode, payload=3)
        return simulate(case.topology(work=Work(100e-6, 1e-6), workers=workers, buffer=buffer), inputs)

    def __str__(self) -> str:
        return f"{self.mode}, {self.workers} worker, {self.rate:g} rows/s"


@dataclass(frozen=True, slots=True)
class Star(Simulated):
    """Facts that refer to two dimensions of `part` as many rows, keys of 0.05 KB and payload of 1 KB everywhere."""

    mode: Mode
    part: float = 1.0
    facts: int = 1000

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """KB moved by join and reconstruction for each fact."""
        random, facts = np.random.default_rng(seed), round(self.facts * scale)
        size = max(1, round(self.part * facts))
        links = random.integers(0, size, (facts, 2)).tolist()
        tables = {
            "f": [Row((n,), {"id": n, "a": a, "b": b}, 1.0) for n, (a, b) in enumerate(links)],
            "a": [Row((n,), {"a": n}, 1.0) for n in range(size)],
            "b": [Row((n,), {"b": n}, 1.0) for n in range(size)],
        }
        plan = Plan.parse("(f a) b", ["f.a = a.a", "f.b = b.b"])
        carried = frozenset(plan.rels if self.mode == "early" else ())
        ids = {"f": ("id",), "a": ("a",), "b": ("b",)}
        run = Topology(plan, ids, dict.fromkeys(plan.rels, 0.05), ("a", "b", "f"), carried, trace="none")
        return totals({PER_FACT: simulate(run, in_turn(tables)).charged.bytes / facts})

    def __str__(self) -> str:
        return f"{self.mode}, dimensions of {self.part:g} of the facts"


def rows_of(data: Tpch, rel: str, lines: int) -> list[Row]:
    """The rows of a relation that come with so many lineitems."""
    rows = data.prefix(rel, lines)
    payload = widths(rows, tuple(name for name in rows.column_names if name not in JOINS[rel])).tolist()
    keys = rows.select(list(JOINS[rel])).to_pylist()
    return [
        Row(tuple(own[name] for name in IDENTIFIERS[rel]), own, float(size))
        for own, size in zip(keys, payload, strict=True)
    ]


def in_turn(tables: Mapping[str, Sequence[Row]], every: float = 1.0) -> list[Input]:
    """A row of each relation in turn, until each has come to its end."""
    longest = max(len(rows) for rows in tables.values())
    order = [(rel, rows[place]) for place in range(longest) for rel, rows in tables.items() if place < len(rows)]
    return [Input(number * every, rel, row) for number, (rel, row) in enumerate(order)]


def _load(inputs: Sequence[Input]) -> JoinLoad:
    """As many results as lineitems, each with its order, supplier and customer; payload in the mean over results."""
    known = {(each.rel, each.row.pk): each.row for each in inputs}
    sizes: dict[str, list[float]] = {"li": [], "s": [], "o": [], "c": []}
    for each in inputs:
        if each.rel == "li":
            order = known["o", (each.row.keys["orderkey"],)]
            sizes["li"].append(each.row.payload)
            sizes["s"].append(known["s", (each.row.keys["suppkey"],)].payload)
            sizes["o"].append(order.payload)
            sizes["c"].append(known["c", (order.keys["custkey"],)].payload)
    relations = {rel: Relation(len(own), KEY_BYTES[rel], sum(own) / len(own)) for rel, own in sizes.items()}
    return JoinLoad(relations, counted={frozenset(relations): float(len(sizes["li"]))})
