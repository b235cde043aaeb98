"""What any engine in Python tasks pays for a query of Nexmark over a DataFrame: its floor.

The scan of the events with the columns and filters that the query needs, the native first half where it has one (counts
and sums of panes), and one hop: through Spark's shuffle by the key of the query's first operator, and to Python and
back as Arrow batches. Queries without an operator go nowhere: their floor is Spark's own plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from nexmark_queries import RANKS

_BID = "event_type = 2"
_LOT = "event_type = 1"
_PERSON = "event_type = 0"
_WIDE_BID = ("bid.bidder", "bid.price", "bid.channel", "bid.url", "bid.extra")
_WIDE_LOT = (
    *("auction.itemName", "auction.description", "auction.initialBid", "auction.reserve", "auction.expires"),
    *("auction.seller", "auction.category", "auction.extra AS lot_extra"),
)


@dataclass(frozen=True, slots=True)
class Floor:
    """What is scanned, and the key that it is shuffled by; without one rows only go to Python and back."""

    where: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    half: Callable[[DataFrame], DataFrame] | None = None

    def of(self, events: DataFrame, shards: int) -> DataFrame:
        """The rows of a micro-batch after the hop."""
        rows = events.where(self.where).selectExpr("event_type", "dateTime", *self.columns)
        if self.half is not None:
            rows = self.half(rows)
        if self.key:
            shard = sf.pmod(sf.xxhash64(*(sf.expr(key) for key in self.key)), sf.lit(shards)).cast("int")
            rows = rows.repartitionById(shards, shard)
        return rows.mapInArrow(lambda batches: batches, rows.schema)


def _panes(seconds: int, *keys: str) -> Callable[[DataFrame], DataFrame]:
    """Counts of bids by key and pane."""

    def counted(rows: DataFrame) -> DataFrame:
        pane = sf.expr(f"unix_micros(dateTime) div {seconds}000000").alias("pane")
        return rows.groupBy(*keys, pane).agg(sf.count(sf.lit(1)).alias("n"))

    return counted


def _statistics(rows: DataFrame) -> DataFrame:
    """The sums of query 17 by auction and pane."""
    levels = [sf.count(sf.expr(f"CASE WHEN {rank} THEN 1 END")).alias(f"rank{n}") for n, rank in enumerate(RANKS)]
    sums = [sf.min("price").alias("least"), sf.max("price").alias("most"), sf.sum("price").alias("total")]
    pane = sf.expr("unix_micros(dateTime) div 10000000").alias("pane")
    return rows.groupBy("auction", pane).agg(sf.count(sf.lit(1)).alias("n"), *levels, *sums)


FLOORS = {
    "q3": Floor(
        f"({_LOT} AND auction.category = 10) OR ({_PERSON} AND person.state IN ('OR', 'ID', 'CA'))",
        ("auction.id", "coalesce(auction.seller, person.id) AS k", "person.name", "person.city", "person.state"),
        ("k",),
    ),
    "q4": Floor(
        f"{_LOT} OR {_BID}",
        ("coalesce(auction.id, bid.auction) AS k", "auction.category", "auction.expires", "bid.price"),
        ("k",),
    ),
    "q5": Floor(_BID, ("bid.auction",), ("auction",), _panes(2, "auction")),
    "q7": Floor(_BID, ("bid.auction", "bid.bidder", "bid.price", "bid.extra"), ("price",)),
    "q8": Floor(f"{_PERSON} OR {_LOT}", ("coalesce(person.id, auction.seller) AS k", "person.name"), ("k",)),
    "q9": Floor(
        f"{_LOT} OR {_BID}",
        ("coalesce(auction.id, bid.auction) AS k", *_WIDE_LOT, "bid.bidder", "bid.price", "bid.extra"),
        ("k",),
    ),
    "q11": Floor(_BID, ("bid.bidder",), ("bidder",)),
    "q13": Floor(_BID, ("bid.auction", "bid.bidder", "bid.price")),
    "q15": Floor(_BID, ("bid.auction", "bid.bidder", "bid.price"), ("unix_micros(dateTime) div 10000000",)),
    "q16": Floor(_BID, ("bid.auction", "bid.bidder", "bid.price", "bid.channel"), ("channel",)),
    "q17": Floor(_BID, ("bid.auction", "bid.price"), ("auction",), _statistics),
    "q18": Floor(_BID, ("bid.auction", *_WIDE_BID), ("bidder", "auction")),
    "q19": Floor(_BID, ("bid.auction", *_WIDE_BID), ("auction",)),
    "q20": Floor(
        f"{_BID} OR ({_LOT} AND auction.category = 10)",
        ("coalesce(auction.id, bid.auction) AS k", *_WIDE_BID, *_WIDE_LOT),
        ("k",),
    ),
    "q23": Floor(
        "true",
        (
            "coalesce(person.id, bid.bidder, auction.seller) AS k",
            *("bid.price", "bid.channel", "bid.url", "bid.extra", *_WIDE_LOT),
            *("person.name", "person.emailAddress", "person.creditCard", "person.city", "person.state"),
            "person.extra AS person_extra",
        ),
        ("k",),
    ),
}
