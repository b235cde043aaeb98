"""The early spatial joins: Figs A.1 to A.8 of the source (progressive-joins §3.2).

The source draws what was spent when a part of the results was out. Its machine is not ours: a page takes 8 ms, a test
of two boxes 10 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lab.early_runs import (
    BUILD,
    CENTRE,
    COMPARED,
    CPU,
    INSIDE,
    IO,
    JOIN,
    LEVELS,
    RESPONSE,
    Country,
    Early,
    Method,
    Shape,
)
from lab.experiments import Check, Experiment, Finding, OverTime, Series, Sweep, Table, Test
from lab.measures import Measure

_SETS = "two sets of 100 K boxes in five clusters, cluster by cluster"
_FRAMES = "128 frames of 204 records"
_RESULTS = OverTime("results that are out [%]", 1.0)
_BLOCKED: tuple[Method, ...] = ("static", "SBNL", "SIBNL")
_COUNTRIES: tuple[Country, ...] = ("Greece", "Germany")

PAGE_PAIRS = 491.0**2
"""Pages of two sets of 100 K records."""


def sooner_until(mine: str, other: str, least: float) -> Test:
    """From the first result on, it has given as many sooner than the other, up to so many per cent of them."""

    def test(table: Table) -> Finding:
        curves = table.curve(mine, RESPONSE), table.curve(other, RESPONSE)
        sooner = curves[0].mean < curves[1].mean
        until = float(curves[0].x[int(np.argmin(sooner)) - 1]) if not sooner.all() else 100.0
        until = until if sooner[0] else 0.0
        return Finding(until >= least, {f"{mine} sooner than {other} until [%]": until})

    return test


def part_at_end(mine: str, other: str, measure: Measure, least: float, most: float) -> Test:
    """With all results, it has spent such a part of what the other has."""

    def test(table: Table) -> Finding:
        ends = [float(table.curve(label, measure).mean[-1]) for label in (mine, other)]
        part = ends[0] / ends[1]
        return Finding(least <= part <= most, {mine: ends[0], other: ends[1], "part": part})

    return test


def exactly(label: str, measure: Measure, value: float) -> Test:
    """With all results, it has spent this."""

    def test(table: Table) -> Finding:
        end = float(table.curve(label, measure).mean[-1])
        return Finding(end == value, {label: end})

    return test


def share_of(label: str, measure: Measure, least: float) -> Test:
    """On average, so much at least."""

    def test(table: Table) -> Finding:
        mean = float(table.curve(label, measure).mean.mean())
        return Finding(mean >= least, {label: mean})

    return test


def levels_less(mine: str, other: str, by: float) -> Test:
    """A tree has so many levels less than another."""

    def test(table: Table) -> Finding:
        levels = {label: float(table.curve(label, LEVELS).mean[0]) for label in (mine, other)}
        return Finding(levels[other] - levels[mine] == by, levels)

    return test


def parts_over(mine: str, other: str, measure: Measure, least: float, most: float) -> Test:
    """At every x, it spends such a part of what the other does."""

    def test(table: Table) -> Finding:
        a, b = table.curve(mine, measure), table.curve(other, measure)
        parts = {f"part at {x:g}": float(part) for x, part in zip(a.x, a.mean / b.mean, strict=True)}
        return Finding(all(least <= part <= most for part in parts.values()), parts)

    return test


def part_shrinks(mine: str, other: str, measure: Measure) -> Test:
    """From x to x, the part of the other's that it spends shrinks, by 2 % at least."""

    def test(table: Table) -> Finding:
        a, b = table.curve(mine, measure), table.curve(other, measure)
        parts = a.mean / b.mean
        named = {f"part at {x:g}": float(part) for x, part in zip(a.x, parts, strict=True)}
        return Finding(bool((parts[1:] <= 0.98 * parts[:-1]).all()), named)

    return test


def sooner_at(mine: str, others: Sequence[str], percent: float, part: float) -> Test:
    """With so many per cent of the results, it has taken no more than a part of what each of the others has."""

    def test(table: Table) -> Finding:
        measured = {label: table.curve(label, RESPONSE).at(percent) for label in (mine, *others)}
        return Finding(all(measured[mine] <= part * measured[other] for other in others), measured)

    return test


def _runs(methods: Sequence[Method], run: Early, behind: str = "") -> tuple[Series, ...]:
    return tuple(Series(f"{method}{behind}", replace(run, method=method)) for method in methods)


_CLUSTERED = Early("static")
_PLACES = OverTime("centre of a page or node, across", 1.0, "dots")

EXPERIMENTS = (
    Experiment(
        id="progressive-a-1",
        title="The R-tree of a set in five clusters: where its leaves and the nodes above are",
        series=(Series("leaves", Shape(False, False)), Series("above the leaves", Shape(False, True))),
        x=_PLACES,
        measures=(CENTRE, LEVELS, INSIDE),
        expected=(
            Check(
                "leaves show the clusters",
                "Leaves lie in the five clusters (95 % of them inside one).",
                share_of("leaves", INSIDE, 0.95),
            ),
        ),
        scale=1.0,
        streams="R100KC5, " + _FRAMES,
    ),
    Experiment(
        id="progressive-a-2",
        title="The R-tree of summaries of the same set: where its pages and the nodes above are",
        series=(
            Series("pages", Shape(True, False)),
            Series("above the pages", Shape(True, True)),
            Series("leaves of the full tree", Shape(False, False)),
        ),
        x=_PLACES,
        measures=(CENTRE, LEVELS, INSIDE),
        expected=(
            Check(
                "pages show the clusters",
                "Pages lie in the same five clusters (95 % of them inside one).",
                share_of("pages", INSIDE, 0.95),
            ),
            Check(
                "one level less",
                "The tree of summaries has one level less.",
                levels_less("pages", "leaves of the full tree", 1),
            ),
        ),
        scale=1.0,
        streams="R100KC5, " + _FRAMES,
    ),
    Experiment(
        id="progressive-a-3",
        title="R-trees: static, fully dynamic and block dynamic",
        series=_runs(("static", "fully dynamic", "block dynamic"), _CLUSTERED),
        x=_RESULTS,
        measures=(RESPONSE, BUILD, JOIN, CPU),
        expected=(
            Check(
                "fully dynamic sooner",
                "Fully dynamic is sooner than static for more than 20 % of the results.",
                sooner_until("fully dynamic", "static", 20),
            ),
            Check(
                "block dynamic sooner",
                "Block dynamic is sooner than static for more than 60 % of the results.",
                sooner_until("block dynamic", "static", 60),
            ),
            Check(
                "pages for each record",
                "Fully dynamic moves more pages to join than block dynamic (twice as many).",
                part_at_end("fully dynamic", "block dynamic", JOIN, 2.0, np.inf),
            ),
            Check(
                "block dynamic moves as many pages",
                "Block dynamic moves about as many pages to insert as static (within 25 %).",
                part_at_end("block dynamic", "static", BUILD, 0.75, 1.25),
            ),
            *(
                Check(
                    f"{name} {what}",
                    f"With all results {name} has taken more {measure.title} than static.",
                    part_at_end(name, "static", measure, 1.001, np.inf),
                )
                for name in ("fully dynamic", "block dynamic")
                for what, measure in (("loses in the end", RESPONSE), ("takes more CPU", CPU))
            ),
        ),
        scale=1.0,
        streams=f"{_SETS}; {_FRAMES}",
        remark="By our count probing again and again takes no more tests of boxes than one join of both trees: it is "
        "pages, not CPU time, that the dynamic joins lose by.",
    ),
    Experiment(
        id="progressive-a-4",
        title="Static, SBNL and SIBNL",
        series=_runs(_BLOCKED, _CLUSTERED),
        x=_RESULTS,
        measures=(COMPARED, IO, RESPONSE),
        expected=(
            Check(
                "SBNL compares all pages",
                "SBNL compares every pair of pages, 491 times 491.",
                exactly("SBNL", COMPARED, PAGE_PAIRS),
                thesis={"SBNL": PAGE_PAIRS},
            ),
            Check("SBNL sooner", "It is sooner than static to the last result.", sooner_until("SBNL", "static", 100)),
            Check(
                "SIBNL compares fewer",
                "SIBNL compares fewer pages than SBNL (by 10 %).",
                part_at_end("SIBNL", "SBNL", COMPARED, 0.0, 0.9),
            ),
            Check(
                "SIBNL gains little",
                "The index eats most of what that gains: SIBNL takes 80 to 100 % of SBNL's time.",
                part_at_end("SIBNL", "SBNL", RESPONSE, 0.8, 1.0),
            ),
        ),
        scale=1.0,
        streams=f"{_SETS}; {_FRAMES}",
        remark="By our count the trees of summaries take few pages: SIBNL keeps what it gains by comparing fewer.",
    ),
    Experiment(
        id="progressive-a-5",
        title="SBNL and SIBNL over the number of clusters, cluster by cluster and shuffled",
        series=(
            *_runs(("SBNL", "SIBNL"), _CLUSTERED),
            *_runs(("SBNL", "SIBNL"), replace(_CLUSTERED, order="shuffled"), ", shuffled"),
        ),
        x=Sweep("clusters", (5.0, 10.0, 20.0), lambda run, clusters: replace(run, clusters=int(clusters))),
        measures=(COMPARED, IO, RESPONSE),
        expected=(
            Check(
                "SIBNL wins clustered",
                "Cluster by cluster SIBNL takes less time than SBNL (by 5 %).",
                parts_over("SIBNL", "SBNL", RESPONSE, 0.0, 0.95),
            ),
            Check(
                "more with more clusters",
                "It wins more with 10, and more with 20 clusters.",
                part_shrinks("SIBNL", "SBNL", RESPONSE),
            ),
            Check(
                "SIBNL loses shuffled",
                "Shuffled it loses moderately (by up to 25 %).",
                parts_over("SIBNL, shuffled", "SBNL, shuffled", RESPONSE, 1.001, 1.25),
            ),
        ),
        scale=1.0,
        seeds=5,
        streams=f"two sets of 100 K boxes; {_FRAMES}",
        remark="Clusters are a fifth of the square each way, wherever they fall: with 20 of them most pages meet "
        "clusters that they have nothing to do with.",
    ),
    Experiment(
        id="progressive-a-6",
        title="Static, SBNL and SIBNL over the size of the sets",
        series=_runs(_BLOCKED, _CLUSTERED),
        x=Sweep("boxes of each set", (200_000.0, 400_000.0), lambda run, rows: replace(run, rows=int(rows))),
        measures=(COMPARED, IO, RESPONSE),
        expected=tuple(
            Check(
                f"{name} below static",
                f"{name} takes less time than static at both sizes.",
                parts_over(name, "static", RESPONSE, 0.0, 0.999),
            )
            for name in ("SBNL", "SIBNL")
        ),
        scale=1.0,
        streams=f"two sets in five clusters, cluster by cluster; {_FRAMES}",
    ),
    Experiment(
        id="progressive-a-7",
        title="Static, SBNL and SIBNL on lines like those of two countries",
        series=tuple(
            series for name in _COUNTRIES for series in _runs(_BLOCKED, replace(_CLUSTERED, country=name), f", {name}")
        ),
        x=_RESULTS,
        measures=(COMPARED, IO, RESPONSE),
        expected=tuple(
            Check(
                f"{name} {what}, {country}",
                f"{country}: {name} is sooner than static {what}.",
                test,
            )
            for country in _COUNTRIES
            for name in ("SBNL", "SIBNL")
            for what, test in (
                ("for half of the results", sooner_until(f"{name}, {country}", f"static, {country}", 50)),
                ("to the last result", sooner_until(f"{name}, {country}", f"static, {country}", 100)),
            )
        ),
        scale=1.0,
        streams=f"24,650 and 23,268 steps of lines, 36,334 and 30,674; {_FRAMES}",
        remark="The lines are ours, with the numbers of the source's rivers, roads and rails. They come in the order "
        "of a map, so that the R-trees of such small sets nearly fit the buffer.",
    ),
    Experiment(
        id="progressive-a-8",
        title="Records that arrive by chance, two seconds apart on average",
        series=_runs((*_BLOCKED, "block dynamic"), replace(_CLUSTERED, rows=50_000, wait=2.0)),
        x=_RESULTS,
        measures=(RESPONSE, IO),
        expected=tuple(
            Check(
                f"{name} quick",
                f"{name} delivers the first 75 % of the results sooner than static (by 5 %).",
                sooner_at(name, ("static",), 75.0, 0.95),
            )
            for name in ("SBNL", "SIBNL")
        ),
        scale=1.0,
        seeds=5,
        streams=f"two sets of 50 K boxes in five clusters, cluster by cluster; {_FRAMES}",
        remark="Arrivals take 100,000 s, and the work of any method little beside them: static is done soon "
        "after the last record, and three quarters of the results of the others are not out much before it.",
    ),
)
