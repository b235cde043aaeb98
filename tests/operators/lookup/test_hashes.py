"""Keys are hashed once where rows bring the hash that tables are laid out by, and again where they bring another."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.budget import Budget
from penstock.core.operator import State
from penstock.core.rows import TIME, RowType
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import Front, HybridJoin, Inlj, LookupJoin, MeshJoin, Partitioned, Ssij, Stages, answers
from penstock.storage.memory import MemoryPages
from penstock.storage.tables import ArrowTable
from tests.operators.lookup.cases import Shard, numbered

METHODS = [
    "broadcast",
    Stages(Inlj(), Front(slots=4, threshold=1)),
    Stages(HybridJoin(slots=7), Front(slots=4, threshold=1)),
    Stages(MeshJoin(slots=7), Front(slots=4, threshold=1)),
    Stages(Partitioned(wait=7, block=1, invoke=2)),
    Stages(Ssij(input_thr=2, stream_thr=3)),
]

KEYS = [
    pa.array([True, False]),
    pa.array([3, -4], pa.int8()),
    pa.array([3, -4], pa.int32()),
    pa.array([3, -4], pa.int64()),
    pa.array([0.5, -0.0], pa.float32()),
    pa.array([0.5, float("nan")], pa.float64()),
    pa.array(["ä", ""]),
    pa.array([b"a", b"bc"]),
    pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(9, 2)),
    pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(38, 2)),
    pa.array([date(2026, 1, 2), date(1969, 1, 2)]),
    pa.array([datetime(2026, 1, 2), datetime(1969, 1, 2)], pa.timestamp("us")),
    pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    pa.array([[1, 2], []], pa.list_(pa.int64())),
]
"""Every type of key that a lookup allows."""


def fail(columns):
    raise AssertionError("keys are hashed again")


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_rows_that_bring_the_tables_hash_are_not_hashed_again(monkeypatch, method):
    join = Shard(numbered(20, partition_rows=5), method, "left")
    monkeypatch.setattr(answers, "hash_keys", fail)
    join.rows([*range(10), *range(15, 25), None]).again().rows([3, 3, 30]).end()
    assert join.results == join.expected


def test_rows_that_bring_another_hash_are_hashed_again(monkeypatch):
    join = Shard(numbered(20), "broadcast")
    join.types = replace(join.types, hashed_by="xxhash64")
    monkeypatch.setattr(answers, "hash_keys", fail)
    with pytest.raises(AssertionError, match="hashed again"):
        join.again().rows([1])


@pytest.mark.parametrize("hashed_by", ["hash_keys", "xxhash64"])
@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: str(keys.type))
def test_keys_of_every_type_are_found_whatever_made_their_hashes(keys, hashed_by):
    table = ArrowTable(pa.table({"k": keys, "v": ["x", "y"]}), ("k",))
    types = RowType(pa.schema({"k": keys.type}), ("k",), hashed_by=hashed_by)
    logic = LookupJoin(table, (("k", "k"),), "inner", Stages(Inlj(), Front(slots=4, threshold=1))).logic(
        (types,), MemoryPages(Budget(10**9)), Budget(10**9), State()
    )
    hashes = hash_keys([keys]) if hashed_by == "hash_keys" else np.array([7, 5], np.uint64)
    rows = types.enter(pa.table({TIME: [1, 2], "k": keys}), hashes)
    for _ in ("read", "cached"):
        found = [value for out in logic.rows(0, rows) for value in out.rows.column("v").to_pylist()]
        assert sorted(found) == ["x", "y"]
    assert logic.front.stats.hits == 2


@pytest.mark.parametrize("hashed_by", ["hash_keys", "xxhash64"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_null_key_finds_nothing_whatever_hash_it_brings(method, hashed_by):
    """Hosts spread such rows by their time: the hash may be that of a key which the table has, or has cached."""
    join = Shard(numbered(20, partition_rows=5), method, "left")
    join.types = replace(join.types, hashed_by=hashed_by)
    join.again().rows([3, 3, 3])
    table = pa.table({TIME: [3], "k": pa.array([None], pa.int64()), "n": [3]})
    join.keys.append(None)
    join._take(join.logic.rows(0, join.types.enter(table, hash_keys([pa.array([3])]))))
    assert join.end().results == join.expected
