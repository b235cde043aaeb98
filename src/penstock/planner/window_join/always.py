"""The method of a join without a window: OA-Join while every page is cheap to probe, else RRPJ.

OA-Join emits every result at once, and probes the full history. RRPJ probes what is in memory, and defers the rest
until the streams are silent or ended: worth it only if OA-Join cannot keep up.
"""

from __future__ import annotations

from penstock.core.errors import ConfigError
from penstock.operators.window_join import JoinTime
from penstock.planner.machine import SERVER, Machine
from penstock.planner.window_join.choice import DEFAULT, Alternative, Choice, Preference
from penstock.planner.window_join.costs import COSTS
from penstock.planner.window_join.load import Load

_UNKNOWN = "nothing is measured yet; OA-Join defers nothing, and its state may outgrow the memory"
_FORCED = (
    "its results feed another operator by their later time, and a method that defers results would hold back its bound"
)


def plan_always(
    load: Load | None,
    memory: int,
    feeds_operator: bool,
    time: JoinTime,
    epoch_seconds: float,
    current: str | None,
    machine: Machine = SERVER,
    preference: Preference = DEFAULT,
) -> Choice:
    """Choose the method of a join without a window; the arguments are those of `plan_window_join`.

    >>> load = Load(rows_per_second=(15e3, 15e3), row_bytes=(100.0, 100.0), window_seconds=(6e3, 6e3))
    >>> cached, disk = Machine(page_cache=64e9), Machine(page_cache=0)
    >>> plan_always(load, 64_000_000, False, "left", 2.0, None, cached).method
    'oa'
    >>> plan_always(load, 64_000_000, False, "left", 2.0, None, disk).method
    'rrpj'
    """
    for name, value in (("memory", memory), ("epoch_seconds", epoch_seconds)):
        if not value > 0:
            raise ConfigError(f"{name}={value} must be above 0.")
    running = current if current == "rrpj" else "oa"
    if feeds_operator and time == "latest":
        return Choice("oa", _FORCED)
    if load is None:
        return (
            Choice("oa", _UNKNOWN)
            if running == "oa"
            else Choice("rrpj", "RRPJ runs already, and nothing is measured yet")
        )
    oa, rrpj = (COSTS[method](load, memory, epoch_seconds, machine) for method in ("oa", "rrpj"))
    limit = 1.0 if running == "oa" else 1.0 - preference.stay
    soon = f"{100 * rrpj.at_once:.0f} % of the results"
    if oa.seconds <= limit or preference.prompt * rrpj.seconds >= oa.seconds:
        why = (
            f"mapped pages are cheap to probe: OA-Join takes {oa.seconds:.2f} s of work per second of stream and "
            f"defers nothing"
            if oa.keeps_up
            else f"OA-Join falls behind, but RRPJ would not be {preference.prompt:g} × cheaper"
        )
        not_taken = f"would give {soon} at once, the rest when the streams are silent or ended"
        return Choice("oa", why, oa, (Alternative("rrpj", rrpj, not_taken),))
    why = (
        f"probing all pages would take OA-Join {oa.seconds:.2f} s of work per second of stream; RRPJ gives {soon} at "
        f"once from memory, in {rrpj.seconds:.2f} s, and the rest when the streams are silent or ended"
    )
    return Choice(
        "rrpj", why, rrpj, (Alternative("oa", oa, "falls behind" if not oa.keeps_up else "nearly falls behind"),)
    )
