"""Columns of every Arrow type in process: they pass through and aggregate, or are refused while the flow is built."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pk
from penstock.core.errors import ConfigError

WORDS = ["b", "a", None, "b", "a", "b"]
VALUES = {
    "bool": pa.array([True, False, None, True, False, True]),
    "int8": pa.array([2, 1, None, 2, 1, 2], pa.int8()),
    "uint64": pa.array([2**63, 1, None, 2**62, 1, 2**62], pa.uint64()),
    "float32": pa.array([2, 1, None, 2, 1, 2], pa.float32()),
    "decimal32": pa.array([Decimal(2), Decimal(1), None, Decimal(2), Decimal(1), Decimal(2)], pa.decimal32(3, 0)),
    "decimal64": pa.array([Decimal(2), Decimal(1), None, Decimal(2), Decimal(1), Decimal(2)], pa.decimal64(12, 1)),
    "decimal256": pa.array([Decimal(2), Decimal(1), None, Decimal(2), Decimal(1), Decimal(2)], pa.decimal256(40, 1)),
    "date32": pa.array([2, 1, None, 2, 1, 2], pa.int32()).cast(pa.date32()),
    "time64": pa.array([2, 1, None, 2, 1, 2], pa.int64()).cast(pa.time64("us")),
    "duration": pa.array([2, 1, None, 2, 1, 2], pa.int64()).cast(pa.duration("s")),
    "timestamp": pa.array([2, 1, None, 2, 1, 2], pa.int64()).cast(pa.timestamp("s", "UTC")),
    "string": pa.array(WORDS),
    "large_string": pa.array(WORDS, pa.large_string()),
    "fixed": pa.array([b"bb", b"aa", None, b"bb", b"aa", b"bb"], pa.binary(2)),
    "null": pa.nulls(6),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "dictionary of decimals": pa.DictionaryArray.from_arrays(
        [1, 0, None, 1, 0, 1], pa.array([1, 2], pa.decimal32(3, 0))
    ),
    "string_view": pa.array(WORDS, pa.string_view()),
    "binary_view": pa.array([w and w.encode() for w in WORDS], pa.binary_view()),
    "runs": pc.run_end_encode(pa.array(WORDS)),
    "uuid": pa.array([bytes([n]) * 16 for n in (2, 1, 3, 2, 1, 2)], pa.uuid()),
    "interval": pa.array([pa.MonthDayNano([n, 0, 0]) for n in (2, 1, 3, 2, 1, 2)]),
    "list of views": pa.array([["a"], ["b"], None, ["a"], ["b"], []], pa.list_(pa.string_view())),
    "struct of views": pa.array([{"a": w} for w in WORDS], pa.struct({"a": pa.string_view()})),
    "map": pa.array([[("a", w)] for w in WORDS], pa.map_(pa.string(), pa.string_view())),
}
FUNCTIONS = {
    "first": pk.first("c"),
    "last": pk.last("c"),
    "min": pk.min("c"),
    "max": pk.max("c"),
    "sum": pk.sum("c"),
    "mean": pk.mean("c"),
    "variance": pk.variance("c"),
    "mode": pk.mode("c"),
    "collect_list": pk.collect_list("c"),
    "collect_set": pk.collect_set("c"),
    "count_distinct": pk.count_distinct("c"),
    "median": pk.quantile("c", 0.5),
    "heavy_hitters": pk.heavy_hitters("c", 0.1),
    "approx_count_distinct": pk.approx_count_distinct("c"),
    "count": pk.count("c"),
}
NO_ORDER = ["uuid", "interval", "list of views", "struct of views", "map"]


def epochs(values: pa.Array) -> list[pa.Table]:
    times = pa.array([1, 5, 3, 11, 14, 12])
    whole = pa.table({"c": values, "t": times})
    return [whole.slice(0, 2), whole.slice(2, 2), whole.slice(4)]


def plain(values: pa.Array) -> list:
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    return values.to_pylist()


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_of_any_type_passes_through_every_step(kind):
    flow = pk.LocalFlow(shards=2)
    source = flow.source(epochs(VALUES[kind]), time="t", progress=pk.bounded_delay(20))
    rows = source.where("t > 0").select("c", "t").sort().to_memory()
    flow.run()
    expected = dict(zip([1, 5, 3, 11, 14, 12], plain(VALUES[kind]), strict=True))
    assert rows.table().to_pylist() == [{"c": expected[t], "t": t} for t in sorted(expected)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", VALUES)
def test_an_aggregate_of_a_column_of_any_type_works_or_is_refused_while_the_flow_is_built(kind, name):
    flow = pk.LocalFlow(shards=2)
    windows = flow.source(epochs(VALUES[kind]), time="t", progress=pk.bounded_delay(20)).window(range=10)
    try:
        results = windows.agg(c=FUNCTIONS[name]).to_memory()
    except ConfigError:
        return
    flow.run()
    assert results.table().num_rows == 2
    if name == "min":
        low, high = (
            min((v for v in plain(VALUES[kind])[a:b] if v is not None), default=None) for a, b in ((0, 3), (3, 6))
        )
        assert results.table().sort_by("window_end")["c"].to_pylist() == [low, high]


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_different_texts_of_any_width_are_estimated(kind):
    flow = pk.LocalFlow()
    windows = flow.source(epochs(VALUES[kind]), time="t", progress=pk.bounded_delay(20)).window(range=20)
    results = windows.agg(n=pk.approx_count_distinct("c")).to_memory()
    flow.run()
    assert results.table()["n"].to_pylist() == [len({*WORDS} - {None})]


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in NO_ORDER])
def test_groups_of_any_type_that_has_an_order_are_counted(kind):
    flow = pk.LocalFlow(shards=2)
    windows = flow.source(epochs(VALUES[kind]), time="t", progress=pk.bounded_delay(20)).window(range=20)
    results = windows.by("c").agg(n=pk.count()).to_memory()
    flow.run()
    values = plain(VALUES[kind])
    expected = {value: values.count(value) for value in values}
    assert {row["c"]: row["n"] for row in results.table().to_pylist()} == expected


@pytest.mark.parametrize("kind", NO_ORDER)
def test_groups_of_a_type_without_order_are_refused_with_what_to_write(kind):
    windows = pk.LocalFlow().source(epochs(VALUES[kind]), time="t").window(range=20)
    with pytest.raises(ConfigError, match=r"^by='c' is of type .*, whose values cannot be compared\. (Cast|Select)"):
        windows.by("c").agg(n=pk.count())


RUNS = pc.run_end_encode(pa.array(["a"]))


@pytest.mark.parametrize(
    "column",
    [
        pa.StructArray.from_arrays([RUNS], ["a"]),
        pa.RunEndEncodedArray.from_arrays([1], pa.array(["a"], pa.string_view())),
        pa.array([[1]], pa.list_view(pa.int64())),
    ],
    ids=["inside", "of views", "list view"],
)
def test_a_column_that_arrow_cannot_decode_is_refused(column):
    with pytest.raises(
        ConfigError,
        match=r"^Column 'c' is of type .*, which Arrow cannot take rows of\. Make it a plain column first",
    ):
        pk.LocalFlow().source(pa.table([column, [0]], names=["c", "t"]), time="t")


def test_tables_that_differ_in_nullability_only_are_one_source():
    first = pa.table({"t": [1]}, metadata={"made": "here"})
    second = pa.table({"t": [2]}, schema=pa.schema([pa.field("t", pa.int64(), nullable=False)]))
    flow = pk.LocalFlow()
    rows = flow.source([first, second], time="t").to_memory()
    flow.run()
    assert rows.table()["t"].to_pylist() == [1, 2]


def test_what_is_no_table_is_said_to_be_none_with_its_source_and_epoch():
    flow = pk.LocalFlow()
    flow.source([pa.table({"t": [1]}), 5], time="t", name="clicks").to_memory()
    with pytest.raises(pk.SourceError, match=r"^Epoch 1 failed in source 'clicks': .*a int, not a pyarrow\.Table"):
        flow.run()


@pytest.mark.parametrize("function", [pk.variance, pk.stddev])
def test_a_spread_is_of_a_sample_or_of_the_population_and_of_nothing_else(function):
    with pytest.raises(ConfigError, match=r"^of='smaple' is not one of sample, population\.$"):
        function("x", "smaple")


DICTIONARIES = {
    "numbers": pa.array([1, 2, 1]),
    "decimals": pa.array([Decimal("1.5"), None, Decimal("1.5")]),
    "days": pa.array([3, 4, 3], pa.int32()).cast(pa.date32()),
    "flags": pa.array([True, False, True]),
    "moments": pa.array([3, 4, 3], pa.timestamp("us")),
    "words": pa.array(["a", "b", "a"]),
    "large words": pa.array(["a", "b", "a"], pa.large_string()),
}


@pytest.mark.parametrize("within", [None, 5])
@pytest.mark.parametrize("kind", DICTIONARIES)
def test_rows_are_distinct_by_a_dictionary_of_any_values(kind, within):
    values = DICTIONARIES[kind]
    encoded = values.dictionary_encode()
    flow = pk.LocalFlow(shards=2)
    source = flow.source(pa.table({"k": encoded, "t": [1, 2, 1]}), time="t")
    rows = source.distinct(on="k", within=within).to_memory()
    flow.run()
    assert sorted(rows.table()["k"].to_pylist(), key=str) == sorted(values.to_pylist()[:2], key=str)
