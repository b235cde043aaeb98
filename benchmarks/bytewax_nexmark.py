"""One of Nexmark's queries in Bytewax; runs in an environment of its own (``make bench-peers``).

Reads ``<directory>/*.parquet``, hands every row to a sink that counts and drops it, and prints as its last line
``{"rows_out": …, "seconds": …}``: how many rows came out, and how long the dataflow ran.

Bytewax holds no reader of columns: its source reads the Parquet files with Arrow, only the columns that a query uses,
takes the rows of the kinds that it asks for, and hands them on as tuples, which is faster than to parse CSV or JSON in
Python. There is one worker: several threads share one lock of Python's, and several processes send each other pickled
rows.

Every key has a clock of its own, which waits 4 s for late events. It stands still between events (`now_getter`), as
these are of the past: otherwise a slow run would find more events late than a fast one. Where a query compares groups
(5, 7, 15), all events have the same key, so that they have the same clock. Joins without windows are
``stateful_flat_map``: ``join`` puts out all pairs of a key at the end of the stream only.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

KINDS = ("person", "auction", "bid")
BATCH_ROWS = 16_384
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)
TEN = timedelta(seconds=10)
TENS = win.TumblingWindower(TEN, EPOCH)
NUMBER = re.compile("(&|^)channel_id=([^&]*)")
LARGEST = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
SIDE = {key: f"value-{key}" for key in range(10_000)}

Row = tuple[Any, ...]
Query = Callable[[Dataflow, Path], Any]


class Rows(StatelessSourcePartition[Any]):
    """The rows of all files, in the order of arrival."""

    def __init__(self, batches: Iterator[list[Any]]) -> None:
        self.batches = batches

    def next_batch(self) -> list[Any]:
        """The next few; `StopIteration` says that there are no more."""
        return next(self.batches)


class Events(DynamicSource[Any]):
    """Events as tuples: the time in microseconds, then the columns.

    Of one kind they are handed on as they are, of several as pairs of the kind and the tuple.
    """

    def __init__(self, folder: Path, columns: dict[str, list[str]]) -> None:
        self.folder = folder
        self.columns = columns

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Rows:
        """The one worker reads all."""
        return Rows(self.batches())

    def batches(self) -> Iterator[list[Any]]:
        """All rows, a few at a time."""
        wanted = ["event_type", "dateTime"]
        wanted += [f"{kind}.{name}" for kind, names in self.columns.items() for name in names]
        for path in sorted(self.folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=wanted):
                yield self.rows(batch)

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """Those of a batch that are of the kinds asked for, in its order."""
        if len(self.columns) == 1:
            [kind] = self.columns
            return list(self.tuples(batch.filter(pc.equal(batch["event_type"], KINDS.index(kind))), kind))
        rows: list[Any] = [None] * batch.num_rows
        for kind in self.columns:
            places = pc.indices_nonzero(pc.equal(batch["event_type"], KINDS.index(kind)))
            for place, row in zip(places.to_pylist(), self.tuples(batch.take(places), kind), strict=True):
                rows[place] = (kind, row)
        return [row for row in rows if row is not None]

    def tuples(self, batch: pa.RecordBatch, kind: str) -> Iterator[Row]:
        """The rows of a batch that has one kind only."""
        us = batch["dateTime"].cast(pa.int64()).to_pylist()
        fields = (pc.struct_field(batch[kind], name) for name in self.columns[kind])
        plain = (field.cast(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in fields)
        return zip(us, *(field.to_pylist() for field in plain), strict=True)


class Dropped(DynamicSink[Any]):
    """A sink that counts rows and drops them."""

    def __init__(self) -> None:
        self.rows = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "Drop":
        """The one worker's part."""
        return Drop(self)


class Drop(StatelessSinkPartition[Any]):
    """What counts the rows of a worker."""

    def __init__(self, sink: Dropped) -> None:
        self.sink = sink

    def write_batch(self, items: list[Any]) -> None:
        """Count these."""
        self.sink.rows += len(items)


def events(flow: Dataflow, folder: Path, **columns: str) -> Stream[Any]:
    return op.input("events", flow, Events(folder, {kind: names.split() for kind, names in columns.items()}))


def clock(us: Callable[[Any], int]) -> win.EventClock[Any]:
    now = datetime.now(UTC)
    return win.EventClock(
        lambda row: EPOCH + us(row) * US, timedelta(seconds=4), now_getter=lambda: now, to_system_utc=lambda _: None
    )


def first(row: Any) -> Any:
    return row[0]


FIRST = clock(first)
"""The clock of rows that begin with their time."""


def windowed(
    rows: Stream[Any],
    key: Callable[[Any], str],
    begin: Callable[[], Any],
    fold: Callable[[Any, Any], Any],
    windower: Any = TENS,
    by: win.EventClock[Any] = FIRST,
    merge: Callable[[Any, Any], Any] = lambda one, other: one,
) -> Stream[Any]:
    """For each key and window ``(key, (window, folded))``. Only sessions merge."""
    return win.fold_window("window", op.key_on("key", rows, key), by, windower, begin, fold, merge).down


def tens(window: int) -> tuple[int, int]:
    return window * 10_000_000, (window + 1) * 10_000_000


def everything(row: Any) -> str:
    return "all"


def matches(rows: Stream[Any], keys: dict[str, Callable[[Row], int]]) -> Stream[Any]:
    """All combinations of rows of different kinds with equal keys, each when the last of its rows arrives."""
    places = {kind: place for place, kind in enumerate(keys)}

    def match(seen: list[list[Row]] | None, row: tuple[str, Row]) -> tuple[list[list[Row]], Iterable[Row]]:
        seen = seen if seen is not None else [[] for _ in places]
        kind, value = row
        mine = places[kind]
        combinations: list[Row] = [()]
        for place, others in enumerate(seen):
            chosen = (value,) if place == mine else others
            combinations = [(*so_far, other) for so_far in combinations for other in chosen]
        seen[mine].append(value)
        return seen, combinations

    keyed = op.key_on("match-key", rows, lambda row: str(keys[row[0]](row[1])))
    return op.key_rm("matches", op.stateful_flat_map("match", keyed, match))


def q0(flow: Dataflow, folder: Path) -> Stream[Any]:
    return events(flow, folder, bid="auction bidder price extra")


def q1(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price extra")
    return op.map("euros", bids, lambda bid: (*bid[:3], 0.908 * bid[3], bid[4]))


def q2(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction price")
    return op.map("select", op.filter("some", bids, lambda bid: bid[1] % 123 == 0), lambda bid: bid[1:])


def q3(flow: Dataflow, folder: Path) -> Stream[Any]:
    rows = events(flow, folder, auction="id seller category", person="id name city state")

    def asked(row: tuple[str, Row]) -> bool:
        kind, values = row
        return values[3] == 10 if kind == "auction" else values[4] in ("OR", "ID", "CA")

    pairs = matches(op.filter("asked", rows, asked), {"auction": lambda lot: lot[2], "person": lambda one: one[1]})
    return op.map("select", pairs, lambda pair: (*pair[1][2:], pair[0][1]))


def offered(rows: Stream[Any], expires: int) -> Stream[Any]:
    """Auctions with the bids made while they were open."""
    pairs = matches(rows, {"auction": lambda lot: lot[1], "bid": lambda bid: bid[1]})
    return op.filter("open", pairs, lambda pair: pair[0][0] <= pair[1][0] <= pair[0][expires])


def q4(flow: Dataflow, folder: Path) -> Stream[Any]:
    rows = events(flow, folder, auction="id category expires", bid="auction price")

    def final(prices: dict[int, int], pair: Row) -> dict[int, int]:
        lot, bid = pair
        prices[lot[1]] = max(prices.get(lot[1], 0), bid[2])
        return prices

    def category(pair: Row) -> str:
        return str(pair[0][2])

    by_start = clock(lambda pair: pair[0][0])
    sold = windowed(offered(rows, 3), category, dict, final, by=by_start)
    return op.map("mean", sold, lambda one: (int(one[0]), *tens(one[1][0]), sum(one[1][1].values()) / len(one[1][1])))


def q5(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction")
    sliding = win.SlidingWindower(TEN, timedelta(seconds=2), EPOCH)

    def count(counts: Counter[int], bid: Row) -> Counter[int]:
        counts[bid[1]] += 1
        return counts

    def hottest(closed: Row) -> list[Row]:
        _, (window, counts) = closed
        start, most = window * 2_000_000, max(counts.values())
        return [(auction, start, start + 10_000_000, num) for auction, num in counts.items() if num == most]

    return op.flat_map("hottest", windowed(bids, everything, Counter, count, sliding), hottest)


def q7(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price extra")

    def keep(best: list[Row], bid: Row) -> list[Row]:
        if not best or bid[3] > best[0][3]:
            return [bid]
        if bid[3] == best[0][3]:
            best.append(bid)
        return best

    return op.flat_map("best", windowed(bids, everything, list, keep), lambda closed: closed[1][1])


def q8(flow: Dataflow, folder: Path) -> Stream[Any]:
    rows = events(flow, folder, person="id name", auction="seller")
    split = op.branch("kind", rows, lambda row: row[0] == "person")
    people, lots = (op.map(name, side, lambda row: row[1]) for name, side in (("p", split.trues), ("a", split.falses)))
    keyed = [op.key_on(name, side, lambda row: str(row[1])) for name, side in (("id", people), ("seller", lots))]
    joined = win.join_window("join", FIRST, TENS, *keyed, insert_mode="first", emit_mode="complete")
    return op.map("select", joined.down, lambda one: (*one[1][1][0][1:], tens(one[1][0])[0]))


LOT = "itemName description initialBid reserve expires seller category extra"


def q9(flow: Dataflow, folder: Path) -> Stream[Any]:
    rows = events(flow, folder, auction=f"id {LOT}", bid="auction bidder price extra")

    def better(best: Row | None, pair: Row) -> Row:
        return pair if best is None or (pair[1][3], -pair[1][0]) > (best[1][3], -best[1][0]) else best

    by_start = clock(lambda pair: pair[0][0])
    won = windowed(offered(rows, 6), lambda pair: str(pair[0][1]), lambda: None, better, by=by_start)
    return op.map("select", won, lambda one: (*one[1][1][0], one[1][1][1][0], *one[1][1][1][2:]))


def q10(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price extra")

    def dated(bid: Row) -> Row:
        at = EPOCH + bid[0] * US
        return *bid, at.strftime("%Y-%m-%d"), at.strftime("%H:%M")

    return op.map("dated", bids, dated)


def q11(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="bidder")

    def count(session: tuple[int, int, int], bid: Row) -> tuple[int, int, int]:
        start, end, number = session
        return min(start, bid[0]), max(end, bid[0]), number + 1

    def merge(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
        return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]

    sessions = windowed(
        bids, lambda bid: str(bid[1]), lambda: (2**62, 0, 0), count, win.SessionWindower(TEN), merge=merge
    )

    def select(closed: Row) -> Row:
        bidder, (_, (start, end, number)) = closed
        return int(bidder), start, end + 10_000_000, number

    return op.map("select", sessions, select)


def q13(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price")
    return op.map("look-up", bids, lambda bid: (*bid, SIDE[bid[1] % 10_000]))


def q14(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price extra")

    def asked(bid: Row) -> Row | None:
        us, auction, bidder, price, extra = bid
        euros = 0.908 * price
        if not 1_000_000 < euros < 50_000_000:
            return None
        hour = us // 3_600_000_000 % 24
        when = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
        return auction, bidder, euros, when, us, extra, extra.count("c")

    return op.filter_map("asked", bids, asked)


def level(price: int) -> int:
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


class Statistics:
    """How many bids, bidders and auctions a window has at each level of price; place 0 is all of them."""

    def __init__(self) -> None:
        self.bids = [0, 0, 0, 0]
        self.bidders: list[set[int]] = [set() for _ in range(4)]
        self.auctions: list[set[int]] = [set() for _ in range(4)]

    def add(self, bid: Row) -> "Statistics":
        """Count one."""
        for place in (0, level(bid[3])):
            self.bids[place] += 1
            self.bidders[place].add(bid[2])
            self.auctions[place].add(bid[1])
        return self

    def row(self) -> Row:
        """The counts."""
        return *self.bids, *map(len, self.bidders), *map(len, self.auctions)


def q15(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price")
    closed = windowed(bids, everything, Statistics, Statistics.add)
    return op.map("select", closed, lambda one: (*tens(one[1][0]), *one[1][1].row()))


def q16(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price channel")
    closed = windowed(bids, lambda bid: bid[4], Statistics, Statistics.add)
    return op.map("select", closed, lambda one: (one[0], *tens(one[1][0]), *one[1][1].row()))


def q17(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction price")

    def add(so_far: list[int], bid: Row) -> list[int]:
        price = bid[2]
        so_far[0] += 1
        so_far[level(price)] += 1
        so_far[4] = min(so_far[4], price)
        so_far[5] = max(so_far[5], price)
        so_far[6] += price
        return so_far

    def select(closed: Row) -> Row:
        auction, (window, (total, *others, least, most, summed)) = closed
        return int(auction), *tens(window), total, *others, least, most, summed / total, summed

    closed = windowed(bids, lambda bid: str(bid[1]), lambda: [0, 0, 0, 0, 2**62, 0, 0], add)
    return op.map("select", closed, select)


def q18(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="bidder auction price channel url extra")
    last = windowed(
        bids,
        lambda bid: f"{bid[1]}-{bid[2]}",
        lambda: (0,),
        lambda last, bid: bid if bid[0] > last[0] else last,
    )
    return op.map("select", last, lambda one: one[1][1])


def q19(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price channel url extra")

    def keep(best: list[Row], bid: Row) -> list[Row]:
        best.append(bid)
        if len(best) >= 100:
            ten_best(best)
        return best

    def ten_best(best: list[Row]) -> list[Row]:
        best.sort(key=lambda bid: (-bid[3], bid[0]))
        del best[10:]
        return best

    closed = windowed(bids, lambda bid: str(bid[1]), list, keep)
    return op.flat_map("best", closed, lambda one: ten_best(one[1][1]))


def q20(flow: Dataflow, folder: Path) -> Stream[Any]:
    rows = events(flow, folder, bid="auction bidder price channel url extra", auction=f"id {LOT}")
    rows = op.filter("asked", rows, lambda row: row[0] == "bid" or row[1][8] == 10)
    pairs = matches(rows, {"bid": lambda bid: bid[1], "auction": lambda lot: lot[1]})
    return op.map("select", pairs, lambda pair: (*pair[0], pair[1][0], *pair[1][2:]))


def q21(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price channel url")

    def numbered(bid: Row) -> Row | None:
        found = LARGEST.get(bid[4].lower())
        if found is None:
            match = NUMBER.search(bid[5])
            found = "" if match is None else match[2]
        return (*bid[1:5], found) if found else None

    return op.filter_map("numbered", bids, numbered)


def q22(flow: Dataflow, folder: Path) -> Stream[Any]:
    bids = events(flow, folder, bid="auction bidder price channel url")
    return op.map("folders", bids, lambda bid: (*bid[1:5], *bid[5].split("/", 6)[3:6]))


def q23(flow: Dataflow, folder: Path) -> Stream[Any]:
    named = "id name emailAddress creditCard city state extra"
    rows = events(flow, folder, bid="bidder price channel url extra", person=named, auction=LOT)
    keys = {"bid": lambda bid: bid[1], "person": lambda one: one[1], "auction": lambda lot: lot[6]}
    found = matches(rows, keys)
    return op.map("select", found, lambda three: (*three[0][1:], *three[1][2:], *three[2]))


QUERIES: dict[str, Query] = {
    query.__name__: query
    for query in (
        *(q0, q1, q2, q3, q4, q5, q7, q8, q9, q10, q11, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--query", required=True)
    parser.add_argument("--count", action="store_true", help="the rows are counted in any case")
    args = parser.parse_args()
    flow, sink = Dataflow("nexmark"), Dropped()
    op.output("out", QUERIES[args.query](flow, args.directory), sink)
    begun = time.perf_counter()
    run_main(flow)
    print(json.dumps({"rows_out": sink.rows, "seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
