"""A choice in words: the method, the reason, and a table of what the others would have cost."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.budget import show_bytes
from penstock.operators.window_join.methods import Baseline
from penstock.planner.costs import Cost
from penstock.planner.lookup import TITLES as LOOKUP_TITLES
from penstock.planner.lookup import KeysAsked, LookupChoice, LookupCost, PlannedLookup
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


_LOOKUPS: dict[PlannedLookup, str] = {
    "broadcast": "the whole table is in the memory of every task",
    "inlj": "keys are looked up, those of an epoch in one request",
    "cinlj": "frequent keys are answered from a cache, the others are looked up",
    "hybridjoin": "rows wait for the partition that has their key, and the oldest chooses which is read",
    "chybridjoin": "a cache answers frequent keys, the others wait for their partition",
    "meshjoin": "the table is read round and round, and rows meet all of it",
    "cmeshjoin": "a cache answers frequent keys, the others meet the table as it is read round and round",
    "partitioned": "partitions that are asked for often stay in memory, rows wait for the others",
}
_LOOKUP_HEAD = ("predicted", "rows/s", "µs/row", "from memory", "reads/row", "waits", "")


def describe_lookup(method: PlannedLookup) -> str:
    """A method of lookup joins in a line.

    >>> describe_lookup("inlj")
    'INLJ: keys are looked up, those of an epoch in one request'
    """
    title = LOOKUP_TITLES[method]
    return f"{title[0].upper()}{title[1:]}: {_LOOKUPS[method]}"


def explain_lookup(choice: LookupChoice, keys: KeysAsked | None = None) -> tuple[str, ...]:
    """The lines that `explain()` shows of how a lookup join runs: the method, why, hits, and a row for each method.

    `keys` says how unevenly they are asked for, and what a cache makes of it.

    >>> for line in explain_lookup(LookupChoice("inlj", "nothing is measured yet")):
    ...     print(line)
    method inlj (INLJ: keys are looked up, those of an epoch in one request)
    because nothing is measured yet
    """
    lines = [f"method {choice.method} ({describe_lookup(choice.method)})", f"because {choice.reason}"]
    if keys is not None:
        lines.append(str(keys))
    if choice.cost is None:
        return tuple(lines)
    rows = [_lookup_row(choice.method, choice.cost, "chosen")]
    rows += [_lookup_row(other.method, other.cost, other.why) for other in choice.alternatives]
    return (*lines, *aligned([_LOOKUP_HEAD, *rows]))


def _lookup_row(method: PlannedLookup, cost: LookupCost | None, why: str) -> tuple[str, ...]:
    if cost is None:
        return (method, "", "", "", "", "", why)
    numbers = (f"{cost.rate:,.0f}", f"{1e6 * cost.seconds:.2f}", f"{100 * cost.hit_share:.0f} %", f"{cost.reads:.2g}")
    return (method, *numbers, f"{cost.waits:.1f} s", why)


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
