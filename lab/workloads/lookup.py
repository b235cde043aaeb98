"""Streams and master tables for lookup joins: Zipf keys, keys that are hot for a while, TPC-H-like, and LON-like data.

Widths are those of the values, exact to the byte: numbers and times count 8 bytes (ids of streams 4), texts and fillers
what they hold. Rows are made a stretch at a time, each on its own, so that tables of any size pass in little memory
and the same fields give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lab.workloads.bmodel import Keys
from lab.workloads.traces import Layout, Trace
from lab.workloads.zipf import Placement, Zipf, scattered
from penstock.core.errors import ConfigError
from penstock.core.rows import Indices
from penstock.core.time import Times

STREAM = pa.schema([("t", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("id", pa.int32())])
"""The columns of streams: when, what to look up, and the row's place. A filler may follow."""

TABLE = pa.schema([("key", pa.int64()), ("filler", pa.binary())])
"""The columns of master tables."""

STEP = 65_536
"""How many rows are made at a time."""

_SECOND = 1_000_000
_STREAM_ROW, _TABLE_KEY = 20, 8
_MASTER, _ROWS, _ORDERS = 1, 2, 3
"""What is drawn: a table, a stream, what else orders have."""


@dataclass(frozen=True, slots=True)
class MasterRows:
    """A master table: `rows` rows of `row_bytes` bytes, in no order, as many with each of `keys` keys as can be.

    Keys are `first`, `first` + 1, … , as many as there are rows if not given. `seed` says where which row lies.

    >>> table = MasterRows(rows=1000, row_bytes=120).table()
    >>> table.num_rows, len(table.column("key").unique()), len(table.column("filler")[0].as_py())
    (1000, 1000, 112)
    """

    rows: int
    row_bytes: int = 120
    keys: int | None = None
    first: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or not 1 <= (self.keys or self.rows) <= self.rows:
            raise ConfigError(f"rows={self.rows} with keys={self.keys} are no table. Write rows for all keys.")
        _check_width(self.row_bytes, _TABLE_KEY)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return TABLE

    @property
    def nbytes(self) -> int:
        """How large the table is."""
        return self.rows * self.row_bytes

    def table(self) -> pa.Table:
        """The whole table."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The table, 65,536 rows at a time."""
        for number, first in enumerate(range(0, self.rows, STEP)):
            places = np.arange(first, min(first + STEP, self.rows))
            keys = self.first + scattered(places, self.rows, self.seed) * (self.keys or self.rows) // self.rows
            filler = _filler(keys.size, self.row_bytes - _TABLE_KEY, (self.seed, _MASTER, number))
            yield pa.record_batch([pa.array(keys), filler], schema=self.schema)


@dataclass(frozen=True, slots=True)
class ZipfStream(Trace):
    """`count` rows whose keys follow `law`, `rate` a second and evenly; each counts `row_bytes` bytes.

    With `intervals` the stream and the keys are cut into as many equal parts: in each part of the stream, only the keys
    of that part of the domain come, by the same law. So what is hot changes, and never comes back.

    >>> stream = ZipfStream(count=100_000, law=Zipf(1000), seed=7)
    >>> stream.rows, stream.table().nbytes
    (100000, 2000000)
    """

    count: int
    law: Zipf
    rate: float = 10_000.0
    row_bytes: int = _STREAM_ROW
    intervals: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 0 or not self.rate > 0:
            raise ConfigError(f"count={self.count} at rate={self.rate} brings no rows. Write more.")
        _check_width(self.row_bytes, _STREAM_ROW)
        if not 1 <= self.intervals <= self.law.keys:
            raise ConfigError(
                f"intervals={self.intervals} do not share out {self.law.keys} keys. Write 1 to {self.law.keys}."
            )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return STREAM.append(pa.field("filler", pa.binary())) if self.row_bytes > _STREAM_ROW else STREAM

    def layout(self) -> Layout:
        """Stretches of 65,536 rows."""
        starts = np.append(np.arange(0, self.count, STEP), self.count)
        return Layout(_times(starts, self.rate), starts)

    def stretch(self, number: int) -> pa.Table:
        """One stretch."""
        places = np.arange(number * STEP, min((number + 1) * STEP, self.count))
        seed = (self.seed, _ROWS, number)
        columns = [_moments(places, self.rate), pa.array(self._keys(places, seed)), pa.array(places.astype(np.int32))]
        if self.row_bytes > _STREAM_ROW:
            columns.append(_filler(places.size, self.row_bytes - _STREAM_ROW, seed))
        return pa.table(columns, schema=self.schema)

    def _keys(self, places: Indices, seed: tuple[int, ...]) -> Keys:
        # Intervals are counted from 0: as printed, from 1 on, the last would leave the domain (§6-3).
        width = self.law.keys // self.intervals
        part = Zipf(width, self.law.exponent, self.law.placement, self.law.first, self.law.seed)
        return part.draw(places.size, seed) + places * self.intervals // max(1, self.count) * width


@dataclass(frozen=True, slots=True)
class TemporalLocality:
    """A table with `per_key` rows of each key 1 … rows / per_key, and a stream of 25 intervals, each with its own keys.

    In each of the intervals the keys of one 25th of the domain come, by a Zipf law of exponent 1.

    >>> data = TemporalLocality(rows=10_000, per_key=10, stream_rows=5_000)
    >>> keys = data.stream.table().column("key").to_numpy()
    >>> int(keys.min()) >= 1, int(keys.max()) <= 1000, len(set((keys[:200] - 1) // 40))
    (True, True, 1)
    """

    rows: int
    per_key: int = 10
    stream_rows: int = 50_000
    exponent: float = 1.0
    intervals: int = 25
    seed: int = 0

    @property
    def master(self) -> MasterRows:
        """The table."""
        return MasterRows(self.rows, keys=self.rows // self.per_key, first=1, seed=self.seed)

    @property
    def stream(self) -> ZipfStream:
        """The stream."""
        law = Zipf(self.rows // self.per_key, self.exponent, first=1, seed=self.seed)
        return ZipfStream(self.stream_rows, law, intervals=self.intervals, seed=self.seed)


CUSTOMERS = pa.schema(
    [
        ("c_custkey", pa.int64()),
        ("c_nationkey", pa.int64()),
        ("c_acctbal", pa.float64()),
        ("c_name", pa.string()),
        ("c_mktsegment", pa.string()),
        ("c_comment", pa.binary()),
    ]
)
"""The columns of customers: 223 bytes."""

ORDERS = pa.schema(
    [
        ("o_orderkey", pa.int64()),
        ("o_custkey", pa.int64()),
        ("o_totalprice", pa.float64()),
        ("o_orderdate", pa.timestamp("us", "UTC")),
        ("o_orderstatus", pa.string()),
        ("o_orderpriority", pa.string()),
        ("o_comment", pa.binary()),
    ]
)
"""The columns of orders: 138 bytes."""

_SEGMENTS = np.array(["AUTOMOBILE", "BUILDING  ", "FURNITURE ", "HOUSEHOLD ", "MACHINERY "])
_PRIORITIES = np.array(["1-URGENT       ", "2-HIGH         ", "3-MEDIUM       ", "4-NOT SPECIFIED", "5-LOW          "])
_STATUSES = np.array(["F", "O", "P"])


@dataclass(frozen=True, slots=True)
class TpchLike:
    """Customers of 223 bytes and orders of 138, joined on the customer's key; not the data of TPC-H.

    TPC-H's own orders are even over the customers, with ``exponent=0``: the control. With 1, as in the experiments that
    caching is tried on, few customers have most orders (§6-6).

    >>> data = TpchLike(customers=1000, orders=2000)
    >>> sum(batch.num_rows for batch in data.customer_batches()), data.order_table().num_rows
    (1000, 2000)
    """

    customers: int
    orders: int
    exponent: float = 1.0
    placement: Placement = "random"
    rate: float = 10_000.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.customers < 1 or self.orders < 0 or not self.rate > 0:
            raise ConfigError(f"customers={self.customers}, orders={self.orders}, rate={self.rate}: write more.")

    def customer_table(self) -> pa.Table:
        """All customers."""
        return pa.Table.from_batches(self.customer_batches(), CUSTOMERS)

    def customer_batches(self) -> Iterator[pa.RecordBatch]:
        """The customers, 65,536 at a time, in no order."""
        for number, first in enumerate(range(0, self.customers, STEP)):
            places = np.arange(first, min(first + STEP, self.customers))
            yield self._customers(1 + scattered(places, self.customers, self.seed), (self.seed, _MASTER, number))

    def order_table(self) -> pa.Table:
        """All orders."""
        return pa.Table.from_batches(self.order_batches(), ORDERS)

    def order_batches(self) -> Iterator[pa.RecordBatch]:
        """The orders as they come, 65,536 at a time."""
        law = Zipf(self.customers, self.exponent, self.placement, first=1, seed=self.seed)
        for number, first in enumerate(range(0, self.orders, STEP)):
            places = np.arange(first, min(first + STEP, self.orders))
            keys = law.draw(places.size, (self.seed, _ROWS, number))
            yield self._orders(places, keys, (self.seed, _ORDERS, number))

    def _customers(self, keys: Keys, seed: tuple[int, ...]) -> pa.RecordBatch:
        random, count = np.random.default_rng(seed), keys.size
        columns = [
            pa.array(keys),
            pa.array(random.integers(0, 25, count)),
            pa.array(np.round(random.uniform(-999.99, 9999.99, count), 2)),
            _names(keys),
            pa.array(_SEGMENTS[random.integers(0, 5, count)]),
            _filler(count, 223 - 24 - 18 - 10, (*seed, 1)),
        ]
        return pa.record_batch(columns, schema=CUSTOMERS)

    def _orders(self, places: Indices, customers: Keys, seed: tuple[int, ...]) -> pa.RecordBatch:
        random, count = np.random.default_rng(seed), places.size
        columns = [
            pa.array(1 + places),
            pa.array(customers),
            pa.array(np.round(random.uniform(857.71, 555_285.16, count), 2)),
            _moments(places, self.rate),
            pa.array(_STATUSES[random.integers(0, 3, count)]),
            pa.array(_PRIORITIES[random.integers(0, 5, count)]),
            _filler(count, 138 - 32 - 1 - 15, (*seed, 1)),
        ]
        return pa.record_batch(columns, schema=ORDERS)


@dataclass(frozen=True, slots=True)
class LonLike:
    """A stand-in for the cloud reports of NDP-026B, which are not here: made up, not measured.

    What is known of them is kept: both sides have 128 bytes a row, keys are longitudes 0 … 36,000 in hundredths of a
    degree, and the table has about 555 rows of each at its full size of 20 million. How skewed the reports are is not
    known; here the law is Zipf's with `exponent`.

    >>> data = LonLike(rows=72_002, stream_rows=1000)
    >>> data.master.keys, data.master.row_bytes, data.stream.law.keys
    (36001, 128, 36001)
    """

    rows: int = 20_000_000
    stream_rows: int = 100_000
    exponent: float = 1.0
    seed: int = 0

    @property
    def master(self) -> MasterRows:
        """The table."""
        return MasterRows(self.rows, 128, min(self.rows, _LONGITUDES), seed=self.seed)

    @property
    def stream(self) -> ZipfStream:
        """The stream."""
        law = Zipf(_LONGITUDES, self.exponent, seed=self.seed)
        return ZipfStream(self.stream_rows, law, row_bytes=128, seed=self.seed)


_LONGITUDES = 36_001


def _check_width(row_bytes: int, least: int) -> None:
    if row_bytes < least:
        raise ConfigError(f"row_bytes={row_bytes} is less than the columns take. Write {least} or more.")


def _times(places: Indices, rate: float) -> Times:
    return (places * (_SECOND / rate)).astype(np.int64)


def _moments(places: Indices, rate: float) -> pa.Array:
    return pa.array(_times(places, rate).view("M8[us]"), STREAM.field("t").type)


def _names(keys: Keys) -> pa.Array:
    """``Customer#000000042``: 18 bytes each."""
    digits = keys[:, None] // 10 ** np.arange(8, -1, -1) % 10 + ord("0")
    text = np.concatenate([np.tile(np.frombuffer(b"Customer#", np.uint8), (keys.size, 1)), digits.astype(np.uint8)], 1)
    return _fixed(pa.string(), text.tobytes(), keys.size, 18)


def _filler(count: int, width: int, seed: tuple[int, ...]) -> pa.Array:
    return _fixed(pa.binary(), np.random.default_rng((*seed, 9)).bytes(count * width), count, width)


def _fixed(kind: pa.DataType, content: bytes, count: int, width: int) -> pa.Array:
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
