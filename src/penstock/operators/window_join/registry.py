"""The methods of a window join: the one list of them.

A new one is a module with its parameters and its logic, and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from penstock.core.methods import MakeLogic, Method
from penstock.core.operator import Logic
from penstock.operators.window_join.ah_ewj import AHEWJoin
from penstock.operators.window_join.baselines.global_order import GlobalOrder, GlobalOrderJoin
from penstock.operators.window_join.baselines.opib import Opib, OPIBJoin
from penstock.operators.window_join.baselines.opob import Opob, OPOBJoin
from penstock.operators.window_join.ewj import EWJoin
from penstock.operators.window_join.methods import METHODS, AhEwj, Ewj, JoinMethod, Rpwj
from penstock.operators.window_join.oa import Oa, OAJoin
from penstock.operators.window_join.progressive.baselines.parameters import (
    Hmj,
    La,
    NeRpj,
    Pmj,
    Random,
    Rpj,
    Shj,
    XJoin,
)
from penstock.operators.window_join.progressive.engine import ProgressiveJoin
from penstock.operators.window_join.progressive.parameters import Progressive, Rrpj
from penstock.operators.window_join.rpwj import RPWJoin

__all__ = ["METHODS"]


def _given_parameters(kind: Callable[..., Logic]) -> MakeLogic:
    """Makes logics that take the parameters of their method beside the join."""
    return lambda config, inputs, store, budget, state, meter=None: kind(
        config, inputs, store, budget, state, config.parameters, meter
    )


def _progressive(
    name: str,
    title: str,
    sentence: str,
    parameters: Progressive,
    auto: Literal["may pick", "never picks"] = "never picks",
) -> Method[JoinMethod]:
    return Method(name, title, sentence, parameters, _given_parameters(ProgressiveJoin), auto)


METHODS.add(
    Method(
        "oa",
        "OA-Join",
        "matches rows as they arrive, in any order, and lets go of them as bounds pass",
        Oa(),
        OAJoin,
        auto="may pick",
    ),
    Method(
        "ewj",
        "EWJ",
        "keeps recent and productive blocks in memory, and joins what is on disk many rows at a time",
        Ewj(),
        _given_parameters(EWJoin),
        auto="may pick",
    ),
    Method(
        "ah_ewj",
        "AH-EWJ",
        "as EWJ, by hash partitions, with memory that moves to the slower stream",
        AhEwj(),
        _given_parameters(AHEWJoin),
        auto="may pick",
    ),
    Method(
        "rpwj",
        "RPWJ",
        "joins in memory as rows arrive, and all that is on disk once a slide",
        Rpwj(),
        _given_parameters(RPWJoin),
        auto="may pick",
    ),
    Method(
        "opob",
        "OPOB-Join",
        "matches as OA-Join does, and holds results back until they can leave by the left row's time",
        Opob(),
        OPOBJoin,
        auto="never picks",
    ),
    Method(
        "opib",
        "OPIB-Join",
        "holds left rows back and joins them by time, once all that they can meet is there",
        Opib(),
        OPIBJoin,
        auto="never picks",
    ),
    Method(
        "global_order",
        "global-order join",
        "lets go of rows by the times of arrivals, as if both streams were one in order",
        GlobalOrder(),
        GlobalOrderJoin,
        auto="never picks",
    ),
    _progressive(
        "rrpj",
        "RRPJ",
        "keeps those rows of a join without a window in memory that bring most results, and joins the rest when idle",
        Rrpj(),
        auto="may pick",
    ),
    _progressive(
        "amortized_rrpj", "amortised RRPJ", "as RRPJ, with older results fading at each flush", Rrpj(sigma=0.5)
    ),
    _progressive("rrpj_f", "RRPJ-F", "as RRPJ, with results counted row by row", Rrpj(by="row")),
    _progressive(
        "jgradient",
        "JGradient",
        "as RRPJ, by results alone, whatever a partition holds",
        Rrpj(sigma=1.0, per="nothing"),
    ),
    _progressive("random", "random flushing", "lets any partition leave memory", Random()),
    _progressive("xjoin", "XJoin", "lets the largest partition leave memory", XJoin()),
    _progressive("hmj", "HMJ", "lets the largest pair of partitions leave memory, one of each stream", Hmj()),
    _progressive("rpj", "RPJ", "lets leave what the other stream is least likely to ask for", Rpj()),
    _progressive("nerpj", "neRPJ", "lets leave the cell whose opposite has fewest of the other stream's rows", NeRpj()),
    _progressive("la", "LA", "as RPJ, with the last arrivals weighing more", La()),
    _progressive("pmj", "PMJ", "gathers rows until memory is full, joins them, and lets all of them leave", Pmj()),
    _progressive("shj", "SHJ", "keeps all rows in memory, and fails if they do not fit", Shj()),
)
