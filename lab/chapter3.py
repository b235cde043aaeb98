"""Exact window joins, chapter 3: EWJ on one partition, against arrival rate and burstiness (spec §2.2, §3).

Table 3.2: windows of half an hour, 200 tuples/s, 20 MB per stream window, pages of 4 KB, 128-byte tuples. Runs are
4 h of which half an hour is warm-up. The thesis gives neither basic window (1 MB here) nor CPU cost: 4 ns a
comparison puts the knee at 250/s. Probing in idle times, which the thesis recommends but does not measure, is off.
"""

from __future__ import annotations

from dataclasses import replace

from lab import shapes
from lab.experiments import Check, Experiment, OverTime, Series
from lab.measures import BUFFERED, DELAY, DELAYED, DISK, OUTPUTS, TOTAL, WINDOW
from lab.setups import Setup, Workload
from lab.sweeps import at_bias, backlogs, biases, each_rate, rates
from penstock.operators.window_join.methods import Ewj

SCALE = 1 / 40
"""A rate of 200/s becomes 5/s, a stream window of 20 MB half a MB; at 1/10 delay, CPU and disk are within 2 %."""

SEEDS = 3

MEMORY = 40 << 20
EWJ = Setup(
    Workload(rate=200, span=4 * 3600, warm_up=1800),
    window=1800,
    method=Ewj(memory=MEMORY, page=4096, row=128, chunk=1 << 20, idle_gap="4 h"),
)

RATES = (100, 150, 200, 250, 300)
BIASES = (0.5, 0.55, 0.6, 0.65, 0.7)

_EWJ = (Series("EWJ", EWJ),)
_ARRIVALS = 2 * 200
"""Tuples of both streams in a second."""

EXPERIMENTS = (
    Experiment(
        id="3.4",
        title="EWJ: buffered tuples over time, rates that it keeps up with",
        series=each_rate(EWJ, 100, 150, 200, 250),
        x=OverTime(),
        measures=(BUFFERED,),
        expected=(
            Check(
                "bounded",
                "Buffered tuples: bounded at low rates.",
                shapes.bounded(backlogs(EWJ, 100, 150, 200), BUFFERED),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="3.5",
        title="EWJ: buffered tuples over time, at and beyond saturation",
        series=each_rate(EWJ, 250, 300),
        x=OverTime(),
        measures=(BUFFERED,),
        expected=(
            Check(
                "very large above 250/s",
                "Very large above 250/s.",
                shapes.grows_to("300/s", BUFFERED, backlogs(EWJ, 300)["300/s"]),
            ),
            Check(
                "2 M pending at 300/s",
                "≈2 M pending at 300/s.",
                shapes.ends_about("300/s", BUFFERED, 2e6),
                thesis={"300/s": 2e6},
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="3.6a",
        title="EWJ: delayed tuples against rate",
        series=_EWJ,
        x=rates(*RATES),
        measures=(DELAYED,),
        expected=(
            Check("sharp rise above 150/s", "Sharp rise >150/s.", shapes.jumps("EWJ", DELAYED, 150, 250)),
            Check(
                "few up to 200/s",
                "<0.4 % up to 200/s.",
                shapes.at_most("EWJ", DELAYED, [100, 150, 200], 0.4),
                thesis={"at 200": 0.4},
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="Bursts wait for the CPU. With one pair of traces (seed 0) 0.207 % are delayed at 200/s, but "
        "0.007 % if a comparison takes no time instead of the spec's 4 ns.",
    ),
    Experiment(
        id="3.6b",
        title="EWJ: production delay against rate",
        series=_EWJ,
        x=rates(*RATES),
        measures=(DELAY,),
        expected=(
            Check(
                "little changed to 250/s",
                "Delay little changed to 250/s though windows exceed 20 MB/stream.",
                shapes.flat("EWJ", DELAY, 250),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="What putting joins off costs is flat: 131 s at 150/s, 135 s at 200/s and 133 s at 250/s if a "
        "comparison takes no time (seed 0). At the spec's 4 ns it is 147 s, 184 s and 495 s: at 250/s the CPU is busy "
        "for 10,494 of 12,600 s, and up to 478,280 tuples of a burst wait for it.",
    ),
    Experiment(
        id="3.6c",
        title="EWJ: maximum window size against rate",
        series=_EWJ,
        x=rates(*RATES),
        measures=(WINDOW,),
        expected=(
            Check(
                "5 times the memory at 250/s",
                "Footprint ≈5× memory at 250/s.",
                shapes.about("EWJ", WINDOW, 250, 5 * MEMORY / 2**20),
                thesis={"at 250": 5 * MEMORY / 2**20},
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="3.7",
        title="EWJ: results over time, per rate",
        series=each_rate(EWJ, *RATES),
        x=OverTime(),
        measures=(OUTPUTS,),
        expected=(
            Check(
                "steeper with the rate",
                "Higher rate → steeper.",
                shapes.steeper([f"{rate}/s" for rate in RATES], OUTPUTS),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="3.8",
        title="EWJ: CPU and disk time against rate",
        series=_EWJ,
        x=rates(*RATES),
        measures=(replace(TOTAL, axis="log", panel="time [s]"), replace(DISK, axis="log", panel="time [s]")),
        expected=(
            Check("disk very small", "Disk very small.", shapes.small_beside("EWJ", DISK, TOTAL)),
            Check(
                "CPU-bound at 250/s",
                "CPU-bound ≈250/s.",
                shapes.about("EWJ", TOTAL, 250, 0.9 * 12_600, factor=1.15),
                kind="anchor",
            ),
            Check(
                "low below 200/s",
                "Utilisation low <200/s.",
                shapes.at_most("EWJ", TOTAL, [100, 150], 0.5 * 12_600),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="Seconds from the end of the warm-up to the end of the traces, 12,600 in all. At the spec's 4 ns a "
        "comparison a steady 250/s takes 90 % of them.",
    ),
    Experiment(
        id="3.9",
        title="EWJ: buffered tuples over time, per bias, 200/s",
        series=tuple(Series(f"b = {bias:g}", at_bias(EWJ, bias)) for bias in (0.5, 0.6, 0.7)),
        x=OverTime(),
        measures=(BUFFERED,),
        expected=(
            Check(
                "oscillates at b = 0.5",
                "Buffer oscillates even at b=0.5: between 10 s of arrivals and 50 s of them, and back.",
                shapes.oscillates("b = 0.5", BUFFERED, low=_ARRIVALS * 10, high=_ARRIVALS * 50),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="3.10",
        title="EWJ: delay, delayed tuples and window against bias, 200/s",
        series=_EWJ,
        x=biases(*BIASES),
        measures=(DELAY, DELAYED, WINDOW),
        expected=(
            Check("delay rises", "Delay rises with b.", shapes.rises("EWJ", DELAY)),
            Check("delayed rise", "Delayed % rises with b.", shapes.rises("EWJ", DELAYED)),
            Check("window rises", "Window rises with b.", shapes.rises("EWJ", WINDOW)),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
)
