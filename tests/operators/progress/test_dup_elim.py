"""F22: the first of equal rows passes, and what was seen is forgotten below the bound."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows import RowType
from penstock.operators.progress import DupElim
from tests.items import Bound, Host, Restart, Rows, memories, rows, streams
from tests.oracle.progress import first_of_each
from tests.streams import COLUMNS, examples


def test_f22_the_first_of_equal_rows_passes():
    host = Host(DupElim()).on(rows((1, 5), (2, 5), (1, 5), (None, 5)), rows((1, 6), (2, 5), (None, 5)))
    assert Counter(host.pairs()) == Counter([(1, 5), (2, 5), (None, 5), (1, 6)])


def test_f22_it_is_the_first_that_passes_where_others_differ_beside_the_key():
    host = Host(DupElim()).on(rows((1, 5), (1, 5), (1, 5)), rows((1, 5)))
    assert [out.rows.column("id").to_pylist() for out in host.out] == [[0]]


@given(streams(), memories)
@examples(0.1)
def test_f22_distinct_rows_of_a_grammatical_stream(items, memory):
    host = Host(DupElim(), memory=memory).on(*items)
    came = [pair for item in items if isinstance(item, Rows) for pair in item.rows]
    assert Counter(host.pairs()) == Counter(first_of_each(came))
    assert host.budget.peak <= memory
    host.end()
    assert host.logic.state().pages == ()
    assert host.budget.held == 0


def held(host: Host) -> int:
    return sum(page.rows for page in host.logic.state().pages)


def test_f22_state_is_what_lies_between_the_bound_and_the_latest_row():
    """A stream of any length under a bound that follows it: never more than two batches are remembered."""
    host = Host(DupElim())
    most = 0
    for step in range(50):
        host.on(rows(*((n % 3, 10 * step + n) for n in range(10))), Bound(0, 10 * step))
        most = max(most, held(host))
    assert most == 10
    assert len(host.pairs()) == 500


def test_f22_output_punctuation_is_that_of_the_input():
    assert Host(DupElim()).on(rows((1, 5)), Bound(0, 3), rows((1, 5)), Bound(0, 6)).bounds[-2:] == [3, 6]


def test_what_was_seen_survives_a_restart():
    assert Host(DupElim()).on(rows((1, 5)), Restart(), rows((1, 5))).pairs() == [(1, 5)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
@examples(0.05)
def test_the_time_column_may_be_among_the_keys(pairs):
    host = Host(DupElim(), types=RowType(COLUMNS, keys=("k", "t"), time="t")).on(rows(*pairs), rows(*pairs))
    assert Counter(host.pairs()) == Counter(set(pairs))


def test_other_types_of_keys():
    columns = pa.schema({"k": pa.list_(pa.int64()), "t": pa.int64(), "id": pa.int64()})
    host = Host(DupElim(), types=RowType(columns, keys=("k",), time="t"))
    assert host.on(rows(([1], 5), ([1], 5), ([2], 5), (None, 5), ([1], 6))).times() != []
    assert len(host.pairs()) == 4
