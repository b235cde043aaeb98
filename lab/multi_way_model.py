"""What the cost model says that a join of TPC-H's streams moves on Spark, with the widths that rows have there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from lab.multi_way_runs import PLANS, Mode, Shape
from lab.workloads.tpch import JOINS, Tpch, widths
from penstock.planner.multi_way import JoinLoad, Relation, predict_join

FIXED = 24
"""Bytes of a row besides what joins it to others and its payload: its hash, its event time, and where it is."""
_OFFSET = 4
"""Bytes that say where a text ends."""


def moved(
    shape: Shape,
    mode: Mode | Collection[str],
    tables: Mapping[str, pa.Table],
    rows: Mapping[str, int] | None = None,
    results: int | None = None,
) -> float:
    """Bytes that the joins move: early, late, or where the payload of some relations travels.

    Each lineitem has its supplier, each order its customer. So many lineitems have their order as there are `results`,
    all of them unless that is given. Tables may be a part of so many `rows`, as wide as they are.

    >>> data = Tpch(0.001)
    >>> tables = {name: data.prefix(name, 100) for name in ("li", "o", "s", "c")}
    >>> moved("3-way", "late", tables) < 0.5 * moved("3-way", ["li"], tables) < moved("3-way", "early", tables)
    True
    """
    plan = PLANS[shape]
    count = rows or {name: table.num_rows for name, table in tables.items()}
    relations = {name: _relation(name, tables[name], count[name]) for name in plan.rels}
    found = count["li"] if results is None else results
    counted = {frozenset(plan.rels): float(found)}
    for node in plan.intermediates:
        several = found if {"li", "o"} <= node.rels else count["li" if "li" in node.rels else "o"]
        counted[frozenset(node.rels)] = float(several)
    load = JoinLoad(relations, counted=counted)
    carried = plan.rels if mode == "early" else () if mode == "late" else mode
    return predict_join(plan, load, carried).communication


def prefixes(scale: float, payload: int, lines: int) -> dict[str, pa.Table]:
    """The rows that come with so many lineitems."""
    data = Tpch(scale, (("li", payload),) if payload else ())
    return {name: data.prefix(name, lines) for name in ("li", "o", "s", "c")}


def _relation(name: str, rows: pa.Table, count: int) -> Relation:
    """Its rows, and the bytes that join one of them to others and that it brings besides."""
    keys = [column for column in JOINS[name] if column != "linenumber"]
    others = [column for column in rows.column_names if column not in (*keys, "t")]
    texts = sum(_is_text(rows.schema.field(column).type) for column in others)
    payload = float(widths(rows, tuple(others)).mean()) + _OFFSET * texts if rows.num_rows else 0.0
    return Relation(count, FIXED + 8 * len(keys), payload)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
