"""`head` in flows: as many rows as asked for reach the sink, and the flow ends as soon as they have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.streams import examples


def table(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "t": pa.array(range(len(keys)), pa.int64())})


def feed(parts: list[pa.Table], read: list[int]):
    """Tables, and how many were read."""
    for part in parts:
        read.append(part.num_rows)
        yield part


def test_the_flow_reads_no_more_than_it_takes():
    read: list[int] = []
    flow = pk.LocalFlow()
    rows = flow.source(feed([table([n]) for n in range(50)], read), time="t", name="s").head(3).to_memory()
    query = flow.run()
    assert rows.table().column("k").to_pylist() == [0, 1, 2]
    assert len(read) == 3
    assert query.status.state == "ended"
    assert query.progress().totals.epochs == 3


def test_all_rows_come_if_there_are_fewer_and_the_streams_end_as_ever():
    flow = pk.LocalFlow()
    rows = flow.source([table([1]), table([2])], time="t", name="s").head(3).to_memory()
    query = flow.run()
    assert rows.table().num_rows == 2
    assert query.status.state == "ended"


def test_another_sink_keeps_the_flow_going_and_late_rows_do_not():
    parts = [table([n, n]) for n in range(9)]
    flow = pk.LocalFlow()
    source = flow.source(parts, time="t", name="s")
    few, all_ = source.head(3).to_memory(), source.to_memory()
    flow.run()
    assert (few.table().num_rows, all_.table().num_rows) == (3, 18)
    flow = pk.LocalFlow()
    source = flow.source(parts, time="t", name="s", progress=pk.ordered())
    few, late = source.head(3).to_memory(), source.late.to_memory()
    assert flow.run().progress().totals.epochs == 2
    assert (few.table().num_rows, late.table().num_rows) == (3, 1)


def test_several_heads_end_the_flow_when_the_last_is_full():
    flow = pk.LocalFlow()
    source = flow.source([table([n]) for n in range(9)], time="t", name="s", progress=pk.bounded_delay(9))
    one, other = source.head(2).to_memory(), source.where("k > 2").head(3).to_memory()
    assert flow.run().progress().totals.epochs == 6
    assert (one.table().num_rows, other.table().num_rows) == (2, 3)


def test_windows_of_a_head_close_in_the_next_epoch_and_end_the_flow():
    flow = pk.LocalFlow()
    source = flow.source([table([n]) for n in range(9)], time="t", name="s", progress=pk.bounded_delay(9))
    rows = source.head(4).window(range=100).agg(n=pk.count()).to_memory()
    assert flow.run().progress().totals.epochs == 5
    assert rows.table().column("n").to_pylist() == [4]


def test_a_stream_without_event_time_has_a_head_too():
    flow = pk.LocalFlow()
    a, b = (flow.source([table([n, n]) for n in range(4)], time="t", name=name) for name in "ab")
    joined = a.select("k").join(b.select("k"), on="k")
    assert not joined._node.timed
    rows = joined.head(5).to_memory()
    flow.run()
    assert rows.table().num_rows == 5


def test_explain_and_progress_say_how_far_a_head_is():
    flow = pk.LocalFlow()
    flow.source([table([1, 2])], time="t", name="s").head(7).to_memory()
    query = flow.run(end=False)
    assert "the first 7 rows, then the stream ends" in str(query.explain())
    assert "2 of 7 rows are out" in str(query.explain())


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=6),
    st.integers(1, 40),
    st.sampled_from(["auto", "oa", pk.Rrpj(memory=5, row=1, partitions=3)]),
    st.integers(1, 3),
)
@examples(0.3)
def test_a_join_gives_the_head_of_its_results_whatever_the_epochs(left, right, wanted, method, shards):
    pairs = sum(sum(keys.count(k) for keys in left) * sum(keys.count(k) for keys in right) for k in range(4))
    flow = pk.LocalFlow(shards=shards, memory="1 MB")
    sides = [
        flow.source([numbered(n, keys) for n, keys in enumerate(parts)], time="t", name=name)
        for name, parts in (("l", left), ("r", right))
    ]
    rows = sides[0].join(sides[1], on="k", method=method).head(wanted).to_memory()
    flow.run()
    found = rows.table().select(["id", "id_right"]).to_pylist()
    assert len(found) == min(wanted, pairs)
    assert len({tuple(pair.values()) for pair in found}) == len(found)
    keys = [{100 * n + m: k for n, some in enumerate(parts) for m, k in enumerate(some)} for parts in (left, right)]
    assert all(keys[0][pair["id"]] == keys[1][pair["id_right"]] for pair in found)


def numbered(epoch: int, keys: list[int]) -> pa.Table:
    ids = pa.array([100 * epoch + n for n in range(len(keys))], pa.int64())
    return pa.table({"k": pa.array(keys, pa.int64()), "t": ids, "id": ids})


@pytest.mark.parametrize("memory", ["200 KB", "1 MB", "4 MB", "16 MB", "64 MB"])
def test_heads_of_many_narrow_and_of_wide_rows_fit_any_memory(memory):
    """Ranking took more than the rest of the memory at some sizes, and less worked."""
    many, few = 40_000, 400
    narrow = pa.table({"k": range(many), "t": range(many), "p": [""] * many})
    wide = pa.table({"t": range(few), "p": ["x" * 10_000] * few})
    flow = pk.LocalFlow(memory=memory)
    sides = [flow.source(narrow, time="t", name=name) for name in "lr"]
    half = sides[0].join(sides[1], on="k").head(many // 2).to_memory()
    first = flow.source(wide, time="t", name="wide").head(20).to_memory()
    flow.run()
    assert half.table()["k"].to_pylist() == list(range(many // 2))
    assert first.table()["t"].to_pylist() == list(range(20))
