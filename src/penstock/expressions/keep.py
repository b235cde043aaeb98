"""Some of the values of a column, by a mask: faster than Arrow where most stay and those that go are null or empty.

Rows that a condition on one column drops often have nothing in others: of several kinds of events in one stream, each
has a struct of its own. Then texts that stay lie together already, and only where each ends is copied.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows import Indices

_TEXTS = (pa.string(), pa.binary())


class Kept:
    """Which values stay; the mask has no nulls.

    >>> Kept(pa.array([True, False, True])).of(pa.array(["a", None, "b"])).to_pylist()
    ['a', 'b']
    """

    def __init__(self, mask: pa.BooleanArray) -> None:
        self.mask = mask
        self.count = int(mask.true_count)

    @cached_property
    def stays(self) -> npt.NDArray[np.bool_]:
        """Whether each value stays."""
        return self.mask.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    @cached_property
    def _places(self) -> Indices:
        """Where those are that stay: NumPy takes values by place several times as fast as by a mask."""
        return np.flatnonzero(self.stays)

    def of_chunks(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Of the chunks of a column."""
        if column.num_chunks != 1:
            return column.filter(self.mask)
        return pa.chunked_array([self.of(column.chunk(0))], column.type)

    def of(self, values: pa.Array) -> pa.Array:
        """Of an array, without its nulls if none of them stays."""
        if 2 * self.count >= len(values) > 0:
            kept = None
            if values.type in _TEXTS:
                kept = self._texts(values)
            elif _has_plain_values(values.type):
                kept = self._fixed(values)
            if kept is not None:
                return kept
        return values.filter(self.mask)

    def _texts(self, values: pa.Array) -> pa.Array | None:
        """Texts that stay, where those that go are empty; None if they are not."""
        _, ends, data = values.buffers()
        bounds = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
        gone = np.flatnonzero(~self.stays)
        if data is None or (bounds[gone + 1] != bounds[gone]).any():
            return None
        kept = np.empty(self.count + 1, np.int32)
        kept[0] = bounds[0]
        bounds[1:].take(self._places, out=kept[1:], mode="clip")
        valid = self._validity(values)
        return pa.Array.from_buffers(values.type, self.count, [valid, pa.py_buffer(kept), data])

    def _fixed(self, values: pa.Array) -> pa.Array | None:
        """Numbers that stay; None if some of them are null."""
        if self._validity(values) is not None:
            return None
        width = values.type.bit_width // 8
        data = np.frombuffer(values.buffers()[1], np.dtype(f"i{width}"))[values.offset : values.offset + len(values)]
        return pa.Array.from_buffers(
            values.type, self.count, [None, pa.py_buffer(data.take(self._places, mode="clip"))]
        )

    def _validity(self, values: pa.Array) -> pa.Buffer | None:
        """Which of those that stay are not null; None if all are."""
        if not values.null_count:
            return None
        valid = values.is_valid().filter(self.mask)
        return None if valid.true_count == self.count else _bits(valid)


def _bits(values: pa.BooleanArray) -> pa.Buffer:
    """The bits of an array, from its first on."""
    if values.offset:
        values = pc.and_(values, values)
    return values.buffers()[1]


def _has_plain_values(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and kind.bit_width in (8, 16, 32, 64))
