"""Lookup joins against their definition (F01, F02, F04–F09, F29): any back end, cache, epoch cut, shards, memory."""

from __future__ import annotations

from hypothesis import given

from tests.operators.lookup.cases import Case, cases, run


@given(cases())
def test_a_lookup_join_equals_its_definition(case: Case):
    at_work = run(case)
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory
    assert all(logic.counts().deferred == 0 for logic in at_work.logics)
