"""Expressions in process mean what they mean in Spark: the same values, types and errors, or they are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.expressions.evaluate import _tree
from penstock.expressions.functions import FUNCTIONS, call_of
from tests.expressions.cases import BEHIND_NULLS, CASES, FAILING, ONLY_SPARK, REFUSED, ROWS, UNREAD, differences

pytestmark = pytest.mark.slow


def source() -> pk.Stream:
    return pk.LocalFlow().source(ROWS, time="t")


def computed(*expressions: str, rows: pa.Table = ROWS) -> pa.Table:
    flow = pk.LocalFlow()
    out = flow.source(rows, time="t").select(*(f"{text} AS r{place}" for place, text in enumerate(expressions)))
    found = out.to_memory()
    flow.run()
    return found.table()


def test_expressions_give_what_spark_gives():
    cases = CASES + BEHIND_NULLS
    assert differences(computed(*(case.expression for case in cases)), cases) == []


def test_every_function_that_is_known_is_compared_with_spark():
    calls = (call_of(node) for case in CASES for node in _tree(case.expression).walk())
    assert sorted(set(FUNCTIONS) - {call[0] for call in calls if call is not None}) == []


def test_what_has_no_value_in_spark_is_no_error_without_rows():
    assert computed(*FAILING, rows=ROWS.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize("expression", FAILING)
def test_what_has_no_value_in_spark_is_an_error_when_the_rows_are_there(expression):
    with pytest.raises(pk.FlowError) as error:
        computed(expression)
    assert str(error.value).startswith(f"{f'{expression} AS r0'!r} has no value for some row: ")


@pytest.mark.parametrize("expression", UNREAD)
def test_what_only_spark_can_read_is_an_error_and_not_another_value(expression):
    for text in (expression, expression.replace("cast", "try_cast")):
        with pytest.raises(pk.FlowError, match="process"):
            computed(text)


@pytest.mark.parametrize(
    "expression", [r"s like 'a\\'", r"s like '\\A%'", r"s like concat('x', '\\')", "s like 'a!b' escape '!'"]
)
def test_an_escape_that_escapes_nothing_is_an_error_whatever_the_text(expression):
    with pytest.raises(pk.FlowError, match=r"is no pattern: . stands before a letter, or at the end"):
        computed(expression)


@pytest.mark.parametrize("expression", REFUSED)
def test_what_spark_refuses_before_there_are_rows_is_refused_while_the_flow_is_built(expression):
    with pytest.raises(ConfigError):
        source().select(f"{expression} AS r")


@pytest.mark.parametrize("expression", ONLY_SPARK)
def test_what_only_spark_computes_is_refused_while_the_flow_is_built(expression):
    with pytest.raises(ConfigError):
        source().select(f"{expression} AS r")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "hash(i)",
            r"HASH\(`i`\) is not supported in process\. Compute the column before flow\.source\(…\), or run the ",
        ),
        (
            "explode(l)",
            r"turns one row into several, but an expression computes one value\. Do that before flow\.source",
        ),
        (
            "cast(x AS string)",
            r"A cast from DOUBLE to STRING would differ .* Cast it to a decimal before, like cast\(x AS dec",
        ),
        ("cast(x AS decimal(20, 4))", r"at most 15 digits before the point, like decimal\(19, 4\)\."),
        ("cast(m38 AS int)", r"Cast it to bigint before, like cast\(cast\(x AS bigint\) AS int\)\."),
        ("m / 2", r"divides decimals, .* Cast one side to DOUBLE"),
        ("m38 * 2", r"has more than 38 digits, .* Cast its sides to fewer digits, or to DOUBLE"),
        ("s + 1", r"`s` \+ 1 mixes STRING and INT\. Cast one to the other's type"),
        ("d2 - d", r"`d2` - `d` is not supported in process\. Write datediff\(…, …\) for the days between two dates\."),
        ("s + s", r"`s` \+ `s` computes with STRING\. Cast it to a number, like cast\(… AS DOUBLE\)\."),
        ("x div x", r"computes with DOUBLE\. Cast it to an integer, like cast\(… AS BIGINT\)\."),
        ("i & null", r"computes with VOID\. Cast it to an integer"),
        ("m % 2", r"is not supported in process\. Cast both sides to DOUBLE\."),
        ("s / 2", r"computes with STRING\. Cast it to a number"),
        ("left(s, x)", r"LEFT\(`s`, `x`\): argument 2 is DOUBLE"),
        ("i and b", r"`i` is INT, not a boolean\. Compare it with something"),
        ("round(x, i)", "Write how many digits to keep, as a number"),
        ("d + interval '1-2' year to month", "Write a number and a unit, as in INTERVAL 3 DAYS"),
        ("regexp_replace(s, '(b)', '$1')", r"the last a text without \$ and"),
        ("regexp_replace(s, 'a*', '-')", r"Write a pattern that matches one letter at least, as in 'a\+' instead of"),
        ("regexp_extract(s, '(b)', 2)", r"the pattern has no group 2\. It has 1"),
        ("s rlike '(?=b)'", r"'\(\?=b\)' in a pattern is not supported in process, or means something else there"),
        ("s rlike bad", r"Write the pattern as a text"),
        ("array()", r"ARRAY\(\) is not supported in process\. Write at least one element"),
        ("st.nope", r"st has no field 'nope'\. Its fields are: a, c\.$"),
        ("st.a.b", r"st\.a has no field 'b': it is not a struct\.$"),
        ("-m38", r"is DECIMAL\(38,10\)\. Cast it to at most 34 digits"),
    ],
)
def test_a_refusal_says_what_to_write_instead(expression, message):
    with pytest.raises(ConfigError, match=message):
        source().select(f"{expression} AS r")


@pytest.mark.parametrize("expression", ["sum(n)", "n + max(n)", "row_number() over (order by n)"])
def test_an_expression_over_several_rows_is_refused(expression):
    with pytest.raises(ConfigError, match=r"is computed from several rows, .* \.window\(range=…\)\.agg\("):
        source().select(expression)
    with pytest.raises(ConfigError, match="is computed from several rows"):
        source().where(f"{expression} > 1")


def test_an_expression_does_not_depend_on_those_before():
    rows = pa.table({"s": ["2024-01-01 10:00"], "t": [0]})
    assert computed("to_date(s)", rows=rows).num_rows == 1
    with pytest.raises(ConfigError, match=r"TO_DATE\(`s`, 'yyyy-MM-dd'\) has arguments that are not supported"):
        computed("to_date(s, 'yyyy-MM-dd')", rows=rows)


@pytest.mark.parametrize("condition", ["i", "n and i > 1"])
def test_a_condition_that_is_neither_true_nor_false_is_refused_by_its_type_in_spark(condition):
    with pytest.raises(ConfigError, match=r"is (INT|BIGINT), not a boolean\. Compare it with something, as in '"):
        source().where(condition)


def test_several_columns_are_no_condition():
    with pytest.raises(ConfigError, match=r"'st\.\*' is not a condition: it gives several columns"):
        source().where("st.*")


def test_a_condition_means_what_it_means_in_spark():
    flow = pk.LocalFlow()
    rows = flow.source(ROWS, time="t").where("cast(x as int) = -2 and (n = 0 or 1 / n > 1)").to_memory()
    flow.run()
    assert rows.table().num_rows == 1


def test_many_conditions_are_one_condition():
    flow = pk.LocalFlow()
    rows = flow.source(ROWS, time="t").where(" and ".join(f"n <> {number}" for number in range(1, 200))).to_memory()
    flow.run()
    assert rows.table().num_rows == 1


def test_what_is_nested_so_deeply_that_its_guards_grow_out_of_bounds_is_refused():
    deep = "i"
    for _ in range(30):
        deep = f"({deep} / k)"
    with pytest.raises(ConfigError, match=r"… is nested too deeply\. Compute parts of it in an earlier \.select\("):
        source().select(f"{deep} AS r")


def test_a_condition_that_has_no_value_for_a_row_is_an_error():
    flow = pk.LocalFlow()
    flow.source(ROWS, time="t").where("1 / n > 1").to_memory()
    with pytest.raises(pk.FlowError, match=r"^'1 / n > 1' has no value for some row: 1 / `n` divides by zero"):
        flow.run()


def test_columns_of_types_that_spark_has_not_are_computed_in_those_that_it_would_hold_them_in():
    rows = pa.table(
        {
            "t": [1],
            "u": pa.array([2**64 - 1], pa.uint64()),
            "w": pa.array([7], pa.uint16()),
            "c": pa.array(["a"]).dictionary_encode(),
            "ns": pa.array([1_000], pa.timestamp("ns")),
        }
    )
    found = computed("u + 1", "w + w", "upper(c)", "ns = timestamp_ntz'1970-01-01 00:00:00.000001'", rows=rows)
    assert [column.to_pylist()[0] for column in found.columns] == [2**64, 14, "A", True]
    assert found.schema.types == [pa.decimal128(21, 0), pa.int32(), pa.string(), pa.bool_()]


def test_an_error_of_the_parser_has_no_colours():
    with pytest.raises(ConfigError) as refused:
        source().where("n = 1 and")
    assert "\x1b" not in str(refused.value)
