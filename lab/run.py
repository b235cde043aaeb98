"""Running experiments: simulate what is not known yet, then a folder per figure with numbers, picture and verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.experiments import Experiment
from lab.measures import Point, Trial
from lab.plots import draw, need_matplotlib
from lab.points import Points
from lab.progress import Quiet, Watcher
from lab.verdicts import Verdict
from penstock.core.errors import ConfigError

POINTS = "points"
"""The folder beside the figures' that has the simulated runs."""


class Lab:
    """A results folder, and the conditions under which experiments are run in it.

    `scale` is the part of the thesis' size, and `seeds` with how many seeds each setup is run; each experiment's own
    where None.
    """

    def __init__(self, out: Path, scale: float | None = None, seeds: int | None = None) -> None:
        if scale is not None and not 0 < scale <= 1:
            raise ConfigError(
                f"scale={scale:g} is no part of the thesis' size. Write a number up to 1, as 0.05 or 1/20."
            )
        if seeds is not None and seeds < 1:
            raise ConfigError(f"seeds={seeds} runs nothing. Write 1 or more.")
        self.out = out
        self._scale = scale
        self._seeds = seeds
        self._points = Points(out / POINTS)

    def missing(self, experiments: Sequence[Experiment]) -> int:
        """How many runs are still to be simulated for `experiments`; a run that several show counts once."""
        runs = {
            (setup, self.scale_of(each), seed)
            for each in experiments
            for setup in each.setups()
            for seed in self.seeds_of(each)
        }
        return sum(not self._points.known(*run) for run in runs)

    def run(self, experiments: Sequence[Experiment], watcher: Watcher | None = None) -> Iterator[Verdict]:
        """Run one after the other; what each came to is in its folder when its verdict comes out."""
        need_matplotlib()
        for experiment in experiments:
            yield self._run(experiment, watcher or Quiet())

    def scale_of(self, experiment: Experiment) -> float:
        """At which part of the thesis' size an experiment is run."""
        return experiment.scale if self._scale is None else self._scale

    def seeds_of(self, experiment: Experiment) -> range:
        """With which seeds an experiment is run."""
        return range(experiment.seeds if self._seeds is None else self._seeds)

    def _run(self, experiment: Experiment, watcher: Watcher) -> Verdict:
        scale, seeds = self.scale_of(experiment), self.seeds_of(experiment)
        table = experiment.table(lambda setup: tuple(self._take(setup, scale, seed, watcher) for seed in seeds))
        folder = self.out / experiment.id
        folder.mkdir(parents=True, exist_ok=True)
        table.write(folder / "results.csv", experiment.x.label)
        draw(experiment, table, folder / "plot.png", scale)
        verdict = Verdict.on(experiment, table, scale)
        verdict.write(folder / "verdict.json")
        return verdict

    def _take(self, setup: Trial, scale: float, seed: int, watcher: Watcher) -> Point:
        if self._points.known(setup, scale, seed):
            return self._points.take(setup, scale, seed)
        watch = watcher.begin(f"{setup}, seed {seed}", setup.span)
        return self._points.take(setup, scale, seed, watch)
