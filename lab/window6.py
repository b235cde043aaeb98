"""Window queries, chapter 6: WID, slack, panes and AdaptWID (spec window-queries §3).

The thesis measures seconds and megabytes of its own systems; what is measured here is counted: updates and reads,
tuples and partials held, errors, and latency in the time of the stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from lab import shapes
from lab.aggregations import (
    ARRIVED,
    ERROR,
    HELD,
    LATENCY,
    MEMORY,
    RATIO,
    SHARE,
    WAIT,
    WORK,
    WRONG,
    Disordered,
    Groups,
    Late,
    Paning,
    RowWindows,
    Sizes,
    ThreeLinks,
)
from lab.experiments import Check, Experiment, Finding, OverTime, Series, Sweep, Table, Test
from lab.workloads.disorder import BandDisorder, BlockDisorder
from penstock.core.windows import sliding

BAND, BLOCK = BandDisorder("3.2 s"), BlockDisorder("490 s")
BANDED = sliding("64 s", "6.4 s")
BLOCKED = sliding("600 s", "60 s")

_PLACES = OverTime("place of arrival [1000 tuples]", seconds=1000, mark="dots")
_DATA_SETS = (1.0, 2.0, 3.0, 4.0, 5.0)
_KINDS: tuple[Literal["small", "medium", "large"], ...] = ("small", "medium", "large")
_PANES = (1, 2, 5, 10, 20, 50)


def sweep(label: str, name: str, *values: float, axis: Any = "linear") -> Sweep:
    """An axis over one field of a trial."""
    return Sweep(label, values, lambda trial, value: replace(trial, **{name: value}), axis)


def no_error_no_later(measure: Any) -> Test:
    """Punctuation makes no error, and is no later than the least slack without one."""

    def test(table: Table) -> Finding:
        errors, late = table.curve("consistent slack", measure).mean, table.curve("consistent slack", WAIT).mean
        exact = float(late[errors == 0].min()) if (errors == 0).any() else float("inf")
        mine = float(table.curve("punctuation", measure).mean.max()), float(table.curve("punctuation", WAIT).mean.max())
        return Finding(mine[0] == 0 and mine[1] <= exact, {"error": mine[0], "wait": mine[1], "of exact slack": exact})

    return test


def slacks(window: Any, order: Any, what: Any, rate: float, seconds: float) -> tuple[Series, ...]:
    """A curve for consistent slack, for generous, and for punctuation, which does not depend on it."""
    late = Late(window, order, what, "consistent", rate, seconds)
    return (
        Series("consistent slack", late),
        Series("generous slack", replace(late, late="generous")),
        Series("punctuation", replace(late, late="punctuation")),
    )


EXPERIMENTS = (
    Experiment(
        id="window-6-8",
        title="Disorder in a band",
        series=(Series("band", Disordered(BAND, rate=4000, seconds=60)),),
        x=_PLACES,
        measures=(ARRIVED,),
        expected=(Check("a band", "A near-linear band.", shapes.in_band("band", ARRIVED, 3.2)),),
        scale=1 / 10,
        streams="generated flow records, 4,000 tuples/s, up to 3.2 s late",
        remark="The thesis shows recorded flows, which we do not have: the generator's are shown.",
    ),
    Experiment(
        id="window-6-9",
        title="Disorder in blocks",
        series=(Series("blocks", Disordered(BlockDisorder("60 s"), rate=400, seconds=600)),),
        x=_PLACES,
        measures=(ARRIVED,),
        expected=(
            Check(
                "blocks",
                "Block-sorted: the cache is dumped each minute, random inside a block.",
                shapes.in_blocks("blocks", ARRIVED, 60),
            ),
        ),
        scale=1 / 10,
        streams="generated flow records, 400 tuples/s, blocks of a minute",
        remark="The thesis shows recorded flows, which we do not have: the generator's are shown.",
    ),
    Experiment(
        id="window-6-10",
        title="WID against buffering: work and state over windows per tuple, ordered tuples",
        series=(
            Series("WID", RowWindows("wid")),
            Series("buffering", RowWindows("buffering")),
            Series("scan only", RowWindows("scan")),
        ),
        x=sweep("windows per tuple (r = 4000 rows)", "overlap", 1, 4, 20, 100, 500, 4000, axis="log"),
        measures=(WORK, HELD),
        expected=(
            Check("WID lower", "WID lower in general.", shapes.below("WID", "buffering", WORK)),
            Check("gap grows", "The gap grows with r/s.", shapes.gap_grows("WID", "buffering", WORK)),
        ),
        scale=1 / 20,
        streams="numbered tuples in order, max",
        remark="The thesis has seconds. Counted, both do r/s steps per tuple, WID when it comes and buffering when a "
        "window closes, and buffering puts each tuple in and out besides: 2 more at any r/s. That a step over a buffer "
        "cost more than one over a table is its system's, and no count shows it. WID's state is r/s partials against "
        "4,000 tuples, so that the gap in state closes instead.",
    ),
    Experiment(
        id="window-6-11",
        title="Slack over a band of disorder: error and latency",
        series=slacks(BANDED, BAND, "mean", rate=4000, seconds=320),
        x=sweep("slack [s]", "slack", 0, 0.32, 0.64, 1.28, 2.56, 3.2),
        measures=(ERROR, WAIT, LATENCY),
        expected=(
            Check("error falls", "Error falls with slack.", shapes.falls("consistent slack", ERROR)),
            Check("latency rises", "Latency rises with slack.", shapes.rises("consistent slack", WAIT)),
            Check(
                "generous far better",
                "Generous far better than consistent at similar latency.",
                shapes.part_of("generous slack", "consistent slack", ERROR, 0, 0, 0.5),
            ),
            Check("punctuation dominates", "Punctuation dominates both.", no_error_no_later(ERROR)),
        ),
        scale=1 / 20,
        streams="packets of 16 sources, avg(len) by source, r = 64 s, s = 6.4 s, up to 3.2 s late",
        remark="Latency rises from the first row past a window's end; after the punctuation that covers a window it is "
        "0 as long as slack closes windows before that, wrongly.",
    ),
    Experiment(
        id="window-6-12",
        title="Slack over blocks: wrong answers and latency",
        series=slacks(BLOCKED, BLOCK, "count", rate=400, seconds=4900)[::2],
        x=sweep("slack [s]", "slack", 0, 54.4, 109.1, 218.2, 327.3, 434.2, 490.9, 600),
        measures=(WRONG, LATENCY, WAIT),
        expected=(
            Check(
                "flat below the optimum",
                "Latency flat below the optimum (≈491 s).",
                shapes.at_most("consistent slack", LATENCY, [0, 54.4, 109.1, 218.2, 327.3, 434.2], 10),
            ),
            Check("jumps above", "Latency jumps above it.", shapes.jumps("consistent slack", LATENCY, 490.9, 600)),
            Check(
                "right at the optimum",
                "No wrong answers from the optimum on.",
                shapes.at_most("consistent slack", WRONG, [490.9, 600], 0),
            ),
            Check(
                "no trade-off",
                "No usable trade-off: most answers are wrong below the optimum.",
                shapes.at_least("consistent slack", WRONG, [0, 54.4, 109.1, 218.2, 327.3, 434.2], 50),
            ),
            Check("punctuation best", "Punctuation best.", no_error_no_later(WRONG)),
        ),
        scale=1 / 20,
        streams="packets of 16 sources, count by source, r = 600 s, s = 60 s, blocks of 490 s",
        remark="Latency is after the punctuation that covers a window; before it, answers are wrong. From the first "
        "row past a window's end, waiting grows with the slack all along.",
    ),
    Experiment(
        id="window-6-15",
        title="Paned-WID against WID: tuples per pane and panes per window",
        series=tuple(Series(f"{count} panes per window", Paning(count)) for count in _PANES),
        x=sweep("tuples per pane", "tuples", 1, 2, 5, 10, 20, 50, 100, axis="log"),
        measures=(RATIO,),
        expected=(
            Check(
                "0.30 at 20 and 5",
                "≈0.30 at 20 tuples/pane, 5 panes/window.",
                shapes.about("5 panes per window", RATIO, 20, 0.30),
                thesis={"at 20": 0.30},
            ),
            Check("many cells, not all", "Better in many (not all) cells.", shapes.cells(RATIO, 0.5, 0.99)),
        ),
        scale=1 / 10,
        streams="numbered tuples in order, max",
        remark="Updates and merges of partials; the model of Eq 6.1 with unit costs gives 0.26 at 20 and 5.",
    ),
    Experiment(
        id="window-t6-2",
        title="Groups of DS1 to DS5 by size",
        series=tuple(Series(kind, Sizes(kind)) for kind in _KINDS),
        x=sweep("data set", "number", *_DATA_SETS),
        measures=(SHARE,),
        expected=tuple(
            Check(
                f"{kind} groups",
                f"{kind.capitalize()}-group %: {'/'.join(map(str, shares))}.",
                shapes.within_points(kind, SHARE, shares, 3),
                thesis={f"at {number:g}": share for number, share in zip(_DATA_SETS, shares, strict=True)},
            )
            for kind, shares in (
                ("small", (39, 66, 77, 82, 87)),
                ("medium", (51, 28, 19, 15, 11)),
                ("large", (10, 6, 4, 3, 2)),
            )
        ),
        scale=1 / 10,
        streams="DS1 to DS5, groups sized over the data set",
    ),
    Experiment(
        id="window-6-19a",
        title="AdaptWID's memory on DS1 to DS5, windows of 1 s",
        series=tuple(
            Series(f"{name}, sizes per {sizes}", Groups(keeping, sizes))  # type: ignore[arg-type]
            for sizes in ("data set", "window")
            for name, keeping in (("eager", "eager"), ("lazy", "lazy"), ("AdaptWID", "adapt"))
        ),
        x=sweep("data set", "number", *_DATA_SETS),
        measures=(replace(MEMORY, axis="log"),),
        expected=tuple(
            check
            for sizes in ("data set", "window")
            for check in (
                Check(
                    f"below eager, per {sizes}",
                    f"AdaptWID below eager (sizes per {sizes}).",
                    shapes.below(f"AdaptWID, sizes per {sizes}", f"eager, sizes per {sizes}", MEMORY, 0.95),
                ),
                Check(
                    f"gain grows, per {sizes}",
                    f"The gain grows with the share of small groups (sizes per {sizes}).",
                    shapes.part_falls(f"AdaptWID, sizes per {sizes}", f"eager, sizes per {sizes}", MEMORY),
                ),
            )
        ),
        scale=1 / 20,
        streams="DS1 to DS5, 4,000 tuples/s, sum(len) by source",
        remark="Bytes by the columns of the query: 56 for a partial of a group and window, 36 for a tuple. The "
        "thesis' latency and time are not counted.",
    ),
    Experiment(
        id="window-6-19b",
        title="AdaptWID's memory on three links, 10 s by 1 s",
        series=(
            Series("lazy", ThreeLinks("lazy")),
            Series("eager", ThreeLinks("eager")),
            Series("AdaptWID", ThreeLinks("adapt")),
        ),
        x=sweep("the quiet link is late by [s]", "late", 0, 2, 5, 10),
        measures=(MEMORY,),
        expected=(
            Check("below eager", "AdaptWID below eager.", shapes.below("AdaptWID", "eager", MEMORY, 0.95)),
            Check("below lazy", "AdaptWID below lazy.", shapes.below("AdaptWID", "lazy", MEMORY, 0.95)),
        ),
        scale=1 / 20,
        streams="two links of 4,000 tuples/s and a quiet one, count by source",
        remark="Bytes by the columns of the query; the thesis' latency and time are not counted.",
    ),
)
