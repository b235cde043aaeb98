"""Joins by cells: Figs 5.4, 5.5 and 6.1 to 6.7 of the source (progressive-joins §3.2).

The source draws results from memory over the input that has arrived. Here they are read at the end and at half of the
input; what it draws as a panel for each parameter is one picture over that parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from lab.cell_runs import ADDED, HALF, NearPolicy, OfBoxes, OfPoints
from lab.experiments import Check, Experiment, Finding, Series, Sweep, Table, Test
from lab.measures import Measure
from lab.progressive_runs import IN_MEMORY
from lab.workloads.vectors import Kind, Order

ALIKE = 0.05
"""Policies that differ by no more are alike."""
AHEAD = 1.05
"""One that gives so many times the other's results is ahead."""

_BOXES = "2 M boxes of both streams, ten times ten cells, memory for 102,000 copies, of which 10 % leave at a time"
_POINTS = "500 K points of both streams, four cells each way, memory for 85,000, of which 10 % leave at a time"
_APART = (0.0, 0.2, 0.4, 0.6, 0.8)
_STRETCHED = (0.0, 0.25, 0.5, 0.75, 1.0)
_DIMENSIONS = (3.0, 5.0, 7.0)


def times_as_many(mine: str, other: str, xs: Sequence[float], least: float, most: float = np.inf) -> Test:
    """At each of some x, so many times the other's results at the end."""

    def test(table: Table) -> Finding:
        curves = table.curve(mine, IN_MEMORY), table.curve(other, IN_MEMORY)
        ratios = {f"{mine} / {other} at {x:g}": _ratio(curves[0].at(x), curves[1].at(x)) for x in xs}
        return Finding(all(least <= ratio <= most for ratio in ratios.values()), ratios)

    return test


def all_alike(labels: Sequence[str], xs: Sequence[float], measure: Measure = IN_MEMORY) -> Test:
    """At each of some x, the most is no more than 5 % above the least."""

    def test(table: Table) -> Finding:
        ratios = {}
        for x in xs:
            values = [table.curve(label, measure).at(x) for label in labels]
            ratios[f"most / least at {x:g}"] = _ratio(max(values), min(values))
        return Finding(all(ratio <= 1 + ALIKE for ratio in ratios.values()), ratios)

    return test


def ahead_at_half(mine: str, others: Sequence[str], xs: Sequence[float]) -> Test:
    """At half of the input it is ahead already."""

    def test(table: Table) -> Finding:
        measured = {
            f"{mine} / {other} at {x:g}": _ratio(table.curve(mine, HALF).at(x), table.curve(other, HALF).at(x))
            for other in others
            for x in xs
        }
        return Finding(all(ratio >= AHEAD for ratio in measured.values()), measured)

    return test


def wider(gaps: Sequence[tuple[str, str]], x: float) -> Test:
    """The ratio of each pair is above that of the pair before, by 2 % at least."""

    def test(table: Table) -> Finding:
        measured = {
            f"{mine} / {other}": _ratio(table.curve(mine, IN_MEMORY).at(x), table.curve(other, IN_MEMORY).at(x))
            for mine, other in gaps
        }
        ratios = list(measured.values())
        return Finding(all(b >= 1.02 * a for a, b in pairwise(ratios)), measured)

    return test


def _ratio(mine: float, other: float) -> float:
    return mine / other if other else float(np.inf if mine else 1.0)


def _boxes(**others: object) -> tuple[Series, ...]:
    policies = ("RRPJ", "RPJ", "RRPJ-F", "Random")
    return tuple(Series(policy, replace(OfBoxes(policy), **others)) for policy in policies)  # type: ignore[arg-type]


_OVER_DIMENSIONS = (replace(IN_MEMORY, axis="log"), replace(HALF, axis="log"))
"""The more dimensions, the fewer pairs are near each other: by a factor of a hundred."""
_NEAR: tuple[NearPolicy, ...] = ("RRPJ", "neRPJ", "Random")
_DIMENSION = Sweep("dimensions", _DIMENSIONS, lambda run, d: replace(run, dimensions=int(d)))


def _near(
    kind: Kind, order: Order = "draws", behind: str = "", policies: Sequence[NearPolicy] = _NEAR
) -> tuple[Series, ...]:
    return tuple(Series(policy + behind, OfPoints(policy, kind, order=order)) for policy in policies)


def _best(title: str, behind: str = "", xs: Sequence[float] = _DIMENSIONS) -> tuple[Check, ...]:
    """RRPJ ahead of both others, in each dimension."""
    return tuple(
        Check(
            f"RRPJ against {other}{behind}, {x:g}-D",
            f"{title}, {x:g}-D: RRPJ gives more results than {other} (by 5 %).",
            times_as_many(f"RRPJ{behind}", f"{other}{behind}", (x,), AHEAD),
        )
        for x in xs
        for other in _NEAR[1:]
    )


_HARMONY = ", cell by cell"
_GAIN = 1.02
"""More than this is more than chance."""


def _none_better(title: str, x: float, most: float = _GAIN) -> Check:
    """Why RRPJ is not ahead of neRPJ: nothing that ranks cells could be."""
    return Check(
        f"nothing to gain on neRPJ, {title}",
        f"{title}: cells ranked by all the results that their rows will have give hardly more than neRPJ (at most "
        f"{most - 1:.0%}).",
        times_as_many("Foreseen", "neRPJ", (x,), 0.0, most),
        kind="reason",
    )


EXPERIMENTS = (
    Experiment(
        id="progressive-5-4",
        title="Boxes: results from memory over the part of the cells where streams never meet",
        series=_boxes(),
        x=Sweep("cells where the streams never meet (α)", _APART, lambda run, part: replace(run, apart=part)),
        measures=(IN_MEMORY, HALF),
        expected=(
            Check(
                "alike without such cells",
                "Where streams meet in every cell, RRPJ and RPJ are alike (within 5 %).",
                all_alike(("RRPJ", "RPJ"), (0.0,)),
            ),
            *(
                Check(
                    f"RRPJ against RPJ at {part:g}",
                    f"With {part:.0%} such cells RRPJ is ahead of RPJ (by 5 %).",
                    times_as_many("RRPJ", "RPJ", (part,), AHEAD),
                )
                for part in _APART[1:]
            ),
            Check(
                "RRPJ ahead at half",
                "It is at half of the input already, from 20 % on.",
                ahead_at_half("RRPJ", ("RPJ",), _APART[1:]),
            ),
            Check(
                "RRPJ-F alike without such cells",
                "Where streams meet in every cell, RRPJ-F is like RRPJ (within 5 %).",
                all_alike(("RRPJ", "RRPJ-F"), (0.0,)),
            ),
        ),
        scale=1 / 4,
        streams=_BOXES,
        remark="Random is not in the source's figure.",
    ),
    Experiment(
        id="progressive-5-5",
        title="Boxes over two cells: results from memory over the part of the boxes that are",
        series=(
            *_boxes(border="inside"),
            *(replace(each, label=f"{each.label}, back") for each in _boxes(border="back")[:3]),
        ),
        x=Sweep("boxes over two cells (ρ)", _STRETCHED, lambda run, part: replace(run, stretched=part)),
        measures=(IN_MEMORY, HALF),
        expected=(
            *(
                Check(
                    f"RRPJ-F against RRPJ at {part:g}{behind}",
                    f"With {part:.0%} of the boxes over two cells{where}, RRPJ-F gives more results than RRPJ "
                    "(by 2 %).",
                    times_as_many(f"RRPJ-F{behind}", f"RRPJ{behind}", (part,), 1.02),
                )
                for behind, where in (("", ""), (", back", ", stretched back at the border"))
                for part in (0.5, 1.0)
            ),
            Check(
                "RRPJ against RPJ",
                "RRPJ is no worse than RPJ (by 2 %).",
                times_as_many("RRPJ", "RPJ", _STRETCHED, 0.98),
            ),
            Check(
                "the border",
                "Stretched back, boxes crowd the last columns: RRPJ and RPJ find them, RRPJ-F does not.",
                times_as_many("RPJ, back", "RRPJ-F, back", (1.0,), AHEAD),
                kind="reason",
            ),
        ),
        scale=1 / 4,
        streams=_BOXES,
        remark="The source does not say where a box goes that would be stretched out of the square. The claim holds if "
        "such boxes are drawn elsewhere; if they are stretched back, the last two columns are fuller than others, and "
        "whole cells tell more than single rows do.",
    ),
    Experiment(
        id="progressive-6-1",
        title="Points, uniform: results from memory",
        series=_near("uniform", policies=(*_NEAR, "Foreseen")),
        x=_DIMENSION,
        measures=_OVER_DIMENSIONS,
        expected=(
            *(
                Check(
                    f"alike, {x:g}-D",
                    f"Uniform, {x:g}-D: all are alike (within 5 %): every row is as likely to match.",
                    all_alike(_NEAR, (x,)),
                )
                for x in _DIMENSIONS
            ),
            Check(
                "cells differ, 3-D",
                "3-D: cells differ: ranked by all the results that their rows will have, they give more than Random "
                "(by 5 %).",
                times_as_many("Foreseen", "Random", (3.0,), AHEAD),
                kind="reason",
            ),
        ),
        scale=1 / 5,
        streams=_POINTS + ", distance 0.1",
        remark="In three dimensions RRPJ is a little ahead: 56 of the 64 cells are at the border of the cube and have "
        "fewer neighbours than the others, which results tell and arrivals do not.",
    ),
    Experiment(
        id="progressive-6-2",
        title="Points, cells by Zipf's law (HARMONY): results from memory",
        series=(
            *_near("harmony", "cells", _HARMONY, (*_NEAR, "RRPJ, σ = 0")),
            *_near("harmony", policies=(*_NEAR, "Foreseen")),
        ),
        x=_DIMENSION,
        measures=_OVER_DIMENSIONS,
        expected=(
            *_best("HARMONY, cell by cell", _HARMONY),
            *_best("HARMONY, by draws"),
            *(
                Check(
                    f"σ = 0 against {other}, {x:g}-D",
                    f"HARMONY, cell by cell, {x:g}-D: with σ = 0 RRPJ gives {told}.",
                    times_as_many(f"RRPJ, σ = 0{_HARMONY}", f"{other}{_HARMONY}", (x,), least),
                    kind="reason",
                )
                for x in _DIMENSIONS
                for other, told, least in (
                    ("neRPJ", "more results than neRPJ (by 5 %)", AHEAD),
                    ("Random", "no fewer than Random (by 2 %)", 1 / _GAIN),
                )
            ),
            *(_none_better(f"HARMONY, by draws, {x:g}-D", x) for x in _DIMENSIONS),
        ),
        scale=1 / 5,
        streams=_POINTS + ", distance 0.1",
        remark="The source does not say in which order rows arrive: both are run. By draws a cell is as frequent in "
        "one stream as in the other, so that neRPJ's guess, the share of the opposite cell, ranks cells as results do. "
        "Cell by cell, what has had results will have no more: RRPJ with σ = 1 keeps that, neRPJ too, and only "
        "results since the last flush tell what comes.",
    ),
    Experiment(
        id="progressive-6-3",
        title="Points, cells by Zipf's law in reverse (REVERSE), cell by cell: results from memory",
        series=_near("reverse", "cells"),
        x=_DIMENSION,
        measures=_OVER_DIMENSIONS,
        expected=_best("REVERSE, cell by cell"),
        scale=1 / 5,
        streams=_POINTS + ", distance 0.1",
    ),
    Experiment(
        id="progressive-6-4",
        title="Points, REVERSE in random order: results from memory",
        series=(
            *_near("reverse", policies=(*_NEAR, "RRPJ, smoothed", "Foreseen")),
            *_near("harmony", "cells", ", HARMONY"),
            *_near("reverse", "cells", ", REVERSE"),
        ),
        x=_DIMENSION,
        measures=_OVER_DIMENSIONS,
        expected=(
            *_best("Randomised REVERSE"),
            *(
                Check(
                    f"a wider gap to {other}, {x:g}-D",
                    f"{x:g}-D: the gap to {other} grows from HARMONY to REVERSE to randomised REVERSE.",
                    wider([(f"RRPJ{kind}", f"{other}{kind}") for kind in (", HARMONY", ", REVERSE", "")], x),
                )
                for x in _DIMENSIONS
                for other in _NEAR[1:]
            ),
            _none_better("Randomised REVERSE, 3-D", 3.0, AHEAD),
            *(
                Check(
                    f"smoothed against {other}, {x:g}-D",
                    f"Randomised REVERSE, {x:g}-D: with {ADDED} average rows more in each cell RRPJ gives no fewer "
                    f"results than {other} (by 2 %).",
                    times_as_many("RRPJ, smoothed", other, (x,), 1 / _GAIN),
                    kind="reason",
                )
                for x in (5.0, 7.0)
                for other in _NEAR[1:]
            ),
        ),
        scale=1 / 5,
        streams=_POINTS + ", distance 0.1",
        remark="HARMONY and REVERSE are those of Figs 6-2 and 6-3, cell by cell. In 3-D a cell's results are what the "
        "share of the opposite cell says, and neRPJ needs no more. In 5-D and 7-D, 1,024 and 16,384 cells share few "
        "results. The rows that are worth most are alone in their cells: most have met nobody before the first flush, "
        "so that R / N is 0, lowest of all, and they leave for good, while the opposite cells that neRPJ counts are "
        "full. At full size, RRPJ gives 0.52 times as many results as neRPJ in 7-D, and smoothed 1.08 times as many.",
    ),
    Experiment(
        id="progressive-6-5",
        title="Points, checkered: results from memory",
        series=_near("checkered"),
        x=_DIMENSION,
        measures=_OVER_DIMENSIONS,
        expected=_best("Checkered"),
        scale=1 / 5,
        streams=_POINTS + ", distance 0.1",
        remark="The larger the sets, the more results a cell has to be ranked by: at a tenth of the size the claims do "
        "not come out in 5-D either.",
    ),
    Experiment(
        id="progressive-6-6",
        title="Points, non-uniform in half of the cells: results from memory",
        series=_near("non-uniform"),
        x=Sweep(
            "dimensions (distance 0.1; 0.3 in 7)",
            _DIMENSIONS,
            lambda run, d: replace(run, dimensions=int(d), distance=0.3 if d == 7 else 0.1),
        ),
        measures=_OVER_DIMENSIONS,
        expected=_best("Non-uniform"),
        scale=1 / 5,
        streams=_POINTS,
    ),
    Experiment(
        id="progressive-6-7",
        title="Pictures: results from memory over the distance",
        series=tuple(Series(policy, OfPoints(policy, "images", 9)) for policy in (*_NEAR, "Foreseen")),
        x=Sweep("distance", (0.05, 0.1, 0.2), lambda run, distance: replace(run, distance=distance)),
        measures=(IN_MEMORY, HALF),
        expected=(
            *(
                Check(
                    f"RRPJ against {other} at {distance:g}",
                    f"At a distance of {distance:g} RRPJ gives more results than {other} (by 2 %).",
                    times_as_many("RRPJ", other, (distance,), 1.02),
                )
                for distance in (0.05, 0.1, 0.2)
                for other in _NEAR[1:]
            ),
            *(_none_better(f"At a distance of {distance:g}", distance) for distance in (0.05, 0.1, 0.2)),
        ),
        scale=1 / 4,
        seeds=5,
        streams="two orders of 68,040 points of nine dimensions each, memory for 85,000, of which 10 % leave at a time",
        remark="The pictures are ours: groups of points with the number and dimensions of Corel's colour moments. Both "
        "streams have the same pictures, so that a cell is as frequent in one as in the other: neRPJ's guess is right, "
        "and memory has room for five eighths of all rows anyway. Corel's moments themselves may be spread otherwise.",
    ),
)
