"""The queries of the thesis (spec 2.11, §3), written in this dialect, by their numbers.

Where the text and the SQL of the source differ, it is the SQL that counts (spec 6.6). `len` is its ``length``.
"""

from __future__ import annotations

_BY_SOURCE = "SELECT srcIP, {what} [RANGE {range} SLIDE {slide} WATTR ts] FROM {source} GROUP BY srcIP"
_LINKS = "(SELECT * FROM Main1 UNION ALL SELECT * FROM Main2 UNION ALL SELECT * FROM Control) AS links"
_REVERSED = (
    "{0}.srcIP = {1}.destIP AND {0}.srcPort = {1}.destPort AND {0}.destIP = {1}.srcIP AND {0}.destPort = {1}.srcPort"
)


def _by_source(what: str, range: str, slide: str, source: str = "packets") -> str:
    return _BY_SOURCE.format(what=what, range=range, slide=slide, source=source)


CATALOGUE: dict[str, str] = {
    "1-1": _by_source("count(*)", "10 minutes", "1 minute"),
    "1-2": f"SELECT count(*) [RANGE 1 minute SLIDE 1 minute WATTR ts] FROM {_LINKS}",
    "2-1": """
        SELECT srcIP, count(*)
        FROM packets
        WHERE srcIP IN ('202.101.0.0', '202.101.0.1')
        GROUP BY srcIP, ts(minute)
    """,
    "3-1": """
        SELECT *
        FROM Main1 [RANGE 3 minutes WATTR ts], Main2 [RANGE 2 minutes WATTR ts]
        WHERE Main1.srcIP = Main2.destIP
    """,
    "5-1": _by_source("count(*)", "10 minutes", "1 minute"),
    "5-2": "SELECT srcIP, max(len) [RANGE 1000 rows, SLIDE 10 rows, WATTR row-num, PA srcIP] FROM packets",
    "5-3": "SELECT srcIP, max(len) [RANGE 1000 rows, SLIDE 10 rows, WATTR row-num] FROM packets GROUP BY srcIP",
    "5-4": _by_source("count(*)", "ALL", "1 minute"),
    "5-5": "SELECT max(len) [RANGE 5 minutes RATTR ts, SLIDE 1 row SATTR row-num] FROM packets",
    "5-6": "SELECT count(*) [RANGE 5 minutes RATTR ts, SLIDE 5 rows SATTR rank(ts)] FROM packets",
    "5-7": """
        SELECT *
        FROM Main1 [RANGE 5 minutes SLIDE 5 minutes WATTR ts], Main2 [RANGE 5 minutes SLIDE 5 minutes WATTR ts]
        WHERE Main1.srcIP = Main2.destIP
    """,
    "5-8": """
        SELECT *
        FROM Main1 [RANGE 3 minutes WATTR ts], Main2 [RANGE 2 minutes WATTR ts]
        WHERE Main1.srcIP = Main2.destIP
    """,
    "6-1": _by_source("count(*)", "10 minutes", "1 minute"),
    "6-2": "SELECT max(len) [RANGE 4 minutes SLIDE 1 minute WATTR ts] FROM packets",
    "6-3": _by_source("count(*)", "4 minutes", "1 minute"),
    "6-4": "SELECT heavy_hitters(srcIP, 0.05) [RANGE 10 minutes SLIDE 1 minute WATTR ts] FROM packets",
    "6-5": _by_source("count(*)", "5 minutes", "1 minute"),
    "6-6": _by_source("sum(len)", "10 seconds", "1 second"),
    "6-7": _by_source("sum(len)", "1 second", "1 second"),
    "6-8": _by_source("count(*)", "10 seconds", "1 second", _LINKS),
    "7-1": f"""
        SELECT S0.ts, S1.ts AS ts1, count(*)
        FROM S0 [RANGE 2 minutes WATTR ts], S1 [RANGE 2 minutes WATTR ts]
        WHERE {_REVERSED.format("S0", "S1")}
        GROUP BY S0.ts, S1.ts
    """,
    "7-2": f"""
        SELECT count(*) [RANGE 1 minute SLIDE 1 minute WATTR Main1.ts]
        FROM Main1 [RANGE 5 seconds WATTR ts], Main2 [RANGE 5 seconds WATTR ts]
        WHERE {_REVERSED.format("Main1", "Main2")}
    """,
    "8-1": """
        SELECT srcIP, destIP, count(*) [RANGE 1 minute SLIDE 1 minute WATTR ts]
        FROM packets
        GROUP BY srcIP, destIP
    """,
    "8-2": """
        SELECT srcIP, destIP, count(*) [RANGE 1 minute SLIDE 1 minute WATTR ts]
        FROM (SELECT * FROM A UNION ALL SELECT * FROM B) AS AB
        GROUP BY srcIP, destIP
    """,
    "8-3": f"""
        SELECT *
        FROM (SELECT * FROM A UNION ALL SELECT * FROM B) AS AB [RANGE 10 seconds SLIDE 10 seconds WATTR ts],
             (SELECT * FROM C UNION ALL SELECT * FROM D) AS CD [RANGE 10 seconds SLIDE 10 seconds WATTR ts]
        WHERE {_REVERSED.format("AB", "CD")}
    """,
    "8-4": f"""
        SELECT *
        FROM Main1 [RANGE 1 minute SLIDE 1 minute WATTR ts],
             (SELECT * FROM Main2 UNION ALL SELECT * FROM Control) AS M2C [RANGE 1 minute SLIDE 1 minute WATTR ts]
        WHERE {_REVERSED.format("Main1", "M2C")}
    """,
    "8-5": f"SELECT count(*) [RANGE 5 minutes SLIDE 1 minute WATTR ts] FROM {_LINKS}",
}
"""SQL by the number of the query."""
