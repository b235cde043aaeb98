"""Shapes that curves are expected to have, as tests of a measured table.

A test names its numbers, so that a verdict can show them beside those of the thesis. All go by means over seeds.
Where the spec has words and no number ("flat", "sharp"), the limit is an argument with a default that is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lab.experiments import Curve, Finding, Table, Test
from lab.measures import Measure
from lab.statistics import FEWEST_SEEDS
from penstock.core.delays import Seconds


def at_most(series: str, measure: Measure, xs: Sequence[float], limit: float) -> Test:
    """No more than `limit` at each of `xs`."""

    def test(table: Table) -> Finding:
        measured = _numbers(table.curve(series, measure), xs)
        return Finding(all(value <= limit for value in measured.values()), measured)

    return test


def at_least(series: str, measure: Measure, xs: Sequence[float], limit: float) -> Test:
    """No less than `limit` at each of `xs`."""

    def test(table: Table) -> Finding:
        measured = _numbers(table.curve(series, measure), xs)
        return Finding(all(value >= limit for value in measured.values()), measured)

    return test


def within_points(series: str, measure: Measure, values: Sequence[float], points: float) -> Test:
    """At each x, no further than so many points from the value given for it."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        off = np.abs(curve.mean - np.array(values))
        return Finding(bool((off <= points).all()), _numbers(curve, list(curve.x)))

    return test


def about(series: str, measure: Measure, x: float, value: float, factor: float = 1.5) -> Test:
    """`value` at x, but for a factor: half as much again, or two thirds, is still about."""

    def test(table: Table) -> Finding:
        measured = table.curve(series, measure).at(x)
        return Finding(value / factor <= measured <= value * factor, {f"at {x:g}": measured})

    return test


def jumps(series: str, measure: Measure, knee: float, to: float, factor: float = 3.0) -> Test:
    """At least `factor` times as much at `to` as at the `knee`: a sharp rise."""

    def test(table: Table) -> Finding:
        before, after = (table.curve(series, measure).at(x) for x in (knee, to))
        return Finding(after >= factor * before and after > 0, {f"at {knee:g}": before, f"at {to:g}": after})

    return test


def rises(series: str, measure: Measure, slack: float = 0.1, by: float = 0.0) -> Test:
    """More at the end than at the beginning, `by` this part of it, and never less than before by more than a tenth."""

    def test(table: Table) -> Finding:
        return _rises(table.curve(series, measure), +1, slack, by)

    return test


def falls(series: str, measure: Measure, slack: float = 0.1, by: float = 0.0) -> Test:
    """Less at the end than at the beginning, `by` this part of it, and never more than before by more than a tenth."""

    def test(table: Table) -> Finding:
        return _rises(table.curve(series, measure), -1, slack, by)

    return test


def clearly_falls(series: str, measure: Measure, by: float = 0.05) -> Test:
    """Falls by a twentieth from the first x to the last, and by more than the 95 % intervals of both."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        passed, shown = _rises(curve, -1, 0.1, by)
        margins = float(_margin(table, curve)[[0, -1]].sum())
        return Finding(passed and bool(curve.mean[0] - curve.mean[-1] > margins), {**shown, "intervals": margins})

    return test


def falls_to_a_knee(series: str, measure: Measure, by: float = 0.05) -> Test:
    """Falls by a twentieth from the first x to the second, and from then on by less at each step."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        steps = -np.diff(curve.mean)
        falls = steps[0] > by * curve.mean[0] and bool((steps >= 0).all() and (np.diff(steps) < 0).all())
        return Finding(falls, _numbers(curve, list(curve.x)))

    return test


def rises_beyond(series: str, measure: Measure, x: float, by: float = 0.0) -> Test:
    """More at the last value of the sweep than at `x`, `by` this part of it."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        before, after = curve.at(x), float(curve.mean[-1])
        return Finding(after > (1 + by) * before, {f"at {x:g}": before, f"at {curve.x[-1]:g}": after})

    return test


def falls_until(series: str, measure: Measure, x: float) -> Test:
    """Up to `x`, less at each value of the sweep than at the one before."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        some = curve.mean[curve.x <= x]
        return Finding(bool((np.diff(some) < 0).all()), _numbers(curve, [each for each in curve.x if each <= x]))

    return test


def plateaus(series: str, measure: Measure, beyond: float, factor: float = 1.15) -> Test:
    """From `beyond` on, the most is no more than the least and 15 % of it."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        some = curve.mean[curve.x >= beyond]
        return Finding(bool(some.max() <= factor * some.min()), _numbers(curve, [x for x in curve.x if x >= beyond]))

    return test


def flat(series: str, measure: Measure, until: float, factor: float = 2.0) -> Test:
    """Up to `until`, the most is no more than twice the least."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        some = curve.mean[curve.x <= until]
        least, most = float(some.min()), float(some.max())
        return Finding(most <= factor * least, {"least": least, "most": most})

    return test


def oscillates_more(series: str, than: str, measure: Measure) -> Test:
    """Goes up and down: the sum of its steps against its mean is more than the other's."""

    def test(table: Table) -> Finding:
        measured = {label: _swing(table.curve(label, measure).mean) for label in (series, than)}
        return Finding(measured[series] > measured[than], measured)

    return test


def minimum_near(series: str, measure: Measure, x: float, within: float, over: float = 0.0) -> Test:
    """The least is at most `within` away from `x`, and both ends are above it, `over` this part of it."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        place = float(curve.x[int(np.argmin(curve.mean))])
        least, first, last = (float(value) for value in (curve.mean.min(), curve.mean[0], curve.mean[-1]))
        inside = min(first, last) > (1 + over) * least
        shown = {"minimum at": place, "there": least, f"at {curve.x[0]:g}": first, f"at {curve.x[-1]:g}": last}
        return Finding(abs(place - x) <= within + 1e-9 and inside, shown)

    return test


def part_of(series: str, of: str, measure: Measure, x: float, least: float, most: float) -> Test:
    """At `x`, `series` is between `least` and `most` of the other."""

    def test(table: Table) -> Finding:
        mine, theirs = (table.curve(label, measure).at(x) for label in (series, of))
        return Finding(least * theirs <= mine <= most * theirs, {series: mine, of: theirs, "part": mine / theirs})

    return test


def below(series: str, other: str, measure: Measure, factor: float = 1.0) -> Test:
    """At every x, no more than `factor` of the other."""

    def test(table: Table) -> Finding:
        mine, theirs = (table.curve(label, measure).mean for label in (series, other))
        parts = mine / theirs
        return Finding(bool((parts <= factor).all()), {"least part": float(parts.min()), "most": float(parts.max())})

    return test


def clearly_below(series: str, other: str, measure: Measure, by: float = 0.05) -> Test:
    """At every x below the other, by a twentieth of it and by more than the 95 % intervals of both."""

    def test(table: Table) -> Finding:
        mine, theirs = table.curve(series, measure), table.curve(other, measure)
        gap = theirs.mean - mine.mean
        parts = mine.mean / theirs.mean
        passed = (gap > by * theirs.mean) & (gap > _margin(table, mine) + _margin(table, theirs))
        return Finding(bool(passed.all()), {"least part": float(parts.min()), "most": float(parts.max())})

    return test


def crosses(series: str, other: str, measure: Measure, x: float) -> Test:
    """Below the other before `x`, and above it beyond."""

    def test(table: Table) -> Finding:
        curve, parts = (
            table.curve(series, measure),
            table.curve(series, measure).mean / table.curve(other, measure).mean,
        )
        before, beyond = parts[curve.x < x], parts[curve.x > x]
        named = {f"{series} / {other} at {at:g}": float(part) for at, part in zip(curve.x, parts, strict=True)}
        return Finding(bool((before < 1).all() and (beyond > 1).all()), named)

    return test


def about_times(series: str, other: str, measure: Measure, times: float, factor: float = 2.0) -> Test:
    """At every x about so many times the other: half and twice as many still are."""

    def test(table: Table) -> Finding:
        parts = table.curve(series, measure).mean / table.curve(other, measure).mean
        least, most = float(parts.min()), float(parts.max())
        return Finding(times / factor <= least and most <= times * factor, {"least times": least, "most": most})

    return test


def alike(series: str, other: str, measure: Measure, factor: float) -> Test:
    """At every x the same, but for a factor either way."""

    def test(table: Table) -> Finding:
        parts = table.curve(series, measure).mean / table.curve(other, measure).mean
        least, most = float(parts.min()), float(parts.max())
        return Finding(1 / factor <= least and most <= factor, {"least part": least, "most": most})

    return test


def part_falls(series: str, other: str, measure: Measure) -> Test:
    """The part it is of the other is less at the last x than at the first."""

    def test(table: Table) -> Finding:
        parts = table.curve(series, measure).mean / table.curve(other, measure).mean
        first, last = float(parts[0]), float(parts[-1])
        return Finding(last < first, {"part at first": first, "at last": last})

    return test


def small_beside(series: str, part: Measure, whole: Measure, limit: float = 0.1) -> Test:
    """At every x, `part` is at most a tenth of `whole`."""

    def test(table: Table) -> Finding:
        parts = table.curve(series, part).mean / table.curve(series, whole).mean
        return Finding(bool((parts <= limit).all()), {"largest part": float(parts.max())})

    return test


def bounded(limits: Mapping[str, float], measure: Measure) -> Test:
    """Over time, each of these never rises above its limit."""

    def test(table: Table) -> Finding:
        measured = {label: float(table.curve(label, measure).mean.max()) for label in limits}
        return Finding(all(measured[label] <= limit for label, limit in limits.items()), measured)

    return test


def grows_to(label: str, measure: Measure, least: float) -> Test:
    """Over time, it ends at no less than `least`."""

    def test(table: Table) -> Finding:
        end = float(table.curve(label, measure).mean[-1])
        return Finding(end >= least, {label: end})

    return test


def behind(label: str, measure: Measure, least: float) -> Test:
    """On average over the second half of the time, no less than `least`: more than the burst that it ends in."""

    def test(table: Table) -> Finding:
        values = table.curve(label, measure).mean
        late = float(values[values.size // 2 :].mean())
        return Finding(late >= least, {label: late, "at the end": float(values[-1])})

    return test


def reaches(label: str, measure: Measure, least: float) -> Test:
    """Over time, it is once no less than `least`."""

    def test(table: Table) -> Finding:
        most = float(table.curve(label, measure).mean.max())
        return Finding(most >= least, {label: most})

    return test


def ends_about(label: str, measure: Measure, value: float, factor: float = 1.5) -> Test:
    """Over time, it ends at `value` but for a factor."""

    def test(table: Table) -> Finding:
        end = float(table.curve(label, measure).mean[-1])
        return Finding(value / factor <= end <= value * factor, {label: end})

    return test


def steeper(labels: Sequence[str], measure: Measure) -> Test:
    """Over time, each of these ends above the one before."""

    def test(table: Table) -> Finding:
        measured = {label: float(table.curve(label, measure).mean[-1]) for label in labels}
        return Finding(bool((np.diff(list(measured.values())) > 0).all()), measured)

    return test


def ends_equal(labels: Sequence[str], measure: Measure, tolerance: float = 0.02) -> Test:
    """Over time, all end at the same value but for two in a hundred."""

    def test(table: Table) -> Finding:
        measured = {label: float(table.curve(label, measure).mean[-1]) for label in labels}
        ends = list(measured.values())
        return Finding(max(ends) - min(ends) <= tolerance * max(ends), measured)

    return test


def oscillates(label: str, measure: Measure, low: float, high: float, times: int = 4) -> Test:
    """Over time, it rises above `high` and falls below `low` again at least `times` times."""

    def test(table: Table) -> Finding:
        values = table.curve(label, measure).mean
        ends = np.where(values > high, 1, np.where(values < low, -1, 0))
        waves = int(np.count_nonzero(np.diff(ends[ends != 0]) < 0))
        return Finding(waves >= times, {"waves": waves, "least": float(values.min()), "most": float(values.max())})

    return test


def gap_grows(series: str, other: str, measure: Measure, factor: float = 1.5) -> Test:
    """The other is above, and at the end by `factor` times as much as at the beginning or more."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        gaps = table.curve(other, measure).mean - curve.mean
        first, last = float(gaps[0]), float(gaps[-1])
        named = {f"gap at {curve.x[0]:g}": first, f"at {curve.x[-1]:g}": last}
        return Finding(bool((gaps >= 0).all()) and last > factor * max(first, 0) and last > 0, named)

    return test


def grows_less(series: str, other: str, measure: Measure, part: float = 0.5) -> Test:
    """From the first x to the last, it grows by at most `part` of what the other grows by."""

    def test(table: Table) -> Finding:
        means = {label: table.curve(label, measure).mean for label in (series, other)}
        growth = {f"growth of {label}": float(mean[-1] - mean[0]) for label, mean in means.items()}
        mine, theirs = growth.values()
        return Finding(theirs > 0 and mine <= part * theirs, growth)

    return test


def cells(measure: Measure, least: float, most: float, limit: float = 1.0) -> Test:
    """Over all series and x, the share of the values that are below `limit` is between `least` and `most`."""

    def test(table: Table) -> Finding:
        values = np.concatenate([curve.mean for (_, name), curve in table.curves.items() if name == measure.name])
        share = float((values < limit).mean())
        return Finding(least <= share <= most, {f"share below {limit:g}": share, "best": float(values.min())})

    return test


def in_band(label: str, measure: Measure, width: float) -> Test:
    """Over time, a line with a band about it: no further apart than `width`, and as wide late as early."""

    def test(table: Table) -> Finding:
        curve = table.curve(label, measure)
        off = curve.mean - np.polyval(np.polyfit(curve.x, curve.mean, 1), curve.x)
        widths = [float(np.ptp(half)) for half in np.array_split(off, 2)]
        measured = {"width of the first half": widths[0], "of the second": widths[1]}
        return Finding(max(widths) <= 1.05 * width and min(widths) >= 0.5 * width, measured)

    return test


def in_blocks(label: str, measure: Measure, size: float) -> Test:
    """Over time, blocks of `size` one after the other, and no order within them."""

    def test(table: Table) -> Finding:
        values = table.curve(label, measure).mean
        blocks = values // size
        inside = [np.corrcoef(np.arange(some.size), some)[0, 1] for some in _split(values, blocks) if some.size > 9]
        measured = {"blocks": float(np.unique(blocks).size), "mean correlation inside": float(np.mean(inside))}
        return Finding(bool((np.diff(blocks) >= 0).all()) and abs(measured["mean correlation inside"]) < 0.2, measured)

    return test


def _split(values: Seconds, by: Seconds) -> list[Seconds]:
    return np.split(values, np.flatnonzero(np.diff(by)) + 1)


def _numbers(curve: Curve, xs: Sequence[float]) -> dict[str, float]:
    return {f"at {x:g}": curve.at(x) for x in xs}


def _rises(curve: Curve, sign: int, slack: float, by: float) -> Finding:
    first, last = float(curve.mean[0]), float(curve.mean[-1])
    steps = np.diff(curve.mean) * sign
    passed = sign * (last - first) > by * abs(first) and bool((steps >= -slack * curve.mean[:-1]).all())
    return Finding(passed, {f"at {curve.x[0]:g}": first, f"at {curve.x[-1]:g}": last})


def _margin(table: Table, curve: Curve) -> Seconds:
    """Half of the intervals; none where too few seeds were run to tell them."""
    return curve.margin if table.seeds >= FEWEST_SEEDS else np.zeros_like(curve.margin)


def _swing(values: Seconds) -> float:
    return float(np.abs(np.diff(values)).sum() / values.mean())
