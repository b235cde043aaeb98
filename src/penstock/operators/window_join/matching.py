"""Join conditions other than equal keys: one protocol for all predicates.

A predicate says which columns it reads, where rows are sent, which rows can match at all, and which pairs do. The
rest – times, marks, memory, results – is the same as for keys (`match_pairing`).
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.routes import KEYED, Cells, Route
from penstock.core.rows import Hashes, Indices
from penstock.kernels.equal import Mask


class Looked(NamedTuple):
    """Rows as a predicate sees them: their hashes, ascending, and the columns that it reads."""

    hashes: Hashes
    columns: Sequence[pa.Array]

    def slice(self, start: int, rows: int) -> Looked:
        """Some that follow each other."""
        return Looked(self.hashes[start : start + rows], [column.slice(start, rows) for column in self.columns])


class Matching(abc.ABC):
    """A predicate over one row of either side: a frozen dataclass whose `str` is how users write it."""

    __slots__ = ()

    @property
    def identity(self) -> str:
        """All that it asks for, and all that state depends on, for a checkpoint to compare."""
        return str(self)

    @abc.abstractmethod
    def columns(self, port: int) -> tuple[str, ...]:
        """The columns of a side that it looks at."""

    @abc.abstractmethod
    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """Raise an error unless both sides have these columns, in types that can be compared."""

    def route(self, port: int, keeps: tuple[bool, bool]) -> Route:
        """How rows find shards, where a join `keeps` rows of either side that have met nobody.

        A row that is kept may have no copy: nobody would know that another one has met a partner.
        """
        return KEYED

    def crosses(self, cells: Cells | None) -> bool:
        """Whether rows may meet that are of one site but sorted apart; if not, those of a site have one hash."""
        return True

    @abc.abstractmethod
    def known(self, columns: Sequence[pa.Array]) -> tuple[Mask, Hashes]:
        """Which rows can match, and of those what they are sorted by: the last 32 bits of their hashes."""

    @abc.abstractmethod
    def pairs(
        self, port: int, mine: Looked, theirs: Looked, cells: Cells | None, budget: Budget
    ) -> Iterator[tuple[Indices, Indices]]:
        """The pairs of my rows, of `port`, and theirs, that match and are of one site, each once.

        Where rows have copies, in `cells`, a pair is given in one of the sites alone that both have.
        """


def listed(columns: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that a side of a predicate names; anything else stands for itself, to be refused.

    >>> listed("box"), listed(["x", "y"])
    (('box',), ('x', 'y'))
    """
    return tuple(columns) if isinstance(columns, Sequence) and not isinstance(columns, str) else (columns,)
