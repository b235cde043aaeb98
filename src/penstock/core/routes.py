"""How rows find shards: by key, by the cells that they touch, or one port spread and the other copied.

The first 32 bits of a hash are a row's **site**. Whatever the number of shards, rows of one site are in one shard, with
their pages: so rows meet if, and only if, their sites are equal. A row that is sent to several sites has an independent
copy at each; the operator must emit a pair with copies at several sites at only one of
them. The last 32 bits of the hashes of rows that are not placed by key are the operator's.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.rows import Hashes, Indices, RowType

SITE_BITS = 32
"""How many bits of a hash, the first ones, are a site; as many are left for the operator."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows with equal keys go to the same site. Without keys, all rows go to one site."""


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A row goes to any one of a fixed number of sites, determined by these `columns` and its time."""

    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Each row is copied to all of these sites, to meet the rows that may be anywhere."""


class Cells(abc.ABC):
    """Each row is copied to every cell that it touches; a row that touches none goes nowhere."""

    __slots__ = ()

    @abc.abstractmethod
    def touched(self, types: RowType, rows: pa.RecordBatch) -> tuple[Indices, Hashes]:
        """For each copy, the row that it is of, ascending, and the number of the cell, below 2**32.

        Equal values touch equal cells, whoever asks: reruns and other hosts send copies to the same sites.
        """


Route = Keyed | Anywhere | Everywhere | Cells
"""How the rows of a port find shards."""

KEYED = Keyed()


def as_hashes(sites: Hashes) -> Hashes:
    """Numbers of sites, below 2**32, as the hashes of rows there: those of cells must be spread evenly.

    >>> as_hashes(np.array([1], np.uint64)).tolist() == [2**32]
    True
    """
    return sites << np.uint64(SITE_BITS)


def numbered_site(number: int, sites: int) -> int:
    """The hash that leads one of so many sites; they are as far apart as they can be.

    >>> numbered_site(1, sites=2) == 2**63
    True
    """
    return -(-(number << SITE_BITS) // sites) << SITE_BITS
