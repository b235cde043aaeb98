"""Checks that came out by chance or by construction: each passes on the shape it is about and fails on one that is not.

The check is the record's own, so that a limit which is loosened there is noticed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from lab import lookups, skews, surge
from lab.catalog import EXPERIMENTS
from lab.experiments import Curve, Sweep, Table
from lab.measures import BUFFERED, CPU, DISK, TOTAL, Measure

MINUTES = np.arange(0, 240.0)
WAVES = 30_000 * (1 + np.sin(MINUTES / 4))
"""From nothing to 60,000 and back, nine times."""
BACKLOG = 0.05 * 2 * 1400 * 5760
"""Of a join that just keeps up at 1,400/s."""
ENDS_IN_A_BURST = np.where(MINUTES < 230, 0.0, 2 * BACKLOG)

BUSY = dict(EXPERIMENTS["window-t8-1"].expected[2].thesis)


def passes(figure: str, check: str, curves: Mapping[tuple[str, Measure], Sequence[float]], margin: float = 0.0) -> bool:
    """Whether a check of the record passes on these curves over its own x."""
    experiment = EXPERIMENTS[figure]
    (found,) = (each for each in experiment.expected if each.name == check)
    x = np.array(experiment.x.values, float) if isinstance(experiment.x, Sweep) else MINUTES
    table = {
        (label, measure.name): Curve(x[: len(mean)], np.array(mean, float), np.full(len(mean), margin))
        for (label, measure), mean in curves.items()
    }
    return found.test(Table(table, seeds=5)).passed


@pytest.mark.parametrize(
    ("buffered", "expected"),
    [
        (WAVES, True),
        (np.full(240, 30_000.0), False),
        (30_000 + 100 * np.sin(MINUTES), False),  # crosses its mean all the time, and hardly moves
        (np.random.default_rng(0).poisson(800, 240), False),  # what arrives in a tick
        (60_000 * np.exp(-(((MINUTES - 120) / 20) ** 2)), False),  # one burst
    ],
)
def test_3_9_to_oscillate_is_to_rise_and_fall_again_and_again(buffered, expected):
    assert passes("3.9", "oscillates at b = 0.5", {("b = 0.5", BUFFERED): buffered}) is expected


@pytest.mark.parametrize(
    ("buffered", "expected"),
    [
        (2 * BACKLOG * MINUTES / 240, True),
        (np.full(240, 0.5 * BACKLOG), False),
        (ENDS_IN_A_BURST, False),
    ],
)
def test_5_7_overloaded_is_to_be_behind_not_to_end_in_a_burst(buffered, expected):
    assert passes("5.7", "overloaded at 1400/s", {("1400/s", BUFFERED): buffered}) is expected


@pytest.mark.parametrize(
    ("measured", "margin", "expected"),
    [
        ([100, 90, 80], 2, True),
        ([100, 100, 99], 0, False),  # a hundredth less is no fall
        ([100, 90, 80], 12, False),  # nor is what two seeds differ by
        ([80, 90, 100], 0, False),
    ],
)
@pytest.mark.parametrize(
    ("figure", "check", "measure"),
    [
        ("5.15", "RPWJ's CPU falls", CPU),
        ("5.15", "RPWJ's disk falls", DISK),
        ("5.16", "RPWJ's total falls", TOTAL),
    ],
)
def test_5_15_and_5_16_to_fall_is_more_than_intervals(figure, check, measure, measured, margin, expected):
    assert passes(figure, check, {("RPWJ", measure): measured}, margin) is expected


@pytest.mark.parametrize(("figure", "measure"), [("6.10", CPU), ("6.11", TOTAL)])
def test_6_10_and_6_11_range_is_below_hash_only_if_it_is_with_segments_of_the_same_size(figure, measure):
    alike = next(check.name for check in EXPERIMENTS[figure].expected if check.name.endswith("alike"))
    below = alike.removesuffix(", alike")
    larger_segments = {
        ("range", measure): [10] * 6,
        ("hash", measure): [20] * 6,
        ("hash, 186 segments", measure): [10] * 6,
    }
    assert passes(figure, below, larger_segments)
    assert not passes(figure, alike, larger_segments)
    locality = {**larger_segments, ("hash, 186 segments", measure): [20] * 6}
    assert passes(figure, alike, locality)
    assert not passes(figure, alike, locality, margin=6)
    assert not passes(figure, below, {**larger_segments, ("hash", measure): [10.2] * 6})


def test_8_8_twice_as_much_is_not_flat():
    flat, two_windows, grows = ([100] * 5, [100, 200, 200, 200, 200], [100, 120, 140, 160, 180])
    for held, whole, with_skew in ((flat, True, True), (two_windows, False, True), (grows, False, False)):
        assert passes("window-8-8", "OOP flat", {("OOP", skews.HELD): held}) is whole
        assert passes("window-8-8", "OOP flat with skew", {("OOP", skews.HELD): held}) is with_skew
    assert not passes("window-8-8", "IOP steep", {("IOP", skews.HELD): grows})


@pytest.mark.parametrize(("off", "expected"), [(0, True), (9, True), (-11, False), (-25, False)])
def test_t8_1_a_cpu_that_is_far_idler_than_the_table_says_fails(off, expected):
    assert list(BUSY.values()) == [96.3, 85, 55.6, 50]
    shares = [*list(BUSY.values())[:3], 50 + off]
    assert passes("window-t8-1", "IOP-2", {("IOP-2", surge.BUSY): shares}) is expected


def test_8_7_what_was_calibrated_is_an_anchor():
    kinds = {check.name: check.kind for check in EXPERIMENTS["window-8-7"].expected}
    assert [name for name, kind in kinds.items() if kind == "anchor"] == [
        "IOP at 260K",
        "OOP at 260K",
        "OOP with slow flush at 260K",
    ]


@pytest.mark.parametrize(
    ("cached", "mesh", "hybrid"),
    [
        ([4.7, 5.5, 6.5], True, False),
        ([2.9, 2.5, 2.3], False, False),  # slower with |R|, as any join is
        ([3, 2.9, 2.8], False, True),
        ([1, 1, 1], False, True),
    ],
)
def test_5b_what_is_gained_changes_with_the_table_as_reported(cached, mesh, hybrid):
    for name, expected in (("MESHJOIN", mesh), ("HYBRIDJOIN", hybrid)):
        gains = {(name, lookups.RATE): [1] * 3, (f"C{name}", lookups.RATE): cached}
        change = "more" if name == "MESHJOIN" else "less"
        assert passes("lookup-5b", f"C{name} gains {change}", gains) is expected


@pytest.mark.parametrize(("cached", "expected"), [([2.5, 2.2, 2], True), ([4.1, 3.2, 2.5], False), ([1, 1, 1], False)])
def test_5c_up_to_is_said_of_every_size(cached, expected):
    gains = {("INLJ", lookups.RATE): [1] * 3, ("CINLJ", lookups.RATE): cached}
    assert passes("lookup-5c", "2.5 times", gains) is expected


@pytest.mark.parametrize(("rate", "expected"), [(400, True), (4900, False)])
def test_5c_far_below_is_beside_what_the_others_do(rate, expected):
    rates = {("CINLJ", lookups.RATE): [rate] * 3, ("MESHJOIN", lookups.RATE): [40_000] * 3}
    assert passes("lookup-5c", "far below MESHJOIN", rates) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.51, True), (0.55, True), (0.637, False), (0.4, False)])
def test_9d_half_of_the_stream_is_not_two_thirds(share, expected):
    assert passes("lookup-9d", "half of the stream", {("CMESHJOIN", lookups.HIT): [0, share]}) is expected


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_figure_has_a_claim(experiment):
    assert [check for check in experiment.expected if check.kind == "claim"]
