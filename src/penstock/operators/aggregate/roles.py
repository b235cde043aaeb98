"""What the pages of an aggregation of sliding windows hold: a page's port tells its role and its lane.

The methods share their roles, so that one can see what another has left, and take it up: panes and rows that wait can
be made into windows, windows into nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from penstock.core.errors import StateError
from penstock.core.operator import State
from penstock.core.pages import Page, PageStore

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


_FROM_PANES = ("paned", "differential")
"""Methods that need panes; the others need windows, which can be made of them."""


def takes_up(method: str, left_by: str) -> bool:
    """Whether a method can go on with the open windows of another.

    >>> takes_up("wid", left_by="paned"), takes_up("paned", left_by="wid")
    (True, False)
    """
    return method not in _FROM_PANES or left_by in _FROM_PANES


def port_of(role: Role, lane: int = 0) -> int:
    """The port of the pages that hold a lane's part of a role.

    >>> port_of("panes", 2), port_of("running")
    (2, 10000)
    """
    return _NAMES.index(role) * _LANES + lane


def role_of(port: int) -> Role:
    """What the pages of a port hold.

    >>> role_of(port_of("windows", 3))
    'windows'
    """
    return _NAMES[port // _LANES]


def by_port(state: State, store: PageStore, roles: Collection[Role]) -> dict[int, list[Page]]:
    """The pages of these roles, port by port; what another method made only for itself goes."""
    mine: dict[int, list[Page]] = {}
    for page in state.pages:
        if role_of(page.port) in roles:
            mine.setdefault(page.port, []).append(page)
        elif role_of(page.port) in _MADE_AGAIN:
            store.drop(page.name)
        else:
            raise StateError(
                f"State holds {role_of(page.port)}, from which a method that works on {', '.join(roles)} cannot go on. "
                f"Go on with the method that left them, or start with a new checkpoint folder."
            )
    return mine
