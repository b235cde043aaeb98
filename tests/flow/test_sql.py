"""Queries in SQL run as flows: the whole catalogue of the thesis against brute force, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlglot

import penstock as pk
from lab.workloads.netflow import PACKETS, REVERSED
from penstock.core.errors import ConfigError, SqlError
from penstock.flow.sql import function_of
from penstock.operators.aggregate import spellings
from penstock.operators.aggregate.spellings import AGGREGATES
from penstock.sql import parse
from penstock.sql.catalogue import CATALOGUE
from penstock.sql.dialect import Spark4
from penstock.sql.text import spelled
from tests.oracle import aggregate as oracle
from tests.oracle import window_join

SECOND = 1_000_000
MINUTE = 60 * SECOND
SPAN = 12 * MINUTE

Row = dict[str, Any]
Rows = list[Row]


def packets(seed: int, count: int = 90, span: int = SPAN) -> pa.Table:
    """Packets between few hosts, out of order."""
    random = np.random.default_rng(seed)
    hosts = np.array(["202.101.0.0", "202.101.0.1", "202.101.0.2"])
    columns = [
        random.choice(hosts, count),
        random.integers(1, 3, count).astype(np.int32),
        random.choice(hosts, count),
        random.integers(1, 3, count).astype(np.int32),
        random.integers(40, 1500, count).astype(np.int32),
        random.integers(0, span, count) // 1000 * 1000,
    ]
    return pa.table(
        [pa.array(column).cast(field.type) for column, field in zip(columns, PACKETS, strict=True)], PACKETS
    )


def as_rows(table: pa.Table) -> Rows:
    """Packets as the oracle takes them: `t` is their time, `n` their number as they arrive."""
    times = table.column("ts").cast(pa.int64()).to_pylist()
    return [{**row, "ts": t, "t": t, "n": n} for n, (row, t) in enumerate(zip(table.to_pylist(), times, strict=True))]


def multiset(table: pa.Table) -> Counter:
    """Rows of a table, times as numbers."""
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return Counter(tuple(map(oracle.plain, row)) for row in zip(*(c.to_pylist() for c in plain), strict=True))


def run(sql: str, tables: dict[str, pa.Table], **options: Any) -> list[pa.Table]:
    """The results of a query as it is, and, of an aggregate, with the ends of windows."""
    flow = pk.LocalFlow(**options)
    for name, table in tables.items():
        cuts = [table.slice(start, 40) for start in range(0, table.num_rows, 40)]
        flow.source(cuts, time="ts", name=name, progress=pk.bounded_delay("15 min"))
    texts = [sql]
    if parse(sql).window is not None:
        texts.append(sql.replace("SELECT ", "SELECT window_start, window_end, ", 1))
    outlets = [flow.sql(text).to_memory() for text in texts]
    flow.run()
    return [outlet.table() for outlet in outlets]


def grouped(windows: dict[tuple, Rows], by: tuple[str, ...], value: Callable[[Rows], Any]) -> Iterator[tuple]:
    """A result for each window and group."""
    for (start, end), rows in windows.items():
        for group, members in oracle.by_group(rows, by).items():
            yield start, end, *group, value(members)


def sliding(
    size: int, slide: int, by: tuple[str, ...], value: Callable[[Rows], Any], at: str = "t"
) -> Callable[..., Iterator[tuple]]:
    """Sliding windows over the union of sources."""

    def expected(*sources: Rows) -> Iterator[tuple]:
        rows = [{**row, "t": row[at]} for source in sources for row in source]
        wids = range(-1, (max(row["t"] for row in rows) + size) // slide + 1)
        yield from grouped(oracle.sliding(rows, lambda w: ((w + 1) * slide - size, (w + 1) * slide), wids), by, value)

    return expected


def partitioned(rows: Rows) -> Iterator[tuple]:
    """Q5-2: each source's rows by themselves, numbered as they arrive."""
    for members in oracle.by_group(rows, ("srcIP",)).values():
        numbered = [{**row, "n": rank} for rank, row in enumerate(members)]
        yield from sliding(1000, 10, ("srcIP",), longest, at="n")(numbered)


def landmark(rows: Rows) -> Iterator[tuple]:
    """Q5-4 where all windows are completed by the end: each in which a group has a new row, with all before."""
    for (host,), members in oracle.by_group(rows, ("srcIP",)).items():
        for end in sorted({(row["t"] // MINUTE + 1) * MINUTE for row in members}):
            yield None, end, host, sum(row["t"] < end for row in members)


def slide_by_tuple(every: int, value: Callable[[Rows], Any]) -> Callable[[Rows], Iterator[tuple]]:
    """Windows of five minutes that end at rows: each time once, or each so manieth row by time."""

    def expected(rows: Rows) -> Iterator[tuple]:
        times = sorted(row["t"] for row in rows)
        slides = sorted(set(times)) if every == 1 else times[every - 1 :: every]
        for (start, end), members in oracle.slide_by_tuple(rows, 5 * MINUTE, slides):
            yield start, end, value(members)

    return expected


def pairs(on: dict[str, str], near: window_join.Near) -> Callable[[Rows, Rows], Iterator[tuple[Row, Row]]]:
    """The join of two streams, row by row."""

    def expected(left: Rows, right: Rows) -> Iterator[tuple[Row, Row]]:
        for ours, theirs in product(left, right):
            if near(ours["t"], theirs["t"]) and all(ours[mine] == theirs[other] for mine, other in on.items()):
                yield ours, theirs

    return expected


def whole(on: dict[str, str], near: window_join.Near) -> Callable[[Rows, Rows], Iterator[tuple]]:
    """SELECT * of a join."""

    def expected(left: Rows, right: Rows) -> Iterator[tuple]:
        for ours, theirs in pairs(on, near)(left, right):
            yield tuple(row[name] for row in (ours, theirs) for name in PACKETS.names)

    return expected


def moments(left: Rows, right: Rows) -> Iterator[tuple]:
    """Q7-1: pairs by both times."""
    near = window_join.band(-2 * MINUTE, 2 * MINUTE)
    counts = Counter((ours["t"], theirs["t"]) for ours, theirs in pairs(REVERSED, near)(left, right))
    yield from ((*times, count) for times, count in counts.items())


def replies(left: Rows, right: Rows) -> Iterator[tuple]:
    """Q7-2: pairs by the minute of the first."""
    near = window_join.band(-5 * SECOND, 5 * SECOND)
    found = [ours for ours, _ in pairs(REVERSED, near)(left, right)]
    yield from sliding(MINUTE, MINUTE, (), len)(found)


def longest(rows: Rows) -> int:
    return max(row["len"] for row in rows)


def total(rows: Rows) -> int:
    return sum(row["len"] for row in rows)


def heavy(rows: Rows) -> list[tuple]:
    return oracle.heavy([row["srcIP"] for row in rows], 0.05)


def two_hosts(rows: Rows) -> Iterator[tuple]:
    """Q2-1."""
    some = [row for row in rows if row["srcIP"] in ("202.101.0.0", "202.101.0.1")]
    return sliding(MINUTE, MINUTE, ("srcIP",), len)(some)


SOURCE, ENDS, BY_SOURCE = ("srcIP",), ("srcIP", "destIP"), {"srcIP": "destIP"}
ASYMMETRIC = window_join.band(-2 * MINUTE, 3 * MINUTE)

EXPECTED: dict[str, Callable[..., Iterator[tuple]]] = {
    "1-1": sliding(10 * MINUTE, MINUTE, SOURCE, len),
    "1-2": sliding(MINUTE, MINUTE, (), len),
    "2-1": two_hosts,
    "3-1": whole(BY_SOURCE, ASYMMETRIC),
    "5-1": sliding(10 * MINUTE, MINUTE, SOURCE, len),
    "5-2": partitioned,
    "5-3": sliding(1000, 10, SOURCE, longest, at="n"),
    "5-4": landmark,
    "5-5": slide_by_tuple(1, longest),
    "5-6": slide_by_tuple(5, len),
    "5-7": whole(BY_SOURCE, window_join.tumbling(5 * MINUTE)),
    "5-8": whole(BY_SOURCE, ASYMMETRIC),
    "6-1": sliding(10 * MINUTE, MINUTE, SOURCE, len),
    "6-2": sliding(4 * MINUTE, MINUTE, (), longest),
    "6-3": sliding(4 * MINUTE, MINUTE, SOURCE, len),
    "6-4": sliding(10 * MINUTE, MINUTE, (), heavy),
    "6-5": sliding(5 * MINUTE, MINUTE, SOURCE, len),
    "6-6": sliding(10 * SECOND, SECOND, SOURCE, total),
    "6-7": sliding(SECOND, SECOND, SOURCE, total),
    "6-8": sliding(10 * SECOND, SECOND, SOURCE, len),
    "7-1": moments,
    "7-2": replies,
    "8-1": sliding(MINUTE, MINUTE, ENDS, len),
    "8-2": sliding(MINUTE, MINUTE, ENDS, len),
    "8-3": whole(REVERSED, window_join.tumbling(10 * SECOND)),
    "8-4": whole(REVERSED, window_join.tumbling(MINUTE)),
    "8-5": sliding(5 * MINUTE, MINUTE, (), len),
}


@pytest.mark.parametrize("number", CATALOGUE)
def test_f08_a_query_of_the_catalogue_gives_what_brute_force_does(number):
    query = parse(CATALOGUE[number])
    names = [name for source in query.sources for name in source.streams]
    tables = {name: packets(seed) for seed, name in enumerate(names)}
    found = run(CATALOGUE[number], tables)
    sides = [[row for name in source.streams for row in as_rows(tables[name])] for source in query.sources]
    expected = Counter(tuple(map(oracle.plain, row)) for row in EXPECTED[number](*sides))
    assert expected
    assert multiset(found[-1]) == expected
    if query.window is not None:
        assert multiset(found[0]) == Counter(row[2:] for row in expected.elements())


# Parts of queries


ROWS = pa.table({"k": ["a", "b", "a", None], "v": [1, 2, 3, 4], "t": [0, 4, 9, 9]})


def flow_of(*names: str) -> pk.LocalFlow:
    flow = pk.LocalFlow()
    for name in names:
        flow.source(ROWS, time="t", name=name)
    return flow


def results(sql: str, *names: str) -> list[dict]:
    flow = flow_of(*(names or ("s",)))
    out = flow.sql(sql).to_memory()
    flow.run()
    return sorted(out.table().to_pylist(), key=repr)


def test_rows_are_handed_on_without_a_window():
    assert results("SELECT k, v * 2 AS twice FROM s WHERE v > 2") == [{"k": "a", "twice": 6}, {"k": None, "twice": 8}]


def test_all_columns_are_handed_on():
    assert results("SELECT * FROM s") == sorted(ROWS.to_pylist(), key=repr)


def test_having_is_about_results_and_where_about_rows():
    sql = "SELECT k, sum(v) AS total FROM s [RANGE 10 WATTR t] WHERE v < 4 GROUP BY k HAVING sum(v) > 2"
    assert results(sql) == [{"k": "a", "total": 4}]


ODD = pa.table({"k": [1, 2], "t": [0, 4], "a": [10, 20], "b": [1, 2], "a-b": [100, 200], "a b": [7, 8]})
ODD = ODD.append_column("true", pa.array([False, True])).append_column("x.y", pa.array([3, 4]))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT `a-b`, `a b` AS d, `x.y` FROM s", [(100, 7, 3), (200, 8, 4)]),
        ("SELECT k FROM s WHERE `a-b` > 150 AND `true`", [(2,)]),
        ("SELECT sum(`a-b`) AS n, sum(`a-b` + `x.y`) AS m FROM s [RANGE 10 WATTR t]", [(300, 307)]),
        ("SELECT `a-b`, count(*) AS n FROM s [RANGE 10 WATTR t] GROUP BY `a-b`", [(100, 1), (200, 1)]),
        (
            "SELECT k, sum(a) AS `k-x`, count(*) AS x FROM s [RANGE 10 WATTR t] GROUP BY k HAVING `k-x` > 10",
            [(2, 20, 1)],
        ),
        ("SELECT k, sum(a) AS `k-x` FROM s [RANGE 10 WATTR t] GROUP BY k HAVING sum(a) > 10", [(2, 20)]),
        (
            "SELECT s.`a-b` AS l, r.`a-b` - r.`a b` FROM s [RANGE 1 WATTR t] JOIN r [RANGE 1 WATTR t] "
            "ON s.`a-b` = r.`a-b` AND s.`x.y` + r.`x.y` > 6",
            [(200, 192)],
        ),
    ],
)
def test_a_name_in_backticks_is_a_column_whatever_it_looks_like(sql, expected):
    flow = pk.LocalFlow()
    for name in ("s", "r")[: 1 + (" JOIN " in sql)]:
        flow.source(ODD, time="t", name=name)
    out = flow.sql(sql).to_memory()
    flow.run()
    assert sorted(tuple(row.values()) for row in out.table().to_pylist()) == expected


NESTED = pa.table(
    {
        "k": [1, 2],
        "t": [0, 5],
        "st": [{"u": 1, "v": {"w": {"x": {"y": 7}}}}, {"u": 2, "v": {"w": {"x": {"y": 8}}}}],
        "st.u": [100, 200],
        "k + 1": [300, 400],
    }
)
MEET = "FROM a [RANGE 9 WATTR t], b [RANGE 9 WATTR t] WHERE a.k = b.k"


def nested(sql: str) -> Rows:
    """The results of a query over a stream `a` of structs and another, `b`, of the same rows."""
    flow = pk.LocalFlow()
    for name in "ab":
        flow.source(NESTED, time="t", name=name).to_memory()
    out = flow.sql(sql).to_memory()
    flow.run()
    return sorted(out.table().to_pylist(), key=str)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT st.u, a.st.u AS z, `st.u` FROM a", [{"u": 1, "z": 1, "st.u": 100}, {"u": 2, "z": 2, "st.u": 200}]),
        ("SELECT st.v.w.x.y, a.st.v.w.x.y AS z FROM a", [{"y": 7, "z": 7}, {"y": 8, "z": 8}]),
        ("SELECT k FROM a WHERE st.u > 1 AND a.st.v.w.x.y > 7", [{"k": 2}]),
        ("SELECT sum(st.u) AS n FROM a [RANGE 10 WATTR t]", [{"n": 3}]),
        (
            "SELECT sum(`st.u`) AS n, sum(k + 1) AS m, sum(`k + 1`) AS o FROM a [RANGE 10 WATTR t]",
            [{"n": 300, "m": 5, "o": 700}],
        ),
        ("SELECT k, max(st.u) AS n FROM a [RANGE 10 WATTR t] GROUP BY k HAVING max(a.st.u) > 1", [{"k": 2, "n": 2}]),
        (f"SELECT a.st.u, b.st.v.w.x.y {MEET} AND b.st.u > 1 AND a.st.u < b.st.v.w.x.y", [{"u": 2, "y": 8}]),
        (f"SELECT sum(a.st.u + b.k) AS n [RANGE 20 WATTR a.t] {MEET}", [{"n": 6}]),
        ("SELECT a.* FROM a WHERE k = 1", NESTED.slice(0, 1).to_pylist()),
        ("SELECT a.*, k + 1 AS n FROM a WHERE k = 1", [{**NESTED.slice(0, 1).to_pylist()[0], "n": 2}]),
    ],
)
def test_fields_of_structs_and_all_columns_of_a_stream_have_names(sql, expected):
    assert nested(sql) == expected


@pytest.mark.parametrize(
    ("sql", "place", "message"),
    [
        (f"SELECT a.k {MEET} AND st.u > 1", "st.u", r"Which stream is st\.u of\? .* as in a\.st\.u\."),
        ("SELECT c.st.u FROM a", "c.st.u", r"Which stream is c\.st\.u of\? .* as in a\.st\.u\."),
        ("SELECT c.u FROM a", "c.u", r"Which stream is c\.u of\? .* as in a\.u\."),
        ("SELECT st.* FROM a", "st.*", r"All columns are \* alone\. Write that, or the columns one by one, as in a\.k"),
        (f"SELECT a.* {MEET}", "a.*", r"All columns are \* alone"),
        ("SELECT st.u, count(*) FROM a [RANGE 9 WATTR t] GROUP BY st.u", "st.u", r"GROUP BY takes columns and ts"),
        (
            f"SELECT a.k {MEET.replace('a.k', 'a.st.u')}",
            "a.st.u",
            r"A key is a column, not a field of one\. Make it one: flow\.sql\(query, a=stream\.select\('\*', 'st\.u",
        ),
    ],
)
def test_what_names_no_column_is_refused_with_what_does(sql, place, message):
    with pytest.raises(SqlError, match=message) as raised:
        nested(sql)
    shown, carets = str(raised.value).splitlines()[-2:]
    start = carets.rindex("^") - carets.count("^") + 1
    assert shown[start : start + carets.count("^")] == place


@pytest.mark.parametrize(
    ("sql", "column", "message"),
    [
        ("SELECT b.k, a.v FROM a [RANGE 9 WATTR t] JOIN s AS b [RANGE 9 WATTR t] ON a.v = b.k", 77, "the left key is"),
        ("SELECT v FROM s WHERE upper(k) + v", 17, "cannot be computed"),
    ],
)
def test_an_error_is_shown_in_the_part_of_the_query_that_has_it(sql, column, message):
    with pytest.raises(SqlError, match=rf"^line 1, column {column}: .*{message}"):
        flow_of("s", "a").sql(sql)


def test_a_quote_within_quotes_is_written_twice():
    assert results("SELECT 'it''s' AS q FROM s WHERE k = 'b' AND 'it''s' <> 'its'") == [{"q": "it's"}]


def test_a_name_in_backticks_that_is_no_column_is_refused_as_such():
    with pytest.raises(SqlError, match="sum='v-t' is not a column"):
        results("SELECT sum(`v-t`) AS n FROM s [RANGE 10 WATTR t]")


def test_what_is_aggregated_may_be_computed():
    sql = "SELECT sum(v * 10) AS tens, max(v + t) AS most, count(*) AS n FROM s [RANGE 10 WATTR t]"
    assert results(sql) == [{"tens": 100, "most": 13, "n": 4}]


def test_columns_come_as_they_are_selected():
    found = results("SELECT count(*) AS n, window_end AS until, k AS who FROM s [RANGE 10 WATTR t] GROUP BY k")
    assert [list(row) for row in found] == [["n", "until", "who"]] * 3
    assert {row["who"]: row["n"] for row in found} == {"a": 2, "b": 1, None: 1}


def test_results_may_be_called_anything():
    sql = "SELECT count(*) AS start, max(v) AS `end`, min(v) AS name FROM s [RANGE 10 WATTR t]"
    assert results(sql) == [{"start": 4, "end": 4, "name": 1}]


def test_more_aggregates_than_the_catalogue_has():
    sql = (
        "SELECT count(DISTINCT k) AS d, median(v) AS m, avg(v) AS a, stddev_pop(v) AS s, collect_set(k) AS ks, "
        "percentile(v, 1.0) AS p FROM s [RANGE 10 WATTR t]"
    )
    (row,) = results(sql)
    assert (row["d"], row["m"], row["a"], row["ks"], row["p"]) == (2, 2.5, 2.5, ["a", "b"], 4.0)
    assert row["s"] == pytest.approx(1.25**0.5)


PARAMETERS = {
    "approx_count_distinct": ("precision", 14, "14"),
    "approx_quantile": ("size", 16, "0.5, 16"),
    "quantile": ("share", 0.25, "0.25"),
    "heavy_hitters": ("share", 0.25, "0.25"),
    "variance": ("of", "population", "'population'"),
    "stddev": ("of", "population", "'population'"),
}
"""For each aggregate that takes more than a column: a parameter, a value, and how SQL writes the arguments."""


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_every_public_aggregate_gives_in_sql_what_it_gives_in_python_with_its_parameters(name):
    make = getattr(pk, name)
    parameter, value, written = PARAMETERS.get(name, (None, None, ""))
    given = {parameter: value} if parameter else {}
    given |= {"share": 0.5} if name == "approx_quantile" else {}
    sql = f"SELECT {name}(v{', ' if written else ''}{written}) AS r FROM s [RANGE 10 WATTR t]"
    flow = pk.LocalFlow()
    rows = flow.source(ROWS, time="t").window(range=10).agg(r=make("v", **given)).select("r").to_memory()
    flow.run()
    assert results(sql) == rows.table().to_pylist()
    (call,) = parse(sql).aggregates
    assert str(function_of(call)) == str(make("v", **given)), "with the same parameters"


def test_the_public_aggregates_are_those_of_the_registry_and_all_their_parameters_are_tried_in_sql():
    public = {name for name in pk.__all__ if getattr(getattr(pk, name), "__module__", "") == spellings.__name__}
    assert public == set(AGGREGATES)
    placed = {
        name: [each for each in signature(make).parameters.values() if each.kind is not Parameter.KEYWORD_ONLY]
        for name, make in AGGREGATES.items()
    }
    assert set(PARAMETERS) == {name for name, parameters in placed.items() if len(parameters) > 1}


def test_a_whole_number_will_do_where_an_aggregate_takes_a_float():
    assert results("SELECT quantile(v, 1) AS top FROM s [RANGE 10 WATTR t]") == [{"top": 4}]


def test_a_join_has_the_columns_that_are_selected_by_what_from_calls_them():
    sql = """
        SELECT x.k, y.v AS theirs, upper(x.k) AS loud, 'x.k' AS text
        FROM a AS x [RANGE 1 WATTR t], b AS y [RANGE 1 WATTR t]
        WHERE x.k = y.k AND x.v < 2 AND x.v <= y.v
    """
    assert results(sql, "a", "b") == [{"k": "a", "theirs": 1, "loud": "A", "text": "x.k"}]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("LEFT", [(1, 1, 5), (2, None, None)]),
        ("RIGHT", [(1, 1, 5), (None, 3, 7)]),
        ("FULL OUTER", [(1, 1, 5), (2, None, None), (None, 3, 7)]),
    ],
)
def test_in_an_outer_join_each_side_has_its_own_key(how, expected):
    flow = _two_keyed_sources()
    joined = f"FROM a [RANGE 3 WATTR ts] {how} JOIN b [RANGE 2 WATTR ts] ON a.k = b.k"
    rows = flow.sql(f"SELECT a.k, b.k AS bk, b.w {joined}").to_memory()
    groups = flow.sql(f"SELECT b.k AS bk, count(*) AS n [RANGE 20] {joined} GROUP BY b.k").to_memory()
    flow.run()
    assert rows.table().num_rows == len(expected)
    assert {(r["k"], r["bk"], r["w"]) for r in rows.table().to_pylist()} == set(expected)
    assert {r["bk"]: r["n"] for r in groups.table().to_pylist()} == {bk: 1 for _, bk, _ in expected}


@pytest.mark.parametrize(("how", "keys"), [("SEMI", [1]), ("ANTI", [2])])
def test_a_semi_or_anti_join_shows_the_left_side_alone(how, keys):
    flow = _two_keyed_sources()
    joined = f"FROM a [RANGE 3 WATTR ts] LEFT {how} JOIN b [RANGE 2 WATTR ts] ON a.k = b.k"
    rows = flow.sql(f"SELECT a.k {joined}").to_memory()
    flow.run()
    assert rows.table()["k"].to_pylist() == keys
    with pytest.raises(SqlError, match=r"'b\.w' is not in the results"):
        flow.sql(f"SELECT b.w {joined}")


def _two_keyed_sources() -> pk.LocalFlow:
    flow = pk.LocalFlow()
    flow.source(pa.table({"k": [1, 2], "ts": [0, 4]}), time="ts", name="a")
    flow.source(pa.table({"k": [1, 3], "w": [5, 7], "ts": [1, 9]}), time="ts", name="b")
    return flow


def test_an_outer_join_keeps_rows_alone():
    sql = "SELECT a.v, b.v AS other FROM a [RANGE 0 WATTR t] LEFT JOIN b [RANGE 0 WATTR t] ON a.k = b.k"
    assert {"v": 4, "other": None} in results(sql, "a", "b"), "null equals nothing"


SIDES = {
    "a": pa.table({"k": [1, 2], "ts": [0, 4]}),
    "b": pa.table({"k": [1, 3], "w": [5, 7], "ts": [1, 9]}),
}
BOTH, ONLY_A, ONLY_B = (1, 1, 5), (2, None, None), (None, 3, 7)


def joined(select: str, kind: str, rest: str = "") -> pa.Table:
    flow = pk.LocalFlow()
    for name, table in SIDES.items():
        flow.source(table, time="ts", name=name)
    sql = f"SELECT {select} FROM a [RANGE 3 WATTR ts] {kind} b [RANGE 2 WATTR ts] ON a.k = b.k {rest}"
    out = flow.sql(sql).to_memory()
    flow.run()
    return out.table()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("JOIN", [BOTH]),
        ("LEFT JOIN", [BOTH, ONLY_A]),
        ("RIGHT JOIN", [BOTH, ONLY_B]),
        ("FULL OUTER JOIN", [BOTH, ONLY_A, ONLY_B]),
    ],
)
def test_the_key_of_a_missing_row_is_null_in_an_outer_join(kind, expected):
    assert multiset(joined("a.k, b.k AS theirs, b.w", kind)) == Counter(expected)


def test_all_columns_of_an_outer_join_are_those_of_both_sides():
    found = joined("*", "FULL JOIN")
    assert found.column_names == ["k", "ts", "k_right", "w", "ts_right"]
    assert multiset(found) == Counter([(1, 0, 1, 5, 1), (2, 4, None, None, None), (None, None, 3, 7, 9)])
    assert joined("*", "JOIN").column_names == ["k", "ts", "w", "ts_right"], "pairs have one key"


def test_groups_of_an_outer_join_go_by_the_key_of_their_side():
    counted = "count(*) [RANGE 20 WATTR b.ts]"
    assert multiset(joined(f"a.k, {counted}", "RIGHT JOIN", "GROUP BY a.k")) == Counter([(1, 1), (None, 1)])
    assert multiset(joined(f"b.k, {counted}", "RIGHT JOIN", "GROUP BY b.k HAVING b.k > 1")) == Counter([(3, 1)])


@pytest.mark.parametrize(("kind", "key"), [("LEFT SEMI JOIN", 1), ("LEFT ANTI JOIN", 2)])
def test_semi_and_anti_joins_give_rows_of_the_left_stream_only(kind, key):
    assert joined("a.k", kind).to_pylist() == [{"k": key}]
    assert joined("*", kind).column_names == ["k", "ts"]
    assert joined("a.k, count(*) [RANGE 20 WATTR a.ts]", kind, "GROUP BY a.k").to_pylist() == [{"k": key, "count": 1}]
    for missing in ("b.w", "b.k"):
        with pytest.raises(
            SqlError, match=rf"'{missing}' is not in the results: {kind} gives rows of a only\. Use col"
        ):
            joined(f"a.k AS ours, {missing}", kind)
    with pytest.raises(SqlError, match=r"one of its streams whose rows come out\. Write WATTR a\.ts\."):
        joined("a.k, count(*) [RANGE 20 WATTR b.ts]", kind, "GROUP BY a.k")


def test_windows_over_a_join_go_by_the_time_that_they_name():
    sql = """
        SELECT window_end, b.k AS k, count(*) AS n [RANGE 5 WATTR b.t]
        FROM a [RANGE 5 WATTR t], b [RANGE 5 WATTR t]
        WHERE a.k = b.k
        GROUP BY b.k
        HAVING count(*) > 0 AND b.k = 'a'
    """
    flow = flow_of("a", "b")
    out = flow.sql(sql.replace("count(*) AS n [RANGE 5 WATTR b.t]", "count(*) [RANGE 5 WATTR b.t]")).to_memory()
    flow.run()
    assert out.table().to_pylist() == [
        {"window_end": 5, "k": "a", "count": 1},
        {"window_end": 10, "k": "a", "count": 1},
    ]


def test_a_group_by_one_time_of_a_join_needs_no_window():
    sql = """
        SELECT b.t, count(*) AS n FROM a [RANGE 9 WATTR t], b [RANGE 9 WATTR t] WHERE a.k = b.k GROUP BY b.t
    """
    assert results(sql, "a", "b") == [{"t": 0, "n": 2}, {"t": 4, "n": 1}, {"t": 9, "n": 2}]


def test_any_stream_can_be_named():
    flow = flow_of("s")
    (source,) = flow._sources
    small = flow.sql("SELECT * FROM s WHERE v < 3")
    out = flow.sql("SELECT count(*) AS n FROM small [RANGE 10 WATTR t]", small=small).to_memory()
    flow.run()
    assert source.name == "s"
    assert out.table().to_pylist() == [{"n": 2}]


def test_results_can_be_asked_again():
    flow = flow_of("s")
    counts = flow.sql("SELECT k, window_end, count(*) AS n FROM s [RANGE 5 WATTR t] GROUP BY k")
    out = flow.sql("SELECT max(n) AS most FROM counts [RANGE 10]", counts=counts).to_memory()
    flow.run()
    assert out.table().to_pylist() == [{"most": 1}]


def test_windows_over_results_go_by_the_time_that_comes_with_them():
    flow = flow_of("s")
    counts = flow.sql("SELECT window_end, count(*) AS n FROM s [RANGE 5 WATTR t]")
    with pytest.raises(SqlError, match=r"window_end is not the event time .* Leave WATTR out: windows then go by the"):
        flow.sql("SELECT sum(n) FROM counts [RANGE 10 WATTR window_end]", counts=counts)


def test_a_stream_can_be_joined_with_itself():
    sql = (
        "SELECT x.v, y.v AS next FROM s AS x [RANGE 9 WATTR t], s AS y [RANGE 0 WATTR t] WHERE x.k = y.k AND x.v < y.v"
    )
    assert results(sql) == [{"v": 1, "next": 3}]


def test_any_name_will_do_for_a_stream():
    flow = flow_of("s")
    out = flow.sql("SELECT count(*) AS n FROM query [RANGE 10]", query=flow.sql("SELECT * FROM s")).to_memory()
    flow.run()
    assert out.table().to_pylist() == [{"n": 4}]


@pytest.mark.parametrize("number", ["1-1", "5-2", "5-3"])
def test_shards_do_not_change_results(number):
    tables = {"packets": packets(1)}
    one, many = (run(CATALOGUE[number], tables, shards=shards)[1] for shards in (1, 3))
    assert multiset(one) == multiset(many)


# Options


COUNTS = "SELECT k, count(*) AS n FROM s [RANGE 10 WATTR t] GROUP BY k"


def in_two_epochs() -> pk.LocalFlow:
    flow = pk.LocalFlow()
    flow.source([ROWS.slice(0, 2), ROWS.slice(2)], time="t", name="s")
    return flow


def test_results_of_open_windows_come_out_if_asked_for_and_say_so():
    flow = in_two_epochs()
    out = flow.sql(COUNTS + " HAVING n > 0", emit="update").to_memory()
    flow.run()
    assert out.table().column_names == ["k", "n", "emitted"]
    mine = [(row["n"], row["emitted"]) for row in out.table().to_pylist() if row["k"] == "a"]
    assert mine == [(1, "update"), (2, "update"), (2, "final")]


@pytest.mark.parametrize("method", ["wid", "paned", "differential", "adapt"])
def test_a_method_may_be_named(method):
    flow = in_two_epochs()
    out = flow.sql(COUNTS, method=method).to_memory()
    report = flow.run().progress()
    assert multiset(out.table()) == {("a", 2): 1, ("b", 1): 1, (None, 1): 1}
    assert report.epochs[-1].operators["window0"].method == method


def test_groups_by_the_times_of_a_join_may_have_a_method_too():
    sql = "SELECT b.t, count(*) AS n FROM a [RANGE 9 WATTR t], b [RANGE 9 WATTR t] WHERE a.k = b.k GROUP BY b.t"
    flow = flow_of("a", "b")
    out = flow.sql(sql, method="wid").to_memory()
    flow.run()
    assert multiset(out.table()) == {(0, 2): 1, (4, 1): 1, (9, 2): 1}


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        ("SELECT * FROM s", {"emit": "update"}, r"emit='update' applies to window aggregates, but the query has"),
        (
            "SELECT * FROM s [RANGE 1 WATTR t], a [RANGE 1 WATTR t] WHERE s.k = a.k",
            {"method": "wid"},
            r"method='wid' applies to .* has none\. Leave it out, or join with stream\.join\(…, method=…\)",
        ),
        (COUNTS, {"method": "quickly"}, r"method='quickly' is not one of auto, paned, differential"),
        (COUNTS, {"emit": "soon"}, r"emit='soon' is not one of final, update"),
        (
            "SELECT k AS emitted, count(*) AS n FROM s [RANGE 10 WATTR t] GROUP BY k",
            {"emit": "update"},
            r"Two columns are called emitted\. Write AS and another name after one",
        ),
    ],
)
def test_options_are_refused_where_they_mean_nothing(sql, options, message):
    with pytest.raises(ConfigError, match=message):
        flow_of("s", "a").sql(sql, **options)


def test_a_stream_cannot_be_called_as_an_option():
    flow = flow_of("s")
    with pytest.raises(ConfigError, match=r"emit= is an argument of sql\(\), so no stream can be called that\. Choose"):
        flow.sql("SELECT * FROM emit", emit=flow.sql("SELECT * FROM s"))


# What is refused


@pytest.mark.parametrize(
    ("sql", "place", "message"),
    [
        (
            "SELECT * FROM packets",
            "FROM packets",
            r"There is no stream packets\. The sources of this flow are: s, a\. Write one of these, or say which",
        ),
        (
            "SELECT count(*) FROM s [RANGE 10 WATTR v]",
            "WATTR v",
            r"v is not the event time of this stream, .* Write WATTR t, or make v the time= of the source",
        ),
        (
            "SELECT kk, count(*) FROM s [RANGE 10 WATTR t] GROUP BY kk",
            "kk",
            r"by='kk' is not a column of this stream",
        ),
        ("SELECT sum(w) FROM s [RANGE 10 WATTR t]", "w", r"sum='w' is not a column of this stream\. Its columns are"),
        ("SELECT sum(v + w) FROM s [RANGE 10 WATTR t]", "v + w", r"'v \+ w' cannot be computed"),
        ("SELECT sum(k) FROM s [RANGE 10 WATTR t]", "k", r"a sum takes numbers, but 'k' is of type string"),
        ("SELECT k, v AS k FROM s", "k", r"Two columns are called k\. Write AS and another name after one"),
        ("SELECT * FROM s WHERE w > 3", "w > 3", r"'w > 3' cannot be computed"),
        ("SELECT count(*) FROM s [RANGE 10 minutes WATTR t]", None, r"10 min is real time, but the time column is an"),
        (
            "SELECT s.w FROM s [RANGE 1 WATTR t], a [RANGE 1 WATTR t] WHERE s.k = a.k",
            "w",
            r"s='w' is not a column of this stream",
        ),
        (
            "SELECT count(*) [RANGE 5 WATTR s.v] FROM s [RANGE 1 WATTR t], a [RANGE 1 WATTR t] WHERE s.k = a.k",
            "WATTR s.v",
            r"A window over a join goes by the time of one of its streams\. Write WATTR s\.t or WATTR a\.t",
        ),
        (
            "SELECT * FROM s [RANGE 1 WATTR v], a [RANGE 1 WATTR t] WHERE s.k = a.k",
            "WATTR v",
            r"v is not the event time of this stream",
        ),
        (
            "SELECT count(*) FILTER (WHERE v > 1) [RANGE 5 WATTR t] FROM s",
            "count(*) FILTER (WHERE v > 1)",
            r"FILTER is not supported\. Aggregate values only where .* as in count\(CASE WHEN k > 1 THEN 1 END\)",
        ),
        (
            "SELECT k, count(*) FROM s [RANGE 5 WATTR t] GROUP BY ALL",
            "ALL",
            r"GROUP BY ALL is not supported\. Name the columns, as in GROUP BY k",
        ),
        ("SELECT k, count(*) FROM s [RANGE 5 WATTR t] GROUP BY CUBE(k)", "CUBE", r"CUBE would group rows in several"),
        ("SELECT k, count(*) FROM s [RANGE 5 WATTR t] GROUP BY k WITH ROLLUP", "WITH", r"in several ways at once"),
        ("SELECT * EXCEPT (k) FROM s", "EXCEPT", r"EXCEPT is not supported\. Name the columns to keep"),
        ("SELECT k, count(*) FROM s GROUP BY k", "count(*)", r"Without a window this has no end"),
        (
            "SELECT percentile(v) FROM s [RANGE 5 WATTR t]",
            "v",
            r"quantile of 'v' does not take \[\]: missing .*'share'\. In Python it is quantile\(column: str, share",
        ),
        ("SELECT quantile(v) FROM s [RANGE 5 WATTR t]", "v", r"quantile of 'v' does not take \[\]: missing .*'share'"),
        (
            "SELECT max(v, 2) FROM s [RANGE 5 WATTR t]",
            "v",
            r"max of 'v' does not take \[2\]: too many .* max\(column:",
        ),
        (
            "SELECT variance(v, 'all') FROM s [RANGE 5 WATTR t]",
            "all",
            r"of='all' of variance must be 'sample' or 'population'\.",
        ),
        (
            "SELECT approx_count_distinct(v, 0.5) FROM s [RANGE 5 WATTR t]",
            None,
            r"precision=0\.5 of approx_count_distinct must be a value of type int\.",
        ),
    ],
)
def test_what_a_flow_cannot_do_is_refused_where_the_query_asks_for_it(sql, place, message):
    with pytest.raises(SqlError, match=message) as raised:
        flow_of("s", "a").sql(sql)
    shown, carets = str(raised.value).splitlines()[-2:]
    assert shown.strip() == sql
    if place is not None:
        start = carets.index("^")
        assert shown[start : start + carets.count("^")] == place


def test_streams_of_another_flow_are_refused():
    with pytest.raises(
        ConfigError, match=r"s=… is a stream of another flow, not a stream of this flow\. Pass one made by flow\.source"
    ):
        flow_of().sql("SELECT * FROM s", s=flow_of("s").sql("SELECT * FROM s"))


def test_the_format_of_a_date_is_kept():
    flow = pk.LocalFlow()
    flow.source(pa.table({"s": ["2024-01-01"], "t": [0]}), time="t", name="a")
    with pytest.raises(ConfigError, match=r"TO_DATE\(`s`, 'yyyy-MM-dd'\) has arguments that are not supported"):
        flow.sql("SELECT to_date(s, 'yyyy-MM-dd') AS d FROM a")


def test_an_argument_that_spark_does_not_have_is_not_left_out_in_silence():
    with pytest.raises(SqlError, match=r"has an argument that Spark's function does not have"):
        spelled(sqlglot.parse_one("max_by(x, y, 3)", dialect=Spark4))


def test_two_streams_without_windows_are_joined_over_all_their_history():
    flow = pk.LocalFlow()
    for name in "ab":
        flow.source(pa.table({"k": [1, 2], "t": [0, 10**9]}), time="t", name=name)
    rows = flow.sql("SELECT a.k AS k FROM a, b WHERE a.k = b.k").to_memory()
    flow.run()
    assert sorted(rows.table()["k"].to_pylist()) == [1, 2]
