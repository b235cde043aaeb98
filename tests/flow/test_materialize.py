"""When the rows of a join of several streams get their payload: what may be written."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.errors import ConfigError

ROWS = pa.table({"k": [1, 2], "t": [0, 1], "note": ["a", "b"]})
ON = ["a.k = b.k"]


@pytest.fixture
def flow(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(ROWS, tmp_path / name / "0.parquet")
    return pk.LocalFlow()


@pytest.fixture
def streams(flow, tmp_path):
    return {name: flow.parquet(tmp_path / name, time="t", name=name) for name in "ab"}


@pytest.mark.parametrize(
    "when",
    ["auto", "early", "late", pk.late(), pk.late(decoupled=True), {"a": "late"}, {"a": "late", "b": "early"}],
    ids=str,
)
def test_f19_results_are_the_same_whenever_rows_get_their_payload(flow, streams, when):
    rows = flow.join(**streams, on=ON, materialize=when).to_memory()
    flow.run()
    assert sorted(rows.table().select(["a_note", "b_note"]).to_pylist(), key=str) == [
        {"a_note": "a", "b_note": "a"},
        {"a_note": "b", "b_note": "b"},
    ]


def test_it_says_where_payload_of_the_sources_is(flow, streams):
    flow.join(**streams, on=ON, materialize={"a": "late", "b": "early"})
    assert {node.name: home for node, home in flow._homes.items()} == {"a": "source", "b": "row"}


def test_what_cannot_be_read_again_is_put_into_segments(flow, tmp_path):
    streams = {
        "a": flow.parquet(tmp_path / "a", time="t", name="a"),
        "b": flow.source(ROWS, time="t", name="tables"),
        "c": flow.parquet(tmp_path / "b", time="t", name="copied", payload="segments"),
    }
    rows = flow.join(**streams, on=["a.k = b.k", "b.k = c.k"], materialize="late").to_memory()
    assert {node.name: home for node, home in flow._homes.items()} == {
        "a": "source",
        "tables": "segments",
        "copied": "segments",
    }
    flow.run()
    notes = rows.table().select(["a_note", "b_note", "c_note"]).to_pylist()
    assert sorted(map(tuple, map(dict.values, notes))) == [("a",) * 3, ("b",) * 3]


class TestRefused:
    def test_an_unknown_word(self, flow, streams):
        with pytest.raises(ConfigError, match="materialize='never' must be one of auto, early, late"):
            flow.join(**streams, on=ON, materialize="never")

    def test_what_is_decoupled_for_one_stream(self, flow, streams):
        with pytest.raises(ConfigError, match=r"applies to the whole join. Write materialize=pk.late\(decoupled"):
            flow.join(**streams, on=ON, materialize={"a": pk.late(decoupled=True)})
        with pytest.raises(ConfigError, match=r"late\(decoupled='yes'\) must be True or False"):
            pk.late(decoupled="yes")

    def test_an_unknown_stream(self, flow, streams):
        with pytest.raises(ConfigError, match=r"names no stream of this join\. Its streams are: a, b"):
            flow.join(**streams, on=ON, materialize={"c": "late"})

    def test_rows_that_cannot_be_read_again_from_where_they_came(self, flow):
        with pytest.raises(ConfigError, match=r"it does not read files\. Write payload='segments'.*flow\.parquet"):
            flow.source(ROWS, time="t", payload="source")

    def test_two_joins_that_want_different_things_of_one_source(self, flow, streams):
        flow.join(**streams, on=ON, materialize="late")
        with pytest.raises(ConfigError, match="keeps the payload of source 'a' in the source"):
            flow.join(**streams, on=ON, materialize={"a": "early"})

    def test_a_place_that_there_is_not(self, flow, tmp_path):
        with pytest.raises(ConfigError, match=r"payload='disk' must be one of auto, row, source"):
            flow.parquet(tmp_path / "a", time="t", payload="disk")

    def test_a_column_named_like_a_place(self, flow):
        with pytest.raises(ConfigError, match="Column '__at_x' has a name that penstock reserves"):
            flow.source(pa.table({"t": [1], "__at_x": [1]}), time="t")
