"""What a multi-way join carries, and by which tree it runs: the cheapest there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lab.multi_way_choice import carried_by, choose, most_results, name_of, search
from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Plan, trees
from penstock.operators.multi_way.plan import predicates_of
from penstock.planner.multi_way import JoinLoad, Price, Relation, predict_join
from tests.planner.multi_way.loads import BASE, EXTENDED, drawn, random_query, tpch


def cheapest(costs: dict[str, float]) -> str:
    return min(costs, key=costs.__getitem__)


class TestChooser:
    def test_f13_it_is_the_cheaper_of_both_on_random_loads(self):
        rng = np.random.default_rng(1)
        seen = set()
        for _ in range(300):
            load = drawn(rng, "RST", ["RS", "RT"])
            early, late = predict_join(BASE, load, "RST").bytes(), predict_join(BASE, load, "").bytes()
            chosen = choose(BASE, load).name
            assert chosen == ("late" if late < early else "early")
            seen.add(chosen)
        assert seen == {"early", "late"}

    def test_f13_decoupled_reconstruction_is_free(self):
        rng = np.random.default_rng(2)
        for _ in range(100):
            load = drawn(rng, "RST", ["RS", "RT"])
            thin = all(each.payload == 0 for each in load.relations.values())
            assert choose(BASE, load, mode="decoupled").name == ("early" if thin else "late")

    def test_f13_a_tie_goes_to_early(self):
        load = JoinLoad({name: Relation(10, 5, 0) for name in "RST"}, counted={frozenset("RST"): 0.0})
        assert choose(BASE, load).considered["early"] == choose(BASE, load).considered["late"]
        assert choose(BASE, load).name == "early"

    def test_f13_late_pays_below_q_star_only(self):
        rng = np.random.default_rng(3)
        for _ in range(100):
            load = drawn(rng, ["li", "s", "o", "c"], [("li", "s"), ("o", "c"), ("li", "o")])
            limit = most_results(EXTENDED, load)
            for part, name in ((0.99, "late"), (1.01, "early")):
                at = JoinLoad(load.relations, load.selectivities, {frozenset(load.relations): part * limit})
                assert choose(EXTENDED, at).name == name

    def test_f13_q_star_of_equal_sizes(self):
        n, k, p = 1000.0, 50.0, 1000.0
        load = JoinLoad({name: Relation(n, k, p) for name in "RST"}, {frozenset("RS"): 0.002})
        results = 0.002 * n * n
        assert most_results(BASE, load) == pytest.approx((3 * n * p + 2 * results * p) / (6 * k + 3 * p))

    def test_f13_a_price_of_messages_can_turn_the_choice(self):
        """Bytes favour late with heavy payloads; it sends more messages."""
        load = tpch(500e3, 500e3, 3072)
        assert choose(EXTENDED, load).name == "late"
        assert choose(EXTENDED, load, price=Price(1.0, 5000.0)).name == "early"
        late, early = (choose(EXTENDED, load, among=(name,)) for name in ("late", "early"))
        dearer = late.cost.messages - early.cost.messages
        even = (early.cost.bytes() - late.cost.bytes()) / dearer
        assert choose(EXTENDED, load, price=Price(1.0, 0.99 * even)).name == "late"
        assert choose(EXTENDED, load, price=Price(1.0, 1.01 * even)).name == "early"

    def test_f19_a_hybrid_never_costs_more_than_early_or_late(self):
        rng = np.random.default_rng(4)
        named = set()
        for _ in range(60):
            names, on, load = random_query(rng, int(rng.integers(2, 6)))
            plan = Plan(next(trees(names, on)), on)
            found = choose(plan, load, among=("hybrid",))
            for carried in (names, ()):
                assert found.price <= predict_join(plan, load, carried, forwarded=1.0).bytes("all")
            every = {
                name_of(some, names): predict_join(plan, load, some, forwarded=1.0).bytes("all")
                for size in range(len(names) + 1)
                for some in itertools.combinations(names, size)
            }
            assert found.price == min(every.values())
            assert found.considered == pytest.approx(every)
            named.add(found.name)
        assert any(name.startswith("carry") for name in named)

    def test_f19_a_heavy_relation_with_few_results_stays_behind_alone(self):
        relations = {"a": Relation(1000, 8, 10), "b": Relation(1000, 8, 10), "c": Relation(1000, 8, 5000)}
        load = JoinLoad(relations, counted={frozenset("ab"): 1000.0, frozenset("abc"): 1000.0})
        plan = Plan.parse("(a b) c", ["a.x = b.x", "b.y = c.y"])
        assert choose(plan, load, among=("hybrid",)).name == "carry a b"

    def test_an_unknown_materialization_is_refused(self):
        with pytest.raises(ConfigError, match="is not a materialization"):
            choose(BASE, drawn(np.random.default_rng(0), "RST", ["RS"]), among=("lazy",))
        with pytest.raises(ConfigError, match="leaves nothing to choose"):
            search(BASE.predicates, drawn(np.random.default_rng(0), "RST", ["RS"]), among=())

    @pytest.mark.parametrize("some", [(), ("a",), ("a", "b"), ("a", "b", "c")])
    def test_names_of_choices_are_read_back(self, some):
        assert carried_by(name_of(some, "abc"), "abc") == frozenset(some)


class TestSearch:
    @pytest.mark.parametrize("among", [("early",), ("late",), ("early", "late"), ("hybrid",)])
    def test_it_finds_what_trying_every_tree_finds(self, among):
        """Also where messages cost: fewer results are forwarded if the first store is a side of the root."""
        rng = np.random.default_rng(5)
        for n in (2, 3, 3, 4, 4, 5):
            for message in (0.0, 500.0, 50_000.0):
                names, on, load = random_query(rng, n)
                price = Price(1.0, message)
                found = search(on, load, among, price=price)
                every = [choose(Plan(tree, on), load, among, price=price).price for tree in trees(names, on)]
                assert found.price == pytest.approx(min(every))
                assert choose(found.plan, load, among, price=price).price == pytest.approx(found.price)

    def test_a_tree_that_forwards_fewer_results_wins_where_messages_cost(self):
        """By bytes b and c are joined first; then payload is first fetched from c, which is no side of the root."""
        relations = {"a": Relation(100, 8, 50), "b": Relation(100, 8, 60), "c": Relation(100, 8, 40)}
        counted = {frozenset("ab"): 101.0, frozenset("bc"): 100.0, frozenset("abc"): 100.0}
        load, on = JoinLoad(relations, counted=counted), predicates_of(["a.x = b.x", "b.y = c.y"])
        assert str(search(on, load, ("late",)).plan) == "a (b c)"
        assert str(search(on, load, ("late",), price=Price(1.0, 10.0)).plan) == "(a b) c"
        assert str(search(on, load, ("late",), "decoupled", Price(1.0, 10.0)).plan) == "a (b c)"

    def test_six_relations_that_all_join_take_little_time(self):
        names = [f"r{i}" for i in range(6)]
        on = predicates_of([f"{a}.{a}{b} = {b}.{a}{b}" for a, b in itertools.combinations(names, 2)])
        load = drawn(np.random.default_rng(6), names, [*itertools.combinations(names, 2)])
        every = [predict_join(Plan(tree, on), load, ()).bytes() for tree in trees(names, on)]
        assert search(on, load, ("late",)).price == pytest.approx(min(every))

    def test_many_relations_get_a_tree_all_the_same(self):
        names = [f"r{i:02}" for i in range(12)]
        on = predicates_of([f"{a}.k{b} = {b}.k{b}" for a, b in itertools.pairwise(names)])
        load = drawn(np.random.default_rng(7), names, [*itertools.pairwise(names)])
        assert sorted(search(on, load).plan.rels) == names

    def test_the_materialization_is_chosen_with_the_tree(self):
        """With whole rows the thin pair is joined first, with keys alone the pair with fewer rows."""
        relations = {"a": Relation(100, 8, 0), "b": Relation(100, 8, 0), "c": Relation(100, 8, 4000)}
        counted = {"ab": 150.0, "bc": 100.0, "abc": 100.0}
        load = JoinLoad(relations, counted={frozenset(rels): rows for rels, rows in counted.items()})
        on = predicates_of(["a.x = b.x", "b.y = c.y"])
        assert str(search(on, load, ("early",)).plan) == "(a b) c"
        assert str(search(on, load, ("late",)).plan) == "a (b c)"
