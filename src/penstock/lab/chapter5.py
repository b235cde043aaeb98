"""Exact window joins, chapter 5: AH-EWJ against RPWJ, both on 60 hash partitions (spec §2.3, §2.4, §3).

Table 5.2: windows of 10 min, 1,200 tuples/s, 20 MB in all, pages of 1 KB, 64-byte tuples, basic windows of 1 MB, a
slide of 1 min. Runs are 1.6 h of which 12 min are warm-up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.lab import shapes
from penstock.lab.experiments import Check, Experiment, OverTime, Series, Sweep
from penstock.lab.measures import BUFFERED, CPU, DELAY, DELAYED, DISK, PROCESSED, TOTAL, WINDOW
from penstock.lab.setups import Setup, Workload
from penstock.lab.sweeps import backlogs, biases, each_rate, rates
from penstock.operators.window_join.methods import AhEwj, Rpwj

SCALE = 1 / 100
"""A rate of 1,200/s becomes 12/s, a memory of 20 MB a fifth of a MB."""

COMPARISON = 17e-9
"""Seconds a comparison takes: calibration, since the thesis gives none, the same for both algorithms and all figures.

The rule: RPWJ just saturates at a steady 1,400/s (b = 0.5), where the thesis has its knee. Of each second its disk then
takes 0.27, and what is left is for 43 million comparisons; both were counted at 8 ns, where it keeps up, and without
its stage for idle times, which would fill any time there is."""

WORKLOAD = Workload(rate=1200, span=5760, warm_up=720)
AH = Setup(
    WORKLOAD,
    window=600,
    method=AhEwj(memory=20 << 20, page=1024, row=64, chunk=1 << 20, partitions=60),
    comparison=COMPARISON,
)
RPWJ = Setup(
    WORKLOAD,
    window=600,
    method=Rpwj(memory=20 << 20, page=1024, row=64, chunk=1 << 20, partitions=60, slide="60 s"),
    comparison=COMPARISON,
)

_RATES = rates(1000, 1200, 1400, 1600, 1800)
_BIASES = biases(0.5, 0.6, 0.7)
_BOTH = (Series("AH-EWJ", AH), Series("RPWJ", RPWJ))
_AH = (Series("AH-EWJ", AH),)
_RPWJ = (Series("RPWJ", RPWJ),)

_SAME_WORK = (
    "Both methods compare every pair of a window once: 3,241 s of CPU for AH-EWJ at 1,400/s, 3,255 s for RPWJ. So one "
    "cost of a comparison at which RPWJ saturates there leaves AH-EWJ ahead by its disk only; why RPWJ took more CPU "
    "in the thesis is not in the spec."
)


def _slide(setup: Setup, seconds: float) -> Setup:
    return _with(setup, slide=f"{seconds:g} s")


def _flush(setup: Setup, part: float) -> Setup:
    return _with(setup, flush=part)


def _partitions(setup: Setup, count: float) -> Setup:
    return _with(setup, partitions=int(count))


def _memory(setup: Setup, megabytes: float) -> Setup:
    return _with(setup, memory=int(megabytes * 2**20))


def _page(setup: Setup, kilobytes: float) -> Setup:
    return _with(setup, page=int(kilobytes * 2**10))


def _with(setup: Setup, **parameters: Any) -> Setup:
    return replace(setup, method=replace(setup.method, **parameters))


EXPERIMENTS = (
    Experiment(
        id="5.4",
        title="RPWJ against the slide τ",
        series=_RPWJ,
        x=Sweep("slide τ [s]", (15, 30, 60, 120), _slide),
        measures=(DELAY, DISK, DELAYED),
        expected=(
            Check("delay falls", "Delay falls as τ grows.", shapes.falls("RPWJ", DELAY)),
            Check("disk falls", "Disk time falls as τ grows.", shapes.falls("RPWJ", DISK)),
            Check("delayed fall", "Delayed % falls as τ grows.", shapes.falls("RPWJ", DELAYED)),
        ),
        scale=SCALE,
        remark="Up to the thesis' own τ of 60 s all three fall: 194 s, 86.4 s, 67.8 s of delay. At 120 s the disk "
        "still takes less, but the delay is 86.2 s and 1.84 % are delayed, after 1.41 %.",
    ),
    Experiment(
        id="5.5",
        title="RPWJ against the size of a flush",
        series=_RPWJ,
        x=Sweep("N_flush / M", (0.2, 0.3, 0.4, 0.5, 0.6, 0.8), _flush),
        measures=(DELAY,),
        expected=(
            Check(
                "least delay near half of the memory",
                "Delay minimum ≈0.5M (0.4 chosen).",
                shapes.minimum_near("RPWJ", DELAY, 0.5, within=0.1),
                thesis={"minimum at": 0.5},
            ),
        ),
        scale=SCALE,
        remark="The size of a flush hardly matters here: delays are between 64.2 s and 70.6 s for all sizes, with one "
        "pair of traces, and have no minimum inside.",
    ),
    Experiment(
        id="5.6",
        title="AH-EWJ: buffered tuples over time, per rate",
        series=each_rate(AH, 1200, 1400, 1600),
        x=OverTime(),
        measures=(BUFFERED,),
        expected=(
            Check(
                "keeps up",
                "Buffers, AH vs RPWJ: only RPWJ is overloaded at 1400/s.",
                shapes.bounded(backlogs(AH, 1200, 1400), BUFFERED),
            ),
        ),
        scale=SCALE,
        remark="Narrowly at 1,400/s: 701,500 tuples wait at most, and 806,400 would be a twentieth of all.",
    ),
    Experiment(
        id="5.7",
        title="RPWJ: buffered tuples over time, per rate",
        series=each_rate(RPWJ, 1000, 1200, 1400),
        x=OverTime(),
        measures=(BUFFERED,),
        expected=(
            Check(
                "overloaded at 1400/s",
                "RPWJ overloaded at 1400/s.",
                shapes.grows_to("1400/s", BUFFERED, backlogs(RPWJ, 1400)["1400/s"]),
            ),
        ),
        scale=SCALE,
        remark="Bursts overload it, not the mean rate: the queue is empty again after 72 min, and 1,155,200 tuples "
        "long when the traces end in a burst.",
    ),
    Experiment(
        id="5.8",
        title="Delayed tuples against rate",
        series=_BOTH,
        x=_RATES,
        measures=(DELAYED,),
        expected=(
            Check("RPWJ sharp above 1000/s", "RPWJ sharp >1000/s.", shapes.jumps("RPWJ", DELAYED, 1000, 1400)),
            Check(
                "AH at 1400/s",
                "AH 0.05 % at 1400.",
                shapes.at_most("AH-EWJ", DELAYED, [1400], 0.5),
                thesis={"at 1400": 0.05},
            ),
            Check(
                "AH at 1600/s",
                "AH ≈0.1 % at 1600.",
                shapes.at_most("AH-EWJ", DELAYED, [1600], 1.0),
                thesis={"at 1600": 0.1},
            ),
            Check("AH low at 1800/s", "AH low at 1800.", shapes.at_most("AH-EWJ", DELAYED, [1800], 5.0)),
        ),
        scale=SCALE,
        remark=f"{_SAME_WORK} At 1,600/s it is busy for 4,913 of 5,040 s, and bursts wait.",
    ),
    Experiment(
        id="5.9",
        title="Production delay and maximum window against rate",
        series=_BOTH,
        x=_RATES,
        measures=(replace(DELAY, axis="log"), WINDOW),
        expected=(
            Check("AH flat to 1600/s", "AH flat to 1600/s.", shapes.flat("AH-EWJ", DELAY, 1600)),
            Check(
                "AH's window at 1600/s",
                "AH with ≈190 MB window (9× M) at 1600/s.",
                shapes.about("AH-EWJ", WINDOW, 1600, 190),
                thesis={"at 1600": 190},
            ),
            Check("RPWJ saturates at 1400/s", "RPWJ saturates at 1400.", shapes.jumps("RPWJ", DELAY, 1000, 1400)),
        ),
        scale=SCALE,
        remark=f"{_SAME_WORK} Its delay grows from 16.7 s at 1,000/s to 90.1 s at 1,400/s and 345 s at 1,600/s.",
    ),
    Experiment(
        id="5.10",
        title="CPU and disk time against rate",
        series=_BOTH,
        x=_RATES,
        measures=(CPU, DISK),
        expected=(
            Check("RPWJ takes more CPU", "RPWJ higher CPU.", shapes.below("AH-EWJ", "RPWJ", CPU)),
            Check("RPWJ takes far more disk", "RPWJ far higher disk.", shapes.below("AH-EWJ", "RPWJ", DISK, 0.5)),
        ),
        scale=SCALE,
        remark=f"{_SAME_WORK} From 1,600/s on both are busy nearly all the time, and RPWJ, with more disk, has less "
        "left for CPU. AH-EWJ's disk takes 934 to 995 s at every rate, RPWJ's 954 to 1,448 s: more, not twice as much.",
    ),
    Experiment(
        id="5.11",
        title="Total time against rate",
        series=_BOTH,
        x=_RATES,
        measures=(TOTAL,),
        expected=(
            Check(
                "AH takes 40 % less at 1400/s",
                "AH ≈40 % less total at 1400.",
                shapes.part_of("AH-EWJ", "RPWJ", TOTAL, 1400, 0.45, 0.75),
                thesis={"part": 0.6},
            ),
        ),
        scale=SCALE,
        remark=f"{_SAME_WORK} What AH-EWJ saves is disk: 966 s instead of 1,405 s, a tenth of the total.",
    ),
    Experiment(
        id="5.12",
        title="Tuples processed over time, 1200/s",
        series=_BOTH,
        x=OverTime(),
        measures=(PROCESSED,),
        expected=(Check("equal totals", "Equal totals.", shapes.ends_equal(["AH-EWJ", "RPWJ"], PROCESSED)),),
        scale=SCALE,
        remark="The traces end in a burst, of which RPWJ still has 309,600 tuples more in its queue than AH-EWJ, "
        "2.2 %, where 2 % would pass as equal. Both process all of them in the end.",
    ),
    Experiment(
        id="5.13",
        title="Production delay against the number of partitions",
        series=_BOTH,
        x=Sweep("partitions", (20, 60, 100), _partitions),
        measures=(DELAY,),
        expected=(
            Check("RPWJ rises beyond 60", "RPWJ delay rises beyond 60.", shapes.rises_beyond("RPWJ", DELAY, 60)),
            Check("AH falls", "AH falls.", shapes.falls("AH-EWJ", DELAY)),
        ),
        scale=SCALE,
        remark="More partitions mean fewer comparisons, for RPWJ, too: 67.8 s at 60 and 33.5 s at 100. What makes it "
        "rise in the source is a cost of many partitions that the spec does not name and that is not charged here.",
    ),
    Experiment(
        id="5.14",
        title="Production delay against bias",
        series=_BOTH,
        x=_BIASES,
        measures=(replace(DELAY, axis="log"),),
        expected=(Check("AH much better", "AH much better delay.", shapes.below("AH-EWJ", "RPWJ", DELAY, 0.5)),),
        scale=SCALE,
        remark="Half of RPWJ's delay or less up to b = 0.6 (18.1 s beside 39.2 s, 24.6 s beside 67.8 s), but 120 s "
        "beside 172 s at b = 0.7: up to 756,500 and 1,000,400 tuples wait for the CPU in the bursts then.",
    ),
    Experiment(
        id="5.15",
        title="Maximum window against bias",
        series=_BOTH,
        x=_BIASES,
        measures=(WINDOW,),
        expected=(Check("AH's window grows", "Window grows.", shapes.rises("AH-EWJ", WINDOW)),),
        scale=SCALE,
    ),
    Experiment(
        id="5.16",
        title="CPU, disk and total time against bias",
        series=_BOTH,
        x=_BIASES,
        measures=(CPU, DISK, TOTAL),
        expected=(
            Check("RPWJ's CPU falls", "RPWJ CPU falls with b.", shapes.falls("RPWJ", CPU)),
            Check("RPWJ's disk falls", "RPWJ disk falls with b.", shapes.falls("RPWJ", DISK)),
            Check("RPWJ's total falls", "RPWJ total falls with b.", shapes.falls("RPWJ", TOTAL)),
        ),
        scale=SCALE,
    ),
    Experiment(
        id="5.17",
        title="AH-EWJ against memory",
        series=_AH,
        x=Sweep("memory [MB]", (10, 20, 40), _memory),
        measures=(DELAY, CPU, DISK),
        expected=(
            Check("delay falls", "Delay falls.", shapes.falls("AH-EWJ", DELAY)),
            Check("CPU falls", "CPU falls.", shapes.falls("AH-EWJ", CPU)),
            Check("disk falls", "Disk falls.", shapes.falls("AH-EWJ", DISK)),
        ),
        scale=SCALE,
        remark="Every pair of rows in a partition is compared once, in memory or when it is read back, so memory does "
        "not change the CPU time: 2,467 s with 10 MB, 2,507 s with 40 MB. Delay and disk fall.",
    ),
    Experiment(
        id="5.18",
        title="Production delay and CPU time against block size",
        series=_BOTH,
        x=Sweep("block size [KB]", (0.5, 1, 2, 4), _page),
        measures=(DELAY, CPU),
        expected=(
            Check("AH flat", "AH delay flat.", shapes.flat("AH-EWJ", DELAY, 4)),
            Check("RPWJ oscillates", "RPWJ delay oscillates.", shapes.oscillates_more("RPWJ", "AH-EWJ", DELAY)),
            Check("CPU falls to a knee", "CPU falls to a knee.", shapes.falls("AH-EWJ", CPU)),
        ),
        scale=SCALE,
        remark="Comparisons are all that is charged to the CPU, and blocks of any size compare the same rows: 2,507 s "
        "with half a kB, 2,573 s with 4 kB. What handling a block costs is not in the spec.",
    ),
)
