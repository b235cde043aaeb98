"""F08: every query of the catalogue (spec 2.11) says what the thesis says it does."""

from __future__ import annotations

import pytest

from lab.workloads.netflow import REVERSED
from penstock.core.windows import Landmark, PartitionedWindow, TupleWindow, Window, landmark, slide_by_tuple, sliding
from penstock.core.within import tumbling, windows
from penstock.sql import Call, Column, Join, Query, Source, parse
from penstock.sql.catalogue import CATALOGUE

PACKETS = Source(("packets",), "packets")
LINKS = Source(("Main1", "Main2", "Control"), "links")
COUNT = Call("count", None, "count")
SOURCE = Column("srcIP", "srcIP")
TEN_BY_ONE = sliding("10 min", "1 min")
BY_REPLY = tuple(REVERSED.items())


def by_source(call: Call, window: Window, source: Source = PACKETS) -> Query:
    return Query((SOURCE, call), (source,), window=window, time="ts", groups=("srcIP",))


def over(call: Call, window: Window, source: Source = PACKETS) -> Query:
    return Query((call,), (source,), window=window, time="ts")


def timed(*streams: str, alias: str | None = None) -> Source:
    return Source(streams, alias or streams[0], time="ts")


def pairs(left: Source, right: Source, within, on=(("srcIP", "destIP"),)) -> Query:
    return Query((Column("*", "*"),), (left, right), Join(tuple(on), within))


MAX = Call("max", "len", "max_len")
SUM = Call("sum", "len", "sum_len")
EXPECTED = {
    "1-1": by_source(COUNT, TEN_BY_ONE),
    "1-2": over(COUNT, sliding("1 min"), LINKS),
    "2-1": Query(
        (SOURCE, COUNT),
        (PACKETS,),
        where="srcIP IN ('202.101.0.0', '202.101.0.1')",
        window=sliding("1 min"),
        time="ts",
        groups=("srcIP",),
    ),
    "3-1": pairs(timed("Main1"), timed("Main2"), windows(left="3 min", right="2 min")),
    "5-1": by_source(COUNT, TEN_BY_ONE),
    "5-2": Query((SOURCE, MAX), (PACKETS,), window=PartitionedWindow(1000, 10, ("srcIP",)), groups=("srcIP",)),
    "5-3": Query((SOURCE, MAX), (PACKETS,), window=TupleWindow(1000, 10), groups=("srcIP",)),
    "5-4": by_source(COUNT, landmark("1 min")),
    "5-5": over(MAX, slide_by_tuple("5 min")),
    "5-6": over(COUNT, slide_by_tuple("5 min", every=5, by="rank")),
    "5-7": pairs(timed("Main1"), timed("Main2"), tumbling("5 min")),
    "5-8": pairs(timed("Main1"), timed("Main2"), windows(left="3 min", right="2 min")),
    "6-1": by_source(COUNT, TEN_BY_ONE),
    "6-2": over(MAX, sliding("4 min", "1 min")),
    "6-3": by_source(COUNT, sliding("4 min", "1 min")),
    "6-4": over(Call("heavy_hitters", "srcIP", "heavy_hitters_srcIP", (0.05,)), TEN_BY_ONE),
    "6-5": by_source(COUNT, sliding("5 min", "1 min")),
    "6-6": by_source(SUM, sliding("10 s", "1 s")),
    "6-7": by_source(SUM, sliding("1 s")),
    "6-8": by_source(COUNT, sliding("10 s", "1 s"), LINKS),
    "7-1": Query(
        (Column("S0.ts", "ts"), Column("S1.ts", "ts1"), COUNT),
        (timed("S0"), timed("S1")),
        Join(BY_REPLY, windows("2 min", "2 min")),
        groups=("S0.ts", "S1.ts"),
    ),
    "7-2": Query(
        (COUNT,),
        (timed("Main1"), timed("Main2")),
        Join(BY_REPLY, windows("5 s", "5 s")),
        window=sliding("1 min"),
        time="Main1.ts",
    ),
    "8-1": Query(
        (SOURCE, Column("destIP", "destIP"), COUNT),
        (PACKETS,),
        window=sliding("1 min"),
        time="ts",
        groups=("srcIP", "destIP"),
    ),
    "8-2": Query(
        (SOURCE, Column("destIP", "destIP"), COUNT),
        (Source(("A", "B"), "AB"),),
        window=sliding("1 min"),
        time="ts",
        groups=("srcIP", "destIP"),
    ),
    "8-3": pairs(timed("A", "B", alias="AB"), timed("C", "D", alias="CD"), tumbling("10 s"), BY_REPLY),
    "8-4": pairs(timed("Main1"), timed("Main2", "Control", alias="M2C"), tumbling("1 min"), BY_REPLY),
    "8-5": over(COUNT, sliding("5 min", "1 min"), LINKS),
}


@pytest.mark.parametrize("number", CATALOGUE)
def test_f08_a_query_of_the_catalogue_says_what_the_thesis_says(number):
    query, expected = parse(CATALOGUE[number]), EXPECTED[number]
    assert str(query.window) == str(expected.window)
    assert (query.select, query.sources, query.join) == (expected.select, expected.sources, expected.join)
    assert (query.where, query.time, query.groups, query.having) == (
        expected.where,
        expected.time,
        expected.groups,
        expected.having,
    )


def test_f08_all_of_them_are_there():
    assert set(EXPECTED) == set(CATALOGUE)


def test_f08_partitioned_and_grouped_are_not_the_same():
    """Q5-2 partitions first and windows each; Q5-3 windows first and groups then."""
    partitioned, grouped = parse(CATALOGUE["5-2"]), parse(CATALOGUE["5-3"])
    assert partitioned.groups == grouped.groups
    assert partitioned.window != grouped.window


def test_f08_landmark_windows_are_over_everything_so_far():
    assert isinstance(parse(CATALOGUE["5-4"]).window, Landmark)
