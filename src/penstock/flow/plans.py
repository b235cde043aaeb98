"""A multi-way join while a flow runs: its plan, what it was chosen by, and which operator is which part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.operators.multi_way.plan import Plan, Tree
from penstock.planner.multi_way.assumptions import Keys
from penstock.planner.multi_way.costs import Relation

Materialize = Literal["auto", "early", "late"]
"""Rows carry their payload; results fetch it; or whichever costs less."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedJoin:
    """One multi-way join, whose parts are operators."""

    name: str
    plan: Plan
    why: str
    """Why it runs by this plan."""
    keys: Keys = field(default_factory=dict)
    sizes: Mapping[str, Relation | None] = field(default_factory=dict)
    """What was known about its streams when the plan was chosen."""
    widths: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """About how many bytes the join columns take, by (stream, column)."""
    asked: Mapping[str, Materialize] = field(default_factory=dict)
    """When rows of each stream get their payload."""
    leaves_payload: bool = True
    """Whether rows of files may leave it there by default."""
    instead: str = ""
    """For a chain of joins of two: how to write it as one join, ``…plan`` standing for the plan."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An operator's part in a join: a node of its plan, and the nodes that the rows of its ports belong to."""

    join: PlannedJoin
    node: Tree
    ports: tuple[Tree, ...]
