"""`explain()` and `progress()`: the plan and the measurements as a person reads them."""

from __future__ import annotations

import re

import pyarrow as pa

import penstock as pk
from penstock.core.progress import NoPromise
from penstock.flow.promises import promise
from penstock.flow.report import EpochReport, OperatorReport, Report


def paid_orders():
    flow = pk.LocalFlow(memory="64 MB", shards=2)
    orders = flow.source(pa.table({"id": [1, 2], "t": [0, 5]}), time="t", name="orders", progress=pk.ordered())
    paid = flow.source(pa.table({"id": [1, None], "t": [3, None]}), time="t", name="paid")
    pairs = orders.where("id > 0").join(
        paid, on="id", within=pk.band(before=0, after=10), where="l.t < r.t", name="pay"
    )
    pairs.to_memory()
    orders.union(paid).late.to_memory()
    return flow.run()


def test_explain_says_what_each_operator_does_by_which_method_and_why(capsys):
    text = paid_orders().explain()
    assert capsys.readouterr().out == ""
    text = re.sub(r"\d+\.\d\d s in its tasks", "… s in its tasks", text)
    text = re.sub(r"charged by one task: .*", "charged by one task: …", text)
    assert text.splitlines() == [
        "In process: 64.0 MB for all operators, 2 tasks at a time, 32.0 MB each",
        "memory: exactly once",
        "  pay: inner join on id within band(before=0, after=10, ends='[]'), time of results: left",
        "    method oa (OA-Join: matches rows as they arrive, in any order, and purges them as bounds pass)",
        "    because nothing is measured yet; OA-Join defers nothing, and its state may outgrow the memory",
        "    pairs only where l.t < r.t (native)",
        "    measured: 3 rows in, 1 out over 2 epochs, 0.33 results per row, … s in its tasks",
        "    state: 0 rows, 0 B in 0 pages; most memory charged by one task: …",
        "    where id > 0 (native)",
        "      source orders by t: 2 rows (0 late), bound end",
        "    source paid by t: 2 rows (1 late), bound end",
        "memory: exactly once, late rows of orders, paid",
        "source orders promises rows in order of time; bounds used: all by pay",
        "source paid promises nothing before it ends; bounds used: all by pay",
    ]


def test_a_method_that_was_asked_for_is_explained_as_that():
    flow = pk.LocalFlow()
    a, b = (flow.source(pa.table({"k": [1], "t": [0]}), time="t", name=name) for name in "ab")
    a.join(b, on="k", within=pk.tumbling(5, origin=2), method="oa").to_memory()
    text = flow.run().explain()
    assert "because method='oa' was asked for" in text
    assert "tumbling(5" in text


def test_selections_and_unions_stand_where_they_are_done():
    flow = pk.LocalFlow()
    a, b = (flow.source(pa.table({"k": [1], "t": [0]}), time="t", name=name) for name in "ab")
    a.union(b).select("k").to_memory()
    assert flow.run().explain().splitlines()[1:] == [
        "memory: exactly once",
        "  select k (native)",
        "    union of 2: as far as the slowest",
        "      source a by t: 1 row (0 late), bound end",
        "      source b by t: 1 row (0 late), bound end",
        "source a promises nothing before it ends; no operator waits for its bounds",
        "source b promises nothing before it ends; no operator waits for its bounds",
    ]


def test_progress_sums_up_the_epochs_and_shows_the_last():
    report = paid_orders().progress()
    assert (report.rows_in, report.rows_out, report.late, len(report.epochs)) == (4, 1, 1, 2)
    assert re.fullmatch(
        r"2 epochs, 4 rows in \(1 late\), 1 out, [\d,]+ rows/s\n"
        r"last: epoch 1: 0 rows in \(0 late\), 0 out, state 0 rows / 0 B, bounds orders end, paid end, \d\.\d\d s",
        str(report),
    )


def test_before_the_first_epoch_there_is_nothing_to_report():
    assert str(Report()) == "0 epochs, 0 rows in (0 late), 0 out, 0 rows/s"


def test_state_is_counted_in_rows_and_bytes():
    epoch = EpochReport(3, 0.5, rows_out=1200, operators={"j": OperatorReport(state_rows=5000, state_bytes=64_000)})
    assert str(epoch) == "epoch 3: 0 rows in (0 late), 1,200 out, state 5,000 rows / 64.0 kB, bounds , 0.50 s"


def test_f23_explain_says_what_a_source_promises_and_which_of_its_bounds_count_for_whom():
    flow = pk.LocalFlow()
    rows = pa.table({"k": [1], "t": pa.array([0], pa.timestamp("us"))})
    a = flow.source(rows, time="t", name="a", progress=pk.bounded_delay("30 s", idle="1 min"))
    b = flow.source(rows, time="t", name="b", progress=pk.bounded_tuples(1000))
    union = a.union(b).where("k > 0")
    union.window(range="1 min", slide="5 s").agg(n=pk.count(), name="fast").to_memory()
    counts = union.window(range="1 h", slide="1 h", origin="20 min").agg(n=pk.count(), name="slow")
    counts.window(range="1 d").agg(n=pk.count(), name="daily").to_memory()
    a.lookup(pa.table({"k": [1]}), on="k", name="names").sort(name="last").to_memory()
    lines = flow.run().explain().splitlines()
    assert lines[-2:] == [
        "source a promises that no row comes more than 30 s after a later one, and holds nothing back once silent for "
        "1 min; bounds used: every 5 s by fast, every 1 h from 20 min on by slow, all by last",
        "source b promises that no row comes more than 1,000 rows after a later one; bounds used: every 5 s by "
        "fast, every 1 h from 20 min on by slow",
    ]


def test_every_policy_says_what_it_promises():
    said = [
        promise(policy)
        for policy in (pk.punctuated("done"), pk.blocks("1 min"), pk.timer("2 s"), pk.ordered(), NoPromise())
    ]
    assert said == [
        "the bounds in its column done",
        "blocks of 1 min, one after the other, in any order within one",
        "rows in order of time, and while silent none more than 2 s behind the clock",
        "rows in order of time",
        "nothing before it ends",
    ]
