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
        "matches rows as they arrive, in any order, and purges them as bounds pass",
        Oa(),
        OAJoin,
        auto="may pick",
    ),
    Method(
        "ewj",
        "EWJ",
        "keeps recent and productive blocks in memory, and joins with the blocks on disk in batches",
        Ewj(),
        _given_parameters(EWJoin),
        auto="may pick",
    ),
    Method(
        "ah_ewj",
        "AH-EWJ",
        "like EWJ, with hash partitions and memory that shifts to the slower stream",
        AhEwj(),
        _given_parameters(AHEWJoin),
        auto="may pick",
    ),
    Method(
        "rpwj",
        "RPWJ",
        "joins in memory as rows arrive, and with everything on disk once per slide",
        Rpwj(),
        _given_parameters(RPWJoin),
        auto="may pick",
    ),
    Method(
        "opob",
        "OPOB-Join",
        "matches like OA-Join, but holds results back until they can leave in order of the left row's time",
        Opob(),
        OPOBJoin,
        auto="never picks",
    ),
    Method(
        "opib",
        "OPIB-Join",
        "holds left rows back and joins them in order of time, once all their partners have arrived",
        Opib(),
        OPIBJoin,
        auto="never picks",
    ),
    Method(
        "global_order",
        "global-order join",
        "purges rows by the times of arrivals, as if both streams together were in order",
        GlobalOrder(),
        GlobalOrderJoin,
        auto="never picks",
    ),
    _progressive(
        "rrpj",
        "RRPJ",
        "keeps the most productive rows in memory and joins the rest when idle, for joins without a window",
        Rrpj(),
        auto="may pick",
    ),
    _progressive(
        "amortized_rrpj", "amortised RRPJ", "like RRPJ, with older results fading at each flush", Rrpj(sigma=0.5)
    ),
    _progressive("rrpj_f", "RRPJ-F", "like RRPJ, with results counted for each row", Rrpj(by="row")),
    _progressive(
        "jgradient",
        "JGradient",
        "like RRPJ, by the results of a partition, however many rows it has",
        Rrpj(sigma=1.0, per="nothing"),
    ),
    _progressive("random", "random flushing", "flushes a random partition", Random()),
    _progressive("xjoin", "XJoin", "flushes the largest partition", XJoin()),
    _progressive("hmj", "HMJ", "flushes the largest pair of partitions, one of each stream", Hmj()),
    _progressive("rpj", "RPJ", "flushes the partition that the other stream is least likely to probe", Rpj()),
    _progressive(
        "nerpj", "neRPJ", "flushes the cell whose counterpart has the fewest rows of the other stream", NeRpj()
    ),
    _progressive("la", "LA", "like RPJ, with recent arrivals weighing more", La()),
    _progressive("pmj", "PMJ", "gathers rows until memory is full, joins them, and flushes all of them", Pmj()),
    _progressive("shj", "SHJ", "keeps all rows in memory, and fails if they do not fit", Shj()),
)
