"""The picture of ``docs/multi-way.md``: bytes on each edge of the 3-way join, early and late, measured on Spark.

    python -m lab.multi_way_edges docs/multi-way-edges.svg

joins the first lineitems of TPC-H at scale factor 0.01, with 3 KB more in each, and draws what each edge moved.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.multi_way_runs import PLANS, Mode
from lab.multi_way_spark import session, write
from lab.plots import need_matplotlib
from lab.workloads.tpch import KB, Tpch

SCALE, PAYLOAD = 0.01, 3 * KB
EDGES = {("join0", 0): "li → o", ("join0", 1): "o → li", ("join1", 0): "li ⋈ o → s", ("join1", 1): "s → li ⋈ o"}
"""By operator and port, what the thesis calls an edge: whose rows probe which store."""
FETCHED = "payload of results,\nread from the files"
_COLOURS = {"early": "#D55E00", "late": "#0072B2"}
_MB = 1e6

Bytes = Mapping[str, float]
"""By edge."""


def main(path: Path) -> None:
    """Measure both modes, draw them, and print the numbers."""
    need_matplotlib()
    with tempfile.TemporaryDirectory(prefix="multi-way-", ignore_cleanup_errors=True) as folder:
        files = Path(folder, "files")
        write(files, Tpch(SCALE, (("li", PAYLOAD),)), SCALE)
        found = {mode: measured(files, Path(folder, mode), mode) for mode in _MODES}
    for edge in (*EDGES.values(), FETCHED):
        print(f"{edge!r}: " + ", ".join(f"{mode} {found[mode][edge] / _MB:.2f} MB" for mode in _MODES))
    draw(found, path)


def measured(files: Path, folder: Path, mode: Mode) -> Bytes:
    """What each edge of the 3-way join moves, and what is fetched for its results."""
    import penstock as pk
    from lab.shuffle_counts import Counting

    plan = PLANS["3-way"]
    flow = pk.Flow(session(), checkpoint=str(folder / "checkpoint"), memory="512 MB", shards=2)
    streams: dict[str, Any] = {name: flow.parquet(files / name, time="t", name=name, max_files=1) for name in plan.rels}
    on = [str(each) for each in plan.predicates]
    flow.join(**streams, on=on, plan=str(plan), materialize=mode).to_format("noop")
    counting = Counting(folder / "counts")
    with counting.watching():
        flow.run()
    moved = dict.fromkeys((*EDGES.values(), FETCHED), 0.0)
    for count in counting.counts():
        moved[EDGES[count.operator, count.port] if count.kind == "edge" else FETCHED] += count.bytes
    return moved


def draw(found: Mapping[Mode, Bytes], path: Path) -> None:
    """A pair of bars for each edge, on a scale of powers of ten, with the numbers beside them."""
    import matplotlib
    from matplotlib.figure import Figure

    labels = [*EDGES.values(), FETCHED]
    figure = Figure(figsize=(8.0, 3.9), layout="constrained")
    axes = figure.add_subplot()
    for place, mode in enumerate(_MODES):
        sizes = [found[mode][label] / _MB for label in labels]
        heights = [number + 0.38 * place for number in range(len(labels))]
        bars = axes.barh(heights, sizes, 0.36, label=mode, color=_COLOURS[mode])
        axes.bar_label(bars, [f"{size:.3g} MB" if size else "nothing" for size in sizes], padding=3, fontsize=8)
    axes.set_yticks([number + 0.19 for number in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=1500)
    axes.set_xlabel("moved [MB]")
    axes.set_title("(li ⋈ o) ⋈ s, 60,000 lineitems of 3 KB", fontsize=11)
    axes.legend(loc="center right")
    axes.grid(visible=True, axis="x", alpha=0.3)
    with matplotlib.rc_context({"svg.hashsalt": "penstock", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


_MODES: tuple[Mode, ...] = ("early", "late")

if __name__ == "__main__":
    main(Path(sys.argv[1]))
