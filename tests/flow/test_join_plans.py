"""By which plan a join of several streams runs, what `explain()` tells of it, and what it offers to chains of joins."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.flow.graph import operators_of
from penstock.planner.multi_way import Statistics

ON = ["li.ok = o.ok", "li.sk = s.sk"]
rng = np.random.default_rng(16)
LINES = pa.table({"ok": rng.integers(0, 50, 300), "sk": rng.integers(0, 40, 300), "pay": ["x" * 30] * 300})
ORDERS = pa.table({"ok": range(50), "note": ["y" * 200] * 50})
SHOPS = pa.table({"sk": range(4), "city": ["z" * 9] * 4})
TABLES = {
    name: rows.append_column("t", pa.array(range(rows.num_rows)))
    for name, rows in {"li": LINES, "o": ORDERS, "s": SHOPS}.items()
}


def sources(flow: pk.LocalFlow, tables: dict[str, pa.Table] = TABLES, epochs: int = 2) -> dict[str, pk.Stream]:
    """A stream of each table, its rows in some epochs."""
    cuts = {name: np.linspace(0, rows.num_rows, epochs + 1).astype(int).tolist() for name, rows in tables.items()}
    return {
        name: flow.source(
            [rows.slice(begin, end - begin) for begin, end in zip(cuts[name], cuts[name][1:], strict=False)],
            time="t",
            name=name,
        )
        for name, rows in tables.items()
    }


def plan_of(stream: pk.Stream) -> str:
    return str(operators_of(stream._node)[-1].part.join.plan)


def rows_of(out: Any) -> Counter[tuple]:
    table = out.table()
    return Counter(zip(*(table.column(name).to_pylist() for name in ("ok", "sk", "note", "city")), strict=True))


def edges(said: str) -> dict[str, tuple[int, ...]]:
    """Predicted and measured messages by edge."""
    shown = re.findall(
        r"^\s*(\w+(?: \w+)* → \w+(?: \w+)*)\s{2,}([\d,]+)\s+[\d.]+ k?B\s+([\d,]+)\s+[\d.]+ k?B$", said, re.M
    )
    return {edge: tuple(int(number.replace(",", "")) for number in counts) for edge, *counts in shown}


class TestFirstPlan:
    def test_partial_results_with_narrow_rows_come_first(self):
        flow = pk.LocalFlow()
        assert plan_of(flow.join(**sources(flow), on=ON)) == "(li s) o"

    def test_a_key_tells_that_a_join_does_not_grow(self):
        """Lines of 300 rows have a foreign key to 50 orders, but may meet each other's shops many times."""
        flow = pk.LocalFlow()
        tables = TABLES | {"s": pa.table({"sk": rng.integers(0, 40, 300), "city": ["z"] * 300, "t": range(300)})}
        streams = sources(flow, tables)
        assert plan_of(flow.join(**streams, on=ON)) == "(li s) o", "without keys each row is taken to meet one"
        keys = {"li": ("ok", "t"), "o": "ok", "s": "t"}
        assert plan_of(flow.join(**streams, on=ON, key=keys)) == "(li o) s"

    def test_streams_of_unknown_size_are_joined_in_the_order_in_which_they_are_given(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        streams["s"] = flow.source((rows for rows in [TABLES["s"]]), time="t", name="endless")
        joined = flow.join(**streams, on=ON)
        assert plan_of(joined) == "(li o) s"
        joined.to_memory()
        flow._sources = [source for source in flow._sources if source.name != "s"]
        assert "the size of s is unknown" in str(flow.run().explain())

    def test_a_small_gain_is_no_reason_to_leave_the_order_that_was_written(self):
        flow = pk.LocalFlow()
        tables = TABLES | {"o": TABLES["s"].rename_columns(["ok", "note", "t"])}
        assert plan_of(flow.join(**sources(flow, tables), on=ON)) == "(li o) s"

    @pytest.mark.parametrize(("order", "plan"), [(("li", "o", "s"), "(li s) o"), (("o", "li", "s"), "o (li s)")])
    def test_footers_of_files_tell_how_large_they_are(self, tmp_path, order, plan):
        flow = pk.LocalFlow()
        for name in order:
            (tmp_path / name).mkdir()
            pq.write_table(TABLES[name], tmp_path / name / "0.parquet", use_dictionary=False)
        streams = {name: flow.parquet(tmp_path / name, time="t", name=name) for name in order}
        assert plan_of(flow.join(**streams, on=ON)) == plan

    def test_what_a_select_or_a_filter_leaves_of_a_source_counts_as_the_source(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        streams["o"] = streams["o"].where("ok >= 0").select("ok", "note", "t")
        assert plan_of(flow.join(**streams, on=ON)) == "(li s) o"
        several = streams["o"].union(streams["o"])
        assert plan_of(flow.join(li=streams["li"], o=several, s=streams["s"], on=ON)) == "(li o) s"

    def test_a_query_in_sql_has_its_plan_chosen_too(self):
        flow = pk.LocalFlow()
        found = flow.sql(
            "SELECT li.ok, o.note, s.city FROM li, o, s WHERE li.ok = o.ok AND li.sk = s.sk", **sources(flow)
        )
        assert plan_of(found) == "(li s) o"

    def test_results_do_not_depend_on_it(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        outs = [flow.join(**streams, on=ON, plan=plan).to_memory() for plan in ("auto", "(li o) s", "o (s li)")]
        flow.run()
        first, *others = map(rows_of, outs)
        assert first.total() > 10
        assert all(other == first for other in others)


class TestExplain:
    def test_f01_each_edge_has_what_was_predicted_and_what_was_sent(self):
        flow = pk.LocalFlow(shards=3)
        out = flow.join(**sources(flow), on=ON, plan="(li o) s", key={"o": "ok", "s": "sk"}).to_memory()
        said = str(flow.run().explain())
        results = rows_of(out).total()
        assert "plan (li o) s: as plan= says" in said
        assert edges(said) == {
            "li → o": (300, 300),
            "o → li": (50, 50),
            "li o → s": (300, 300),
            "s → li o": (4, 4),
        }
        assert re.search(rf"results\s+300\s+{results}\n", said)

    def test_f24_bytes_are_those_of_the_rows_that_arrived(self):
        """A line has a hash, a time, two keys of 8 bytes and a text of 30 with its offset; an order a text of 200."""
        flow = pk.LocalFlow()
        flow.join(**sources(flow, epochs=1), on=ON, plan="(li o) s", name="j").to_memory()
        query = flow.run()
        ports = query.progress().epochs[0].operators["j-li-o"].ports
        assert [port.rows for port in ports] == [300, 50]
        assert ports[0].bytes == pytest.approx(300 * (8 + 8 + 8 + 8 + 34), rel=0.01)
        assert ports[0].payload == pytest.approx(300 * (8 + 34), rel=0.01), "this join passes on the shop, too"
        assert ports[1].bytes == pytest.approx(50 * (8 + 8 + 8 + 204), rel=0.01)
        said = str(query.explain())
        assert "|li| = 300 (32 B keys, 34 B payload)" in said
        assert "|o| = 50 (24 B keys, 204 B payload)" in said

    def test_f14_selectivities_are_the_exact_ones(self):
        flow = pk.LocalFlow(shards=2)
        out = flow.join(**sources(flow, epochs=4), on=ON, plan="(li o) s", name="j").to_memory()
        query = flow.run()
        seen = Statistics.from_dict(query._course.ledger.joins["j"])
        assert (seen.rows, seen.selectivity("li", "o")) == ({"li": 300, "o": 50, "s": 4}, 300 / 300 / 50)
        results = rows_of(out).total()
        assert seen.nodes == {frozenset(("li", "o")): 300, frozenset(("li", "o", "s")): results}
        assert f"f(li, o) = 0.02, f(li, s) = {results / 300 / 4:.3g}" in str(query.explain())

    def test_f14_it_says_which_plan_would_be_cheaper_by_how_much_and_how_to_take_it(self):
        flow = pk.LocalFlow()
        flow.join(**sources(flow), on=ON, plan="(li o) s").to_memory()
        said = str(flow.run().explain())
        found = re.search(r"by these measurements, plan \(li s\) o would be (\d+)% cheaper: it would have sent", said)
        assert found
        assert int(found[1]) > 30
        assert "to use it, write plan='(li s) o' and start with a new checkpoint folder" in said

    def test_f14_the_plan_that_it_names_does_send_what_it_says(self):
        said = []
        for plan in ("(li o) s", "(li s) o"):
            flow = pk.LocalFlow()
            flow.join(**sources(flow), on=ON, plan=plan).to_memory()
            said.append(str(flow.run().explain()))
        would = re.search(r"it would have sent ([\d,]+) messages", said[0])
        assert would
        assert int(would[1]) == sum(measured for _, measured in edges(said[1]).values())
        assert "by these measurements, no other plan would be clearly cheaper" in said[1]

    def test_f25_one_operator_sends_no_partial_results(self):
        flow = pk.LocalFlow()
        tables = dict.fromkeys("abc", TABLES["li"])
        flow.join(**sources(flow, tables), on=["a.ok = b.ok", "b.ok = c.ok"]).to_memory()
        said = str(flow.run().explain())
        assert "plan a b c: one operator sends no partial results, and all streams have its key" in said
        assert edges(said) == {f"{name} → the others": (300, 300) for name in "abc"}
        assert "predicted probe orders: a → b → c" in said
        assert "cheaper" not in said

    def test_f25_a_tree_over_one_key_is_told_of_the_operator(self):
        flow = pk.LocalFlow()
        tables = dict.fromkeys("abc", TABLES["li"])
        flow.join(**sources(flow, tables), on=["a.ok = b.ok", "b.ok = c.ok"], plan="(a b) c").to_memory()
        assert re.search(r"plan a b c would be \d+% cheaper", str(flow.run().explain()))

    def test_before_it_runs_predictions_go_by_the_sizes_that_are_known(self):
        flow = pk.LocalFlow()
        flow.join(**sources(flow), on=ON, key={"o": "ok", "s": "sk"}).to_memory()
        said = str(flow._query().explain())
        assert re.search(r"li → s\s+300\s+[\d.]+ kB\n", said)
        assert "cheaper" not in said

    @pytest.mark.parametrize(
        ("when", "says"),
        [
            ("early", ["li is early, as materialize= says", "o is early, as materialize= says"]),
            ("auto", ["li is early: in process rows are sent nowhere"]),
            (
                {"o": "late"},
                ["o is late: payload of o stays in the files, as payload='source' says", "li is early: in"],
            ),
        ],
    )
    def test_it_says_of_each_stream_when_its_rows_get_their_payload_and_why(self, tmp_path, when, says):
        flow = pk.LocalFlow()
        for name, rows in TABLES.items():
            (tmp_path / name).mkdir()
            pq.write_table(rows, tmp_path / name / "0.parquet")
        streams = {name: flow.parquet(tmp_path / name, time="t", name=name) for name in TABLES}
        flow.join(**streams, on=ON, materialize=when).to_memory()
        said = str(flow.run().explain())
        assert all(line in said for line in says), said

    def test_f03_payload_that_stays_is_sent_on_no_edge(self, tmp_path):
        """§2.4: late, join edges carry keys, times and places alone; what stayed is still known to be payload."""
        flow = pk.LocalFlow()
        for name, rows in TABLES.items():
            (tmp_path / name).mkdir()
            pq.write_table(rows, tmp_path / name / "0.parquet", use_dictionary=False)
        streams = {name: flow.parquet(tmp_path / name, time="t", name=name) for name in TABLES}
        flow.join(**streams, on=ON, materialize="late", plan="(li o) s", name="j").to_memory()
        query = flow.run()
        seen = Statistics.from_dict(query._course.ledger.joins["j"])
        per_row = {store: seen.sent_bytes[store] / seen.sent[store] for store in seen.sent}
        assert max(per_row.values()) <= 80, per_row
        assert seen.mean_payload("o") == pytest.approx(204, rel=0.05)
        assert {port.payload for op in query.progress().epochs[0].operators.values() for port in op.ports[1:]} == {0}


class TestChains:
    def chain(self, flow: pk.LocalFlow, **asked: Any) -> pk.Stream:
        streams = sources(flow)
        near = {"within": pk.always(), **asked}
        both = streams["li"].join(streams["o"], on="ok", **near)
        return both.join(streams["s"], on="sk", suffix="_s", **near)

    def test_a_chain_is_told_what_to_write_instead_with_what_is_predicted(self):
        flow = pk.LocalFlow()
        self.chain(flow).to_memory()
        said = str(flow.run().explain())
        shown = re.search(
            r"one join would be \d+% cheaper: this chain sent 654 messages, [\d.]+ kB, \d+ messages, [\d.]+ kB are "
            r"predicted for (.*)",
            said,
        )
        assert shown
        on = "on=['li.ok = o.ok', 'li.sk = s.sk']"
        assert shown[1] == f"flow.join(li=…, o=…, s=…, {on}, time='li', plan='(li s) o')"

    @pytest.mark.parametrize("asked", [{}, {"time": "latest"}, {"within": pk.tumbling(40)}])
    def test_what_is_told_has_the_same_rows(self, asked):
        flow = pk.LocalFlow()
        out = self.chain(flow, **asked).to_memory()
        told = re.search(r"predicted for (flow\.join\(.*\))", str(flow.run().explain()))
        assert told
        text = re.sub(r"\b(li|o|s)=…", r"\1=streams['\1']", told[1]).replace("within=…", "within=asked['within']")
        again = pk.LocalFlow()
        known = {"flow": again, "streams": sources(again), "asked": asked}
        other = eval(text, known).to_memory()
        again.run()
        assert rows_of(out) == rows_of(other)
        assert rows_of(out).total() > 0

    def test_columns_may_be_selected_and_renamed_between_joins(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        both = streams["li"].join(streams["o"], on="ok", within=pk.always()).select("ok", "sk AS shop", "`t` AS t")
        both.join(streams["s"], on={"shop": "sk"}, within=pk.always(), suffix="_s").to_memory()
        assert "on=['li.ok = o.ok', 'li.sk = s.sk']" in str(flow.run().explain())

    def test_streams_of_one_key_are_offered_one_operator(self):
        flow = pk.LocalFlow()
        a, b, c = sources(flow, {name: TABLES["li"].select(["ok", "t"]) for name in "abc"}).values()
        both = a.join(b, on="ok", within=pk.always())
        both.join(c, on="ok", within=pk.always(), suffix="_c").to_memory()
        assert "on=['a.ok = b.ok', 'a.ok = c.ok'], time='a', plan='a b c')" in str(flow.run().explain())

    @pytest.mark.parametrize(
        "asked", [{"within": pk.band(before=1000, after=1000)}, {"how": "left"}, {"where": "l.ok >= r.t * 0"}]
    )
    def test_nothing_is_offered_whose_results_could_be_others(self, asked):
        flow = pk.LocalFlow()
        self.chain(flow, **asked).to_memory()
        assert "one join" not in str(flow.run().explain())

    def test_nothing_is_offered_where_the_order_is_a_good_one(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        both = streams["li"].join(streams["s"], on="sk", within=pk.always())
        both.join(streams["o"], on="ok", within=pk.always(), suffix="_o").to_memory()
        assert "one join" not in str(flow.run().explain())

    def test_nothing_is_offered_where_partial_results_are_needed_elsewhere_or_a_key_is_computed(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        both = streams["li"].join(streams["o"], on="ok", within=pk.always())
        both.to_memory()
        both.join(streams["s"], on="sk", within=pk.always(), suffix="_s").to_memory()
        computed = both.select("ok", "sk + 0 AS shop", "t")
        computed.join(streams["s"], on={"shop": "sk"}, within=pk.always(), suffix="_s").to_memory()
        assert "one join" not in str(flow.run().explain())

    def test_nothing_is_offered_of_a_stream_that_is_joined_with_itself(self):
        flow = pk.LocalFlow()
        streams = sources(flow, {name: TABLES[name] for name in ("li", "s")})
        twice = streams["li"].join(streams["li"], on="ok", within=pk.always(), suffix="_again")
        twice.join(streams["s"], on="sk", within=pk.always(), suffix="_s").to_memory()
        assert "one join" not in str(flow.run().explain())

    def test_nothing_is_offered_of_a_filter_between_joins(self):
        flow = pk.LocalFlow()
        streams = sources(flow)
        both = streams["li"].join(streams["o"], on="ok", within=pk.always()).where("ok > 3")
        both.join(streams["s"], on="sk", within=pk.always(), suffix="_s").to_memory()
        assert "one join" not in str(flow.run().explain())


def test_joins_of_different_windows_are_not_one_whatever_their_methods():
    """A chain was asked whether it could be one join by giving the first the second one's method."""
    flow = pk.LocalFlow()
    a, b, c = (flow.source(pa.table({"t": [0], "k": [1]}), time="t", name=name) for name in "abc")
    rows = a.join(b, on="k", within=pk.tumbling(5)).join(c, on="k", method="rrpj", suffix="_c").to_memory()
    flow.run()
    assert rows.table().num_rows == 1
