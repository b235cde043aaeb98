"""What the pages of an aggregation of sliding windows hold: a page's kind tells its role and its lane.

The methods share their roles, so that one can take over the state of another: panes and waiting rows can be turned into
windows, windows into nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from penstock.core.errors import StateError
from penstock.core.operator import State
from penstock.core.pages import Page, PageStore
from penstock.operators.aggregate.methods import METHODS

Role = Literal[
    "panes",
    "running",
    "suffixes",
    "checkpoints",
    "window",
    "base",
    "windows",
    "passing",
    "waiting",
    "volumes",
    "eager",
    "buffered",
    "stated",
]
"""Partials of panes; what two stacks make of them; the window last closed; all before a landmark; partials of open
windows, and of those that close now; rows of lazy groups; rows per group, groups that are eager; rows that buffering
holds; bounds of groups that take effect at the end of the epoch."""

_NAMES: tuple[Role, ...] = get_args(Role)

_LANES = 10_000
"""More lanes than an aggregation can have."""

_MADE_AGAIN = ("running", "suffixes", "checkpoints", "window", "volumes", "eager")
"""What follows from the rest, or only helps to decide: a method that has no use for it lets go of it."""


def takes_up(method: str, left_by: str) -> bool:
    """Whether a method can go on with the open windows of another.

    >>> takes_up("wid", left_by="paned"), takes_up("paned", left_by="wid")
    (True, False)
    """
    return not METHODS.of(method).parameters.from_panes or METHODS.of(left_by).parameters.from_panes


def page_kind(role: Role, lane: int = 0) -> int:
    """The kind of the pages that hold a lane's part of a role.

    >>> page_kind("panes", 2), page_kind("running")
    (2, 10000)
    """
    return _NAMES.index(role) * _LANES + lane


def role_of(kind: int) -> Role:
    """What the pages of a kind hold.

    >>> role_of(page_kind("windows", 3))
    'windows'
    """
    return _NAMES[kind // _LANES]


def by_kind(state: State, store: PageStore, roles: Collection[Role]) -> dict[int, list[Page]]:
    """The pages of these roles, kind by kind; what another method made only for itself goes."""
    mine: dict[int, list[Page]] = {}
    for page in state.pages:
        if role_of(page.kind) in roles:
            mine.setdefault(page.kind, []).append(page)
        elif role_of(page.kind) in _MADE_AGAIN:
            store.drop(page.name)
        else:
            raise StateError(
                f"The state holds {role_of(page.kind)}, but this method can resume only from {', '.join(roles)}. "
                f"Start with the method that wrote the state, or with a new checkpoint folder."
            )
    return mine
