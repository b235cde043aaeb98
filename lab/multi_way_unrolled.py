"""The cost equations as the thesis has them: the 3-way and 4-way plans term by term, and Eq 4.5 as printed.

`costs` has the general form that the planner uses. These are what it must agree with; the printed reconstruction
charges one hop too many and leaves out the number of results (§6-2), and serves only to show the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.planner.multi_way.costs import JoinLoad

Materialization = Literal["early", "late"]
"""Whole rows travel, or keys alone."""


def three_way_storage(load: JoinLoad, r: str, s: str, t: str, mode: Materialization) -> float:
    """Bytes in the stores of ``(r s) t``."""
    leaves = sum(load.relations[rel].rows * load.relations[rel].width for rel in (r, s, t))
    return leaves + load.card((r, s)) * _width(load, (r, s), mode)


def three_way_communication(load: JoinLoad, r: str, s: str, t: str, mode: Materialization) -> dict[str, float]:
    """Bytes on each edge of ``(r s) t``; late, the payload is fetched from t, then s, then r.

    >>> from penstock.planner.multi_way.costs import Relation
    >>> ten = {frozenset("RS"): 10, frozenset("RST"): 10}
    >>> load = JoinLoad({name: Relation(10, 1, 9) for name in "RST"}, counted=ten)
    >>> three_way_communication(load, "R", "S", "T", "late")
    {'R→S': 10, 'S→R': 10, 'T→RS': 10, 'RS→T': 20, 'fetch T→S': 120, 'fetch S→R': 210}
    """
    terms = {
        f"{r}→{s}": load.relations[r].rows * _width(load, (r,), mode),
        f"{s}→{r}": load.relations[s].rows * _width(load, (s,), mode),
        f"{t}→{r}{s}": load.relations[t].rows * _width(load, (t,), mode),
        f"{r}{s}→{t}": load.card((r, s)) * _width(load, (r, s), mode),
    }
    if mode == "early":
        return terms
    keys, results = load.width((r, s, t)), load.card((r, s, t))
    first = load.relations[t].payload
    return {
        **terms,
        f"fetch {t}→{s}": results * (keys + first),
        f"fetch {s}→{r}": results * (keys + first + load.relations[s].payload),
    }


def four_way_communication(load: JoinLoad, order: Sequence[str], mode: Materialization) -> float:
    """Bytes of ``(li s) (o c)`` over its relations ``li, s, o, c`` in that order; late, `order` is σ."""
    li, s, o, c = load.relations
    leaves = sum(load.relations[rel].rows * _width(load, (rel,), mode) for rel in (li, s, o, c))
    inner = sum(load.card(pair) * _width(load, pair, mode) for pair in ((li, s), (o, c)))
    if mode == "early":
        return leaves + inner
    first, second, third, _ = (load.relations[rel].payload for rel in order)
    return leaves + inner + load.results * (3 * load.width(load.relations) + 3 * first + 2 * second + third)


def reconstruction_as_printed(load: JoinLoad, order: Sequence[str]) -> float:
    """Eq 4.5 to the letter: bytes for one result, n hops instead of n - 1.

    >>> from penstock.planner.multi_way.costs import Relation, reconstruction
    >>> load = JoinLoad({name: Relation(1, 1, size) for name, size in zip("abc", (10, 20, 30))})
    >>> reconstruction_as_printed(load, "abc"), reconstruction(load, "abc")
    (109.0, 46.0)
    """
    total = 0.0
    for place in range(1, len(order) + 1):
        seen, rest = order[:place], order[place:]
        total += load.width(seen, seen) + load.width(rest)
    return total


def storage_as_communication(load: JoinLoad, left: Sequence[str], right: str) -> float:
    """Eq 4.4 as printed for late materialization of ``(left) right``: the right child's *storage* in its sum."""
    inner = load.card(left) * load.width(left) + sum(
        load.relations[rel].rows * load.relations[rel].keys for rel in left
    )
    return inner + load.relations[right].rows * load.relations[right].width


def _width(load: JoinLoad, rels: Sequence[str], mode: Materialization) -> float:
    return load.width(rels, rels if mode == "early" else ())
