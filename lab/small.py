"""Every experiment at a size that takes seconds: what its checks come to there is recorded, and CI tells of a flip.

A small run is not a verdict on the source: at such sizes some shapes are lost. It is the same whenever it is run, so
that a check which comes out otherwise than recorded says that the code does something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.aggregations import RowWindows, ThreeLinks
from lab.catalog import EXPERIMENTS
from lab.cell_runs import OfBoxes, OfPoints
from lab.early_runs import Early, Shape
from lab.experiments import Experiment
from lab.lookup_setups import LookupSetup
from lab.lookups import Looking, Overloaded, Sharing
from lab.measures import Trial
from lab.progressive_runs import Run
from lab.setups import Setup
from lab.skews import Joining, Skewed
from lab.verdicts import Verdict
from penstock.operators.window_join.methods import Ewj

RECORD = Path(__file__).parent / "recorded" / "small.json"
"""By experiment, what each check comes to."""

DEEP = frozenset(
    {
        *("5.4", "5.5", "5.6", "5.7", "5.8", "5.9", "5.10", "5.11", "5.13", "5.14", "5.15", "5.16", "5.17", "5.18"),
        *("6.6", "6.12", "6.13", "lookup-8", "lookup-9a-low"),
    }
)
"""Whose runs no other figure shows and take a minute even so: they are run with -m deep."""

MEASURED = frozenset(name for name, experiment in EXPERIMENTS.items() if experiment.ran == "measured")
"""Those that take the time of this machine: they come out otherwise in every run, and are never run in small."""

_SCALES = {
    "window-6-8": 1 / 50,
    "window-6-9": 1 / 50,
    "window-t6-2": 1 / 50,
    "window-8-7": 1 / 2000,
    "window-t8-1": 1 / 2000,
    "window-8-8": 1 / 4000,
    "window-8-9": 1 / 2000,
    "window-8-10": 1 / 2000,
    "window-8-11": 1 / 2000,
    "multi-dimensions": 1 / 5,
    "multi-orders": 1 / 10_000,
    "multi-drops": 1 / 5000,
    "multi-causes": 1 / 20_000,
    "multi-parallel": 1 / 20_000,
    "multi-machine": 1 / 40_000,
}
"""Those of window queries and multi-way joins, where it is not 1/500."""

_WINDOWS = 3
"""How many windows a window join's run lasts, the first of which is warm-up."""

_BRIEF: dict[type, dict[str, Any]] = {
    Skewed: {"seconds": 130, "every": 10},
    Joining: {"tick": 1},
    ThreeLinks: {"seconds": 11},
    RowWindows: {"range": 400},
}
"""What else is smaller in runs of window queries."""

Checks = Mapping[str, bool]
"""By the name of a check, whether it passes."""


def small(experiment: Experiment) -> Experiment:
    """The experiment in small: one seed, less of everything.

    >>> from lab.catalog import EXPERIMENTS
    >>> small(EXPERIMENTS["6.6"]).scale, small(EXPERIMENTS["6.6"]).seeds
    (0.0025, 1)
    """
    series = tuple(replace(each, setup=_smaller(each.setup)) for each in experiment.series)
    return replace(experiment, series=series, scale=_scale(experiment), seeds=1)


def outcome(verdict: Verdict) -> Checks:
    """What is recorded of a verdict."""
    return {each.name: each.passed for each in verdict.outcomes}


def recorded() -> dict[str, Checks]:
    """By experiment, what was recorded of it in small."""
    checks: dict[str, Checks] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return checks


def record(verdicts: Iterable[Verdict]) -> None:
    """Put what small runs came to on record; experiments that were not run stay as they are."""
    known = {**recorded(), **{verdict.id: outcome(verdict) for verdict in verdicts}}
    known = {name: known[name] for name in EXPERIMENTS if name in known}
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def flips(verdict: Verdict) -> list[str]:
    """The checks of a small run that come out otherwise than recorded, with their numbers."""
    before = recorded().get(verdict.id, {})
    now = {each.name: each for each in verdict.outcomes}
    gone = [f"{name}: is not checked any more" for name in before if name not in now]
    return gone + [
        f"{name}: {'passes' if each.passed else 'fails'}, recorded: "
        f"{'nothing' if name not in before else 'passes' if before[name] else 'fails'} ({each.numbers})"
        for name, each in now.items()
        if before.get(name) != each.passed
    ]


def _scale(experiment: Experiment) -> float:
    trial = experiment.series[0].setup
    if isinstance(trial, Setup):
        return 1 / 400 if isinstance(trial.method, Ewj) else 1 / 1000
    if isinstance(trial, LookupSetup):
        return 1 / 400
    if isinstance(trial, Looking):
        return experiment.scale / 50
    if isinstance(trial, Run | OfBoxes | OfPoints):
        return 1 / 50
    if isinstance(trial, Early | Shape):
        return 1 / 64
    return _SCALES.get(experiment.id, 1 / 500)


def _smaller(trial: Trial) -> Trial:
    if isinstance(trial, Setup):
        spans = replace(trial.workload, span=_WINDOWS * trial.window, warm_up=trial.window)
        return replace(trial, workload=spans, tick=20.0 if isinstance(trial.method, Ewj) else 15.0)
    if isinstance(trial, LookupSetup):
        return replace(trial, workload=replace(trial.workload, span=180, warm_up=60))
    if isinstance(trial, Looking):
        return _shorter(replace(trial, cut=0.1))
    return replace(trial, **_BRIEF.get(type(trial), {}))  # type: ignore[type-var]


def _shorter(trial: Looking) -> Looking:
    """With fewer iterations, because partitions are larger."""
    if isinstance(trial, Sharing):
        return replace(trial, iterations=60)
    if isinstance(trial, Overloaded):
        return replace(trial, partition=4e6)
    if trial.data == "local":
        return replace(trial, memory=10.0, stretch=min(2, trial.stretch))
    return replace(trial, partition=0.006 * trial.rows) if trial.family == "hybrid" else trial
