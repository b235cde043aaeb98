"""Where payload of several sources is: what one brings leaves less room for another."""

from __future__ import annotations

import json

import pyarrow as pa

import penstock as pk
from penstock.flow.graph import sources_of
from penstock.flow.report import OperatorReport
from penstock.flow.sinks import operators_needed
from penstock.runtime.homes import Homes, guessed
from penstock.runtime.payload import Late, detached, untouched

ROWS = pa.table({"k": [1], "t": [0], "note": [""]})
WIDTH = 1000
COUNT = 30_000
"""Rows of each source in an epoch: 30 MB of payload."""


def homes(room: float) -> Homes:
    """Those of a join of two streams, whose payload is left to be chosen."""
    flow = pk.LocalFlow()
    a, b = (flow.source(ROWS, time="t", name=name) for name in "ab")
    a.join(b, on="k", within=pk.band(5, 5)).to_memory()
    found = untouched(flow._sinks, [a._node, b._node])
    late = {node: Late(paths, paths, None, None, "auto", WIDTH) for node, paths in found.items()}
    sinks = detached(flow._sinks, late)
    return Homes(sources_of(*(sink.node for sink in sinks)), operators_needed(sinks), room)


def after(some: Homes, epochs: int, results: int, in_driver: bool = True) -> set[str]:
    """The sources whose payload stays after some epochs."""
    for _ in range(epochs):
        some.learn({"a": COUNT, "b": COUNT}, {"join0": OperatorReport(rows_out=results)}, in_driver)
    return {name for name, pilot in some.pilots.items() if pilot.late}


def test_payload_of_both_travels_where_both_fit_the_driver():
    assert after(homes(room=70e6), 8, results=25 * COUNT) == set()


def test_of_two_that_turn_out_not_to_fit_together_one_stays():
    some = homes(room=70e6)
    assert after(some, 8, results=25 * COUNT) == set()
    assert after(some, 1, results=25 * COUNT, in_driver=False) == {"a"}
    assert [after(some, 1, results=25 * COUNT) for _ in range(8)] == [{"a"}] * 8


def test_what_does_not_fit_alone_either_stays():
    some = homes(room=70e6)
    after(some, 8, results=25 * COUNT)
    assert after(some, 2, results=25 * COUNT, in_driver=False) == {"a", "b"}
    assert [after(some, 1, results=25 * COUNT) for _ in range(8)] == [{"a", "b"}] * 8


def test_epochs_in_tasks_do_not_make_the_memory_of_tasks_smaller():
    some = homes(room=70e6)
    for _ in range(8):
        some.learn({"a": 100, "b": 100}, {"join0": OperatorReport(rows_out=2_500)}, in_driver=False)
    assert all(pilot.room < 1e6 and "too little memory" not in pilot.says() for pilot in some.pilots.values())
    assert after(some, 8, results=COUNT // 10, in_driver=False) == {"a", "b"}


def test_payload_that_spark_would_scan_is_guessed_to_cost_what_tasks_take():
    flow = pk.LocalFlow()
    a, b = (flow.source(ROWS, time="t", name=name) for name in "ab")
    joined = a.join(b, on="k", within=pk.band(5, 5))
    joined.to_memory()
    for width, stays in ((10, False), (1000, True)):
        late, why = guessed(a._node, width, 1, operators_needed(flow._sinks))
        assert late is stays
        assert why.startswith("for a million rows that all become results, predicted to take")


def test_f18_a_restart_goes_on_with_what_was_learned_of_every_source():
    once, begun, resumed = (homes(room=70e6) for _ in range(3))
    after(once, 3, results=25 * COUNT)
    after(begun, 3, results=25 * COUNT)
    resumed.resume(json.loads(json.dumps(begun.saved())))
    for results in (25 * COUNT, COUNT, 0, 0, 0, 0, 0, 0):
        assert after(resumed, 1, results) == after(once, 1, results)
    assert resumed.saved() == once.saved()
    assert after(once, 0, 0) == {"a", "b"}
