"""Pilots: who gets one, and what it is told of an epoch, whatever the host."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.planner import AggregatePilot, LookupPilot, Pilot
from penstock.planner.families import Asked, pilot_for
from penstock.planner.flown import Flown

ROWS = pa.table({"k": [1, 2], "t": [0, 5]})
TABLE = pa.table({"k": list(range(100)), "v": list(range(100))})


def node_of(family: str, method: str = "auto"):
    flow = pk.LocalFlow()
    a, b = (flow.source(ROWS, time="t", name=name) for name in "ab")
    if family == "join":
        return a.join(b, on="k", within=pk.band(0, 5), method=method)._node
    if family == "lookup":
        return a.lookup(TABLE, on="k", method=method)._node
    return a.window(range=10, slide=5).by("k").agg(n=pk.count(), method=method)._node


def pilot_of(node, **given):
    return pilot_for(
        Asked(
            node.config,
            node.types,
            feeds=False,
            memory=10**6,
            tasks=2,
            share=250_000,
            table=lambda: node.config.table,
            **given,
        )
    )


def epoch(**given) -> Flown:
    nothing = {"results": 0, "lifted": (0, 0), "seconds": 0.1, "counts": {}, "pages": []}
    return Flown(**{"before": (0, 0), "after": (10, 10), "rows": (0, 0), **nothing, **given})


@pytest.mark.parametrize(
    ("family", "kind", "named"),
    [("join", Pilot, "oa"), ("lookup", LookupPilot, "inlj"), ("window", AggregatePilot, "wid")],
)
def test_an_operator_has_a_pilot_of_its_family_only_if_its_method_was_left_open(family, kind, named):
    assert type(pilot_of(node_of(family))) is kind
    assert pilot_of(node_of(family, named)) is None


def test_a_pilot_goes_on_from_the_method_that_ran():
    pilot = pilot_of(node_of("lookup"), current="cinlj")
    assert pilot._current == "cinlj"
    assert pilot.load.memory == 250_000


def test_a_lookups_pilot_is_told_rows_and_stream_time_and_what_was_looked_up():
    pilot = pilot_of(node_of("lookup"))
    pilot.learn(epoch(rows=(4000,), counts={"reads": 1, "looked_up": 100}))
    assert pilot.load.rows_per_second == 200, "4,000 rows in 10 steps, over 2 tasks"
    assert pilot.load.epoch_seconds == 10


def test_the_pilots_of_joins_and_windows_learn_their_loads():
    steers_join, steers_window = pilot_of(node_of("join")), pilot_of(node_of("window"))
    steers_join.learn(epoch(rows=(100, 50)))
    steers_window.learn(epoch(rows=(100,), lifted=(100, 40), results=20))
    assert steers_join._measured.load is not None
    assert steers_window._load is not None
