"""What a simulated multi-way join is made of: its settings, its messages, what is counted, and the ticker's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.operators.multi_way import Plan, Predicate, Tree
from penstock.operators.multi_way.plan import Columns
from penstock.planner.multi_way.costs import JoinLoad, Relation

Flag = Literal["INPUT_TUPLE", "INTERMEDIATE_JOIN", "FINAL_JOIN", "MATERIALIZATION_RESULT"]
"""Table 5.2: no partner yet, a partial result, a result with all payload, one without."""

Kind = Literal["ingest", "probe", "store", "forward", "handoff", "reconstruct", "emit"]
"""What a message is sent for: an edge of the plan, or to hand a result to a reconstruction that runs elsewhere."""

CHARGED = ("probe", "reconstruct")
"""The traffic that the thesis charges; all other is counted too, under its own name."""

Rid = tuple[Any, ...]
"""The identifiers of a result's rows, by relation from left to right."""

Delay = Callable[[Kind, str, str], float]
"""How long a message travels, by what it is sent for, where from and where to."""


class Row(NamedTuple):
    """A row: what identifies it, the columns it may join by, and the bytes of the rest."""

    pk: Any
    keys: Mapping[str, Any]
    payload: float


class Input(NamedTuple):
    """A row that arrives."""

    time: float
    rel: str
    row: Row


@dataclass(frozen=True, slots=True)
class Protocol:
    """Who probes when: a relation that is `chained` probes from its store after being stored, others at once.

    With `dedupe` a store takes a row once and a result leaves once; with `park` a result that comes for a row which is
    not there waits for it.
    """

    chained: frozenset[str]
    intermediates: Literal["chained", "concurrent"]
    dedupe: bool
    park: bool


CONCURRENT = Protocol(frozenset(), "concurrent", dedupe=False, park=False)
"""The thesis's first: the dispatcher sends one copy to be stored and one to probe."""


def thesis_fix(rel: str) -> Protocol:
    """The thesis's second: one relation probes from its store."""
    return Protocol(frozenset((rel,)), "concurrent", dedupe=False, park=False)


def ours(plan: Plan) -> Protocol:
    """Store, then probe, everywhere; every row and every result once."""
    return Protocol(frozenset(plan.rels), "chained", dedupe=True, park=True)


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds that a task takes for a message and for each of its bytes."""

    message: float
    byte: float = 0.0


def at_once(kind: Kind, source: str, target: str) -> float:
    """No delay."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Topology:
    """A plan, deployed: whose payload travels, in which order the rest is fetched, and how messages travel.

    Rows find their task by a hash of the partition's values; ``routing="balanced"`` deals values out to tasks in turn,
    as a hash does with many more values than a small run has. `carried` holds from the start, each of `switches` from
    its time on. Rows join if their times are no further apart than `window`; stores forget a row `retention` after it
    arrived. A predicate in `compare` is not an equality but what is given for it.

    With `work` messages take time; tasks share `workers`, or have one each. A task has room for `buffer` messages that
    wait: a row that finds none is dropped. Long runs keep no `trace` of their messages.
    """

    plan: Plan
    identifiers: Mapping[str, Columns]
    key_bytes: Mapping[str, float]
    order: tuple[str, ...]
    carried: frozenset[str] = frozenset()
    switches: tuple[tuple[float, frozenset[str]], ...] = ()
    protocol: Protocol | None = None
    tasks: int = 1
    routing: Literal["hash", "balanced"] = "hash"
    dispatchers: int = 1
    channels: Literal["fifo", "unordered"] = "fifo"
    delay: Delay = at_once
    reconstruction: Literal["inline", "decoupled"] = "inline"
    work: Work | None = None
    workers: int | None = None
    buffer: int | None = None
    trace: Literal["all", "none"] = "all"
    window: float | None = None
    retention: float | None = None
    compare: Mapping[Predicate, Callable[[Any, Any], bool]] = field(default_factory=dict)
    orders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def carried_at(self, time: float) -> frozenset[str]:
        """Whose payload travels at a time."""
        known = [carried for since, carried in self.switches if since <= time]
        return known[-1] if known else self.carried


@dataclass(slots=True)
class Message:
    """What travels between stores: keys and identifiers by relation, and the payload that is with them, in bytes."""

    flag: Flag
    kind: Kind
    tree: Tree | None
    """Whose row it is; None for a partial result of a linear operator."""
    ids: dict[str, Any]
    keys: dict[str, Mapping[str, Any]]
    payload: dict[str, float]
    times: tuple[float, float]
    """Of its oldest and its newest row."""
    path: tuple[str, ...] = ()
    """The stores that it still has to visit."""

    def bytes(self, key_bytes: Mapping[str, float]) -> float:
        """How large it is."""
        return sum(key_bytes[rel] for rel in self.ids) + sum(self.payload.values())


class Traffic(NamedTuple):
    """What went over an edge."""

    messages: int = 0
    bytes: float = 0.0


class Logged(NamedTuple):
    """A line of the ticker's log."""

    id: Any
    source: str
    type: Flag
    log_time: float


class Sent(NamedTuple):
    """A line of the trace of all messages."""

    time: float
    flag: Flag
    kind: Kind
    source: str
    target: str
    rels: frozenset[str]
    payload: frozenset[str]
    bytes: float


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    results: list[tuple[Rid, float]] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    trace: list[Sent] = field(default_factory=list)
    edges: dict[tuple[Kind, str, str], Traffic] = field(default_factory=dict)
    stored: dict[str, float] = field(default_factory=dict)
    """Bytes by store, at the end."""
    entries: dict[str, int] = field(default_factory=dict)
    loads: dict[str, list[int]] = field(default_factory=dict)
    """Messages by store and task."""
    busy: dict[int, float] = field(default_factory=dict)
    """Seconds of work by worker."""
    dropped: int = 0
    """Rows that found a full buffer."""
    lost: int = 0
    """Results whose payload could not be fetched."""
    repeated: int = 0
    """Rows that came with an identifier that was there already."""

    def traffic(self, *kinds: Kind) -> Traffic:
        """All that was sent for some purposes."""
        some = [traffic for (kind, _, _), traffic in self.edges.items() if kind in kinds]
        return Traffic(sum(each.messages for each in some), sum(each.bytes for each in some))

    @property
    def charged(self) -> Traffic:
        """The traffic in the scope of the thesis."""
        return self.traffic("probe", "reconstruct")

    @property
    def skew(self) -> float:
        """How much more than the mean the busiest task of any store had to do."""
        return max((max(loads) * len(loads) / max(1, sum(loads)) for loads in self.loads.values()), default=1.0)

    @property
    def rids(self) -> list[Rid]:
        """The results, in the order of their identifiers."""
        return sorted(rid for rid, _ in self.results)


class Durations(NamedTuple):
    """Seconds by the log (§2.9): between results, over all, and until the first result."""

    effective: float
    actual: float
    delay: float


def durations(log: Iterable[Logged]) -> Durations:
    """The three durations; nothing is between no results.

    >>> durations([Logged(1, "", "INPUT_TUPLE", 2.0), *(Logged(1, "s", "FINAL_JOIN", t) for t in (5.0, 9.0))])
    Durations(effective=4.0, actual=7.0, delay=3.0)
    """
    rows = [*log]
    times = [each.log_time for each in rows]
    final = [each.log_time for each in rows if each.type == "FINAL_JOIN"]
    first = min((each.log_time for each in rows if each.type == "INPUT_TUPLE"), default=float("nan"))
    if not final:
        return Durations(0.0, max(times, default=0.0) - min(times, default=0.0), float("nan"))
    return Durations(max(final) - min(final), max(times) - min(times), min(final) - first)


def true_load(topology: Topology, inputs: Iterable[Input]) -> JoinLoad:
    """What the cost model is told of a run: exact counts of rows and of every node's join, by brute force."""
    rows = [*inputs]
    relations = {}
    for rel in topology.plan.rels:
        own = [each.row for each in rows if each.rel == rel]
        mean = sum(row.payload for row in own) / max(1, len(own))
        relations[rel] = Relation(len(own), topology.key_bytes[rel], mean)
    wanted = [*(node.rels for node in topology.plan.nodes if node.children)]
    return JoinLoad(relations, counted={rels: float(len(joined(topology, rows, rels))) for rels in wanted})


def joined(topology: Topology, inputs: Sequence[Input], rels: Iterable[str] | None = None) -> list[Rid]:
    """The join of some relations by its definition: every predicate holds, and the window too if there is one."""
    names = [rel for rel in topology.plan.rels if rels is None or rel in {*rels}]
    partial: list[dict[str, Input]] = [{}]
    for rel in _connected(topology.plan.predicates, names):
        own = [each for each in inputs if each.rel == rel]
        partial = [{**some, rel: each} for some in partial for each in _matching(topology, some, rel, own)]
    return sorted(tuple(some[rel].row.pk for rel in names) for some in partial)


def _connected(predicates: Sequence[Predicate], names: Sequence[str]) -> list[str]:
    """In an order in which each is joined with one before it, so that brute force stays within reason."""
    order, left = [names[0]], [*names[1:]]
    while left:
        near = (rel for rel in left if any(each.connects(frozenset(order), frozenset((rel,))) for each in predicates))
        order.append(next(near, left[0]))
        left.remove(order[-1])
    return order


def _matching(topology: Topology, some: Mapping[str, Input], rel: str, own: Sequence[Input]) -> list[Input]:
    checks = [each for each in topology.plan.predicates if rel in each.rels and each.rels <= {*some, rel}]
    found = [each for each in own if all(_holds(topology, check, {**some, rel: each}) for check in checks)]
    if topology.window is None or not some:
        return found
    first, last = min(each.time for each in some.values()), max(each.time for each in some.values())
    return [each for each in found if max(last, each.time) - min(first, each.time) <= topology.window]


def _holds(topology: Topology, check: Predicate, rows: Mapping[str, Input]) -> bool:
    left = rows[check.left_rel].row.keys[check.left_column]
    right = rows[check.right_rel].row.keys[check.right_column]
    return left is not None and right is not None and compare(topology, check)(left, right)


def compare(topology: Topology, check: Predicate) -> Callable[[Any, Any], bool]:
    """What a predicate asks of two values: that they are equal, unless the topology says otherwise."""
    return topology.compare.get(check, lambda left, right: bool(left == right))
