"""A run at a tiny size leaves numbers, picture, verdict; a second one simulates nothing; a page has them all."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from dataclasses import replace

import pytest

from lab import points as points_module
from lab.catalog import EXPERIMENTS
from lab.experiments import Experiment
from lab.points import Points
from lab.progress import Lines, Quiet, watching
from lab.report import report
from lab.run import Lab
from lab.setups import Setup
from lab.verdicts import Outcome, Verdict, tell
from penstock.core.errors import ConfigError, FlowError

PNG = b"\x89PNG\r\n\x1a\n"


def short(name: str, *values: float) -> Experiment:
    """Two minutes of an experiment, with windows of half a minute, at some values of its sweep."""
    experiment = EXPERIMENTS[name]
    series = tuple(replace(each, setup=brief(each.setup)) for each in experiment.series)
    return replace(experiment, series=series, x=replace(experiment.x, values=values) if values else experiment.x)


def brief(setup: Setup) -> Setup:
    return replace(setup, window=30, workload=replace(setup.workload, span=120, warm_up=30))


class Counting:
    """Which simulations began."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def begin(self, label, span):
        self.labels.append(label)
        return lambda moment: None


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A figure over rates, one over time that shows some of the same runs, and one of two methods."""
    out = tmp_path_factory.mktemp("lab")
    watcher = Counting()
    lab = Lab(out, scale=1 / 40, seeds=2)
    some = [short("3.6b", 150, 250), short("3.4"), short("5.11", 1400)]
    missing = lab.missing(some)
    verdicts = list(lab.run(some, watcher))
    return out, some, verdicts, watcher.labels, missing


@pytest.mark.slow
class TestRun:
    def test_each_figure_has_its_folder(self, ran):
        out, some, *_ = ran
        for experiment in some:
            folder = out / experiment.id
            assert (folder / "plot.png").read_bytes().startswith(PNG)
            assert (folder / "results.csv").read_text().startswith("series,measure,")
            record = json.loads((folder / "verdict.json").read_text())
            assert record["verdict"] in ("reproduced", "in part", "not")
            assert [check["says"] for check in record["outcomes"]] == [check.says for check in experiment.expected]

    def test_a_run_that_figures_share_is_simulated_once(self, ran):
        """Four rates of EWJ, two of which both figures show, one of each of the others, and two seeds of all."""
        _, _, _, labels, missing = ran
        assert len(labels) == missing == 2 * (4 + 1 + 1)
        assert labels[:2] == ["ewj at 150/s, b = 0.6, seed 0", "ewj at 150/s, b = 0.6, seed 1"]

    def test_a_second_run_simulates_nothing_and_says_the_same(self, ran):
        out, some, verdicts, *_ = ran
        lab, watcher = Lab(out, scale=1 / 40, seeds=2), Counting()
        assert lab.missing(some) == 0
        assert [str(each) for each in lab.run(some, watcher)] == [str(each) for each in verdicts]
        assert watcher.labels == []

    def test_another_scale_seed_or_code_is_another_run(self, ran, monkeypatch):
        out, some, *_ = ran
        assert Lab(out, scale=1 / 41, seeds=1).missing(some[:1]) == 2
        assert Lab(out, scale=1 / 40, seeds=3).missing(some[:1]) == 2
        monkeypatch.setattr(points_module, "_code", lambda parts: "other")
        assert Lab(out, scale=1 / 40, seeds=2).missing(some[:1]) == 4

    def test_a_verdict_says_what_was_measured(self, ran):
        _, _, verdicts, *_ = ran
        said = str(verdicts[0])
        assert said.startswith("Fig 3.6b  EWJ: production delay against rate: ")
        assert "(scale 1/40, 2 seeds)" in said
        assert "Delay little changed to 250/s though windows exceed 20 MB/stream.  least: " in said

    def test_a_verdict_comes_back_from_its_file(self, ran):
        out, _, verdicts, *_ = ran
        assert str(Verdict.read(out / "3.6b" / "verdict.json")) == str(verdicts[0])

    def test_a_point_comes_back_from_its_file(self, ran, tmp_path):
        _, some, *_ = ran
        setup = some[0].setups()[0]
        first, again = (Points(tmp_path).take(setup, scale=1 / 50, seed=0) for _ in range(2))
        assert first.totals == pytest.approx(again.totals, rel=0, nan_ok=True)
        assert {name: path.tolist() for name, path in first.paths.items()} == {
            name: path.tolist() for name, path in again.paths.items()
        }

    def test_a_run_that_is_broken_off_leaves_no_point(self, ran, tmp_path):
        _, some, *_ = ran
        setup = some[0].setups()[0]

        def stop(moment):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Points(tmp_path).take(setup, scale=1 / 50, seed=0, watch=stop)
        assert not Points(tmp_path).known(setup, scale=1 / 50, seed=0)

    @pytest.mark.parametrize("scale", [0, -1, 1.5, math.nan])
    def test_a_scale_is_a_part(self, tmp_path, scale):
        with pytest.raises(ConfigError, match=re.escape("is no part of the thesis' size")):
            Lab(tmp_path, scale=scale)

    def test_at_least_one_seed(self, tmp_path):
        with pytest.raises(ConfigError, match="seeds=0 runs nothing"):
            Lab(tmp_path, seeds=0)

    def test_without_matplotlib_nothing_is_run(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        watcher = Counting()
        with pytest.raises(FlowError, match=re.escape("pip install 'penstock[lab]'")):
            list(Lab(tmp_path).run([EXPERIMENTS["3.4"]], watcher))
        assert watcher.labels == []


@pytest.mark.slow
class TestReport:
    def test_it_has_every_picture_inside(self, ran):
        out, some, *_ = ran
        page = report(out)
        assert page == out / "report.html"
        text = page.read_text(encoding="utf-8")
        pictures = [base64.b64decode(each) for each in re.findall(r'src="data:image/png;base64,([^"]+)"', text)]
        assert sorted(pictures) == sorted((out / each.id / "plot.png").read_bytes() for each in some)
        assert not re.search(r'(src|href)="(?!data:|#)', text)

    def test_it_says_what_the_spec_says_and_what_was_measured(self, ran):
        out, _, verdicts, *_ = ran
        text = report(out).read_text(encoding="utf-8")
        assert f"Of 3 figures {tell(verdict.word for verdict in verdicts)}." in text
        assert "AH ≈40 % less total at 1400." in text
        assert "(thesis: 0.6)" in text

    def test_figures_are_in_the_order_of_the_thesis(self, ran):
        out, *_ = ran
        assert re.findall(r'<h2 id="fig-([^"]+)"', report(out).read_text(encoding="utf-8")) == ["3.4", "3.6b", "5.11"]

    def test_an_empty_folder_says_what_to_do(self, tmp_path):
        with pytest.raises(FlowError, match=re.escape(f"There are no results in {tmp_path}. Run some first: ")):
            report(tmp_path)


class TestVerdicts:
    def test_there_are_three_words(self):
        yes, no = (Outcome(str(passed), "It is.", passed, {}, {}) for passed in (True, False))
        assert Verdict("1", "t", "w", 1, 1, (yes, yes)).word == "reproduced"
        assert Verdict("1", "t", "w", 1, 1, (yes, no)).word == "in part"
        assert Verdict("1", "t", "w", 1, 1, (no, no)).word == "not"

    @pytest.mark.parametrize("kind", ["anchor", "reason"])
    def test_only_claims_are_judged(self, kind):
        no, by_construction = Outcome("1", "It is.", False, {}, {}), Outcome("2", "Set.", True, {}, {}, kind)
        verdict = Verdict("1", "t", "w", 1, 1, (no, by_construction))
        assert verdict.word == "not"
        assert f"  yes ({kind}) Set." in str(verdict)

    def test_it_reads_like_this(self):
        outcome = Outcome("pending", "≈2 M pending at 300/s.", True, {"300/s": 1_955_860.0}, {"300/s": 2e6})
        verdict = Verdict("3.5", "Buffers", "traces", 0.05, 3, (outcome,), remark="Bursts differ.")
        assert str(verdict).splitlines() == [
            "Fig 3.5  Buffers: reproduced (scale 1/20, 3 seeds)",
            "  yes ≈2 M pending at 300/s.  300/s: 1,955,860 (thesis: 2,000,000)",
            "      Bursts differ.",
        ]

    def test_a_number_that_there_is_not_is_null_in_its_file(self, tmp_path):
        outcome = Outcome("delay", "It is.", False, {"at 1": math.nan}, {})
        verdict = Verdict("3.5", "t", "w", 0.05, 1, (outcome,))
        verdict.write(tmp_path / "verdict.json")
        assert json.loads((tmp_path / "verdict.json").read_text())["outcomes"][0]["measured"] == {"at 1": None}
        assert Verdict.read(tmp_path / "verdict.json").outcomes[0].numbers == "at 1: nothing"


class TestProgress:
    def test_lines_where_there_is_no_screen(self, capsys):
        with watching(2) as watcher:
            assert isinstance(watcher, Lines)
            watcher.begin("ewj", 60)(30)
            watcher.begin("rpwj", 60)
        assert capsys.readouterr().err == "[1/2] ewj\n[2/2] rpwj\n"

    def test_lines_without_rich(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "rich.console", None)
        with watching(1) as watcher:
            assert isinstance(watcher, Lines)

    def test_nothing_to_wait_for(self):
        with watching(0) as watcher:
            assert isinstance(watcher, Quiet)

    def test_a_bar_on_a_terminal(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        with watching(2) as watcher:
            assert not isinstance(watcher, Lines)
            watch = watcher.begin("ewj", 60)
            watch(30)
            watch(90)
            assert watcher._bars.tasks[0].completed == 1
