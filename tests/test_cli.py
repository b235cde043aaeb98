"""The command line without Spark: what the doctor finds, which benchmarks there are, the lab, what vacuum frees."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock import cli, demo
from penstock.core.operator import State
from penstock.core.pages import Page
from penstock.flow.report import EpochReport, OperatorReport, Report
from penstock.orders import OrdersAndPayments
from penstock.storage.files import FilePages
from penstock.storage.versioned import Checkpoint, Ledger


def program(folder: Path, name: str, says: str, code: int = 0) -> Path:
    """A program that says something on stderr, as java -version does."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A PATH with the shell's own commands, and no Java."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("cat", "sh"):
        (commands / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return commands


@pytest.mark.slow
class TestDoctor:
    def test_java_that_is_not_there(self, no_java):
        finding = cli.java()
        assert not finding.ok
        assert str(finding) == (
            "MISSING Java: there is none in the PATH, and JAVA_HOME is not set. Install one: "
            "apt-get install openjdk-17-jre-headless, brew install openjdk@17, or conda install openjdk=17; "
            "or set JAVA_HOME to one that is there."
        )

    def test_java_that_is_too_old(self, no_java):
        old = program(no_java, "java", 'java version "1.8.0_392"')
        finding = cli.java()
        assert not finding.ok
        assert str(finding).startswith(f"MISSING Java 8 ({old}). Spark needs 17 or newer. Install one: apt-get")

    @pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
    def test_java_that_will_do(self, no_java, version):
        new = program(no_java, "java", f'openjdk version "{version}" 2025-04-15')
        assert str(cli.java()) == f"ok      Java {version[:2]} ({new})"

    def test_java_home_comes_before_the_path(self, no_java, monkeypatch, tmp_path):
        program(no_java, "java", 'openjdk version "17.0.15"')
        program(tmp_path / "old", "bin/java", 'openjdk version "11.0.2"')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
        assert cli.java().what.startswith("Java 11")

    def test_java_home_without_java(self, no_java, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
        assert f"from JAVA_HOME={tmp_path / 'none'}, does not run" in cli.java().what

    def test_java_that_says_nothing_useful(self, no_java):
        program(no_java, "java", "Unable to locate a Java Runtime.", code=1)
        assert "does not tell its version" in cli.java().what

    @pytest.mark.parametrize(
        ("version", "limits", "ok"),
        [("2.3.3", "<3,>=2.2", True), ("3.0.0", "<3,>=2.2", False), ("2.1.9", ">=2.2", False), ("18.0", ">=18", True)],
    )
    def test_versions_have_limits(self, version, limits, ok):
        assert cli.within_limits(version, limits) is ok

    def test_every_package_that_penstock_needs_is_looked_at(self):
        found = {finding.what.split()[0]: finding for finding in cli.packages()}
        assert {"numpy", "pandas", "pyarrow", "pyspark"} <= found.keys()
        assert all(finding.ok for finding in found.values())

    def test_a_package_that_is_not_there(self):
        assert str(cli.package("nowhere>=2")) == "MISSING nowhere: not installed. pip install 'nowhere>=2'"

    def test_a_folder_that_cannot_be_written_to(self, tmp_path):
        finding = cli.writable(lambda: str(tmp_path / "none"), "temporary files", "Set TMPDIR")
        assert not finding.ok
        assert finding.what.startswith("write access for temporary files (")
        assert cli.writable(lambda: str(tmp_path), "temporary files", "Set TMPDIR").ok

    def test_too_little_memory_or_disk(self, monkeypatch):
        monkeypatch.setattr(cli, "_LEAST_MEMORY", 10**18)
        monkeypatch.setattr(cli, "_LEAST_DISK", 10**18)
        assert not cli.memory().ok
        assert not cli.disk().ok

    def test_a_worker_python_without_penstock(self, monkeypatch, tmp_path):
        bare = program(tmp_path, "python", "ModuleNotFoundError: No module named 'penstock'", code=1)
        monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
        assert str(cli.worker()) == (
            f"MISSING worker Python: {bare} cannot import penstock (ModuleNotFoundError: No module named 'penstock'). "
            f"Install penstock there, or set PYSPARK_PYTHON={sys.executable}."
        )

    def test_a_worker_python_that_is_not_there(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
        assert "does not run" in cli.worker().what

    def test_this_python_will_do(self, monkeypatch):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        assert cli.python().ok
        assert cli.worker().ok

    def test_quiet_prints_problems_only_and_the_exit_code_says_there_are_some(self, no_java, monkeypatch, capsys):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        assert cli.main(["doctor", "--quiet"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in lines] == ["MISSING Java"]

    def test_without_problems_quiet_prints_nothing(self, no_java, monkeypatch, capsys):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        program(no_java, "java", 'openjdk version "17.0.15"')
        assert cli.main(["doctor", "--quiet"]) == 0
        assert capsys.readouterr().out == ""
        assert cli.main(["doctor"]) == 0
        assert all(line.startswith("ok ") for line in capsys.readouterr().out.splitlines())


class TestBench:
    @pytest.fixture
    def checkout(self, monkeypatch, tmp_path):
        """A current folder with two benchmarks and something else; the package is elsewhere."""
        folder = tmp_path / "benchmarks"
        folder.mkdir()
        (folder / "lookup_join.py").write_text(
            '"""A stream against a table.\n\nMore."""\ndef main(quick): print(quick)'
        )
        (folder / "demo_of_neighbours.py").write_text('"""Neighbours."""\nimport rows\ndef main(quick): print(rows.N)')
        (folder / "rows.py").write_text('"""No benchmark."""\nN = 3')
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(pk, "__file__", str(tmp_path / "site" / "lib" / "penstock" / "__init__.py"))
        monkeypatch.setattr(sys, "path", [*sys.path])

    def test_without_a_name_they_are_listed(self, checkout, capsys):
        assert cli.main(["bench"]) == 0
        assert (
            capsys.readouterr().out
            == "demo-of-neighbours  Neighbours.\nlookup-join         A stream against a table.\n"
        )

    def test_an_unknown_one_is_an_error_that_lists_them(self, checkout, capsys):
        assert cli.main(["bench", "lookup"]) == 2
        said = capsys.readouterr()
        assert said.err == "penstock: there is no benchmark 'lookup'. There are:\n"
        assert "lookup-join" in said.out

    @pytest.mark.parametrize(
        ("arguments", "out"), [(["lookup-join"], "False\n"), (["lookup_join", "--quick"], "True\n")]
    )
    def test_a_named_one_runs(self, checkout, capsys, arguments, out):
        assert cli.main(["bench", *arguments]) == 0
        assert capsys.readouterr().out == out

    def test_it_may_import_its_neighbours(self, checkout, capsys):
        assert cli.main(["bench", "demo-of-neighbours"]) == 0
        assert capsys.readouterr().out == "3\n"

    def test_an_installed_package_has_none(self, checkout, monkeypatch, tmp_path, capsys):
        monkeypatch.chdir(tmp_path / "benchmarks")
        assert cli.main(["bench"]) == 2
        assert capsys.readouterr().err == (
            "penstock: There is no folder benchmarks/ here: it is in penstock's repository, not in the installed "
            "package. Call this in a checkout of it.\n"
        )

    def test_those_of_this_checkout_are_found_from_anywhere(self, monkeypatch, tmp_path, capsys):
        monkeypatch.chdir(tmp_path)
        assert cli.main(["bench"]) == 0
        listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert {"window-join", "multi-way"} <= {*listed}


class TestVacuum:
    @pytest.fixture
    def checkpoint(self, tmp_path):
        """A checkpoint of one epoch that needs one page, with two more that an attempt left behind."""
        checkpoint = Checkpoint(str(tmp_path / "checkpoint"))
        checkpoint.claim({"sources": {}, "operators": {}})
        store = FilePages(checkpoint.pages("join0"), "00000000-00000")
        rows = pa.record_batch({"hash": pa.array([1], pa.uint64()), "time": pa.array([1])})
        names = [store.put(rows) for _ in range(3)]
        page = Page(names[0], 0, 0, 1, rows.nbytes, min_time=1, max_time=1, min_hash=1, max_hash=1)
        checkpoint.commit(Ledger(epoch=0, states={"join0": (State((page,)),)}))
        checkpoint.stage("00000001-0123abcd", "join0", 0, {}, State())
        spark = tmp_path / "checkpoint" / "spark"
        (spark / "offsets").mkdir(parents=True)
        (spark / "metadata").write_text('{"id":"1"}')
        (spark / "offsets" / "0").write_text("v1\n{}\n-")
        return checkpoint

    def test_what_no_version_needs_goes(self, checkpoint, tmp_path, capsys):
        pages = tmp_path / "checkpoint" / "state" / "join0"
        size = sum(page.stat().st_size for page in pages.iterdir()) // 3 * 2
        assert cli.main(["vacuum", checkpoint.uri]) == 0
        assert capsys.readouterr().out == f"2 files, {size / 1000:.1f} kB freed\n"
        assert {page.name for page in pages.iterdir()} == checkpoint.latest().names("join0")
        checkpoint.check(checkpoint.latest())
        assert cli.main(["vacuum", checkpoint.uri]) == 0
        assert capsys.readouterr().out == "0 files, 0 B freed\n"

    def test_a_uri_will_do(self, checkpoint, capsys):
        assert cli.main(["vacuum", f"file://{checkpoint.uri}"]) == 0
        assert capsys.readouterr().out.startswith("2 files")

    def test_a_folder_that_is_no_checkpoint_is_left_alone(self, tmp_path, capsys):
        (tmp_path / "state" / "mine").mkdir(parents=True)
        (tmp_path / "state" / "mine" / "thesis.txt").write_text("years of work")
        assert cli.main(["vacuum", str(tmp_path)]) == 2
        assert capsys.readouterr().err == (
            f"penstock: {tmp_path} is not a penstock checkpoint: it has no flow.json. Nothing was touched. "
            f"Pass the folder that the flow was given as pk.Flow(…, checkpoint=…).\n"
        )
        assert (tmp_path / "state" / "mine" / "thesis.txt").read_text() == "years of work"

    def test_f06_what_is_not_ours_stays_and_links_are_not_followed(self, checkpoint, tmp_path, capsys):
        pages, elsewhere = tmp_path / "checkpoint" / "state" / "join0", tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "measured.csv").write_text("1,2")
        (pages / "measured.csv").write_text("1,2")
        (pages / "00000000-00000-0123456789ab-9-0123abcd.arrow").symlink_to(elsewhere / "measured.csv")
        assert cli.main(["vacuum", checkpoint.uri]) == 0
        assert capsys.readouterr().out.startswith("2 files")
        assert (pages / "measured.csv").exists()
        assert (elsewhere / "measured.csv").exists()
        (tmp_path / "checkpoint" / "staged").rename(elsewhere / "staged")
        (tmp_path / "checkpoint" / "staged").symlink_to(elsewhere / "staged")
        assert cli.main(["vacuum", checkpoint.uri]) == 2
        assert "is a symbolic link" in capsys.readouterr().err
        assert list((elsewhere / "staged").iterdir())

    def test_a_folder_that_is_not_there_is_not_made(self, tmp_path, capsys):
        assert cli.main(["vacuum", str(tmp_path / "none")]) == 2
        assert not (tmp_path / "none").exists()

    @pytest.mark.parametrize("uri", ["nowhere://bucket/flow", "s3://", ""])
    def test_what_is_no_uri_is_refused(self, uri, capsys):
        assert cli.main(["vacuum", uri]) == 2

    def test_a_damaged_checkpoint_is_an_error_without_a_traceback(self, checkpoint, tmp_path, capsys):
        (tmp_path / "checkpoint" / "ledger" / "00000000.json").write_text("{")
        assert cli.main(["vacuum", checkpoint.uri]) == 2
        said = capsys.readouterr().err
        assert said.startswith("penstock: State file ")
        assert "Traceback" not in said


class TestDemo:
    @pytest.fixture
    def done(self, tmp_path):
        """A demo's folder after a run, made by the in-process host."""
        assert sum(OrdersAndPayments(orders=3_000, span="20 min", seed=3).write(tmp_path / "in", every="1 min"))
        flow = pk.LocalFlow(memory="64 MB")

        def source(name):
            tables = [pq.read_table(path) for path in sorted((tmp_path / "in" / name).iterdir())]
            return flow.source(tables, time="ts", progress=pk.bounded_delay("30 s"), name=name)

        orders, payments = source("orders"), source("payments")
        paid = orders.join(payments, on="order_id", within=pk.band(before="10 min", after="10 min"), how="left")
        paid.to_parquet(str(tmp_path / "results"))
        paid.late.to_parquet(str(tmp_path / "late"))
        assert flow.run().progress().late > 0
        return demo._Demo(tmp_path, seconds=1)

    def test_its_check_finds_exact_results_exact(self, done, capsys):
        assert done._check() == 0
        assert "exact: 3," in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda rows: rows.slice(1), "1 rows are missing and 0 too many"),
            (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "0 rows are missing and 1 too many"),
        ],
    )
    def test_its_check_finds_one_row_too_few_or_too_many(self, done, capsys, change, says):
        path = max((done.folder / "results").glob("epoch=*/*.parquet"), key=lambda path: path.stat().st_size)
        pq.write_table(change(pq.read_table(path)), path)
        assert done._check() == 1
        assert f"NOT exact: {says}" in capsys.readouterr().out

    def test_its_samples_show_every_kind_of_result_and_late_rows(self, done, capsys):
        done._show_samples(Report(), Report())
        said = capsys.readouterr().out
        assert all(what in said for what in ("not paid within 10 min", "paid twice", "payments     late"))

    def test_its_progress_fits_a_line(self, tmp_path):
        state = OperatorReport(state_rows=7, state_bytes=1500)
        bounds = {"orders": "2026-01-05 09:01:02.5", "payments": "none yet"}
        epoch = EpochReport(
            0, 0.5, rows_in={"orders": 10}, late={"orders": 1}, rows_out=5, bounds=bounds, operators={"join0": state}
        )
        writer = demo._Writer(tmp_path, seconds=1)
        writer.rows = 20
        assert demo._progress(Report().after(epoch), writer, " | ") == (
            "epochs 1, rows in 10 of 20 written, results 5, late 1 | state 7 rows, 1.5 kB | "
            "bounds orders 09:01:02, payments none yet"
        )

    def test_without_duckdb_it_says_what_to_install(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "duckdb", None)
        assert cli.main(["demo"]) == 2
        assert capsys.readouterr().err == (
            "penstock: The demo checks its output with DuckDB, which is not installed. It comes with the extra 'cli': "
            "pip install 'penstock[cli]', or pip install '.[cli]' in a checkout.\n"
        )

    @pytest.mark.parametrize("seconds", ["0", "-3", "soon", "1e9", "nan"])
    def test_it_takes_a_number_of_seconds(self, seconds, capsys):
        with pytest.raises(SystemExit) as left:
            cli.main(["demo", "--seconds", seconds])
        assert left.value.code == 2
        why = "a number of seconds" if seconds == "soon" else "from 1 to 3600"
        assert capsys.readouterr().err.endswith(f"argument --seconds: {seconds} is not {why}\n")


@pytest.mark.slow
class TestLab:
    @pytest.fixture
    def tiny(self, monkeypatch):
        """An experiment of two minutes, which comes out, and one that does not."""
        from lab import catalog, shapes
        from lab.chapter3 import EWJ
        from lab.experiments import Check, Experiment, Series
        from lab.measures import CPU
        from lab.sweeps import rates

        setup = replace(EWJ, window=20, workload=replace(EWJ.workload, span=120, warm_up=20))

        def record(number: str, test: object) -> Experiment:
            checks = (Check("work", "More rows, more work.", test),)
            return Experiment(number, "Work", (Series("EWJ", setup),), rates(100, 200), (CPU,), checks, scale=1 / 20)

        records = (record("9.1", shapes.rises("EWJ", CPU)), record("9.2", shapes.falls("EWJ", CPU)))
        monkeypatch.setattr(catalog, "EXPERIMENTS", {each.id: each for each in records})
        monkeypatch.setattr("lab.report.EXPERIMENTS", catalog.EXPERIMENTS)
        monkeypatch.setattr("lab.small.EXPERIMENTS", catalog.EXPERIMENTS)

    def test_an_installed_package_has_none(self, monkeypatch, tmp_path, capsys):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(pk, "__file__", str(tmp_path / "site" / "lib" / "penstock" / "__init__.py"))
        assert cli.main(["lab", "list"]) == 2
        assert capsys.readouterr().err.startswith("penstock: There is no folder lab/ here: it is in penstock's repo")

    def test_it_is_found_from_anywhere_without_the_checkout_on_the_path(self, tmp_path):
        command = [sys.executable, "-m", "penstock", "lab", "list"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("Exact window joins\n")

    def test_all_figures_are_listed(self, capsys):
        assert cli.main(["lab", "list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 5 + 24 + 17 + 26 + 17 + 29
        assert lines[:2] == [
            "Exact window joins",
            "  3.4   EWJ: buffered tuples over time, rates that it keeps up with",
        ]
        assert lines[25:27] == ["Window queries", "  window-6-8    Disorder in a band"]
        assert lines[43:45] == ["Lookup joins", "  6.5            Buffered tuples over time at 1,500 tuples/s"]

    def test_a_figure_that_comes_out(self, tiny, tmp_path, capsys):
        assert cli.main(["lab", "run", "fig-9.1", "--out", str(tmp_path)]) == 0
        said = capsys.readouterr()
        assert said.out.startswith(
            "Fig 9.1  Work: reproduced (scale 1/20, 1 seed)\n  yes More rows, more work.  at 100: "
        )
        assert said.out.endswith(f"1 reproduced, 0 in part, 0 not; results are in {tmp_path}\n")
        assert said.err.splitlines()[-1] == "[2/2] ewj at 200/s, b = 0.6, seed 0"
        assert {path.name for path in (tmp_path / "9.1").iterdir()} == {"results.csv", "plot.png", "verdict.json"}

    def test_one_that_does_not_is_said_to_and_the_exit_code_tells(self, tiny, tmp_path, capsys):
        assert cli.main(["lab", "run", "all", "9", "--scale", "1/40", "--seeds", "2", "--out", str(tmp_path)]) == 1
        said = capsys.readouterr().out
        assert "Fig 9.2  Work: not (scale 1/40, 2 seeds)\n  NO  More rows, more work." in said
        assert said.endswith(f"1 reproduced, 0 in part, 1 not; results are in {tmp_path}\n")

    def test_a_page_of_what_was_run(self, tiny, tmp_path, capsys):
        assert cli.main(["lab", "run", "9.2", "--scale", "1/40", "--out", str(tmp_path)]) == 1
        capsys.readouterr()
        assert cli.main(["lab", "report", "--out", str(tmp_path)]) == 0
        assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
        assert ">not</span>" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_a_check_that_comes_out_otherwise_than_recorded(self, tiny, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr("lab.small.RECORD", tmp_path / "small.json")
        assert cli.main(["lab", "check"]) == 1
        assert "9.1: work: passes, recorded: nothing (at 100: " in capsys.readouterr().out
        assert cli.main(["lab", "check", "9.1", "--update"]) == 0
        assert json.loads((tmp_path / "small.json").read_text()) == {"9.1": {"work": True}}
        assert cli.main(["lab", "check", "9.1"]) == 0
        assert capsys.readouterr().out.endswith("9.1: as recorded\n")

    @pytest.mark.parametrize("action", ["report", "record"])
    def test_nothing_to_report(self, action, tmp_path, capsys):
        assert cli.main(["lab", action, "--out", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith(f"penstock: There are no results in {tmp_path}. Run some first: ")

    def test_an_unknown_figure_is_an_error_that_suggests_one(self, tmp_path, capsys):
        assert cli.main(["lab", "run", "5.81", "--out", str(tmp_path / "none")]) == 2
        assert capsys.readouterr().err == (
            "penstock: There is no experiment '5.81'. Did you mean 5.8? A chapter such as 3, or all, will do as well.\n"
        )
        assert not (tmp_path / "none").exists()

    @pytest.mark.parametrize("scale", ["0", "2", "-1", "1/0.1", "nan"])
    def test_a_scale_that_is_no_part(self, scale, tmp_path, capsys):
        assert cli.main(["lab", "run", "3.4", f"--scale={scale}", "--out", str(tmp_path)]) == 2
        assert "is no part of the thesis' size" in capsys.readouterr().err

    @pytest.mark.parametrize("scale", ["little", "1/0", "1/x", ""])
    def test_a_scale_that_is_no_number(self, scale, tmp_path, capsys):
        with pytest.raises(SystemExit) as left:
            cli.main(["lab", "run", "3.4", f"--scale={scale}", "--out", str(tmp_path)])
        assert left.value.code == 2
        assert "neither a number nor a fraction such as 1/20" in capsys.readouterr().err

    def test_without_matplotlib_it_says_what_to_install(self, tiny, monkeypatch, tmp_path, capsys):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        assert cli.main(["lab", "run", "9.1", "--out", str(tmp_path)]) == 2
        assert capsys.readouterr().err == "penstock: The lab draws with matplotlib: pip install 'penstock[lab]'.\n"


def test_the_version_is_the_package_version(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"penstock {pk.__version__}\n"


@pytest.mark.slow
def test_the_package_runs_as_a_program():
    said = subprocess.run([sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"penstock {pk.__version__}\n"
    wrong = subprocess.run([sys.executable, "-m", "penstock", "vacuum", "/nowhere"], capture_output=True, check=False)
    assert wrong.returncode == 2


def test_starting_up_loads_no_spark():
    asked = "import sys, penstock.cli; penstock.cli._parser(); print('pyspark' in sys.modules, 'duckdb' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert said.stdout == "False False\n"
