"""Surrogate keys: two sources number products each in its own way, a table gives both one key (Fig. 6.1)."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pytest

import penstock as pk

GOLDEN = Path(__file__).with_name("surrogate_keys.csv")

KEYS = pa.table(
    {
        "source": ["S1", "S1", "S2", "S2", "S2"],
        "id": [10, 20, 10, 20, 40],
        "skey": [100, 110, 110, 120, 130],
    }
)
"""S1's 20 and S2's 10 are one product; 10 and 20 mean another with each source."""

SALES = {
    "S1": pa.table({"id": [10, 20, 10, 30], "qty": [5, 1, 2, 7], "t": [0, 3, 4, 6]}),
    "S2": pa.table({"id": pa.array([10, 20, 40, None], pa.int64()), "qty": [3, 4, 6, 8], "t": [1, 2, 5, 7]}),
}


@pytest.mark.parametrize("method", ["auto", "inlj", "meshjoin", "hybridjoin", "partitioned"])
@pytest.mark.parametrize("shards", [1, 3])
def test_000_35_rows_of_both_sources_get_the_surrogate_keys_of_the_golden_file(method, shards):
    flow = pk.LocalFlow(shards=shards)
    sources = [
        flow.source(rows, time="t", name=name).select(f"'{name}' AS source", "id", "qty", "t")
        for name, rows in SALES.items()
    ]
    loaded = sources[0].union(sources[1]).lookup(KEYS, on=["source", "id"], how="left", method=method).to_memory()
    flow.run()
    rows = loaded.table().select(["source", "id", "skey", "qty", "t"])
    text = io.BytesIO()
    csv.write_csv(rows.sort_by([("source", "ascending"), ("t", "ascending")]), text)
    assert text.getvalue().decode() == GOLDEN.read_text()
