"""The records: every figure is there and well-formed; tables and intervals; each shape on curves drawn by hand."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

from lab import shapes
from lab.catalog import HEADINGS, find
from lab.chapter3 import EWJ
from lab.experiments import Curve, Experiment, OverTime, Series, Table
from lab.measures import BUFFERED, CPU, DELAY, DISK, PATHS, TOTALS, Point
from lab.sweeps import rates
from penstock.core.errors import ConfigError

FIGURES = [
    *["3.4", "3.5", "3.6a", "3.6b", "3.6c", "3.7", "3.8", "3.9", "3.10"],
    *[f"5.{number}" for number in range(4, 19)],
]


EXPERIMENTS = {each.id: each for each in HEADINGS["Exact window joins"]}


class TestRecords:
    def test_every_figure_is_there_in_order(self):
        assert list(EXPERIMENTS) == FIGURES

    @pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
    def test_a_record_is_well_formed(self, experiment):
        assert experiment.title
        assert experiment.expected
        assert all(check.says.endswith(".") and check.name for check in experiment.expected)
        assert len({check.name for check in experiment.expected}) == len(experiment.expected)
        labels = [series.label for series in experiment.series]
        assert len(set(labels)) == len(labels)
        known = PATHS if isinstance(experiment.x, OverTime) else TOTALS
        assert {measure.name for measure in experiment.measures} <= {measure.name for measure in known}
        assert 0 < experiment.scale <= 1
        assert 0 < len(experiment.setups()) == len(set(experiment.setups()))

    @pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
    def test_its_checks_find_their_series_and_places(self, experiment):
        """Every test runs on a table of any numbers and names the numbers that the thesis has."""
        point = Point({m.name: 1.0 for m in TOTALS}, np.array([0.0, 60.0]), {m.name: np.ones(2) for m in PATHS})
        table = experiment.table(lambda setup: (point,))
        for check in experiment.expected:
            assert check.test(table).measured.keys() >= check.thesis.keys()

    def test_its_workload_in_words(self):
        assert EXPERIMENTS["3.5"].workload == "two composite traces of 250, 300 tuples/s each, b = 0.6, 4 h"

    def test_figures_of_one_sweep_share_its_runs(self):
        assert set(EXPERIMENTS["5.8"].setups()) == set(EXPERIMENTS["5.11"].setups())
        assert set(EXPERIMENTS["3.4"].setups()) < set(EXPERIMENTS["3.6a"].setups())


class TestFind:
    @pytest.mark.parametrize("name", ["3.6a", "fig-3.6a", "Fig 3.6A", "figure 3.6a", "fig.3.6a"])
    def test_a_figure_by_any_name(self, name):
        assert [each.id for each in find(name)] == ["3.6a"]

    def test_parts_chapters_and_all(self):
        assert [each.id for each in find("3.6")] == ["3.6a", "3.6b", "3.6c"]
        assert [each.id for each in (*find("3"), *find("5"))] == FIGURES
        whole = [each for name in ("3", "5", "window", "6", "lookup", "multi", "progressive") for each in find(name)]
        assert [each.id for each in whole] == [each.id for each in find("all")]

    def test_an_unknown_one_suggests_the_nearest(self):
        with pytest.raises(ConfigError, match=re.escape("There is no experiment '3.6d'. Did you mean 3.6")):
            find("3.6d")
        with pytest.raises(ConfigError, match="'penstock lab list' shows what there is"):
            find("nonsense")


def curve(x, mean) -> Curve:
    return Curve(np.array(x, float), np.array(mean, float), np.full(len(x), np.nan))


def table(**curves) -> Table:
    """Curves of the series A and B: ``a_delay=([1, 2], [3, 4])``."""
    named = {(name[0].upper(), name[2:]): curve(*points) for name, points in curves.items()}
    return Table(named, seeds=1)


RISING = table(
    a_delay=([1, 2, 3], [1, 2, 10]),
    b_delay=([1, 2, 3], [10, 2, 1]),
    c_delay=([1, 2, 3], [9, 5, 6]),
)
WAVES = table(a_buffered=(range(8), [0, 4, 0, 4, 0, 4, 0, 4]), b_buffered=(range(8), range(8)))


class TestShapes:
    @pytest.mark.parametrize(
        ("test", "passed"),
        [
            (shapes.at_most("A", DELAY, [1, 2], 2), True),
            (shapes.at_most("A", DELAY, [1, 3], 2), False),
            (shapes.about("A", DELAY, 3, 7), True),
            (shapes.about("A", DELAY, 3, 15.1), False),
            (shapes.jumps("A", DELAY, 2, 3), True),
            (shapes.jumps("A", DELAY, 1, 2), False),
            (shapes.rises("A", DELAY), True),
            (shapes.rises("B", DELAY), False),
            (shapes.falls("B", DELAY), True),
            (shapes.falls("A", DELAY), False),
            (shapes.falls("B", DELAY, by=0.85), True),
            (shapes.falls("B", DELAY, by=0.95), False),
            (shapes.rises_beyond("A", DELAY, 2), True),
            (shapes.rises_beyond("B", DELAY, 2), False),
            (shapes.flat("A", DELAY, 2), True),
            (shapes.flat("A", DELAY, 3), False),
            (shapes.minimum_near("C", DELAY, 1.6, within=0.5, over=0.05), True),
            (shapes.minimum_near("C", DELAY, 1.4, within=0.5), False),
            (shapes.minimum_near("C", DELAY, 1.6, within=0.5, over=0.9), False),
            (shapes.minimum_near("A", DELAY, 1.4, within=0.5), False),
            (shapes.falls_to_a_knee("B", DELAY), True),
            (shapes.falls_to_a_knee("A", DELAY), False),
            (shapes.falls_to_a_knee("C", DELAY), False),
            (shapes.part_of("A", "B", DELAY, 2, 0.9, 1.1), True),
            (shapes.part_of("A", "B", DELAY, 3, 0.9, 1.1), False),
            (shapes.below("A", "A", DELAY), True),
            (shapes.below("A", "B", DELAY), False),
        ],
    )
    def test_over_a_sweep(self, test, passed):
        assert test(RISING).passed == passed

    @pytest.mark.parametrize(
        ("test", "passed"),
        [
            (shapes.oscillates("A", BUFFERED, low=1, high=3, times=3), True),
            (shapes.oscillates("A", BUFFERED, low=1, high=3, times=4), False),
            (shapes.oscillates("A", BUFFERED, low=1, high=4, times=1), False),
            (shapes.oscillates("B", BUFFERED, low=1, high=3, times=1), False),
            (shapes.behind("B", BUFFERED, 5.5), True),
            (shapes.behind("B", BUFFERED, 6), False),
            (shapes.oscillates_more("A", "B", BUFFERED), True),
            (shapes.oscillates_more("B", "A", BUFFERED), False),
            (shapes.bounded({"A": 4, "B": 7}, BUFFERED), True),
            (shapes.bounded({"A": 4, "B": 6}, BUFFERED), False),
            (shapes.grows_to("B", BUFFERED, 7), True),
            (shapes.grows_to("A", BUFFERED, 5), False),
            (shapes.ends_about("B", BUFFERED, 6), True),
            (shapes.ends_about("B", BUFFERED, 4), False),
            (shapes.steeper(["A", "B"], BUFFERED), True),
            (shapes.steeper(["B", "A"], BUFFERED), False),
            (shapes.ends_equal(["A", "A"], BUFFERED), True),
            (shapes.ends_equal(["A", "B"], BUFFERED), False),
        ],
    )
    def test_over_time(self, test, passed):
        assert test(WAVES).passed == passed

    def test_a_small_part_of_a_whole(self):
        measured = table(a_disk=([1, 2], [1, 2]), a_cpu=([1, 2], [100, 100]))
        assert shapes.small_beside("A", DISK, CPU)(measured).passed
        assert not shapes.small_beside("A", CPU, DISK)(measured).passed

    def test_a_small_step_back_is_still_a_rise(self):
        assert shapes.rises("A", DELAY)(table(a_delay=([1, 2, 3], [10, 9.5, 12]))).passed
        assert not shapes.rises("A", DELAY)(table(a_delay=([1, 2, 3], [10, 8, 12]))).passed

    def test_nothing_measured_passes_nothing(self):
        nothing = table(a_delay=([1, 2, 3], [np.nan] * 3), b_delay=([1, 2, 3], [1, 1, 1]))
        for test in (
            shapes.at_most("A", DELAY, [1], 9),
            shapes.rises("A", DELAY),
            shapes.flat("A", DELAY, 3),
            shapes.below("A", "B", DELAY),
        ):
            assert not test(nothing).passed


class TestTables:
    def points(self, *delays: float) -> tuple[Point, ...]:
        totals = [{measure.name: delay for measure in TOTALS} for delay in delays]
        paths = {measure.name: np.array([0.0, 5.0]) for measure in PATHS}
        return tuple(Point(each, np.array([0.0, 120.0]), paths) for each in totals)

    def test_the_mean_and_its_interval_over_seeds(self):
        """1, 2 and 3: mean 2, standard error 1/√3, Student's t with two degrees of freedom 4.3027."""
        experiment = Experiment("9.1", "t", (Series("EWJ", EWJ),), rates(100), (DELAY,), (), scale=1)
        measured = experiment.table(lambda setup: self.points(1, 2, 3)).curve("EWJ", DELAY)
        assert measured.at(100) == 2
        assert measured.margin[0] == pytest.approx(4.3027 / np.sqrt(3))

    def test_one_seed_has_no_interval(self):
        experiment = Experiment("9.1", "t", (Series("EWJ", EWJ),), rates(100), (DELAY,), (), scale=1)
        assert np.isnan(experiment.table(lambda setup: self.points(1)).curve("EWJ", DELAY).margin).all()

    def test_each_value_has_its_own_run(self):
        experiment = Experiment("9.1", "t", (Series("EWJ", EWJ),), rates(100, 200), (DELAY,), (), scale=1)
        measured = experiment.table(lambda setup: self.points(setup.workload.rate / 2)).curve("EWJ", DELAY)
        assert (measured.x.tolist(), measured.mean.tolist()) == ([100, 200], [50, 100])

    def test_time_is_in_minutes(self):
        experiment = Experiment("9.1", "t", (Series("EWJ", EWJ),), OverTime(), (BUFFERED,), (), scale=1)
        measured = experiment.table(lambda setup: self.points(1)).curve("EWJ", BUFFERED)
        assert (measured.x.tolist(), measured.mean.tolist()) == ([0, 2], [0, 5])

    def test_as_csv(self, tmp_path):
        table(a_delay=([1, 2], [0.5, 1e6])).write(tmp_path / "results.csv", "rate")
        rows = list(csv.DictReader((tmp_path / "results.csv").open()))
        assert rows[1] == {
            "series": "A",
            "measure": "delay",
            "rate": "2",
            "mean": "1000000",
            "margin_95": "nan",
            "seeds": "1",
        }

    def test_a_setup_is_a_key(self):
        assert len({EWJ, replace(EWJ), replace(EWJ, window=1)}) == 2
