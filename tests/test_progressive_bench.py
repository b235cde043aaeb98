"""The benchmark of joins without a window without Spark: its rows, its policies, its table and its ratios."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock as pk

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return importlib.import_module("progressive")


def test_a_row_has_two_partners_and_memory_is_a_tenth_of_the_state(bench: ModuleType, tmp_path: Path):
    job = bench.generate(tmp_path / "job", bench.Size(rows=600_000, batches=4, tuples=0))
    assert job.matches == pytest.approx(2 * 600_000, rel=0.02)
    paths = sorted(job.folder("left").iterdir())
    assert len(paths) == 4
    rows = ds.dataset(paths).to_table()
    assert set(map(len, rows.column("left_text").slice(0, 100).to_pylist())) == {bench.TEXT}
    assert job.memory == pytest.approx(0.2 * (rows.nbytes + 8 * rows.num_rows), rel=0.01)


def test_duckdb_gives_all_results(bench: ModuleType, tmp_path: Path):
    job = bench.generate(tmp_path / "job", bench.FEW)
    run = bench.checked("duckdb", bench.one_shot(job, 10))
    assert run.finished
    assert run.until(1) <= run.until(100) == run.total


def test_half_of_the_partitions_have_no_key_in_common(bench: ModuleType):
    left, right = ({key for table in side for key in table["k"].to_pylist()} for side in bench.non_uniform(20_000, 1))
    assert len(left & right) == pytest.approx(len(left | right) / 2, rel=0.5)


def test_rrpj_gives_more_at_half_of_the_input_than_what_it_is_compared_with(bench: ModuleType):
    """P: RRPJ ≥ 1.2 × XJoin and RPJ on non-uniform data."""
    counts = bench.halves(20_000)
    assert counts["rrpj"] >= 1.2 * max(counts["xjoin"], counts["rpj"]) > 0


def runs(bench: ModuleType) -> dict[str, object]:
    return {
        "penstock": bench.Delivered((0.5, 1.0, 2.0), (20, 60, 100), 100, 50),
        "spark-rocksdb": bench.Delivered((3.0, 6.0), (5, 40), 100, 50, finished=False),
        "duckdb": bench.Delivered((0.5, 1.0), (50, 100), 100, 50),
    }


def test_ratios_are_of_whole_jobs_of_the_first_tenth_and_of_results_at_half(bench: ModuleType):
    summary = bench.summarise(runs(bench), {"rrpj": 30, "xjoin": 10, "rpj": 20})
    assert summary["bench"] == "progressive"
    assert summary["ratio"] == {
        "xjoin@half": 3.0,
        "rpj@half": 1.5,
        "spark-rocksdb": 3.0,
        "duckdb": 0.5,
        "spark-rocksdb@first10": 12.0,
    }
    assert summary["bounds"] == ["spark-rocksdb"]
    assert summary["seconds_until"]["spark-rocksdb"] == {"1": 3.0, "10": 6.0}


def test_the_table_marks_the_bound_of_an_engine_that_was_stopped(bench: ModuleType):
    assert bench.table(runs(bench))[1:] == [
        ("penstock", "0.50", "0.50", "1.00", "2.00", "25", "1.00"),
        ("spark-rocksdb", "3.00", "6.00", "–", "–", "<8", ">3.00"),
        ("duckdb", "0.50", "0.50", "0.50", "1.00", "50", "0.50"),
    ]


def test_another_number_of_rows_fails_the_benchmark(bench: ModuleType):
    with pytest.raises(RuntimeError, match="rrpj put out 99 rows, not 98: its time means nothing"):
        bench.checked("rrpj", bench.Delivered((1.0,), (99,), 98, 50))


def boxes(bench: ModuleType) -> dict[str, object]:
    return {
        "penstock@spatial": bench.Delivered((0.5, 2.0), (50, 100), 100, 50),
        "spark-cells@spatial": bench.Delivered((5.0,), (100,), 100, 50),
        "spark-partitions@spatial": bench.Delivered((3.0, 7.0), (50, 100), 100, 50),
    }


def test_the_spatial_ratios_are_of_whole_jobs(bench: ModuleType):
    ratios = {"spark-cells@spatial": 2.5, "spark-partitions@spatial": 3.5}
    assert bench.summarise(boxes(bench), {})["ratio"] == ratios
    assert [line[-1] for line in bench.table(boxes(bench))[1:]] == ["1.00", "2.50", "3.50"]


def test_the_summary_of_all_cases_has_every_ratio(bench: ModuleType, near: ModuleType):
    told = {"penstock": near.Told(2.0, frozenset(), 9), "numpy": near.Told(9.0, frozenset(), 9)}
    told["duckdb"] = near.Told(30.0, frozenset(), 9)
    cases = near.QUICK
    alike = near.summarise(cases, {case.name: told for case in cases})["ratio"]
    summary = bench.summarise(runs(bench) | boxes(bench), {"rrpj": 30, "xjoin": 10, "rpj": 20}, alike)
    assert summary["ratio"] == {
        "xjoin@half": 3.0,
        "rpj@half": 1.5,
        "numpy@9d": 4.5,
        "duckdb@9d": 15.0,
        "numpy@128d": 4.5,
        "duckdb@128d": 15.0,
        "spark-rocksdb": 3.0,
        "duckdb": 0.5,
        "spark-rocksdb@first10": 12.0,
        "spark-cells@spatial": 2.5,
        "spark-partitions@spatial": 3.5,
    }


def test_main_tells_of_every_case_it_was_not_asked_to_leave_out(
    bench: ModuleType, near: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """With engines that answer at once, so that nothing but the way to the JSON is run."""
    told = runs(bench) | boxes(bench)
    monkeypatch.setattr(bench, "ENGINES", {name: lambda job, _, run=run: run for name, run in runs(bench).items()})
    monkeypatch.setattr(bench, "boxes", lambda *_: boxes(bench))
    monkeypatch.setattr(bench, "halves", lambda tuples: {"rrpj": 30, "xjoin": 10, "rpj": 20})
    answers = {"penstock": near.Told(2.0, frozenset(), 9), "numpy": near.Told(9.0, frozenset(), 9)}
    monkeypatch.setattr(
        bench.vectors, "main", lambda quick: near.summarise(near.QUICK, {"9d": answers, "128d": answers})
    )
    summary = bench.main(True, (), bench.FEW)
    names = {"spark-rocksdb", "spark-rocksdb@first10", "spark-cells@spatial", "spark-partitions@spatial"}
    assert names | {"numpy@128d", "xjoin@half", "rpj@half"} <= summary["ratio"].keys()
    assert summary["seconds_until"].keys() == told.keys()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == summary


def test_a_box_meets_two_others_as_duckdb_counts_them(bench: ModuleType, tmp_path: Path):
    job = bench.spatial.generate(tmp_path / "job", rows=3000, batches=3, memory=0.1)
    assert job.matches == pytest.approx(2 * 3000, rel=0.1)
    flow = pk.LocalFlow(memory="64 MB")
    left, right = (
        flow.source([ds.dataset(path).to_table() for path in sorted(job.folder(name).iterdir())], time="t", name=name)
        for name in ("left", "right")
    )
    rows = left.join(right, on=pk.intersects(bench.spatial.CORNERS)).to_memory()
    flow.run()
    assert rows.table().num_rows == job.matches


def test_partitions_cut_at_the_quantiles_of_a_sample_have_about_as_many_boxes_each(bench: ModuleType, tmp_path: Path):
    spatial = bench.spatial
    x, y = np.random.default_rng(1).beta(2, 5, (2, 20_000))
    spatial._write_partitioning(pa.table({"x1": x[::4], "y1": y[::4]}), x.size, tmp_path)
    strips, leaves = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("strips", "leaves"))
    strip = strips["strip"].to_numpy()[(x * spatial.STEPS).astype(int)]
    leaf = leaves["leaf"].to_numpy().reshape(-1, spatial.STEPS)[strip, (y * spatial.STEPS).astype(int)]
    _, counts = np.unique([strip, leaf], axis=1, return_counts=True)
    assert counts.size == round((x.size / spatial.LEAF) ** 0.5) ** 2 > 100
    assert np.quantile(counts, [0.05, 0.95]) == pytest.approx([spatial.LEAF, spatial.LEAF], rel=0.5)


@pytest.fixture(scope="module")
def near() -> ModuleType:
    return importlib.import_module("progressive_near")


def test_brute_force_in_numpy_and_in_duckdb_finds_the_same_pairs(near: ModuleType):
    for case in (near.Case(9, 800, 0.1), near.Case(128, 400, 0.4)):
        sides = near.vectors(case)
        ours, theirs = near.brute_force(case, sides, 60.0), near.in_duckdb(case, sides, 60.0)
        assert ours.rows == theirs.rows == case.rows
        assert len(ours.pairs) > 100
        assert ours.pairs == theirs.pairs
        near.check(case, "numpy", theirs, ours)
        with pytest.raises(RuntimeError, match="differ in 1 pairs of"):
            near.check(case, "numpy", theirs, near.Told(1.0, frozenset(list(ours.pairs)[1:]), case.rows))


def test_what_brute_force_would_take_is_told_of_some_of_the_rows(near: ModuleType):
    case = near.Case(9, 100, 0.1)
    told = {"penstock": near.Told(2.0, frozenset(), 100), "numpy": near.Told(9.0, frozenset(), 50)}
    assert near.table((case,), {"9d": told})[2] == ("9d", "numpy (of 50 left rows)", "9.0", "22", "4.5")
    assert near.summarise((case,), {"9d": told})["ratio"] == {"numpy@9d": 4.5}
