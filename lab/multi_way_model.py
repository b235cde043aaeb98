"""What the cost model says that a join of TPC-H's streams moves on Spark, with the widths that rows have there."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lab.multi_way_runs import PLANS, Mode, Shape
from lab.workloads.tpch import JOINS, Tpch, widths
from penstock.planner.multi_way import JoinLoad, Relation, predict_join

FIXED = 24
"""Bytes of a row besides what joins it to others and its payload: its hash, its event time, and where it is."""
_OFFSET = 4
"""Bytes that say where a text ends."""


def moved(shape: Shape, mode: Mode, tables: Mapping[str, pa.Table], rows: Mapping[str, int] | None = None) -> float:
    """Bytes that the joins move, if each lineitem has its order, its supplier and its customer.

    Tables may be a part of so many `rows`, as wide as they are.

    >>> data = Tpch(0.001)
    >>> tables = {name: data.prefix(name, 100) for name in ("li", "o", "s", "c")}
    >>> moved("3-way", "late", tables) < 0.5 * moved("3-way", "early", tables)
    True
    """
    plan = PLANS[shape]
    count = rows or {name: table.num_rows for name, table in tables.items()}
    relations = {name: _relation(name, tables[name], count[name]) for name in plan.rels}
    facts = {rels: "li" if "li" in rels else "o" for node in plan.intermediates for rels in [frozenset(node.rels)]}
    counted = {rels: float(count[name]) for rels, name in facts.items()}
    load = JoinLoad(relations, counted={**counted, frozenset(plan.rels): float(count["li"])})
    return predict_join(plan, load, plan.rels if mode == "early" else ()).communication


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
