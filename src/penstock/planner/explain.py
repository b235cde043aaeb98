"""A choice in words: the method, the reason, and a table of what the others would have cost."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.budget import show_bytes
from penstock.operators.window_join.methods import Baseline
from penstock.planner.costs import Cost
from penstock.planner.window_join import TITLES, Choice, Planned

_WHAT: dict[Planned, str] = {
    "oa": "matches rows as they arrive, in any order, and lets go of them as bounds pass",
    "ewj": "keeps recent and productive blocks in memory, and joins what is on disk many rows at a time",
    "ah_ewj": "as EWJ, by hash partitions, with memory that moves to the slower stream",
    "rpwj": "joins in memory as rows arrive, and all that is on disk once a slide",
}
_LINES: dict[str, str] = {
    **{method: f"{TITLES[method]}: {what}" for method, what in _WHAT.items()},
    "opob": "OPOB-Join: matches as OA-Join does, and holds results back until they can leave by the left row's time",
    "opib": "OPIB-Join: holds left rows back and joins them by time, once all that they can meet is there",
    "global_order": "global-order join: lets go of rows by the times of arrivals, as if both streams were one in order",
}
_HEAD = ("predicted", "s per s", "read/row", "written/row", "at once", "")


def describe(method: Planned | Baseline) -> str:
    """A method in a line.

    >>> describe("oa")
    'OA-Join: matches rows as they arrive, in any order, and lets go of them as bounds pass'
    """
    return _LINES[method]


def explain_choice(choice: Choice) -> tuple[str, ...]:
    """The lines that `explain()` shows of a choice: the method, why, and a row for each method if costs are known.

    >>> for line in explain_choice(Choice("oa", "nothing is measured yet")):
    ...     print(line)
    method oa (OA-Join: matches rows as they arrive, in any order, and lets go of them as bounds pass)
    because nothing is measured yet
    """
    head = (f"method {choice.method} ({describe(choice.method)})", f"because {choice.reason}")
    if choice.cost is None:
        return head
    rows = [_row(choice.method, choice.cost, "chosen"), *(_row(o.method, o.cost, o.why) for o in choice.alternatives)]
    return (*head, *aligned([_HEAD, *rows]))


def _row(method: Planned, cost: Cost, why: str) -> tuple[str, ...]:
    read, written = show_bytes(round(cost.read)), show_bytes(round(cost.written))
    return (method, f"{cost.seconds:.3f}", read, written, f"{100 * cost.at_once:.0f} %", why)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Names and reasons to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
