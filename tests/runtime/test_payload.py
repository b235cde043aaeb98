"""Which columns may stay in their source, and that results are the same when they do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.flow.graph import FetchNode, OperatorNode, walk
from penstock.runtime.payload import AskedTooSoonError, Late, detached, place_of, read_late, untouched

INSIDE = pa.struct({"a": pa.int64(), "b": pa.string()})
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "v": pa.int64(), "note": pa.string(), "s": INSIDE})
WITHIN = pk.band(before=3, after=3)


def rows(numbers: list[tuple[int | None, int]], mark: str) -> pa.Table:
    return pa.table(
        {
            "k": [k for k, _ in numbers],
            "t": [t for _, t in numbers],
            "v": list(range(len(numbers))),
            "note": [f"{mark}{n}" if n % 4 else None for n in range(len(numbers))],
            "s": [{"a": n, "b": f"{mark}b{n}"} if n % 5 else None for n in range(len(numbers))],
        },
        SCHEMA,
    )


def source(flow: pk.Flow, name: str, folder: str = "none", payload: str = "source") -> pk.Stream:
    if folder == "none":
        return flow.source(SCHEMA.empty_table(), time="t", name=name)
    return flow.parquet(folder, time="t", name=name, payload=payload, max_files=1, progress=pk.bounded_delay(2))


def left_by(build, names: str = "ab") -> dict[str, set[str]]:
    """The columns of each source that may stay behind in a flow."""
    flow = pk.LocalFlow()
    streams = [source(flow, name) for name in names]
    build(flow, *streams)
    nodes = [stream._node for stream in streams]
    found = untouched(flow._sinks, nodes)
    return {node.name: {".".join(path) for path in found.get(node, ())} for node in nodes}


class TestUntouched:
    def test_a_join_needs_keys_and_times(self):
        found = left_by(lambda flow, a, b: a.join(b, on="k", within=WITHIN).to_memory())
        assert found == {"a": {"v", "note", "s"}, "b": {"v", "note", "s"}}

    def test_what_expressions_compute_with_travels(self):
        def build(flow, a, b):
            joined = a.where("v > 1").join(b, on="k", within=WITHIN)
            joined.select("note", "upper(note_right) AS loud", "s_right").to_memory()

        assert left_by(build) == {"a": {"note", "s"}, "b": {"v", "s"}}

    def test_fields_of_structs_count_one_by_one(self):
        def build(flow, a, b):
            narrow = a.select("k", "t", "s.a AS a", "s.b AS b")
            narrow.join(b, on="k", within=WITHIN).where("a > 0").select("b").to_memory()

        assert left_by(build)["a"] == {"s.b"}

    def test_a_condition_on_pairs_travels(self):
        found = left_by(lambda flow, a, b: a.join(b, on="k", within=WITHIN, where="l.v < r.v").to_memory())
        assert found == {"a": {"note", "s"}, "b": {"note", "s"}}

    def test_the_other_side_of_a_semi_join_is_never_asked_for(self):
        found = left_by(lambda flow, a, b: a.join(b, on="k", within=WITHIN, how="semi").to_memory())
        assert found["b"] == {"v", "note", "s"}

    def test_aggregates_take_what_they_name_after_a_join_and_nothing_stays_without_one(self):
        def build(flow, a, b):
            a.join(b, on="k", within=WITHIN).window(range=10).by("k").agg(n=pk.sum("v")).to_memory()

        found = left_by(build)
        assert found["b"] == {"v", "note", "s"}
        assert "v" not in found["a"]
        assert left_by(lambda flow, a, b: [s.window(range=9).agg(n=pk.count()).to_memory() for s in (a, b)]) == {
            "a": set(),
            "b": set(),
        }

    def test_a_sink_of_the_source_itself_takes_all(self):
        def build(flow, a, b):
            a.join(b, on="k", within=WITHIN).to_memory()
            a.select("k", "note").to_memory()

        assert left_by(build)["a"] == {"v", "s"}

    def test_all_streams_of_a_linear_join_may_leave_payload(self):
        def build(flow, a, b, c):
            flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.k = c.k"]).to_memory()

        assert left_by(build, "abc") == {name: {"v", "note", "s"} for name in "abc"}


class TestDetached:
    def made(self, build, names: str = "ab") -> list[pk.Stream]:
        flow = pk.LocalFlow()
        streams = [source(flow, name) for name in names]
        build(flow, *streams)
        found = untouched(flow._sinks, [stream._node for stream in streams])
        read = {node: read_late(node, paths, flow._sinks) for node, paths in found.items()}
        late = {node: Late(paths, read[node], None, None, "source") for node, paths in found.items()}
        return detached(flow._sinks, late)

    def test_f03_only_keys_times_and_places_have_values_in_the_join(self):
        (sink,) = self.made(lambda flow, a, b: a.join(b, on="k", within=WITHIN).to_memory())
        assert isinstance(sink.node, FetchNode)
        (join,) = [node for node in walk(sink.node) if isinstance(node, OperatorNode)]
        for port, name in enumerate("ab"):
            assert join.types[port].columns.names[-1] == f"__at_{name}"
            assert join.inputs[port].lets_go == {("v",), ("note",), ("s",)}

    def test_results_are_complete_and_have_the_columns_they_had(self):
        def build(flow, a, b):
            a.join(b, on="k", within=WITHIN).select("v", "note AS n").to_memory()

        (sink,) = self.made(build)
        assert sink.node.columns.names == ["v", "n"]
        ((row, _, columns),) = sink.node.fetched
        assert (row, columns) == ("__at_a", (("n", ("note",)), ("v", ("v",))))

    def test_places_of_one_source_that_is_joined_with_itself_have_names_of_their_own(self):
        (sink,) = self.made(lambda flow, a: a.join(a, on="k", within=WITHIN).to_memory(), "a")
        assert {row for row, *_ in sink.node.fetched} == {"__at_a", "__at_a@join0:1"}

    def test_a_condition_that_comes_to_need_what_state_lacks_is_refused(self):
        flow = pk.LocalFlow()
        a, b = (source(flow, name) for name in "ab")
        a.join(b, on="k", within=WITHIN, where="l.v < r.v").to_memory()
        late = {a._node: Late(frozenset([("v",)]), frozenset([("v",)]), None, None, "source")}
        with pytest.raises(AskedTooSoonError, match=r"where= of join0 needs 'v'.*\.where\(…\) of the results"):
            detached(flow._sinks, late)

    def test_a_stream_that_no_join_has_made_fetches_nothing(self):
        flow = pk.LocalFlow()
        a, b = (source(flow, name) for name in "ab")
        a.join(b, on="k", within=WITHIN).to_memory()
        a.union(b).to_memory()
        paths = frozenset([("v",)])
        late = {a._node: Late(paths, read_late(a._node, paths, flow._sinks), None, None, "source")}
        assert late[a._node].lets_go == frozenset()
        _, union = detached(flow._sinks, late)
        assert not [node for node in walk(union.node) if isinstance(node, FetchNode)]
        assert union.node.members[0].columns.names == SCHEMA.names

    def test_columns_of_places_are_named_by_their_source(self):
        flow = pk.LocalFlow()
        assert place_of(source(flow, "orders")._node) == "__at_orders"


def flows(flow: pk.Flow, a: pk.Stream, b: pk.Stream, c: pk.Stream, how: str) -> list[pk.MemoryOutlet]:
    """A flow with all kinds of consumers after joins."""
    joined = a.where("v % 7 < 6").join(b.select("*", "v * 2 AS twice"), on="k", within=WITHIN, how=how)
    kept = joined.select("k", "t", "note AS n", "s.b AS deep")
    outs = [joined, kept, kept.where("n IS NULL OR n LIKE '%1'")]
    outs += [a.join(a, on="k", within=pk.band(before=1, after=0))]
    outs += [flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.k = c.k"], within=WITHIN)]
    outs += [flow.join(a=a, b=c, c=c, on=["a.k = b.k", "b.k = c.k"], within=WITHIN, plan="(a b) c")]
    outs += [joined.window(range=5).by("k").agg(most=pk.max("note"))]
    outs += [kept.union(kept).where("deep IS NOT NULL")]
    return [out.to_memory() for out in outs] + [a.late.to_memory()]


pairs = st.lists(st.tuples(st.none() | st.integers(0, 3), st.integers(0, 12)), max_size=12)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    st.lists(st.tuples(pairs, pairs, pairs), min_size=1, max_size=3), st.sampled_from(["inner", "left", "full", "semi"])
)
def test_results_are_the_same_wherever_payload_is(tmp_path_factory, epochs, how):
    folder = tmp_path_factory.mktemp("flows")
    for name in "abc":
        (folder / name).mkdir()
    for number, epoch in enumerate(epochs):
        for name, numbers in zip("abc", epoch, strict=True):
            shifted = [(k, t + 10 * number) for k, t in numbers]
            pq.write_table(rows(shifted, f"{name}{number}-"), folder / name / f"{number}.parquet", row_group_size=5)
    found = [_results(folder, payload, how) for payload in ("row", "source", "segments")]
    assert found[0] == found[1] == found[2]


def _results(folder: Path, payload: str, how: str) -> list[Counter[str]]:
    flow = pk.LocalFlow(shards=2)
    outs = flows(flow, *(source(flow, name, str(folder / name), payload) for name in "abc"), how)
    flow.run()
    return [Counter(map(str, out.table().to_pylist())) for out in outs]
