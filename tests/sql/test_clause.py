"""F08: window clauses, by hand and from every window there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.durations import Duration
from penstock.core.errors import SqlError
from penstock.core.windows import (
    Landmark,
    PartitionedWindow,
    SlideByTuple,
    Sliding,
    TupleWindow,
    Window,
    landmark,
    slide_by_tuple,
    sliding,
)
from penstock.core.within import tumbling, windows
from penstock.sql.clause import Meaning, aggregate_window, join_window, read_clause
from tests.streams import examples


def meaning(text: str) -> Meaning:
    return aggregate_window(read_clause(text, 0, len(text)))


@pytest.mark.parametrize(
    ("text", "window", "time"),
    [
        ("[RANGE 10 minutes SLIDE 1 minute WATTR ts]", sliding("10 min", "1 min"), "ts"),
        ("[range 10 minutes, slide 1 minute, wa ts]", sliding("10 min", "1 min"), "ts"),
        ("[WATTR ts SLIDE 1 min RANGE 10 min]", sliding("10 min", "1 min"), "ts"),
        ("[RANGE 1 hour 30 minutes]", sliding("90 min"), None),
        ("[RANGE 100 SLIDE 10 WATTR seq]", sliding(100, 10), "seq"),
        ("[RANGE ALL SLIDE 1 minute WATTR `event time`]", landmark("1 min"), "event time"),
        ("[RANGE 1000 rows SLIDE 10 rows WATTR row-num]", TupleWindow(1000, 10), None),
        ("[RANGE 1000 tuples]", TupleWindow(1000, 1000), None),
        ("[RANGE 1000 rows SLIDE 1 row WATTR seq]", TupleWindow(1000, 1, "seq"), "seq"),
        ("[RANGE 9 rows SLIDE 3 rows PA a, b]", PartitionedWindow(9, 3, ("a", "b")), None),
        ("[RANGE 9 rows PA a, WATTR ts]", PartitionedWindow(9, 9, ("a",), "ts"), "ts"),
        ("[RANGE 5 min RATTR ts SLIDE 1 row SATTR row-num]", slide_by_tuple("5 min"), "ts"),
        ("[RANGE 5 min WATTR ts SLIDE 1 row]", slide_by_tuple("5 min"), "ts"),
        ("[RANGE 5 min RATTR ts SLIDE 5 rows SATTR row_num]", slide_by_tuple("5 min", 5, "row-num"), "ts"),
        ("[RANGE 5 min RATTR ts SLIDE 5 rows SATTR rank(ts)]", slide_by_tuple("5 min", 5, "rank"), "ts"),
        ("[RANGE 5 min RATTR ts SLIDE 5 rows SATTR n]", slide_by_tuple("5 min", 5, "row-num", "n"), "ts"),
    ],
)
def test_f08_a_clause_by_hand(text, window, time):
    found = meaning(text)
    assert found.window == window or str(found.window) == str(window)
    assert type(found.window) is type(window)
    assert found.time == time


def test_f08_with_windows_of_time_partitions_are_groups():
    found = meaning("[RANGE 10 minutes SLIDE 1 minute WATTR ts PA srcIP]")
    assert isinstance(found.window, Sliding)
    assert found.partition == ("srcIP",)


def written(window: Window) -> str:
    """A window as a clause."""
    if isinstance(window, Sliding):
        return f"RANGE {window.range} SLIDE {window.slide} WATTR ts"
    if isinstance(window, Landmark):
        return f"RANGE ALL SLIDE {window.slide} WATTR ts"
    if isinstance(window, SlideByTuple):
        by = "rank(ts)" if window.by == "rank" else window.row_num or "row-num"
        return f"RANGE {window.range} RATTR ts SLIDE {window.every} rows SATTR {by}"
    partition = f" PA {', '.join(window.partition)}" if isinstance(window, PartitionedWindow) else ""
    return f"RANGE {window.range} rows SLIDE {window.slide} rows WATTR {window.order or 'row-num'}{partition}"


counts = st.integers(1, 9999)
lengths = st.one_of(
    counts.map(Duration.of),
    st.builds(lambda n, unit: Duration.of(f"{n} {unit}"), counts, st.sampled_from(["s", "min", "ms", "h"])),
)
orders = st.sampled_from([None, "seq"])
every_window = st.one_of(
    lengths.flatmap(lambda n: st.builds(Sliding, st.just(n), lengths.filter(lambda m: m.kind == n.kind))),
    st.builds(Landmark, lengths),
    st.builds(TupleWindow, counts, counts, orders),
    st.builds(PartitionedWindow, counts, counts, st.sampled_from([("a",), ("a", "b")]), orders),
    st.builds(slide_by_tuple, lengths),
    st.builds(slide_by_tuple, lengths, counts, st.just("rank")),
    st.builds(slide_by_tuple, lengths, st.integers(2, 99), st.just("row-num"), st.sampled_from([None, "n"])),
)


@given(every_window, st.randoms(use_true_random=False), st.sampled_from([" ", ", ", "  "]))
@examples(0.1)
def test_f08_every_window_can_be_written_in_parts_of_any_order_and_read_again(window, random, between):
    words = written(window).replace(" SLIDE", "|SLIDE").replace(" WATTR", "|WATTR").replace(" PA", "|PA")
    parts = words.replace(" RATTR", "|RATTR").replace(" SATTR", "|SATTR").split("|")
    random.shuffle(parts)
    assert str(meaning(f"[{between.join(parts)}]").window) == str(window)


@pytest.mark.parametrize(
    ("left", "right", "within"),
    [
        ("[RANGE 3 min WATTR ts]", "[RANGE 2 min WATTR ts]", windows("3 min", "2 min")),
        ("[RANGE 30]", "[RANGE 20]", windows(30, 20)),
        ("[RANGE 5 min SLIDE 5 min]", "[RANGE 5 min SLIDE 5 min]", tumbling("5 min")),
    ],
)
def test_f08_the_clauses_of_a_join(left, right, within):
    assert join_window(read_clause(left, 0, len(left)), read_clause(right, 0, len(right))) == within


def test_f08_a_row_can_be_met_for_its_own_streams_range():
    """Window-on-Si, not swapped: a row of the stream with 3 minutes meets what comes up to 3 minutes after it."""
    texts = "[RANGE 3 minutes]", "[RANGE 2 minutes]"
    band = join_window(*(read_clause(text, 0, len(text)) for text in texts))
    assert (band.after, band.before) == (Duration.of("3 min"), Duration.of("2 min"))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("[SLIDE 1 minute]", 1, "A window needs a RANGE. Write a clause like [RANGE 10 minutes SLIDE 1 minute WATTR"),
        ("[RANGE 5 min RANGE 6 min]", 14, "RANGE appears twice. Leave one of them out."),
        ("[RANGE 5 min WATTR ts WA ts]", 23, "WATTR appears twice."),
        ("[RANGE 5 min WATTR]", 1, "WATTR has no value. Write a clause like"),
        ("[RANGE 5 min HOP 1 min]", 14, "HOP is not part of a window clause. Parts start with RANGE, SLIDE, WATTR,"),
        ("[RANGE 5 min WATTR ts desc]", 23, "desc is not part of a window clause."),
        ("[RANGE 5 parsecs]", 8, "RANGE='5 parsecs' is not a length of time."),
        ("[RANGE ALL]", 8, "RANGE ALL is one window that never ends. Write SLIDE, when to see it so far."),
        ("[RANGE 100 rows SLIDE 1 min]", 23, "RANGE counts rows, so SLIDE must, too. Write SLIDE 10 rows."),
        ("[RANGE 5 min WATTR row-num]", 8, "WATTR row-num counts rows. Write RANGE 1000 rows, or another WATTR."),
        ("[RANGE ALL SLIDE 5 rows]", 8, "A window slides by rows over a length of time. Write RANGE 5 minutes RATTR"),
        ("[RANGE 5 min SLIDE 1 min SATTR row-num]", 20, "A window slides by rows over a length of time."),
        ("[RANGE 5 min RATTR ts SLIDE 2 rows SATTR rank(tx)]", 42, "Rows are ranked by the attribute of the range."),
        ("[RANGE 5 min RATTR a WATTR b]", 20, "WATTR is the attribute of both range and slide. Write it, or RATTR and"),
        ("[RANGE 5 min SLIDE 3]", 1, "range=5 min and slide=3 differ in kind"),
        ("[RANGE 0 rows]", 1, "range=0 is not a number of rows."),
    ],
)
def test_f08_a_clause_that_makes_no_sense_is_refused_where_it_does_not(text, column, message):
    with pytest.raises(SqlError) as refused:
        meaning(text)
    assert str(refused.value).startswith(f"line 1, column {column}: {message}")
    assert str(refused.value).split("\n")[1] == f"  {text}"
    assert str(refused.value).split("\n")[2].startswith(" " * (column + 1) + "^")


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("[RANGE 5 min SLIDE 1 min]", "[RANGE 5 min]", "In a join, windows either slide with every row or tumble."),
        ("[RANGE 5 min]", "[RANGE 5 min SLIDE 5 min]", "In a join, windows either slide with every row or tumble."),
        ("[RANGE 5 min SLIDE 5 min]", "[RANGE 6 min SLIDE 6 min]", "Tumbling windows of a join are the same for both"),
        ("[RANGE 5 rows]", "[RANGE 5 min]", "A join needs to know how long a row can be met. Write RANGE 2 minutes."),
        ("[RANGE ALL]", "[RANGE 5 min]", "A join needs to know how long a row can be met."),
        ("[SLIDE 5 min]", "[RANGE 5 min]", "A join needs to know how long a row can be met."),
        ("[RANGE 5 min PA k]", "[RANGE 5 min]", "PA has no meaning in a join. Write [RANGE 2 minutes WATTR ts]."),
    ],
)
def test_f08_clauses_that_make_no_join_are_refused(left, right, message):
    with pytest.raises(SqlError) as refused:
        join_window(read_clause(left, 0, len(left)), read_clause(right, 0, len(right)))
    assert f": {message}" in str(refused.value)
