"""What is computed without DuckDB has the value that it has with it."""

from __future__ import annotations

from fractions import Fraction
from operator import eq, ge, gt, le, lt, ne

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlglot import parse_one

from penstock.core.errors import FlowError
from penstock.expressions import evaluate, native
from penstock.expressions.view import View
from penstock.sql.dialect import Spark4

LEAST = -(2**63)


@example([LEAST, LEAST + 1, 2**63 - 1, -1, 0, None], 3)
@example([LEAST], 2**31 - 1)
@given(st.lists(st.none() | st.integers(LEAST, 2**63 - 1)), st.integers(1, 2**31 - 1))
def test_remainders_have_the_sign_of_the_number(numbers, by):
    rows = pa.table(
        {"n": pa.array(numbers, pa.int64()), "s": pa.array([{"n": n} for n in numbers], pa.struct({"n": pa.int64()}))}
    )
    expected = [None if n is None else abs(n) % by * (-1 if n < 0 else 1) for n in numbers]
    found = evaluate.select(rows, [f"n % {by} AS a", f"s.n % {by} AS b", f"(n + 0) % {by} AS c"])
    assert found.schema.types == [pa.int64()] * 3
    assert [column.to_pylist() for column in found.columns] == [expected] * 3
    kept = evaluate.where(rows, f"n % {by} = 1").column("n").to_pylist()
    assert kept == [n for n, left in zip(numbers, expected, strict=True) if left == 1]


@pytest.fixture
def rows(monkeypatch):
    """Rows of which no remainder is computed without DuckDB."""
    monkeypatch.setattr(native, "_remainders", None)
    return pa.table({"n": pa.array([7]), "i": pa.array([7], pa.int32())})


@pytest.mark.parametrize("text", ["n % -3", "n % 3000000000", "i % 4", "n % i"])
def test_other_remainders_are_computed_by_duckdb(text, rows):
    assert evaluate.select(rows, [f"{text} AS r"]).num_rows == 1


def test_there_is_no_remainder_by_zero(rows):
    with pytest.raises(FlowError):
        evaluate.select(rows, ["n % 0 AS r"])


@given(
    st.lists(st.tuples(*[st.none() | st.integers(-3, 3)] * 2)),
    st.sampled_from(["n > 0", "n <= 1 AND i <> 2", "n IS NULL", "n % 2 = 1", "(i IS NOT NULL)"]),
    st.sampled_from(["n", "i", "7", "-7"]),
)
def test_numbers_where_a_condition_holds_are_those_that_duckdb_gives(pairs, condition, then):
    n, i = ([pair[side] for pair in pairs] for side in (0, 1))
    rows = pa.table({"n": pa.array(n, pa.int64()), "i": pa.array(i, pa.int32())})
    both = [f"CASE WHEN {condition} THEN {then} END AS a", f"CASE WHEN {condition} OR false THEN {then} END AS b"]
    found = evaluate.select(rows, both)
    assert found.schema.field("a").type == found.schema.field("b").type
    assert found.column("a").to_pylist() == found.column("b").to_pylist()


@pytest.fixture
def by_duckdb(monkeypatch):
    """Compute values as if nothing were computed without DuckDB."""

    def select(rows, expressions):
        evaluate._shown.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(native, "value", lambda *_: None)
            made = evaluate.select(rows, expressions)
        evaluate._shown.cache_clear()
        return made

    return select


DECIMALS = ["0.908", "1.0", ".5", "0.00", "1234567890123456.1"]


@example([LEAST, 2**63 - 1, -1, 0, None], "0.908")
@given(st.lists(st.none() | st.integers(LEAST, 2**63 - 1)), st.sampled_from(DECIMALS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_products_of_whole_numbers_and_decimals_are_those_that_duckdb_gives(by_duckdb, numbers, factor):
    small = [None if n is None else n >> 56 for n in numbers]
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "i": pa.array(small, pa.int8())})
    asked = [f"{factor} * n AS a", f"n * {factor} AS b", f"{factor} * i AS c"]
    assert evaluate.select(rows, asked) == by_duckdb(rows, asked)


def test_a_decimal_has_the_digits_that_it_is_written_with():
    rows = pa.table({"n": pa.array([3]), "i": pa.array([3], pa.int32())})
    made = evaluate.select(rows, ["0.908 * n AS a", "0.05 * n AS b", "1.50 * i AS c", "0.0 * i AS d"])
    digits = [(24, 3), (23, 2), (14, 2), (12, 1)]
    assert made.schema.types == [pa.decimal128(*each) for each in digits]
    assert [str(column[0]) for column in made.columns] == ["2.724", "0.15", "4.50", "0.0"]


@given(
    st.lists(st.integers(-2000, 2000) | st.sampled_from([LEAST, 2**63 - 1])),
    st.sampled_from(["0.908", "0.5", "2.0", "100.0", "0.0", "0.001"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.integers(-1000, 1000) | st.sampled_from([LEAST, 2**63 - 1]),
)
def test_products_are_compared_exactly(numbers, factor, sign, value):
    rows = pa.table({"n": pa.array([*numbers, None], pa.int64())})
    holds = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}[sign]
    kept = evaluate.where(rows, f"{factor} * n {sign} {value}").column("n").to_pylist()
    assert kept == [n for n in numbers if holds(Fraction(factor) * n, value)]


@example(["", None, "c", "", "éc–c", None, ""], 0)
@given(st.lists(st.none() | st.text("abcé–")), st.integers(0, 3))
def test_letters_are_counted_as_lengths_differ(texts, start):
    rows = pa.table({"x": pa.array([*["cc"] * start, *texts], pa.string())}).slice(start)
    asked = ["length(x) - length(replace(x, 'c', '')) AS a", "length(x) - length(replace(x, 'é', '')) AS b"]
    made = evaluate.select(rows, asked)
    assert made.schema.types == [pa.int32()] * 2
    for letter, column in zip("cé", made.columns, strict=True):
        assert column.to_pylist() == [None if text is None else text.count(letter) for text in texts]


TEXT_TESTS = [
    "x = 'c'",
    "x <> 'c'",
    "x IS NULL",
    "x IS NOT NULL AND y = 'a'",
    "x = y",
    "x <> y",
    "s.x = 'c'",
    "s.x = y",
    "length(x) - length(replace(x, 'c', ''))",
    "CASE WHEN x = 'c' THEN n END",
]


@example([("c", "a"), (None, "a"), ("c", None), ("a", "a")], "x = y", 2, 1)
@given(
    st.lists(st.tuples(*[st.none() | st.sampled_from(["", "a", "c", "ac", "é"])] * 2)),
    st.sampled_from(TEXT_TESTS),
    st.integers(0, 5),
    st.integers(0, 2),
)
def test_texts_that_are_encoded_give_what_plain_ones_give(pairs, text, cut, start):
    """In two chunks with dictionaries of their own, sliced, as pieces of a file are."""
    x, y = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    plain = pa.table({"x": x, "y": y, "n": pa.array(range(len(pairs)), pa.int64())})
    plain = plain.append_column("s", pa.StructArray.from_arrays([x], names=["x"]))
    assert native.value(parse_one(text, read=Spark4), plain.schema, lambda parts: (parts[0], tuple(parts[1:])))
    kind = pa.dictionary(pa.int32(), pa.string())
    held = [
        pa.chunked_array(
            [
                pa.StructArray.from_arrays([part.field(0).cast(kind)], names=["x"])
                if pa.types.is_struct(part.type)
                else part.cast(kind)
                if part.type == pa.string()
                else part
                for part in (column.chunk(0).slice(0, cut), column.chunk(0).slice(cut))
            ]
        )
        for column in plain.columns
    ]
    encoded = pa.table(held, names=plain.column_names).slice(start)
    found = evaluate.selected(View.of(encoded, plain.schema), [f"{text} AS r"]).table()
    assert found == evaluate.select(plain.slice(start), [f"{text} AS r"])


def test_other_lengths_are_left_to_duckdb(monkeypatch):
    monkeypatch.setattr(native, "_counted", None)
    rows = pa.table({"x": ["abc"], "y": ["c"]})
    asked = ["replace(x, 'c', 'd')", "replace(y, 'c', '')", "replace(x, '', '')", "replace(x, 'bc', '')"]
    made = evaluate.select(rows, [f"length(x) - length({less}) AS r{n}" for n, less in enumerate(asked)])
    assert [column[0].as_py() for column in made.columns] == [0, 3, 0, 2]


SUMS = ["n + 1", "n - k", "2 * n", "n * k - 7", "(n + k) % 10", "n * 16777216 - unix_micros(at) % 10000000", "-3 - n"]
AT = pa.timestamp("us", "UTC")


@given(
    st.lists(st.tuples(*[st.none() | st.integers(-(2**30), 2**30)] * 3)),
    st.sampled_from([*SUMS, "n > k", "n = 3", "n <= k AND k <> 2", "n IS NULL"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_computed_of_whole_numbers_is_what_duckdb_gives(by_duckdb, numbers, text):
    n, k, at = ([row[place] for row in numbers] for place in range(3))
    rows = pa.table({"n": pa.array(n, pa.int64()), "k": pa.array(k, pa.int64()), "at": pa.array(at, AT)})
    asked = [f"{text} AS r"]
    assert evaluate.select(rows, asked) == by_duckdb(rows, asked)


@pytest.mark.parametrize("text", ["n + 1", "2 * n", "k - n", "n * k", "(n + 1) % 7"])
def test_a_sum_that_does_not_fit_is_the_error_that_duckdb_tells(text):
    rows = pa.table({"n": pa.array([2**63 - 1]), "k": pa.array([-5])})
    with pytest.raises(FlowError, match=r"verflow|out of range"):
        evaluate.select(rows, [f"{text} AS r"])


@pytest.mark.parametrize("text", ["i + 1", "i * n", "unix_micros(local)", "n / 2", "n + 0.5"])
def test_other_sums_are_left_to_duckdb(text):
    columns = pa.schema({"n": pa.int64(), "i": pa.int32(), "local": pa.timestamp("us")})
    assert native.value(parse_one(text, read=Spark4), columns, lambda parts: (parts[0], ())) is None


@given(
    st.lists(st.tuples(*[st.none() | st.integers(-3, 3)] * 2)),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.sampled_from([pa.int64(), pa.int8(), AT, pa.timestamp("us"), pa.date32(), pa.string()]),
)
def test_columns_are_compared_as_duckdb_does(pairs, sign, kind):
    given = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    a, b = (pa.array([pair[side] for pair in pairs], given).cast(kind) for side in (0, 1))
    rows = pa.table({"a": a, "b": b})
    sides = ({"x": "a"}, {"y": "b"})
    expected = evaluate.where(rows, f"a {sign} b OR false")
    assert evaluate.where(rows, f"a {sign} b") == expected
    assert evaluate.where_pairs(rows, f"l.x {sign} r.y", sides) == expected
    assert evaluate.where_pairs(rows, f"l.x {sign} r.y OR false", sides) == expected
