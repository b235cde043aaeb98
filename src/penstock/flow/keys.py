"""Which columns can be join keys, and which type two keys of different types are compared as."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.errors import ConfigError

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_FLOATS = [pa.float32(), pa.float64()]


def common_key(left: pa.Field, right: pa.Field) -> pa.DataType:
    """The type that both keys are compared as.

    >>> common_key(pa.field("a", pa.int32()), pa.field("b", pa.int64()))
    DataType(int64)
    """
    for field in (left, right):
        _check_comparable(field)
    if left.type == right.type:
        return left.type
    for family in (_INTEGERS, _FLOATS):
        if left.type in family and right.type in family:
            return family[max(family.index(left.type), family.index(right.type))]
    if pa.types.is_decimal(left.type) and pa.types.is_decimal(right.type):
        scale = max(left.type.scale, right.type.scale)
        whole = max(left.type.precision - left.type.scale, right.type.precision - right.type.scale)
        if whole + scale <= 38:
            return pa.decimal128(whole + scale, scale)
    raise ConfigError(
        f"on={left.name!r}: the left key is {left.type}, the right one {right.name!r} is {right.type}, and comparing "
        f"them would lose values. Cast one of them first: .select('*', 'CAST({right.name} AS …) AS …')."
    )


def _check_comparable(field: pa.Field) -> None:
    kind = field.type
    for place in range(kind.num_fields if pa.types.is_nested(kind) and not pa.types.is_map(kind) else 0):
        _check_comparable(pa.field(field.name, kind.field(place).type))
    if pa.types.is_map(kind) or pa.types.is_union(kind) or pa.types.is_interval(kind):
        raise ConfigError(
            f"on={field.name!r} is of type {kind}, which cannot be compared. "
            f"Join on one of its parts, for example element_at({field.name}, …), selected as a column."
        )
