"""Nexmark's queries as Spark's own Structured Streaming runs them best, in append mode, with the same results.

Where the published query joins a stream with an aggregate of itself, and one aggregation can do it, it is one here.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from nexmark_queries import RANKS, SIDE

Native = Callable[[SparkSession, DataFrame], DataFrame]
"""Makes a query's results of the stream of events."""

DELAY = "4 seconds"
NATIVE: dict[str, Native] = {}


def native(build: Native) -> Native:
    """Enter a function as the query of its name."""
    NATIVE[build.__name__] = build
    return build


def people(events: DataFrame, *columns: str) -> DataFrame:
    return events.where("event_type = 0").select(*(f"person.{column}" for column in columns), "dateTime")


def auctions(events: DataFrame, *columns: str) -> DataFrame:
    return events.where("event_type = 1").select(*(f"auction.{column}" for column in columns), "dateTime")


def bids(events: DataFrame, *columns: str) -> DataFrame:
    return events.where("event_type = 2").select(*(f"bid.{column}" for column in columns), "dateTime")


def timed(events: DataFrame) -> DataFrame:
    return events.withWatermark("dateTime", DELAY)


def tens(time: str | Column = "dateTime") -> Column:
    return F.window(time, "10 seconds")


def ends() -> tuple[Column, Column]:
    return F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")


@native
def q0(spark: SparkSession, events: DataFrame) -> DataFrame:
    return bids(events, "auction", "bidder", "price", "extra").select("auction", "bidder", "price", "dateTime", "extra")


@native
def q1(spark: SparkSession, events: DataFrame) -> DataFrame:
    found = bids(events, "auction", "bidder", "price", "extra")
    return found.selectExpr("auction", "bidder", "0.908 * price AS price", "dateTime", "extra")


@native
def q2(spark: SparkSession, events: DataFrame) -> DataFrame:
    return bids(events, "auction", "price").where("auction % 123 = 0").select("auction", "price")


@native
def q3(spark: SparkSession, events: DataFrame) -> DataFrame:
    lots = auctions(events, "id", "seller", "category").where("category = 10").alias("a")
    sellers = people(events, "id", "name", "city", "state").where("state IN ('OR', 'ID', 'CA')").alias("p")
    return lots.join(sellers, F.expr("a.seller = p.id")).select("name", "city", "state", "a.id")


@native
def q4(spark: SparkSession, events: DataFrame) -> DataFrame:
    sold = _offered(events, "category").groupBy(tens("opened"), "id", "category").agg(F.max("price").alias("final"))
    means = sold.groupBy(tens(F.window_time("window")), "category").agg(F.avg("final").alias("average"))
    return means.select("category", *ends(), "average")


def _offered(events: DataFrame, *columns: str) -> DataFrame:
    """Each auction with each bid that was made while it was open."""
    lots = auctions(timed(events), "id", "expires", *columns).withColumnRenamed("dateTime", "opened")
    offers = bids(timed(events), "auction", "bidder", "price", "extra")
    offers = offers.withColumnsRenamed({"dateTime": "bid_dateTime", "extra": "bid_extra"})
    open_then = "id = auction AND bid_dateTime BETWEEN opened AND expires"
    near = "bid_dateTime <= opened + INTERVAL 1 SECOND"
    return lots.join(offers, F.expr(f"{open_then} AND {near}"))


@native
def q5(spark: SparkSession, events: DataFrame) -> DataFrame:
    windows = F.window("dateTime", "10 seconds", "2 seconds")
    counts = bids(timed(events), "auction").groupBy(windows, "auction").agg(F.count("*").alias("num"))
    whole = counts.groupBy("window").agg(
        F.max("num").alias("most"), F.collect_list(F.struct("auction", "num")).alias("all")
    )
    hot = whole.select("window", F.explode(F.expr("filter(all, one -> one.num = most)")).alias("one"))
    return hot.select("one.auction", *ends(), "one.num")


@native
def q7(spark: SparkSession, events: DataFrame) -> DataFrame:
    # A stream may have one column that the watermark speaks of: a copy of the time is not one.
    at = F.expr("timestamp_micros(unix_micros(dateTime)) AS at")
    offers = bids(timed(events), "auction", "bidder", "price", "extra")
    offers = offers.select("auction", "bidder", "price", at, "extra", tens()).alias("b")
    highest = bids(timed(events), "price").groupBy(tens()).agg(F.max("price").alias("highest")).alias("h")
    best = offers.join(highest, F.expr("b.window = h.window AND b.price = h.highest"))
    return best.select("auction", "bidder", "price", F.col("at").alias("dateTime"), "extra")


@native
def q8(spark: SparkSession, events: DataFrame) -> DataFrame:
    new = people(timed(events), "id", "name").withColumn("window", tens()).alias("p")
    lots = auctions(timed(events), "seller").withColumn("window", tens()).alias("a")
    sellers = new.join(lots, F.expr("p.id = a.seller AND p.window = a.window"), "left_semi")
    return sellers.select("id", "name", F.col("window.start").alias("starttime"))


@native
def q9(spark: SparkSession, events: DataFrame) -> DataFrame:
    first, last = ("itemName", "description", "initialBid", "reserve"), ("seller", "category", "extra")
    offered = _offered(events, *first, *last)
    bid = ("bidder", "price", "bid_dateTime", "bid_extra")
    shown = F.struct(*first, F.col("opened").alias("dateTime"), "expires", *last, *bid)
    rank = F.struct("price", -F.unix_micros("bid_dateTime"))
    best = offered.groupBy(tens("opened"), "id").agg(F.max_by(shown, rank).alias("best"))
    return best.select("id", "best.*")


@native
def q10(spark: SparkSession, events: DataFrame) -> DataFrame:
    found = bids(events, "auction", "bidder", "price", "extra")
    day, minute = (
        F.date_format("dateTime", form).alias(name) for form, name in (("yyyy-MM-dd", "dt"), ("HH:mm", "hm"))
    )
    return found.select("auction", "bidder", "price", "dateTime", "extra", day, minute)


@native
def q11(spark: SparkSession, events: DataFrame) -> DataFrame:
    sessions = F.session_window("dateTime", "10 seconds").alias("window")
    counts = bids(timed(events), "bidder").groupBy(sessions, "bidder").agg(F.count("*").alias("bid_count"))
    return counts.select("bidder", *ends(), "bid_count")


@native
def q13(spark: SparkSession, events: DataFrame) -> DataFrame:
    found = bids(events, "auction", "bidder", "price").withColumn("key", F.expr("auction % 10000"))
    side = F.broadcast(spark.createDataFrame(SIDE.to_pandas()))
    return found.join(side, "key").select("auction", "bidder", "price", "dateTime", "value")


@native
def q14(spark: SparkSession, events: DataFrame) -> DataFrame:
    found = bids(events, "auction", "bidder", "price", "extra")
    return found.where("0.908 * price > 1000000 AND 0.908 * price < 50000000").selectExpr(
        "auction",
        "bidder",
        "0.908 * price AS price",
        """CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
            WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType""",
        "dateTime",
        "extra",
        "length(extra) - length(replace(extra, 'c', '')) AS c_counts",
    )


@native
def q15(spark: SparkSession, events: DataFrame) -> DataFrame:
    return _statistics(bids(timed(events), "auction", "bidder", "price"))


@native
def q16(spark: SparkSession, events: DataFrame) -> DataFrame:
    return _statistics(bids(timed(events), "auction", "bidder", "price", "channel"), "channel")


def _statistics(offers: DataFrame, *by: str) -> DataFrame:
    """Streams have no distinct aggregates: different values are collected and counted."""
    asked = [F.count("*").alias("total_bids")]
    asked += [F.expr(f"count_if({rank})").alias(f"rank{n}_bids") for n, rank in enumerate(RANKS, 1)]
    for what in ("bidder", "auction"):
        asked.append(F.size(F.collect_set(what)).cast("long").alias(f"total_{what}s"))
        for n, rank in enumerate(RANKS, 1):
            values = F.collect_set(F.expr(f"CASE WHEN {rank} THEN {what} END"))
            asked.append(F.size(values).cast("long").alias(f"rank{n}_{what}s"))
    found = offers.groupBy(tens(), *by).agg(*asked)
    return found.select(*by, *ends(), *found.columns[1 + len(by) :])


@native
def q17(spark: SparkSession, events: DataFrame) -> DataFrame:
    asked = [F.count("*").alias("total_bids")]
    asked += [F.expr(f"count_if({rank})").alias(f"rank{n}_bids") for n, rank in enumerate(RANKS, 1)]
    for name, function in (("min", F.min), ("max", F.max), ("avg", F.avg), ("sum", F.sum)):
        asked.append(function("price").alias(f"{name}_price"))
    found = bids(timed(events), "auction", "price").groupBy(tens(), "auction").agg(*asked)
    return found.select("auction", *ends(), *found.columns[2:])


@native
def q18(spark: SparkSession, events: DataFrame) -> DataFrame:
    offers = bids(timed(events), "auction", "bidder", "price", "channel", "url", "extra")
    shown = F.struct("price", "channel", "url", "dateTime", "extra")
    last = offers.groupBy(tens(), "bidder", "auction").agg(F.max_by(shown, "dateTime").alias("last"))
    return last.select("bidder", "auction", "last.*")


@native
def q19(spark: SparkSession, events: DataFrame) -> DataFrame:
    offers = bids(timed(events), "auction", "bidder", "price", "channel", "url", "extra")
    ranked = F.struct(
        "price", F.expr("-unix_micros(dateTime) AS before"), "bidder", "channel", "url", "dateTime", "extra"
    )
    whole = offers.groupBy(tens(), "auction").agg(F.collect_list(ranked).alias("all"))
    top = whole.select("auction", F.explode(F.slice(F.sort_array("all", asc=False), 1, 10)).alias("one"))
    return top.select(
        "auction", *(f"one.{name}" for name in ("bidder", "price", "channel", "url", "dateTime", "extra"))
    )


@native
def q20(spark: SparkSession, events: DataFrame) -> DataFrame:
    offers = bids(events, "auction", "bidder", "price", "channel", "url", "extra").alias("b")
    wide = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    lots = auctions(events, "id", *wide, "extra").where("category = 10").alias("a")
    both = offers.join(lots, F.expr("b.auction = a.id"))
    bid = ("auction", "bidder", "price", "channel", "url", "b.dateTime AS bid_dateTime", "b.extra AS bid_extra")
    return both.selectExpr(*bid, *wide[:4], "a.dateTime AS auction_dateTime", *wide[4:], "a.extra AS auction_extra")


@native
def q21(spark: SparkSession, events: DataFrame) -> DataFrame:
    known = "WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'"
    number = f"CASE lower(channel) {known} ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id"
    found = bids(events, "auction", "bidder", "price", "channel", "url")
    return found.selectExpr("auction", "bidder", "price", "channel", number).where("channel_id <> ''")


@native
def q22(spark: SparkSession, events: DataFrame) -> DataFrame:
    found = bids(events, "auction", "bidder", "price", "channel", "url")
    folders = [f"split_part(url, '/', {3 + n}) AS dir{n}" for n in (1, 2, 3)]
    return found.selectExpr("auction", "bidder", "price", "channel", *folders)


@native
def q23(spark: SparkSession, events: DataFrame) -> DataFrame:
    offers = bids(events, "bidder", "price", "channel", "url", "extra").alias("b")
    named = ("name", "emailAddress", "creditCard", "city", "state")
    bidders = people(events, "id", *named, "extra").alias("p")
    wide = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    lots = auctions(events, *wide, "extra").alias("a")
    all_three = offers.join(bidders, F.expr("p.id = b.bidder")).join(lots, F.expr("a.seller = b.bidder"))
    bid = ("bidder", "price", "channel", "url", "b.extra AS bid_extra", *named, "p.extra AS person_extra")
    return all_three.selectExpr(
        *bid, *wide[:4], "a.dateTime AS auction_dateTime", *wide[4:], "a.extra AS auction_extra"
    )
