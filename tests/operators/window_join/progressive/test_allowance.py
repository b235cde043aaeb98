"""Work put off is pre-emptible: it goes on where it was when time ran out, and each silent epoch gets some done."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.time import TIME_MAX
from penstock.operators.window_join import Rrpj
from penstock.runtime import shard
from penstock.storage.versioned import Plan
from tests.operators.window_join.progressive.test_engine import join
from tests.streams import Advance, EpochEnd, examples, left, right

METHOD = Rrpj(memory=6, row=1, partitions=3, flush=0.5)


@dataclass
class Steps:
    """Allows so many steps."""

    steps: int

    def left(self) -> bool:
        self.steps -= 1
        return self.steps >= 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=60), st.lists(st.integers(0, 4), max_size=8))
@examples(0.5)
def test_no_pair_is_lost_or_doubled_wherever_time_runs_out(rows, allowances):
    at_work = join(METHOD)
    cuts = itertools.cycle([*allowances, 2])
    for n, (is_left, k) in enumerate(rows):
        at_work.on((left if is_left else right)(t=n, k=k))
        if n % 7 == 6:
            at_work.take(at_work.logics[0].idle(Steps(next(cuts))))
            at_work.on(EpochEnd(1))
    at_work.on(Advance(0, TIME_MAX), Advance(1, TIME_MAX))
    at_work.take(at_work.logics[0].idle(Steps(0)))
    sides = [[n for n, (is_left, _) in enumerate(rows) if is_left is side] for side in (True, False)]
    assert sum(at_work.results.values()) == len(at_work.results)
    assert set(at_work.results) == {(a, b) for a in sides[0] for b in sides[1] if rows[a][1] == rows[b][1]}


def silent_epochs(monkeypatch: pytest.MonkeyPatch, trigger: str | None, tick: float) -> list[int]:
    """What comes out in each of 40 silent epochs by a clock that moves on by `tick` seconds whenever it is read."""
    now = itertools.count()
    monkeypatch.setattr(shard.clock, "perf_counter", lambda: next(now) * tick)
    keys = np.random.default_rng(1).integers(0, 30, (2, 300))
    silence = [pa.table({"k": pa.array([], pa.int64()), "t": pa.array([], pa.int64())})] * 40
    flow = pk.LocalFlow(memory="32 MB")
    streams = [
        flow.source([pa.table({"k": some, "t": np.arange(300)}), *silence], time="t", name=name)
        for some, name in zip(keys, "lr", strict=True)
    ]
    streams[0].join(streams[1], on="k", method=Rrpj(memory=20, row=1, partitions=8)).to_memory()
    query = flow.start(trigger) if trigger else flow.run(end=False)
    first, *silent = (epoch.rows_out for epoch in query.progress().epochs)
    assert first + sum(silent) == sum(int((keys[1] == key).sum()) for key in keys[0])
    return silent


def test_without_a_trigger_one_silent_epoch_does_all_of_it(monkeypatch):
    assert [bool(rows) for rows in silent_epochs(monkeypatch, None, 1.0)] == [True, *[False] * 39]


def test_with_a_trigger_each_silent_epoch_does_what_there_is_time_for(monkeypatch):
    slow = silent_epochs(monkeypatch, "2 s", 1.0)
    faster = silent_epochs(monkeypatch, "2 s", 0.25)
    assert sum(map(bool, slow)) > sum(map(bool, faster)) > 1


def test_however_short_the_time_is_each_silent_epoch_gets_something_done(monkeypatch):
    """By this clock, what comes before the first step takes all of it: as where epochs are milliseconds apart."""
    silent = silent_epochs(monkeypatch, "2 s", 1000.0)
    assert sum(map(bool, silent)) > 5


def test_the_time_is_divided_over_shards_and_deferring_operators_and_is_on_record():
    flow = pk.LocalFlow(shards=4)
    a, b = (flow.source(pa.table({"k": [1], "t": [1]}), time="t", name=name) for name in "ab")
    a.join(b, on="k", method="rrpj").to_memory()
    a.join(b, on="k", method="xjoin").to_memory()
    query = flow._query(trigger=1.6)
    assert query._plan(end=False).spare == pytest.approx(0.7 * 1.6 / 8)
    assert query._plan(end=True).spare is None
    assert Plan.from_json(query._plan(end=False).to_json()).spare == pytest.approx(0.7 * 1.6 / 8)
