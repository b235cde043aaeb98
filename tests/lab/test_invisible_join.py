"""The invisible join against a plain star join (F30)."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from lab.invisible_join import Dimension, invisible_join


@pytest.mark.parametrize("seed", range(20))
def test_f30_the_invisible_join_gives_the_rows_of_a_star_join(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(0, 80))
    fact = {f"fk{n}": rng.integers(0, 12, rows) for n in range(3)}
    tables = []
    for _ in range(3):
        keys = rng.permutation(12)[: int(rng.integers(1, 12))]
        tables.append({"id": keys, "v": rng.integers(0, 10, keys.size)})
    limits = rng.integers(0, 11, 3).tolist()
    dimensions = [
        Dimension(f"fk{n}", table, "id", lambda table, limit=limit: table["v"] < limit)
        for n, (table, limit) in enumerate(zip(tables, limits, strict=True))
    ]
    star = invisible_join(fact, dimensions)
    with duckdb.connect() as db:
        db.register("fact", pa.table({"place": np.arange(rows), **fact}))
        for n, table in enumerate(tables):
            db.register(f"d{n}", pa.table({"place": np.arange(table["id"].size), **table}))
        joins = " ".join(f"JOIN d{n} ON fk{n} = d{n}.id AND d{n}.v < {limit}" for n, limit in enumerate(limits))
        expected = db.execute(f"SELECT fact.place, d0.place, d1.place, d2.place FROM fact {joins}").fetchall()
    found = zip(*(places.tolist() for places in (star.fact, *star.dimensions)), strict=True)
    assert list(found) == sorted(expected)
    assert star.fetched == 3 * len(expected)


def test_f30_the_most_selective_dimension_comes_first():
    fact = {"a": np.arange(100) % 10, "b": np.arange(100) % 4}
    some = Dimension("a", {"id": np.arange(10)}, "id", lambda table: table["id"] < 8)
    few = Dimension("b", {"id": np.arange(4)}, "id", lambda table: table["id"] == 1)
    star = invisible_join(fact, [some, few])
    assert star.order == (1, 0)
    assert star.tested == (100, 25)


def test_a_foreign_key_that_is_nan_refers_to_nothing():
    fact = {"a": np.array([1.0, np.nan])}
    every = Dimension("a", {"id": np.array([1.0, 2.0])}, "id", lambda table: table["id"] > 0)
    assert invisible_join(fact, [every]).fact.tolist() == [0]
