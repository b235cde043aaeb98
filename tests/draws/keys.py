"""Key columns of every type, with the values that are easily got wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_TRICKY_INTEGERS = [0, 1, -1, 127, -128]
_TRICKY_TEXTS = ["", "a", "A", "ä", "a ", "日本", "it's", 'a"b']
_TRICKY_FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5]
_START = datetime(1970, 1, 1, tzinfo=UTC)


def _among(tricky: list[Any], otherwise: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda number: tricky[number] if number < len(tricky) else otherwise(number)


_KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int8": (pa.int8(), _among(_TRICKY_INTEGERS, int)),
    "int16": (pa.int16(), _among(_TRICKY_INTEGERS, int)),
    "int32": (pa.int32(), _among(_TRICKY_INTEGERS, int)),
    "int64": (pa.int64(), _among([*_TRICKY_INTEGERS, 2**63 - 1, -(2**63)], int)),
    "float": (pa.float32(), _among(_TRICKY_FLOATS, lambda n: n / 2)),
    "double": (pa.float64(), _among([*_TRICKY_FLOATS, 1e-300], lambda n: n / 2)),
    "money": (pa.decimal128(10, 2), lambda n: Decimal(n - 3) / 4),
    "exact": (pa.decimal128(12, 4), lambda n: Decimal(n - 3) / 4),
    "text": (pa.string(), _among(_TRICKY_TEXTS, "k{}".format)),
    "bytes": (pa.binary(), _among([b"", b"\0", b"\0\0", b"\xff"], lambda n: b"k%d" % n)),
    "flag": (pa.bool_(), lambda n: n % 2 == 1),
    "day": (pa.date32(), lambda n: date(1970, 1, 1) + timedelta(days=n - 3)),
    "moment": (pa.timestamp("us", "UTC"), lambda n: _START + (n - 3) * timedelta(seconds=1, microseconds=1)),
    "pair": (pa.struct({"a": pa.int32(), "b": pa.string()}), lambda n: {"a": n % 3, "b": str(n // 3)}),
}

KINDS = tuple(_KINDS)
"""The names of the types; a column of a type is called ``k_`` and its name."""

SAME = [(kind, kind) for kind in KINDS]
MIXED = [("int32", "int64"), ("int16", "int8"), ("float", "double"), ("exact", "money")]
"""Two types that are compared as one."""


def column(kind: str) -> pa.Field:
    """The key column of a type."""
    return pa.field(f"k_{kind}", _KINDS[kind][0])


def value(kind: str, number: int | None) -> Any:
    """A key by its number: equal numbers are equal keys, in every two types that can be compared."""
    return None if number is None else _KINDS[kind][1](number)
