"""Hash key columns to 64 bits, in process. (Spark streams bring `xxhash64` of their keys along, computed natively.)

Equal keys have equal hashes; the reverse is checked on the values after matching. Hashes must be uniform, because
shards are ranges of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows import Hashes, Indices

Bytes = npt.NDArray[np.uint8]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

_BLOCK = 1 << 15
"""Values that are hashed at a time: what it takes stays within a megabyte or so, and in the processor's cache."""

_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_LONGS = (pa.types.is_timestamp, pa.types.is_date64, pa.types.is_duration, pa.types.is_time64, pa.types.is_uint64)

_NOT_HASHED = (
    pa.types.is_map,
    pa.types.is_union,
    pa.types.is_interval,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_run_end_encoded,
)


def hash_keys(columns: Sequence[pa.Array]) -> Hashes:
    """One hash per row over all the key columns; a null counts as a value of its own.

    >>> a, b = hash_keys([pa.array([0.0, -0.0])])
    >>> bool(a == b)
    True
    """
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = mix(total * np.uint64(31) + _hash(column))
    return total


def can_hash(kind: pa.DataType) -> bool:
    """Whether values of a type can be hashed here.

    >>> can_hash(pa.list_(pa.string())), can_hash(pa.map_(pa.string(), pa.int64()))
    (True, False)
    """
    if pa.types.is_dictionary(kind):
        return can_hash(kind.value_type)
    if any(test(kind) for test in _NOT_HASHED) or isinstance(kind, pa.BaseExtensionType):
        return False
    return not pa.types.is_nested(kind) or all(can_hash(kind.field(n).type) for n in range(kind.num_fields))


def _hash(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hash(column.dictionary_decode())
    if pa.types.is_struct(kind):
        fields = [pc.struct_field(column, place) for place in range(kind.num_fields)]
        values = hash_keys(fields) if fields else np.zeros(len(column), np.uint64)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        values = _hash_runs(_hash(column.flatten()), _sizes(pc.list_value_length(column)))
    elif any(test(kind) for test in _TEXTS):
        values = _hash_bytes(column.cast(pa.large_binary()))
    elif pa.types.is_floating(kind):
        floats = pc.fill_null(column.cast(pa.float64()), fill_value=0.0).to_numpy(zero_copy_only=False)
        values = np.where(np.isnan(floats), np.float64("nan"), floats + 0.0).view(np.uint64)
    elif pa.types.is_decimal(kind):
        values = _hash_bytes(column.cast(pa.string()).cast(pa.large_binary()))
    elif pa.types.is_null(kind):
        values = np.zeros(len(column), np.uint64)
    else:
        values = _whole_numbers(column)
    hashed = mix(values)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _GOLDEN, hashed) if column.null_count else hashed


def _whole_numbers(column: pa.Array) -> Hashes:
    kind = column.type
    if any(test(kind) for test in _LONGS):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    numbers = pc.fill_null(column.cast(pa.int64()), fill_value=0).to_numpy(zero_copy_only=False)
    return numbers.view(np.uint64)  # type: ignore[no-any-return]


def _hash_bytes(column: pa.LargeBinaryArray) -> Hashes:
    sizes = _sizes(pc.binary_length(column))
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    body = column.buffers()[2]
    bytes_ = np.frombuffer(body, np.uint8)[offsets[0] : offsets[-1]] if body is not None else np.zeros(0, np.uint8)
    if int(sizes.sum()) != bytes_.size:
        return _hash_bytes(column.take(pa.array(np.arange(len(column)))))
    return _hash_runs(bytes_, sizes, add=1)


def _hash_runs(values: Hashes | Bytes, sizes: Indices, add: int = 0) -> Hashes:
    """Hash runs of values, `sizes` long each: a polynomial in an odd base, so that order counts.

    It takes 30 times the bytes of a text while they are hashed, hence a block of them at a time.
    """
    totals = np.zeros(sizes.size, np.uint64)
    full = np.flatnonzero(sizes)
    ends = np.cumsum(sizes[full])
    starts = ends - sizes[full]
    powers = np.cumprod(np.full(min(_BLOCK, values.size), _MULTIPLY[0], np.uint64))
    for begin in range(0, values.size, _BLOCK):
        block = values[begin : begin + _BLOCK].astype(np.uint64) + np.uint64(add)
        end = begin + block.size
        runs = slice(ends.searchsorted(begin, "right"), starts.searchsorted(end))
        cuts = np.maximum(starts[runs], begin) - begin
        places = np.arange(block.size) - np.repeat(cuts, np.minimum(ends[runs], end) - begin - cuts)
        part = np.add.reduceat(block * powers[places], cuts)
        part[:1] *= _power(max(0, begin - int(starts[runs.start])))
        totals[full[runs]] += part
    return totals + sizes.astype(np.uint64)


def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(int(_MULTIPLY[0]), exponent, 1 << 64))


def _sizes(lengths: pa.Array) -> Indices:
    return pc.fill_null(lengths, fill_value=0).cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def mix(values: Hashes) -> Hashes:
    """Numbers made uniform, one to one.

    >>> len(set((mix(np.arange(64, dtype=np.uint64)) >> np.uint64(61)).tolist()))
    8
    """
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLY[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLY[1]
    return mixed ^ (mixed >> np.uint64(31))
