"""Lookup joins against their definition (F01, F02, F04–F09, F29): any back end, cache, epoch cut, shards, memory."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.lookup import Stages
from tests.operators.lookup.cases import Case, Run, backs, cases, fronts, run
from tests.streams import examples


@given(cases())
def test_f04_f06_f29_a_lookup_join_equals_its_definition(case: Case):
    at_work = run(case)
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory
    assert all(logic.waits().rows == 0 for logic in at_work.logics)


@examples(0.3)
@given(cases(), st.lists(st.builds(Stages, back=backs(), front=fronts()), min_size=6, max_size=6))
def test_another_method_may_go_on_with_what_waits(case: Case, methods: list[Stages]):
    at_work = Run(case.config, case.memory)
    for rows, shards, method in zip(case.epochs, case.shards, methods, strict=False):
        at_work.config = replace(case.config, method=method)
        at_work.epoch(rows, shards)
    at_work.config = replace(case.config, method=methods[-1])
    at_work.epoch((), case.shards[-1] if case.shards else 1, end=True)
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory
