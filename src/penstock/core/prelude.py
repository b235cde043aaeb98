"""Preludes: what a host may compute from rows before the shuffle, described without reference to an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.core.time import Time


class PartialFunction(Protocol):
    """An aggregate function as a host sees it."""

    @property
    def column(self) -> str | None:
        """What it aggregates; None for rows as such."""
        ...

    def in_sql(self, kind: pa.DataType, value: str) -> Sequence[str] | None:
        """Its partials in Spark's SQL, of the column written `value`; None if Spark cannot make them."""
        ...


class LanePart(Protocol):
    """One function of a lane: over which type of column, and where in the lane its partials are."""

    @property
    def function(self) -> PartialFunction:
        """The function."""
        ...

    @property
    def kind(self) -> pa.DataType:
        """The type of its column."""
        ...

    @property
    def first(self) -> int:
        """The place of its first partial."""
        ...

    @property
    def last(self) -> int:
        """The place after its last."""
        ...


class PreludeLane(Protocol):
    """One table of partials: a row for each pane, group and combination of other keys."""

    @property
    def schema(self) -> pa.Schema:
        """Hash and start of the pane, group columns, other keys, partials."""
        ...

    @property
    def groups(self) -> tuple[str, ...]:
        """The input's columns that rows are grouped by."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The input's columns that are keys besides."""
        ...

    @property
    def group_places(self) -> range:
        """Where the group columns are."""
        ...

    @property
    def key_places(self) -> range:
        """Where the other keys are."""
        ...

    @property
    def parts(self) -> Sequence[LanePart]:
        """The functions; the first counts rows."""
        ...


class Prelude(NamedTuple):
    """Rows aggregated by pane and group before the shuffle: partials enter the operator instead of rows."""

    size: int
    """The length of a pane, in steps of time."""
    origin: int
    """Where some pane begins."""
    lanes: Sequence[PreludeLane]
    copies: Callable[[Time, Time], int]
    """In how many results a partial may be at most when the bound goes from one time to another."""
