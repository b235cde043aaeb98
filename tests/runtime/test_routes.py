"""Rows that are not placed by key: each pair comes out once, however they are spread, copied and cut into epochs."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.routes import Everywhere, Keyed, numbered_site
from penstock.core.rows import RowType
from penstock.kernels.route import hash_range, shard_of
from penstock.runtime.entering import Entry
from tests.runtime.intervals import Anywhere, Overlapping, Tens, Way, overlapping
from tests.runtime.toy import Delayed

SCHEMA = pa.schema({"id": pa.int64(), "lo": pa.int64(), "hi": pa.int64(), "t": pa.int64()})
ROWS, EPOCHS = 120, 3


def intervals(seed: int) -> pa.Table:
    """Most lie in one cell, some on its border or across several, and a few touch none."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(-100, 100, ROWS)
    hi = lo + rng.choice([0, 1, 4, 10, 35, 300, -1], ROWS, p=[0.2, 0.2, 0.3, 0.1, 0.1, 0.05, 0.05])
    ids = np.arange(ROWS)
    return pa.table([ids, lo, hi, ids], schema=SCHEMA)


LEFT, RIGHT = intervals(1), intervals(2)


def expected() -> Counter[tuple[int, int]]:
    sides = [table.to_pylist() for table in (LEFT, RIGHT)]
    return Counter(
        (a["id"], b["id"]) for a in sides[0] for b in sides[1] if max(a["lo"], b["lo"]) <= min(a["hi"], b["hi"])
    )


def cut(table: pa.Table) -> list[pa.Table]:
    return [table.slice(n * ROWS // EPOCHS, ROWS // EPOCHS) for n in range(EPOCHS)]


def found(rows: pa.Table) -> Counter[tuple[int, int]]:
    return Counter(zip(rows["l"].to_pylist(), rows["r"].to_pylist(), strict=True))


@pytest.mark.parametrize("way", get_args(Way))
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_every_pair_comes_out_once_in_process(way, shards):
    flow = pk.LocalFlow(shards=shards)
    left, right = (flow.source(cut(table), time="t") for table in (LEFT, RIGHT))
    rows = overlapping(left, right, way).to_memory()
    flow.run()
    assert len(expected()) > 1000
    assert found(rows.table()) == expected()


def entry(route, sites: int = 4) -> Entry:
    return Entry("join", RowType(SCHEMA, (), "t"), "group", route, sites)


def placed(route, rows: pa.Table, sites: int = 4) -> list[tuple[int, int]]:
    """The id and the site of each copy."""
    given = rows.append_column("__time", rows["t"])
    batches = entry(route, sites).enter(given, "xxhash64")
    return [(i, h) for b in batches for h, i in zip(b.column(0).to_pylist(), b.column("id").to_pylist(), strict=True)]


def test_rows_that_may_be_anywhere_have_one_place_of_some_and_are_spread():
    found = placed(Anywhere(("lo", "hi")), LEFT)
    assert [i for i, _ in found] == LEFT["id"].to_pylist()
    counts = Counter(site for _, site in found)
    assert counts.keys() == {numbered_site(n, 4) for n in range(4)}
    assert min(counts.values()) > ROWS // 10


def test_a_row_has_the_same_place_whatever_rows_are_beside_it():
    """A task that is run again may get its rows in another order."""
    whole, turned = (dict(placed(Anywhere(("lo",)), rows)) for rows in (LEFT, LEFT.take(list(range(ROWS - 1, -1, -1)))))
    assert whole == turned


def test_rows_that_are_everywhere_have_a_copy_at_each_place():
    assert sorted(placed(Everywhere(), LEFT)) == sorted((i, numbered_site(n, 4)) for i in range(ROWS) for n in range(4))


def test_a_row_has_a_copy_in_each_cell_and_none_if_it_touches_none():
    rows = pa.table([[1, 2, 3], [9, 0, 15], [20, 0, 4], [0, 0, 0]], schema=SCHEMA)
    assert Counter(i for i, _ in placed(Tens(), rows)) == {1: 3, 2: 1}


def test_without_a_route_of_its_own_an_operator_takes_rows_by_key():
    assert isinstance(Delayed(3).route(0), Keyed)
    assert placed(Keyed(), LEFT) == [(i, 0) for i in range(ROWS)]


@pytest.mark.parametrize("sites", [1, 2, 3, 7, 64])
def test_places_are_those_of_as_many_shards_and_whole_in_any_other_number(sites):
    hashes = [numbered_site(n, sites) for n in range(sites)]
    assert hashes == [hash_range(n, sites)[0] for n in range(sites)]
    assert shard_of(np.array(hashes, np.uint64), sites).tolist() == list(range(sites))


def test_the_number_of_places_stays_what_it_was_at_first():
    flow = pk.LocalFlow(shards=3)
    left, right = (flow.source(cut(table), time="t") for table in (LEFT, RIGHT))
    overlapping(left, right, "left anywhere").to_memory()
    query = flow.run()
    assert query._course.ledger.sites == 3
    assert query._course.sites(shards=8) == 3


def test_the_toy_says_how_its_rows_are_placed():
    assert isinstance(Overlapping("left anywhere").route(0), Anywhere)
    assert isinstance(Overlapping("left anywhere").route(1), Everywhere)
