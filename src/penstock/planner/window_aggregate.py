"""Why sliding windows are computed as they are: what each method would cost, in updates (Eq 6.1–6.4).

What counts is how many rows a partial stands for: where a pane has hardly more rows than groups, panes save nothing.
"""

from __future__ import annotations

from penstock.core.windows import Slides, Sliding
from penstock.operators.aggregate.config import Panes, WindowAggregate
from penstock.operators.aggregate.costs import WindowCosts

_SAYS = {
    "wid": "each row updates every one of its windows",
    "paned": "each row updates its pane, windows are put together from panes",
    "differential": "windows slide by the panes that enter and leave",
}


def window_costs(slides: Slides, rows_per_partial: float) -> WindowCosts:
    """Costs per window and group, if a pane has so many rows for each group that it has.

    >>> costs = window_costs(Slides(range=60, slide=1), rows_per_partial=100)
    >>> round(costs.wid), round(costs.paned), round(costs.differential)
    (6000, 161, 103)
    """
    panes = Panes.of(slides)
    return WindowCosts(slides.range, slides.slide, rows=rows_per_partial * panes.count, groups=1)


def explain_aggregate(config: WindowAggregate, rows_per_partial: float | None) -> list[str]:
    """The method and the reason in sentences; the alternatives with their cost once something was measured."""
    if not isinstance(config.window, Sliding):
        return []
    asked = config.method if isinstance(config.method, str) else type(config.method).__name__
    method = "paned" if asked == "auto" else asked
    slides = config.window.on(config.unit)
    lines = [f"method {method} ({_SAYS.get(method, 'as asked for')})"]
    if asked != "auto":
        lines.append(f"because method={asked!r} was asked for")
    elif slides.range <= slides.slide:
        lines.append("because windows do not overlap: a window is a pane, and all methods are the same")
    elif rows_per_partial is None:
        lines.append(f"because a row is in {slides.range / slides.slide:g} windows, but in one pane")
    else:
        costs = window_costs(slides, rows_per_partial)
        lines += [
            f"because a pane has {rows_per_partial:,.1f} rows of each group it has, and a row is in "
            f"{slides.range / slides.slide:g} windows",
            f"updates per window and group: paned {costs.paned:,.0f}, on two stacks about as many as differential, "
            f"{costs.differential:,.0f}; wid {costs.wid:,.0f}",
        ]
    return lines
