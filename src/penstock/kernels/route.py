"""Where a hash belongs: the key space cut into contiguous ranges, one per shard.

Shard s of n holds the hashes whose upper half h satisfies ``h * n >> 32 == s``: cheap to say in Spark SQL, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.absent import absent
from penstock.core.routes import SITE_BITS
from penstock.core.rows import Hashes, Indices, hashes_of, times_of
from penstock.kernels.sort import page_order


def shard_of(hashes: Hashes, shards: int) -> Indices:
    """The shard of each hash.

    >>> shard_of(np.array([0, 2**63, 2**64 - 1], np.uint64), 2).tolist()
    [0, 1, 1]
    """
    upper = hashes >> np.uint64(32)
    return ((upper * np.uint64(shards)) >> np.uint64(32)).astype(np.int64)


def by_shard(rows: pa.RecordBatch, shards: int) -> list[pa.RecordBatch]:
    """The rows of each shard; they are led by their hash.

    >>> rows = pa.record_batch({"hash": pa.array([2**63, 0], pa.uint64()), "v": [1, 2]})
    >>> [part.column("v").to_pylist() for part in by_shard(rows, 2)]
    [[2], [1]]
    """
    if shards == 1:
        return [rows]
    place = shard_of(hashes_of(rows), shards)
    return [part_of(rows, place == shard) for shard in range(shards)]


def part_of(rows: pa.RecordBatch, ours: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Some rows of a batch; all of them without a copy, as where it is a copy that went to one site.

    >>> part_of(pa.record_batch({"v": [1, 2]}), np.array([False, True])).column("v").to_pylist()
    [2]
    """
    return rows if ours.all() else rows.take(pa.array(np.flatnonzero(ours)))


def sorted_by_shard(batches: Sequence[pa.RecordBatch], shards: int) -> list[pa.RecordBatch]:
    """The rows of each shard, sorted by hash, then time; all of them share one copy. There is at least one batch.

    >>> rows = pa.record_batch({"hash": pa.array([2**63, 0], pa.uint64()), "time": [1, 1], "v": [1, 2]})
    >>> [part.column("v").to_pylist() for part in sorted_by_shard([rows, rows], 2)]
    [[2, 2], [1, 1]]
    """
    table = pa.Table.from_batches(batches)
    order = pa.array(
        page_order(np.concatenate(list(map(hashes_of, batches))), np.concatenate(list(map(times_of, batches))))
    )
    arrays = []
    for column in table.columns:
        if column.null_count == table.num_rows:
            arrays.append(absent(table.num_rows, column.type))
        else:
            one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            arrays.append(pc.take(one, order, boundscheck=False))
    rows = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
    first = np.array([hash_range(shard, shards)[0] for shard in range(shards)], np.uint64)
    begin = [*np.searchsorted(hashes_of(rows), first).tolist(), rows.num_rows]
    return [rows.slice(start, stop - start) for start, stop in pairwise(begin)]


def hash_range(shard: int, shards: int) -> tuple[int, int]:
    """The first and last hash of a shard.

    >>> hash_range(1, 2) == (2**63, 2**64 - 1)
    True
    """
    first = -(-(shard << 32) // shards)
    after = -(-((shard + 1) << 32) // shards)
    return first << 32, (after << 32) - 1


def shared_sites(ours: Hashes, theirs: Hashes) -> Iterator[tuple[slice, slice]]:
    """Where the rows of each site are that both have; hashes are ascending, and their first 32 bits a site.

    >>> list(shared_sites(np.array([1, 2**32], np.uint64), np.array([2**32, 2**32 + 7], np.uint64)))
    [(slice(1, 2, None), slice(0, 2, None))]
    """
    mine, others = ours >> np.uint64(SITE_BITS), theirs >> np.uint64(SITE_BITS)
    sites = np.intersect1d(mine, others)
    begin, end = (
        np.stack([side.searchsorted(sites, to) for side in (mine, others)], axis=1) for to in ("left", "right")
    )
    for (first, other), (last, other_last) in zip(begin.tolist(), end.tolist(), strict=True):
        yield slice(first, last), slice(other, other_last)
