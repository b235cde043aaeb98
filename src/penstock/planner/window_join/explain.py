"""A choice of a window join's method in words: the method, the reason, and what the others would have cost."""

from __future__ import annotations

from penstock.core.budget import show_bytes
from penstock.operators.window_join import METHODS
from penstock.planner.table import aligned
from penstock.planner.window_join.choice import Choice
from penstock.planner.window_join.costs import Cost

_HEAD = ("predicted", "s per s", "read/row", "written/row", "at once", "")


def explain_choice(choice: Choice) -> tuple[str, ...]:
    """The lines that `explain()` shows of a choice: the method, why, and a row for each method if costs are known.

    >>> for line in explain_choice(Choice("oa", "nothing is measured yet")):
    ...     print(line)
    method oa (OA-Join: matches rows as they arrive, in any order, and purges them as bounds pass)
    because nothing is measured yet
    """
    head = METHODS.explained(choice.method, choice.reason)
    if choice.cost is None:
        return head
    rows = [_row(choice.method, choice.cost, "chosen"), *(_row(o.method, o.cost, o.why) for o in choice.alternatives)]
    return (*head, *aligned([_HEAD, *rows]))


def _row(method: str, cost: Cost, why: str) -> tuple[str, ...]:
    read, written = show_bytes(round(cost.read)), show_bytes(round(cost.written))
    return (method, f"{cost.seconds:.3f}", read, written, f"{100 * cost.at_once:.0f} %", why)
