"""The multi-way benchmark without Spark: its files and what DuckDB makes of them, its table and its ratios."""

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


@pytest.fixture(scope="module")
def jobs() -> ModuleType:
    return importlib.import_module("multi_way_jobs")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return importlib.import_module("multi_way")


@pytest.fixture(scope="module")
def files(jobs: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return jobs.generate(tmp_path_factory.mktemp("multi-way"), scale=0.001, payload=3072, epochs=3)


def test_the_cases_are_two_plans_by_payload_by_how_many_results(jobs: ModuleType):
    assert list(jobs.CASES) == [
        *("3way-0", "3way-0-low", "4way-0", "4way-0-low"),
        *("3way-3k", "3way-3k-low", "4way-3k", "4way-3k-low"),
    ]


def test_a_quick_run_has_the_cases_that_ratios_are_named_after(bench: ModuleType):
    assert set(bench.QUICK_CASES) == {"3way-0", "3way-3k", "4way-0", "4way-3k", "wide"}
    assert bench.QUICK_FLINK in bench.FLINKS


def test_the_model_tells_what_joins_move_early_late_in_part_and_with_few_results(jobs: ModuleType, files: Any):
    case, low = (jobs.Joined(jobs.CASES[f"3way-3k{rate}"], files) for rate in ("", "-low"))
    rows = files.rows
    # To its partner and once more as a partial result: 3 KB and the other columns, or 40 B of keys, time and place.
    assert case.modelled([()]) > 2 * 3072 * rows["li"]
    late = [("li", "o", "s")]
    assert case.modelled(late) == 40 * rows["li"] + 40 * rows["o"] + 32 * rows["s"] + 80 * rows["li"]
    assert low.modelled(late) == 40 * rows["li"] + 40 * rows["o-low"] + 32 * rows["s"] + 80 * low.matches
    switched = case.modelled([(), ("li",), ("li", "o", "s"), ("li", "o", "s")])
    assert switched == pytest.approx((case.modelled([()]) + case.modelled([("li",)]) + 2 * case.modelled(late)) / 4)
    four = jobs.Joined(jobs.CASES["4way-3k-low"], files)
    assert four.modelled([("li", "s", "o", "c")]) == (
        40 * rows["li"] + 32 * rows["s"] + 40 * rows["o-low"] + 32 * rows["c"] + 72 * (rows["li"] + rows["o-low"])
    )


def test_the_json_has_bytes_by_case_as_far_as_they_were_measured(bench: ModuleType):
    own = bench.Timed(6, 1, 1, 2.0, 2, state=40.44, modelled=0.953, arrived=1.04)
    here = bench.Timed(6, 1, 1, 2.0, 2, state=53.0, arrived=0.9)
    assert bench.sizes(
        {"late@3way-3k": own, "late@3way-0": here, "flink-rocksdb@3way-0": bench.Timed(6, 1, 1, 2, 2)}
    ) == {
        "state": {"late@3way-3k": 40.44, "late@3way-0": 53.0},
        "shuffle": {"late@3way-3k": 0.95},
        "arrived": {"late@3way-3k": 1.04, "late@3way-0": 0.9},
    }
    assert bench.sizes({}) == {}


def test_a_stream_is_divided_over_its_micro_batches_in_order(jobs: ModuleType, files: Any):
    paths = sorted(files.parquet("li").iterdir(), key=lambda path: path.stat().st_mtime)
    rows = [ds.dataset(path).to_table() for path in paths]
    assert len(rows) == 3 * jobs.FILES
    assert max(table.num_rows for table in rows) - min(table.num_rows for table in rows) <= 1
    assert [t for table in rows for t in table.column("t").to_pylist()] == list(range(files.rows["li"]))
    assert {len(text) for text in rows[0].column("payload").to_pylist()} == {3072}


def test_every_line_becomes_a_result_or_one_in_twenty(jobs: ModuleType, files: Any):
    counts = {name: jobs.Joined(case, files).matches for name, case in jobs.CASES.items() if case.payload}
    assert counts["3way-3k"] == counts["4way-3k"] == files.rows["li"]
    assert counts["3way-3k-low"] == counts["4way-3k-low"] == pytest.approx(files.rows["li"] / 20, rel=0.3)


def test_ratios_are_penstock_divided_by_the_peer_in_the_same_case(bench: ModuleType):
    rates = {"penstock@3way-0": 8, "early@3way-0": 4, "penstock@wide": 9, "early@wide": 1}
    runs = {name: bench.Timed(rate, 0, 0, 1.0, rate) for name, rate in rates.items()}
    summary = bench.summarise(runs, "multi-way")
    assert summary["bench"] == "multi-way"
    assert summary["ratio"] == {"early@3way-0": 2.0, "early@wide": 9.0, "early": 4.24}


def test_the_table_marks_the_bound_of_an_engine_that_was_stopped(bench: ModuleType):
    own = bench.Timed(6, 1, 1, 2.0, 2, (0.5, 0.25, 0.5), state=40.4, shuffled=100.0)
    slow = bench.Timed(6, 1, 1, 6.0, 2, finished=False)
    _, *rows = bench.table({"penstock@3way-0": own, "spark-rocksdb@3way-0": slow}, ["3way-0"])
    assert rows == [
        ("3way-0", "penstock", "4", "0.50", "40", "100", "1.00"),
        ("3way-0", "spark-rocksdb", "<1", "–", "–", "–", "4.00"),
    ]


def test_another_number_of_rows_fails_the_benchmark(bench: ModuleType):
    wrong = bench.Timed(6, 1, 2, 2.0, 2)
    with pytest.raises(RuntimeError, match="early@3way-0 put out 1 rows, not 2: its time means nothing"):
        bench.run("early@3way-0", lambda: wrong, {}, {})


class Arguments:
    """A flow over Spark's sources as far as their arguments go: files are read in process, DataFrames by a stand-in."""

    def __init__(self) -> None:
        self.flow = pk.LocalFlow()

    def parquet(self, *args: Any, **kwargs: Any) -> pk.Stream:
        inspect.signature(pk.Flow.parquet).bind(None, *args, **kwargs)
        return self.flow.parquet(*args, **kwargs)

    def join(self, **kwargs: Any) -> pk.Stream:
        return self.flow.join(**kwargs)


@pytest.mark.parametrize("materialize", ["auto", "early", "late"])
def test_every_case_can_be_built_and_gives_as_many_rows_as_duckdb(
    bench: ModuleType, jobs: ModuleType, files: Any, tmp_path: Path, materialize: str
):
    wide = bench.Jobs(tmp_path, bench.FEW).job(bench.WIDE)
    for job in (*(jobs.Joined(case, files) for case in jobs.CASES.values() if case.payload), wide):
        flow = Arguments()
        rows = job.by_penstock(flow, None, "arrow", materialize).to_memory()
        if job is wide:
            flow.flow.run()
            assert rows.table().num_rows == job.matches
