"""One of Nexmark's queries in Pathway; runs in an environment of its own (``make bench-peers``).

Reads ``<directory>/*.csv`` (a header; the fields of structs as columns), hands every row to Pathway's null sink, and
prints as its last line ``{"seconds": …}``: how long ``pw.run`` took. With ``--count`` the rows are counted instead, in
Python, which takes time: ``{"rows_out": …}``.

Pathway reads CSV and JSON natively, and Parquet only through a connector in Python, a row at a time: CSV is its
fastest way in. A schema names the columns that a query uses, and only these are parsed. Files are read in static mode:
each is one minibatch, in the order of arrival, and when all are read windows close. There is one worker: several share
the files among them, and then events come later than 4 s and are dropped.

Times are whole microseconds. Windows wait 4 s and put out each result once (``exactly_once_behavior``); sessions,
which know no such behaviour, keep their results up to date. Plain joins keep all rows.
"""

import argparse
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pathway as pw

SECOND = 1_000_000
ONCE = pw.temporal.exactly_once_behavior(4 * SECOND)
TENS = pw.temporal.tumbling(10 * SECOND)
WORDS = {
    "person": {"name", "emailAddress", "creditCard", "city", "state", "extra"},
    "auction": {"itemName", "description", "extra"},
    "bid": {"channel", "url", "extra"},
}
"""The columns of text. The others are whole numbers, and empty in other kinds of events."""
KINDS = ("person", "auction", "bid")
NAMES = {"id": "number"}
"""In a table of Pathway, ``id`` is the row's own."""

Table = Any
Query = Callable[[Path], Table]


def events(folder: Path, **columns: str) -> list[Table]:
    """For each kind of event its time and these columns, from one source."""
    wanted = {kind: names.split() for kind, names in columns.items()}
    types: dict[str, Any] = {"event_type": int, "us": int}
    for kind, names in wanted.items():
        types |= {f"{kind}_{name}": str if name in WORDS[kind] else int | None for name in names}
    source = pw.io.csv.read(folder, schema=pw.schema_from_types(**types), mode="static")
    tables = []
    for kind, names in wanted.items():
        rows = source.filter(source.event_type == KINDS.index(kind))
        fields = {name: rows[f"{kind}_{name}"] for name in names}
        known = {name: field if name in WORDS[kind] else pw.unwrap(field) for name, field in fields.items()}
        tables.append(rows.select(us=rows.us, **{NAMES.get(name, name): field for name, field in known.items()}))
    return tables


def bounds() -> dict[str, Any]:
    """When a window starts and ends."""
    return {"start": pw.this._pw_window_start, "end": pw.this._pw_window_end}


def q0(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price extra")
    return bid


def q1(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price extra")
    return bid.with_columns(price=0.908 * bid.price)


def q2(folder: Path) -> Table:
    [bid] = events(folder, bid="auction price")
    return bid.filter(bid.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def q3(folder: Path) -> Table:
    person, auction = events(folder, person="id name city state", auction="id seller category")
    lots = auction.filter(auction.category == 10)
    sellers = person.filter((person.state == "OR") | (person.state == "ID") | (person.state == "CA"))
    both = lots.join(sellers, lots.seller == sellers.number)
    return both.select(sellers.name, sellers.city, sellers.state, lots.number)


def offered(auction: Table, bid: Table) -> Any:
    """Auctions with their bids; no auction is open for longer than a second."""
    lifetime = pw.temporal.interval(0, SECOND)
    behaviour = pw.temporal.common_behavior(cutoff=4 * SECOND)
    return auction.interval_join(bid, auction.us, bid.us, lifetime, auction.number == bid.auction, behavior=behaviour)


def q4(folder: Path) -> Table:
    auction, bid = events(folder, auction="id category expires", bid="auction price")
    pairs = offered(auction, bid).select(
        auction.number, auction.category, auction.expires, bid.price, us=auction.us, bid_us=bid.us
    )
    pairs = pairs.filter(pairs.bid_us <= pairs.expires)
    sold = pairs.windowby(pairs.us, window=TENS, behavior=ONCE, instance=pairs.number).reduce(
        **bounds(),
        category=pw.reducers.any(pw.this.category),
        final=pw.reducers.max(pw.this.price),
    )
    shown = (sold.category, sold.start, sold.end)
    return sold.groupby(*shown).reduce(*shown, average=pw.reducers.avg(sold.final))


def q5(folder: Path) -> Table:
    [bid] = events(folder, bid="auction")
    sliding = pw.temporal.sliding(hop=2 * SECOND, duration=10 * SECOND)
    counts = bid.windowby(bid.us, window=sliding, behavior=ONCE, instance=bid.auction).reduce(
        auction=pw.this._pw_instance,
        **bounds(),
        num=pw.reducers.count(),
    )
    most = counts.groupby(counts.start).reduce(counts.start, most=pw.reducers.max(counts.num))
    hot = counts.join(most, counts.start == most.start, counts.num == most.most)
    return hot.select(counts.auction, counts.start, counts.end, counts.num)


def q7(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price extra")
    bid = bid.with_columns(start=bid.us - bid.us % (10 * SECOND))
    highest = bid.windowby(bid.us, window=TENS, behavior=ONCE).reduce(
        start=pw.this._pw_window_start, price=pw.reducers.max(pw.this.price)
    )
    best = bid.join(highest, bid.start == highest.start, bid.price == highest.price)
    return best.select(bid.auction, bid.bidder, bid.price, bid.us, bid.extra)


def q8(folder: Path) -> Table:
    person, auction = events(folder, person="id name", auction="seller")
    pairs = person.window_join(auction, person.us, auction.us, TENS, person.number == auction.seller)
    found = pairs.select(person.number, person.name, start=pw.this._pw_window_start)
    return found.groupby(found.number, found.name, found.start).reduce(found.number, found.name, found.start)


LOT = "itemName description initialBid reserve expires seller category extra"


def q9(folder: Path) -> Table:
    auction, bid = events(folder, auction=f"id {LOT}", bid="auction bidder price extra")
    pairs = offered(auction, bid).select(
        auction.number,
        *(auction[name] for name in LOT.split()),
        bid.bidder,
        bid.price,
        us=auction.us,
        bid_us=bid.us,
        bid_extra=bid.extra,
        rank=bid.price * 2**24 - (bid.us - auction.us),
    )
    pairs = pairs.filter(pairs.bid_us <= pairs.expires)
    best = pairs.windowby(pairs.us, window=TENS, behavior=ONCE, instance=pairs.number).reduce(
        winner=pw.reducers.argmax(pw.this.rank, pw.this._pw_original_id)
    )
    return best.select(*pairs.ix(best.winner).without(pw.this.rank))


def q10(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price extra")
    at = bid.us.dt.utc_from_timestamp(unit="us")
    return bid.with_columns(dt=at.dt.strftime("%Y-%m-%d"), hm=at.dt.strftime("%H:%M"))


def q11(folder: Path) -> Table:
    [bid] = events(folder, bid="bidder")
    # A gap of exactly ten seconds ends no session, and max_gap itself does.
    sessions = pw.temporal.session(max_gap=10 * SECOND + 1)
    return bid.windowby(bid.us, window=sessions, instance=bid.bidder).reduce(
        bidder=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        end=pw.this._pw_window_end + 10 * SECOND,
        bid_count=pw.reducers.count(),
    )


def q13(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price")
    side = pw.debug.table_from_rows(
        pw.schema_from_types(key=int, value=str), [(key, f"value-{key}") for key in range(10_000)]
    )
    keyed = bid.with_columns(key=bid.auction % 10_000)
    found = keyed.asof_now_join(side, keyed.key == side.key)
    return found.select(keyed.auction, keyed.bidder, keyed.price, keyed.us, side.value)


def q14(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price extra")
    bid = bid.with_columns(price=0.908 * bid.price, hour=bid.us.dt.utc_from_timestamp(unit="us").dt.hour())
    bid = bid.filter((bid.price > 1_000_000) & (bid.price < 50_000_000))
    night = (bid.hour <= 6) | (bid.hour >= 20)
    day = (bid.hour >= 8) & (bid.hour <= 18)
    return bid.select(
        bid.auction,
        bid.bidder,
        bid.price,
        bidTimeType=pw.if_else(day, "dayTime", pw.if_else(night, "nightTime", "otherTime")),
        us=bid.us,
        extra=bid.extra,
        c_counts=bid.extra.str.count("c"),
    )


def levels(price: Any) -> dict[str, Any]:
    """Which of the three levels of price it is, as 0 or 1 each."""
    ranks = (price < 10_000, (price >= 10_000) & (price < 1_000_000), price >= 1_000_000)
    return {f"rank{number}": pw.cast(int, rank) for number, rank in enumerate(ranks, 1)}


def statistics() -> dict[str, Any]:
    """How many bids, bidders and auctions a window has at each level of price."""
    asked = {"total_bids": pw.reducers.count()}
    asked |= {f"rank{n}_bids": pw.reducers.sum(pw.this[f"rank{n}"]) for n in (1, 2, 3)}
    for what in ("bidder", "auction"):
        asked[f"total_{what}s"] = pw.reducers.count_distinct(pw.this[what])
        for n in (1, 2, 3):
            # 0 is nobody's number: it stands for all bids at other levels, and is not counted.
            here = pw.reducers.count_distinct(pw.this[what] * pw.this[f"rank{n}"])
            asked[f"rank{n}_{what}s"] = here - 1 + pw.reducers.min(pw.this[f"rank{n}"])
    return asked


def q15(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price")
    bid = bid.with_columns(**levels(bid.price))
    return bid.windowby(bid.us, window=TENS, behavior=ONCE).reduce(**bounds(), **statistics())


def q16(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price channel")
    bid = bid.with_columns(**levels(bid.price))
    return bid.windowby(bid.us, window=TENS, behavior=ONCE, instance=bid.channel).reduce(
        channel=pw.this._pw_instance, **bounds(), **statistics()
    )


def q17(folder: Path) -> Table:
    [bid] = events(folder, bid="auction price")
    bid = bid.with_columns(**levels(bid.price))
    return bid.windowby(bid.us, window=TENS, behavior=ONCE, instance=bid.auction).reduce(
        auction=pw.this._pw_instance,
        **bounds(),
        total_bids=pw.reducers.count(),
        rank1_bids=pw.reducers.sum(pw.this.rank1),
        rank2_bids=pw.reducers.sum(pw.this.rank2),
        rank3_bids=pw.reducers.sum(pw.this.rank3),
        min_price=pw.reducers.min(pw.this.price),
        max_price=pw.reducers.max(pw.this.price),
        avg_price=pw.reducers.avg(pw.this.price),
        sum_price=pw.reducers.sum(pw.this.price),
    )


def q18(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price channel url extra")
    both = pw.make_tuple(bid.bidder, bid.auction)
    last = bid.windowby(bid.us, window=TENS, behavior=ONCE, instance=both).reduce(
        last=pw.reducers.argmax(pw.this.us, pw.this._pw_original_id)
    )
    return last.select(*bid.ix(last.last))


@pw.udf(deterministic=True)
def first_ten(ranked: tuple[tuple[int, int, pw.Pointer], ...]) -> tuple[pw.Pointer, ...]:
    return tuple(which for _, _, which in ranked[:10])


def q19(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price channel url extra")
    ranked = bid.with_columns(rank=pw.make_tuple(-bid.price, bid.us, bid.id))
    windows = ranked.windowby(ranked.us, window=TENS, behavior=ONCE, instance=ranked.auction).reduce(
        ranks=pw.reducers.sorted_tuple(pw.this.rank)
    )
    top = windows.select(which=first_ten(windows.ranks)).flatten(pw.this.which)
    return top.select(*bid.ix(top.which))


def q20(folder: Path) -> Table:
    auction, bid = events(folder, auction=f"id {LOT}", bid="auction bidder price channel url extra")
    lots = auction.filter(auction.category == 10)
    return bid.join(lots, bid.auction == lots.number).select(
        *(bid[name] for name in ("auction", "bidder", "price", "channel", "url")),
        *(lots[name] for name in LOT.split()[:-1]),
        bid_us=bid.us,
        bid_extra=bid.extra,
        auction_us=lots.us,
        auction_extra=lots.extra,
    )


NUMBER = re.compile("(&|^)channel_id=([^&]*)")
LARGEST = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


@pw.udf(deterministic=True)
def channel_id(channel: str, url: str) -> str:
    found = LARGEST.get(channel.lower())
    if found is None:
        match = NUMBER.search(url)
        found = "" if match is None else match[2]
    return found


def q21(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price channel url")
    shown = (bid.auction, bid.bidder, bid.price, bid.channel)
    found = bid.select(*shown, channel_id=channel_id(bid.channel, bid.url))
    return found.filter(found.channel_id != "")


@pw.udf(deterministic=True)
def folders(url: str) -> tuple[str, str, str]:
    parts = url.split("/", 6)
    return parts[3], parts[4], parts[5]


def q22(folder: Path) -> Table:
    [bid] = events(folder, bid="auction bidder price channel url")
    shown = (bid.auction, bid.bidder, bid.price, bid.channel)
    found = bid.select(*shown, parts=folders(bid.url))
    parts = {f"dir{place + 1}": found.parts[place] for place in range(3)}
    return found.select(found.auction, found.bidder, found.price, found.channel, **parts)


def q23(folder: Path) -> Table:
    named = "name emailAddress creditCard city state extra"
    person, auction, bid = events(folder, person=f"id {named}", auction=LOT, bid="bidder price channel url extra")
    both = bid.join(person, bid.bidder == person.number).select(
        *(bid[name] for name in ("bidder", "price", "channel", "url")),
        *(person[name] for name in named.split()[:-1]),
        bid_extra=bid.extra,
        person_extra=person.extra,
    )
    return both.join(auction, both.bidder == auction.seller).select(
        *both, *(auction[name] for name in LOT.split()[:-1]), auction_us=auction.us, auction_extra=auction.extra
    )


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
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    rows = 0

    def count(key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        nonlocal rows
        rows += 1 if is_addition else -1

    result = QUERIES[args.query](args.directory)
    if args.count:
        pw.io.subscribe(result, on_change=count)
    else:
        pw.io.null.write(result)
    begun = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - begun
    print(json.dumps({"rows_out": rows} if args.count else {"seconds": seconds}))


if __name__ == "__main__":
    main()
