"""What a query says: small typed records that a flow is made from. The fields are the whole meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.windows import Window
from penstock.core.within import Always, Band, Tumbling, Within

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Which rows of a join come out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result: an `expression` in Spark's SQL over the source, and its name."""

    expression: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate of the result: `function` over `column` (None is every row), with what else it is given.

    >>> Call("quantile", "len", "slow", (0.99,)).arguments
    (0.99,)
    """

    function: str
    column: str | None
    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream, or the union of several, by the names that the flow knows; `alias` is what the query calls it.

    In a join, `where` are the conditions on this side alone, and `time` is its windowing attribute, if it is named.
    """

    streams: tuple[str, ...]
    alias: str
    where: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """How the first source is joined with the second: key columns (ours, theirs), nearness in time, the kind.

    `pairs` is one more condition on pairs, over ``l`` and ``r``.
    """

    on: tuple[tuple[str, str], ...]
    within: Band | Tumbling | Always
    how: JoinKind = "inner"
    pairs: str | None = None


@dataclass(frozen=True, slots=True)
class Several:
    """How three sources or more are joined: conditions over ``alias.column``, and nearness in time, if any is asked."""

    on: tuple[str, ...]
    within: Within | None


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query.

    Without a `window` it hands rows on, or, over a join, groups by the times of the pairs. `time` is the windowing
    attribute, None for the stream's own time. Of a single source `where` is a condition on its rows. `having` is one on
    the results, by their names. The columns of a join are qualified by alias, as in ``S0.ts``.
    """

    select: tuple[Column | Call, ...]
    sources: tuple[Source, ...]
    join: Join | None = None
    several: Several | None = None
    where: str | None = None
    window: Window | None = None
    time: str | None = None
    groups: tuple[str, ...] = ()
    having: str | None = None

    @property
    def aggregates(self) -> tuple[Call, ...]:
        """The aggregates among the columns of the result."""
        return tuple(item for item in self.select if isinstance(item, Call))
