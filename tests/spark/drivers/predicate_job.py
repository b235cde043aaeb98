"""Two joins by a predicate as a program of its own, for tests that kill it: files in, Parquet out, to their end.

    python -m tests.spark.drivers.predicate_job FOLDER --on boxes|vectors [--shards N] [--places SEED]

One sends rows to the cells that they touch, the other spreads its left side. Where each epoch runs is drawn. Prints
``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import penstock as pk
from tests.spark.drivers.telling import draw_places, run_to_the_end, session

DISTANCE = 0.25

ON = {
    "boxes": (pk.intersects("b", cell=0.5), pk.intersects("b")),
    "vectors": (pk.near(["x", "y", "z"], distance=DISTANCE), pk.near("v", distance=DISTANCE)),
}
"""What rows find by cells, and what they find by being spread."""


def main(folder: Path, on: str, shards: int, places: int) -> None:
    draw_places(places)
    flow = pk.Flow(session(), checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=shards)
    left, right = (flow.parquet(folder / name, time="t", name=name, max_files=1) for name in ("left", "right"))
    by_cells, by_spreading = ON[on]
    cells = left.join(right, on=by_cells, method="rrpj", name="cells")
    cells.select("id", "id_right").to_parquet(str(folder / "cells"))
    spread = left.join(right, on=by_spreading, how="left", method="rrpj", name="spread")
    spread.select("id", "id_right").to_parquet(str(folder / "spread"))
    run_to_the_end(flow)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", choices=ON, required=True)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--places", type=int, default=0)
    told = parser.parse_args()
    main(told.folder, told.on, told.shards, told.places)
