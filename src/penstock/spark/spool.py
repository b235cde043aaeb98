"""Arrivals that outgrow memory, sorted by hash on disk before an operator sees them.

Pages of state are cut by hash, so a piece of arrivals with a small range of hashes probes few of them. Unsorted
arrivals span all hashes, and each piece would probe every page.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.rows import Hashes, Indices, hashes_of, times_of
from penstock.kernels.sort import page_order
from penstock.kernels.width import even_pieces
from penstock.storage.files import FilePages

_SORTING = 24
"""Bytes that sorting takes per row."""

_SLACK = 2
"""Rows that are sorted at a time take this part of the free memory by their mean width: some are wider."""


class SortedSpool:
    """Rows of some ports in `folder`, in runs sorted by hash; given back by ranges of hashes, `piece` bytes at a time.

    >>> import tempfile
    >>> spool = SortedSpool(tempfile.mkdtemp(), 1, Budget(10**6), piece=64)
    >>> for hashes in ([9, 1, 5], [4, 8, 2]):
    ...     spool.add(0, pa.record_batch({"h": pa.array(hashes, pa.uint64()), "t": pa.array([0] * 3)}))
    >>> [sorted(rows.column(0).to_pylist()) for _, rows in spool.pieces()]
    [[1, 2, 4, 5], [8, 9]]
    """

    def __init__(self, folder: str, ports: int, budget: Budget, piece: int) -> None:
        self.store = FilePages(folder)
        self._budget = budget
        self._piece = piece
        self._runs: list[list[tuple[str, int]]] = [[] for _ in range(ports)]
        self._first, self._last, self._size = 2**64 - 1, 0, 0

    def add(self, port: int, rows: pa.RecordBatch) -> None:
        """Keep some rows, as many at a time as there is room to sort; the caller answers for them until then."""
        for piece in even_pieces(rows, self._budget.room // _SLACK, _SORTING):
            self._add(port, piece)

    def _add(self, port: int, rows: pa.RecordBatch) -> None:
        with self._budget.hold(rows.nbytes + _SORTING * rows.num_rows, "sorting arrivals"):
            ordered = rows.take(pa.array(page_order(hashes_of(rows), times_of(rows))))
            self._runs[port].append((self.store.put(ordered), ordered.nbytes))
        hashes = hashes_of(ordered)
        self._first, self._last = min(self._first, int(hashes[0])), max(self._last, int(hashes[-1]))
        self._size += ordered.nbytes

    def pieces(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows: range after range of hashes, in each the ports one after the other."""
        count = -(-self._size // self._piece)
        step = (self._last - self._first) // max(1, count) + 1
        edges = np.array([min(self._first + step * place, self._last) for place in range(1, count)], np.uint64)
        cuts = [[self._cut(name, edges) for name, _ in runs] for runs in self._runs]
        for place in range(count):
            for port, runs in enumerate(self._runs):
                slices = (
                    self.store.get(name).slice(cut[place], cut[place + 1] - cut[place])
                    for (name, _), cut in zip(runs, cuts[port], strict=True)
                )
                for rows in self._gathered(slices):
                    with self._budget.hold(rows.nbytes, "rows in flight"):
                        yield port, rows

    def _cut(self, name: str, edges: Hashes) -> Indices:
        hashes = hashes_of(self.store.get(name))
        inner = np.searchsorted(hashes, edges)
        return np.concatenate([[0], inner, [hashes.size]])

    def _gathered(self, slices: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Slices put together until they fill a piece: keys that are very frequent make more than one of a range."""
        held: list[pa.RecordBatch] = []
        size = 0
        for rows in slices:
            if not rows.num_rows:
                continue
            if held and size + rows.nbytes > self._piece:
                yield pa.concat_batches(held)
                held, size = [], 0
            held.append(rows)
            size += rows.nbytes
        if held:
            yield pa.concat_batches(held)
