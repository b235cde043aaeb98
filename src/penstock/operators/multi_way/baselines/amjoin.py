"""AMJoin: MJoin with a table of bits that says at once whether a key has been seen in every stream.

An arrival sets the bit of its stream in the vector of its key. Unless all bits are set it fails, without a probe of any
store. Vectors lie in a table of fixed size, so two keys may share one: then a key may look complete that is not, and
its arrivals probe as those of MJoin do; none is ever missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.errors import ConfigError
from penstock.core.operator import Out, State
from penstock.core.pages import Page
from penstock.core.rows import Hashes, Indices
from penstock.operators.multi_way.baselines.mjoin import MJoinJoin
from penstock.operators.multi_way.expansion import Arrivals
from penstock.operators.multi_way.methods import MultiJoinMethod

Bits = npt.NDArray[np.uint64]

_MOST_STREAMS = 64
_TABLE_PART = 16
"""The table takes up to this part of the memory …"""
_LARGEST_TABLE = 20
"""… and has no more than two to the power of this vectors."""


@dataclass(frozen=True, slots=True)
class AMJoin(MultiJoinMethod):
    """AMJoin has no parameters; stores are probed as the streams are given."""

    def check(self, ports: int) -> None:
        """A vector has 64 bits."""
        if ports > _MOST_STREAMS:
            raise ConfigError(f"method='amjoin' joins up to {_MOST_STREAMS} streams, but there are {ports}.")


class AMJoinJoin(MJoinJoin):
    """AMJoin on one shard (spec multi-way §2.12, F30)."""

    def _take_up(self, pages: Sequence[Page], meta: dict[str, Any]) -> None:
        super()._take_up(pages, meta)
        self._table: Bits | None = None

    def state(self) -> State:
        """The pages; the table is made from them again when rows arrive."""
        self._drop_table()
        return super().state()

    def _meet(self, arrivals: Arrivals) -> Iterator[Out]:
        table = self._bits()
        others = np.uint64(sum(1 << other for other in self._others(arrivals.port)))
        complete = (table[_slots(table, arrivals.hashes)] & others) == others
        self._failed(int(np.count_nonzero(~complete)), after=0)
        yield from self._probe(arrivals, np.flatnonzero(complete))

    def _keep(self, arrivals: Arrivals) -> None:
        super()._keep(arrivals)
        self._set(self._bits(), arrivals.port, arrivals.hashes)

    def _let_go(self, port: int) -> bool:
        """Bits of keys that are gone must go, too: the table is made anew."""
        if gone := super()._let_go(port):
            self._drop_table()
        return gone

    def _bits(self) -> Bits:
        """The table, made from what is stored if it is not there."""
        if self._table is None:
            vectors = max(8, self._budget.room // _TABLE_PART // 8).bit_length() - 1
            table = np.zeros(1 << min(_LARGEST_TABLE, vectors), np.uint64)
            self._budget.charge(table.nbytes, "the bit vectors of keys")
            for port in self._ports:
                for hashes in self._stores.hashes(port):
                    self._set(table, port, hashes)
            self._table = table
        return self._table

    def _set(self, table: Bits, port: int, hashes: Hashes) -> None:
        table[np.unique(_slots(table, hashes))] |= np.uint64(1 << port)

    def _drop_table(self) -> None:
        if self._table is not None:
            self._budget.release(self._table.nbytes)
            self._table = None


def _slots(table: Bits, hashes: Hashes) -> Indices:
    """Which vector is that of a hash. Shards are ranges of hashes: the low bits differ within one."""
    return (hashes & np.uint64(len(table) - 1)).astype(np.int64)
