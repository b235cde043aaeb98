"""TPC-H's lineitem, orders, supplier and customer, for joins of three and four streams: its columns, keys and widths.

Rows follow the benchmark's rules where a join, a width or a prefix can tell: order keys are sparse, a third of the
customers has no orders, an order has one to seven lines, prices and states of orders come from their lines, and texts
are stretches of one long text. They are not the bytes that dbgen writes.

Tables are in the order of their primary key, so that the first rows of lineitem and of orders belong together, as with
``ORDER BY orderkey, linenumber LIMIT n``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.core.rows import Indices

Name = Literal["li", "o", "s", "c"]
"""lineitem, orders, supplier, customer."""

KEYS: dict[str, tuple[str, ...]] = {
    "li": ("orderkey", "linenumber"),
    "o": ("orderkey",),
    "s": ("suppkey",),
    "c": ("custkey",),
}
"""What identifies a row."""

JOINS: dict[str, tuple[str, ...]] = {
    "li": ("orderkey", "linenumber", "suppkey"),
    "o": ("orderkey", "custkey"),
    "s": ("suppkey",),
    "c": ("custkey",),
}
"""What identifies a row or joins it with others; the rest of a row is payload."""

PAYLOAD = "payload"
"""The column that inflates rows."""

KB = 1024
"""Bytes of a kilobyte of generated payload."""

_MONEY = pa.decimal128(15, 2)
_SCHEMAS = {
    "li": pa.schema(
        [
            ("orderkey", pa.int64()),
            ("partkey", pa.int64()),
            ("suppkey", pa.int64()),
            ("linenumber", pa.int32()),
            ("quantity", _MONEY),
            ("extendedprice", _MONEY),
            ("discount", _MONEY),
            ("tax", _MONEY),
            ("returnflag", pa.string()),
            ("linestatus", pa.string()),
            ("shipdate", pa.date32()),
            ("commitdate", pa.date32()),
            ("receiptdate", pa.date32()),
            ("shipinstruct", pa.string()),
            ("shipmode", pa.string()),
            ("comment", pa.string()),
        ]
    ),
    "o": pa.schema(
        [
            ("orderkey", pa.int64()),
            ("custkey", pa.int64()),
            ("orderstatus", pa.string()),
            ("totalprice", _MONEY),
            ("orderdate", pa.date32()),
            ("orderpriority", pa.string()),
            ("clerk", pa.string()),
            ("shippriority", pa.int32()),
            ("comment", pa.string()),
        ]
    ),
    "s": pa.schema(
        [
            ("suppkey", pa.int64()),
            ("name", pa.string()),
            ("address", pa.string()),
            ("nationkey", pa.int32()),
            ("phone", pa.string()),
            ("acctbal", _MONEY),
            ("comment", pa.string()),
        ]
    ),
    "c": pa.schema(
        [
            ("custkey", pa.int64()),
            ("name", pa.string()),
            ("address", pa.string()),
            ("nationkey", pa.int32()),
            ("phone", pa.string()),
            ("acctbal", _MONEY),
            ("mktsegment", pa.string()),
            ("comment", pa.string()),
        ]
    ),
}
_ROWS = {"o": 1_500_000, "s": 10_000, "c": 150_000}
_PARTS = 200_000
_FIRST_DAY, _DAYS = 8035, 2406
"""1992-01-01 as a day since 1970, and how many days orders are made on."""
_TODAY = 9298
"""1995-06-17: what was shipped later is still open."""
_INSTRUCTIONS = np.array(["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"])
_MODES = np.array(["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"])
_PRIORITIES = np.array(["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"])
_SEGMENTS = np.array(["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"])
_WORDS = (
    "furiously quickly carefully blithely slyly express regular special pending final ironic even bold silent "
    "packages deposits requests accounts theodolites foxes pinto beans instructions dependencies excuses platelets "
    "sleep wake nag haggle cajole detect integrate boost use above across after against among the are of to"
)
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_POOL = 1 << 18


@dataclass(frozen=True, slots=True)
class Tpch:
    """The four tables at a scale factor, with a random text of so many bytes beside the rows of some.

    >>> data = Tpch(scale=0.001, payload=(("li", 3 * KB),))
    >>> [(name, data.table(name).num_rows) for name in ("o", "s", "c")]
    [('o', 1500), ('s', 10), ('c', 150)]
    >>> data.table("li").num_columns, data.table("o").num_columns
    (17, 9)
    """

    scale: float = 0.01
    payload: tuple[tuple[str, int], ...] = ()
    seed: int = 0
    suppliers: int | None = None
    """How many there are where that is not as the scale says: at small scales too few to share out."""

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ConfigError(f"scale={self.scale} leaves no rows. Write a scale factor above 0, such as 0.01.")
        for name, size in self.payload:
            if name not in _SCHEMAS or size < 0:
                raise ConfigError(f"payload={name!r}, {size} bytes: write 'li', 'o', 's' or 'c', and 0 or more.")

    def table(self, name: str) -> pa.Table:
        """All rows of a table, by primary key."""
        rows = _table(name, self.scale, self.seed, self.suppliers)
        size = dict(self.payload).get(name)
        if size is None:
            return rows
        text = _random(rows.num_rows, size, np.random.default_rng((self.seed, _DRAWS[name], 99)))
        return rows.append_column(pa.field(PAYLOAD, pa.large_string()), text)

    def prefix(self, name: str, lines: int) -> pa.Table:
        """What a stream of so many lineitems comes with: as many lineitems, as many orders at most, all of the rest.

        >>> data = Tpch(scale=0.001)
        >>> [data.prefix(name, 2000).num_rows for name in ("li", "o", "s", "c")]
        [2000, 1500, 10, 150]
        """
        rows = self.table(name)
        return rows.slice(0, lines) if name in ("li", "o") else rows


def widths(rows: pa.Table, columns: tuple[str, ...] | None = None) -> Indices:
    """Bytes of each row's values: texts their length, numbers and dates what their type takes."""
    total = np.zeros(rows.num_rows, np.int64)
    for name in rows.column_names if columns is None else columns:
        column = rows.column(name).combine_chunks()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
            ends = np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column) + 1]
            total += np.diff(ends)
        else:
            total += column.type.bit_width // 8
    return total


_DRAWS: dict[str, int] = {"o": 1, "li": 2, "s": 3, "c": 4}


@lru_cache(maxsize=8)
def _table(name: str, scale: float, seed: int, suppliers: int | None) -> pa.Table:
    columns = _MAKERS[name](scale, seed, suppliers or _count("s", scale))
    return pa.table([columns[field.name] for field in _SCHEMAS[name]], schema=_SCHEMAS[name])


def _count(name: str, scale: float) -> int:
    return max(1, round(_ROWS[name] * scale))


@lru_cache(maxsize=4)
def _lines(scale: float, seed: int) -> dict[str, Any]:
    """What lineitems and orders both depend on, as numbers."""
    random, orders = np.random.default_rng((seed, _DRAWS["o"])), _count("o", scale)
    per_order = random.integers(1, 8, orders)
    first = np.cumsum(per_order) - per_order
    count = int(per_order.sum())
    day = _FIRST_DAY + random.integers(0, _DAYS, orders)
    part = random.integers(1, max(2, round(_PARTS * scale) + 1), count)
    quantity = random.integers(1, 51, count)
    price = quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1000))
    discount, tax = random.integers(0, 11, count), random.integers(0, 9, count)
    ship = np.repeat(day, per_order) + random.integers(1, 122, count)
    places = np.arange(orders)
    return {
        "orderkey": places // 8 * 32 + places % 8 + 1,
        "per_order": per_order,
        "first": first,
        "orderdate": day,
        "partkey": part,
        "quantity": quantity,
        "price": price,
        "discount": discount,
        "tax": tax,
        "shipdate": ship,
    }


def _lineitem(scale: float, seed: int, suppliers: int) -> dict[str, pa.Array]:
    known = _lines(scale, seed)
    random, count = np.random.default_rng((seed, _DRAWS["li"])), known["partkey"].size
    # Four suppliers have each part.
    turn = random.integers(0, 4, count)
    part, ship = known["partkey"], known["shipdate"]
    supplier = (part + turn * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1
    received = ship + random.integers(1, 31, count)
    returned = np.where(random.random(count) < 0.5, "R", "A")
    return {
        "orderkey": pa.array(np.repeat(known["orderkey"], known["per_order"])),
        "partkey": pa.array(part),
        "suppkey": pa.array(supplier),
        "linenumber": pa.array((np.arange(count) - np.repeat(known["first"], known["per_order"]) + 1).astype(np.int32)),
        "quantity": _money(100 * known["quantity"]),
        "extendedprice": _money(known["price"]),
        "discount": _money(known["discount"]),
        "tax": _money(known["tax"]),
        "returnflag": pa.array(np.where(received <= _TODAY, returned, "N")),
        "linestatus": pa.array(np.where(ship > _TODAY, "O", "F")),
        "shipdate": _days(ship),
        "commitdate": _days(np.repeat(known["orderdate"], known["per_order"]) + random.integers(30, 91, count)),
        "receiptdate": _days(received),
        "shipinstruct": pa.array(_INSTRUCTIONS[random.integers(0, 4, count)]),
        "shipmode": pa.array(_MODES[random.integers(0, 7, count)]),
        "comment": _texts(random, count, 10, 43),
    }


def _orders(scale: float, seed: int, suppliers: int) -> dict[str, pa.Array]:
    known, customers = _lines(scale, seed), _count("c", scale)
    random, count = np.random.default_rng((seed, _DRAWS["o"], 1)), known["orderkey"].size
    # Every third customer has no orders.
    buyers = np.array([key for key in range(1, customers + 1) if key % 3 or customers < 3])
    open_lines = np.add.reduceat((known["shipdate"] > _TODAY).astype(np.int64), known["first"])
    charged = known["price"] * (100 - known["discount"]) * (100 + known["tax"]) // 10_000
    return {
        "orderkey": pa.array(known["orderkey"]),
        "custkey": pa.array(buyers[random.integers(0, buyers.size, count)]),
        "orderstatus": pa.array(np.where(open_lines == 0, "F", np.where(open_lines == known["per_order"], "O", "P"))),
        "totalprice": _money(np.add.reduceat(charged, known["first"])),
        "orderdate": _days(known["orderdate"]),
        "orderpriority": pa.array(_PRIORITIES[random.integers(0, 5, count)]),
        "clerk": _numbered("Clerk#", random.integers(1, max(2, round(1000 * scale) + 1), count)),
        "shippriority": pa.array(np.zeros(count, np.int32)),
        "comment": _texts(random, count, 19, 78),
    }


def _supplier(scale: float, seed: int, suppliers: int) -> dict[str, pa.Array]:
    return _party("s", "Supplier#", suppliers, seed, (25, 100))


def _customer(scale: float, seed: int, suppliers: int) -> dict[str, pa.Array]:
    columns = _party("c", "Customer#", _count("c", scale), seed, (29, 116))
    random = np.random.default_rng((seed, _DRAWS["c"], 1))
    return {**columns, "mktsegment": pa.array(_SEGMENTS[random.integers(0, 5, len(columns["custkey"]))])}


def _party(name: str, label: str, count: int, seed: int, comment: tuple[int, int]) -> dict[str, pa.Array]:
    random = np.random.default_rng((seed, _DRAWS[name]))
    keys, nation = np.arange(1, count + 1), random.integers(0, 25, count)
    digits = random.integers(0, 10, (count, 10)).astype(np.uint8) + ord("0")
    phone = np.full((count, 15), ord("-"), np.uint8)
    phone[:, 0], phone[:, 1] = (nation + 10) // 10 + ord("0"), (nation + 10) % 10 + ord("0")
    phone[:, 3:6], phone[:, 7:10], phone[:, 11:15] = digits[:, :3], digits[:, 3:6], digits[:, 6:]
    return {
        KEYS[name][0]: pa.array(keys),
        "name": _numbered(label, keys),
        "address": _texts(random, count, 10, 40),
        "nationkey": pa.array(nation.astype(np.int32)),
        "phone": _same_width(phone),
        "acctbal": _money(random.integers(-99_999, 1_000_000, count)),
        "comment": _texts(random, count, *comment),
    }


_MAKERS: dict[str, Callable[[float, int, int], dict[str, pa.Array]]] = {
    "li": _lineitem,
    "o": _orders,
    "s": _supplier,
    "c": _customer,
}


def _money(cents: Indices) -> pa.Array:
    words = np.stack([cents.astype(np.int64), cents.astype(np.int64) >> 63], axis=1)
    return pa.Array.from_buffers(_MONEY, cents.size, [None, pa.py_buffer(words.tobytes())])


def _days(days: Indices) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _numbered(label: str, numbers: Indices) -> pa.Array:
    """``Clerk#000000042``."""
    digits = (numbers[:, None] // 10 ** np.arange(8, -1, -1) % 10).astype(np.uint8) + ord("0")
    head = np.tile(np.frombuffer(label.encode(), np.uint8), (numbers.size, 1))
    return _same_width(np.concatenate([head, digits], axis=1))


def _same_width(text: Any) -> pa.Array:
    offsets = (np.arange(text.shape[0] + 1) * text.shape[1]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), text.shape[0], [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    )


def _texts(random: np.random.Generator, count: int, shortest: int, longest: int) -> pa.Array:
    """Stretches of one long text, as dbgen makes its comments."""
    pool = _pool()
    sizes = random.integers(shortest, longest + 1, count)
    starts = random.integers(0, pool.size - longest, count)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    places = np.arange(ends[-1]) - np.repeat(ends[:-1] - starts, sizes)
    content = pool[places].tobytes()
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content)])


@lru_cache(maxsize=1)
def _pool() -> Any:
    random = np.random.default_rng(19)
    known = np.array(_WORDS.split())
    words = " ".join(known[random.integers(0, known.size, _POOL // 5)])
    return np.frombuffer(words.encode()[:_POOL], np.uint8)


def _random(count: int, size: int, random: np.random.Generator) -> pa.Array:
    """Texts in which no compressor finds repeats."""
    content = _ALPHABET[np.frombuffer(random.bytes(count * size), np.uint8) & 63].tobytes()
    offsets = np.arange(count + 1, dtype=np.int64) * size
    return pa.Array.from_buffers(pa.large_string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
