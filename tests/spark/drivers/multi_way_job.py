"""A join of three streams as a program of its own, for tests that kill it: files in, Parquet out, to their end.

    python -m tests.spark.drivers.multi_way_job FOLDER [--shards N] [--places SEED] [--materialize MODE]

Where each epoch runs is drawn. Prints ``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import penstock as pk
from lab.workloads.visits import ON, PLAN
from tests.spark.drivers.telling import draw_places, run_to_the_end, session


def main(folder: Path, shards: int, places: int, materialize: str) -> None:
    draw_places(places)
    flow = pk.Flow(session(), checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=shards)
    streams = {name: flow.parquet(folder / name, time="t", name=name, max_files=1) for name in ("v", "u", "p")}
    flow.join(**streams, on=list(ON), plan=PLAN, materialize=materialize).to_parquet(str(folder / "out"))
    run_to_the_end(flow)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--places", type=int, default=0)
    parser.add_argument("--materialize", default="late")
    told = parser.parse_args()
    main(told.folder, told.shards, told.places, told.materialize)
