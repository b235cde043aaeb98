"""Nexmark's queries in penstock, and what each means: DuckDB's SQL over all events at once.

A query takes the stream of events, from whatever source. Windows last ten seconds, as in the published queries. Those
that have no window there, but keep one result up to date for ever (4, 9, 15 to 19), have windows of ten seconds here:
a stream that only appends has no other final results. Windows include their start and leave out their end.

The last column of a definition, ``done``, is no part of the result: it says which bound completes the row, null if it
comes out at once. What an engine must have put out by a bound follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import penstock as pk
from penstock.flow.flow import Flow
from penstock.flow.stream import Stream

FOREVER = pk.band(before="1000 days", after="1000 days")
LIFETIME = pk.band(before="0 s", after="1 s")
"""No auction is open for longer."""
RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
SIDE = pa.table({"key": range(10_000), "value": [f"value-{key}" for key in range(10_000)]})
"""The table that query 13 looks rows up in."""

LEFT_OUT = {
    "q6": "the mean of a seller's last ten sales needs OVER windows, which streams of Spark do not have",
    "q12": "windows of processing time depend on the clock, so there is no result to compare with",
}
"""Why a query is not here."""

Build = Callable[[Flow, Stream], Stream]


@dataclass(frozen=True, slots=True)
class Query:
    """A query: what it asks, as penstock's stream, and as DuckDB's SQL over the views person, auction and bid."""

    name: str
    asks: str
    build: Build
    means: str


QUERIES: dict[str, Query] = {}


def query(means: str) -> Callable[[Build], Build]:
    """Enter a function as the query of its name; the first line of its docstring says what is asked."""

    def enter(build: Build) -> Build:
        asks = (build.__doc__ or "").strip().splitlines()[0]
        QUERIES[build.__name__] = Query(build.__name__, asks, build, means)
        return build

    return enter


def people(events: Stream, *columns: str) -> Stream:
    """Some columns of new people, and the time."""
    return events.where("event_type = 0").select(*(f"person.{column} AS {column}" for column in columns), "dateTime")


def auctions(events: Stream, *columns: str) -> Stream:
    """Some columns of new auctions, and the time."""
    return events.where("event_type = 1").select(*(f"auction.{column} AS {column}" for column in columns), "dateTime")


def bids(events: Stream, *columns: str) -> Stream:
    """Some columns of bids, and the time."""
    return events.where("event_type = 2").select(*(f"bid.{column} AS {column}" for column in columns), "dateTime")


@query("SELECT auction, bidder, price, ts(us) AS dateTime, extra, NULL AS done FROM bid")
def q0(flow: Flow, events: Stream) -> Stream:
    """All bids, as they are."""
    return bids(events, "auction", "bidder", "price", "extra").select("auction", "bidder", "price", "dateTime", "extra")


@query("""
    SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(24, 3)) AS price, ts(us) AS dateTime, extra, NULL AS done
    FROM bid""")
def q1(flow: Flow, events: Stream) -> Stream:
    """All bids, with the price in euros instead of dollars."""
    found = bids(events, "auction", "bidder", "price", "extra")
    return found.select("auction", "bidder", "0.908 * price AS price", "dateTime", "extra")


@query("SELECT auction, price, NULL AS done FROM bid WHERE auction % 123 = 0")
def q2(flow: Flow, events: Stream) -> Stream:
    """The prices bid for every 123rd auction."""
    return bids(events, "auction", "price").where("auction % 123 = 0").select("auction", "price")


@query("""
    SELECT name, city, state, a.id, NULL AS done FROM auction a JOIN person p ON a.seller = p.id
    WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""")
def q3(flow: Flow, events: Stream) -> Stream:
    """Who in Oregon, Idaho or California sells in category 10, and in which auction."""
    lots = auctions(events, "id", "seller", "category").where("category = 10")
    sellers = people(events, "id", "name", "city", "state").where("state IN ('OR', 'ID', 'CA')")
    sellers = sellers.select("id AS seller", "name", "city", "state", "dateTime")
    return lots.join(sellers, on="seller", within=FOREVER).select("name", "city", "state", "id")


@query("""
    WITH sold AS (
        SELECT a.id, category, tumble(a.us, 10) AS start, max(price) AS final
        FROM auction a JOIN bid b ON a.id = b.auction AND b.us BETWEEN a.us AND expires_us GROUP BY ALL
    )
    SELECT category, ts(start) AS window_start, ts(start + 10_000_000) AS window_end,
        CAST(sum(final) AS DOUBLE) / count(*) AS average, ts(start + 11_000_000) AS done
    FROM sold GROUP BY category, start""")
def q4(flow: Flow, events: Stream) -> Stream:
    """The mean of the winning prices in each category, over the auctions that began in the same ten seconds."""
    lots, offers = auctions(events, "id", "category", "expires"), bids(events, "auction", "price")
    pairs = lots.join(offers, on={"id": "auction"}, within=LIFETIME, where="r.dateTime <= l.expires", time="left")
    sold = pairs.window(range="10 s").by("id", "category").agg(final=pk.max("price"))
    return sold.window(range="10 s").by("category").agg(average=pk.mean("final"))


@query("""
    WITH panes AS (SELECT auction, us // 2_000_000 AS pane, count(*) AS n FROM bid GROUP BY ALL),
    counts AS (SELECT auction, pane + later AS ends, CAST(sum(n) AS BIGINT) AS num
        FROM panes, range(1, 6) AS _(later) GROUP BY ALL)
    SELECT auction, ts(ends * 2_000_000 - 10_000_000) AS window_start, ts(ends * 2_000_000) AS window_end, num,
        ts(ends * 2_000_000) AS done
    FROM counts QUALIFY num = max(num) OVER (PARTITION BY ends)""")
def q5(flow: Flow, events: Stream) -> Stream:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    counts = bids(events, "auction").window(range="10 s", slide="2 s").by("auction").agg(num=pk.count())
    most = counts.window(range="2 s").agg(most=pk.max("num"))
    hot = counts.join(most, on={"num": "most"}, within=pk.tumbling("2 s"))
    return hot.select("auction", "window_start", "window_end", "num")


@query("""
    SELECT auction, bidder, price, ts(us) AS dateTime, extra, ts(tumble(us, 10) + 10_000_000) AS done
    FROM bid QUALIFY price = max(price) OVER (PARTITION BY tumble(us, 10))""")
def q7(flow: Flow, events: Stream) -> Stream:
    """The bids with the highest price of their ten seconds."""
    offers = bids(events, "auction", "bidder", "price", "extra")
    highest = bids(events, "price").window(range="10 s").agg(highest=pk.max("price"))
    best = offers.join(highest, on={"price": "highest"}, within=pk.tumbling("10 s"))
    return best.select("auction", "bidder", "price", "dateTime", "extra")


@query("""
    SELECT id, name, ts(tumble(us, 10)) AS starttime, ts(tumble(us, 10) + 10_000_000) AS done
    FROM person p WHERE EXISTS (FROM auction a WHERE a.seller = p.id AND tumble(a.us, 10) = tumble(p.us, 10))""")
def q8(flow: Flow, events: Stream) -> Stream:
    """The people who began an auction in the ten seconds in which they came."""
    new, lots = people(events, "id", "name"), auctions(events, "seller")
    sellers = new.join(lots, on={"id": "seller"}, within=pk.tumbling("10 s"), how="semi")
    return sellers.select("id", "name", "timestamp_seconds(unix_seconds(dateTime) div 10 * 10) AS starttime")


@query("""
    SELECT id, itemName, description, initialBid, reserve, ts(a.us) AS dateTime, ts(expires_us) AS expires, seller,
        category, a.extra, bidder, price, ts(b.us) AS bid_dateTime, b.extra AS bid_extra,
        ts(tumble(a.us, 10) + 11_000_000) AS done
    FROM auction a JOIN bid b ON a.id = b.auction AND b.us BETWEEN a.us AND expires_us
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.us) = 1""")
def q9(flow: Flow, events: Stream) -> Stream:
    """The winning bid of each auction: the earliest of those with the highest price."""
    lots = auctions(events, "id", "expires")
    offers = bids(events, "auction", "bidder", "price", "extra").select("*", "dateTime AS bid_dateTime")
    pairs = lots.join(offers, on={"id": "auction"}, within=LIFETIME, where="r.dateTime <= l.expires", time="left")
    after = "unix_micros(bid_dateTime) - unix_micros(dateTime)"
    shown = ("bidder", "price", "bid_dateTime", "extra AS bid_extra")
    ranked = pairs.select("id", "dateTime", f"price * 16777216 - ({after}) AS rank", *shown)
    winners = ranked.window(range="10 s").by("id").top(1, "rank")
    wide = ("id", "itemName", "description", "initialBid", "reserve", "expires", "seller", "category", "extra")
    whole = auctions(events, *wide).join(winners, on="id", within=pk.band(before="0 s", after="0 s"))
    first, last = wide[:5], wide[5:]
    return whole.select(*first, "dateTime", *last, "bidder", "price", "bid_dateTime", "bid_extra")


@query("""
    SELECT auction, bidder, price, ts(us) AS dateTime, extra, strftime(ts(us), '%Y-%m-%d') AS dt,
        strftime(ts(us), '%H:%M') AS hm, NULL AS done
    FROM bid""")
def q10(flow: Flow, events: Stream) -> Stream:
    """All bids with their day and minute, by which a file sink would partition them."""
    found = bids(events, "auction", "bidder", "price", "extra")
    day = "cast(cast(dateTime AS date) AS string) AS dt"
    hour, minute = (f"lpad(cast({part}(dateTime) AS string), 2, '0')" for part in ("hour", "minute"))
    return found.select("auction", "bidder", "price", "dateTime", "extra", day, f"concat({hour}, ':', {minute}) AS hm")


@query("""
    WITH marked AS (SELECT bidder, us, CAST(us - lag(us) OVER w > 10_000_000 AS INT) AS begins FROM bid
        WINDOW w AS (PARTITION BY bidder ORDER BY us)),
    numbered AS (SELECT bidder, us, sum(coalesce(begins, 1)) OVER (PARTITION BY bidder ORDER BY us) AS session
        FROM marked)
    SELECT bidder, ts(min(us)) AS window_start, ts(max(us) + 10_000_000) AS window_end, count(*) AS bid_count,
        ts(max(us) + 10_000_000) AS done
    FROM numbered GROUP BY bidder, session""")
def q11(flow: Flow, events: Stream) -> Stream:
    """How many bids each bidder makes in a session, which ends after ten seconds without one."""
    return bids(events, "bidder").window(pk.session("10 s")).by("bidder").agg(bid_count=pk.count())


@query("""
    SELECT auction, bidder, price, ts(us) AS dateTime, concat('value-', auction % 10_000) AS value, NULL AS done
    FROM bid""")
def q13(flow: Flow, events: Stream) -> Stream:
    """All bids, with a value that is looked up in a table by the auction."""
    found = bids(events, "auction", "bidder", "price").select("*", "auction % 10000 AS key")
    return found.lookup(SIDE, on="key").select("auction", "bidder", "price", "dateTime", "value")


@query("""
    SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(24, 3)) AS price,
        CASE WHEN hour(ts(us)) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(ts(us)) <= 6 OR hour(ts(us)) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
        ts(us) AS dateTime, extra, len(extra) - len(replace(extra, 'c', '')) AS c_counts, NULL AS done
    FROM bid WHERE 0.908 * price > 1_000_000 AND 0.908 * price < 50_000_000""")
def q14(flow: Flow, events: Stream) -> Stream:
    """The bids in a range of prices, with the time of the day and how often a letter is in their text."""
    found = bids(events, "auction", "bidder", "price", "extra")
    found = found.where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    day = "WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'"
    night = "WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'"
    when, letters = f"CASE {day} {night} ELSE 'otherTime' END", "length(extra) - length(replace(extra, 'c', ''))"
    shown = (f"{when} AS bidTimeType", "dateTime", "extra", f"{letters} AS c_counts")
    return found.select("auction", "bidder", "0.908 * price AS price", *shown)


_STATISTICS = ",\n".join(
    ["count(*) AS total_bids", *(f"count(*) FILTER ({rank}) AS rank{n}_bids" for n, rank in enumerate(RANKS, 1))]
    + [
        part
        for what in ("bidder", "auction")
        for part in (
            f"count(DISTINCT {what}) AS total_{what}s",
            *(f"count(DISTINCT {what}) FILTER ({rank}) AS rank{n}_{what}s" for n, rank in enumerate(RANKS, 1)),
        )
    ]
)


def _statistics(offers: Stream, *by: str) -> Stream:
    """How many bids, bidders and auctions there are at each level of price."""
    levels = [f"{rank} AS rank{n}" for n, rank in enumerate(RANKS, 1)]
    asked: dict[str, Any] = {"total_bids": pk.count()} | {
        f"rank{n}_bids": pk.count(where=f"rank{n}") for n in (1, 2, 3)
    }
    for what in ("bidder", "auction"):
        asked |= {f"total_{what}s": pk.count_distinct(what)}
        asked |= {f"rank{n}_{what}s": pk.count_distinct(what, where=f"rank{n}") for n in (1, 2, 3)}
    levelled = offers.select(*by, "bidder", "auction", "dateTime", *levels)
    return levelled.window(range="10 s").by(*by).agg(**asked)


@query(f"""
    SELECT ts(tumble(us, 10)) AS window_start, ts(tumble(us, 10) + 10_000_000) AS window_end, {_STATISTICS},
        ts(tumble(us, 10) + 10_000_000) AS done
    FROM bid GROUP BY tumble(us, 10)""")
def q15(flow: Flow, events: Stream) -> Stream:
    """How many bids, different bidders and different auctions there are at each level of price."""
    return _statistics(bids(events, "auction", "bidder", "price"))


@query(f"""
    SELECT channel, ts(tumble(us, 10)) AS window_start, ts(tumble(us, 10) + 10_000_000) AS window_end, {_STATISTICS},
        ts(tumble(us, 10) + 10_000_000) AS done
    FROM bid GROUP BY channel, tumble(us, 10)""")
def q16(flow: Flow, events: Stream) -> Stream:
    """The same for each channel."""
    return _statistics(bids(events, "auction", "bidder", "price", "channel"), "channel")


@query("""
    SELECT auction, ts(tumble(us, 10)) AS window_start, ts(tumble(us, 10) + 10_000_000) AS window_end,
        count(*) AS total_bids, count(*) FILTER (price < 10000) AS rank1_bids,
        count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
        count(*) FILTER (price >= 1000000) AS rank3_bids, min(price) AS min_price, max(price) AS max_price,
        CAST(sum(price) AS DOUBLE) / count(*) AS avg_price, CAST(sum(price) AS BIGINT) AS sum_price,
        ts(tumble(us, 10) + 10_000_000) AS done
    FROM bid GROUP BY auction, tumble(us, 10)""")
def q17(flow: Flow, events: Stream) -> Stream:
    """How many bids each auction gets at each level of price, and their least, greatest, mean and total price."""
    levels = [f"{rank} AS rank{n}" for n, rank in enumerate(RANKS, 1)]
    levelled = bids(events, "auction", "price").select("auction", "price", "dateTime", *levels)
    return (
        levelled.window(range="10 s")
        .by("auction")
        .agg(
            total_bids=pk.count(),
            rank1_bids=pk.count(where="rank1"),
            rank2_bids=pk.count(where="rank2"),
            rank3_bids=pk.count(where="rank3"),
            min_price=pk.min("price"),
            max_price=pk.max("price"),
            avg_price=pk.mean("price"),
            sum_price=pk.sum("price"),
        )
    )


@query("""
    SELECT bidder, auction, price, channel, url, ts(us) AS dateTime, extra, ts(tumble(us, 10) + 10_000_000) AS done
    FROM bid QUALIFY row_number() OVER (PARTITION BY bidder, auction, tumble(us, 10) ORDER BY us DESC) = 1""")
def q18(flow: Flow, events: Stream) -> Stream:
    """The last bid of each bidder in each auction."""
    kept = ("price", "channel", "url", "extra")
    windows = bids(events, "auction", "bidder", *kept).select("*", "dateTime AS at").window(range="10 s")
    asked: dict[str, Any] = {column: pk.last(column) for column in ("at", *kept)}
    last = windows.by("bidder", "auction").agg(**asked)
    return last.select("bidder", "auction", "price", "channel", "url", "at AS dateTime", "extra")


@query("""
    SELECT auction, bidder, price, channel, url, ts(us) AS dateTime, extra, ts(tumble(us, 10) + 10_000_000) AS done
    FROM bid QUALIFY row_number() OVER (PARTITION BY auction, tumble(us, 10) ORDER BY price DESC, us) <= 10""")
def q19(flow: Flow, events: Stream) -> Stream:
    """The ten bids with the highest prices of each auction."""
    rank = "price * 16777216 - unix_micros(dateTime) % 10000000 AS rank"
    offers = bids(events, "auction", "bidder", "price", "channel", "url", "extra").select("*", rank)
    top = offers.window(range="10 s").by("auction").top(10, "rank")
    return top.select("auction", "bidder", "price", "channel", "url", "dateTime", "extra")


@query("""
    SELECT auction, bidder, price, channel, url, ts(b.us) AS bid_dateTime, b.extra AS bid_extra, itemName, description,
        initialBid, reserve, ts(a.us) AS auction_dateTime, ts(expires_us) AS expires, seller, category,
        a.extra AS auction_extra, NULL AS done
    FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""")
def q20(flow: Flow, events: Stream) -> Stream:
    """The bids for auctions of category 10, with all that is known of both."""
    offers = bids(events, "auction", "bidder", "price", "channel", "url", "extra")
    wide = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category", "extra")
    lots = auctions(events, "id", *wide).where("category = 10")
    both = offers.join(lots, on={"auction": "id"}, within=FOREVER)
    bid = ("auction", "bidder", "price", "channel", "url", "dateTime AS bid_dateTime", "extra AS bid_extra")
    lot = ("dateTime_right AS auction_dateTime", *wide[4:-1], "extra_right AS auction_extra")
    return both.select(*bid, *wide[:4], *lot)


@query("""
    SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END
        AS channel_id, NULL AS done
    FROM bid WHERE channel_id <> ''""")
def q21(flow: Flow, events: Stream) -> Stream:
    """The bids that came through a known channel, with its number: of the largest four by name, else from the URL."""
    known = "WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'"
    number = f"CASE lower(channel) {known} ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id"
    found = bids(events, "auction", "bidder", "price", "channel", "url")
    return found.select("auction", "bidder", "price", "channel", number).where("channel_id <> ''")


@query("""
    SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
        split_part(url, '/', 6) AS dir3, NULL AS done
    FROM bid""")
def q22(flow: Flow, events: Stream) -> Stream:
    """All bids with the three folders in their URL."""
    folders = [f"regexp_extract(url, '^[^/]*//[^/]*/([^/]*)/([^/]*)/([^/]*)', {n}) AS dir{n}" for n in (1, 2, 3)]
    found = bids(events, "auction", "bidder", "price", "channel", "url")
    return found.select("auction", "bidder", "price", "channel", *folders)


@query("""
    SELECT bidder, price, channel, url, b.extra AS bid_extra, name, emailAddress, creditCard, city, state,
        p.extra AS person_extra, itemName, description, initialBid, reserve, ts(a.us) AS auction_dateTime,
        ts(expires_us) AS expires, seller, category, a.extra AS auction_extra, NULL AS done
    FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder""")
def q23(flow: Flow, events: Stream) -> Stream:
    """The bids of people who also sell, with all that is known of the bid, the person and each of their auctions."""
    offers = bids(events, "bidder", "price", "channel", "url", "extra")
    named = ("name", "emailAddress", "creditCard", "city", "state")
    bidders = people(events, "id", *named, "extra").select("id", *named, "extra AS person_extra", "dateTime")
    wide = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    lots = auctions(events, *wide, "extra").select(
        *wide, "extra AS auction_extra", "dateTime AS auction_dateTime", "dateTime"
    )
    both = offers.join(bidders, on={"bidder": "id"}, within=FOREVER, time="left")
    both = both.select("bidder", "price", "channel", "url", "extra AS bid_extra", *named, "person_extra", "dateTime")
    all_three = both.join(lots, on={"bidder": "seller"}, within=FOREVER)
    bid = ("bidder", "price", "channel", "url", "bid_extra", *named, "person_extra")
    return all_three.select(
        *bid, *wide[:4], "auction_dateTime", "expires", "bidder AS seller", "category", "auction_extra"
    )
