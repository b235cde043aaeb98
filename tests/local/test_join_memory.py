"""Joins in process in very little memory: every method that spills comes by with the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk


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
@pytest.mark.parametrize("memory", [4_000, 8_000, 12_000])
@pytest.mark.parametrize("method", ["ewj", "ah_ewj", "rpwj"])
def test_methods_that_spill_need_no_more_memory_than_others(method, memory, keys):
    assert pairs(method, memory, keys) == pairs("oa", memory, keys)
