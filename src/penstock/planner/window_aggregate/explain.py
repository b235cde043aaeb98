"""A choice of an aggregation's method in words: the method, the reason, and what the others would have cost."""

from __future__ import annotations

from penstock.core.budget import show_bytes
from penstock.core.windows import Sliding, TupleWindow
from penstock.operators.aggregate import METHODS, WindowAggregate
from penstock.planner.table import aligned
from penstock.planner.window_aggregate.choice import AggregateChoice, is_planned


def explain_aggregate(config: WindowAggregate, choice: AggregateChoice | None) -> list[str]:
    """The lines that `explain()` shows: the method, why, and a row for each once something was measured.

    >>> from penstock.core.windows import sliding
    >>> from penstock.operators.aggregate.functions import Count
    >>> config = WindowAggregate(sliding(60, 1), ("k",), (("n", Count()),), method="wid")
    >>> for line in explain_aggregate(config, None):
    ...     print(line)
    method wid (WID: each row updates all of its windows)
    because method='wid' was asked for
    """
    if not isinstance(config.window, Sliding | TupleWindow):
        return []
    if config.method != "auto":
        return [*METHODS.explained(config.method)]
    if choice is None:
        choice = AggregateChoice("paned", _without_a_choice(config))
    lines = METHODS.explained(choice.method, choice.reason)
    if not choice.costs:
        return [*lines]
    rows = [("predicted", "ms per window", "state", "")]
    for method in sorted(choice.costs, key=lambda method: method != choice.method):
        cost = choice.costs[method]
        said = choice.why_not.get(method, "chosen")
        rows.append((method, f"{1e3 * cost.seconds:.1f}", show_bytes(round(cost.state)), said))
    return [*lines, *aligned(rows)]


def _without_a_choice(config: WindowAggregate) -> str:
    if config.emit != "final":
        return "windows are sent before they are complete, which only panes support"
    if not is_planned(config):
        return "windows count arrivals, and their numbers say nothing about time"
    return "nothing has run yet: the method is chosen again before each epoch"
