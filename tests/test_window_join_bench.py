"""The benchmark of window joins without Spark: its micro-batches, its queries against DuckDB, its ratios."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.dataset as ds
import pytest

import penstock as pk

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

SCALE = 1000
"""How many times smaller micro-batches are than in the benchmark."""

CASES = {"": (200_000, 0), "1m": (1_000_000, 0), "4m": (4_000_000, 0), "wide": (200_000, 10)}
"""The rows of a micro-batch, and how many columns of text they have."""


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return importlib.import_module("window_join")


@pytest.fixture(scope="module", params=CASES)
def workload(request: pytest.FixtureRequest, bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows, texts = ({"": (bench.ROWS_PER_BATCH, 0)} | bench.FURTHER)[request.param]
    assert (rows, texts) == CASES[request.param]
    return bench.generate(tmp_path_factory.mktemp("window-join"), rows // SCALE, 3, texts), texts


class Arguments:
    """A flow over Spark's sources as far as their arguments go: in process, and DataFrames are tables."""

    spark = None

    def __init__(self) -> None:
        self.flow = pk.LocalFlow()

    def parquet(self, *args: Any, **kwargs: Any) -> pk.Stream:
        inspect.signature(pk.Flow.parquet).bind(None, *args, **kwargs)
        return self.flow.parquet(*args, **kwargs)

    def source(self, *args: Any, scan: str, **kwargs: Any) -> pk.Stream:
        inspect.signature(pk.Flow.source).bind(None, *args, scan=scan, **kwargs)
        assert scan == "spark"
        return self.flow.source(*args, **kwargs)


@pytest.mark.parametrize("source", ["files", "frames"])
def test_every_case_can_be_built_and_gives_as_many_rows_as_duckdb(
    bench: ModuleType, workload: Any, source: str, monkeypatch: pytest.MonkeyPatch
):
    job, _ = workload

    def stream(spark: None, workload: Any, name: str) -> Any:
        return [ds.dataset(path).to_table() for path in sorted((workload.directory / "parquet" / name).iterdir())]

    monkeypatch.setattr(bench, "stream", stream)
    flow = Arguments()
    rows = bench.joined_by_penstock(flow, job, getattr(bench, source)).to_memory()
    flow.flow.run()
    assert rows.table().num_rows == job.matches > job.rows


def test_wide_rows_have_ten_texts_of_a_hundred_bytes_which_flink_does_without(bench: ModuleType, workload: Any):
    job, count = workload
    for side, value in bench.VALUES.items():
        tables = [ds.dataset(path).to_table() for path in sorted((job.directory / "parquet" / side).iterdir())]
        assert [table.num_rows for table in tables] == [job.rows_per_batch // 2] * 3
        first, *texts = tables[0].column_names[2:]
        assert first == value
        assert len(texts) == count
        assert {len(text) for name in texts for text in tables[0].column(name).to_pylist()} <= {100}
        lines = [line for core in (job.directory / "csv" / side).iterdir() for line in core.read_text().split()]
        assert len(lines) == job.rows // 2
        assert {line.count(",") for line in lines} == {2}


def test_further_micro_batches_are_compared_with_penstock_over_the_same_rows(bench: ModuleType):
    assert set(bench.FURTHER_ENGINES) <= bench.ENGINES.keys()
    assert [name for name in bench.TOO_LARGE if name.partition("@")[2] not in bench.FURTHER] == []
    runs = {"penstock": 8, "floor": 4, "penstock@4m": 9, "floor@4m": 3, "dataframe@wide": 1}
    results = {name: bench.Result(rate, 0, 0, 1.0, rate) for name, rate in runs.items()}
    summary = bench.summarise(results)
    assert summary["ratio"] == {"floor": 2.0, "floor@4m": 3.0}
