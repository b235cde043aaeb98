"""The picture of ``docs/progressive.md``: results from memory as rows arrive, by policy.

    python -m lab.policies_over_time docs/progressive-policies.svg

joins 200,000 tuples in memory of 8,500, by counts: where half of the partitions of the streams have no key in common,
and where the productive partitions change every 3,200 tuples.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lab.plots import COLOURS, need_matplotlib
from lab.progressive_runs import DOMAIN, MEMORY, PARTITIONS, TUPLES
from lab.progressive_simulation import complete, count_results
from lab.workloads.progressive import Drifting, Skewed
from penstock.operators.window_join.progressive.baselines.policies import ArrivalRate, ByChance, Largest
from penstock.operators.window_join.progressive.policies import DriftRate, Policy, ResultRate

SCALE, FLUSH, PERIOD = 0.1, 0.1, 32_000
STREAMS: Mapping[str, Skewed | Drifting] = {
    "half of the partitions never meet": Skewed("harmony", PARTITIONS, round(DOMAIN * SCALE), 1.0, 0.5),
    "streams drift": Drifting(round(PERIOD * SCALE), PARTITIONS, round(DOMAIN * SCALE), 1.0),
}
Series = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Numbers of arrivals, and the percentage of all results that is out after each."""


def policies() -> dict[str, Policy]:
    """What is compared, by name."""
    return {
        "RRPJ": DriftRate(PARTITIONS),
        "RRPJ, sigma = 1": ResultRate(PARTITIONS),
        "RPJ": ArrivalRate(PARTITIONS),
        "XJoin": Largest(PARTITIONS),
        "random": ByChance(PARTITIONS, 0),
    }


def counted(streams: Skewed | Drifting, scale: float = SCALE) -> dict[str, Series]:
    """What each policy gives of one pair of streams."""
    side, keys = streams.draw(round(TUPLES * scale), 1)
    whole, found = complete(side, keys), {}
    for name, policy in policies().items():
        run = count_results(policy, side, keys, round(MEMORY * scale), FLUSH)
        found[name] = run.arrivals, 100 * run.results / whole
    return found


def draw(found: Mapping[str, Mapping[str, Series]], path: Path) -> None:
    """A panel for each pair of streams, a curve for each policy."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    for place, (title, series) in enumerate(found.items()):
        axes = figure.add_subplot(1, len(found), place + 1)
        for colour, (name, (arrivals, shares)) in zip(COLOURS, series.items(), strict=False):
            style, width = ("--", 1.5) if "sigma" in name else ("-", 2.5 if name == "RRPJ" else 1)
            axes.plot(arrivals / 1000, shares, style, label=name, color=colour, linewidth=width)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("rows arrived [thousands]")
        axes.grid(visible=True, alpha=0.3)
        if not place:
            axes.set_ylabel("results out [% of all]")
            axes.legend(fontsize=8)
    with matplotlib.rc_context({"svg.hashsalt": "penstock", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main(path: Path) -> None:
    """Count, draw, and print where each policy ends."""
    need_matplotlib()
    found = {title: counted(streams) for title, streams in STREAMS.items()}
    for title, series in found.items():
        print(f"{title}: " + ", ".join(f"{name} {shares[-1]:.1f} %" for name, (_, shares) in series.items()))
    draw(found, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
