"""Draws a map of cells: which sites two streams of boxes are sent to, and where each pair comes out.

python docs/spatial/draw.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock as pk
from penstock.kernels.boxes import Tiles

CELLS, SCALE = (8, 5), 90
SITES = ("#fdf3e1", "#e3eef8", "#e8f3e6", "#f6e6ee")
"""The colour of each of four sites."""
CARS = [(0.6, 0.7, 1.3, 1.3), (2.2, 2.6, 2.7, 3.1), (4.0, 1.0, 4.6, 1.5), (5.4, 3.6, 6.6, 4.4), (7.2, 0.3, 7.6, 0.8)]
ZONES = [(1.1, 0.4, 2.6, 2.2), (2.4, 2.3, 5.7, 3.9), (3.4, 1.5, 4.0, 1.9), (6.3, 1.6, 7.7, 2.5)]
TILES = Tiles(1.0, sites=len(SITES))


def pairs() -> list[tuple[int, int]]:
    """The pairs that penstock finds."""
    flow = pk.LocalFlow()
    streams = [
        flow.source(pa.table({**_columns(boxes), name: range(len(boxes)), "t": [0] * len(boxes)}), time="t", name=name)
        for name, boxes in (("car", CARS), ("zone", ZONES))
    ]
    corners = list(_columns(CARS))
    rows = streams[0].join(streams[1], on=pk.intersects(corners, cell=1.0)).to_memory()
    flow.run()
    return sorted((row["car"], row["zone"]) for row in rows.table().to_pylist())


def _columns(boxes: list[tuple[float, ...]]) -> dict[str, list[float]]:
    return {name: list(values) for name, values in zip(("x1", "y1", "x2", "y2"), zip(*boxes, strict=True), strict=True)}


def drawn() -> str:
    """The map as SVG."""
    width, height = CELLS[0] * SCALE, CELLS[1] * SCALE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 -2 {width + 4} {height + 44}" font-family="sans-serif">'
    )
    return "\n".join([head, *_cells(), *_boxes(), *_corners(), *_legend(height), "</svg>", ""])


def _cells() -> Iterator[str]:
    for x in range(CELLS[0]):
        for y in range(CELLS[1]):
            (site,) = TILES.site(np.array([x]), np.array([y])).tolist()
            yield _rect((x, y, x + 1, y + 1), f'fill="{SITES[site]}" stroke="#bbb"')
            yield _text(x + 0.06, y + 0.08, f"site {site}", "#888", 12)


def _boxes() -> Iterator[str]:
    for boxes, name, colour, dash in (
        (ZONES, "zone", "#0072B2", ""),
        (CARS, "car", "#D55E00", ' stroke-dasharray="6 3"'),
    ):
        for number, box in enumerate(boxes):
            yield _rect(box, f'fill="{colour}" fill-opacity="0.12" stroke="{colour}" stroke-width="2"{dash}')
            copies = TILES.touched([np.array([side]) for side in box])[0].size
            said = "1 site" if copies == 1 else f"{copies} sites"
            yield _text(box[0] + 0.05, box[3] - 0.17, f"{name} {number}: {said}", colour, 11)


def _corners() -> Iterator[str]:
    """Where pairs come out: the top left corner of what both boxes have in common."""
    for car, zone in pairs():
        x, y = max(CARS[car][0], ZONES[zone][0]), min(CARS[car][3], ZONES[zone][3])
        yield f'<circle cx="{x * SCALE:g}" cy="{_down(y):g}" r="6" fill="#222"/>'


def _legend(height: int) -> Iterator[str]:
    said = "A dot is the top left corner of what two boxes share: the pair comes out at the site of its cell."
    yield f'<text x="4" y="{height + 26}" font-size="12" fill="#222">{said}</text>'


def _down(y: float) -> float:
    return round((CELLS[1] - y) * SCALE, 3)


def _rect(box: tuple[float, ...], style: str) -> str:
    x1, y1, x2, y2 = box
    size = f'width="{round((x2 - x1) * SCALE, 3):g}" height="{round((y2 - y1) * SCALE, 3):g}"'
    return f'<rect x="{round(x1 * SCALE, 3):g}" y="{_down(y2):g}" {size} {style}/>'


def _text(x: float, y: float, said: str, colour: str, size: int) -> str:
    return f'<text x="{round(x * SCALE, 3):g}" y="{_down(y):g}" font-size="{size}" fill="{colour}">{said}</text>'


if __name__ == "__main__":
    (Path(__file__).parent / "cells.svg").write_text(drawn())
