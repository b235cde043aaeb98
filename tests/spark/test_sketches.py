"""Sketches on Spark: made by Spark itself, read and united in Python, with the results of a flow in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.flow.graph import OperatorNode
from penstock.spark import experience
from penstock.spark.native_aggregate import in_sql
from tests.spark.conftest import Feed, multiset

pytest.importorskip("datasketches")
pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "t": pa.int64(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "int": pa.int32(),
        "long": pa.int64(),
        "text": pa.string(),
        "float": pa.float32(),
        "double": pa.float64(),
    }
)
INTEGERS = ("byte", "short", "int", "long")
DISTINCT = {name: pk.approx_count_distinct(name) for name in (*INTEGERS, "text")}
DISTINCT |= {"coarse": pk.approx_count_distinct("long", 4), "fine": pk.approx_count_distinct("text", 14)}


def epoch(number: int, rows: int) -> pa.Table:
    """Values of all sizes and signs, texts of all alphabets, null, NaN, the empty text; group 3 has nulls only."""
    rng = np.random.default_rng(number)
    k = rng.integers(0, 4, rows)
    null = (k == 3) | (rng.random(rows) < 0.1)
    texts = np.array(["", "a", "ä", "日本", "\U0001f600"] + [f"wörter {n}" for n in range(3 * rows)])
    doubles = np.where(rng.random(rows) < 0.05, np.nan, rng.normal(size=rows))
    values: dict[str, Any] = {
        "byte": rng.integers(-128, 127, rows),
        "short": rng.integers(-(2**15), 2**15 - 1, rows),
        "int": rng.integers(-(2**31), 2**31 - 1, rows),
        "long": rng.integers(-(2**63), 2**63 - 1, rows),
        "text": rng.choice(texts, rows),
        "float": doubles.astype(np.float32),
        "double": doubles,
    }
    columns = [pa.array(v, SCHEMA.field(name).type, mask=null) for name, v in values.items()]
    return pa.Table.from_arrays([pa.array(k), pa.array(number * 5 + rng.integers(0, 5, rows)), *columns], schema=SCHEMA)


def asked(flow: Any, source: Any, **aggregates: Any) -> Any:
    stream = flow.source(source, time="t", progress=pk.bounded_delay(5))
    return stream.window(range=9, slide=3).by("k").agg(**aggregates)


def both(spark, folder: Path, epochs: list[pa.Table], **aggregates: Any) -> tuple[pa.Table, pa.Table]:
    """The results on Spark and in process."""
    feed = Feed(folder / "rows", SCHEMA)
    for rows in epochs:
        feed.add(rows)
    flow, local = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB"), pk.LocalFlow()
    results = asked(flow, feed.stream(spark), **aggregates)
    assert isinstance(results._node, OperatorNode)
    prelude = results._node.config.prelude(results._node.types)
    assert prelude is not None
    assert in_sql(prelude)
    out, expected = results.to_memory(), asked(local, epochs, **aggregates).to_memory()
    flow.run()
    local.run()
    return out.table(), expected.table()


@pytest.mark.parametrize("few", [0, 10**9], ids=["in tasks", "on the driver"])
@pytest.mark.parametrize("rows", [40, 20_000])
def test_distinct_counts_of_every_type_are_those_in_process_to_the_last_digit(spark, tmp_path, monkeypatch, few, rows):
    monkeypatch.setattr(experience, "_FEW", few)
    out, expected = both(spark, tmp_path, [epoch(number, rows) for number in range(3)], **DISTINCT)
    assert multiset(out) == multiset(expected)
    assert any(row["long"] == 0 for row in out.to_pylist()), "nothing but nulls counts as none"


def test_quantiles_of_few_values_are_exact(spark, tmp_path):
    quantiles = {
        f"{name}_{share}": pk.approx_quantile(name, share)
        for name in (*INTEGERS, "float", "double")
        for share in (0, 0.1, 0.5, 0.99, 1)
    }
    out, expected = both(spark, tmp_path, [epoch(number, 60) for number in range(3)], **quantiles)
    assert multiset(out) == multiset(expected)
    assert any(row["double_0.5"] is None for row in out.to_pylist()), "of nothing but nulls there is none"


def test_quantiles_of_many_values_are_off_by_no_more_than_they_say(spark, tmp_path):
    epochs = [epoch(number, 20_000) for number in range(3)]
    shares = (0.01, 0.5, 0.9)
    out, _ = both(spark, tmp_path, epochs, **{f"q{share}": pk.approx_quantile("double", share) for share in shares})
    k, t, doubles = (pa.concat_tables(epochs).column(name).to_numpy() for name in ("k", "t", "double"))
    for row in out.to_pylist():
        inside = (k == row["k"]) & (t >= row["window_start"]) & (t < row["window_end"]) & ~np.isnan(doubles)
        ranked = np.sort(doubles[inside])
        for share in shares if ranked.size else ():
            assert np.searchsorted(ranked, row[f"q{share}"]) / ranked.size == pytest.approx(share, abs=0.02)
