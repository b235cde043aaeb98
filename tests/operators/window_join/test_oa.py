"""OA-Join against its definition (F16, F17, F19), by hand and on hypothesis-made streams."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows import RowType
from penstock.core.within import always, band, tumbling, windows
from penstock.operators.window_join import WindowJoin
from tests.oracle import window_join as oracle
from tests.streams import LEFT, RIGHT, Arrive, Case, Run, advance, cases, examples, join, left, right, run


def pairs(config, *events):
    at_work = Run(config)
    at_work.on(*events)
    return sorted(at_work.results.elements(), key=str)


def test_a_late_row_still_meets_its_partner_while_the_bound_allows_it():
    out = pairs(join("k", band(5, 5)), left(t=0, k=1), right(t=9, k=2), advance(left=4), right(t=5, k=1))
    assert out == [(0, 5)]


def test_an_unmatched_left_row_comes_out_as_soon_as_no_partner_can_come():
    config = join("k", band(5, 5), how="left")
    assert pairs(config, left(t=0, k=1), advance(right=5)) == []
    assert pairs(config, left(t=0, k=1), advance(right=6)) == [(0, None)]


def test_window_on_si_a_left_row_stays_as_long_as_the_left_window():
    config = join("k", windows(left=3, right=2))
    assert pairs(config, left(t=10, k=1), right(t=13, k=1)) == [(10, 13)]
    assert pairs(config, left(t=10, k=1), right(t=14, k=1)) == []
    assert pairs(config, left(t=10, k=1), right(t=8, k=1)) == [(10, 8)]
    assert pairs(config, left(t=10, k=1), right(t=7, k=1)) == []


def test_tumbling_windows_start_at_the_floor_below_zero_too():
    config = join("k", tumbling(10))
    assert pairs(config, left(t=-1, k=1), right(t=-10, k=1), right(t=0, k=1)) == [(-1, -10)]


@given(cases())
@examples(5.0)
def test_window_join_equals_its_definition(case: Case):
    join = run(case)
    assert join.results == case.expected()
    assert join.held == 0
    assert join.budget.held == 0
    assert join.budget.peak <= case.memory


# Keys of every type

NAN = float("nan")
KEYS = {
    pa.string(): ["", "a", "ab", None],
    pa.float64(): [0.0, -0.0, 1.5, NAN, None],
    pa.decimal128(10, 2): [Decimal("1.10"), Decimal("-1.10"), None],
    pa.date32(): [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None],
    pa.bool_(): [True, False, None],
    pa.binary(): [b"", b"\x00", None],
    pa.struct({"a": pa.int64(), "b": pa.string()}): [{"a": 1, "b": "x"}, {"a": 1, "b": None}, None],
    pa.list_(pa.int64()): [[], [1], [1, None], None],
}


def rows_of(kind: pa.DataType):
    row = st.fixed_dictionaries({"k": st.sampled_from(KEYS[kind]), "t": st.integers(0, 6)})
    return st.lists(row, max_size=12)


def numbered(port: int, rows: list[dict]) -> Arrive:
    return Arrive(port, [{**row, "id": place} for place, row in enumerate(rows)])


def joined(config: WindowJoin, types: RowType, *arrivals: Arrive, memory: int = 1 << 20) -> Run:
    at_work = Run(config, memory=memory, types=(types, types))
    for arrival in arrivals:
        at_work.on(arrival)
    at_work.end()
    return at_work


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_keys_of_every_type_match_as_spark_compares_them(kind):
    types = RowType(pa.schema({"k": kind, "t": pa.int64(), "id": pa.int64()}), keys=("k",), time="t")

    @given(rows_of(kind), rows_of(kind), st.sampled_from(["inner", "full", "anti"]))
    @examples(0.01)
    def check(lefts, rights, how):
        arrivals = numbered(LEFT, lefts), numbered(RIGHT, rights)
        out = joined(join("k", band(1, 2), how), types, *arrivals)
        assert out.results == oracle.window_join(arrivals[0].rows, arrivals[1].rows, oracle.band(-1, 2), how)

    check()


def test_nan_equals_nan_zero_equals_minus_zero_and_null_equals_nothing():
    types = RowType(pa.schema({"k": pa.float64(), "t": pa.int64(), "id": pa.int64()}), keys=("k",), time="t")
    lefts = numbered(LEFT, [{"k": NAN, "t": 0}, {"k": 0.0, "t": 0}, {"k": None, "t": 0}])
    rights = numbered(RIGHT, [{"k": NAN, "t": 0}, {"k": -0.0, "t": 0}, {"k": None, "t": 0}])
    out = joined(join("k", band(0, 0), "full"), types, lefts, rights)
    assert sorted(out.results, key=str) == [(0, 0), (1, 1), (2, None), (None, 2)]


def test_every_column_of_a_key_must_be_equal_and_none_null():
    columns = pa.schema({"a": pa.int64(), "b": pa.string(), "t": pa.int64(), "id": pa.int64()})
    types = RowType(columns, keys=("a", "b"), time="t")
    config = WindowJoin((("a", "a"), ("b", "b")), band(0, 0), "left")
    lefts = numbered(LEFT, [{"a": 1, "b": "x", "t": 0}, {"a": 1, "b": "y", "t": 0}, {"a": 1, "b": None, "t": 0}])
    rights = numbered(RIGHT, [{"a": 1, "b": "x", "t": 0}, {"a": 2, "b": "y", "t": 0}, {"a": 1, "b": None, "t": 0}])
    out = joined(config, types, lefts, rights)
    assert sorted(out.results, key=str) == [(0, 0), (1, None), (2, None)]


def test_an_unmatched_right_row_shows_its_key_in_the_shared_column():
    at_work = Run(join("k", band(1, 1), "full"))
    at_work.on(right(t=3, k=7))
    at_work.end()
    assert [row for out in at_work.out for row in out.to_pylist()] == [
        {"k": 7, "t": None, "id": None, "t_right": 3, "id_right": 3}
    ]


# Memory


def hot_half(port: int, count: int) -> Arrive:
    """Half of the rows have one key; all are near each other in time."""
    return Arrive(port, [{"k": 0 if n % 2 else n, "t": n % 10, "id": n} for n in range(count)])


def test_a_hot_key_in_tiny_memory_gives_every_pair_in_small_chunks():
    """Half of 2,000 rows a side have one key: a million pairs, 40 MB, under 200 kB."""
    at_work = Run(join("k", band(10, 10)), memory=200_000)
    largest = count = 0
    for port in (LEFT, RIGHT):
        at_work.on(hot_half(port, 2_000))
        count += sum(out.num_rows for out in at_work.out)
        largest = max([largest, *(out.nbytes for out in at_work.out)])
        at_work.out.clear()
    assert count == 1_001 * 1_001 + 999, "the key 0 for every odd n and for 0; the other even ones once"
    assert largest <= at_work.budget.limit
    assert at_work.budget.peak <= at_work.budget.limit


def test_one_wide_row_with_many_partners_is_not_copied_beyond_the_memory():
    """A left row of 50 kB among small ones meets 400 right rows: 20 MB of pairs must come out in small pieces."""
    columns = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64(), "text": pa.string()})
    types = RowType(columns, keys=("k",), time="t")
    at_work = Run(join("k", band(5, 5)), memory=1_000_000, types=(types, types))
    small = [{"k": n, "t": 0, "id": n, "text": "x"} for n in range(1, 1000)]
    at_work.on(Arrive(LEFT, [{"k": 0, "t": 0, "id": 0, "text": "x" * 50_000}, *small]))
    at_work.on(Arrive(RIGHT, [{"k": 0, "t": 0, "id": n, "text": "y"} for n in range(400)]))
    assert sum(out.num_rows for out in at_work.out) == 400
    assert max(out.nbytes for out in at_work.out) <= at_work.budget.limit


# Pages of an epoch


def test_pages_that_follow_each_other_in_hash_are_one_run():
    at_work = Run(join("k", always()))
    at_work.on(*(left(t=0, k=k) for k in range(12)))
    pages = at_work.logics[0].state().pages
    follow = [earlier.max_hash < later.min_hash for earlier, later in pairwise(pages)]
    assert {*follow} == {True, False}
    assert [earlier.maker is not None and earlier.maker == later.maker for earlier, later in pairwise(pages)] == follow
