"""The README's first example and the recipes run as they stand, but for their paths."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def blocks(page: str, heading: str) -> list[str]:
    """The Python blocks below a heading of a page."""
    section = (ROOT / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


def run(code: str, folder: Path, names: dict | None = None) -> dict:
    """Run code with its folders below another: Spark's JVM has a working directory of its own."""
    names = {} if names is None else names
    exec(re.sub(r'(f?")(in|out|state)/', rf"\1{folder}/\2/", code), names)
    return names


def test_the_first_example_of_the_readme_runs(spark, tmp_path, capsys):
    (code, *_) = blocks("README.md", "Use it")
    assert len([line for line in code.splitlines() if line]) <= 10
    names = run(code, tmp_path)
    assert names["rows"].table().to_pylist() == [{"id": 1, "t": 0, "t_right": 3}, {"id": 2, "t": 5, "t_right": None}]
    assert "3 rows in (0 late), 2 out" in capsys.readouterr().out


def test_the_tutorial_runs_on_spark(spark, tmp_path):
    page = (ROOT / "docs/tutorial.md").read_text()
    tables = re.findall(r"```python\n(>>> .*?)```", page, flags=re.DOTALL)[0]
    lines = [line[4:] for line in tables.splitlines() if line.startswith((">>> ", "... "))]
    names = run("\n".join(lines[: lines.index("flow = pk.LocalFlow()")]), tmp_path)
    for code in blocks("docs/tutorial.md", "5. Run it on Spark"):
        run(code, tmp_path, names)
    paid = {row.order: row.ts_right for row in spark.read.parquet(str(tmp_path / "out" / "paid")).collect()}
    assert paid == {1: None, 2: datetime(2026, 1, 1, 9, 4)}


def test_json_files_become_parquet(spark, tmp_path):
    (code,) = blocks("docs/recipes.md", "From a folder of JSON files to Parquet")
    (tmp_path / "in" / "clicks").mkdir(parents=True)
    times = [f"2026-01-01T00:{minute:02d}:00Z" for minute in range(30)]
    lines = [f'{{"user": "a", "url": "/", "ts": "{time}"}}' for time in times]
    (tmp_path / "in" / "clicks" / "0.json").write_text("\n".join([*lines, '{"user": "b"']))
    run(code, tmp_path)
    counts = spark.read.parquet(str(tmp_path / "out" / "counts")).orderBy("window_end").collect()
    assert [row.n for row in counts[:12]] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]
    late = spark.read.parquet(str(tmp_path / "out" / "late")).collect()
    assert [row.late_reason for row in late] == ["no-time"]


def test_the_cells_of_the_notebook_run(spark, tmp_path):
    start, looks, stop = blocks("docs/recipes.md", "In a notebook")
    names = run(start, tmp_path)
    try:
        names["query"].await_end(2)
        for line in looks.splitlines():
            assert eval(line.partition("#")[0].strip() or "None", names) is not None or "exception" in line
        assert names["query"].status.state == "running"
    finally:
        exec(stop, names)
    assert names["query"].status.state == "stopped"
    assert names["query"].exception is None


def test_the_job_for_spark_submit_runs_until_it_is_stopped(spark, tmp_path):
    (code,) = blocks("docs/recipes.md", "With spark-submit")
    begin = datetime(2026, 1, 1)
    for name, shift in (("orders", 0), ("payments", 5)):
        (tmp_path / "in" / name).mkdir(parents=True)
        times = pa.array([begin + timedelta(minutes=minute + shift) for minute in range(30)], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"order_id": range(30), "ts": times}), tmp_path / "in" / name / "0.parquet")
    assert "query.await_end()" in code
    query = run(code.replace("query.await_end()", ""), tmp_path)["query"]
    while not query.progress().epochs:
        assert not query.await_end(0.2)
    assert query.stop() is True
    assert spark.read.parquet(str(tmp_path / "out" / "paid")).where("ts_right IS NOT NULL").count() == 30
