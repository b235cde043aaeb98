"""First and last values and lists of windows of rows go by time, then value, not arrival: as in DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.streams import examples

COLUMNS = pa.schema({"k": pa.int64(), "t": pa.int64(), "s": pa.string()})
ROWS = st.lists(
    st.fixed_dictionaries(
        {"k": st.integers(0, 2), "t": st.integers(-3, 3), "s": st.sampled_from(["a", "b", "c", None])}
    ),
    min_size=1,
    max_size=30,
)
BY_DEFINITION = """
    SELECT k, {size} * (n // {size}) AS window_start,
        first(s ORDER BY t, s) FILTER (s IS NOT NULL) AS head,
        first(s ORDER BY t DESC, s) FILTER (s IS NOT NULL) AS tail,
        coalesce(list(s ORDER BY t, s) FILTER (s IS NOT NULL), []) AS each,
        max(t) AS latest
    FROM (SELECT *, row_number() OVER ({partition} ORDER BY place) - 1 AS n FROM arrived)
    GROUP BY ALL
"""


def _found(epochs: list[pa.Table], window: pk.Window, method: str, shards: int) -> list[tuple]:
    flow = pk.LocalFlow(shards=shards)
    rows = flow.source(epochs, time="t", name="rows").window(window).by("k")
    asked = {"head": pk.first("s"), "tail": pk.last("s"), "each": pk.collect_list("s"), "latest": pk.max("t")}
    out = rows.agg(method=method, **asked).select("k", "window_start", *asked).to_memory()
    flow.run()
    return sorted(map(repr, (tuple(row.values()) for row in out.table().to_pylist())))


@pytest.mark.parametrize("method", ["auto", "wid", "paned", "adapt", "partition"])
@given(ROWS, st.integers(1, 7), st.integers(1, 3), st.data())
@examples(0.02)
def test_values_of_windows_of_rows_go_by_time_as_in_duckdb(method, rows, size, shards, data):
    cut = data.draw(st.integers(0, len(rows)))
    epochs = [pa.Table.from_pylist(part, schema=COLUMNS) for part in (rows[:cut], rows[cut:])]
    by_partition = method == "partition"
    window = pk.rows(size, partition="k") if by_partition else pk.rows(size)
    found = _found(epochs, window, "auto" if by_partition else method, shards)
    arrived = pa.concat_tables(epochs).append_column("place", pa.array(range(len(rows))))  # noqa: F841 (DuckDB reads it by its name)
    query = BY_DEFINITION.format(size=size, partition="PARTITION BY k" if by_partition else "")
    assert found == sorted(map(repr, duckdb.sql(query).fetchall()))
