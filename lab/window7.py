"""Window queries, chapter 7: OA-Join against joins that preserve order (spec window-queries §3)."""

from __future__ import annotations

from lab import shapes
from lab.experiments import Check, Experiment, Series
from lab.skews import HELD, LATENCY, Joining
from lab.window6 import sweep

_N = sweep("window n [s]", "n", 1, 3, 5, 7, 9)
_OA, _OPOB, _OPIB = Series("OA", Joining("oa")), Series("OPOB", Joining("opob")), Series("OPIB", Joining("opib"))
_STREAMS = "two links of 4,000 tuples/s each, in order and in step, joined on the reversed 4-tuple"

EXPERIMENTS = (
    Experiment(
        id="window-7-6",
        title="OA-Join against OPOB-Join: tuples held and latency over the window",
        series=(_OA, _OPOB),
        x=_N,
        measures=(HELD, LATENCY),
        expected=(
            Check("OA holds much less", "OA much lower memory.", shapes.below("OA", "OPOB", HELD, 0.5)),
            Check("OA sooner", "OA lower median latency.", shapes.below("OA", "OPOB", LATENCY, 0.5)),
            Check("gap grows", "The gap grows with n.", shapes.gap_grows("OA", "OPOB", HELD)),
        ),
        scale=1 / 20,
        streams=_STREAMS,
        remark="Tuples are the rows and, for OPOB, the results that wait. Latency is from when both rows are there, in "
        "steps of a quarter of a second; punctuation comes each second. Much is half or less: OA holds 0.31 of OPOB at "
        "3 s and 0.14 at 9 s, but 0.55 at 1 s, where a tuple has few partners and a second's arrivals weigh most.",
    ),
    Experiment(
        id="window-7-7",
        title="OA-Join against OPIB-Join: tuples held and latency over the window",
        series=(_OA, _OPIB, _OPOB),
        x=_N,
        measures=(HELD, LATENCY),
        expected=(
            Check("OA holds less", "OA slightly lower memory at every n.", shapes.below("OA", "OPIB", HELD)),
            Check("OPIB far below OPOB", "OPIB ≪ OPOB.", shapes.below("OPIB", "OPOB", HELD, 0.5)),
        ),
        scale=1 / 20,
        streams=_STREAMS,
        remark="OPIB holds 0.43 of OPOB at 3 s and 0.20 at 9 s, but 0.70 at 1 s: results are many times the input only "
        "where a tuple has many partners. Against OA it holds left tuples for a window more: a quarter to two fifths.",
    ),
)
