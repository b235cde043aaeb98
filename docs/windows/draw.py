"""Draws a picture of each kind of window: the same rows, and the windows that penstock puts them into.

python docs/windows/draw.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import penstock as pk
from penstock.core.windows import Window

TIMES = {"a": (1, 2, 5, 11, 13, 14, 23), "b": (3, 6, 12, 17, 24, 28)}
"""When the rows of each group happen; they arrive in this order, too."""

COLOURS = {"a": "#0072B2", "b": "#D55E00", "": "#555555"}
MARKERS = {"a": "o", "b": "s"}
START, END = -6, 36


@dataclass(frozen=True)
class Picture:
    """A kind of window, and how it is written."""

    name: str
    written: str
    window: Window
    by: tuple[str, ...] = ()
    axis: str = "time"


PICTURES = (
    Picture("tumbling", ".window(range=10).agg(n=pk.count())", pk.sliding(10)),
    Picture("sliding", ".window(range=10, slide=5).agg(n=pk.count())", pk.sliding(10, 5)),
    Picture("gaps", ".window(range=5, slide=10).agg(n=pk.count())", pk.sliding(5, 10)),
    Picture("session", '.window(pk.session(4)).by("k").agg(n=pk.count())', pk.session(4), ("k",)),
    Picture("landmark", ".window(pk.landmark(10)).agg(n=pk.count())", pk.landmark(10)),
    Picture("rows", ".window(pk.rows(6, 3)).agg(n=pk.count())", pk.rows(6, 3), axis="row"),
    Picture(
        "partitioned",
        '.window(pk.rows(3, partition="k")).by("k").agg(n=pk.count())',
        pk.rows(3, partition="k"),
        ("k",),
        axis="row of its partition",
    ),
    Picture(
        "slide-by-tuple",
        '.window(pk.slide_by_tuple(10, every=3, by="rank")).agg(n=pk.count())',
        pk.slide_by_tuple(10, every=3, by="rank"),
    ),
)


def main() -> None:
    """All pictures, beside this file."""
    for picture in PICTURES:
        windows = results(picture)
        figure = Figure(figsize=(7.2, 0.9 + 0.24 * (2 + len(windows))), layout="constrained")
        axes = figure.add_subplot()
        draw(axes, picture, windows)
        figure.savefig(Path(__file__).with_name(f"{picture.name}.png"), dpi=90)


def results(picture: Picture) -> list[dict]:
    """The windows that come out, in order."""
    rows = sorted((time, key) for key, times in TIMES.items() for time in times)
    flow = pk.LocalFlow()
    source = flow.source(pa.table({"t": [time for time, _ in rows], "k": [key for _, key in rows]}), time="t")
    out = source.window(picture.window).by(*picture.by).agg(n=pk.count()).to_memory()
    flow.run()
    return sorted(out.table().to_pylist(), key=lambda row: (row.get("k", ""), row["window_end"]))


def draw(axes: Axes, picture: Picture, windows: list[dict]) -> None:
    """Rows on top, windows below, each from its start to its end with the number of its rows."""
    for place, (key, times) in enumerate(positions(picture).items()):
        axes.plot(times, [-place] * len(times), MARKERS[key], color=COLOURS[key], markersize=6)
        axes.annotate(key, (-0.02, -place), xycoords=("axes fraction", "data"), ha="right", va="center")
    first, last = (START, END) if picture.axis == "time" else (-3, 15)
    for place, row in enumerate(windows):
        low = max(first, row["window_start"] if row["window_start"] is not None else first)
        high, y = min(last, row["window_end"]), -2.2 - place
        colour = COLOURS[row.get("k", "")]
        axes.barh(y, high - low, left=low, height=0.62, color=colour, alpha=0.25, edgecolor=colour)
        axes.annotate(f"{row['n']}", ((low + high) / 2, y), ha="center", va="center", fontsize=8)
    axes.set_xlim(first, last)
    axes.set_yticks([])
    axes.set_xlabel(picture.axis, fontsize=9)
    axes.set_title(picture.written, fontsize=9, family="monospace")
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, axis="x", alpha=0.3)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)


def positions(picture: Picture) -> dict[str, list[int]]:
    """Where each group's rows lie on the axis: at their time, their number, or their number in their group."""
    if picture.axis == "time":
        return {key: list(times) for key, times in TIMES.items()}
    if picture.axis == "row":
        order = sorted((time, key) for key, times in TIMES.items() for time in times)
        return {key: [place for place, (_, k) in enumerate(order) if k == key] for key in TIMES}
    return {key: list(range(len(times))) for key, times in TIMES.items()}


if __name__ == "__main__":
    main()
