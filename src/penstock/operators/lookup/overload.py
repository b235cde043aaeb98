"""Handles overload: excess rows are put aside, and return when there is room."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.core.time import Time
from penstock.operators.lookup.back import BackEnd
from penstock.operators.lookup.backlog import Backlog
from penstock.operators.lookup.hybridjoin import OldestFirstJoin
from penstock.operators.lookup.shedding import Load, Shedding, lottery


class Overload:
    """Puts rows aside into `shed`, and lets them return through the `inbox` of rows that are to be let in."""

    def __init__(self, settings: Shedding, quota: int | None, back: BackEnd, inbox: Backlog, shed: Backlog) -> None:
        self._on = settings.on
        self._considers = settings.policy == "considering" and isinstance(back, OldestFirstJoin)
        self._back = back
        self._inbox = inbox
        self._shed = shed
        self.load = Load(settings, quota)
        self.arrived = self.put_aside = self.replayed = 0

    def choose(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The arrivals, without those that are put aside before they enter, if the policy does that."""
        first = self.arrived
        self.arrived += rows.num_rows
        if not self._on or self._considers:
            return rows
        free = self._back.free(rows)
        self.load.expect(free + len(self._back.waiting))
        excess = min(rows.num_rows, self.load.excess(len(self._inbox) + rows.num_rows, free))
        if not excess:
            return rows
        aside = np.zeros(rows.num_rows, np.bool_)
        aside[lottery(first, rows.num_rows, excess)] = True
        self.load.shedding = True
        self.put_aside += excess
        self._shed.put(rows.filter(pa.array(aside)), np.ones(excess, np.int64))
        return rows.filter(pa.array(~aside))

    def balance(self) -> None:
        """Put the oldest waiting rows aside if too many are queued, or let some that were put aside return."""
        queued = len(self._inbox)
        if not queued and not len(self._shed):
            return
        free = self._back.free((self._inbox if queued else self._shed).peek())
        self.load.expect(free + len(self._back.waiting))
        excess = self.load.excess(queued, free)
        room = self.load.room(queued, free) if len(self._shed) else 1
        if excess and self._considers:
            self._put_oldest_aside(self.load.shed_now(excess))
        elif not excess:
            self._replay(room)
        self.load.judged(excess, room)

    def _put_oldest_aside(self, count: int) -> None:
        """Put the oldest waiting rows aside; their slots are free at once (fix C)."""
        rows, numbers = self._back.waiting.take(self._back.waiting.oldest(count))
        self.put_aside += rows.num_rows
        self._shed.put(rows, numbers["attempts"] + 1)

    def _replay(self, count: int) -> None:
        """Let rows that were put aside return, behind those that arrived."""
        while count > 0 and len(self._shed):
            rows, attempts = self._shed.take(count)
            self.replayed += rows.num_rows
            count -= rows.num_rows
            self._inbox.put(rows, attempts)

    def replay_first(self, oldest: Time) -> None:
        """If rows from before `oldest` were put aside, let the next of them return before all others."""
        if self._shed.earliest() < oldest:
            rows, attempts = self._shed.take(max(1, self._back.free(self._shed.peek())))
            self.replayed += rows.num_rows
            self._inbox.lend_first(rows, attempts)
