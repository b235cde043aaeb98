"""Columns of boxes, points or geometries, as a spatial join reads them: the box of each row, and exact comparisons.

Geometries are WKB, and shapely compares them, in arrays.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigError
from penstock.core.rows import Indices
from penstock.kernels import boxes as bx
from penstock.kernels.boxes import Boxes
from penstock.kernels.equal import Mask
from penstock.kernels.vectors import is_numeric
from penstock.kernels.wkb import plain_boxes

_CORNERS = (("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"))
"""What the fields of a box may be called."""

_PARSED = 1 << 16
"""Bytes of WKB that are read at a time, at most, where only boxes are wanted and whether geometries are valid."""

_GEOMETRY = 12
"""Bytes that a geometry takes for each of its WKB, prepared for comparisons,"""

_OBJECT = 400
"""and besides."""

_HEADER = 96
"""Bytes that the box of a geometry takes, and what is read of the WKB to find it."""


class Shapes:
    """The boxes, points or geometries of some rows: one column, or two or four of numbers."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.geometries = len(columns) == 1 and _is_binary(columns[0].type)
        self._columns = columns
        self._invalid: Mask | None = None

    @property
    def width(self) -> int:
        """About how many bytes a geometry takes that is compared."""
        column = self._columns[0]
        return _OBJECT + (_GEOMETRY * column.nbytes // max(1, len(column)) if self.geometries else 0)

    @property
    def copied(self) -> int:
        """Bytes that the boxes take for each row beyond what is there: none where columns hold them in float64."""
        column = self._columns[0]
        if self.geometries:
            return _HEADER
        kinds = [each.type for each in self._columns]
        if pa.types.is_struct(kinds[0]):
            kinds = [kinds[0].field(name).type for name in _corners(kinds[0])]
        nulls = column.null_count or any(each.null_count for each in self._columns)
        return 32 if nulls or any(kind != pa.float64() for kind in kinds) else 0

    def boxes(self) -> Boxes:
        """The box around each; of those that have none, it has no numbers. It finds out which geometries are valid."""
        return self._bounds() if self.geometries else self._given()

    def usable_boxes(self) -> Boxes:
        """The same of rows all of which are known to be usable: most geometries are not parsed for that."""
        if not self.geometries:
            return self._given()
        boxes, plain = plain_boxes(self._columns[0])
        others = np.flatnonzero(~plain)
        if others.size:
            found = Shapes([self._columns[0].take(pa.array(others))]).boxes()
            for side, values in zip(boxes, found, strict=True):
                side[others] = values
        return boxes

    def _given(self) -> Boxes:
        (first, *others) = self._columns
        if others:
            numbers = [_numbers(column) for column in self._columns]
            return numbers * (4 // len(numbers))
        return [_numbers(pc.struct_field(first, name)) for name in _corners(first.type)]

    def usable(self, boxes: Boxes) -> Mask:
        """Which can match anything: those that are somewhere, and valid."""
        good = bx.usable(boxes)
        return good if self._invalid is None else good & ~self._invalid

    def compared(self, relation: str, i: Indices, other: Shapes, j: Indices, distance: float) -> Mask:
        """Whether pairs of usable shapes are related, as geometries."""
        import shapely

        (ours, at), (theirs, there) = self._taken(i), other._taken(j)
        if relation == "dwithin":
            return shapely.dwithin(ours[at], theirs[there], distance)  # type: ignore[no-any-return]
        shapely.prepare(ours)
        compare = shapely.covers if relation == "contains" else shapely.intersects
        return compare(ours[at], theirs[there])  # type: ignore[no-any-return]

    def _taken(self, which: Indices) -> tuple[Any, Indices]:
        """The geometries of some rows, each once, and which of them each is."""
        import shapely

        once, at = np.unique(which, return_inverse=True)
        if self.geometries:
            return _parsed(self._columns[0].take(pa.array(once))), at
        boxes = Shapes([column.take(pa.array(once)) for column in self._columns]).boxes()
        made = shapely.box(*boxes)
        flat = np.flatnonzero((boxes[0] == boxes[2]) | (boxes[1] == boxes[3]))
        if flat.size:
            # A polygon without an area is not valid: a line, or a point, is.
            ends = np.stack([np.stack([side[flat] for side in boxes[at : at + 2]], axis=1) for at in (0, 2)], axis=1)
            points = (ends[:, 0] == ends[:, 1]).all(axis=1)
            made[flat] = shapely.linestrings(ends)
            made[flat[points]] = shapely.points(ends[points, 0])
        return made, at

    def _bounds(self) -> Boxes:
        import shapely

        column = self._columns[0]
        boxes, invalid = np.full((4, len(column)), np.nan), np.zeros(len(column), np.bool_)
        rows = max(1, min(_PARSED // 16, _PARSED * len(column) // max(1, column.nbytes)))
        for start in range(0, len(column), rows):
            part = slice(start, start + rows)
            parsed = _parsed(column.slice(start, rows))
            boxes[:, part] = shapely.bounds(parsed).T
            invalid[part] = ~shapely.is_valid(parsed)
        self._invalid = invalid
        return list(boxes)


def check_columns(relation: str, schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise an error unless these columns are boxes, geometries or numbers."""
    for name in names:
        if name not in schema.names:
            raise ConfigError.unknown_column("on", name, schema.names)
    kinds = [schema.field(name).type for name in names]
    if len(kinds) > 1:
        wrong = next((name for name, kind in zip(names, kinds, strict=True) if not is_numeric(kind)), None)
        if wrong is not None:
            raise ConfigError(
                f"{relation}({list(names)}): {wrong!r} is {schema.field(wrong).type}, not a number. Name columns of "
                f"numbers, or one column of boxes or geometries."
            )
        return
    (kind,) = kinds
    if _is_binary(kind):
        if importlib.util.find_spec("shapely") is None:
            raise ConfigError(
                f"{relation}({names[0]!r}) is {kind}, so it holds geometries. To read them, install shapely: "
                f"pip install 'penstock[spatial]'."
            )
    elif not pa.types.is_struct(kind) or not all(is_numeric(kind.field(name).type) for name in _corners(kind)):
        raise ConfigError(
            f"{relation}({names[0]!r}) is {kind}. Name a column of structs of x1, y1, x2 and y2, of geometries as WKB, "
            f"four columns of numbers, or two for points."
        )


def _corners(kind: pa.StructType) -> tuple[str, ...]:
    """What the fields of a box are called."""
    fields = {kind.field(n).name for n in range(kind.num_fields)}
    found = next((names for names in _CORNERS if fields.issuperset(names)), None)
    if found is None:
        raise ConfigError(
            f"A box has no corners in the fields {', '.join(sorted(fields))}. Call them x1, y1, x2 and y2, or xmin, "
            f"ymin, xmax and ymax."
        )
    return found


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _numbers(column: pa.Array) -> bx.Side:
    floats = column if column.type == pa.float64() else pc.cast(column, pa.float64(), safe=False)
    return floats.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _parsed(column: pa.Array) -> Any:
    """Geometries; None for what is none, and for curves, of which GEOS knows no relations."""
    import shapely

    try:
        return shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    except NotImplementedError:
        # One curve fails a whole array: halve it until it is found.
        if len(column) == 1:
            return np.array([None], object)
        half = len(column) // 2
        return np.concatenate([_parsed(column.slice(0, half)), _parsed(column.slice(half))])
