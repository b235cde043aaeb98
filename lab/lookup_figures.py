"""Semi-stream joins: what a front stage gains, and load shedding (spec semi-stream-joins §3, Figs 5 to 9).

What is judged is the spec's reproduction at 100,000 rows; the numbers of the source stand beside. Where the spec says
that the source's cannot come out of an I/O model, they do not, and the remark says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lab import shapes
from lab.experiments import Check, Experiment, Finding, OverTime, Series, Sweep, Table, Test
from lab.lookups import (
    BACK_RATE,
    FRONT_RATE,
    GAIN,
    HIT,
    IDEAL,
    MODEL,
    PER_READ,
    PROCESSING,
    RATE,
    Data,
    Growing,
    Looking,
    Overloaded,
    Sharing,
)
from lab.measures import WALL, Measure
from lab.workloads.zipf import Placement

SCALE = 1 / 1000
"""100,000 rows for the source's 100 million."""
SEEDS = 5

MESH, HYBRID = Looking("mesh", of=100e6), Looking("hybrid", of=100e6)
_X = 0.15
"""The cache's part of the memory."""
_FAMILIES = ("MESHJOIN", "HYBRIDJOIN")
_ALL = ("MESHJOIN", "CMESHJOIN", "HYBRIDJOIN", "CHYBRIDJOIN", "INLJ", "CINLJ")
_BOTH = (PER_READ, RATE, WALL)
_ZIPF = "Zipf stream of exponent 1 over a table of 100 M rows of 120 bytes, frequent keys anywhere"


def four(**fields: Any) -> tuple[Series, ...]:
    """MESHJOIN and HYBRIDJOIN, without a front stage and with one."""
    return tuple(
        Series(f"{prefix}{name}", replace(trial, cache=cache, **fields))
        for name, trial in zip(_FAMILIES, (MESH, HYBRID), strict=True)
        for prefix, cache in (("", 0.0), ("C", _X))
    )


def sweep(label: str, name: str, *values: float, axis: Literal["linear", "log"] = "linear", unit: float = 1.0) -> Sweep:
    """An axis over one field of a run."""
    return Sweep(label, values, lambda trial, value: replace(trial, **{name: value * unit}), axis)


def times(name: str, x: float, value: float, reported: float | None = None, tolerance: float = 0.1) -> Check:
    """So many times as many tuples per read with a front stage, within ten in a hundred."""
    return Check(
        f"C{name} at {x:g}",
        f"C{name} {value:g} × {name} at {x:g} (±{tolerance:.0%}).",
        shapes.part_of(f"C{name}", name, PER_READ, x, value * (1 - tolerance), value * (1 + tolerance)),
        thesis={} if reported is None else {"part": reported},
    )


def reported(name: str, x: float, value: float) -> Check:
    """The front stage gains; how much the source reports stands beside."""
    return Check(
        f"C{name} ahead at {x:g}",
        f"C{name} ahead of {name} at {x:g}.",
        shapes.part_of(f"C{name}", name, RATE, x, 1.0, np.inf),
        thesis={"part": value},
    )


def by_model(name: str, tolerance: float = 0.1) -> Check:
    """F15: as the gain model says."""
    return Check(f"G of {name}", f"C{name} gains what G says (±{tolerance:.0%}).", gains_as_modelled(name, tolerance))


def gains_as_modelled(name: str, tolerance: float) -> Test:
    """At every x the ratio of tuples per read is G, but for a tolerance."""

    def test(table: Table) -> Finding:
        plain, cached = (table.curve(label, PER_READ).mean for label in (name, f"C{name}"))
        curve = table.curve(f"C{name}", GAIN)
        off = cached / plain / curve.mean
        shown = {f"part of G at {x:g}": float(value) for x, value in zip(curve.x, off, strict=True)}
        return Finding(bool((np.abs(off - 1) <= tolerance).all()), shown)

    return test


def ratio_rises(name: str, measure: Measure = PER_READ) -> Test:
    """What the front stage gains is more at the last x than at the first."""

    def test(table: Table) -> Finding:
        parts = table.curve(f"C{name}", measure).mean / table.curve(name, measure).mean
        return Finding(bool(parts[-1] > parts[0]), {"times at first": float(parts[0]), "at last": float(parts[-1])})

    return test


def gain_changes(name: str, times: float, tolerance: float = 0.1) -> Test:
    """What the front stage gains is so many times as much at the last x as at the first, but for a tolerance."""

    def test(table: Table) -> Finding:
        gains = table.curve(f"C{name}", RATE).mean / table.curve(name, RATE).mean
        change = float(gains[-1] / gains[0])
        shown = {"gain at first": float(gains[0]), "at last": float(gains[-1]), "at last / at first": change}
        return Finding(abs(change / times - 1) <= tolerance, shown)

    return test


def most_times(series: str, other: str, measure: Measure, times: float, tolerance: float) -> Test:
    """Where it is most times the other, it is so many times it, but for a tolerance."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        parts = curve.mean / table.curve(other, measure).mean
        shown = {f"times at {x:g}": float(part) for x, part in zip(curve.x, parts, strict=True)}
        return Finding(abs(float(parts.max()) / times - 1) <= tolerance, {**shown, "most": float(parts.max())})

    return test


def as_targeted(series: str, measure: Measure, values: Sequence[float], tolerance: float) -> Test:
    """At each x its value relative to that at the first, but for a tolerance."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        parts = curve.mean / curve.mean[0]
        off = np.abs(parts / np.array(values) - 1)
        shown = {f"at {x:g}": float(part) for x, part in zip(curve.x, parts, strict=True)}
        return Finding(bool((off <= tolerance).all()), shown)

    return test


def highest_between(series: str, measure: Measure, low: float, high: float) -> Test:
    """The most is at an x in between."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        place = float(curve.x[int(np.argmax(curve.mean))])
        return Finding(low <= place <= high, {"most at": place, "there": float(curve.mean.max())})

    return test


def clearly_ahead(series: str, other: str, measure: Measure, x: float) -> Test:
    """At x more than the other, by more than the 95 % intervals of both: what is less may be chance."""

    def test(table: Table) -> Finding:
        curves = table.curve(series, measure), table.curve(other, measure)
        (mine, margin), (theirs, their_margin) = (curve.interval(x) for curve in curves)
        shown = {series: mine, other: theirs, "part": mine / theirs, "intervals": margin + their_margin}
        return Finding(mine - theirs > margin + their_margin, shown)

    return test


def clearly_best(series: str, measure: Measure, x: float) -> Test:
    """At x more than at any other, by more than the 95 % intervals of both."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        mean, margin = curve.interval(x)
        others = ~np.isclose(curve.x, x)
        place = float(curve.x[int(np.argmax(curve.mean))])
        shown = {"most at": place, "there": float(curve.mean.max()), f"at {x:g}": mean, "interval": margin}
        return Finding(bool((mean - margin > (curve.mean + curve.margin)[others]).all()), shown)

    return test


def hump(series: str, measure: Measure, over: float = 0.0) -> Test:
    """Higher inside than at both ends, by a part of them."""

    def test(table: Table) -> Finding:
        mean = table.curve(series, measure).mean
        ends = float(max(mean[0], mean[-1]))
        shown = {"first": float(mean[0]), "most": float(mean.max()), "last": float(mean[-1])}
        return Finding(float(mean[1:-1].max()) > (1 + over) * ends, shown)

    return test


def near_flat(series: str, measure: Measure, since: float, factor: float) -> Test:
    """From x = `since` on, the most is no more than `factor` times the least."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        some = curve.mean[curve.x >= since]
        least, most = float(some.min()), float(some.max())
        return Finding(most <= factor * least, {"least": least, "most": most, "times": most / least})

    return test


def part_grows(series: str, other: str, measure: Measure) -> Test:
    """At each x it is more times the other than at the x before."""

    def test(table: Table) -> Finding:
        curve = table.curve(series, measure)
        parts = curve.mean / table.curve(other, measure).mean
        shown = {f"times at {x:g}": float(part) for x, part in zip(curve.x[:-1], parts[:-1], strict=True)}
        return Finding(bool((np.diff(parts) > 0).all()), {**shown, "times at last": float(parts[-1])})

    return test


def close(labels: Sequence[str], measure: Measure, to: Measure, tolerance: float) -> Test:
    """For all series and x, one measure is the other but for a tolerance."""

    def test(table: Table) -> Finding:
        off = {
            label: float(np.abs(table.curve(label, to).mean / table.curve(label, measure).mean - 1).max())
            for label in labels
        }
        return Finding(max(off.values()) <= tolerance, off)

    return test


def answers_more(series: str, other: str) -> Test:
    """At every x the front stage of one has a greater part of the stream than that of the other."""

    def test(table: Table) -> Finding:
        mine, theirs = (table.curve(label, HIT) for label in (series, other))
        shown = {
            f"{name} at {x:g}": float(value)
            for name, curve in ((other, theirs), (series, mine))
            for x, value in zip(curve.x, curve.mean, strict=True)
        }
        return Finding(bool((mine.mean > theirs.mean).all()), shown)

    return test


def recovers(series: str, control: str, part: float) -> Test:
    """Over time, the last tenth is no less than a part of the control's."""

    def test(table: Table) -> Finding:
        mine, theirs = (table.curve(label, RATE).mean for label in (series, control))
        last = max(1, mine.size // 10)
        ends = float(mine[-last:].mean()), float(theirs[-last:].mean())
        return Finding(ends[0] >= part * ends[1], {"grown": ends[0], "from the beginning": ends[1]})

    return test


_MEMORY = sweep("memory M [% of R]", "memory", 1, 3, 10)
_LITTLE_AND_MUCH = sweep("memory M [% of R]", "memory", 1, 10)
_TABLE = sweep("table |R| [M rows]", "rows", 20, 60, 100, unit=1e6)
_GAP = (
    "The source's 6.5 and 4 are beyond what an I/O model allows (G = 3.9 and 2.5 for 100 M rows), and the ideal gain "
    "grows with |R|: at 100,000 rows it is less."
)

_SLOW = "M 1 %, long intervals"
"""Ten times as many tuples in an interval: what is in the cache can be used for as much longer."""

_TOGETHER = ", keys together"
_OVERLOADED = Overloaded("hybrid", cache=_X, partition=1e6, settling=5)
"""At 5.2 times the load it takes five rounds until what comes again is as much as what is put aside."""


def _choosing(where: str, placement: Placement) -> tuple[Series, Series]:
    """HYBRIDJOIN without a front stage and with one, where rows are shed."""
    plain = Overloaded("hybrid", memory=5, partition=250e3, load=4, placement=placement)
    return Series(f"HYBRIDJOIN{where}", plain), Series(f"CHYBRIDJOIN{where}", replace(plain, cache=_X))


_INLJ = (
    Series("INLJ", replace(Looking("inlj"), of=100e6)),
    Series("CINLJ", replace(Looking("inlj"), of=100e6, cache=_X)),
)


def ahead_everywhere(measure: Measure = RATE, names: Sequence[str] = _FAMILIES) -> tuple[Check, ...]:
    """Cached variants win at every x."""
    return tuple(
        Check(f"C{name} ahead", f"C{name} ahead of {name} everywhere.", shapes.below(name, f"C{name}", measure))
        for name in names
    )


def over_memory(data: Data, rows: float) -> tuple[Series, ...]:
    """The four joins on other data."""
    return four(data=data, rows=rows, of=rows)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        id="lookup-5a",
        title="Service rate over memory",
        series=four(),
        x=_MEMORY,
        measures=(*_BOTH, GAIN),
        expected=(
            times("MESHJOIN", 10, 2.32, 6.5),
            times("HYBRIDJOIN", 10, 2.39, 2.8),
            reported("MESHJOIN", 1, 4),
            reported("HYBRIDJOIN", 1, 2.4),
            by_model("MESHJOIN"),
            by_model("HYBRIDJOIN"),
            Check("more with memory", "CMESHJOIN gains more with more memory.", ratio_rises("MESHJOIN")),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams=_ZIPF,
        remark=_GAP,
    ),
    Experiment(
        id="lookup-5b",
        title="Service rate over the size of the table, M 1.12 GB",
        series=four(),
        x=_TABLE,
        measures=(*_BOTH, GAIN),
        expected=(
            reported("MESHJOIN", 20, 4.7),
            reported("HYBRIDJOIN", 20, 3),
            by_model("MESHJOIN"),
            by_model("HYBRIDJOIN"),
            Check(
                "CMESHJOIN gains more",
                "What CMESHJOIN gains grows with |R| (4.7 times at 20 M, 6.5 at 100 M).",
                gain_changes("MESHJOIN", 6.5 / 4.7),
                thesis={"at last / at first": 6.5 / 4.7},
            ),
            Check(
                "CHYBRIDJOIN gains less",
                "What CHYBRIDJOIN gains falls a little with |R| (3 times at 20 M, 2.8 at 100 M).",
                gain_changes("HYBRIDJOIN", 2.8 / 3),
                thesis={"at last / at first": 2.8 / 3},
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1, 1.12 GB of memory",
        remark=_GAP + " With less of a table in memory the cache holds less of its stream: that CMESHJOIN's gain grows "
        "from 20 M to 100 M, as reported, no model of I/O says.",
    ),
    Experiment(
        id="lookup-5c",
        title="INLJ and CINLJ over the size of the table",
        series=(*_INLJ, *four()),
        x=_TABLE,
        measures=(RATE, WALL),
        expected=(
            Check(
                "2.5 times",
                "CINLJ up to 2.5 × INLJ: so much where it is most (±20 %).",
                most_times("CINLJ", "INLJ", RATE, 2.5, 0.2),
                thesis={"most": 2.5},
            ),
            *(
                Check(
                    f"far below {name}",
                    f"CINLJ, and so INLJ, far below {name} (a tenth at most).",
                    shapes.below("CINLJ", name, RATE, 0.1),
                )
                for name in _ALL[:4]
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1, 1.12 GB of memory",
        remark="As much memory caches more of a smaller table: the gain is 4.1, 3.2 and 3.0 at 20, 60 and 100 M rows. "
        "The source's 2.5, within 20 %, is that of 100 M.",
    ),
    Experiment(
        id="lookup-5d",
        title="Service rate over skew",
        series=four(),
        x=sweep("exponent of Zipf's law", "exponent", 0, 0.5, 1),
        measures=(PER_READ, HIT, RATE, WALL),
        expected=(
            times("HYBRIDJOIN", 0, 0.86),
            times("HYBRIDJOIN", 0.5, 0.95),
            times("HYBRIDJOIN", 1, 2.39, 2.8),
            times("MESHJOIN", 1, 2.32, 6.5),
            Check(
                "hit share",
                "CHYBRIDJOIN's front stage answers 0.01, 0.11, 0.64 (±0.03).",
                shapes.within_points("CHYBRIDJOIN", HIT, (0.01, 0.11, 0.64), 0.03),
            ),
            Check(
                "worse without skew",
                "CMESHJOIN slightly worse than MESHJOIN at 0.",
                shapes.part_of("CMESHJOIN", "MESHJOIN", RATE, 0, 0.7, 1.0),
            ),
            Check("MESHJOIN flat", "MESHJOIN no better with skew.", shapes.flat("MESHJOIN", RATE, 1, 1.05)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream over a table of 100 M rows of 120 bytes, frequent keys anywhere, M 10 %",
        remark=_GAP + " MESHJOIN's slight dip is not there: expiring a row takes the same whatever its key.",
    ),
    Experiment(
        id="lookup-5e",
        title="TPC-H-like orders and customers over memory",
        series=(
            *over_memory("tpch", 20e6),
            Series("MESHJOIN, even", replace(MESH, data="even orders", rows=20e6, of=20e6)),
            Series("CMESHJOIN, even", replace(MESH, data="even orders", rows=20e6, of=20e6, cache=_X)),
        ),
        x=_LITTLE_AND_MUCH,
        measures=(*_BOTH, GAIN),
        expected=(
            reported("MESHJOIN", 1, 3.7),
            reported("HYBRIDJOIN", 1, 2.5),
            *ahead_everywhere(),
            by_model("MESHJOIN"),
            Check(
                "nothing if even",
                "Nothing to gain where orders are even over customers, as TPC-H's own are.",
                shapes.below("CMESHJOIN, even", "MESHJOIN, even", RATE),
            ),
        ),
        scale=5 * SCALE,
        seeds=SEEDS,
        streams="20 M customers of 223 bytes, orders of 138 bytes, Zipf of exponent 1 or even",
        remark="TPC-H's orders are even over its customers, which cannot explain 3.7 times: both are run.",
    ),
    Experiment(
        id="lookup-5f",
        title="Cloud reports (a stand-in) over memory",
        series=over_memory("lon", 20e6),
        x=_LITTLE_AND_MUCH,
        measures=(*_BOTH, GAIN),
        expected=ahead_everywhere(),
        scale=5 * SCALE,
        seeds=SEEDS,
        streams="longitudes, both sides of 128 bytes, Zipf of exponent 1: made up, the recorded reports are not here",
        remark="Keys are not unique: the front stage keeps all rows of a key or none. With M 1 % a chunk of CMESHJOIN "
        "is 3 rows where 3.99 would fit, so that a quarter is lost to rounding.",
    ),
    Experiment(
        id="lookup-5g",
        title="Temporal locality: rows per key",
        series=tuple(
            Series(
                f"{prefix}MESHJOIN, {label}", replace(MESH, data="local", memory=memory, stretch=stretch, cache=cache)
            )
            for label, memory, stretch in (("M 1 %", 1.0, 1), ("M 3 %", 3.0, 1), (_SLOW, 1.0, 10))
            for prefix, cache in (("", 0.0), ("C", _X))
        ),
        x=Sweep("rows per key N", (1, 5, 20), lambda trial, value: replace(trial, per_key=int(value))),
        measures=(RATE, PER_READ, HIT, WALL),
        expected=(
            Check(
                "ahead at 1, M 1 %",
                "CMESHJOIN ahead at N = 1.",
                shapes.part_of("CMESHJOIN, M 1 %", "MESHJOIN, M 1 %", RATE, 1, 1.0, np.inf),
                thesis={"part": 6.5},
            ),
            Check(
                "ahead at 20, M 1 %",
                "CMESHJOIN ahead at N = 20.",
                shapes.part_of("CMESHJOIN, M 1 %", "MESHJOIN, M 1 %", RATE, 20, 1.0, np.inf),
                thesis={"part": 10},
            ),
            Check(
                "ahead at 20, M 3 %",
                "CMESHJOIN ahead at N = 20, M 3 %.",
                shapes.part_of("CMESHJOIN, M 3 %", "MESHJOIN, M 3 %", RATE, 20, 1.0, np.inf),
                thesis={"part": 10},
            ),
            Check("MESHJOIN falls", "MESHJOIN falls with N.", shapes.falls("MESHJOIN, M 1 %", RATE)),
            Check("CMESHJOIN falls", "CMESHJOIN falls with N.", shapes.falls("CMESHJOIN, M 1 %", RATE)),
            Check(
                "ahead if slower",
                "The reason: with intervals ten times as long CMESHJOIN is ahead at N = 1.",
                shapes.part_of(f"CMESHJOIN, {_SLOW}", f"MESHJOIN, {_SLOW}", RATE, 1, 1.0, np.inf),
                kind="reason",
            ),
            Check(
                "more hits if slower",
                "The reason: the front stage then answers more at every N.",
                answers_more(f"CMESHJOIN, {_SLOW}", "CMESHJOIN, M 1 %"),
                kind="reason",
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="50 M tuples in 25 (long: 2.5) intervals, each with its own 25th of the keys, N rows of each in 100 M",
        remark="At the source's M of 10 % 40 of its 50 M tuples would wait at a time, so M is 1 and 3 % here. An "
        "interval is over before the cursor has come round: few frequent keys are cached while they are asked for. "
        "With intervals ten times as long, in a stream of the same length, more of them are.",
    ),
    Experiment(
        id="lookup-6",
        title="Processing time over the size of the table",
        series=four(),
        x=_TABLE,
        measures=(PROCESSING, WALL),
        expected=(
            *(
                Check(
                    f"C{name} lower",
                    f"Processing time of C{name} much lower (at most 0.6 of {name}'s).",
                    shapes.below(f"C{name}", name, PROCESSING, 0.6),
                )
                for name in _FAMILIES
            ),
            Check(
                "gap widens",
                "The gap widens with |R| for CMESHJOIN.",
                shapes.gap_grows("CMESHJOIN", "MESHJOIN", PROCESSING),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1, 1.12 GB of memory",
        remark="Seconds of the virtual clock, from when a tuple is taken until it is answered, without idle time.",
    ),
    Experiment(
        id="lookup-7",
        title="Which waiting row chooses what is read while rows are shed",
        series=(*_choosing("", "random"), *_choosing(_TOGETHER, "local")),
        x=sweep("place in the queue, 0 the newest", "position", 0, 0.15, 0.3, 0.5, 0.75, 1),
        measures=_BOTH,
        expected=(
            Check(
                "hump without cache",
                "A hump without a front stage (5 % over both ends).",
                hump("HYBRIDJOIN", PER_READ, 0.05),
            ),
            Check(
                "near-flat with it",
                "Near-flat with one, but for the newest: from 15 % on within 10 %.",
                near_flat("CHYBRIDJOIN", PER_READ, 0.15, 1.1),
            ),
            Check(
                "best at 15 %",
                "Best at 15 %, by more than the intervals.",
                clearly_best("CHYBRIDJOIN", PER_READ, 0.15),
                thesis={"most at": 0.15},
            ),
            Check(
                "hump if together",
                "A hump without a front stage also where frequent keys lie together.",
                hump(f"HYBRIDJOIN{_TOGETHER}", PER_READ),
            ),
            Check(
                "near-flat if together",
                "Near-flat with one where they do: from 15 % on within 10 % (1.02 to 1.03 times simulated).",
                near_flat(f"CHYBRIDJOIN{_TOGETHER}", PER_READ, 0.15, 1.1),
            ),
        ),
        scale=SCALE / 10,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1 over a table of 100 M rows, M 5 %, 400 partitions, 4 times what is "
        "finished; frequent keys anywhere, or together in the first partitions",
        remark="The source's best place, 15 %, is not the best in the spec's own simulation either: the cache absorbs "
        "the frequent keys that make the place matter.",
    ),
    Experiment(
        id="lookup-8",
        title="Service rate under overload",
        series=(
            Series("considering, tuned", _OVERLOADED),
            Series("considering, oldest", replace(_OVERLOADED, position=1)),
            Series("keep", replace(_OVERLOADED, policy="keep")),
            Series("no shedding", replace(_OVERLOADED, policy="none")),
            Series("MESHJOIN, keep", Overloaded("mesh", partition=1e6, policy="keep")),
            Series("considering, tuned, paid: disk", replace(_OVERLOADED, to="disk")),
            Series("considering, tuned, paid: network", replace(_OVERLOADED, to="network")),
        ),
        x=sweep("arrivals / service rate without shedding", "load", 1.3, 2.6, 5.2),
        measures=_BOTH,
        expected=(
            Check(
                "gain grows with overload",
                "What considering gains over keep grows with overload (1.08, 1.88, 3.13 simulated).",
                part_grows("considering, oldest", "keep", RATE),
                thesis={"times at last": 3.1},
            ),
            Check(
                "three times keep",
                "3.13 × keep at 5.2 times the load (±15 %).",
                shapes.part_of("considering, oldest", "keep", PER_READ, 5.2, 2.66, 3.6),
                thesis={"part": 3.1},
            ),
            Check("rises", "Service rate rises under shedding.", shapes.rises("considering, oldest", RATE)),
            Check(
                "tuned ahead",
                "Tuned (15 %) ahead of untuned, by more than the intervals of both.",
                clearly_ahead("considering, tuned", "considering, oldest", RATE, 5.2),
                thesis={"part": 1.33},
            ),
            Check("MESHJOIN lowest", "MESHJOIN lowest.", shapes.below("MESHJOIN, keep", "no shedding", RATE)),
            Check(
                "network ahead",
                "Faster with a network to put rows aside to than with the table's disk.",
                clearly_ahead("considering, tuned, paid: network", "considering, tuned, paid: disk", RATE, 5.2),
            ),
        ),
        scale=SCALE / 5,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1 over a table of 100 M rows, M 10 %, 100 partitions, one read per arrival",
        remark="In the source keep loses its tuples; here what is put aside comes again, and to write and read it "
        "takes nothing but where the name says paid. The 33 % of tuning are not there in the spec's own simulation "
        "either: at M 10 % with a cache the oldest was ahead of 15 % by 1 to 5 %.",
    ),
    Experiment(
        id="lookup-9a",
        title="The front stage's part of the memory",
        series=(Series("CMESHJOIN", MESH),),
        x=sweep("part of M", "cache", 0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
        measures=(*_BOTH, HIT),
        expected=(
            Check(
                "most at 10–20 %",
                "The most at 10 to 20 % (15 % reported).",
                highest_between("CMESHJOIN", PER_READ, 0.1, 0.2),
                thesis={"most at": 0.15},
            ),
            Check(
                "as simulated",
                "1, 2.11, 2.27, 2.32, 2.31, 2.18, 1.65, 0.62 times none (±10 %).",
                as_targeted("CMESHJOIN", PER_READ, (1, 2.11, 2.27, 2.32, 2.31, 2.18, 1.65, 0.62), 0.1),
            ),
            Check(
                "75 % beats none",
                "75 % still beats none.",
                lambda table: _beats(table, "CMESHJOIN", 0.75, 0),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams=_ZIPF + ", M 10 %",
        remark="That 75 % still beats none agrees with G at 100 M rows (1.8 times) and cannot at 100,000 (0.76).",
    ),
    Experiment(
        id="lookup-9a-low",
        title="The front stage's part of little memory",
        series=(Series("CMESHJOIN", replace(MESH, memory=1.0, partition=100e3)),),
        x=sweep("part of M", "cache", 0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5),
        measures=(*_BOTH, HIT),
        expected=(
            Check("hump", "A hump.", hump("CMESHJOIN", PER_READ)),
            Check(
                "as simulated",
                "1, 1.77, 1.83, 1.82, 1.78, 1.58, 1.15 times none (±5 %).",
                as_targeted("CMESHJOIN", PER_READ, (1, 1.77, 1.83, 1.82, 1.78, 1.58, 1.15), 0.05),
            ),
        ),
        scale=10 * SCALE,
        seeds=SEEDS,
        streams=_ZIPF + ", M 1 %, 1,000 partitions",
        remark="A million rows, ten times as many as elsewhere: in 1 % of 100,000 a chunk would be of a few rows only.",
    ),
    Experiment(
        id="lookup-9b",
        title="The threshold of the front stage",
        series=(Series("CMESHJOIN", replace(MESH, cache=_X, adaptive=False)),),
        x=Sweep("threshold", (40, 20, 10, 1), lambda trial, value: replace(trial, threshold=int(value))),
        measures=(FRONT_RATE, HIT, WALL),
        expected=(
            Check("rises", "Front-stage rate rises as the threshold falls.", shapes.rises("CMESHJOIN", FRONT_RATE)),
            Check(
                "plateau",
                "A plateau once the cache is full (10 to 1).",
                shapes.within_points("CMESHJOIN", HIT, (0.469, 0.553, 0.641, 0.641), 0.05),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams=_ZIPF + ", M 10 %",
    ),
    Experiment(
        id="lookup-9c",
        title="The size of the disk buffer",
        series=(Series("CMESHJOIN", replace(MESH, cache=_X, shrunk=False)),),
        x=sweep("disk buffer b [rows]", "partition", 102, 340, 1020, 3400, 6800, axis="log"),
        measures=(BACK_RATE, MODEL, WALL),
        expected=(Check("hump", "A hump.", hump("CMESHJOIN", BACK_RATE, 0.05)),),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1 over a table of 100,000 rows of 120 bytes, M 10 %",
        remark="A table of 100,000 rows on a disk that is not shrunk, and a millisecond for each request: with small "
        "buffers that counts, with large ones the room they take from the rows that wait. At the source's M of 1 % a "
        "chunk would be of one to four rows here, so M is 10 %.",
    ),
    Experiment(
        id="lookup-9d",
        title="What the front stage answers over 1,000 iterations",
        series=(Series("CMESHJOIN", Sharing("mesh", cache=_X)),),
        x=OverTime("iterations", seconds=1),
        measures=(replace(HIT, panel="part of the stream"), replace(IDEAL, panel="part of the stream"), WALL),
        expected=(
            Check(
                "half of the stream",
                "About 51 % of the stream through the front stage (±10 %).",
                shapes.ends_about("CMESHJOIN", HIT, 0.51, 1.1),
                thesis={"CMESHJOIN": 0.51},
            ),
            Check(
                "near the ideal",
                "Within 3 points of H(h_R) / H(n) in the end.",
                lambda table: _near(table, "CMESHJOIN", 0.03),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams=_ZIPF + ", M 10 %",
        remark="The rows that fit into 15 % of the memory are asked for by 0.647 of the stream, and that is what the "
        "cache answers once it is full. The source's 51 % is less than so many rows can do.",
    ),
    Experiment(
        id="lookup-9e",
        title="The table grows from 50 M to 100 M rows while it is joined",
        series=(
            Series("CMESHJOIN, grows", Growing("mesh", cache=_X)),
            Series("CMESHJOIN, 100 M", Growing("mesh", cache=_X, online=False)),
            Series("MESHJOIN, grows", Growing("mesh")),
        ),
        x=OverTime("tuples so far [M]", seconds=1e6),
        measures=(RATE, WALL),
        expected=(
            Check(
                "recovers",
                "In the end as fast as with 100 M rows from the beginning (at least 0.95).",
                recovers("CMESHJOIN, grows", "CMESHJOIN, 100 M", 0.95),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1 that asks for rows that are there, 1.12 GB of memory, 10 M rows at a time",
    ),
    Experiment(
        id="lookup-9f",
        title="Cost models against measurement",
        series=(*four(), *_INLJ),
        x=_TABLE,
        measures=(RATE, MODEL, WALL),
        expected=(
            Check(
                "close",
                "Virtual clock and cost model within 5 %.",
                close(_ALL, RATE, MODEL, 0.05),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        streams="Zipf stream of exponent 1, 1.12 GB of memory",
    ),
)


def _beats(table: Table, series: str, x: float, other: float) -> Finding:
    curve = table.curve(series, PER_READ)
    mine, theirs = curve.at(x), curve.at(other)
    return Finding(mine > theirs, {f"at {x:g}": mine, f"at {other:g}": theirs, "part": mine / theirs})


def _near(table: Table, series: str, points: float) -> Finding:
    share, ideal = (float(table.curve(series, measure).mean[-1]) for measure in (HIT, IDEAL))
    return Finding(abs(share - ideal) <= points, {"share": share, "ideal": ideal})
