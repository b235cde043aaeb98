"""Cost models of multi-way joins: the general tree against the unrolled forms, brute force, and the printed digits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lab.multi_way_unrolled import (
    four_way_communication,
    reconstruction_as_printed,
    storage_as_communication,
    three_way_communication,
    three_way_storage,
)
from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Leaf, Linear, Plan, trees
from penstock.operators.multi_way.plan import predicates_of
from penstock.planner.multi_way.costs import (
    JoinLoad,
    Relation,
    communication,
    forwarded_share,
    partials,
    predict_join,
    reconstruction,
    reconstruction_order,
    storage,
)
from penstock.planner.multi_way.probing import connected_orders, probe_orders
from tests.planner.multi_way.loads import BASE, EXTENDED, drawn, random_query, tpch, without_customers


class TestThreeWay:
    def test_f10_the_tree_equals_the_closed_form(self):
        rng = np.random.default_rng(1)
        for _ in range(200):
            load = drawn(rng, "RST", ["RS", "RT", "ST"])
            for mode, carried in (("early", "RST"), ("late", "")):
                terms = three_way_communication(load, "R", "S", "T", mode)
                cost = predict_join(BASE, load, carried, order="TSR" if mode == "late" else "")
                assert cost.bytes() == pytest.approx(sum(terms.values()))
                assert cost.storage == pytest.approx(three_way_storage(load, "R", "S", "T", mode))

    def test_f10_early_storage_is_early_communication(self):
        load = drawn(np.random.default_rng(2), "RST", ["RS", "RT"])
        cost = predict_join(BASE, load, "RST")
        assert cost.storage == cost.communication == cost.bytes()

    def test_f10_early_needs_no_reconstruction(self):
        cost = predict_join(BASE, drawn(np.random.default_rng(3), "RST", ["RS", "RT"]), "RST")
        assert (cost.order, cost.reconstruction, cost.forwarding, cost.reconstruction_messages) == ((), 0, 0, 0)


class TestGeneralTree:
    def test_f11_the_tree_equals_the_unrolled_4_way_form(self):
        rng = np.random.default_rng(4)
        for _ in range(100):
            load = drawn(rng, ["li", "s", "o", "c"], [("li", "s"), ("o", "c"), ("li", "o")])
            order = tuple(rng.permutation(["li", "s", "o", "c"]).tolist())
            early = predict_join(EXTENDED, load, load.relations)
            late = predict_join(EXTENDED, load, (), order)
            assert early.bytes() == pytest.approx(four_way_communication(load, (), "early"))
            assert late.bytes() == pytest.approx(four_way_communication(load, order, "late"))

    def test_f11_the_recursion_equals_the_sum_on_random_trees(self):
        """Eqs 4.1–4.4 as they are written, child by child, root excluded."""
        rng = np.random.default_rng(5)

        def below(tree, load, carried, leaf):
            own = load.width(tree.rels, leaf if isinstance(tree, Leaf) else carried) * load.card(tree.rels)
            return own + sum(below(child, load, carried, leaf) for child in tree.children)

        for n in (2, 3, 4, 5, 6):
            names, on, load = random_query(rng, n)
            every = [*trees(names, on)]
            for place in rng.integers(0, len(every), 10):
                plan = Plan(every[place], on)
                for carried in (frozenset(names), frozenset(), frozenset(names[::2])):
                    root = load.card(names) * load.width(names, carried)
                    summed = communication(plan, load, carried)
                    assert summed + root == pytest.approx(below(plan.root, load, carried, carried))
                    assert summed + root == pytest.approx(communication(plan, load, carried, root="included"))
                    assert storage(plan, load, carried) + root == pytest.approx(
                        below(plan.root, load, carried, frozenset(names))
                    )

    def test_f11_erratum_the_root_as_printed_contradicts_the_3_way_model(self):
        load = drawn(np.random.default_rng(6), "RST", ["RS", "RT"])
        closed = sum(three_way_communication(load, "R", "S", "T", "early").values())
        assert communication(BASE, load, "RST") == pytest.approx(closed)
        assert communication(BASE, load, "RST", root="included") > 1.001 * closed

    def test_f11_late_root_included_is_what_forwarding_every_result_takes(self):
        load = drawn(np.random.default_rng(7), "RST", ["RS", "RT"])
        cost = predict_join(BASE, load, "", forwarded=1.0)
        assert communication(BASE, load, "", root="included") == pytest.approx(cost.communication + cost.forwarding)

    def test_f11_erratum_the_right_child_s_storage_does_not_belong_into_communication(self):
        """As printed, late communication would hold payload, which late never moves in the join phase."""
        load = drawn(np.random.default_rng(8), "RST", ["RS", "RT"])
        assert storage_as_communication(load, "RS", "T") > communication(BASE, load, "")
        thin = JoinLoad({rel: Relation(each.rows, each.keys, 0) for rel, each in load.relations.items()}, {})
        fat = JoinLoad(load.relations, {})
        assert communication(BASE, thin, "") == communication(BASE, fat, "")
        assert storage_as_communication(thin, "RS", "T") != storage_as_communication(fat, "RS", "T")

    def test_f11_erratum_all_pairs_below_a_node_count_not_neighbours_only(self):
        load = JoinLoad({name: Relation(10, 1, 1) for name in "abc"}, {frozenset("ab"): 0.5, frozenset("ac"): 0.5})
        assert load.card("abc") == load.card("cab") == load.card("bca") == 250

    def test_counted_rows_replace_the_product(self):
        load = JoinLoad({name: Relation(10, 1, 1) for name in "ab"}, {frozenset("ab"): 0.5}, {frozenset("ab"): 7})
        assert load.card("ba") == 7


class TestReconstruction:
    def test_f08_ascending_payload_is_the_best_order(self):
        """Against all orders of up to six relations: all keys and what was fetched so far, hop by hop."""
        rng = np.random.default_rng(9)
        orders = {n: np.array([*itertools.permutations(range(n))]) for n in range(2, 7)}
        for _ in range(1000):
            n = int(rng.integers(2, 7))
            payload = rng.integers(0, 50, n)
            load = JoinLoad({f"r{i}": Relation(1, 5, float(payload[i])) for i in range(n)})
            hops = np.cumsum(payload[orders[n]], axis=1)[:, :-1] + 5 * n
            assert reconstruction(load, reconstruction_order(load)) == hops.sum(axis=1).min()

    def test_f08_erratum_the_order_does_matter(self):
        """The thesis remarks that the total does not depend on it."""
        load = JoinLoad({name: Relation(1, 1, size) for name, size in zip("abc", (10, 20, 40), strict=True)})
        assert len({reconstruction(load, order) for order in itertools.permutations("abc")}) == 6

    def test_f08_ties_go_by_name(self):
        load = JoinLoad({name: Relation(1, 1, 5) for name in "cab"})
        assert reconstruction_order(load) == ("a", "b", "c")

    def test_f08_erratum_the_printed_form_has_a_hop_too_many_and_no_results(self):
        rng = np.random.default_rng(10)
        for _ in range(50):
            load = drawn(rng, "abcd", ["ab", "bc", "cd"])
            keys, payloads = load.width("abcd"), [load.relations[rel].payload for rel in "abcd"]
            literal = 4 * keys + sum((4 - place) * each for place, each in enumerate(payloads))
            assert reconstruction_as_printed(load, "abcd") == pytest.approx(literal)
            last = keys + sum(payloads)
            charged = load.results * (reconstruction_as_printed(load, "abcd") - last)
            assert reconstruction(load, "abcd") == pytest.approx(charged)

    def test_f08_the_assumed_widths_of_tpch(self):
        """Payload bytes per result: 379 against 325 for three relations, 821 against 682 for four (§6-16)."""
        four = tpch(1, 1)
        three = without_customers(four)

        def payload(load, order):
            one = JoinLoad(load.relations, counted={frozenset(load.relations): 1.0})
            return reconstruction(one, order) - (len(order) - 1) * load.width(load.relations)

        assert payload(three, ("s", "o", "li")) == 379
        assert payload(three, reconstruction_order(three)) == 325
        assert payload(four, ("c", "o", "s", "li")) == 821
        assert payload(four, reconstruction_order(four)) == 682

    def test_an_order_that_leaves_a_relation_out_is_refused(self):
        load = drawn(np.random.default_rng(0), "RST", ["RS", "RT"])
        with pytest.raises(ConfigError, match="order='R S' does not visit the relations whose payload is fetched"):
            predict_join(BASE, load, "", order="RS")


class TestHybrid:
    def test_f19_the_ends_are_early_and_late(self):
        load = drawn(np.random.default_rng(11), "RST", ["RS", "RT"])
        late = predict_join(BASE, load, "", forwarded=1.0)
        whole = load.width("RST")
        assert late.bytes("all") == pytest.approx(late.bytes() + load.results * whole)
        assert predict_join(BASE, load, "RST", forwarded=1.0).bytes("all") == predict_join(BASE, load, "RST").bytes()

    def test_f19_the_formula_term_by_term(self):
        """Carry R: Q[φ(K + p_R) + 1·(K + p_R) + p_first]."""
        load = drawn(np.random.default_rng(12), "RST", ["RS", "RT"])
        cost = predict_join(BASE, load, "R", order="ST", forwarded=0.5)
        hop = load.width("RST", "R")
        assert cost.forwarding == pytest.approx(load.results * 0.5 * hop)
        assert cost.reconstruction == pytest.approx(load.results * (hop + load.relations["S"].payload))
        sizes = load.relations
        expected = sum(sizes[rel].rows * load.width(rel, "R") for rel in "RST") + load.card("RS") * load.width(
            "RS", "R"
        )
        assert cost.communication == pytest.approx(expected)

    def test_f19_one_late_relation_takes_no_hop_but_the_way_there(self):
        load = drawn(np.random.default_rng(13), "RST", ["RS", "RT"])
        cost = predict_join(BASE, load, "RS", forwarded=1.0)
        assert cost.reconstruction == 0
        assert cost.forwarding == pytest.approx(load.results * load.width("RST", "RS"))
        assert cost.reconstruction_messages == pytest.approx(load.results)


class TestMessages:
    def test_early_and_late(self):
        load = drawn(np.random.default_rng(14), "RST", ["RS", "RT"])
        rows = sum(each.rows for each in load.relations.values()) + load.card("RS")
        assert predict_join(BASE, load, "RST").messages == pytest.approx(rows)
        assert predict_join(BASE, load, "", forwarded=0.25).messages == pytest.approx(rows + 2.25 * load.results)

    @pytest.mark.parametrize(
        ("relations", "rows", "orders", "payload", "bytes_", "messages"),
        [
            (3, 500e3, 500e3, 0, 0.97, 1.66),
            (3, 6_001_215, 1.5e6, 0, 1.17, 1.89),
            (3, 500e3, 500e3, 3072, 0.07, 1.66),
            (4, 500e3, 500e3, 0, 1.14, 1.93),
            (4, 6_001_215, 1.5e6, 0, 1.89, 2.58),
            (4, 500e3, 500e3, 3072, 0.14, 1.93),
        ],
    )
    def test_late_over_early_of_the_measured_cases(self, relations, rows, orders, payload, bytes_, messages):
        """The table of §3: bytes alone mispredict both 4-way results of the thesis."""
        load = tpch(rows, orders, payload)
        if relations == 3:
            load = without_customers(load)
            plan = Plan.parse("(li o) s", ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"])
            order, share = ("s", "o", "li"), 0.0
        else:
            plan, order, share = EXTENDED, ("c", "o", "s", "li"), 1.0
        early, late = predict_join(plan, load, load.relations), predict_join(plan, load, (), order, forwarded=share)
        assert late.bytes() / early.bytes() == pytest.approx(bytes_, abs=0.005)
        assert late.messages / early.messages == pytest.approx(messages, abs=0.005)

    def test_with_the_way_to_the_first_store(self):
        for rows, orders, part in ((500e3, 500e3, 1.18), (6_001_215, 1.5e6, 1.95)):
            load = tpch(rows, orders)
            late = predict_join(EXTENDED, load, (), ("c", "o", "s", "li"), forwarded=1.0)
            early = predict_join(EXTENDED, load, load.relations)
            assert late.bytes("all") / early.bytes() == pytest.approx(part, abs=0.005)

    def test_the_share_that_is_forwarded(self):
        assert forwarded_share(BASE, "TSR") == pytest.approx(1 / 3)
        assert forwarded_share(BASE, "SRT") == 1
        assert forwarded_share(EXTENDED, ("c", "o", "s", "li")) == 1
        assert forwarded_share(BASE, ()) == 0


class TestLinear:
    def test_f31_bytes_are_the_partials_times_their_width(self):
        plan = Plan.parse("R S T", ["R.a = S.a", "R.b = T.b"])
        load = drawn(np.random.default_rng(15), "RST", ["RS", "RT"])
        orders = {"R": "ST", "S": "RT", "T": "RS"}
        expected = sum(each.rows * each.width for each in load.relations.values())
        expected += sum(load.card(pair) / 2 * load.width(pair, pair) for pair in ("RS", "SR", "TR"))
        assert communication(plan, load, "RST", orders=orders) == pytest.approx(expected)

    def test_f31_a_linear_operator_stores_relations_only(self):
        plan = Plan.parse("R S T", ["R.a = S.a", "R.b = T.b"])
        load = drawn(np.random.default_rng(16), "RST", ["RS", "RT"])
        leaves = sum(each.rows * each.width for each in load.relations.values())
        assert storage(plan, load, "RST") == storage(plan, load, "", root="included") == pytest.approx(leaves)

    def test_f31_the_two_messages_of_a_pair_are_one_each(self):
        """Two relations: a linear operator is a binary one."""
        load = drawn(np.random.default_rng(17), "RS", ["RS"])
        linear = Plan(Linear(("R", "S")), predicates_of(["R.a = S.a"]))
        binary = Plan.parse("R S", ["R.a = S.a"])
        orders = {"R": "S", "S": "R"}
        assert communication(linear, load, "RS", orders=orders) == communication(binary, load, "RS")

    def test_f25_the_probe_order_is_the_best_of_all(self):
        rng = np.random.default_rng(18)
        for n in (3, 4, 5, 6):
            for _ in range(6):
                names, on, load = random_query(rng, n)
                for origin, order in probe_orders(load, on).items():

                    def work(path, origin=origin, load=load):
                        return sum(count for _, count in partials(load, {origin: path}))

                    others = [name for name in names if name != origin]
                    connected = [
                        path
                        for path in itertools.permutations(others)
                        if all(
                            any(p.connects(frozenset((origin, *path[:i])), frozenset((path[i],))) for p in on)
                            for i in range(len(path))
                        )
                    ]
                    assert sorted(connected) == sorted(connected_orders(origin, names, on))
                    assert work(order) == min(work(path) for path in connected)

    def test_f25_many_relations_are_ordered_greedily(self):
        names = [f"r{i}" for i in range(8)]
        on = predicates_of([f"r0.k{i} = r{i}.k{i}" for i in range(1, 8)])
        rates = {frozenset(("r0", f"r{i}")): 0.01 * (9 - i) for i in range(1, 8)}
        load = JoinLoad({name: Relation(100, 8, 8) for name in names}, rates)
        assert probe_orders(load, on)["r0"] == ("r7", "r6", "r5", "r4", "r3", "r2", "r1")

    def test_f25_a_tree_probes_less_than_a_linear_operator(self):
        """What a tree keeps, a linear operator computes again for each arrival of the last relation."""
        load = tpch(1000, 250)
        linear = Plan.parse("li s o c", EXTENDED.predicates)
        tree = predict_join(EXTENDED, load, ())
        line = predict_join(linear, load, (), orders=probe_orders(load, linear.predicates))
        assert line.join_messages > tree.join_messages
        assert line.storage < tree.storage


def test_a_size_below_nothing_is_refused():
    with pytest.raises(ConfigError, match="payload=-1 of a relation must be 0 or more"):
        Relation(1, 1, -1)
    with pytest.raises(ConfigError, match="rows=nan"):
        Relation(math.nan, 1, 1)
