"""What is said to tell the rows of a join's streams apart: what may be written, and that results are the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

LINES = pa.table({"oid": [1, 1, 2], "line": [1, 2, 1], "tags": [[1], [2], [3]], "t": [0, 1, 2]})
ORDERS = pa.table({"oid": [1, 2, 2], "note": ["a", "b", "c"], "t": [5, 6, 7]})
ON = ["li.oid = o.oid"]


@pytest.fixture
def flow() -> pk.LocalFlow:
    return pk.LocalFlow()


@pytest.fixture
def streams(flow) -> dict[str, pk.Stream]:
    return {alias: flow.source(table, time="t", name=alias) for alias, table in {"li": LINES, "o": ORDERS}.items()}


@pytest.mark.parametrize("key", [None, {}, {"o": "oid"}, {"o": ["oid"], "li": ("oid", "line")}])
def test_of_two_rows_with_one_key_both_are_joined(flow, streams, key):
    """§6-14 would let the second order 2 replace the first. Rows are told apart by their places, so none is lost."""
    out = flow.join(**streams, on=ON, key=key).to_memory()
    flow.run()
    assert sorted(out.table().column("note").to_pylist()) == ["a", "a", "b", "c"]


def test_a_key_that_does_not_hold_is_told(flow, streams):
    flow.join(**streams, on=ON, key={"o": "oid"}).to_memory()
    said = str(flow.run().explain())
    assert (
        "key={'o': ['oid']} does not hold: 3 rows of li met 4 of o. All of them are results; keys only serve "
        "predictions"
    ) in said


def test_nothing_is_said_of_a_key_that_holds(flow, streams):
    flow.join(**streams, on=ON, key={"li": ["oid", "line"]}).to_memory()
    said = str(flow.run().explain())
    assert "key of li: oid, line" in said
    assert "does not hold" not in said


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (["oid"], r"key=\['oid'\] names no stream\. Write key=\{'li': \['id'\]\}"),
        ("oid", r"key='oid' names no stream"),
        ({"q": ["oid"]}, r"key=\{'q': …\} names no stream of this join\. Its streams are: li, o\."),
        (
            {"li": []},
            r"key=\{'li': \[\]\} names no column\. Name the columns that identify a row, or leave li out of key=: its "
            r"rows are then identified by their position in the stream\.",
        ),
        ({"li": ["odi"]}, r"key=\{'li': …\}.*'odi'.*oid"),
        ({"li": ["oid", "line", "oid"]}, r"key=\{'li': \['oid', 'line', 'oid'\]\} names 'oid' twice\. Write it once\."),
        ({"li": [3]}, r"key=\{'li': …\}.*3"),
        ({"li": 3}, r"key=\{'li': …\}.*3"),
    ],
)
def test_what_cannot_be_a_key_is_refused_while_the_flow_is_built(flow, streams, key, says):
    with pytest.raises(pk.ConfigError, match=says):
        flow.join(**streams, on=ON, key=key)


def test_no_stream_can_be_called_key(flow, streams):
    with pytest.raises(pk.ConfigError, match=r"key= is an argument of join\(\), so no stream can be called that"):
        flow.join(li=streams["li"], key=streams["o"], on=["li.oid = key.oid"])


def test_values_that_cannot_be_compared_are_no_key(flow):
    a = pa.table({"k": [1], "m": pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64())), "t": [0]})
    streams = {name: flow.source(a, time="t", name=name) for name in "ab"}
    with pytest.raises(pk.ConfigError, match="map"):
        flow.join(**streams, on="a.k = b.k", key={"a": "m"})
