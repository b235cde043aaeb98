"""Columns with odd names and clashing types: they work, or are refused while the flow is built."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.expressions import evaluate
from penstock.expressions.view import View

ODD = ["it's", 'say "hi"', "a b", "a.b", "`tick`", "select", "ü", "x;y", "--", "'"]


@pytest.mark.parametrize("name", ODD)
def test_a_condition_on_pairs_works_with_any_column_name(name):
    flow = pk.LocalFlow()
    rows = pa.table({"k": [1, 2], "t": [0, 0], name: [1, 2], "x": [1, 9]})
    left, right = (flow.source(rows, time="t", name=side) for side in "lr")
    quoted = "`" + name.replace("`", "``") + "`"
    out = left.join(right, on="k", within=pk.band(1, 1), where=f"l.x < 5 AND r.{quoted} = 1").to_memory()
    flow.run()
    assert out.table().column("k").to_pylist() == [1]


@pytest.mark.parametrize("name", ODD)
def test_select_and_where_work_with_any_column_name(name):
    quoted = "`" + name.replace("`", "``") + "`"
    rows = pa.table({name: [1, 2], "other": [3, 4]})
    assert evaluate.where(rows, f"{quoted} = 2").to_pylist() == [{name: 2, "other": 4}]
    assert evaluate.where(rows, "other = 3").to_pylist() == [{name: 1, "other": 3}]
    assert evaluate.select(rows, ["*", f"{quoted} + 1 AS more"]).column_names == [name, "other", "more"]
    assert evaluate.select(rows, [quoted, f"{quoted} * 2 AS `{name.replace('`', '``')}2`"]).to_pylist()[1] == {
        name: 2,
        f"{name}2": 4,
    }


def test_names_that_differ_only_by_case_are_columns_of_their_own():
    rows = pa.table({"a": [1, 2], "A": [3, 4], "A_1": [5, 6], "b": [7, 8]})
    assert evaluate.where(rows, "b = 7").column_names == ["a", "A", "A_1", "b"]
    assert evaluate.where(rows, "A = 4 AND a = 2").to_pylist() == [{"a": 2, "A": 4, "A_1": 6, "b": 8}]
    assert evaluate.select(rows, ["A + a AS s", "A", "A_1", "B"]).to_pylist()[0] == {"s": 4, "A": 3, "A_1": 5, "b": 7}
    upper = pa.table({"aB": [1], "Ab": [2]})
    with pytest.raises(ConfigError, match=r"column='ab' is ambiguous: it may be 'aB' or 'Ab'\. Write the name exactly"):
        evaluate.where(upper, "ab > 0")


def test_pairs_may_have_names_that_differ_only_by_case():
    flow = pk.LocalFlow()
    rows = pa.table({"k": [1, 2], "K": [5, 6], "t": [0, 0]})
    left, right = (flow.source(rows, time="t", name=side) for side in "lr")
    out = left.join(right, on="k", within=pk.band(1, 1), where="l.K = 6 AND r.K = 6 AND l.k = 2").to_memory()
    flow.run()
    assert out.table().column("k").to_pylist() == [2]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("l.y > 0", r"'l.y > 0' cannot be computed: column='y' is not a column of this side of the join"),
        ("x > 0", r"x is not a column of a pair\. Write l\.x for the left row, or r\.x for the right row"),
        ("l.x", r"'l.x' cannot be computed: l.x is BIGINT, not a boolean\. Compare it with something"),
    ],
)
def test_a_condition_that_names_no_column_of_a_pair_is_refused(condition, message):
    flow = pk.LocalFlow()
    left, right = (flow.source(pa.table({"k": [1], "t": [0], "x": [1]}), time="t", name=side) for side in "lr")
    with pytest.raises(ConfigError, match=message):
        left.join(right, on="k", within=pk.band(1, 1), where=condition)


def test_an_expression_that_makes_several_columns_of_one_keeps_the_others_beside_them():
    rows = pa.table({"n": [1, 2], "s": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]})
    assert evaluate.select(rows, ["n", "s.*", "s.a + 1 AS c"]).to_pylist()[1] == {"n": 2, "a": 3, "b": 4, "c": 4}


@pytest.mark.parametrize("names", [["*", "1 AS k"], ["k", "t AS k"]])
def test_a_select_with_one_name_twice_is_refused(names):
    flow = pk.LocalFlow()
    with pytest.raises(ConfigError, match=r"select\(\) gives two columns 'k'\. Give one of them another name"):
        flow.source(pa.table({"k": [1], "t": [0]}), time="t").select(*names)


def test_a_source_with_one_name_twice_is_refused():
    twice = pa.table([pa.array([1]), pa.array([2])], names=["t", "t"])
    with pytest.raises(ConfigError, match=r"The source has two columns 't'\. Give one of them another name"):
        pk.LocalFlow().source(twice, time="t")


NESTED = [pa.struct([("a", pa.int64())]), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.binary()]


@pytest.mark.parametrize(
    "kind", [*NESTED, pa.large_binary(), pa.binary(4), pa.dictionary(pa.int8(), pa.binary())], ids=str
)
@pytest.mark.parametrize("first", ["odd", "plain"])
def test_late_rows_of_sources_that_disagree_on_a_type_without_text_are_refused(kind, first):
    flow = pk.LocalFlow()
    kinds = {"odd": kind, "plain": pa.int64()}
    tables = {name: pa.table({"t": [1], "x": pa.nulls(1, kinds[name])}) for name in kinds}
    streams = [
        flow.source(tables[name], time="t", name=name).select("t") for name in sorted(kinds, reverse=first == "plain")
    ]
    both = streams[0].union(streams[1])
    with pytest.raises(
        ConfigError, match=r"Column 'x' is of type .* in source 'odd' and int64 in source 'plain'\. \.late"
    ):
        both.late.to_memory()


def test_late_rows_of_sources_that_agree_on_a_nested_type_come_out():
    flow = pk.LocalFlow()
    kind = pa.struct([("a", pa.int64())])
    epochs = [pa.table({"t": [time], "x": pa.array([{"a": 1}], kind)}) for time in (9, 1)]
    streams = [flow.source(epochs, time="t", name=name, progress=pk.ordered()) for name in "ab"]
    late = streams[0].union(streams[1]).late.to_memory()
    flow.run()
    assert late.table().column("x").to_pylist() == [{"a": 1}, {"a": 1}]


def test_late_rows_show_a_column_of_different_types_as_text():
    flow = pk.LocalFlow()
    tables = {
        "a": [pa.table({"t": [t], "x": [1]}) for t in (9, 1)],
        "b": [pa.table({"t": [t], "x": ["y"]}) for t in (9, 1)],
    }
    streams = [flow.source(epochs, time="t", name=name, progress=pk.ordered()) for name, epochs in tables.items()]
    late = streams[0].select("t").union(streams[1].select("t")).late.to_memory()
    flow.run()
    assert late.table().column("x").to_pylist() == ["1", "y"]


# Nothing but the rows given can be read.


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text("a\n42\n")
    return path


READS = [
    "(SELECT a FROM read_csv('{path}')) = 42",
    "(SELECT count(*) FROM '{path}') > 0",
    "EXISTS (SELECT * FROM read_text('{path}'))",
    "a IN (SELECT a FROM read_csv_auto('{path}'))",
    "(SELECT content FROM read_text('{path}')) IS NOT NULL",
    "(SELECT count(*) FROM rows) > 0",
    "(SELECT count(*) FROM given) > 0",
]
STATEMENTS = [
    "COPY given TO '{path}'",
    "ATTACH '{path}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SELECT 1",
    "1; SELECT 2",
    "DROP TABLE given",
    "PRAGMA database_list",
    "CREATE TABLE x (a INT)",
]


@pytest.mark.parametrize("text", [*READS, *STATEMENTS])
def test_expressions_cannot_read_files_or_tables_or_run_statements(text, secret):
    rows = pa.table({"a": [42], "t": [0]})
    written = text.format(path=secret)
    stream = pk.LocalFlow().source(rows, time="t", name="s")
    for attempt in (
        lambda: stream.where(written),
        lambda: stream.select(written),
        lambda: stream.select("a", f"{written} AS x"),
        lambda: stream.window(range=1).agg(n=pk.count(), having=written),
        lambda: evaluate.where_pairs(rows, written, ({"a": "a"}, {"a": "a"})),
    ):
        with pytest.raises(ConfigError):
            attempt()
    assert secret.read_text() == "a\n42\n"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{path}')",
        "SELECT * FROM '{path}'",
        "SELECT t, (SELECT a FROM read_csv('{path}')) AS x FROM s",
        "SELECT t FROM s WHERE (SELECT a FROM read_csv('{path}')) = 42",
    ],
)
def test_queries_cannot_read_files(query, secret):
    flow = pk.LocalFlow()
    flow.source(pa.table({"a": [42], "t": [0]}), time="t", name="s")
    with pytest.raises(ConfigError):
        flow.sql(query.format(path=secret))


def test_duckdb_itself_may_read_nothing(monkeypatch, secret):
    """Were a query to get through, the engine would still refuse it."""
    rows = View.of(pa.table({"a": [1]}))
    columns = evaluate._Columns(pa.schema({"a": pa.int64()}))
    for text in (f"(SELECT a FROM read_csv('{secret}'))", "(SELECT count(*) FROM rows)"):
        with pytest.raises(ConfigError, match=r"cannot be computed: .*(disabled|does not exist)"):
            evaluate._run(rows, columns, [evaluate._Computed("found", text, frozenset())], [text])
    monkeypatch.setattr(evaluate, "_database", duckdb.connect)
    found = evaluate._run(
        rows, columns, [evaluate._Computed("found", f"(SELECT a FROM read_csv('{secret}'))", frozenset())], [""]
    )
    assert found.column(0).to_pylist() == [42]
