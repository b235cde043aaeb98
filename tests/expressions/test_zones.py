"""Whether an expression goes by the time zone of Spark's session is told from the expression, not from its words."""

from __future__ import annotations

import pytest

from penstock.expressions.evaluate import goes_by_zone
from tests.expressions.cases import ROWS

BY_ZONE = [
    "hour(ts)",
    "extract(minute from ts)",
    "year(ts)",
    "cast(ts as date)",
    "cast(ts as string)",
    "cast(ts as timestamp_ntz)",
    "cast(d as timestamp)",
    "cast(moment as timestamp)",
    "try_cast(nt as timestamp)",
    "upper(ts)",
    "date_trunc('hour', ts)",
    "date_trunc('day', nt)",
    "ts > d",
    "ts between nt and ts",
    "ts < '2024-01-01 00:00:00'",
    "ts in (ts, d)",
    "ts >= timestamp'2020-07-01 00:00:00'",
    "case when b then ts else d end",
    "ts + interval 1 day",
    "ts - interval 1 month",
    "ts + interval 24 hours",
    "datediff(ts, ts)",
]

IN_EVERY_ZONE = [
    "n > 5",
    "ts",
    "ts > ts + interval 10 seconds",
    "ts - interval 23 hours",
    "coalesce(ts, ts) <=> ts",
    "ts is null",
    "ts >= timestamp'2020-07-01 00:00:00Z'",
    "ts >= cast('2020-07-01 00:00:00+05:30' as timestamp)",
    "unix_micros(ts)",
    "cast(ts as bigint)",
    "cast(n as timestamp)",
    "timestamp_seconds(i)",
    "hour(nt)",
    "year(d)",
    "cast(nt as date)",
    "cast(day as date)",
    "cast(d as timestamp_ntz)",
    "cast(nt as string)",
    "d + interval 1 month",
    "nt + interval 1 day",
    "d < nt",
    "trunc(d, 'month')",
    "s = 'a date and time'",
]


@pytest.mark.parametrize("expression", BY_ZONE)
def test_what_shows_or_reads_a_clock_goes_by_the_zone(expression):
    assert goes_by_zone(expression, ROWS.schema)


@pytest.mark.parametrize("expression", IN_EVERY_ZONE)
def test_what_compares_or_moves_instants_does_not(expression):
    assert not goes_by_zone(expression, ROWS.schema)


def test_a_condition_on_pairs_goes_by_the_zone_where_one_side_is_shown():
    sides = ({"ts": "ts", "d": "d"}, {"ts": "ts", "n": "n"})
    assert goes_by_zone("l.d < r.ts", ROWS.schema, sides)
    assert not goes_by_zone("l.ts < r.ts", ROWS.schema, sides)
