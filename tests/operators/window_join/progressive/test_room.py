"""Rows in memory take what the budget has left beside the descriptions of pages and the rows that wait to enter."""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.progress import NoPromise
from tests.draws.shard_host import ShardHost
from tests.streams import pairs_of

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})


@pytest.mark.slow
def test_many_small_pages_leave_less_memory_to_rows_and_the_join_goes_on(tmp_path, monkeypatch):
    """Found: hundreds of pages of few rows each, whose descriptions take a third of 1 MB; arrivals did not fit then."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    flow = pk.LocalFlow()
    left, right = (flow.source(SCHEMA.empty_table(), time="t", progress=NoPromise(), name=name) for name in "lr")
    node = left.join(right, on="k")._node
    host = ShardHost(node, (NoPromise(), NoPromise()), str(tmp_path / "c"), 1_000_000)
    rng, order, rows = np.random.default_rng(1), random.Random(1), 300
    keys: list[list[int]] = [[], []]
    for epoch in range(12):
        ids = np.arange(epoch * rows, (epoch + 1) * rows)
        sides = [pa.table([rng.integers(0, 10**4, rows), ids, ids], schema=SCHEMA) for _ in keys]
        for side, known in zip(sides, keys, strict=True):
            known += side["k"].to_pylist()
        host.epoch(sides, 1, pk.Rrpj(), order)
    pairs = pairs_of(host.out)
    assert len(pairs) == sum(pairs.values()) > 300, "those of rows in memory"
    assert all(keys[0][i] == keys[1][j] for i, j in pairs)
