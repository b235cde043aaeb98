"""Aggregate functions by themselves: types and nulls as Spark's, and partials that may be divided in any way."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import inf, nan

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import LocalFlow, ordered
from penstock.core.errors import ConfigError, FlowError
from penstock.operators.aggregate import spellings as pk
from penstock.operators.aggregate.functions import Count, Edge, Function, UserDefined
from tests.aggregates import DOUBLED
from tests.oracle.aggregate import plain
from tests.streams import examples

FUNCTIONS: list[Function] = [
    pk.count(),
    pk.count("x"),
    pk.count("x", where="b"),
    pk.sum("x"),
    pk.min("x"),
    pk.max("x"),
    pk.mean("x"),
    pk.variance("x"),
    pk.stddev("x", of="population"),
    pk.first("x"),
    pk.last("x"),
    DOUBLED,
]


def of(function: Function, values: pa.Array, starts: list[int] | None = None) -> list:
    """Each segment's aggregate; without segments, that of all values."""
    times, cuts = np.arange(len(values)), np.array(starts or [0])
    return function.lower(function.lift(values, times, cuts), values.type).to_pylist()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)
@given(data=st.data())
@examples(0.02)
def test_partials_give_the_same_however_rows_are_divided(function, data):
    numbers = st.sampled_from([None, 0.0, 1.0, 2.5, -3.25, float("nan")])
    values = pa.array(data.draw(st.lists(numbers, min_size=1, max_size=12)), pa.float64())
    cuts = np.array(sorted({0, *data.draw(st.lists(st.integers(0, len(values) - 1), max_size=4))}))
    parts = function.lift(values, np.arange(len(values)), cuts)
    kinds = [kind for _, kind in function.fields(values.type)]
    assert [part.type for part in parts] == kinds
    whole = function.combine(parts, np.array([0]))
    assert [part.type for part in whole] == kinds
    assert [plain(v) for v in function.lower(whole, values.type).to_pylist()] == [
        plain(v) for v in of(function, values)
    ]


@pytest.mark.parametrize(
    ("function", "values", "expected", "kind"),
    [
        (pk.sum("x"), pa.array([2, 3], pa.int8()), 5, pa.int64()),
        (pk.sum("x"), pa.array([0.5, 0.25], pa.float32()), 0.75, pa.float64()),
        (pk.sum("x"), pa.array([Decimal("1.20"), None, Decimal("0.05")]), Decimal("1.25"), pa.decimal128(13, 2)),
        (pk.min("x"), pa.array([Decimal("1.20"), None, Decimal("0.05")]), Decimal("0.05"), pa.decimal128(3, 2)),
        (pk.max("x"), pa.array([True, None, False]), True, pa.bool_()),
        (pk.max("x"), pa.array([date(2020, 1, 2), date(2019, 1, 1)]), date(2020, 1, 2), pa.date32()),
        (pk.min("x"), pa.array([datetime(2020, 1, 2), None], pa.timestamp("us")), datetime(2020, 1, 2), None),
        (pk.min("x"), pa.array([2**64 - 1, 3], pa.uint64()), 3, pa.uint64()),
        (pk.max("x"), pa.array([b"b", b"a"]), b"b", pa.binary()),
        (pk.mean("x"), pa.array([1, 2], pa.int64()), 1.5, pa.float64()),
        (pk.variance("x"), pa.array([5.0]), None, pa.float64()),
        (pk.stddev("x", of="population"), pa.array([5.0]), 0.0, pa.float64()),
        (pk.last("x"), pa.array(["a", "b", None]), "b", pa.string()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_types_and_nulls_are_those_of_spark(function, values, expected, kind):
    assert of(function, values) == [expected]
    assert function.result(values.type) == (kind or values.type)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)
def test_of_no_value_a_count_is_zero_and_everything_else_null(function):
    nothing = of(function, pa.array([None, None], pa.float64()))
    assert nothing == ([2] if function == pk.count() else [0] if isinstance(function, Count) else [None])


def test_nan_is_the_largest_number():
    values = pa.array([1.0, float("nan"), 2.0])
    assert plain(of(pk.max("x"), values)[0]) == "nan"
    assert of(pk.min("x"), values) == [1.0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        (pk.sum("x"), [1e308, 1e308], inf),
        (pk.sum("x"), [inf, -inf], nan),
        (pk.mean("x"), [-1e308, -1e308], -inf),
        (pk.variance("x"), [1e200, -1e200], inf),
        (pk.stddev("x"), [inf, 1.0], nan),
    ],
    ids=str,
)
def test_floats_are_infinite_where_they_are_too_large_and_nobody_is_warned(function, values, expected):
    column = pa.array(values)
    assert of(function, column) == pytest.approx([expected], nan_ok=True)
    parts = function.lift(column, np.arange(len(column)), np.arange(len(column)))
    whole = function.combine(parts, np.array([0]))
    assert function.lower(whole, column.type).to_pylist() == pytest.approx([expected], nan_ok=True)


def test_of_several_values_at_one_time_the_least_is_first_and_last():
    times, values = np.array([5, 5, 1, 1]), pa.array([4, 3, 2, 1])
    for function, expected in ((pk.first("x"), 1), (pk.last("x"), 3)):
        assert function.lower(function.lift(values, times, np.array([0])), values.type).to_pylist() == [expected]


def test_whole_numbers_can_be_subtracted_and_others_cannot():
    for function in (pk.count("x"), pk.sum("x"), pk.mean("x")):
        assert function.subtracts(pa.int32())
        whole, part = (
            function.lift(pa.array(v, pa.int32()), np.arange(len(v)), np.array([0])) for v in ([1, 2, 7], [2])
        )
        rest = of(function, pa.array([1, 7], pa.int32()))
        assert function.lower(function.subtract(whole, part), pa.int32()).to_pylist() == rest
    assert not pk.sum("x").subtracts(pa.float64())
    assert not pk.mean("x").subtracts(pa.float64())
    assert not pk.max("x").subtracts(pa.int32())


def test_a_user_defined_aggregate_may_say_how_to_subtract():
    xor = UserDefined(
        "x", (("bits", pa.int64()),), pa.int64(), lambda x: (x,), lambda a, b: (a[0] ^ b[0],), lambda p: p[0],
        lambda a, b: (a[0] ^ b[0],),
    )  # fmt: skip
    whole, part = (xor.lift(pa.array(v), np.arange(len(v)), np.array([0])) for v in ([1, 2, 7], [2]))
    assert xor.lower(xor.subtract(whole, part), pa.int64()).to_pylist() == [1 ^ 7]


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (pk.sum("x"), pa.string(), r"n: a sum takes numbers, but 'x' is of type string. Select cast\(x AS DOUBLE\)"),
        (pk.mean("x"), pa.decimal128(5, 2), "n: a mean takes numbers"),
        (pk.min("x"), pa.list_(pa.int64()), "min takes values with an order"),
        (pk.median("x"), pa.string(), "n: a quantile takes numbers"),
        (pk.count_distinct("x"), pa.struct([("a", pa.int64())]), "count_distinct compares values"),
        (DOUBLED, pa.string(), "a user-defined aggregate takes numbers, times and booleans"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(function, kind, message):
    with pytest.raises(ConfigError, match=message):
        function.check("n", kind)


@pytest.mark.parametrize(
    "build",
    [
        lambda: pk.quantile("x", 1.5),
        lambda: pk.quantile("x", "a"),
        lambda: pk.heavy_hitters("x", 0),
        lambda: pk.heavy_hitters("x", None),
        lambda: pk.approx_quantile("x", "a"),
    ],
)
def test_a_share_that_is_none_is_refused(build):
    with pytest.raises(ConfigError, match=r"must be (a number from 0 to 1|above 0 and at most 1), such as 0"):
        build()


PERCENT = [(count, 100, float(f"0.{count:02d}")) for count in range(1, 100)]
QUOTIENTS = [(count, total, count / total) for total in range(2, 50) for count in range(1, total)]


@pytest.mark.parametrize("shares", [PERCENT, QUOTIENTS], ids=["percent", "quotients"])
def test_a_value_that_makes_up_exactly_the_share_is_a_heavy_hitter(shares):
    values, whole = pa.array(["a", "b", None]), np.array([0])
    for count, total, share in shares:
        function, mine = pk.heavy_hitters("x", share), {"value": "a", "count": count}
        assert mine in function.finish(values, np.array([count, total - count, 5]), whole)[0].as_py()
        assert mine not in function.finish(values, np.array([count, total - count + 1, 5]), whole)[0].as_py()


@pytest.mark.parametrize("size", [7, 65_536])
def test_a_sketch_of_a_size_that_spark_has_not_is_refused(size):
    pytest.importorskip("datasketches")
    with pytest.raises(ConfigError, match=f"size={size} must be from"):
        pk.approx_quantile("x", 0.5, size)


def own(**steps: object) -> UserDefined:
    """The sum of doubles, written by a user, with some steps written wrong."""
    right = {
        "lift_values": lambda x: (x.astype(np.float64),),
        "combine_pairs": lambda a, b: (a[0] + b[0],),
        "lower_partials": lambda p: p[0],
        "subtract_pairs": lambda a, b: (a[0] - b[0],),
    }
    return UserDefined(column="x", partials=(("s", pa.float64()),), type=pa.float64(), **{**right, **steps})


def fails(*_: object) -> None:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("steps", "cause", "message"),
    [
        (
            {"lift_values": fails},
            ZeroDivisionError,
            "n: lift_values of the user-defined aggregate of 'x' failed: ZeroDi",
        ),
        (
            {"combine_pairs": fails},
            ZeroDivisionError,
            "n: combine_pairs of .* failed: ZeroDivisionError: division by ze",
        ),
        (
            {"lower_partials": fails},
            ZeroDivisionError,
            "n: lower_partials of .* failed: ZeroDivisionError: division by ",
        ),
        (
            {"subtract_pairs": fails},
            ZeroDivisionError,
            "n: subtract_pairs of .* failed: ZeroDivisionError: division by ",
        ),
        (
            {"lift_values": lambda x: (x, x)},
            type(None),
            "must return a tuple of 1, an array of 4 values for each of part",
        ),
        (
            {"lift_values": lambda x: x.astype(float)},
            type(None),
            r"an array of 4 values .*, not one value, one value, one",
        ),
        (
            {"combine_pairs": lambda a, b: (a[0][:0],)},
            type(None),
            "combine_pairs .* must return a tuple .* not an array",
        ),
        ({"lower_partials": lambda p: 5}, type(None), "lower_partials .* an array of .* results.* not one value"),
        ({"lower_partials": lambda p: p[0].astype(str)}, (pa.ArrowException, ValueError), "lower_partials .* failed: "),
    ],
)
def test_an_error_in_a_user_defined_aggregate_names_it_and_the_step(steps, cause, message):
    flow = LocalFlow()
    rows = [pa.table({"t": [1, 1, 2, 3], "x": [1, 2, 3, 4]}), pa.table({"t": [9, 15], "x": [5, 6]})]
    method = "differential" if "subtract_pairs" in steps else "wid"
    windows = flow.source(rows, time="t", progress=ordered()).window(range=8, slide=2)
    windows.agg(m=pk.count(), n=own(**steps), method=method).to_memory()
    with pytest.raises(FlowError, match=message) as failed:
        flow.run()
    assert isinstance(failed.value.__cause__, cause)


@pytest.mark.parametrize("which", ["first", "last"])
def test_the_edge_of_each_segment_is_that_of_its_definition(which):
    """The earliest or latest that has a value; of several at the same time the least; null if none has one."""
    rng = np.random.default_rng(5)
    values = rng.choice([None, "a", "b", "c"], 600, p=[0.5, 0.2, 0.2, 0.1]).tolist()
    times = rng.choice([-(2**63), -1, 0, 7, 2**63 - 1], 600)
    starts = np.unique(np.concatenate([[0], rng.integers(1, 600, 250)]))
    found = Edge("x", which).lift(pa.array(values), times, starts)[1].to_pylist()
    ends = [*starts[1:], 600]
    for value, begin, end in zip(found, starts, ends, strict=True):
        there = [(int(times[row]), values[row]) for row in range(begin, end) if values[row] is not None]
        edge = (min if which == "first" else max)([time for time, _ in there], default=None)
        assert value == min((v for time, v in there if time == edge), default=None)


def test_a_count_may_be_of_the_rows_that_a_column_marks():
    flow = LocalFlow()
    rows = pa.table(
        {
            "t": [1, 2, 3, 4, 5],
            "user": ["a", "b", "a", None, "c"],
            "large": pa.array([True, True, True, True, None]),
            "none": [False] * 5,
        }
    )
    results = (
        flow.source(rows, time="t")
        .window(range=10)
        .agg(
            rows=pk.count(where="large"),
            users=pk.count("user", where="large"),
            different=pk.count_distinct("user", where="large"),
            all=pk.count_distinct("user"),
            no_rows=pk.count(where="none"),
            nobody=pk.count_distinct("user", where="none"),
        )
        .to_memory()
    )
    flow.run()
    (found,) = results.table().drop_columns(["window_start", "window_end"]).to_pylist()
    assert found == {"rows": 4, "users": 3, "different": 2, "all": 3, "no_rows": 0, "nobody": 0}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("size", r"n: where='size' must be a column of booleans, but it is of type int64\. Select the condition as a"),
        ("big", r"where='big'.*Its columns are: t, size"),
    ],
)
def test_what_marks_rows_must_be_a_boolean_column(where, said):
    stream = LocalFlow().source(pa.table({"t": [1], "size": [2]}), time="t")
    for asked in (pk.count(where=where), pk.count_distinct("size", where=where)):
        with pytest.raises(ConfigError, match=said):
            stream.window(range=10).agg(n=asked)
