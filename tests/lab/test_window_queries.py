"""Window queries in the lab: every row of the spec's table of experiments runs, and the shapes that are new."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lab import shapes
from lab.aggregations import (
    ERROR,
    LATENCY,
    MEMORY,
    RATIO,
    WORK,
    WRONG,
    Groups,
    Late,
    Paning,
    RowWindows,
    ThreeLinks,
)
from lab.catalog import EXPERIMENTS, HEADINGS, find
from lab.experiments import Curve, Table
from lab.feeding import Fed
from lab.measures import Measure
from lab.operators.low_level import LowLevel, evictions
from lab.skews import HELD, Joining, Skewed
from lab.skews import LATENCY as RESULT_LATENCY
from lab.surge import RATE, Surge, finished, outputs_at
from lab.window6 import no_error_no_later
from lab.window8 import times_as_fast
from lab.workloads.disorder import BandDisorder, BlockDisorder
from penstock.core.rows import RowType
from penstock.core.windows import sliding
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.functions import Count

QUERIES = HEADINGS["Window queries"]

ROWS = {
    "6-8, 6-9": ("window-6-8", "window-6-9"),
    "6-10": ("window-6-10",),
    "6-11": ("window-6-11",),
    "6-12": ("window-6-12",),
    "6-15": ("window-6-15",),
    "T 6-2": ("window-t6-2",),
    "6-19": ("window-6-19a", "window-6-19b"),
    "7-6": ("window-7-6",),
    "7-7": ("window-7-7",),
    "8-7": ("window-8-7",),
    "T 8-1": ("window-t8-1",),
    "8-8": ("window-8-8",),
    "8-9": ("window-8-9",),
    "8-10": ("window-8-10",),
    "8-11": ("window-8-11",),
}
"""The rows of the spec's table with an experiment of their own; T 6-1 says on what 6-10 to 6-12 are run."""


def quiet(moment: float) -> None:
    pass


def point(trial, scale: float = 1 / 200, seed: int = 0):
    return trial.point(scale, seed, quiet).totals


@pytest.mark.slow
class TestRecords:
    def test_f31_every_row_of_the_table_has_its_experiments(self):
        assert [name for names in ROWS.values() for name in names] == [each.id for each in QUERIES]

    @pytest.mark.parametrize("experiment", QUERIES, ids=lambda each: each.id)
    def test_a_record_is_well_formed(self, experiment):
        assert all(check.says.endswith(".") and check.name for check in experiment.expected)
        assert len({check.name for check in experiment.expected}) == len(experiment.expected) > 0
        assert experiment.workload == experiment.streams != ""
        assert 0 < len(experiment.setups()) == len(set(experiment.setups()))

    def test_they_are_found_by_chapter_figure_and_source(self):
        assert [each.id for each in find("window-7")] == ["window-7-6", "window-7-7"]
        assert [each.id for each in find("window-6-19")] == ["window-6-19a", "window-6-19b"]
        assert find("window") == QUERIES
        assert EXPERIMENTS["window-t8-1"] in find("window-8")

    def test_figure_and_table_of_chapter_8_share_their_runs(self):
        assert set(EXPERIMENTS["window-8-7"].setups()) == set(EXPERIMENTS["window-t8-1"].setups())


class TestSurge:
    @pytest.mark.parametrize("flush", ["iop-slow", "lazy", "oop-slow"])
    @pytest.mark.parametrize("seed", range(12))
    def test_outputs_are_those_of_the_table_row_by_row(self, flush, seed):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 300))
        wids, groups = np.sort(rng.integers(0, 6, size)), rng.integers(0, rng.integers(2, 60), size)
        settings = LowLevel(int(rng.integers(1, 80)), flush, every=int(rng.integers(1, 9)))
        gone = [each.at for each in evictions(settings, groups.tolist(), wids.tolist()) if each.at < size]
        assert outputs_at(settings, groups, wids).tolist() == np.bincount(gone, minlength=size).tolist()

    def test_packets_are_done_one_after_the_other(self):
        assert finished(np.array([0.0, 1.0, 2.0]), np.array([3.0, 1.0, 0.5])).tolist() == [3, 4, 4.5]

    def test_a_surge_loses_what_the_mean_load_would_not(self):
        assert Surge("iop-slow", 2, 520_000).try_rate(400_000, 1 / 1000, 0)[0] is False
        lossless, busy = Surge("lazy", 2, 520_000).try_rate(400_000, 1 / 1000, 0)
        assert lossless
        assert busy < 0.6

    @pytest.mark.slow
    def test_f25_out_of_order_takes_half_as_many_packets_again_at_many_groups_and_as_many_at_few(self):
        rates = {
            (flush, groups): point(Surge(flush, 2, groups), 1 / 1000)[RATE.name]
            for flush in ("iop-slow", "lazy", "oop-slow")
            for groups in (66_000, 520_000)
        }
        for flush in ("lazy", "oop-slow"):
            assert rates[flush, 520_000] >= 1.5 * rates["iop-slow", 520_000]
            assert rates[flush, 66_000] == pytest.approx(rates["iop-slow", 66_000], rel=0.1)


class TestTrials:
    def test_wid_updates_every_window_of_a_tuple_and_buffering_reads_it_as_often(self):
        wid, buffering = (point(RowWindows(method, 10))[WORK.name] for method in ("wid", "buffering"))
        assert (wid, buffering) == (10, 12)

    def test_slack_as_large_as_the_disorder_is_exact_and_less_is_not(self):
        window, order = sliding("8 s", "2 s"), BandDisorder("1 s")
        exact, hasty = (
            point(Late(window, order, "count", "consistent", 4000, 30, slack), 1 / 20) for slack in (1.0, 0.1)
        )
        assert exact[ERROR.name] == exact[WRONG.name] == 0 < hasty[ERROR.name]

    def test_punctuation_is_exact_and_never_late_for_itself(self):
        told = point(Late(sliding("8 s", "2 s"), BlockDisorder("7 s"), "mean", "punctuation", 4000, 30), 1 / 20)
        assert told[ERROR.name] == told[LATENCY.name] == 0

    def test_panes_pay_with_many_tuples_and_cost_with_one(self):
        assert point(Paning(5, 20), 1 / 50)[RATIO.name] == pytest.approx(0.25)
        assert point(Paning(5, 1), 1 / 50)[RATIO.name] == pytest.approx(1.2)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "trial", [lambda keep: Groups(keep, "window", 5), lambda keep: ThreeLinks(keep, 2, seconds=14)]
    )
    def test_adapting_holds_no_more_than_eager_or_lazy(self, trial):
        held = {keep: point(trial(keep), 1 / 100)[MEMORY.name] for keep in ("eager", "lazy", "adapt")}
        assert held["adapt"] < min(held["eager"], held["lazy"])

    def test_order_costs_a_join_memory_or_latency(self):
        oa, opob, opib = (point(Joining(method, 3, tick=1), 1 / 50) for method in ("oa", "opob", "opib"))
        assert oa[HELD.name] < opib[HELD.name] < opob[HELD.name]
        assert oa[RESULT_LATENCY.name] < 1 < min(opob[RESULT_LATENCY.name], opib[RESULT_LATENCY.name])

    @pytest.mark.slow
    def test_a_late_link_is_waited_for_in_order_with_tuples(self):
        held = {
            (kind, skew): point(Skewed("8-5", kind, skew, seconds=360, every=5), 1 / 1000)[HELD.name]
            for kind in ("iop", "oop")
            for skew in (0, 10)
        }
        assert held["iop", 10] > held["iop", 0]
        assert held["oop", 10] < held["iop", 10]

    @pytest.mark.slow
    def test_the_same_seed_gives_the_same_numbers(self):
        trial = ThreeLinks("adapt", 2, seconds=8)
        assert point(trial, seed=1) == point(trial, seed=1) != point(trial, seed=2)

    def test_rows_of_no_key_are_held_like_others(self):
        fed = Fed(
            WindowAggregate(sliding(10, 5), by=(), aggregates=(("n", Count()),), method="wid"),
            RowType(pa.schema({"t": pa.int64()}), (), "t"),
        )
        fed.rows(pa.table({"t": [0, 1, 6]}))
        assert fed.held("partials") == 3, "windows that end at 5, 10 and 15"
        assert fed.end().column("n").to_pylist() == [2, 3, 1]
        assert fed.held("partials") == 0


COUNT = Measure("count", "count", "tuples")


def table(measure: Measure = COUNT, **curves: list[float]) -> Table:
    """Curves over 1, 2, …: ``a=[3, 4]`` is series A."""
    return Table(
        {
            (name.upper(), measure.name): Curve(
                np.arange(1.0, len(values) + 1), np.array(values, float), np.full(len(values), np.nan)
            )
            for name, values in curves.items()
        },
        seeds=1,
    )


STEPS = table(a=[1, 1, 2], b=[2, 4, 8])
SHUFFLED = [3, 1, 2, 0, 4, 2, 1, 3, 0, 4, 2, 2]


class TestShapes:
    @pytest.mark.parametrize(
        ("test", "passed"),
        [
            (shapes.gap_grows("A", "B", COUNT), True),
            (shapes.gap_grows("B", "A", COUNT), False),
            (shapes.gap_grows("A", "A", COUNT), False),
            (shapes.grows_less("A", "B", COUNT), True),
            (shapes.grows_less("B", "A", COUNT), False),
            (shapes.part_falls("A", "B", COUNT), True),
            (shapes.part_falls("B", "A", COUNT), False),
            (shapes.alike("A", "B", COUNT, 4), True),
            (shapes.alike("A", "B", COUNT, 2), False),
            (shapes.at_least("B", COUNT, [2, 3], 4), True),
            (shapes.at_least("B", COUNT, [1, 3], 4), False),
            (shapes.within_points("A", COUNT, (1, 2, 3), 1), True),
            (shapes.within_points("A", COUNT, (1, 2, 4), 1), False),
            (shapes.cells(COUNT, 0.3, 0.4, limit=2), True),
            (shapes.cells(COUNT, 0.5, 0.9, limit=2), False),
        ],
    )
    def test_over_a_sweep(self, test, passed):
        assert test(STEPS).passed == passed

    def test_a_band_is_as_wide_early_as_late(self):
        line = np.arange(40.0)
        jitter = np.tile([0, 3, 1, 2], 10)
        assert shapes.in_band("A", COUNT, 4)(table(a=line + jitter)).passed
        assert not shapes.in_band("A", COUNT, 2)(table(a=line + jitter)).passed
        assert not shapes.in_band("A", COUNT, 10)(table(a=line + jitter)).passed

    def test_blocks_are_in_order_and_shuffled_inside(self):
        blocks = [5 * n + value for n in range(3) for value in SHUFFLED]
        assert shapes.in_blocks("A", COUNT, 5)(table(a=blocks)).passed
        assert not shapes.in_blocks("A", COUNT, 5)(table(a=blocks[::-1])).passed
        assert not shapes.in_blocks("A", COUNT, 20)(table(a=sorted(blocks))).passed

    def test_times_as_fast(self):
        rates = table(RATE, a=[1, 1, 3], b=[1, 1, 2])
        assert times_as_fast("A", "B", 3, 1.5, np.inf)(rates).passed
        assert not times_as_fast("A", "B", 1, 1.5, np.inf)(rates).passed

    @pytest.mark.parametrize(("wait", "error", "passed"), [(2, 0, True), (4, 0, False), (2, 1, False)])
    def test_punctuation_dominates_if_it_is_right_and_no_later_than_slack_that_is(self, wait, error, passed):
        x, none = np.array([0.0, 1.0]), np.full(2, np.nan)
        curves = {
            ("consistent slack", "error"): [5, 0],
            ("consistent slack", "wait"): [0, 3],
            ("punctuation", "error"): [error, error],
            ("punctuation", "wait"): [wait, wait],
        }
        measured = Table({key: Curve(x, np.array(values, float), none) for key, values in curves.items()}, 1)
        assert no_error_no_later(ERROR)(measured).passed == passed
