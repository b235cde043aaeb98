"""Running counts of a multi-way join, what is estimated from them, and when a running join changes its mind."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from lab.multi_way_choice import choose
from penstock.core.errors import ConfigError
from penstock.operators.multi_way import Plan
from penstock.planner.multi_way import JoinLoad, Relation, Statistics, Switching, reconstruction_order
from tests.planner.multi_way.loads import BASE


def joined(left: np.ndarray, right: np.ndarray) -> int:
    """Pairs of equal values."""
    one, other = Counter(left.tolist()), Counter(right.tolist())
    return sum(count * other[value] for value, count in one.items())


class TestStatistics:
    def test_f09_the_running_mean_is_the_exact_one(self):
        rng = np.random.default_rng(1)
        sizes = rng.integers(0, 5000, 2000)
        seen = Statistics()
        for start in range(0, 2000, 130):
            batch = sizes[start : start + 130]
            seen = seen.arrived("li", batch.size, 8 * batch.size, int(batch.sum()))
            assert seen.mean_payload("li") == pytest.approx(sizes[: start + 130].mean())

    def test_f09_the_order_changes_when_the_means_cross(self):
        plan = Plan.parse("a b", ["a.k = b.k"])
        seen = Statistics().arrived("a", 10, 80, 1000).arrived("b", 10, 80, 1100)
        assert reconstruction_order(seen.load(plan)) == ("a", "b")
        seen = seen.arrived("a", 10, 80, 1199)
        assert reconstruction_order(seen.load(plan)) == ("a", "b")
        assert reconstruction_order(seen.arrived("a", 1, 8, 200).load(plan)) == ("b", "a")

    def test_f09_nothing_seen_weighs_nothing(self):
        assert Statistics().mean_payload("li") == 0

    def test_f14_estimates_are_the_exact_counts(self):
        rng = np.random.default_rng(2)
        r, s = (rng.integers(0, 40, 300) for _ in range(2))
        seen = Statistics()
        for name in "RST":
            seen = seen.arrived(name, 300, 2400, 30_000)
        seen = seen.joined("RS", joined(r, s)).joined("RST", 12)
        load = seen.load(BASE)
        assert seen.selectivity("R", "S") == load.selectivities[frozenset("RS")] == joined(r, s) / 300**2
        assert load.selectivities[frozenset("RT")] == pytest.approx(12 / joined(r, s) / 300)
        assert load.results == 12
        assert load.relations["R"] == Relation(300, 8, 100)

    def test_f14_the_chooser_comes_to_the_choice_of_true_figures(self):
        """Batch by batch: from some point on it chooses what exact figures of the whole would."""
        rng = np.random.default_rng(3)
        for keys, truth in ((20, "early"), (4000, "late")):
            columns = {name: rng.integers(0, keys, 2000) for name in "RST"}
            counts = {"RS": joined(columns["R"], columns["S"])}
            pairs = Counter(columns["R"].tolist()), Counter(columns["S"].tolist()), Counter(columns["T"].tolist())
            counts["RST"] = sum(n * pairs[1][value] * pairs[2][value] for value, n in pairs[0].items())
            exact = JoinLoad(
                {name: Relation(2000, 8, 400) for name in "RST"},
                counted={frozenset(name): float(count) for name, count in counts.items()},
            )
            plan = Plan.parse("(R S) T", ["R.k = S.k", "S.k = T.k"])
            assert choose(plan, exact).name == truth
            chosen = []
            for until in range(100, 2001, 100):
                part = {name: Counter(each[:until].tolist()) for name, each in columns.items()}
                two = sum(n * part["S"][v] for v, n in part["R"].items())
                three = sum(n * part["S"][v] * part["T"][v] for v, n in part["R"].items())
                seen = Statistics().joined("RS", two).joined("RST", three)
                for name in "RST":
                    seen = seen.arrived(name, until, 8 * until, 400 * until)
                chosen.append(choose(plan, seen.load(plan)).name)
            assert chosen[-5:] == [truth] * 5

    def test_f14_several_predicates_of_a_node_share_its_selectivity(self):
        plan = Plan.parse("(a b) c", ["a.x = b.x", "b.y = c.y", "a.z = c.z"])
        seen = Statistics().joined("ab", 100).joined("abc", 4)
        for name in "abc":
            seen = seen.arrived(name, 100, 800, 800)
        load = seen.load(plan)
        assert load.selectivities[frozenset("bc")] == load.selectivities[frozenset("ac")] == pytest.approx(0.02)
        assert load.card("abc") == 4

    def test_f14_before_anything_is_counted_a_foreign_key_is_assumed(self):
        plan = Plan.parse("(a b) c", ["a.x = b.x", "b.y = c.y"])
        load = Statistics().arrived("a", 50, 1, 1).arrived("b", 200, 1, 1).arrived("c", 10, 1, 1).load(plan)
        assert load.card("ab") == 200, "a row of a for each of b"
        assert load.card("bc") == 200

    def test_f14_shards_add_up_and_what_is_saved_is_read_back(self):
        one = Statistics().arrived("a", 3, 24, 300).joined("ab", 5)
        other = Statistics().arrived("a", 2, 16, 100).arrived("b", 1, 8, 9).joined("ab", 1)
        both = one.merged([other])
        assert both == other.merged([one])
        assert (both.rows, both.nodes) == ({"a": 5, "b": 1}, {frozenset("ab"): 6})
        assert Statistics.from_dict(json.loads(json.dumps(both.as_dict()))) == both

    def test_f14_a_linear_plan_is_estimated_by_pairs(self):
        plan = Plan.parse("a b c", ["a.x = b.x", "b.y = c.y"])
        seen = Statistics().joined("ab", 20)
        for name in "abc":
            seen = seen.arrived(name, 10, 80, 80)
        assert seen.load(plan).selectivities == {frozenset("ab"): 0.2, frozenset("bc"): 0.1}


class TestSwitching:
    def test_a_small_gain_changes_nothing(self):
        running = Switching("early")
        for late in (91, 90):
            assert running.after(100, {"early": 100, "late": late}).current == "early"
        assert running.after(100, {"early": 100, "late": 89}) == Switching("late", since=100)

    def test_it_stays_for_a_while(self):
        costs = [{"early": 100, "late": 10}, {"early": 10, "late": 100}]
        running, names = Switching("early", dwell=5), []
        for epoch in range(20):
            running = running.after(epoch, costs[epoch % 2])
            names.append(running.current)
        changes = [epoch for epoch in range(1, 20) if names[epoch] != names[epoch - 1]]
        assert np.diff([0, *changes]).min() >= 5

    def test_what_cannot_run_any_more_is_left_at_once_after_its_stay(self):
        assert Switching("carry a").after(5, {"early": 3, "late": 4}).current == "early"

    def test_what_is_saved_is_read_back(self):
        running = Switching("carry li s", since=12, dwell=3)
        assert Switching.from_dict(json.loads(json.dumps(running.as_dict()))) == running

    @pytest.mark.parametrize("wrong", [{"margin": 1.0}, {"margin": -0.1}, {"dwell": -1}])
    def test_nonsense_is_refused(self, wrong):
        with pytest.raises(ConfigError, match="must be"):
            Switching("early", **wrong)
