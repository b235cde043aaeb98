"""F01: patterns, matching, coverage, linear and group-wise linear punctuation."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operators.group_bounds import group_batch
from lab.operators.punctuation import ANYTHING, Constant, Punctuation, Range, below, is_group_wise
from penstock.core.errors import PunctuationError
from tests.streams import ROWS, examples

values = st.one_of(st.none(), st.integers(-4, 4))
ends = st.integers(-4, 4)
ranges = st.one_of(
    st.builds(lambda a, b: Range(min(a, b), max(a, b) + 1), ends, ends),
    st.builds(below, ends),
    st.builds(lambda a: Range(start=a), ends),
)
patterns = st.one_of(st.just(ANYTHING), st.builds(Constant, values), ranges)
punctuations = st.builds(lambda a, b: Punctuation.of(a=a, b=b), patterns, patterns)
tables = st.lists(st.tuples(values, values), max_size=12)


def batch(rows) -> pa.RecordBatch:
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    return pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in rows], schema=schema)


def by_definition(pattern, value) -> bool:
    """Value by value."""
    if pattern == ANYTHING:
        return True
    if isinstance(pattern, Constant):
        return value == pattern.value
    if value is None:
        return False
    return (pattern.start is None or pattern.start <= value) and (pattern.stop is None or value < pattern.stop)


@given(punctuations, tables)
@examples(0.1)
def test_f01_a_row_matches_iff_every_column_does(punctuation, rows):
    expected = [by_definition(punctuation["a"], a) and by_definition(punctuation["b"], b) for a, b in rows]
    assert punctuation.matches(batch(rows)).tolist() == expected


@given(punctuations, punctuations)
@examples(0.1)
def test_f01_a_punctuation_covers_another_iff_it_matches_all_that_the_other_does(one, other):
    """On the whole domain: covering is exact but where a range of whole numbers happens to be finite."""
    domain = batch([(a, b) for a in [None, *range(-9, 10)] for b in [None, *range(-9, 10)]])
    everything = one.matches(domain) | ~other.matches(domain)
    assert not one.covers(other) or everything.all()
    finite = any(isinstance(p, Constant | Range) for p in (one["a"], one["b"]))
    assert one.covers(other) or not everything.all() or finite


def test_f01_covering_by_hand():
    assert Punctuation.of(ts=below(10)).covers(Punctuation.of(ts=below(10)))
    assert Punctuation.of(ts=below(10)).covers(Punctuation.of(ts=9))
    assert not Punctuation.of(ts=below(10)).covers(Punctuation.of(ts=10)), "strict: 10 may still come"
    assert not Punctuation.of(ts=below(10)).covers(Punctuation.of(ip="a"))
    assert not Punctuation.of(ts=below(10), ip="a").covers(Punctuation.of(ts=below(10)))
    assert Punctuation.of(ts=Range(start=3)).covers(Punctuation.of(ts=Range(3, 9)))
    assert not Punctuation.of(ts=Range(3, 9)).covers(Punctuation.of(ts=Range(start=3)))


def test_f01_linear_punctuation_sets_the_progressing_column_alone():
    assert Punctuation.of(ts=below(10)).linear("ts") == 10
    assert Punctuation.of(ts=below(10), ip="*").linear("ts") == 10, "'*' is what is left out"
    for other in (Punctuation.of(ts=10), Punctuation.of(ts=Range(3, 10)), Punctuation.of(ts=below(10), ip="a")):
        assert other.linear("ts") is None
    assert Punctuation.of(ts=below(10)).linear("arrival") is None


def test_f01_group_wise_punctuation_fixes_every_column_of_the_group_as_well():
    done = Punctuation.of(ts=below(10), ip="a", port=80)
    assert done.group_wise("ts", ["ip", "port"]) == (("a", 80), 10)
    assert done.group_wise("ts", ["ip"]) is None
    assert Punctuation.of(ts=below(10), ip=below("b")).group_wise("ts", ["ip"]) is None
    assert Punctuation.of(ts=10, ip="a").group_wise("ts", ["ip"]) is None


def test_f01_values_never_go_back():
    assert is_group_wise([Punctuation.of(ts=below(n)) for n in (3, 3, 8)], "ts", ())
    assert not is_group_wise([Punctuation.of(ts=below(n)) for n in (3, 8, 7)], "ts", ())
    assert not is_group_wise([Punctuation.of(ts=below(3)), Punctuation.of(ts=below(4), ip="a")], "ts", ())
    each = [Punctuation.of(ts=below(n), ip=ip) for n, ip in ((3, "a"), (9, "b"), (4, "a"), (9, "b"))]
    assert is_group_wise(each, "ts", ["ip"])
    assert not is_group_wise([*each, Punctuation.of(ts=below(8), ip="b")], "ts", ["ip"])


def test_times_match_as_their_column_counts_them():
    moment = dt.datetime(2026, 1, 5, 9, tzinfo=dt.UTC)
    column = pa.array([moment, moment + dt.timedelta(seconds=1)], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"ts": column})
    assert Punctuation.of(ts=below(moment + dt.timedelta(seconds=1))).matches(rows).tolist() == [True, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Range(), r"^Range\(None, None\) is every value but null\. Leave the column out: that is '\*'\.$"),
        (lambda: Range(4, 4), r"^\[4, 4\) holds nothing, so it says nothing\. Write a start below the stop"),
        (
            lambda: Punctuation.of(tx=below(3)).matches(pa.record_batch({"ts": [1]})),
            r"^punctuation\(tx=\[, 3\)\) speaks of 'tx', which is not a column of its stream \(ts\)\.$",
        ),
    ],
)
def test_a_punctuation_that_says_nothing_is_refused(make, message):
    with pytest.raises(PunctuationError, match=message):
        make()


def test_what_is_not_group_wise_is_refused_as_such():
    with pytest.raises(PunctuationError) as refused:
        group_batch(ROWS, [Punctuation.of(t=below(5))])
    assert str(refused.value) == (
        "punctuation(t=[, 5)) is not group-wise linear. Write t=below(…) and a constant for each of k, "
        "and leave the other columns out."
    )
