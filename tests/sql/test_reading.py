"""F08: queries around the clauses: aggregates, groups, conditions, unions, joins; refusals point at their place."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError, SqlError
from penstock.core.windows import TupleWindow
from penstock.core.within import windows
from penstock.sql import Call, Column, Query, Source, parse
from tests.streams import examples

WINDOW = "[RANGE 10 minutes SLIDE 1 minute WATTR ts]"


def test_f08_a_clause_after_the_aggregate_is_one_after_the_stream():
    after_aggregate = parse(f"SELECT srcIP, count(*) {WINDOW} FROM s GROUP BY srcIP")
    after_stream = parse(f"SELECT srcIP, count(*) FROM s {WINDOW} GROUP BY srcIP")
    assert after_aggregate == after_stream
    assert parse(f"SELECT srcIP, count(*) {WINDOW} FROM s {WINDOW} GROUP BY srcIP") == after_stream, "or after both"


def test_f08_a_clause_stands_before_or_after_an_alias():
    expected = parse(f"SELECT count(*) AS n FROM s AS packets {WINDOW}")
    assert parse(f"SELECT count(*) {WINDOW} AS n FROM s AS packets") == expected
    assert parse(f"SELECT count(*) AS n FROM s {WINDOW} AS packets") == expected
    assert expected.sources == (Source(("s",), "packets"),)
    assert expected.aggregates[0].name == "n"


@pytest.mark.parametrize(
    ("written", "call"),
    [
        ("count(*)", Call("count", None, "count")),
        ("COUNT(len)", Call("count", "len", "count_len")),
        ("count(DISTINCT srcIP)", Call("count_distinct", "srcIP", "count_distinct_srcIP")),
        ("sum(len * 8) AS bits", Call("sum", "len * 8", "bits")),
        ("avg(len)", Call("mean", "len", "mean_len")),
        ("min(p.len)", Call("min", "len", "min_len")),
        ("var_pop(len)", Call("variance", "len", "variance_len", ("population",))),
        ("stddev(len)", Call("stddev", "len", "stddev_len")),
        ("median(len)", Call("quantile", "len", "quantile_len", (0.5,))),
        ("quantile(len, 0.99)", Call("quantile", "len", "quantile_len", (0.99,))),
        ("percentile(len, 0.99)", Call("quantile", "len", "quantile_len", (0.99,))),
        ("heavy_hitters(srcIP, 0.05)", Call("heavy_hitters", "srcIP", "heavy_hitters_srcIP", (0.05,))),
        ("mode(srcPort)", Call("mode", "srcPort", "mode_srcPort")),
        ("first(len)", Call("first", "len", "first_len")),
    ],
)
def test_f08_aggregates(written, call):
    assert parse(f"SELECT {written} FROM p {WINDOW}").select == (call,)


def test_f08_conditions_before_and_after():
    query = parse(
        f"SELECT srcIP, count(*) {WINDOW}, sum(len) AS volume FROM packets p WHERE p.len > 40 AND srcPort IN (80, 443) "
        f"GROUP BY p.srcIP HAVING count(*) >= 5 AND volume < 1000 AND sum(p.len) > 10 AND p.srcIP <> 'x'"
    )
    assert query.where == "len > 40 AND srcPort IN (80, 443)"
    assert query.having == "count >= 5 AND volume < 1000 AND volume > 10 AND srcIP <> 'x'"
    assert query.groups == ("srcIP",)


def test_f08_the_window_can_be_selected_with_its_aggregates():
    query = parse(f"SELECT window_start, window_end, count(*) FROM s {WINDOW}")
    assert query.select[:2] == (Column("window_start", "window_start"), Column("window_end", "window_end"))


def test_f08_without_aggregates_rows_are_handed_on():
    query = parse("SELECT srcIP, len * 8 AS bits FROM packets WHERE len > 100")
    assert query.select == (Column("srcIP", "srcIP"), Column("len * 8", "bits"))
    assert (query.window, query.where) == (None, "len > 100")


def test_f08_brackets_in_texts_and_names_are_none_of_ours():
    query = parse("SELECT `a[RANGE]` FROM s WHERE b = '[RANGE 5 minutes]'")
    assert query.where == "b = '[RANGE 5 minutes]'"


def test_f08_unions_are_streams():
    query = parse(
        f"SELECT count(*) FROM (SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM c) {WINDOW}"
    )
    assert query.sources == (Source(("a", "b", "c"), "a_b_c"),)


# Joins


def test_f08_a_join_in_either_spelling():
    comma = parse("SELECT * FROM a [RANGE 3 minutes], b [RANGE 2 minutes] WHERE a.k = b.j")
    assert parse("SELECT * FROM a [RANGE 3 minutes] JOIN b [RANGE 2 minutes] ON a.k = b.j") == comma
    assert parse("SELECT * FROM a [RANGE 3 minutes] JOIN b [RANGE 2 minutes] ON b.j = a.k") == comma
    assert comma.join.on == (("k", "j"),)
    assert comma.join.within == windows("3 min", "2 min")


def test_f08_conditions_of_a_join_go_where_they_can_be_asked_first():
    query = parse(
        "SELECT a.x, b.y AS z FROM a [RANGE 3 s WATTR ts] JOIN b [RANGE 3 s WATTR t] ON a.k = b.k AND a.x < b.y "
        "WHERE a.x > 3 AND b.y IS NOT NULL AND a.m = a.n"
    )
    assert query.join.on == (("k", "k"),)
    assert query.join.pairs == "l.x < r.y"
    assert [source.where for source in query.sources] == ["x > 3 AND m = n", "NOT y IS NULL"]
    assert [source.time for source in query.sources] == ["ts", "t"]
    assert query.select == (Column("a.x", "x"), Column("b.y", "z"))


@pytest.mark.parametrize(
    ("written", "how"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT JOIN", "right"),
        ("FULL OUTER JOIN", "full"),
        ("LEFT SEMI JOIN", "semi"),
        ("LEFT ANTI JOIN", "anti"),
    ],
)
def test_f08_kinds_of_joins(written, how):
    query = parse(f"SELECT * FROM a [RANGE 3 s] {written} b [RANGE 3 s] ON a.k = b.k")
    assert query.join.how == how


def test_f08_a_join_is_aggregated_over_a_window_of_one_of_its_times_or_by_them():
    join = "FROM a [RANGE 3 s WATTR ts], b [RANGE 3 s WATTR ts] WHERE a.k = b.k"
    query = parse(f"SELECT a.k, count(*) [RANGE 5 minutes WATTR a.ts] {join} GROUP BY a.k")
    assert (query.time, query.groups) == ("a.ts", ("a.k",))
    assert parse(f"SELECT a.ts, max(b.x) {join} GROUP BY a.ts").window is None


# What is refused


def refusal(sql: str) -> tuple[int, int, str, str]:
    """Line, column, message and what the carets are below."""
    with pytest.raises(SqlError) as refused:
        parse(sql)
    head, text, carets = str(refused.value).rsplit("\n", 2)
    place, message = head.split(": ", 1)
    line, column = (int(part.split(" ")[1]) for part in place.split(", "))
    assert carets.index("^") == column + 1
    return line, column, message, text[carets.index("^") : carets.rindex("^") + 1]


@pytest.mark.parametrize(
    ("sql", "at", "message"),
    [
        (f"SELECT count(*) {WINDOW} FROM s ORDER BY x", "ORDER BY", "ORDER is not supported. A stream has no last row"),
        ("SELECT a FROM s LIMIT 3", "LIMIT", "LIMIT is not supported. A stream has no order, so it has no first rows"),
        ("SELECT DISTINCT a FROM s", "DISTINCT", "DISTINCT is not supported. Distinct rows are groups. Write GROUP BY"),
        ("WITH x AS (SELECT 1) SELECT a FROM s", "WITH", "WITH is not supported. Write one query, or make each part"),
        ("SELECT count(*) OVER (w) FROM s", "OVER", "OVER is not supported. Windows go in brackets after the"),
        ("SELECT a FROM s UNION ALL SELECT a FROM t", "UNION", "UNION is not supported. Streams are combined in FROM."),
        ("SELECT * FROM a JOIN b USING (k)", "USING", "USING is not supported. Write ON and the whole condition"),
        (
            "SELECT count(*) FROM s",
            "count(*)",
            "Without a window this has no end, and so no result. Write a clause after",
        ),
        (f"SELECT a, count(*) FROM s {WINDOW}", "a", "a differs from row to row. Add it to GROUP BY, or aggregate it."),
        (f"SELECT sum(a) / count(*) FROM s {WINDOW}", "sum(a)", "Aggregates are selected by themselves. Compute with"),
        (f"SELECT a {WINDOW} FROM s", WINDOW, "A window clause follows an aggregate, as in count(*) [RANGE …]. Move"),
        (f"SELECT a FROM s {WINDOW}", "a", "Windows and groups are for aggregates. Select one, as count(*)."),
        ("SELECT a FROM s GROUP BY a", "a", "Windows and groups are for aggregates. Select one, as count(*)."),
        (
            f"SELECT skewness(a) FROM s {WINDOW}",
            "skewness(a)",
            "This is not an aggregate that penstock has. Write one of count, sum, min, max",
        ),
        (f"SELECT sum(*) FROM s {WINDOW}", "sum(*)", "sum needs a column. Write sum(column)."),
        (f"SELECT sum(DISTINCT a) FROM s {WINDOW}", "sum(DISTINCT a)", "DISTINCT is for count(DISTINCT column)."),
        (f"SELECT quantile(a, b) FROM s {WINDOW}", "b", "After its column an aggregate takes only numbers and texts"),
        (
            f"SELECT sum(a), sum(a) FROM s {WINDOW}",
            "sum(a)",
            "Two columns are called sum_a. Write AS and another name.",
        ),
        (f"SELECT count(*) FROM s {WINDOW} GROUP BY upper(a)", "upper(a)", "GROUP BY takes columns and ts(minute)."),
        (f"SELECT count(*) FROM s {WINDOW} HAVING max(a) > 3", "max(a)", "HAVING is about columns of the result."),
        (f"SELECT count(*) FROM s {WINDOW} WHERE t.a > 3", "t.a", "Which stream is t.a of? Write what FROM calls"),
        (f"SELECT count(*) {WINDOW}, max(a) [RANGE 5 rows] FROM s", "[RANGE 5 rows]", "A query has one window, and"),
        ("SELECT count(*) [RANGE 5 rows] [RANGE 5 rows] FROM s", "[RANGE 5 rows]", "This is a second window clause."),
        ("SELECT count(*) FROM s [5 minutes]", "5", "A window clause starts with one of RANGE, SLIDE, WATTR"),
        ("SELECT count(*) FROM s [RANGE 5 minutes", "[", "This window clause is never closed. Write ] at its end."),
        ("SELECT a FROM s WHERE a > 3 [RANGE 5 rows]", "[RANGE 5 rows]", "A window clause belongs after an aggregate"),
        ("SELECT a FROM s WHERE b = 'x", "'", "A quote is opened here and never closed. Close it."),
        ("SELECT a FROM s GROUP a", "a", "'a' is not allowed here. Write SELECT … FROM … WHERE"),
        ("SELECT * FROM a [RANGE 3 s] RIGHT SEMI JOIN b [RANGE 3 s] ON a.k = b.k", "b", "RIGHT SEMI JOIN is not"),
        ("SELECT count(*) FROM s GROUP BY ts(fortnight)", "ts(fortnight)", "GROUP BY takes columns and ts(minute)."),
        (
            "SELECT * FROM (SELECT a FROM s UNION ALL SELECT * FROM t)",
            "a FROM s UNION ALL SELECT * FROM t",
            "FROM takes",
        ),
        ("SELECT 1", "1", "There is no stream to ask. Write FROM and its name."),
        ("DROP TABLE s", "DROP TABLE s", "Only SELECT is supported."),
        ("SELECT * FROM (SELECT a FROM s)", "a FROM s", "FROM takes streams and unions, as (SELECT * FROM a UNION ALL"),
        ("SELECT * FROM (SELECT * FROM a UNION SELECT * FROM b)", "* FROM a UNION SELECT * FROM b", "UNION would"),
        ("SELECT * FROM a [RANGE 3 s], b [RANGE 3 s]", "b", "No key joins a and b. Write WHERE a.k = b.k."),
        ("SELECT * FROM a [RANGE 3 s], b WHERE a.k = b.k", "b", "A join must say how long a row can be met. Write b"),
        ("SELECT * FROM a [RANGE 3 s], a [RANGE 3 s] WHERE a.k = a.k", "a", "Both streams are called a. Write AS and"),
        (
            "SELECT * FROM a, b, a WHERE a.k = b.k",
            "a",
            "Two streams are called a. Write AS and another name after one.",
        ),
        ("SELECT * FROM a [RANGE 3 s], b, c WHERE a.k = b.k", "b", "In a join of several streams all have the same"),
        ("SELECT * FROM a [RANGE 3 s], b [RANGE 3 s] WHERE k = b.k", "k", "Which stream is k of? Write what FROM"),
        ("SELECT * FROM a [RANGE 3 s] LEFT JOIN b [RANGE 3 s] ON a.k = b.k AND b.x > 3", "b.x > 3", "ON of a left"),
        ("SELECT * FROM a [RANGE 3 s] LEFT JOIN b [RANGE 3 s] ON a.k = b.k WHERE b.x > 3", "b.x > 3", "WHERE would"),
    ],
)
def test_f08_what_is_not_supported_is_pointed_at(sql, at, message):
    line, column, said, below = refusal(sql)
    assert said.startswith(message)
    assert below == at
    assert line == 1
    assert sql[column - 1 :].startswith(at)


def test_f08_the_place_is_that_of_the_line():
    line, column, said, below = refusal("SELECT srcIP,\n       count(*)\nFROM s\nORDER BY srcIP")
    assert (line, column, below) == (4, 1, "ORDER BY")
    line, column, said, below = refusal("SELECT\n  srcIP, count(*)\nFROM s [RANGE 5 minutes\n  HOP 3 s]")
    assert (line, column, below) == (4, 3, "HOP")
    assert said.startswith("HOP is not part of a window clause.")


WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP_BY",
    "HAVING",
    "JOIN",
    "LEFT",
    "ON",
    "AND",
    "AS",
    "UNION_ALL",
    "NOT",
    "IN",
    "(",
    ")",
    ",",
    "*",
    ".",
    "=",
    ">",
    "3",
    "'x'",
    "[",
    "]",
    "a",
    "b",
    "s.a",
    "t.k",
    "count(*)",
    "sum(a)",
    "max(s.a)",
    "ts(minute)",
    "[RANGE_5_rows]",
    "[RANGE_5_minutes_WATTR_ts]",
    "RANGE",
    "SLIDE",
]


def outcome(sql: str) -> Query | str:
    """The query, or why there is none."""
    try:
        return parse(sql)
    except SqlError as refused:
        return str(refused)


@given(st.lists(st.sampled_from(WORDS), max_size=14), st.booleans())
@examples(0.2)
def test_f08_whatever_is_written_is_a_query_or_refused_with_its_place(words, sensible):
    found = outcome(" ".join(["SELECT a FROM s" if sensible else "", *words]).replace("_", " "))
    assert isinstance(found, Query) or re.match(r"line 1, column \d+: ", found)


@pytest.mark.parametrize("sql", ["", "  ", "SELECT count(*"])
def test_f08_a_query_that_breaks_off_is_said_to(sql):
    with pytest.raises(SqlError, match=r"Write SELECT … FROM … WHERE … GROUP BY … HAVING …"):
        parse(sql)


def test_without_the_package_that_reads_sql_it_is_said_which_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    for name in [name for name in sys.modules if name.startswith("penstock.sql.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"^Queries in SQL need one more package: pip install 'penstock\[local\]'\.$"):
        parse("SELECT a FROM s")


def test_f08_rows_have_numbers_or_an_order_of_their_own():
    assert parse("SELECT count(*) [RANGE 10 rows SLIDE 5 rows WATTR seq] FROM s").window == TupleWindow(10, 5, "seq")
