"""Which columns can be join keys, and which type two keys of different types are compared as."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.core.errors import ConfigError

_FAMILIES = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)
"""Types that hold all values of those before them."""

_SIGNED = {kind.bit_width: kind for kind in _FAMILIES[0]}
_UNITS = ("s", "ms", "us")
"""Units of timestamps, coarse to fine. Nanoseconds reach only to 2262, so they are not compared with others."""


def common_key(left: pa.Field, right: pa.Field) -> pa.DataType:
    """The type that both keys are compared as. A dictionary is compared by its values.

    >>> common_key(pa.field("a", pa.int32()), pa.field("b", pa.int64()))
    DataType(int64)
    """
    for field in (left, right):
        check_comparable(field)
    ours, theirs = values_of(left.type), values_of(right.type)
    if ours == theirs or pa.types.is_null(ours):
        return right.type if _can_become(left.type, right.type) else theirs
    common = _common(ours, theirs)
    if common is None:
        raise ConfigError(
            f"on={left.name!r}: the left key is {left.type}, the right key {right.name!r} is {right.type}, and no "
            f"common type holds every value of both. Cast one of them first: "
            f".select('*', 'CAST({right.name} AS …) AS …')."
        )
    return common


def table_key(own: pa.Field, key: pa.Field) -> pa.DataType:
    """The type that a stream's key is looked up as: the table's; an error if that cannot hold all its values.

    A dictionary that may have no room for the stream's keys is looked up by its values.

    >>> table_key(pa.field("a", pa.large_string()), pa.field("b", pa.string()))
    DataType(string)
    """
    # A dictionary is decoded before it is cast: then it may become another, or the same with other values.
    values = values_of(key.type)
    common = common_key(own.with_type(values_of(own.type)), key.with_type(values))
    if _short(common) == _short(values):
        return key.type if _can_become(common, key.type) else values
    instead = f"Cast the table's key to {common}"
    if _has_name_in_sql(key.type):
        instead += f", or the stream's to its type: .select('*', 'CAST({own.name} AS …) AS …')"
    raise ConfigError(
        f"on={own.name!r} is {own.type}, but the table's key {key.name!r} is {key.type}, which cannot hold every key "
        f"of the stream. {instead}."
    )


def check_clocks(times: Mapping[str, pa.DataType | None]) -> None:
    """Raise an error if some streams have timestamps with a time zone and others without.

    >>> check_clocks({"left": pa.timestamp("us"), "right": pa.timestamp("us"), "third": None})
    """
    zoned = {
        name: kind.tz is not None for name, kind in times.items() if kind is not None and pa.types.is_timestamp(kind)
    }
    if len(set(zoned.values())) > 1:
        with_zone, without = (next(name for name in zoned if zoned[name] is asked) for asked in (True, False))
        raise ConfigError(
            f"The time of {with_zone} is a timestamp with a time zone, the time of {without} is one without: they "
            f"cannot be compared. Cast one of them in its source."
        )


def _common(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """The narrowest type that has all values of two different ones, if there is one."""
    if pa.types.is_null(theirs):
        return ours
    for family in _FAMILIES:
        if ours in family and theirs in family:
            return family[max(family.index(ours), family.index(theirs))]
    if pa.types.is_integer(ours) and pa.types.is_integer(theirs):
        return _SIGNED.get(max(_bits_signed(ours), _bits_signed(theirs)))
    for whole, other in ((ours, theirs), (theirs, ours)):
        if pa.types.is_integer(whole) and other in (pa.float32(), pa.float64()):
            return _float(whole.bit_width, other)
        if pa.types.is_fixed_size_binary(whole) and other in (pa.binary(), pa.large_binary()):
            return other
    if pa.types.is_decimal(ours) and pa.types.is_decimal(theirs):
        return _decimal(ours, theirs)
    if pa.types.is_timestamp(ours) and pa.types.is_timestamp(theirs):
        return _timestamp(ours, theirs)
    return None


def _bits_signed(kind: pa.DataType) -> int:
    """The bits of the signed integer that has all values of an integer."""
    return int(kind.bit_width) * (1 if pa.types.is_signed_integer(kind) else 2)


def _float(bits: int, kind: pa.DataType) -> pa.DataType | None:
    """The float that has all integers of some bits and all values of another float."""
    if bits <= 16:
        return kind
    return pa.float64() if bits <= 32 else None


def _decimal(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    scale = max(ours.scale, theirs.scale)
    whole = max(ours.precision - ours.scale, theirs.precision - theirs.scale)
    return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else None


def _timestamp(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """The finer of two timestamps. Moments are compared whatever their zones; a clock's time is no moment."""
    if (ours.tz is None) != (theirs.tz is None):
        return None
    if ours.unit == theirs.unit:
        return theirs
    if ours.unit not in _UNITS or theirs.unit not in _UNITS:
        return None
    return max(ours, theirs, key=lambda kind: _UNITS.index(kind.unit))


def _short(kind: pa.DataType) -> pa.DataType:
    """One type for those of the same values."""
    if kind == pa.large_string():
        return pa.string()
    if kind == pa.large_binary():
        return pa.binary()
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _has_name_in_sql(kind: pa.DataType) -> bool:
    """Whether Spark's SQL can cast to a type."""
    odd = (pa.types.is_dictionary, pa.types.is_unsigned_integer, pa.types.is_null, pa.types.is_fixed_size_binary)
    return not pa.types.is_timestamp(kind) and not any(test(kind) for test in odd)


def values_of(kind: pa.DataType) -> pa.DataType:
    """The value type of a dictionary; any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _can_become(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether any values of `kind` can be cast to a type of the same values.

    Arrow makes dictionaries of texts only; a narrow index has no room for keys that other rows bring, and a dictionary
    that stays one may have a null among its values, where nobody looks for it.
    """
    if not pa.types.is_dictionary(other):
        return True
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return other.index_type.bit_width >= 32 and (pa.types.is_null(kind) or any(test(kind) for test in texts))


def check_comparable(field: pa.Field, argument: str | None = None) -> None:
    """Raise unless values of a column, which an argument names, can be compared."""
    named = f"on={field.name!r}" if argument is None else f"{argument} names {field.name!r}, which"
    kind = field.type
    instead = _instead(kind)
    if instead is not None:
        raise ConfigError(
            f"{named} is a key of type {kind}, which Arrow cannot select by row or compare. "
            f"Cast it to {instead} in the source or the table."
        )
    if pa.types.is_map(kind) or pa.types.is_union(kind) or pa.types.is_interval(kind):
        raise ConfigError(
            f"{named} is of type {kind}, which cannot be compared. "
            f"Join on one of its parts, for example element_at({field.name}, …), selected as a column."
        )
    if pa.types.is_dictionary(kind):
        check_comparable(field.with_type(kind.value_type), argument)
    for place in range(kind.num_fields if pa.types.is_nested(kind) else 0):
        check_comparable(field.with_type(kind.field(place).type), argument)


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
