"""Figures in small: numbers, picture and verdict are there, and checks come out as recorded. All run with -m deep."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab import small
from lab.catalog import EXPERIMENTS
from lab.experiments import Experiment
from lab.measures import TOTALS, Point, Trial
from lab.run import Lab
from lab.verdicts import Verdict


def sharing_runs(experiments: list[Experiment]) -> list[list[Experiment]]:
    """Figures that show the same runs go together: one test runs them, once."""
    groups: list[tuple[set[Trial], list[Experiment]]] = []
    for each in experiments:
        setups, members = set(small.small(each).setups()), [each]
        for group in [group for group in groups if group[0] & setups]:
            groups.remove(group)
            setups, members = group[0] | setups, group[1] + members
        groups.append((setups, members))
    return [members for _, members in groups]


LONG = small.DEEP | {
    *("3.4", "3.6a", "3.6b", "3.6c", "3.7", "3.8", "3.9", "3.10", "5.12", "6.7", "6.8", "6.9", "6.10", "6.11"),
    *("lookup-5a", "lookup-5b", "lookup-5c", "lookup-5d", "lookup-6", "lookup-7", "lookup-9f"),
    *("window-6-15", "window-6-19b", "window-7-7", "multi-machine", "multi-parallel"),
    *(f"progressive-4-{number}" for number in (2, 3, 4, 5, 7, 8, 9, 10)),
    *(
        f"progressive-{number}"
        for number in ("5-4", "5-5", "6-1", "6-2", "6-3", "6-4", "6-7", "a-1", "a-3", "a-7", "a-8")
    ),
}
"""Those that take ten seconds or more, or show what others of their source show in fewer runs: run with -m deep."""

SIMULATED = [each for each in EXPERIMENTS.values() if each.id not in small.MEASURED]

FIGURES = [
    pytest.param(group, id=" ".join(each.id for each in group), marks=marks)
    for deep, marks in ((False, []), (True, [pytest.mark.deep]))
    for group in sharing_runs([each for each in SIMULATED if (each.id in LONG) is deep])
]

POINT = Point({measure.name: 1.0 for measure in TOTALS}, np.array([0.0]), {})


@pytest.mark.slow
@pytest.mark.parametrize("experiments", FIGURES)
def test_f31_f35_each_gives_numbers_a_picture_and_the_recorded_verdict(experiments, tmp_path):
    flips = []
    for verdict in Lab(tmp_path).run([small.small(each) for each in experiments]):
        is_complete(EXPERIMENTS[verdict.id], verdict, tmp_path / verdict.id)
        flips += [f"{verdict.id} {flip}" for flip in small.flips(verdict)]
    assert flips == [], "if it is meant to: penstock lab check ID --update"


def is_complete(experiment: Experiment, verdict: Verdict, folder: Path) -> None:
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert {row["series"] for row in rows} == {series.label for series in experiment.series}
    assert {row["measure"] for row in rows} == {measure.name for measure in experiment.measures}
    written = json.loads((folder / "verdict.json").read_text())
    assert [check["says"] for check in written["outcomes"]] == [check.says for check in experiment.expected]
    for check, outcome in zip(experiment.expected, verdict.outcomes, strict=True):
        assert outcome.measured.keys() >= check.thesis.keys()


def test_every_check_is_on_record():
    checks = {each.id: [check.name for check in each.expected] for each in SIMULATED}
    assert {name: list(record) for name, record in small.recorded().items()} == checks


def test_some_pass_and_some_fail():
    """A record of nothing but passes would say little."""
    outcomes = [passed for record in small.recorded().values() for passed in record.values()]
    assert 0.5 < sum(outcomes) / len(outcomes) < 0.95


@pytest.fixture
def verdict(monkeypatch, tmp_path) -> Verdict:
    """A verdict that is on record."""
    monkeypatch.setattr(small, "RECORD", tmp_path / "small.json")
    experiment = EXPERIMENTS["3.8"]
    verdict = Verdict.on(experiment, experiment.table(lambda setup: (POINT,)), scale=1)
    small.record([verdict])
    return verdict


def test_what_is_recorded_does_not_flip(verdict):
    assert small.flips(verdict) == []


def test_a_flip_is_told_with_its_numbers(verdict):
    first, *others = verdict.outcomes
    flipped = replace(verdict, outcomes=(replace(first, passed=not first.passed), *others))
    assert small.flips(flipped) == ["disk very small: passes, recorded: fails (largest part: 1)"]


def test_a_check_that_is_new_or_gone_is_told(verdict):
    first, *others = verdict.outcomes
    assert small.flips(replace(verdict, outcomes=(*others,))) == ["disk very small: is not checked any more"]
    more = replace(verdict, outcomes=(*verdict.outcomes, replace(first, name="new")))
    assert small.flips(more) == ["new: fails, recorded: nothing (largest part: 1)"]


def test_other_figures_stay_on_record(verdict):
    small.record([replace(verdict, id="3.9")])
    assert list(small.recorded()) == ["3.8", "3.9"]
