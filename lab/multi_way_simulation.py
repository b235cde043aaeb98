"""A discrete-event simulation of a multi-way join on a topology of stores: early, late or in part, by any protocol.

Inputs pass a dispatcher (the ticker), which logs them and sends them to their store, and to the sibling's if the
protocol has them probe at once. Stores are split into tasks by the columns of their partition. Results pass the ticker
on their way out. Every message is counted on its edge, with its bytes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from lab.multi_way_topology import Input, Logged, Message, Outcome, Rid, Sent, Topology, Traffic, compare, ours
from penstock.operators.multi_way import Leaf, Linear, Predicate, Tree
from penstock.operators.multi_way.plan import Columns

V = TypeVar("V")

TICKER = "ticker"
ELSEWHERE = "reconstruction"
"""Where results go whose payload is fetched by a process of its own."""


class Place(NamedTuple):
    """A task of a store."""

    store: str
    task: int


@dataclass(slots=True)
class Task:
    """What a task holds, and how many messages wait for it."""

    entries: dict[Rid, Message] = field(default_factory=dict)
    index: dict[Columns, dict[tuple[Any, ...], list[Message]]] = field(default_factory=dict)
    parked: dict[Any, list[Message]] = field(default_factory=dict)
    fetched: set[Rid] = field(default_factory=set)
    """Results whose payload has begun to be fetched here."""
    waiting: int = 0
    handled: int = 0


def simulate(topology: Topology, inputs: Iterable[Input]) -> Outcome:
    """Run all inputs through a topology until nothing moves."""
    return _Run(topology).run(inputs)


class _Run:
    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._plan = topology.plan
        self._protocol = topology.protocol or ours(topology.plan)
        self._outcome = Outcome()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._now = 0.0
        self._arrival: dict[tuple[Place, Place], float] = {}
        self._trees: dict[str, Tree] = {str(tree): tree for tree in self._plan.stores}
        self._tasks = {Place(name, task): Task() for name in self._trees for task in range(topology.tasks)}
        self._carried = {tree: self._plan.carried(tree, topology.identifiers) for tree in self._plan.nodes}
        self._done: set[Rid] = set()
        self._dealt: dict[tuple[Any, ...], int] = {}
        workers = len(self._tasks) if topology.workers is None else topology.workers
        self._worker = {place: number % workers for number, place in enumerate(self._tasks)}
        self._queues: dict[int, deque[tuple[Message, Place]]] = {}
        self._busy: set[int] = set()

    def run(self, inputs: Iterable[Input]) -> Outcome:
        for number, each in enumerate(inputs):
            self._at(each.time, lambda each=each, number=number: self._dispatch(each, number))  # type: ignore[misc]
        while self._events:
            self._now, _, act = heapq.heappop(self._events)
            act()
        for name in self._trees:
            own = [self._tasks[Place(name, task)] for task in range(self._topology.tasks)]
            sizes = [entry.bytes(self._topology.key_bytes) for task in own for entry in task.entries.values()]
            self._outcome.stored[name], self._outcome.entries[name] = sum(sizes), len(sizes)
            self._outcome.loads[name] = [task.handled for task in own]
        self._outcome.lost += sum(len(some) for task in self._tasks.values() for some in task.parked.values())
        return self._outcome

    def _dispatch(self, each: Input, number: int) -> None:
        self._outcome.log.append(Logged((each.rel, each.row.pk), f"spout {each.rel}", "INPUT_TUPLE", self._now))
        here, leaf = Place(TICKER, number % self._topology.dispatchers), Leaf(each.rel)
        message = Message(
            "INPUT_TUPLE",
            "ingest",
            leaf,
            {each.rel: each.row.pk},
            {each.rel: each.row.keys},
            {each.rel: each.row.payload},
            (self._now, self._now),
        )
        self._send(message, here, Place(each.rel, self._task_of(message, self._plan.partition(leaf))))
        if each.rel not in self._protocol.chained:
            self._probe(message, here, each.rel)

    def _send(self, message: Message, source: Place, target: Place, edge: str | None = None) -> None:
        """On its way; `edge` is the store that it is counted for where that is not where it comes from."""
        size = message.bytes(self._topology.key_bytes)
        name = source.store if edge is None else edge
        key = (message.kind, name, target.store)
        before = self._outcome.edges.get(key, Traffic())
        self._outcome.edges[key] = Traffic(before.messages + 1, before.bytes + size)
        if self._topology.trace == "all":
            rels, payload = frozenset(message.ids), frozenset(message.payload)
            sent = Sent(self._now, message.flag, message.kind, name, target.store, rels, payload, size)
            self._outcome.trace.append(sent)
        arrives = self._now + self._topology.delay(message.kind, name, target.store)
        if self._topology.channels == "fifo":
            arrives = max(arrives, self._arrival.get((source, target), 0.0))
            self._arrival[source, target] = arrives
        self._at(arrives, lambda: self._arrive(message, source, target))

    def _arrive(self, message: Message, source: Place, place: Place) -> None:
        if place.store == TICKER:
            self._finish(message, source.store)
            return
        if place.store == ELSEWHERE:
            self._fetch(message, place)
            return
        task = self._tasks[place]
        if self._topology.work is None:
            self._handle(message, place)
            return
        full = self._topology.buffer is not None and task.waiting >= self._topology.buffer
        if full and message.kind == "ingest":
            self._outcome.dropped += 1
            return
        task.waiting += 1
        worker = self._worker[place]
        self._queues.setdefault(worker, deque()).append((message, place))
        if worker not in self._busy:
            self._serve(worker)

    def _serve(self, worker: int) -> None:
        """A worker takes the message that has waited longest for one of its tasks."""
        work, queue = self._topology.work, self._queues[worker]
        self._busy.discard(worker)
        if queue and work is not None:
            message, place = queue.popleft()
            self._busy.add(worker)
            self._tasks[place].waiting -= 1
            seconds = work.message + work.byte * message.bytes(self._topology.key_bytes)
            self._outcome.busy[worker] = self._outcome.busy.get(worker, 0.0) + seconds
            self._at(self._now + seconds, lambda: self._served(message, place, worker))

    def _served(self, message: Message, place: Place, worker: int) -> None:
        self._handle(message, place)
        self._serve(worker)

    def _handle(self, message: Message, place: Place) -> None:
        self._tasks[place].handled += 1
        if message.kind in ("ingest", "store"):
            self._store(message, place)
        elif message.kind == "probe":
            self._probed(message, place)
        else:
            self._reconstruct(message, place)

    def _store(self, message: Message, place: Place) -> None:
        task, rid = self._tasks[place], self._rid(message)
        if rid in task.entries:
            if message.kind == "ingest":
                self._outcome.repeated += 1
                # §6-14: the last row of an identifier counts, and it has probed already.
                task.entries[rid].payload = message.payload
            if self._protocol.dedupe:
                return
        task.entries[rid] = message
        for columns in self._indexed(place.store):
            values = _values(message, columns)
            task.index.setdefault(columns, {}).setdefault(values, []).append(message)
        for waiting in task.parked.pop(rid, []):
            self._reconstruct(waiting, place)
        if message.kind == "ingest":
            chained = place.store in self._protocol.chained
        else:
            chained = self._protocol.intermediates == "chained"
        if chained:
            self._probe(message, place, place.store)

    def _probe(self, message: Message, source: Place, edge: str) -> None:
        """Send a row that is stored, or is being stored, to where its partners are."""
        tree = self._trees[edge]
        carried = self._topology.carried_at(self._now)
        keys = self._kept(message, tree)
        probe = replace(message, kind="probe", keys=keys, payload=_some(message.payload, carried))
        if isinstance(self._plan.root, Linear):
            self._onward(replace(probe, tree=None), source, edge, tuple(self._topology.orders[edge]))
            return
        sibling, columns = self._plan.sibling(tree), self._plan.grouping(tree)
        if None not in _values(probe, columns):
            self._to_tasks(probe, source, str(sibling), self._route(probe, columns, tree), edge)

    def _onward(self, message: Message, source: Place, edge: str, path: tuple[str, ...]) -> None:
        """The next store that a row of a linear operator probes."""
        target, columns = path[0], self._plan.probe_route(tuple(message.ids), path[0])
        route = self._task_of(message, columns) if columns else None
        self._to_tasks(replace(message, path=path[1:]), source, target, route, edge)

    def _probed(self, message: Message, place: Place) -> None:
        for entry in [*self._partners(message, place)]:
            self._merged(message, entry, place)

    def _merged(self, message: Message, entry: Message, place: Place) -> None:
        carried = self._topology.carried_at(self._now)
        parent = self._plan.parent(self._trees[place.store])
        whole = parent == self._plan.root and not (isinstance(parent, Linear) and message.path)
        keep = carried if not whole or len(entry.ids) == 1 else frozenset(entry.ids) | carried
        times = min(message.times[0], entry.times[0]), max(message.times[1], entry.times[1])
        merged = Message(
            "INTERMEDIATE_JOIN",
            "store",
            parent,
            message.ids | entry.ids,
            {**message.keys, **entry.keys},
            message.payload | _some(entry.payload, keep),
            times,
            message.path,
        )
        if isinstance(parent, Linear):
            if whole:
                self._result(merged, place)
            else:
                self._onward(replace(merged, kind="probe", tree=None), place, place.store, message.path)
            return
        assert parent is not None
        merged.keys = self._kept(merged, parent)
        if whole:
            self._result(merged, place)
            return
        target = Place(str(parent), self._task_of(merged, self._plan.partition(parent)))
        self._send(merged, place, target)
        if self._protocol.intermediates == "concurrent":
            self._probe(merged, place, str(parent))

    def _kept(self, message: Message, tree: Tree) -> dict[str, Mapping[str, Any]]:
        """The keys that a row of a node carries."""
        return {rel: _some(message.keys[rel], columns) for rel, columns in self._carried[tree].items()}

    def _partners(self, message: Message, place: Place) -> Iterator[Message]:
        """The rows of a store that a message joins with."""
        tree, task = self._trees[place.store], self._tasks[place]
        checks = [each for each in self._plan.predicates if each.connects(frozenset(message.ids), tree.rels)]
        equal = [each for each in checks if each not in self._topology.compare]
        if equal and isinstance(self._plan.root, Linear):
            equal = equal[:1]
        if len(equal) < len(checks) and not isinstance(self._plan.root, Linear):
            found: Iterable[Message] = task.entries.values()
        else:
            columns = tuple(_own(each, tree.rels) for each in equal)
            values = tuple(_value(message, _own(each, frozenset(message.ids))) for each in equal)
            found = task.index.get(columns, {}).get(values, ()) if equal else task.entries.values()
        for entry in found:
            if self._alive(entry) and all(self._holds(each, message, entry) for each in checks):
                first, last = min(message.times[0], entry.times[0]), max(message.times[1], entry.times[1])
                if self._topology.window is None or last - first <= self._topology.window:
                    yield entry

    def _holds(self, check: Predicate, message: Message, entry: Message) -> bool:
        keys = {**message.keys, **entry.keys}
        left, right = keys[check.left_rel][check.left_column], keys[check.right_rel][check.right_column]
        return left is not None and right is not None and compare(self._topology, check)(left, right)

    def _alive(self, entry: Message) -> bool:
        return self._topology.retention is None or self._now - entry.times[0] <= self._topology.retention

    def _result(self, message: Message, place: Place) -> None:
        missing = [rel for rel in self._topology.order if rel not in message.payload]
        if not missing:
            self._emit(message, place)
            return
        message = replace(message, flag="MATERIALIZATION_RESULT", kind="forward", path=tuple(missing))
        first = self._home(message, missing[0])
        if self._topology.reconstruction == "decoupled":
            self._send(replace(message, kind="handoff"), place, Place(ELSEWHERE, 0))
        elif first == place:
            self._reconstruct(message, place)
        else:
            self._send(message, place, first)

    def _fetch(self, message: Message, place: Place) -> None:
        """A process of its own asks the first store."""
        self._outcome.log.append(Logged(self._rid(message), place.store, "MATERIALIZATION_RESULT", self._now))
        self._send(replace(message, kind="reconstruct"), place, self._home(message, message.path[0]))

    def _reconstruct(self, message: Message, place: Place) -> None:
        task, rel = self._tasks[place], place.store
        rid = self._rid(message)
        if self._protocol.dedupe and message.kind != "reconstruct":
            if rid in task.fetched:
                return
            task.fetched.add(rid)
        row = task.entries.get((message.ids[rel],))
        if row is None or not self._alive(row):
            if self._protocol.park and row is None:
                waiting = replace(message, kind="reconstruct")
                task.parked.setdefault((message.ids[rel],), []).append(waiting)
            else:
                self._outcome.lost += 1
            return
        message = replace(message, payload=message.payload | row.payload, path=message.path[1:], kind="reconstruct")
        if message.path:
            self._send(message, place, self._home(message, message.path[0]))
        else:
            self._emit(message, place)

    def _emit(self, message: Message, place: Place) -> None:
        self._send(replace(message, flag="FINAL_JOIN", kind="emit"), place, Place(TICKER, 0), place.store)

    def _finish(self, message: Message, source: str) -> None:
        rid = self._rid(message)
        if self._protocol.dedupe and rid in self._done:
            return
        self._done.add(rid)
        self._outcome.results.append((rid, self._now))
        self._outcome.log.append(Logged(rid, source, "FINAL_JOIN", self._now))

    def _to_tasks(self, message: Message, source: Place, target: str, route: int | None, edge: str) -> None:
        tasks = range(self._topology.tasks) if route is None else (route,)
        for task in tasks:
            self._send(message, source, Place(target, task), edge)

    def _route(self, message: Message, columns: Columns, tree: Tree) -> int | None:
        """The task of the sibling's store, None for all: partners by another comparison may be anywhere."""
        parent = self._plan.parent(tree)
        assert parent is not None
        theta = any(each in self._topology.compare for each in self._plan.at(parent))
        return None if theta else self._task_of(message, columns)

    def _home(self, message: Message, rel: str) -> Place:
        return Place(rel, self._task_of(message, self._plan.partition(Leaf(rel))))

    def _task_of(self, message: Message, columns: Columns) -> int:
        values = _values(message, columns)
        if self._topology.routing == "balanced":
            return self._dealt.setdefault(values, len(self._dealt)) % self._topology.tasks
        return crc32(repr(values).encode()) % self._topology.tasks

    def _indexed(self, store: str) -> Iterator[Columns]:
        """The columns by which a store is asked for rows."""
        if isinstance(self._plan.root, Linear):
            yield from {(_own(each, frozenset((store,))),) for each in self._plan.predicates if store in each.rels}
        else:
            yield self._plan.grouping(self._trees[store])

    def _rid(self, message: Message) -> Rid:
        return tuple(message.ids[rel] for rel in self._plan.rels if rel in message.ids)

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), act))


def _values(message: Message, columns: Columns) -> tuple[Any, ...]:
    return tuple(_value(message, name) for name in columns)


def _value(message: Message, name: str) -> Any:
    rel, _, column = name.partition(".")
    return message.keys[rel][column]


def _own(check: Predicate, rels: frozenset[str]) -> str:
    rel = next(iter(check.rels & rels))
    return f"{rel}.{check.column(rel)}"


def _some(values: Mapping[str, V], names: Iterable[str]) -> dict[str, V]:
    return {name: values[name] for name in names if name in values}
