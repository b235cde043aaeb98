"""What a prompt and a notebook show of flows, streams, outlets, queries, progress and plans."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import penstock as pk
from penstock.flow.display import Status


@pytest.fixture
def flow():
    return pk.LocalFlow(memory="64 MB")


@pytest.fixture
def orders(flow):
    rows = pa.table({"id": [1, 2], "<b>": ["x", "y"], "t": [0, 5]})
    return flow.source(rows, time="t", name="orders", progress=pk.ordered())


def test_a_flow_shows_where_it_runs_its_memory_sources_and_sinks(flow, orders):
    assert repr(flow) == "<flow in process, 64.0 MB; sources: 'orders'; sinks: none yet>"
    orders.to_memory()
    assert repr(flow) == "<flow in process, 64.0 MB; sources: 'orders'; sinks: memory>"
    assert (
        flow._repr_html_()
        == f"<pre>{repr(flow).replace('<', '&lt;').replace('>', '&gt;').replace(chr(39), '&#x27;')}</pre>"
    )


def test_a_stream_shows_its_sources_and_columns_and_a_notebook_escapes_them(orders):
    assert repr(orders) == "<stream of 'orders': id int64, <b> string, t int64>"
    html = orders._repr_html_()
    assert "<tr><td>t</td><td>int64</td><td>event time</td></tr>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert "<b>" not in html


def test_windows_and_late_rows_show_what_they_are_of(orders):
    assert repr(orders.late) == "<late rows of 'orders'>"
    assert repr(orders.window(range=10).by("id")).endswith("by id of " + repr(orders) + ": call .agg(…)>")


def test_an_outlet_shows_its_sink_and_one_in_memory_its_rows(flow, orders, tmp_path):
    rows = orders.to_memory()
    assert repr(rows) == "<outlet to memory: 0 rows so far>"
    assert repr(orders.to_parquet(str(tmp_path))) == f"<outlet: results to parquet {tmp_path}, exactly once>"
    assert repr(orders.late.to_parquet(f"{tmp_path}/late")).startswith("<outlet: late rows to parquet")
    flow.run()
    assert repr(rows) == "<outlet to memory: 2 rows so far>"


def test_rows_in_memory_are_shown_though_not_every_epoch_knows_that_a_column_is_never_null(orders):
    rows = orders.late.to_memory()
    kinds = pa.schema([("t", pa.int64()), pa.field("late_source", pa.string(), nullable=False)])
    late = pa.table({"t": [1], "late_source": ["orders"]})
    rows.sink.epochs.update({0: late, 1: late.cast(kinds), 2: late})
    assert rows.table().to_pylist() == late.to_pylist() * 3


def test_explain_prints_nothing_and_its_value_shows_itself_once(flow, orders, capsys):
    orders.to_memory()
    text = flow.run().explain()
    assert capsys.readouterr().out == ""
    assert repr(text) == str(text)
    assert text._repr_html_().startswith("<pre>In process: 64.0 MB")


def test_a_prompt_shows_explain_once():
    script = (
        "import penstock as pk, pyarrow as pa\n"
        "flow = pk.LocalFlow()\n"
        "rows = flow.source(pa.table({'t': [1]}), time='t').to_memory()\n"
        "query = flow.run()\n"
        "query.explain()\n"
    )
    said = subprocess.run([sys.executable, "-i", "-q"], input=script, capture_output=True, text=True, check=True)
    assert said.stdout.count("In process:") == 1


def test_a_query_shows_its_status_and_progress(flow, orders):
    orders.to_memory()
    query = flow.run()
    assert repr(query).startswith("<query in process: ended, last committed epoch: 1; 2 epochs, 2 rows in (0 late), ")
    assert query.status == Status("ended", epoch=1)
    assert query.exception is None
    assert repr(query.progress()) == str(query.progress())
    html = query.progress()._repr_html_()
    assert html.startswith("<p>2 epochs, 2 rows in")
    assert html.count("<tr>") == 3


def test_a_query_without_end_has_stopped(flow, orders):
    orders.to_memory()
    assert flow.run(end=False).status == Status("stopped", epoch=0)


def test_the_package_lists_its_public_names_and_nothing_else():
    assert dir(pk) == sorted(pk.__all__)
    assert all(not name.startswith("_") for name in dir(pk))
    assert all(getattr(pk, name) is not None for name in dir(pk))
