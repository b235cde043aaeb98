"""Matches arrivals against one sorted page: equal hash, and a page time inside the arrival's closed band.

``ranges`` finds for each arrival the page rows that match it, as one range of rows; ``expand`` enumerates the pairs.
A page is only searched, never copied or walked, so it may be a view on a memory-mapped file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.absent import absent, is_absent
from penstock.core.rows import Hashes, Indices
from penstock.core.time import Times

SHORT = 16
"""Runs up to this length are bisected all together; longer ones are first brought down to it by themselves."""


def ranges(page_hash: Hashes, page_time: Times, needle_hash: Hashes, lo: Times, hi: Times) -> tuple[Indices, Indices]:
    """Return ``begin, end``: page rows ``begin[i]:end[i]`` are exactly those that needle ``i`` matches.

    A row matches iff ``page_hash == needle_hash[i]`` and ``lo[i] <= page_time <= hi[i]``. A needle that nothing
    matches, for instance because ``lo[i] > hi[i]``, has an empty range; ``begin[i] <= end[i]`` always holds.

    The page is ascending by hash, then time. The needles are best ascending by hash too: the result does not depend
    on it, the speed does. The work is O(m log n) for m needles and n page rows, the memory O(m), provided the page's
    columns are contiguous, aligned and of native byte order, as Arrow's buffers are.

    >>> page_hash, page_time = np.array([7, 7, 7, 9], np.uint64), np.array([10, 20, 30, 10])
    >>> begin, end = ranges(page_hash, page_time, np.array([7, 8], np.uint64), np.array([15, 0]), np.array([30, 99]))
    >>> list(zip(begin.tolist(), end.tolist()))
    [(1, 3), (0, 0)]
    """
    begin = np.zeros(len(needle_hash), np.int64)
    end = np.zeros(len(needle_hash), np.int64)
    if len(page_hash):
        hit, first, length = _runs(page_hash, needle_hash)
        begin[hit] = _bisect(page_time, lo[hit], first, length, np.less)
        end[hit] = _bisect(page_time, hi[hit], first, length, np.less_equal)
    return begin, np.maximum(begin, end)


def same_hash(page_hash: Hashes, needle_hash: Hashes) -> tuple[Indices, Indices]:
    """The same where every time matches: only hashes are compared.

    >>> begin, end = same_hash(np.array([7, 7, 9], np.uint64), np.array([7, 8, 9], np.uint64))
    >>> list(zip(begin.tolist(), end.tolist()))
    [(0, 2), (2, 2), (2, 3)]
    """
    begin: Indices = page_hash.searchsorted(needle_hash)
    end = begin.copy()
    if len(page_hash):
        hit, first, length = _hits(page_hash, needle_hash, begin)
        end[hit] = first + length
    return begin, end


Pairs = tuple[Indices, Indices]
"""Places of rows of two sides that match, pair by pair."""


def gathered(pairs: Iterable[Pairs], least: int) -> Iterator[Pairs]:
    """The same pairs, so many at a time at least: results are made of few at once only where there are no more.

    >>> some = [(np.array([n]), np.array([n + 1])) for n in range(3)]
    >>> [i.tolist() for i, _ in gathered(some, 2)]
    [[0, 1], [2]]
    """
    held: list[Pairs] = []
    count = 0
    for i, j in pairs:
        if i.size:
            held.append((i, j))
            count += i.size
        if count >= least:
            yield _one(held)
            held, count = [], 0
    if held:
        yield _one(held)


def _one(pairs: list[Pairs]) -> Pairs:
    if len(pairs) == 1:
        return pairs[0]
    i, j = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return i, j


def expand(begin: Indices, end: Indices, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield all pairs ``(i, j)`` with ``begin[i] <= j < end[i]``, as index arrays of at most ``limit`` pairs.

    Pairs come in ascending order; every chunk but the last has exactly ``limit`` of them, so a needle with many
    partners is split over several chunks. Memory is O(m + limit), however many pairs there are.

    >>> for needle, row in expand(np.array([4, 0, 8]), np.array([7, 0, 9]), limit=2):
    ...     print(needle.tolist(), row.tolist())
    [0, 0] [4, 5]
    [0, 2] [6, 8]
    """
    if limit < 1:
        raise ValueError(f"limit={limit} leaves no room for a pair, so no match could come out. Use at least 1.")
    needle = np.flatnonzero(begin < end)
    first = begin[needle]
    count = end[needle] - first
    total = int(count.sum())
    if 0 < total <= limit:
        yield _pairs(needle, first, count)
        return
    stop = np.cumsum(count)
    start = stop - count
    for at in range(0, total, limit):
        part = slice(stop.searchsorted(at, "right"), start.searchsorted(at + limit))
        skipped = np.maximum(at - start[part], 0)
        taken = np.minimum(at + limit - start[part], count[part]) - skipped
        yield _pairs(needle[part], first[part] + skipped, taken)


def take(column: pa.Array, which: Indices) -> pa.Array:
    """The column's values at these places, which pairs that were found never exceed.

    Numbers are taken by NumPy, as are vectors of one length: Arrow would make an index of all their numbers.

    >>> take(pa.array(["a", "b", "c"]), np.array([2, 0, 0])).to_pylist()
    ['c', 'a', 'a']
    >>> take(pa.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1])).to_pylist()
    [[3.0, 4.0]]
    """
    if is_absent(column):
        return absent(which.size, column.type)
    if _is_number(column.type) and not column.null_count:
        return pa.array(column.to_numpy().take(which))
    if pa.types.is_list(column.type) and (vectors := _vectors(column, which.size)) is not None:
        offsets = np.arange(0, (which.size + 1) * vectors.shape[1], vectors.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(offsets, pa.array(vectors[which].ravel()), column.type)
    return pc.call_function("array_take", [column, pa.array(which)], _UNCHECKED)


def take_rows(rows: pa.RecordBatch, which: Indices) -> pa.RecordBatch:
    """The rows at these places, column by column.

    >>> take_rows(pa.record_batch({"n": [1, 2], "s": ["a", "b"]}), np.array([1, 0])).to_pydict()
    {'n': [2, 1], 's': ['b', 'a']}
    """
    return pa.RecordBatch.from_arrays([take(column, which) for column in rows.columns], schema=rows.schema)


_UNCHECKED = pc.TakeOptions(boundscheck=False)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)  # type: ignore[no-any-return]


def _vectors(column: pa.Array, most: int) -> npt.NDArray[np.generic] | None:
    """A column of lists as rows of numbers, without a copy, `most` of which one list can have.

    None if it is not one of numbers alone, all as long.
    """
    if column.null_count or not len(column) or not _is_number(column.type.value_type):
        return None
    numbers = column.flatten()
    length, more = divmod(len(numbers), len(column))
    if more or not length or numbers.null_count or most * length >= 1 << 31:
        return None
    starts = column.offsets.to_numpy()
    if (np.diff(starts) != length).any():
        return None
    return numbers.to_numpy().reshape(len(column), length)  # type: ignore[no-any-return]


def _runs(page_hash: Hashes, needle_hash: Hashes) -> tuple[Indices, Indices, Indices]:
    """Return the needles whose hash is in the page, and where its run of rows there starts and how long it is."""
    return _hits(page_hash, needle_hash, page_hash.searchsorted(needle_hash))


def _hits(page_hash: Hashes, needle_hash: Hashes, first: Indices) -> tuple[Indices, Indices, Indices]:
    hit = np.flatnonzero(page_hash.take(first, mode="clip") == needle_hash)
    first = first[hit]
    return hit, first, page_hash.searchsorted(needle_hash[hit], "right") - first


def _bisect(page_time: Times, bound: Times, first: Indices, length: Indices, before: np.ufunc) -> Indices:
    """Return for each run the row after its last one with ``before(page_time, bound)``; no run is empty.

    One hot key would make every needle take as many steps as the longest run needs; hence the long runs go ahead.
    """
    long = np.flatnonzero(length > SHORT)
    if long.size:
        first, length = first.copy(), length.copy()
        first[long], length[long] = _halve(page_time, bound[long], first[long], length[long], before, SHORT)
    first, _ = _halve(page_time, bound, first, length, before, 1)
    last_step: Indices = first + before(page_time.take(first), bound)
    return last_step


def _halve(
    page_time: Times, bound: Times, first: Indices, length: Indices, before: np.ufunc, until: int
) -> tuple[Indices, Indices]:
    """Narrow every run to at most ``until`` rows, the sought row being among them or right after them.

    The length shrinks alike in either half, so that only ``first`` depends on the comparison.
    """
    while length.max(initial=0) > until:
        half = length >> 1
        # A run of one row has half 0 and stays: what it reads at first - 1, clipped into the page, is multiplied away.
        first = first + half * before(page_time.take(first + half - 1, mode="clip"), bound)
        length = length - half
    return first, length


def _pairs(needle: Indices, first: Indices, count: Indices) -> tuple[Indices, Indices]:
    """Pair each needle with the ``count`` rows that start at ``first``."""
    stop = np.cumsum(count)
    row = np.arange(stop[-1])
    row += np.repeat(first - (stop - count), count)
    return np.repeat(needle, count), row
