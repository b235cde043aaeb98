"""Plans of multi-way joins: text and trees, edges, the trees there are, and what rows carry."""

from __future__ import annotations

import itertools
import re

import pytest

from penstock.core.errors import ConfigError, PlanError
from penstock.operators.multi_way import Edge, Leaf, Linear, Node, Plan, Predicate, trees
from penstock.operators.multi_way.plan import connected_order, leaves, predicates_of

BASE = ["li.orderkey = o.orderkey", "li.suppkey = s.suppkey"]
EXTENDED = ["li.suppkey = s.suppkey", "o.custkey = c.custkey", "li.orderkey = o.orderkey"]
KEYS = {"li": ("orderkey", "linenumber"), "o": ("orderkey",), "s": ("suppkey",), "c": ("custkey",)}


def edges(plan: Plan, kind: str, order=()) -> set[tuple[str, str, str]]:
    return {(each.source, each.target, " ".join(each.on)) for each in plan.edges(order) if each.kind == kind}


class TestText:
    @pytest.mark.parametrize("text", ["(li o) s", "s (li o)", "(li s) o", "li o s"])
    def test_a_plan_prints_as_it_is_written(self, text):
        assert str(Plan.parse(text, BASE)) == text

    @pytest.mark.parametrize("text", ["((li s) (o c))", "(li  s)(o c)", " (li s) ((o) c) "])
    def test_spaces_and_needless_parentheses_do_not_matter(self, text):
        assert str(Plan.parse(text, EXTENDED)) == "(li s) (o c)"

    def test_three_names_side_by_side_are_one_linear_operator(self):
        assert Plan.parse("li o s", BASE).root == Linear(("li", "o", "s"))
        assert Plan.parse("(li o s)", BASE).root == Linear(("li", "o", "s"))

    def test_a_predicate_in_backticks(self):
        assert Predicate.parse("a.`order key`=b.k") == Predicate("a", "order key", "b", "k")
        assert str(Predicate.parse("a.`order key`=b.k")) == "a.`order key` = b.k"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "(li p) s",
                "plan='(li p) s' names 'p', which is not a relation of this join. Its relations are: li, o, s",
            ),
            ("(li o) o", "plan='(li o) o' names 'o' more than once."),
            ("li o", "plan='li o' leaves out 's'. Name every relation of the join, for example '(li o) s'."),
            ("(o s) li", "joins 'o' with 's', but no predicate of on= names both."),
            ("(o s) li", "Write plan='(o li) s', or add a predicate that joins them to on="),
            ("(li o s", "cannot be read: a parenthesis is not closed"),
            ("li o) s", "a parenthesis is closed that was not opened"),
            ("", "it names no relation"),
            ("(li o) () s", "'()' is empty"),
        ],
    )
    def test_what_is_wrong_with_a_plan_is_said_with_what_to_write(self, text, message):
        with pytest.raises(PlanError, match=re.escape(message)):
            Plan.parse(text, BASE)

    def test_a_linear_part_of_a_tree_is_refused(self):
        with pytest.raises(PlanError, match="three or more relations side by side must be the whole plan"):
            Plan.parse("(li o s) c", EXTENDED)

    @pytest.mark.parametrize(
        ("on", "message"),
        [
            (["li.orderkey"], "is not an equality of two columns"),
            (["li.orderkey < o.orderkey"], "is not an equality of two columns"),
            (["li.a = li.b"], "compares two columns of 'li' and joins it to nothing"),
            (["li.orderkey = p.orderkey"], "names 'p', which is not a relation of this join"),
            (["li.orderkey = o.orderkey"], "No predicate of on= connects 'li', 'o' with 's'"),
        ],
    )
    def test_what_is_wrong_with_a_predicate(self, on, message):
        with pytest.raises(PlanError, match=re.escape(message)):
            Plan.parse("(li o) s", on, rels=["li", "o", "s"])

    def test_a_plan_of_many_relations_can_be_written_and_errors_still_help(self):
        names = [f"r{n}" for n in range(9)]
        on = [f"{a}.k = {b}.k" for a, b in itertools.pairwise(names)]
        assert len(Plan.parse(" ".join(names), on).rels) == 9
        with pytest.raises(PlanError, match="leaves out 'r8'"):
            Plan.parse(" ".join(names[:-1]), on)

    def test_a_plan_made_from_parts_is_checked_too(self):
        with pytest.raises(PlanError, match="leaves out 's'"):
            Plan(Node(Leaf("li"), Leaf("o")), predicates_of(BASE))


class TestTree:
    def test_siblings_parents_and_relations(self):
        plan = Plan.parse("(li s) (o c)", EXTENDED)
        left, right = plan.root.children
        assert plan.sibling(Leaf("li")) == Leaf("s")
        assert plan.sibling(left) == right
        assert plan.parent(Leaf("c")) == right
        assert plan.parent(plan.root) is None
        assert left.rels == {"li", "s"}
        assert plan.rels == ("li", "s", "o", "c")
        assert [str(each) for each in plan.intermediates] == ["li s", "o c"]

    def test_all_predicates_between_two_sides_apply_at_their_node(self):
        on = ["a.x = b.x", "a.y = b.y", "b.z = c.z", "a.w = c.w"]
        plan = Plan.parse("(a b) c", on)
        assert [str(each) for each in plan.at(plan.root)] == ["b.z = c.z", "a.w = c.w"]
        assert [str(each) for each in plan.at(plan.root.left)] == ["a.x = b.x", "a.y = b.y"]
        assert plan.grouping(plan.root.left) == ("b.z", "a.w")
        assert plan.grouping(Leaf("c")) == ("c.z", "c.w")

    def test_a_predicate_written_twice_counts_once(self):
        assert len(predicates_of(["a.x = b.y", "b.y = a.x", "a.x = b.y", "a.x = b.z"])) == 2

    def test_a_linear_operator_has_no_siblings(self):
        with pytest.raises(PlanError, match="has no sibling"):
            Plan.parse("li o s", BASE).sibling(Leaf("li"))


class TestEdges:
    def test_f01_the_base_plan_has_exactly_its_edges(self):
        plan = Plan.parse("(li o) s", BASE)
        assert edges(plan, "ingest") == {
            ("", "li", "li.orderkey"),
            ("", "o", "o.orderkey"),
            ("", "s", "s.suppkey"),
        }
        assert edges(plan, "probe") == {
            ("li", "o", "li.orderkey"),
            ("o", "li", "o.orderkey"),
            ("s", "li o", "s.suppkey"),
            ("li o", "s", "li.suppkey"),
        }
        assert edges(plan, "store") == {("o", "li o", "li.suppkey"), ("li", "li o", "li.suppkey")}
        assert edges(plan, "emit") == {("s", "", ""), ("li o", "", "")}
        assert len(plan.edges()) == 11

    def test_f01_the_extended_plan_has_exactly_its_edges(self):
        plan = Plan.parse("(li s) (o c)", EXTENDED)
        assert edges(plan, "ingest") == {
            ("", "li", "li.suppkey"),
            ("", "s", "s.suppkey"),
            ("", "o", "o.custkey"),
            ("", "c", "c.custkey"),
        }
        assert edges(plan, "probe") == {
            ("li", "s", "li.suppkey"),
            ("s", "li", "s.suppkey"),
            ("o", "c", "o.custkey"),
            ("c", "o", "c.custkey"),
            ("li s", "o c", "li.orderkey"),
            ("o c", "li s", "o.orderkey"),
        }
        assert edges(plan, "store") == {
            *((source, "li s", "li.orderkey") for source in ("li", "s")),
            *((source, "o c", "o.orderkey") for source in ("o", "c")),
        }
        assert edges(plan, "emit") == {("li s", "", ""), ("o c", "", "")}
        assert len(plan.edges()) == 16

    def test_f01_late_results_walk_the_relation_stores(self):
        plan = Plan.parse("(li o) s", BASE)
        order = ("s", "o", "li")
        assert edges(plan, "forward", order) == {("li o", "s", "s.suppkey")}
        assert edges(plan, "reconstruct", order) == {("s", "o", "o.orderkey"), ("o", "li", "li.orderkey")}
        assert edges(plan, "emit", order) == {("li", "", "")}
        extended = Plan.parse("(li s) (o c)", EXTENDED)
        order = ("c", "o", "s", "li")
        assert {edge[:2] for edge in edges(extended, "forward", order)} == {("li s", "c"), ("o c", "c")}
        assert {edge[:2] for edge in edges(extended, "reconstruct", order)} == {("c", "o"), ("o", "s"), ("s", "li")}

    def test_a_linear_operator_probes_store_after_store(self):
        plan = Plan.parse("li o s", BASE)
        assert edges(plan, "probe") == {
            ("li", "o", "li.orderkey"),
            ("o", "s", "li.suppkey"),
            ("o", "li", "o.orderkey"),
            ("li", "s", "li.suppkey"),
            # li is partitioned by orderkey, which a row of s does not have.
            ("s", "li", ""),
            ("li", "o", "li.orderkey"),
        }
        assert not plan.intermediates
        assert edges(plan, "store") == set()
        assert Edge("emit", "s", "") in plan.edges()


CHAIN = lambda n: [(f"r{i}", f"r{i + 1}") for i in range(n - 1)]  # noqa: E731
STAR = lambda n: [("r0", f"r{i}") for i in range(1, n)]  # noqa: E731
CLIQUE = lambda n: [*itertools.combinations([f"r{i}" for i in range(n)], 2)]  # noqa: E731
CYCLE = lambda n: [*CHAIN(n), (f"r{n - 1}", "r0")]  # noqa: E731


class TestEnumeration:
    @pytest.mark.parametrize(
        ("graph", "counts"),
        [
            (CHAIN, [1, 2, 5, 14, 42]),  # Catalan
            (STAR, [1, 2, 6, 24, 120]),  # (n - 1)!
            (CLIQUE, [1, 3, 15, 105, 945]),  # (2n - 3)!!
        ],
    )
    def test_there_are_as_many_trees_as_theory_says(self, graph, counts):
        for n, count in enumerate(counts, start=2):
            on = predicates_of([f"{a}.k = {b}.k" for a, b in graph(n)])
            found = [*trees([f"r{i}" for i in range(n)], on)]
            assert len({*map(str, found)}) == len(found) == count

    def test_each_is_a_plan_without_a_cross_product(self):
        on = predicates_of([f"{a}.k = {b}.k" for a, b in CYCLE(5)])
        for tree in trees([f"r{i}" for i in range(5)], on):
            assert sorted(leaf.rel for leaf in leaves(tree)) == [f"r{i}" for i in range(5)]
            assert str(Plan.parse(str(tree), on)) == str(tree)

    def test_more_than_six_are_not_listed(self):
        with pytest.raises(ConfigError, match="7 relations have too many trees to list"):
            next(trees([f"r{i}" for i in range(7)], predicates_of([f"{a}.k = {b}.k" for a, b in CHAIN(7)])))

    def test_an_order_is_connected_at_every_step(self):
        on = predicates_of([f"{a}.k = {b}.k" for a, b in CHAIN(5)])
        assert connected_order("r2", [f"r{i}" for i in range(5)], on) == ("r1", "r0", "r3", "r4")


class TestCarriedKeys:
    def test_a_late_entry_of_the_base_plan_is_its_keys(self):
        plan = Plan.parse("(li o) s", BASE)
        assert plan.carried(plan.root.left, KEYS) == {
            "li": ("orderkey", "linenumber", "suppkey"),
            "o": ("orderkey",),
        }

    def test_f28_an_attribute_is_dropped_once_its_predicate_is_evaluated(self):
        """b joins a by x, c by y and d by z, none a key: each goes when it is done, but the way back to b stays."""
        plan = Plan.parse("((a b) c) d", ["a.x = b.x", "b.y = c.y", "b.z = d.z"])
        keys = dict.fromkeys("abcd", ("id",))
        whole, three, two = plan.root, plan.root.left, plan.root.left.left
        assert plan.carried(Leaf("b"), keys)["b"] == ("id", "x", "y", "z")
        assert plan.carried(two, keys)["b"] == ("id", "y", "z", "x")
        assert plan.carried(three, keys)["b"] == ("id", "z", "x")
        assert plan.carried(whole, keys)["b"] == ("id", "x")

    def test_f28_without_routes_to_the_stores_only_identifiers_stay(self):
        plan = Plan.parse("((a b) c) d", ["a.x = b.x", "b.y = c.y", "b.z = d.z"])
        by_id = dict.fromkeys("abcd", ("id",))
        assert plan.carried(plan.root, by_id, partitions=by_id) == dict.fromkeys("abcd", ("id",))

    def test_f28_foreign_keys_that_identify_never_go(self):
        plan = Plan.parse("(li s) (o c)", EXTENDED)
        assert plan.carried(plan.root, KEYS) == {
            "li": ("orderkey", "linenumber", "suppkey"),
            "s": ("suppkey",),
            "o": ("orderkey", "custkey"),
            "c": ("custkey",),
        }

    def test_f28_every_relation_can_be_routed_to_from_any_node(self):
        on = [f"r{i}.k{i} = r{i + 1}.k{i}" for i in range(4)]
        keys = {f"r{i}": ("id",) for i in range(5)}
        for tree in trees([*keys], predicates_of(on)):
            plan = Plan(tree, predicates_of(on))
            for node in plan.nodes:
                carried = plan.carried(node, keys)
                for rel in node.rels:
                    wanted = {name.partition(".")[2] for name in plan.partition(Leaf(rel))}
                    assert wanted <= {*carried[rel]}

    def test_a_filter_that_comes_later_keeps_its_column(self):
        plan = Plan.parse("(li o) s", BASE)
        assert "discount" in plan.carried(plan.root.left, KEYS, later={"li": ("discount",)})["li"]

    def test_a_linear_operator_carries_all_that_its_relations_join_by(self):
        plan = Plan.parse("li o s", BASE)
        assert plan.carried(Leaf("li"), KEYS)["li"] == ("orderkey", "linenumber", "suppkey")
