"""An experiment's picture: a panel for each measure, a curve for each series, bars for the 95 % interval over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lab.experiments import Curve, Experiment, OverTime, Table, caption
from lab.measures import Measure
from penstock.core.errors import FlowError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Told apart by people who see no difference between red and green."""
_MARKERS = "osD^vP"
_LINES = ("-", "--", ":")
"""With more curves than colours, those of the second round are dashed, and so on."""
_TICKS, _FEW = 15, 6
"""A sweep of more values has few ticks, evenly apart."""
_ACROSS = 6
"""More panels side by side than this are put into rows."""
_LEGEND = 8
"""Of more curves than this only the first panel has a legend."""
_LETTER = 0.11
"""Inches that a letter of the title takes."""
_SMALL, _SHADES = 55_000, 256
"""Bytes of a small copy, at most, and its colours."""


def need_matplotlib() -> None:
    """Complain, before anything is run, if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise FlowError("The lab draws with matplotlib: pip install 'penstock[lab]'.") from error


def draw(experiment: Experiment, table: Table, path: Path, scale: float) -> None:
    """Write the picture as PNG."""
    from matplotlib.figure import Figure

    panels: dict[str, list[Measure]] = {}
    for measure in experiment.measures:
        panels.setdefault(measure.panel or measure.label, []).append(measure)
    title = f"{caption(experiment.id)}  {experiment.title}"
    across = len(panels) if len(panels) <= _ACROSS else _ACROSS - 1
    down = -(-len(panels) // across)
    figure = Figure(figsize=(max(6.4, 4.6 * across, _LETTER * len(title)), 4.4 * down), layout="constrained")
    figure.suptitle(title, fontsize=12)
    figure.supxlabel(
        f"{experiment.ran} at 1/{1 / scale:g} of the thesis' size, seeds: {table.seeds}", fontsize=8, color="grey"
    )
    for place, (label, measures) in enumerate(panels.items()):
        axes = figure.add_subplot(down, across, place + 1)
        _panel(axes, experiment, table, measures)
        axes.set_ylabel(label)
        curves = len(axes.get_legend_handles_labels()[1])
        if curves > 1 and (place == 0 or curves <= _LEGEND):
            axes.legend()
    figure.savefig(path, dpi=120)


def small_copy(picture: Path, path: Path) -> None:
    """Write a copy for a page: of few colours, and as much smaller as it must be."""
    from PIL import Image

    # Most of a picture is white: by median, few colours of curves are left.
    shades = Image.Quantize.FASTOCTREE
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(picture) as opened:
        whole = opened.convert("RGB")
    part = 0.75
    while True:
        across, down = (round(part * side) for side in whole.size)
        whole.resize((across, down), Image.Resampling.LANCZOS).quantize(_SHADES, shades).save(path, optimize=True)
        if path.stat().st_size <= _SMALL:
            return
        part *= 0.9


def _panel(axes: Axes, experiment: Experiment, table: Table, measures: list[Measure]) -> None:
    curves = [(series.label, measure) for measure in measures for series in experiment.series]
    for number, (series, measure) in enumerate(curves):
        label = series if len(measures) == 1 else f"{series}: {measure.title}"
        if isinstance(experiment.x, OverTime):
            shape = _dots if experiment.x.mark == "dots" else _path
            shape(axes, table.curve(series, measure), label, number)
        else:
            _sweep(axes, table.curve(series, measure), label, number)
            axes.set_xscale(experiment.x.axis)
            _ticks(axes, experiment.x.values)
    axes.set_xlabel(experiment.x.label)
    _scale(axes, measures[0])
    axes.grid(visible=True, alpha=0.3)


def _ticks(axes: Axes, values: tuple[float, ...]) -> None:
    """At every value; a long sweep has some only."""
    if len(values) <= _TICKS:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    else:
        some = np.linspace(0, values[-1], _FEW)
        axes.set_xticks(some, [f"{value:.2g}" for value in some])


def _sweep(axes: Axes, curve: Curve, label: str, number: int) -> None:
    margin = None if np.isnan(curve.margin).all() else curve.margin
    colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
    line = _LINES[number // len(COLOURS) % len(_LINES)]
    axes.errorbar(
        curve.x, curve.mean, margin, label=label, color=colour, marker=marker, markersize=5, capsize=3, linestyle=line
    )


def _path(axes: Axes, curve: Curve, label: str, number: int) -> None:
    colour, line = COLOURS[number % len(COLOURS)], _LINES[number // len(COLOURS) % len(_LINES)]
    axes.plot(curve.x, curve.mean, linewidth=1.5, label=label, color=colour, linestyle=line)
    if not np.isnan(curve.margin).all():
        low, high = np.maximum(curve.mean - curve.margin, 0), curve.mean + curve.margin
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.15, linewidth=0)


def _dots(axes: Axes, curve: Curve, label: str, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    axes.plot(curve.x, curve.mean, linestyle="", marker=".", markersize=2, label=label, color=colour)


def _scale(axes: Axes, measure: Measure) -> None:
    from matplotlib.ticker import FuncFormatter

    if measure.axis == "log":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def short_number(value: float) -> str:
    """A number on an axis.

    >>> [short_number(value) for value in (0, 0.25, 80, 1500, 100_000, 2.5e6)]
    ['0', '0.25', '80', '1.5 k', '100 k', '2.5 M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"
