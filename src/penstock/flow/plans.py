"""A join of several streams while a flow runs: its plan, what that was chosen by, and which operator is which part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.operators.multi_way.plan import Plan, Tree
from penstock.planner.multi_way.assumptions import Keys
from penstock.planner.multi_way.costs import Relation

Materialize = Literal["auto", "early", "late"]
"""Rows bring their payload; results fetch it; or whichever costs less."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedJoin:
    """One join of several streams, which operators are parts of."""

    name: str
    plan: Plan
    why: str
    """Why it runs by this plan."""
    keys: Keys = field(default_factory=dict)
    sizes: Mapping[str, Relation | None] = field(default_factory=dict)
    """What was known of its streams when the plan was chosen."""
    widths: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """About how many bytes the columns have that streams are joined by: (stream, column)."""
    asked: Mapping[str, Materialize] = field(default_factory=dict)
    """When rows of each stream are to get their payload."""
    leaves_payload: bool = True
    """Whether rows of files may leave it there where nobody asks for it."""
    instead: str = ""
    """For a chain of joins of two: how to write it as one join, ``…plan`` standing for the plan."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What an operator is of a join: a node of its plan, and which nodes the rows of its ports are of."""

    join: PlannedJoin
    node: Tree
    ports: tuple[Tree, ...]
