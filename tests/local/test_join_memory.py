"""Joins in process in very little memory: every method that spills comes by with the same."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk


@cache
def pairs(method: str, memory: int, keys: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(keys)
    flow = pk.LocalFlow(memory=memory)
    left, right = (
        flow.source(
            [pa.table({"k": rng.integers(1, keys + 1, 30), "t": rng.integers(0, 300, 30)}) for _ in range(7)],
            time="t",
            progress=pk.bounded_delay(300),
            name=name,
        )
        for name in "lr"
    )
    out = left.join(right, on="k", within=pk.band(before=5, after=5), method=method).to_memory()
    flow.run()
    return sorted(zip(*(column.to_pylist() for column in out.table().columns), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [1, 3])
@pytest.mark.parametrize(
    "memory", [4_000, *(pytest.param(memory, marks=pytest.mark.deep) for memory in (8_000, 12_000))]
)
@pytest.mark.parametrize("method", ["ewj", "ah_ewj", "rpwj"])
def test_methods_that_spill_need_no_more_memory_than_others(method, memory, keys):
    assert pairs(method, memory, keys) == pairs("oa", memory, keys)


def rights(method: str, seed: int) -> Counter[tuple[str | None, str]]:
    """Two streams of 1,600 rows each, far more than fit in memory, in two epochs that are cut anywhere."""
    rng = np.random.default_rng(seed)
    flow = pk.LocalFlow(memory=64_000)

    def source(name: str) -> pk.Stream:
        times = np.arange(1600) // 320 + rng.integers(-5, 6, 1600)
        rows = pa.table({"k": rng.integers(0, 6, 1600), name: [str(n) for n in range(1600)], "t": times})
        cut = int(rng.integers(0, 1600))
        return flow.source([rows.slice(0, cut), rows.slice(cut)], time="t", progress=pk.bounded_delay(3), name=name)

    left, right = source("l"), source("r")
    within = pk.band(before=4, after=-2, ends="()")
    out = left.join(right, on="k", within=within, how="right", method=method).to_memory()
    flow.run()
    return Counter(zip(*(out.table().column(name).to_pylist() for name in "lr"), strict=True))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2))])
def test_room_that_ah_ewj_makes_in_the_other_window_is_there_at_once(seed):
    assert rights("ah_ewj", seed) == rights("oa", seed)
