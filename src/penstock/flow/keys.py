"""Which columns can be join keys, and which type two keys of different types are compared as."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.errors import ConfigError

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_FLOATS = [pa.float32(), pa.float64()]


def common_key(left: pa.Field, right: pa.Field) -> pa.DataType:
    """The type that both keys are compared as. A dictionary is compared as what it stands for.

    >>> common_key(pa.field("a", pa.int32()), pa.field("b", pa.int64()))
    DataType(int64)
    """
    for field in (left, right):
        _check_comparable(field)
    ours, theirs = values_of(left.type), values_of(right.type)
    if ours == theirs:
        return right.type if _can_become(left.type, right.type) else theirs
    for family in (_INTEGERS, _FLOATS):
        if ours in family and theirs in family:
            return family[max(family.index(ours), family.index(theirs))]
    if pa.types.is_decimal(ours) and pa.types.is_decimal(theirs):
        scale = max(ours.scale, theirs.scale)
        whole = max(ours.precision - ours.scale, theirs.precision - theirs.scale)
        if whole + scale <= 38:
            return pa.decimal128(whole + scale, scale)
    raise ConfigError(
        f"on={left.name!r}: the left key is {left.type}, the right one {right.name!r} is {right.type}, and comparing "
        f"them would lose values. Cast one of them first: .select('*', 'CAST({right.name} AS …) AS …')."
    )


def values_of(kind: pa.DataType) -> pa.DataType:
    """What a dictionary stands for; any other type as it is."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _can_become(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether any values of `kind` can be cast to a type of the same values.

    Arrow makes dictionaries of texts only; a narrow index has no room for keys that other rows bring, and a dictionary
    that stays one may have a null among its values, where nobody looks for it.
    """
    if not pa.types.is_dictionary(other):
        return True
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return other.index_type.bit_width >= 32 and any(test(kind) for test in texts)


def _check_comparable(field: pa.Field) -> None:
    kind = field.type
    instead = _instead(kind)
    if instead is not None:
        raise ConfigError(
            f"on={field.name!r} is a key of type {kind}, which Arrow cannot take rows of or compare. "
            f"Cast it to {instead} in the source or the table."
        )
    if pa.types.is_map(kind) or pa.types.is_union(kind) or pa.types.is_interval(kind):
        raise ConfigError(
            f"on={field.name!r} is of type {kind}, which cannot be compared. "
            f"Join on one of its parts, for example element_at({field.name}, …), selected as a column."
        )
    if pa.types.is_dictionary(kind):
        _check_comparable(field.with_type(kind.value_type))
    for place in range(kind.num_fields if pa.types.is_nested(kind) else 0):
        _check_comparable(field.with_type(kind.field(place).type))


def _instead(kind: pa.DataType) -> pa.DataType | None:
    """A type of the same values that can be a key, if `kind` itself cannot."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.list_(kind.value_type)
    if pa.types.is_run_end_encoded(kind):
        return kind.value_type
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else None
