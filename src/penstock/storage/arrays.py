"""Rows in a file on a local disk whose columns are one array each, however many pieces they came in.

Rows in any order are then taken from a mapped column at once, without a copy between. A file has the number of rows, a
byte for each column that says whether it has nulls, then what has a known size: numbers, offsets of texts, and bits of
nulls. Texts follow, each column's from a place on that no other reaches: between them there are holes, which take no
room on the disk.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_PAGE = mmap.ALLOCATIONGRANULARITY
_LONGEST = 1 << 31
"""Bytes that the texts of a column must stay below: their offsets have 32 bits."""


_TEXTS = 64
"""Columns of texts at most: each is mapped by itself, and a process has so many maps only."""


class TooLongError(Exception):
    """The texts of a column take more than one array can hold."""


class _Place(NamedTuple):
    """Where a column is in a file: its numbers or offsets, the bits of its nulls, and its texts if it has any."""

    fixed: int
    valid: int
    texts: int | None


def can_hold(columns: pa.Schema) -> bool:
    """Whether all columns are numbers, times and texts, and of texts not too many.

    >>> can_hold(pa.schema({"n": pa.int64(), "s": pa.string()})), can_hold(pa.schema({"l": pa.list_(pa.int64())}))
    (True, False)
    """
    return sum(map(_is_text, columns.types)) <= _TEXTS and all(
        _is_text(kind) or _width(kind) is not None for kind in columns.types
    )


def write_arrays(path: str, columns: pa.Schema, rows: int, pieces: Iterable[pa.Table]) -> None:
    """Write some pieces, which have so many `rows` together; raise if texts are too long for that."""
    places, end = _layout(columns, rows)
    with open(path, "wb", buffering=0) as file:
        writers = [_Column(file.fileno(), field.type, place) for field, place in zip(columns, places, strict=True)]
        for piece in pieces:
            for writer, column in zip(writers, piece.columns, strict=True):
                for chunk in column.chunks:
                    writer.write(chunk)
            del piece
        flags = bytes(writer.close(rows) for writer in writers)
        _write(file.fileno(), rows.to_bytes(8, "little") + flags, 0)
        if not any(writer.texts for writer in writers):
            os.ftruncate(file.fileno(), end)


def map_arrays(path: str, columns: pa.Schema) -> pa.RecordBatch:
    """The rows of such a file, mapped; they stay there if the file is deleted."""
    with open(path, "rb") as file:
        rows = int.from_bytes(file.read(8), "little")
        has_nulls = file.read(len(columns))
        places, end = _layout(columns, rows)
        known = pa.py_buffer(mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ))
        arrays = []
        for field, place, nulls in zip(columns, places, has_nulls, strict=True):
            kind = field.type
            buffers = [known.slice(place.valid, -(-rows // 8)) if nulls else None]
            if place.texts is None:
                buffers.append(known.slice(place.fixed, -(-rows * (_width(kind) or 0) // 8)))
            else:
                offsets = known.slice(place.fixed, 4 * (rows + 1))
                size = int(np.frombuffer(offsets, np.int32)[-1])
                texts = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=place.texts) if size else b""
                buffers += [offsets, pa.py_buffer(texts)]
            arrays.append(pa.Array.from_buffers(kind, rows, buffers, null_count=-1 if nulls else 0))
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def size_on_disk(about: os.stat_result) -> int:
    """The bytes that a file takes, holes aside."""
    return about.st_blocks * 512


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _width(kind: pa.DataType) -> int | None:
    """The bits of a value, if all values have as many."""
    fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return int(kind.bit_width) if fixed else None


def _layout(columns: pa.Schema, rows: int) -> tuple[list[_Place], int]:
    """The places of columns, and where what has a known size ends."""
    at = _aligned(8 + len(columns))
    known = []
    for kind in columns.types:
        size = 4 * (rows + 1) if _is_text(kind) else -(-rows * (_width(kind) or 0) // 8)
        known.append((at, at + _aligned(size)))
        at += _aligned(size) + _aligned(-(-rows // 8))
    first, texts, places = -(-at // _PAGE) * _PAGE, 0, []
    for kind, (fixed, valid) in zip(columns.types, known, strict=True):
        places.append(_Place(fixed, valid, first + texts * _LONGEST if _is_text(kind) else None))
        texts += _is_text(kind)
    return places, first


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _write(file: int, content: Any, at: int) -> None:
    left = memoryview(content).cast("B")
    while left.nbytes:
        written = os.pwrite(file, left, at)
        left, at = left[written:], at + written


class _Column:
    """Writes a column array by array."""

    def __init__(self, file: int, kind: pa.DataType, place: _Place) -> None:
        self._file = file
        self._place = place
        self._kind = kind
        self._width = _width(kind)
        self._rows = 0
        self.texts = 0
        self._valid = _Bits(file, place.valid)
        self._bits = _Bits(file, place.fixed)
        self._nulls = False

    def write(self, array: pa.Array) -> None:
        """Some more rows."""
        if not len(array):
            return
        if array.null_count and not self._nulls:
            self._nulls = True
            for some in _ones(self._rows):
                self._valid.add(some)
        if self._nulls:
            self._valid.add(array.is_valid().to_numpy(zero_copy_only=False))
        if self._place.texts is not None:
            self._texts(array)
        elif self._width == 1:
            self._bits.add(array.fill_null(False).to_numpy(zero_copy_only=False))
        else:
            width = (self._width or 0) // 8
            some = array.buffers()[1].slice(array.offset * width, len(array) * width)
            _write(self._file, some, self._place.fixed + self._rows * width)
        self._rows += len(array)

    def close(self, rows: int) -> bool:
        """Write what is left; whether there are nulls."""
        if self._rows != rows:
            raise ValueError(f"{self._rows} rows arrived instead of {rows}")
        self._valid.close()
        self._bits.close()
        return self._nulls

    def _texts(self, array: pa.Array) -> None:
        _, offsets, texts = array.buffers()
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
        first, size = int(ends[0]), int(ends[-1] - ends[0])
        if self.texts + size >= _LONGEST:
            raise TooLongError
        # The first offset is 0, as are all bytes of a hole.
        at = self._place.fixed + 4 * (self._rows + 1)
        _write(self._file, (ends[1:] - np.int32(first - self.texts)).astype(np.int32, copy=False), at)
        if size:
            _write(self._file, texts.slice(first, size), (self._place.texts or 0) + self.texts)
        self.texts += size


class _Bits:
    """Writes bits, of which no whole bytes may come at a time."""

    def __init__(self, file: int, at: int) -> None:
        self._file = file
        self._at = at
        self._left = np.zeros(0, bool)

    def add(self, bits: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Some more."""
        whole = np.concatenate([self._left, bits])
        full = len(whole) // 8 * 8
        self._put(whole[:full])
        self._left = whole[full:]

    def close(self) -> None:
        """Write those that make no whole byte."""
        self._put(self._left)

    def _put(self, bits: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        packed = np.packbits(bits, bitorder="little")
        _write(self._file, packed, self._at)
        self._at += len(packed)


def _ones(count: int) -> Iterator[np.ndarray[Any, np.dtype[np.bool_]]]:
    """So many bits, some at a time."""
    for start in range(0, count, _ONES):
        yield np.ones(min(_ONES, count - start), bool)


_ONES = 1 << 16
