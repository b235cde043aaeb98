"""What is computed without DuckDB has the value that it has with it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.errors import FlowError
from penstock.expressions import evaluate, native

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
