"""Nexmark's queries in Flink SQL; runs in the peers' environment (``make bench-peers``).

Reads ``<directory>/*.csv`` (the columns of `SOURCE`; no header; one file per source task, in arrival order) and prints
one line of JSON: ``{"rows_out": …, "seconds": …}``. The first run of the query is over ``--few``, a smaller folder
of the same kind: it warms the JVM, and ``rows_out`` is how many rows it wrote. The second hands every row to the
blackhole sink, and ``seconds`` is its run time as Flink reports it; null if it took more than ``--patience`` seconds.

Sources end, and then all windows close: each result comes out. Times are in milliseconds, because Flink's watermarks
are; where microseconds decide, ``us`` is compared.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from pyflink.table import TableDescriptor, TableEnvironment

from flink_window_join import environment

SOURCE = """
CREATE TABLE {name} (
  event_type INT, us BIGINT,
  person_id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, person_extra STRING,
  auction_id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, expires_us BIGINT,
  seller BIGINT, category BIGINT, auction_extra STRING,
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_extra STRING,
  ts AS TO_TIMESTAMP_LTZ(us / 1000, 3),
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'csv.null-literal' = '')
"""
VIEWS = (
    """CREATE TEMPORARY VIEW person{of} AS
    SELECT person_id AS id, name, emailAddress, creditCard, city, state, person_extra AS extra, us, ts
    FROM events{of} WHERE event_type = 0""",
    """CREATE TEMPORARY VIEW auction{of} AS
    SELECT auction_id AS id, itemName, description, initialBid, reserve, expires_us, seller, category,
        auction_extra AS extra, us, ts
    FROM events{of} WHERE event_type = 1""",
    """CREATE TEMPORARY VIEW bid{of} AS
    SELECT auction, bidder, price, channel, url, bid_extra AS extra, us, ts FROM events{of}
    WHERE event_type = 2""",
    """CREATE TEMPORARY VIEW offered{of} AS
    SELECT a.*, bidder, price, b.us AS bid_us, b.extra AS bid_extra FROM auction{of} a JOIN bid{of} b
    ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND
    WHERE b.us BETWEEN a.us AND a.expires_us""",
    """CREATE TEMPORARY VIEW counts{of} AS
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid{of}, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end""",
)
"""``{of}`` tells the views over few events from those over all."""
TENS = "TABLE(TUMBLE(TABLE {}{{of}}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
LEVELS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
STATISTICS = ", ".join(
    [
        "COUNT(*) AS total_bids",
        *(f"COUNT(*) FILTER (WHERE {level}) AS rank{n}_bids" for n, level in enumerate(LEVELS, 1)),
    ]
    + [
        part
        for what in ("bidder", "auction")
        for part in (
            f"COUNT(DISTINCT {what}) AS total_{what}s",
            *(f"COUNT(DISTINCT {what}) FILTER (WHERE {level}) AS rank{n}_{what}s" for n, level in enumerate(LEVELS, 1)),
        )
    ]
)
QUERIES = {
    "q0": "SELECT auction, bidder, price, us, extra FROM bid{of}",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, us, extra FROM bid{of}",
    "q2": "SELECT auction, price FROM bid{of} WHERE MOD(auction, 123) = 0",
    "q3": """SELECT name, city, state, a.id FROM auction{of} a JOIN person{of} p ON a.seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, window_start, window_end, AVG(CAST(final AS DOUBLE)) AS average FROM (
            SELECT id, category, window_start, window_end, MAX(price) AS final FROM {TENS.format("offered")}
            GROUP BY id, category, window_start, window_end
        ) GROUP BY category, window_start, window_end""",
    "q5": """SELECT c.auction, c.window_start, c.window_end, c.num FROM counts{of} c JOIN (
            SELECT MAX(num) AS most, window_start, window_end FROM counts{of} GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most""",
    "q7": f"""SELECT b.auction, b.bidder, b.price, b.us, b.extra FROM (SELECT * FROM {TENS.format("bid")}) b JOIN (
            SELECT MAX(price) AS highest, window_start, window_end FROM {TENS.format("bid")}
            GROUP BY window_start, window_end
        ) h ON b.window_start = h.window_start AND b.window_end = h.window_end AND b.price = h.highest""",
    "q8": f"""SELECT p.id, p.name, p.window_start FROM (
            SELECT id, name, window_start, window_end FROM {TENS.format("person")}
            GROUP BY id, name, window_start, window_end
        ) p JOIN (
            SELECT seller, window_start, window_end FROM {TENS.format("auction")}
            GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""SELECT id, itemName, description, initialBid, reserve, us, expires_us, seller, category, extra, bidder,
            price, bid_us, bid_extra
        FROM (SELECT *, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end, id ORDER BY price DESC, bid_us ASC
        ) AS place FROM {TENS.format("offered")}) WHERE place <= 1""",
    "q10": """SELECT auction, bidder, price, us, extra, DATE_FORMAT(ts, 'yyyy-MM-dd') AS dt,
            DATE_FORMAT(ts, 'HH:mm') AS hm FROM bid{of}""",
    "q11": """SELECT bidder, window_start, window_end, COUNT(*) AS bid_count
        FROM TABLE(SESSION(TABLE bid{of} PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN EXTRACT(HOUR FROM CAST(ts AS TIMESTAMP(3))) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN EXTRACT(HOUR FROM CAST(ts AS TIMESTAMP(3))) NOT BETWEEN 7 AND 19 THEN 'nightTime'
                ELSE 'otherTime' END AS bidTimeType,
            us, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bid{of} WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT window_start, window_end, {STATISTICS} FROM {TENS.format("bid")}
        GROUP BY window_start, window_end""",
    "q16": f"""SELECT channel, window_start, window_end, {STATISTICS} FROM {TENS.format("bid")}
        GROUP BY channel, window_start, window_end""",
    "q17": f"""SELECT auction, window_start, window_end, COUNT(*) AS total_bids,
            COUNT(*) FILTER (WHERE {LEVELS[0]}) AS rank1_bids, COUNT(*) FILTER (WHERE {LEVELS[1]}) AS rank2_bids,
            COUNT(*) FILTER (WHERE {LEVELS[2]}) AS rank3_bids, MIN(price) AS min_price, MAX(price) AS max_price,
            AVG(CAST(price AS DOUBLE)) AS avg_price, SUM(price) AS sum_price
        FROM {TENS.format("bid")} GROUP BY auction, window_start, window_end""",
    "q18": f"""SELECT bidder, auction, price, channel, url, us, extra FROM (SELECT *, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end, bidder, auction ORDER BY ts DESC
        ) AS place FROM {TENS.format("bid")}) WHERE place <= 1""",
    "q19": f"""SELECT auction, bidder, price, channel, url, us, extra FROM (SELECT *, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end, auction ORDER BY price DESC, us ASC
        ) AS place FROM {TENS.format("bid")}) WHERE place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.us AS bid_us, b.extra AS bid_extra, itemName, description,
            initialBid, reserve, a.us AS auction_us, expires_us, seller, category, a.extra AS auction_extra
        FROM bid{of} b JOIN auction{of} a ON b.auction = a.id WHERE category = 10""",
    "q21": """SELECT auction, bidder, price, channel, channel_id FROM (SELECT *, CASE LOWER(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid{of})
        WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
            SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid{of}""",
    "q23": """SELECT bidder, price, channel, url, b.extra AS bid_extra, name, emailAddress, creditCard, city, state,
            p.extra AS person_extra, itemName, description, initialBid, reserve, a.us AS auction_us, expires_us, seller,
            category, a.extra AS auction_extra
        FROM bid{of} b JOIN person{of} p ON p.id = b.bidder JOIN auction{of} a ON a.seller = b.bidder""",
}
"""Query 13 is not here: a lookup join needs a connector that looks up, and Flink's package has none."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--few", type=Path, required=True)
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--backend", choices=["rocksdb", "hashmap"], required=True)
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument("--managed-memory", required=True, help="what RocksDB may hold, as Flink writes sizes")
    parser.add_argument("--patience", type=float, required=True)
    args = parser.parse_args()
    tables = environment(args.backend, args.parallelism, args.managed_memory)
    for of, path in (("", args.directory), ("_few", args.few)):
        tables.execute_sql(SOURCE.format(name=f"events{of}", path=path))
        for view in VIEWS:
            tables.execute_sql(view.format(of=of))
    rows, seconds = rows_out(tables, args.query), job_seconds(tables, args.query, args.patience)
    print(json.dumps({"rows_out": rows, "seconds": seconds}))


def rows_out(tables: TableEnvironment, name: str) -> int:
    """How many rows a query over few events writes."""
    with tempfile.TemporaryDirectory() as folder:
        sink = TableDescriptor.for_connector("filesystem").format("csv").option("path", folder).build()
        tables.sql_query(QUERIES[name].format(of="_few")).execute_insert(sink).wait()
        return sum(file.read_bytes().count(b"\n") for file in Path(folder).rglob("*") if file.is_file())


def job_seconds(tables: TableEnvironment, name: str, patience: float) -> float | None:
    sink = TableDescriptor.for_connector("blackhole").build()
    job = tables.sql_query(QUERIES[name].format(of="")).execute_insert(sink).get_job_client()
    result, given_up = job.get_job_execution_result(), time.monotonic() + patience
    while not result.done():
        if time.monotonic() > given_up:
            job.cancel().result()
            return None
        time.sleep(0.1)
    return float(result.result().get_net_runtime()) / 1000


if __name__ == "__main__":
    main()
