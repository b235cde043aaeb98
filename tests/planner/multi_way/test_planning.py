"""The plan that a flow's join starts with, what its edges are predicted to send, and how that reads."""

from __future__ import annotations

import re

import numpy as np
import pytest

from penstock.operators.multi_way import Plan, trees
from penstock.operators.multi_way.plan import left_deep, predicates_of
from penstock.planner.multi_way import (
    JoinLoad,
    JoinOutlook,
    Relation,
    Statistics,
    assumed_load,
    cheaper_plan,
    explain_join,
    first_plan,
)
from penstock.planner.multi_way.costs import communication
from penstock.planner.multi_way.explain import explain_chain
from penstock.planner.multi_way.planning import MARGIN, SENT, EdgeLoad, edges, total
from tests.planner.multi_way.loads import BASE, EXTENDED, random_query, tpch

ON = predicates_of(["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
SIZES = {"li": Relation(1000, 12, 115), "o": Relation(250, 8, 105), "s": Relation(10, 4, 137)}


def seconds(sent: EdgeLoad) -> float:
    return SENT.byte * sent.bytes + SENT.message * sent.messages


class TestEdges:
    def test_f01_they_are_those_of_the_base_and_the_extended_topology(self):
        load = JoinLoad({name: Relation(10, 8, 92) for name in "RST"})
        assert [(edge.source, edge.target) for edge in edges(BASE, load, "")] == [
            *[("R", "S"), ("S", "R")],
            *[("R S", "T"), ("T", "R S")],
        ]
        assert {(edge.source, edge.target) for edge in edges(EXTENDED, tpch(100, 25), "")} == {
            *[("li", "s"), ("s", "li"), ("o", "c"), ("c", "o")],
            *[("li s", "o c"), ("o c", "li s")],
        }

    def test_f11_all_together_are_the_communication_of_the_model(self):
        rng = np.random.default_rng(4)
        for n in (3, 4, 5):
            names, on, load = random_query(rng, n)
            for tree in trees(names, on):
                plan = Plan(tree, on)
                for carried in ((), names, names[:2]):
                    sent = total(edges(plan, load, carried))
                    assert sent.bytes == pytest.approx(communication(plan, load, carried))
                    assert sent.messages == pytest.approx(sum(load.card(store.rels) for store in plan.stores))


class TestCheaperPlan:
    def test_f13_it_is_the_cheapest_of_all_trees_and_clearly_cheaper(self):
        rng, found = np.random.default_rng(5), 0
        for _ in range(60):
            names, on, load = random_query(rng, int(rng.integers(3, 6)))
            plan = Plan(left_deep(names, on), on)
            if plan.has_one_key:
                continue
            now = seconds(total(edges(plan, load, names)))
            best = min(seconds(total(edges(Plan(tree, on), load, names))) for tree in trees(names, on))
            other = cheaper_plan(plan, load, names)
            assert (other is not None) == (best < (1 - MARGIN) * now)
            if other is not None:
                found += 1
                assert seconds(other[2]) == pytest.approx(best)
                assert seconds(other[1]) == pytest.approx(now)
        assert found > 10

    def test_two_streams_have_one_plan(self):
        on = predicates_of(["a.k = b.k"])
        load = JoinLoad({name: Relation(10, 8, 8) for name in "ab"})
        assert cheaper_plan(Plan.parse("a b", on), load, "ab") is None

    def test_a_linear_operator_is_left_as_it_is_and_preferred_to_trees(self):
        on = predicates_of(["a.k = b.k", "b.k = c.k"])
        load = JoinLoad({name: Relation(100, 8, 8) for name in "abc"}, {frozenset("ab"): 0.05, frozenset("bc"): 0.05})
        assert cheaper_plan(Plan.parse("a b c", on), load, "abc") is None
        found = cheaper_plan(Plan.parse("(a b) c", on), load, "abc")
        assert found is not None
        assert str(found[0]) == "a b c"

    @pytest.mark.parametrize(
        ("on", "one"),
        [
            (["a.k = b.k", "b.k = c.k"], True),
            (["a.k = b.k", "b.j = c.k"], False),
            (["a.k = b.k", "b.j = c.k", "a.k = b.j"], True),
            (["a.k = b.k", "b.k = c.k", "a.x = b.x"], False),
        ],
    )
    def test_streams_have_one_key_if_each_has_all(self, on, one):
        assert Plan(left_deep("abc", predicates_of(on)), predicates_of(on)).has_one_key == one


class TestAssumptions:
    @pytest.mark.parametrize(
        ("keys", "rows"),
        [
            ({}, 1000),
            ({"o": ("orderkey",)}, 1000),
            ({"li": ("orderkey",)}, 250),
            ({"li": ("orderkey",), "o": ("orderkey",)}, 250),
            ({"li": ("orderkey", "linenumber")}, 1000),
            ({"o": ("orderkey", "day")}, 250),
            ({"li": ("orderkey", "linenumber"), "o": ("orderkey", "day")}, 2500),
        ],
    )
    def test_f14_a_row_meets_one_by_a_key_and_ten_where_no_column_is_one(self, keys, rows):
        assert assumed_load(ON, SIZES, keys).card(("li", "o")) == pytest.approx(rows)

    def test_f14_empty_relations_predict_nothing(self):
        assert assumed_load(ON, SIZES | {"o": Relation(0, 8, 8)}, {}).card(("li", "o")) == 0


class TestFirstPlan:
    def test_the_narrow_dimension_comes_first(self):
        wide = SIZES | {"o": Relation(250, 8, 3000)}
        chosen = first_plan(ON, wide, {}, wide)
        assert str(chosen.plan) == "(li s) o"
        assert chosen.why.startswith("predicted to send 2,260 messages, ")
        assert "; (li o) s would send 2,260 messages, " in chosen.why

    def test_payload_that_stays_does_not_count(self):
        wide = SIZES | {"o": Relation(250, 8, 3000)}
        assert str(first_plan(ON, wide, {}, ["li", "s"]).plan) == "(li o) s"

    def test_without_sizes_streams_are_joined_as_they_are_given(self):
        chosen = first_plan(ON, SIZES | {"o": None}, {}, SIZES)
        assert str(chosen.plan) == "(li o) s"
        assert chosen.why == "the size of o is unknown, so streams are joined in the order given"

    def test_without_sizes_keys_tell_which_join_grows(self):
        """Lines meet lines of other orders by their shop; each meets one order."""
        on = predicates_of(["li.shop = b.shop", "li.orderkey = o.orderkey"])
        keys = {"li": ("orderkey", "line"), "b": ("id",), "o": ("orderkey",)}
        sizes = {"li": None, "b": Relation(5, 8, 8), "o": None}
        assert str(first_plan(on, sizes, {}, sizes).plan) == "(li b) o"
        chosen = first_plan(on, sizes, keys, sizes)
        assert str(chosen.plan) == "(li o) b"
        assert re.fullmatch(
            r"by keys alone, which make it \d+% cheaper than \(li b\) o: the size of li is unknown", chosen.why
        )


class TestExplain:
    def test_a_whole_join_reads_so(self):
        seen = Statistics().joined(("li", "o"), 90).joined(("li", "o", "s"), 9)
        for rel, rows in (("li", 100), ("o", 50), ("s", 4)):
            seen = seen.arrived(rel, rows, 12 * rows, 100 * rows).probed((rel,), rows, 112 * rows)
        seen = seen.probed(("li", "o"), 90, 90 * 224)
        plan = Plan.parse("(li o) s", ON)
        outlook = JoinOutlook(
            plan, "as plan= says", {"o": ("orderkey",), "s": ("suppkey",)}, {}, seen, ["li", "o", "s"]
        )
        assert explain_join(outlook) == [
            "plan (li o) s: as plan= says",
            "key of o: orderkey",
            "key of s: suppkey",
            "edge      predicted messages    bytes  measured messages    bytes",
            "li → o                   100  11.2 kB                100  11.2 kB",
            "o → li                    50   5.6 kB                 50   5.6 kB",
            "li o → s                 100  22.4 kB                 90  20.2 kB",
            "s → li o                   4    448 B                  4    448 B",
            "results                  100                           9",
            "measured: |li| = 100 (12 B keys, 100 B payload); |o| = 50 (12 B keys, 100 B payload); |s| = 4 (12 B keys, "
            "100 B payload)",
            "selectivities: f(li, o) = 0.018, f(li, s) = 0.025",
            # 1 µs a message and 10 ns a byte: 244 + 374 µs, and 164 + 195.
            "by these measurements, plan (li s) o would be 42% cheaper: it would have sent 164 messages, 19.5 kB; "
            "this one sent 244 messages, 37.4 kB. Plans cannot share state: to use it, write "
            "plan='(li s) o' and start with a new checkpoint folder",
        ]

    def test_nothing_is_concluded_before_rows_have_met_at_every_join(self):
        seen = Statistics().arrived("li", 100, 1200, 0).arrived("o", 50, 600, 0).joined(("li", "o"), 90)
        lines = explain_join(JoinOutlook(Plan.parse("(li o) s", ON), "", {}, {}, seen, ["li"]))
        assert not any("cheaper" in line or "selectivities" in line for line in lines)
        assert explain_chain(JoinOutlook(Plan.parse("(li o) s", ON), "", {}, {}, seen, ["li"]), "…plan") == []

    def test_f28_a_repeated_key_is_told_at_the_join_where_it_shows(self):
        seen = Statistics().joined(("li", "o"), 100).joined(("li", "o", "s"), 101)
        for rel, rows in (("li", 100), ("o", 50), ("s", 4)):
            seen = seen.arrived(rel, rows, 12 * rows, 0)
        plan, keys = Plan.parse("(li o) s", ON), {"o": ("orderkey",), "s": ("suppkey",)}
        told = [line for line in explain_join(JoinOutlook(plan, "", keys, {}, seen)) if "does not hold" in line]
        assert told == [
            "key={'s': ['suppkey']} does not hold: 100 rows of li o met 101 of s. All of them are results; keys "
            "only serve predictions"
        ]

    def test_statistics_of_edges_add_up_and_are_read_back(self):
        one, other = Statistics().probed("ab", 3, 300), Statistics().probed("ab", 2, 100).probed("c", 1, 8)
        both = one.merged([other])
        assert both.sent == {frozenset("ab"): 5, frozenset("c"): 1}
        assert Statistics.from_dict(both.as_dict()) == both
