"""AMJoin: what fails, fails without a probe (F30)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.within import band
from tests.operators.multi_way.cases import LinearCase, LinearRun, arrive, linear
from tests.streams import Advance, EpochEnd, examples


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=60))
@examples(1)
def test_f30_failing_arrivals_make_no_store_probes(rows):
    """An arrival fails if its key is not yet in every other stream; any other probes each of the three stores once."""
    join = LinearRun(linear(4, method="amjoin"))
    seen: set[tuple[int, int]] = set()
    failed = probes = 0
    for port, key, restart in rows:
        complete = all((other, key) in seen for other in range(4) if other != port)
        before = join.counts()
        join.on(arrive(port, (key, 0)))
        now = join.counts()
        assert now["probes"] - before["probes"] == (3 if complete else 0)
        assert now["failed"] - before["failed"] == (not complete)
        failed, probes = failed + (not complete), probes + 3 * complete
        seen.add((port, key))
        if restart:
            join.on(EpochEnd(1))
    assert join.counts()["probes to failure"] == 0


def test_bits_of_rows_that_left_are_cleared():
    join = LinearRun(linear(3, band(5, 5), method="amjoin"))
    join.on(arrive(1, (1, 0)), arrive(2, (1, 0)), *(Advance(port, 50) for port in range(3)))
    join.on(arrive(0, (1, 60)))
    assert join.counts()["probes"] == 0
    assert join.counts()["failed"] == 3


def test_bits_are_set_for_rows_that_another_method_stored():
    events = [arrive(1, (1, 0)), arrive(2, (1, 0)), EpochEnd(2, "amjoin"), arrive(0, (1, 0), (2, 0))]
    case = LinearCase(linear(3), events)
    join = case.run()
    assert join.results == case.expected()
    assert join.results.total() == 1
    assert join.counts()["failed"] == 1


def test_keys_that_share_a_vector_only_cost_probes():
    """In memory for 64 vectors, 500 keys: what looks complete and is not is probed for in vain."""
    keys = [(key, 0) for key in range(500)]
    case = LinearCase(
        linear(3, method="amjoin"), [arrive(0, *keys[::2]), arrive(1, *keys[::3]), arrive(2, *keys)], memory=12_000
    )
    join = case.run()
    assert join.results == case.expected()
    assert join.budget.held == 0
    assert join.counts()["probes to failure"] > 0
