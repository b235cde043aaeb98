"""Spark's `xxhash64` over Arrow columns: rows that Python reads find the shards that Spark's rows find.

A column's hash is the seed of the next one's, and a null leaves the seed as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows import Hashes, Indices

SEED = 42
"""Spark's."""

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)

_BLOCK = 1 << 15
"""Values hashed at a time: what that takes stays in the processor's cache."""

_STRIPE = 32
"""Bytes of a text that four lanes take together."""

_AS_INTS = (pa.int8(), pa.int16(), pa.int32(), pa.date32())
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)

Words = npt.NDArray[np.uint64]

More = Callable[[Hashes, Words], Hashes]
"""Hashes with the next bytes of their values."""


def xxhash64(columns: Sequence[pa.Array]) -> Hashes:
    """One hash per row over all the columns, as ``xxhash64(…)`` in Spark, its bits as an unsigned number.

    >>> int(xxhash64([pa.array([1])])[0].view(np.int64))
    -7001672635703045582
    """
    total = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        total = _after(column, total)
    return total


def can_xxhash(kind: pa.DataType) -> bool:
    """Whether values of a type can be hashed here as Spark hashes them.

    >>> can_xxhash(pa.timestamp("us", "UTC")), can_xxhash(pa.list_(pa.string()))
    (True, False)
    """
    if pa.types.is_struct(kind):
        return all(can_xxhash(kind.field(n).type) for n in range(kind.num_fields))
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")
    known = (pa.types.is_boolean, pa.types.is_floating, pa.types.is_decimal128, *_TEXTS)
    return kind in (*_AS_INTS, pa.int64()) or (kind != pa.float16() and any(test(kind) for test in known))


def _after(column: pa.Array, seeds: Hashes) -> Hashes:
    """The hashes of a column's values, each from its own seed."""
    kind = column.type
    if pa.types.is_struct(kind):
        hashed = seeds
        for place in range(kind.num_fields):
            hashed = _after(pc.struct_field(column, place), hashed)
    elif any(test(kind) for test in _TEXTS):
        hashed = _texts(column, seeds)
    elif pa.types.is_decimal(kind) and kind.precision > 18:
        hashed = _wide_decimals(column, seeds)
    else:
        words, wide = _numbers(column)
        hashed = _blocks(words, seeds, _long if wide else _int)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), seeds, hashed) if column.null_count else hashed


def _numbers(column: pa.Array) -> tuple[Words, bool]:
    """The bits that Spark hashes of numbers, booleans and times, and whether they are 64; whatever for nulls."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        return _unscaled(column)[:, 0].copy(), True
    elif pa.types.is_floating(kind):
        floats = pc.fill_null(column, fill_value=0.0).to_numpy(zero_copy_only=False)
        # Zero has one sign and NaN one form, as in Spark.
        plain = np.where(np.isnan(floats), floats.dtype.type("nan"), floats + floats.dtype.type(0))
        bits = plain.view(np.uint32 if kind == pa.float32() else np.uint64)
        return bits.astype(np.uint64), kind == pa.float64()
    wide = kind == pa.int64() or pa.types.is_timestamp(kind)
    numbers = column.cast(pa.int32()) if kind == pa.date32() else column.cast(pa.int64()) if wide else column
    numbers = pc.fill_null(numbers, fill_value=0) if column.null_count else numbers
    whole = numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)
    return whole, wide


def _blocks(words: Words, seeds: Hashes, hash_some: More) -> Hashes:
    total = np.empty(words.size, np.uint64)
    for start in range(0, words.size, _BLOCK):
        some = slice(start, start + _BLOCK)
        total[some] = hash_some(seeds[some], words[some])
    return total


def _int(seeds: Hashes, words: Words) -> Hashes:
    return _mixed(_with_half(seeds + (_P5 + np.uint64(4)), words))


def _long(seeds: Hashes, words: Words) -> Hashes:
    return _mixed(_with_word(seeds + (_P5 + np.uint64(8)), words))


def _with_half(hashed: Hashes, words: Words) -> Hashes:
    """With four more bytes."""
    return _rotated(hashed ^ ((words & np.uint64(0xFFFFFFFF)) * _P1), 23) * _P2 + _P3


def _with_word(hashed: Hashes, words: Words) -> Hashes:
    """With eight more bytes."""
    return _rotated(hashed ^ (_rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _mixed(hashed: Hashes) -> Hashes:
    hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
    return hashed ^ (hashed >> np.uint64(32))


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _texts(column: pa.Array, seeds: Hashes) -> Hashes:
    large = column.cast(pa.large_binary())
    _, offsets, data = large.buffers()
    ends = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    lengths = np.diff(ends)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return _bytes(content, ends[:-1], lengths, seeds)


def _bytes(content: npt.NDArray[np.uint8], starts: Indices, lengths: Indices, seeds: Hashes) -> Hashes:
    """The hashes of runs of bytes."""
    total = np.empty(lengths.size, np.uint64)
    first = 0
    while first < lengths.size:
        last = min(first + _BLOCK, lengths.size)
        some = slice(first, last)
        begin, end = int(starts[first]), int(starts[last - 1] + lengths[last - 1])
        # Words are read at any byte: the last ones may reach past the end.
        padded = np.zeros(end - begin + 8, np.uint8)
        padded[: end - begin] = content[begin:end]
        total[some] = _runs(padded, starts[some] - begin, lengths[some], seeds[some])
        first = last
    return total


def _runs(content: npt.NDArray[np.uint8], starts: Indices, lengths: Indices, seeds: Hashes) -> Hashes:
    words = np.ndarray((content.size - 7,), "<u8", content, strides=(1,))
    hashed = seeds + _P5
    at = starts.copy()
    long = np.flatnonzero(lengths >= _STRIPE)
    if long.size:
        hashed[long] = _stripes(words, starts[long], lengths[long] // _STRIPE, seeds[long])
        at[long] += lengths[long] // _STRIPE * _STRIPE
    hashed += lengths.astype(np.uint64)
    ends = starts + lengths
    for size, more in _TAIL:
        some = np.flatnonzero(at + size <= ends)
        if some.size:
            hashed[some] = more(hashed[some], words[at[some]])
            at[some] += size
    return _mixed(hashed)


def _with_byte(hashed: Hashes, words: Words) -> Hashes:
    return _rotated(hashed ^ ((words & np.uint64(0xFF)) * _P5), 11) * _P1


_TAIL: Sequence[tuple[int, More]] = ((8, _with_word),) * 3 + ((4, _with_half),) + ((1, _with_byte),) * 3
"""What is left of a run after its whole stripes: up to three words, half a word, three bytes."""


def _stripes(words: Words, starts: Indices, counts: Indices, seeds: Hashes) -> Hashes:
    """What four lanes make of all the whole stripes of long runs."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for stripe in range(int(counts.max())):
        some = np.flatnonzero(counts > stripe)
        at = starts[some] + stripe * _STRIPE
        for place, lane in enumerate(lanes):
            lane[some] = _rotated(lane[some] + words[at + 8 * place] * _P2, 31) * _P1
    hashed = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        hashed = (hashed ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return hashed


def _unscaled(column: pa.Array) -> Words:
    """The digits of decimals as 128-bit numbers, their lower halves first."""
    return np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset :][: 2 * len(column)].reshape(-1, 2)


def _wide_decimals(column: pa.Array, seeds: Hashes) -> Hashes:
    """Decimals of more than 18 digits are hashed as the fewest bytes that hold their digits, the highest first."""
    content = np.ascontiguousarray(_unscaled(column).view(np.uint8).reshape(-1, 16)[:, ::-1])
    sign = np.where(content[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    differs = content != sign
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    # The highest bit of the first byte is the sign.
    rows = np.arange(len(column))
    first -= ((content[rows, first] ^ sign[:, 0]) >= 0x80) & (first > 0)
    return _bytes(content.reshape(-1), rows * 16 + first, 16 - first, seeds)
