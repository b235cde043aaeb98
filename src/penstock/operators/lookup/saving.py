"""Saves and restores the state of a lookup join, also for another shard, another back end or a changed table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.errors import StateError
from penstock.core.master import layout_of
from penstock.core.operator import State
from penstock.core.page_list import PageList
from penstock.core.pages import Page, PageStore
from penstock.core.rows import RowType
from penstock.operators.lookup.back import BackEnd, Desk
from penstock.operators.lookup.backlog import INBOX, SHED, Backlog
from penstock.operators.lookup.config import LookupJoin
from penstock.operators.lookup.front import CACHED
from penstock.operators.lookup.inlj import MISSED, IndexJoin
from penstock.operators.lookup.meshjoin import CyclicJoin
from penstock.operators.lookup.overload import Overload
from penstock.operators.lookup.waiting import WAITING, Waiting


def name_of_back(config: LookupJoin) -> str:
    """The back end's name: the maker of its pages of waiting rows."""
    return type(config.stages.back).__name__.lower()


@dataclass(frozen=True, slots=True)
class Saving:
    """Saves and restores what a shard holds: waiting rows, the cache, counts of missed keys."""

    config: LookupJoin
    stream: RowType
    store: PageStore
    desk: Desk
    back: BackEnd
    inbox: Backlog
    shed: Backlog
    overload: Overload

    def save(self) -> State:
        """The state as pages and a record."""
        name, front = name_of_back(self.config), self.desk.front
        waiting = self.back.waiting.save(self.store, name)
        pages: list[Sequence[Page]] = [waiting, self.inbox.save(), self.shed.save()]
        meta: dict[str, object] = {"version": self.desk.table.version, "arrived": self.overload.arrived}
        if self.config.shed.on:
            meta["load"] = self.overload.load.to_json()
        if front is not None:
            pages.append(front.save(self.store))
            meta["threshold"] = front.threshold.value
        if isinstance(self.back, IndexJoin):
            pages.append(self.back.missed.save(self.store))
        meta |= {name: self.back.meta(), "layout": layout_of(self.desk.table)}
        return State(PageList.joined(pages), meta)

    def restore(self, state: State) -> None:
        """Restore the state; if the table has changed meanwhile, what is cached of it is dropped."""
        listed, front = PageList.of(state.pages), self.desk.front
        waiting = listed.of_kind(WAITING)
        ours = [page for page in waiting if page.maker in (None, name_of_back(self.config))]
        self.back.waiting.restore(self.store, ours)
        self.inbox.restore(listed.of_kind(INBOX))
        self.shed.restore(listed.of_kind(SHED))
        self.overload.load.restore(state.meta.get("load", {}))
        self.overload.arrived = int(state.meta.get("arrived", 0))
        if isinstance(self.back, IndexJoin):
            self.back.missed.restore(self.store, listed.of_kind(MISSED))
        if front is not None:
            front.restore(self.store, listed.of_kind(CACHED))
            front.threshold.value = int(state.meta.get("threshold", front.threshold.value))
        if isinstance(self.back, CyclicJoin) and state.meta.get("layout") != layout_of(self.desk.table):
            self.back.cut_anew()
        known = state.meta.get("version")
        if known != self.desk.table.version:
            self._renew(None if known is None else str(known))
        self._take_over([page for page in waiting if page not in ours])

    def _take_over(self, pages: list[Page]) -> None:
        """Let rows of another back end wait here; those that matched there are finished."""
        if not pages:
            return
        others = Waiting(self.stream.inside, self.desk.budget)
        others.restore(self.store, pages)
        if others.matched.any() and not (self.desk.table.clustered or self.desk.table.unique):
            raise StateError(
                f"Waiting rows have been compared with part of the table by method={pages[0].maker!r}, and only that "
                f"method knows which part. Start with it again and let it drain, or with a new checkpoint directory."
            )
        others.take(others.matched)
        rows, numbers = others.take(np.ones(len(others), np.bool_))
        if rows.num_rows:
            self.back.put(rows, numbers["hash"].view(np.uint64), numbers["attempts"])

    def _renew(self, since: str | None) -> None:
        """Adapt to a changed table: drop changed keys from the cache, and find the partitions of waiting rows again."""
        changes = None if since is None else self.desk.table.changes(since).keys
        if self.desk.front is not None:
            keys = (
                None if changes is None else [changes.column(name).combine_chunks() for name in self.config.table_keys]
            )
            self.desk.front.invalidate(keys)
        self.back.renew()
