"""The shards of an operator in this process: where each works, and what it leaves there."""

from __future__ import annotations

import time as clock
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow.fs import FileType

from penstock.core.budget import Budget, BudgetPart
from penstock.core.kept import KEPT_PART, hand_over, kept_by
from penstock.core.meter import Tally
from penstock.core.operator import Out, State
from penstock.core.pages import PageStore, names_of
from penstock.core.rows import HashedBy
from penstock.flow.graph import OperatorNode
from penstock.flow.report import OperatorReport
from penstock.kernels.route import by_shard
from penstock.runtime.course import Course
from penstock.runtime.records import ShardRecord
from penstock.runtime.shard import Arrived, PortBounds, run, settled
from penstock.storage.files import FilePages, find_folder, folder_for, make_folder
from penstock.storage.memory import MemoryPages
from penstock.storage.sharing import SharedPages
from penstock.storage.versioned import Plan


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shard of an operator works: its memory, and the store of its pages."""

    budget: Budget
    store: PageStore

    def let_go(self, gone: Iterable[str], everything: bool) -> None:
        """Drop pages; with `everything`, also what logics still hold, but not what is kept of tables."""
        for name in gone:
            self.store.drop(name)
        if everything:
            saved = self.store.held if isinstance(self.store, MemoryPages) else 0
            self.budget.release(self.budget.held - saved - kept_by(self.budget))


class Places:
    """Where the shards of all operators work: each shard of all of them has one budget, and spills to one folder."""

    def __init__(self, folder: str, memory: int, shards: int) -> None:
        self._folder = folder
        budgets = [Budget(max(1, memory // shards)) for _ in range(shards)]
        self._shared = [Place(budget, MemoryPages(budget, FilePages(folder))) for budget in budgets]

    def of(self, node: OperatorNode, share: int, owner: object) -> list[Place]:
        """Where an operator's shards work: those that ask for less memory, or put rows aside, in places of their own.

        Their pages are files, as on Spark: what they ask for is for the rest. What they keep elsewhere goes with
        `owner`: state that is lost leaves nothing behind.
        """
        elsewhere = node.config.elsewhere
        if node.memory is None and not node.config.sheds:
            return self._shared
        folder = f"{self._folder}/pages-{node.name}"
        for place in elsewhere.values():
            make_folder(folder_for(folder, place), f"to={place!r}")
            weakref.finalize(owner, _remove, folder_for(folder, place))
        return [
            Place(BudgetPart(place.budget, share), FilePages(folder, elsewhere=elsewhere)) for place in self._shared
        ]


class LocalWorkers:
    """Runs operators shard after shard, each in its place, and keeps what an epoch leaves."""

    hashed_by: HashedBy = "hash_keys"

    def __init__(self, course: Course, places: Mapping[str, Sequence[Place]]) -> None:
        self._course = course
        self._places = places
        self.states = dict(course.ledger.states)
        """What the shards of each operator have become."""
        self.reports: dict[str, OperatorReport] = {}
        """What each operator did."""

    def work(
        self, node: OperatorNode, plan: Plan, ports: Sequence[PortBounds], arrivals: Sequence[Iterable[pa.RecordBatch]]
    ) -> Iterator[Out]:
        """Run an epoch of an operator."""
        config, places = self._course.config(node, plan), self._places[node.name]
        if config.keeps_between_epochs:
            payer = places[0].budget
            hand_over(payer, payer.limit // KEPT_PART)
        types = tuple(replace(rows, hashed_by=self.hashed_by) for rows in node.types)
        parts = [(port, by_shard(rows, len(places))) for port, batches in enumerate(arrivals) for rows in batches]
        states: list[State] = []
        records: list[ShardRecord] = []
        for shard, (place, old) in enumerate(zip(places, self._course.held(node), strict=True)):
            begun = clock.perf_counter()
            tally = Tally()
            store = SharedPages(place.store, old.pages)
            logic = config.logic(types, store, place.budget, old, tally)
            arrived = Arrived.at(config, types, len(node.inputs))
            given = [(port, rows[shard]) for port, rows in parts]
            mine = list(run(logic, ports, given, arrived, iter, spare=plan.spare))
            state = settled(config, logic, store, place.budget)
            place.let_go(names_of(old.pages) - names_of(state.pages), everything=config.keeps_between_epochs)
            states.append(state)
            records.append(
                ShardRecord.of(
                    logic,
                    tally,
                    place.budget,
                    arrived,
                    rows_out=sum(out.rows.num_rows for out in mine if out.outlet != "late"),
                    seconds={"work": clock.perf_counter() - begun},
                )
            )
            yield from mine
        self.states[node.name] = tuple(states)
        self.reports[node.name] = self._course.report(node, plan, plan.tracks, records, states)


def _remove(uri: str) -> None:
    """Delete a folder of pages, if it was made."""
    files, path = find_folder(uri)
    if files.get_file_info(path).type == FileType.Directory:
        files.delete_dir(path)
