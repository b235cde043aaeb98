"""F22: punctuation through select, apply and project: what comes out never excludes a row that comes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operators import Computed, Projection, select
from lab.operators.punctuation import Punctuation, Range, below
from penstock.core.errors import PunctuationError
from tests.streams import examples

MINUTE = Computed("ts", lambda ts: ts // 6, keeps="order")
TWICE = Computed("ip", lambda ip: None if ip is None else 2 * ip, keeps="values")

projections = st.sampled_from(
    [
        Projection((("ts", "ts"), ("ip", "ip")), on="ts"),
        Projection((("ts", "ts"),), on="ts"),
        Projection((("ip", "ip"), ("minute", MINUTE)), on="minute"),
        Projection((("ts", "ts"), ("minute", MINUTE), ("ip", "ip")), on="minute"),
        Projection((("when", "ts"), ("twice", TWICE)), on="when"),
        Projection((("minute", MINUTE), ("twice", TWICE)), on="minute"),
    ]
)
said = st.one_of(
    st.builds(lambda p: Punctuation.of(ts=below(p)), st.integers(-9, 30)),
    st.builds(lambda p, ip: Punctuation.of(ts=below(p), ip=ip), st.integers(-9, 30), st.integers(0, 2)),
    st.builds(lambda a, n: Punctuation.of(ts=Range(a, a + n)), st.integers(-9, 30), st.integers(1, 9)),
    st.builds(lambda ip: Punctuation.of(ip=ip), st.integers(0, 2)),
    st.builds(lambda t: Punctuation.of(ts=t), st.integers(-9, 30)),
)
a_row = st.fixed_dictionaries({"ts": st.integers(-9, 30), "ip": st.integers(0, 2)})
INPUT = pa.schema({"ts": pa.int64(), "ip": pa.int64()})


def projected(projection: Projection, rows: list[dict]) -> pa.RecordBatch:
    def made(row: dict, how: str | Computed) -> int:
        return how.function(row[how.column]) if isinstance(how, Computed) else row[how]

    schema = pa.schema([(name, pa.int64()) for name, _ in projection.columns])
    return pa.RecordBatch.from_pylist([{n: made(row, how) for n, how in projection.columns} for row in rows], schema)


@given(projections, said, st.lists(a_row, max_size=30))
@examples(0.1)
def test_f22_no_row_after_it_matches_a_punctuation_that_came_through(projection, punctuation, rows):
    may_come = pa.RecordBatch.from_pylist(rows, schema=INPUT)
    rows = [row for row, gone in zip(rows, punctuation.matches(may_come), strict=True) if not gone]
    through = projection.punctuation(punctuation)
    if through is not None:
        assert not through.matches(projected(projection, rows)).any()
    assert not select(punctuation).matches(pa.RecordBatch.from_pylist(rows[::2], schema=INPUT)).any()


@given(projections, st.integers(-9, 30))
@examples(0.05)
def test_f22_linear_punctuation_comes_through_as_linear_punctuation(projection, bound):
    through = projection.punctuation(Punctuation.of(ts=below(bound)))
    assert through.linear(projection.on) == (bound // 6 if projection.on == "minute" else bound)


def test_f22_a_punctuation_that_loses_a_column_goes_no_further():
    """Leaving the group out would claim that all of ts < 9 is over."""
    assert Projection((("ts", "ts"),), on="ts").punctuation(Punctuation.of(ts=below(9), ip=1)) is None


def test_f22_what_an_order_keeping_function_says_of_constants_is_nothing():
    """Others of the same minute may still come."""
    assert Projection((("minute", MINUTE),), on="minute").punctuation(Punctuation.of(ts=7)) is None


def test_f22_rounding_up_would_claim_a_minute_that_is_not_over():
    """Mutation: with ⌈p / 60⌉ instead of ⌊·⌋ the row at 13, which may follow punctuation 13, would be excluded."""
    up = Computed("ts", lambda ts: -(-ts // 6), keeps="order")
    rows = pa.record_batch({"minute": pa.array([13 // 6])})
    both = (Projection((("minute", how),), on="minute") for how in (MINUTE, up))
    right, wrong = (projection.punctuation(Punctuation.of(ts=below(13))) for projection in both)
    assert not right.matches(rows).any()
    assert wrong.matches(rows).all()


def test_f22_a_projection_keeps_the_progressing_column():
    with pytest.raises(PunctuationError) as refused:
        Projection((("ip", "ip"),), on="ts")
    assert str(refused.value) == (
        "on='ts' is not among the columns ip: the output would not progress, and no window after it would ever close. "
        "Keep the progressing column."
    )
