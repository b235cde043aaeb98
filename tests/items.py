"""Streams of items, rows and punctuations, for the operators of progress; and a host that feeds them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lab.operators.group_bounds import group_batch
from lab.operators.punctuation import Punctuation, below
from penstock.core.budget import Budget
from penstock.core.operator import Out, Quiet, State
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX
from penstock.operators.progress import Guard
from penstock.operators.progress.guard import STATEMENTS
from penstock.storage.compaction import compact
from penstock.storage.versioned import state_from_json, state_to_json
from tests.streams import ROWS, EpochPages, batch


@dataclass(frozen=True)
class Rows:
    """Rows come on a port, (key, time) each."""

    port: int
    rows: tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Bound:
    """A linear punctuation, or one of `group` alone."""

    port: int
    bound: int
    group: Any = None


@dataclass(frozen=True)
class Restart:
    """State is saved and taken up again."""


Item = Rows | Bound | Restart


def rows(*pairs: tuple[Any, int], port: int = 0) -> Rows:
    """Rows by key and time."""
    return Rows(port, pairs)


@dataclass
class Host:
    """An operator at work, and all that came out of it: rows, and the bound after each item."""

    config: Any
    inputs: int = 1
    memory: int = 1 << 20
    types: RowType = ROWS
    out: list[Out] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = EpochPages()
        self.ids = itertools.count()
        self.bounds: list[int] = []
        self._build(State())

    def _build(self, state: State) -> None:
        self.budget = Budget(self.memory)
        self.logic = self.config.logic((self.types,) * self.inputs, self.store, self.budget, state)

    def on(self, *items: Item) -> Host:
        """Let things happen."""
        for item in items:
            self.out += self._outs(item)
            self.bounds.append(self.logic.bounds().individual[0])
        return self

    def end(self) -> Host:
        """All inputs are over, as hosts say it: their bounds are the end of time, then nothing more comes."""
        for port in range(self.inputs):
            self.out += self.logic.advance(port, TIME_MAX)
        self.out += self.logic.idle(Quiet(0))
        return self

    def _outs(self, item: Item) -> Iterator[Out]:
        if isinstance(item, Restart):
            self._restart()
            return iter(())
        if isinstance(item, Rows):
            return self.logic.rows(item.port, self.batch(item.rows))
        if item.group is None:
            return self.logic.advance(item.port, item.bound)
        said = Punctuation.of(**{self.types.time: below(item.bound), self.types.keys[0]: item.group})
        bounds = group_batch(self.types, [said])
        if isinstance(self.config, Guard):
            return self._stated(bounds)
        return self.logic.advance_groups(item.port, bounds)

    def _stated(self, bounds: pa.RecordBatch) -> Iterator[Out]:
        """As flows state it: by rows of a port of their own, which take effect when the epoch is over."""
        yield from self.logic.rows(STATEMENTS, bounds)
        yield from self.logic.idle(Quiet(1))

    def batch(self, pairs: Sequence[tuple[Any, int]]) -> pa.RecordBatch:
        """Rows as the operator gets them, each with an id of its own."""
        return batch([{"k": k, "t": t, "id": next(self.ids)} for k, t in pairs], self.types)

    def _restart(self) -> None:
        state = self.logic.state()
        pages = compact(state.pages, self.store, Budget(self.memory))
        assert self.budget.held == 0, "state() leaves memory charged"
        self.store.seal()
        self._build(state_from_json(json.loads(json.dumps(state_to_json(State(pages, state.meta))))))

    def times(self, outlet: str = "results") -> list[int]:
        """The times of what came out, in its order."""
        return [t for out in self.out if out.outlet == outlet for t in out.rows.column("t").to_pylist()]

    def pairs(self, outlet: str = "results") -> list[tuple[Any, int]]:
        """(key, time) of what came out, in its order."""
        taken = [out.rows for out in self.out if out.outlet == outlet]
        return [pair for r in taken for pair in zip(r.column("k").to_pylist(), r.column("t").to_pylist(), strict=True)]


keys = st.sampled_from([1, 1, 2, 3, None])
memories = st.sampled_from([5_000, 1 << 20])


@st.composite
def streams(
    draw: st.DrawFn, inputs: int = 1, groups: bool = False, ordered: bool = False, violators: bool = False
) -> list[Item]:
    """Items of `inputs` streams; grammatical unless there are to be `violators`; each stream by time if `ordered`."""
    items: list[Item] = []
    bounds = [-20] * inputs
    own: dict[tuple[int, Any], int] = {}
    latest = [-20] * inputs
    for step in range(draw(st.integers(1, 12))):
        port, kind = draw(st.integers(0, inputs - 1)), draw(st.integers(0, 9))
        if kind < 5:
            pairs = draw(st.lists(st.tuples(keys, st.integers(-10, 12)), max_size=8))
            came = []
            for k, t in sorted(pairs, key=lambda pair: pair[1]) if ordered else pairs:
                low = -50 if violators else max(bounds[port], own.get((port, k), -50))
                low = max(low, latest[port]) if ordered else low
                came.append((k, max(low, t + 3 * step)))
                latest[port] = max(latest[port], came[-1][1])
            items.append(Rows(port, tuple(came)))
        elif kind < 7 or (kind < 9 and not groups):
            bounds[port] = max(bounds[port], draw(st.integers(-10, 10)) + 3 * step)
            items.append(Bound(port, bounds[port]))
        elif kind < 9:
            group = draw(st.sampled_from([1, 2, 3]))
            own[port, group] = max(own.get((port, group), -50), draw(st.integers(-10, 10)) + 3 * step)
            items.append(Bound(port, own[port, group], group))
        else:
            items.append(Restart())
    return items


def is_sorted(values: Sequence[int]) -> bool:
    """Whether they never fall."""
    return bool(np.all(np.diff(values) >= 0))
