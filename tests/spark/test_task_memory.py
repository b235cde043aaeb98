"""The memory of a task, by its own accounts: pages that stay in memory leave room for rows in flight."""

from __future__ import annotations

import datetime as dt
import random

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.draws.shard_host import ShardHost

SHARE = 1_700_000


def side(seed: int, epoch: int, rows: int) -> pa.Table:
    """Rows of about 100 bytes; each key is there once in an epoch."""
    ids = np.random.default_rng(seed).permutation(rows) + 2 * rows * (epoch % 2)
    times = dt.datetime(2026, 1, 1) + dt.timedelta(minutes=epoch)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "t": pa.array([times] * rows, pa.timestamp("us")),
            "note": pa.array([f"{n:064d}" for n in range(rows)], pa.string()),
        }
    )


@pytest.mark.parametrize("part", [4, 8, 16, 32])
def test_one_side_may_come_in_large_batches_while_pages_are_in_memory(tmp_path, part):
    rows, epochs = 16_000, 4
    flow = pk.LocalFlow()
    delay = pk.bounded_delay("0 s")
    left, right = (flow.source(side(0, 0, 0), time="t", progress=delay, name=name) for name in "ab")
    node = left.join(right, on="id", within=pk.band(before="30 s", after="30 s"))._node
    host = ShardHost(node, (delay, delay), str(tmp_path), SHARE)
    host.chunks = (SHARE // part // 110,)
    rng = random.Random(1)
    for epoch in range(epochs):
        host.epoch([side(1, epoch, rows), side(2, epoch, rows)], 1, "auto", rng)
    host.end(1, "auto", rng)
    assert sum(batch.num_rows for batch in host.out) == epochs * rows
