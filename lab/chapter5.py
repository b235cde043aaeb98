"""Exact window joins, chapter 5: AH-EWJ against RPWJ, both on 60 hash partitions (spec §2.3, §2.4, §3).

Table 5.2: windows of 10 min, 1,200 tuples/s, 20 MB in all, pages of 1 KB, 64-byte tuples, basic windows of 1 MB, a
slide of 1 min. Runs are 1.6 h of which 12 min are warm-up. A comparison takes 4 ns, as in chapter 3: the machine is the
same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab import shapes
from lab.experiments import Check, Experiment, OverTime, Series, Sweep
from lab.measures import BUFFERED, CPU, DELAY, DELAYED, DISK, PROCESSED, TOTAL, WINDOW
from lab.setups import Setup, Workload
from lab.sweeps import backlogs, biases, each_rate, rates
from penstock.operators.window_join.methods import AhEwj, Rpwj

SCALE = 1 / 200
"""A rate of 1,200/s becomes 6/s, a memory of 20 MB a tenth of a MB. Over half an hour AH-EWJ takes as much CPU as at
twice the size, 7 % more of the disk, and its delay is 7 % less."""

SEEDS = 5

SCAN = 1.33e-6
"""Seconds to load a block that is looked through: calibration, since the thesis gives none, one for both algorithms and
all figures. It is 16 cache lines at 83 ns.

The rule: RPWJ just saturates at a steady 1,400/s (b = 0.5), where the thesis has its knee. Of each second its disk then
takes 0.270 and its comparisons 0.166; what is left is for 423,000 blocks, 276,000 of them for single tuples. All were
counted where it keeps up, since a scan takes no time, and without its stage for idle times, which would fill any time
there is."""

TICK = 4.0

WORKLOAD = Workload(rate=1200, span=5760, warm_up=720)
AH = Setup(
    WORKLOAD,
    window=600,
    method=AhEwj(memory=20 << 20, page=1024, row=64, chunk=1 << 20, partitions=60),
    scan=SCAN,
    tick=TICK,
)
RPWJ = Setup(
    WORKLOAD,
    window=600,
    method=Rpwj(memory=20 << 20, page=1024, row=64, chunk=1 << 20, partitions=60, slide="60 s"),
    scan=SCAN,
    tick=TICK,
)

_RATES = rates(1000, 1200, 1400, 1600, 1800)
_BIASES = biases(0.5, 0.6, 0.7)
_BOTH = (Series("AH-EWJ", AH), Series("RPWJ", RPWJ))
_AH = (Series("AH-EWJ", AH),)
_RPWJ = (Series("RPWJ", RPWJ),)

_SEEN = 0.05
"""A rise or a fall by less than a twentieth is none."""


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
        x=Sweep("slide τ [s]", (30, 60, 120), _slide),
        measures=(DELAY, DISK, DELAYED),
        expected=(
            Check("delay falls", "Delay falls as τ grows.", shapes.falls("RPWJ", DELAY, by=_SEEN)),
            Check("disk falls", "Disk time falls as τ grows.", shapes.falls("RPWJ", DISK, by=_SEEN)),
            Check("delayed fall", "Delayed % falls as τ grows.", shapes.falls("RPWJ", DELAYED, by=_SEEN)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="All that was put off is joined at each slide at the latest, so results wait for half a slide on "
        "average: 25, 36 and 60 s at τ = 30, 60 and 120 s (seed 0). In the source frequent slides overload "
        "the join; here it is busy for four fifths of the time, and has room for them. Disk time falls as "
        "in the source.",
    ),
    Experiment(
        id="5.5",
        title="RPWJ against the size of a flush",
        series=_RPWJ,
        x=Sweep("N_flush / M", (0.2, 0.4, 0.5, 0.8), _flush),
        measures=(DELAY,),
        expected=(
            Check(
                "least delay near half of the memory",
                "Delay minimum ≈0.5M (0.4 chosen).",
                shapes.minimum_near("RPWJ", DELAY, 0.5, within=0.1, over=_SEEN),
                thesis={"minimum at": 0.5},
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="The size of a flush hardly matters here: delays are between 34.6 and 36.0 s for all sizes (seed 0).",
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
        seeds=SEEDS,
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
                "RPWJ overloaded at 1400/s: on average over the second half, more wait than a join that keeps up has.",
                shapes.behind("1400/s", BUFFERED, backlogs(RPWJ, 1400)["1400/s"]),
            ),
            Check(
                "keeps up below",
                "And not at 1000/s and 1200/s.",
                shapes.bounded(backlogs(RPWJ, 1000, 1200), BUFFERED),
            ),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="At a steady rate the knee is at 1,400/s, by calibration. In bursts RPWJ goes over to blocks, of "
        "which each load serves many rows, and catches up again; it is overloaded beyond 1,600/s (Fig 5.9).",
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
        seeds=SEEDS,
        remark="Bursts decide: with one pair of traces (seed 0) AH-EWJ has 0.23 % at 1,400/s, 0.64 % at 1,600/s "
        "and 2.6 % at 1,800/s, with others it waits for the CPU in longer ones. It has fewer than RPWJ throughout.",
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
        seeds=SEEDS,
        remark="With one pair of traces (seed 0) AH-EWJ's delay is flat to 1,400/s, 13 to 18 s, and 32 s at "
        "1,600/s, where it is busy for three quarters of the time; with others longer bursts wait.",
    ),
    Experiment(
        id="5.10",
        title="CPU and disk time against rate",
        series=_BOTH,
        x=_RATES,
        measures=(CPU, DISK),
        expected=(
            Check("RPWJ takes more CPU", "RPWJ higher CPU.", shapes.clearly_below("AH-EWJ", "RPWJ", CPU)),
            Check("RPWJ takes far more disk", "RPWJ far higher disk.", shapes.below("AH-EWJ", "RPWJ", DISK, 0.5)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="The CPU time is that of the source: RPWJ's arrivals look for partners one by one, AH-EWJ's a block "
        "at a time. Its disk time includes what it probes in quiet times, every 15 s, and is close to "
        "RPWJ's.",
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
        seeds=SEEDS,
    ),
    Experiment(
        id="5.12",
        title="Tuples processed over time, 1200/s",
        series=_BOTH,
        x=OverTime(),
        measures=(PROCESSED,),
        expected=(Check("equal totals", "Equal totals.", shapes.ends_equal(["AH-EWJ", "RPWJ"], PROCESSED)),),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="5.13",
        title="Production delay against the number of partitions",
        series=_BOTH,
        x=Sweep("partitions", (20, 60, 100), _partitions),
        measures=(DELAY,),
        expected=(
            Check("RPWJ rises beyond 60", "RPWJ delay rises beyond 60.", shapes.rises_beyond("RPWJ", DELAY, 60, _SEEN)),
            Check("AH falls", "AH falls.", shapes.falls("AH-EWJ", DELAY, by=_SEEN)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="With more partitions both compare fewer rows and look through fewer blocks. The disk accesses of "
        "each partition, which are charged, do not outweigh that at 100.",
    ),
    Experiment(
        id="5.14",
        title="Production delay and maximum window against bias",
        series=_BOTH,
        x=_BIASES,
        measures=(replace(DELAY, axis="log"), WINDOW),
        expected=(
            Check("AH much better", "AH much better delay.", shapes.below("AH-EWJ", "RPWJ", DELAY, 0.5)),
            Check("AH's window grows", "Window grows.", shapes.rises("AH-EWJ", WINDOW, by=_SEEN)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="AH-EWJ's delay is 0.55, 0.44 and 0.33 of RPWJ's at b = 0.5, 0.6 and 0.7 (seed 0): half is the limit.",
    ),
    Experiment(
        id="5.15",
        title="CPU and disk time against bias",
        series=_BOTH,
        x=_BIASES,
        measures=(CPU, DISK),
        expected=(
            Check("RPWJ's CPU falls", "RPWJ CPU falls with b.", shapes.clearly_falls("RPWJ", CPU)),
            Check("RPWJ's disk falls", "RPWJ disk falls with b.", shapes.clearly_falls("RPWJ", DISK)),
        ),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="5.16",
        title="Total time against bias",
        series=_BOTH,
        x=_BIASES,
        measures=(TOTAL,),
        expected=(Check("RPWJ's total falls", "RPWJ total falls with b.", shapes.clearly_falls("RPWJ", TOTAL)),),
        scale=SCALE,
        seeds=SEEDS,
    ),
    Experiment(
        id="5.17",
        title="AH-EWJ against memory",
        series=_AH,
        x=Sweep("memory [MB]", (10, 20, 40), _memory),
        measures=(DELAY, CPU, DISK),
        expected=(
            Check("delay falls", "Delay falls.", shapes.falls("AH-EWJ", DELAY, by=_SEEN)),
            Check("CPU falls", "CPU falls.", shapes.falls("AH-EWJ", CPU, by=_SEEN)),
            Check("disk falls", "Disk falls.", shapes.falls("AH-EWJ", DISK, by=_SEEN)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="Every pair of blocks is looked through once, in memory or when it is read back, so memory does not "
        "change the CPU time. Arrivals wait for a block to fill and for the next probe in quiet times, "
        "whatever the memory: 14.0, 15.8 and 13.4 s with 10, 20 and 40 MB (seed 0).",
    ),
    Experiment(
        id="5.18",
        title="Production delay and CPU time against block size",
        series=_BOTH,
        x=Sweep("block size [KB]", (0.5, 1, 2), _page),
        measures=(DELAY, CPU),
        expected=(
            Check("AH flat", "AH delay flat.", shapes.flat("AH-EWJ", DELAY, 2)),
            Check("RPWJ oscillates", "RPWJ delay oscillates.", shapes.oscillates_more("RPWJ", "AH-EWJ", DELAY)),
            Check("CPU falls to a knee", "CPU falls to a knee.", shapes.falls_to_a_knee("AH-EWJ", CPU)),
        ),
        scale=SCALE,
        seeds=SEEDS,
        remark="Blocks of half a kB are twice as many for each row to look through: AH-EWJ is busy with them for "
        "more than two thirds of the time, and bursts wait. From 1 kB on its delay is flat (15.8 and 13.9 "
        "s, seed 0).",
    ),
)
