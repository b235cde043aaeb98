"""XXH64 of one value at a time, written down from its definition, and the bytes that Spark hashes of a value."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def spark_hash(row: list[Any], kinds: list[pa.DataType]) -> int:
    """``xxhash64(…)`` of Spark over the values of a row, as an unsigned number."""
    total = 42
    for value, kind in zip(row, kinds, strict=True):
        total = total if value is None else _of(value, kind, total)
    return total


def _of(value: Any, kind: pa.DataType, seed: int) -> int:
    if pa.types.is_struct(kind):
        for field in kind:
            part = value[field.name]
            seed = seed if part is None else _of(part, field.type, seed)
        return seed
    return xxh64(_content(value, kind), seed)


def _content(value: Any, kind: pa.DataType) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        plain = float("nan") if value != value else value + 0.0
        return struct.pack("<f" if kind == pa.float32() else "<d", plain)
    if isinstance(value, Decimal):
        digits = int(value.scaleb(kind.scale, Context(prec=60)))
        if kind.precision <= 18:
            return struct.pack("<q", digits)
        return digits.to_bytes((digits if digits >= 0 else ~digits).bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, dt.datetime):
        since = value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)
        return struct.pack("<q", since // dt.timedelta(microseconds=1))
    if isinstance(value, dt.date):
        return struct.pack("<i", (value - dt.date(1970, 1, 1)).days)
    return struct.pack("<q" if kind == pa.int64() else "<i", int(value))


def xxh64(content: bytes, seed: int) -> int:
    """The hash of some bytes."""
    at = 0
    if len(content) >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        for at in range(0, len(content) - 31, 32):
            words = struct.unpack_from("<4Q", content, at)
            lanes = [_turn(lane + word * _P2, 31) * _P1 & _MASK for lane, word in zip(lanes, words, strict=True)]
        at += 32
        total = sum(_turn(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = ((total ^ (_turn(lane * _P2, 31) * _P1)) & _MASK) * _P1 + _P4
    else:
        total = seed + _P5
    total = (total + len(content)) & _MASK
    for next_word in range(at, len(content) - 7, 8):
        (word,) = struct.unpack_from("<Q", content, next_word)
        total = (_turn(total ^ (_turn(word * _P2, 31) * _P1), 27) * _P1 + _P4) & _MASK
    at = len(content) // 8 * 8
    if len(content) - at >= 4:
        (word,) = struct.unpack_from("<I", content, at)
        total = (_turn(total ^ (word * _P1), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in content[at:]:
        total = _turn(total ^ (byte * _P5), 11) * _P1 & _MASK
    total = (total ^ (total >> 33)) * _P2 & _MASK
    total = (total ^ (total >> 29)) * _P3 & _MASK
    return total ^ (total >> 32)


def _turn(word: int, by: int) -> int:
    word &= _MASK
    return (word << by | word >> (64 - by)) & _MASK
