"""The simulated topology: results by definition, bytes by the cost model, and what each protocol loses or doubles."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from lab.multi_way_protocols import ORDERINGS, Tally, found, interleavings, tally
from lab.multi_way_simulation import simulate
from lab.multi_way_topology import (
    CONCURRENT,
    Input,
    Logged,
    Protocol,
    Row,
    Topology,
    Work,
    durations,
    joined,
    thesis_fix,
    true_load,
)
from lab.multi_way_unrolled import three_way_communication, three_way_storage
from penstock.operators.multi_way import Linear, Plan
from penstock.planner.multi_way import JoinLoad, Relation, predict_join, probe_orders
from penstock.planner.multi_way.costs import reconstruction
from tests.lab.multi_way import BASE, EXTENDED, KEY_BYTES, random_delay, random_join, topology, tpch

PLANS = (BASE, EXTENDED)
EVERYTHING = frozenset(("li", "o", "s", "c"))


def modes(plan: Plan):
    return frozenset(plan.rels), frozenset()


class TestResults:
    @pytest.mark.parametrize("plan", PLANS, ids=str)
    @pytest.mark.parametrize("tasks", [1, 2, 6])
    def test_they_are_those_of_the_definition_in_any_order_of_arrival(self, plan, tasks):
        for seed in range(4):
            rng = np.random.default_rng(seed)
            inputs = tpch(rng, plan)
            for carried in modes(plan):
                run = topology(plan, carried=carried, tasks=tasks, delay=random_delay(rng), channels="unordered")
                outcome = simulate(run, inputs)
                assert outcome.rids == joined(run, inputs) != []
                assert outcome.lost == 0
                assert sum(map(sum, outcome.loads.values())) > 0

    def test_f28_only_carried_keys_travel_and_nothing_is_lost(self):
        """Random n:m joins: a message has no more than its node carries, and still finds its way back."""
        for seed in range(20):
            run, inputs = random_join(np.random.default_rng(seed), n=4)
            outcome = simulate(replace(run, tasks=3), inputs)
            assert outcome.rids == joined(run, inputs)

    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_f17_partitions_share_the_load_and_how_unevenly_is_told(self, plan):
        inputs = tpch(np.random.default_rng(13), plan)
        one, two, six = (simulate(topology(plan, tasks=tasks), inputs) for tasks in (1, 2, 6))
        assert one.rids == two.rids == six.rids == joined(topology(plan), inputs)
        for outcome, tasks in ((one, 1), (two, 2), (six, 6)):
            assert {len(loads) for loads in outcome.loads.values()} == {tasks}
            assert {name: sum(loads) for name, loads in outcome.loads.items()} == {
                name: sum(loads) for name, loads in one.loads.items()
            }
        skews = {name: max(loads) * 6 / sum(loads) for name, loads in six.loads.items()}
        assert all(1 <= skew <= 6 for skew in skews.values())
        assert max(skews.values()) > 1.2, "five suppliers cannot be shared out evenly over six tasks"

    def test_null_keys_never_match_and_are_stored(self):
        rows = [("li", (1, 1), {"orderkey": None, "linenumber": 1, "suppkey": 1}), ("o", (None,), {"orderkey": None})]
        inputs = [Input(float(t), rel, Row(pk, keys, 10.0)) for t, (rel, pk, keys) in enumerate(rows)]
        plan = Plan.parse("li o", ["li.orderkey = o.orderkey"])
        outcome = simulate(topology(plan), inputs)
        assert outcome.rids == []
        assert outcome.traffic("probe").messages == 0
        assert outcome.entries == {"li": 1, "o": 1}

    def test_a_row_that_comes_twice_counts_once_is_noted_and_its_last_payload_stays(self):
        inputs = tpch(np.random.default_rng(1), BASE)
        again = [each._replace(time=each.time + 1000, row=each.row._replace(payload=7.0)) for each in inputs[:10]]
        once, twice = (simulate(topology(BASE), some) for some in (inputs, [*inputs, *again]))
        assert twice.rids == once.rids == joined(topology(BASE), inputs)
        assert twice.traffic("probe") == once.traffic("probe")
        assert twice.repeated == 10
        lighter = sum(each.row.payload - 7.0 for each in inputs[:10])
        assert sum(twice.stored.values()) == sum(once.stored.values()) - lighter

    def test_f25_a_linear_operator_gives_the_same_results_and_probes_no_less(self):
        probes = []
        for seed in range(10):
            run, inputs = random_join(np.random.default_rng(100 + seed), n=4, values=3)
            load = _exact_pairs(run, inputs)
            linear = Plan(Linear(run.plan.rels), run.plan.predicates)
            line = replace(run, plan=linear, orders=probe_orders(load, linear.predicates), tasks=2)
            assert simulate(line, inputs).rids == joined(line, inputs)
            single = simulate(replace(line, tasks=1), inputs)
            tree = simulate(run, inputs)
            probes.append((single.traffic("probe").messages, tree.traffic("probe").messages))
        assert sum(one for one, _ in probes) >= sum(other for _, other in probes)

    def test_f29_windows_join_rows_that_are_near_and_retention_that_covers_them_loses_nothing(self):
        for seed in range(5):
            rng = np.random.default_rng(seed)
            inputs = tpch(rng, BASE)
            run = topology(BASE, window=20.0, retention=20.0)
            assert simulate(run, inputs).rids == joined(run, inputs)
            late = replace(run, retention=20.0 + 30.0, delay=lambda *_: 3.0)
            assert simulate(late, inputs).rids == joined(late, inputs)

    def test_a_shorter_retention_loses_results_and_whole_ones_never_come_out_in_part(self):
        inputs = tpch(np.random.default_rng(0), BASE)
        short = simulate(topology(BASE, retention=15.0), inputs)
        assert 0 < len(short.rids) < len(joined(topology(BASE), inputs))
        assert {*short.rids} < {*joined(topology(BASE), inputs)}


class TestFlags:
    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_f06_each_message_has_the_flag_of_its_purpose(self, plan):
        legal = {
            "ingest": {"INPUT_TUPLE"},
            "probe": {"INPUT_TUPLE", "INTERMEDIATE_JOIN"},
            "store": {"INTERMEDIATE_JOIN"},
            "forward": {"MATERIALIZATION_RESULT"},
            "reconstruct": {"MATERIALIZATION_RESULT"},
            "emit": {"FINAL_JOIN"},
        }
        for carried in (*modes(plan), frozenset(("li",))):
            trace = simulate(topology(plan, carried=carried), tpch(np.random.default_rng(3), plan)).trace
            for sent in trace:
                assert sent.flag in legal[sent.kind]
                assert (sent.flag == "INPUT_TUPLE") == (len(sent.rels) == 1)
                if sent.flag == "FINAL_JOIN":
                    assert sent.rels == sent.payload == frozenset(plan.rels)

    def test_f06_a_reconstruction_never_joins(self):
        """What reconstruction messages lead to is a reconstruction message or a result, one for one."""
        trace = simulate(topology(BASE), tpch(np.random.default_rng(4), BASE)).trace
        kinds = Counter(sent.kind for sent in trace)
        assert kinds["reconstruct"] == 2 * kinds["emit"]
        assert all(sent.rels == frozenset(BASE.rels) for sent in trace if sent.kind in ("forward", "reconstruct"))

    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_f06_late_moves_no_payload_in_the_join_phase(self, plan):
        outcome = simulate(topology(plan), tpch(np.random.default_rng(5), plan))
        for sent in outcome.trace:
            if sent.kind in ("probe", "store", "forward"):
                assert sent.payload == frozenset()
        for node in plan.intermediates:
            assert outcome.stored[str(node)] == outcome.entries[str(node)] * sum(KEY_BYTES[rel] for rel in node.rels)


class TestReconstruction:
    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_f07_every_order_gives_the_same_results_in_n_minus_1_hops(self, plan):
        inputs = tpch(np.random.default_rng(6), plan)
        expected = joined(topology(plan), inputs)
        for order in itertools.permutations(plan.rels):
            outcome = simulate(topology(plan, order=order, tasks=2), inputs)
            assert outcome.rids == expected
            assert outcome.traffic("reconstruct").messages == (len(order) - 1) * len(expected)

    def test_f33_bytes_rank_as_the_model_ranks_the_orders(self):
        inputs = tpch(np.random.default_rng(7), EXTENDED)
        run = topology(EXTENDED)
        load = true_load(run, inputs)
        for order in itertools.permutations(EXTENDED.rels):
            moved = simulate(replace(run, order=order), inputs).traffic("reconstruct").bytes
            assert moved == pytest.approx(reconstruction(load, order))

    def test_f20_decoupled_results_are_the_same_and_the_join_is_free_of_them(self):
        inputs = tpch(np.random.default_rng(8), BASE)
        inline = simulate(topology(BASE, delay=lambda *_: 1.0), inputs)
        apart = simulate(topology(BASE, delay=lambda *_: 1.0, reconstruction="decoupled"), inputs)
        assert apart.rids == inline.rids
        assert apart.traffic("forward").messages == 0
        assert apart.traffic("probe") == inline.traffic("probe")
        handed = [each for each in apart.log if each.type == "MATERIALIZATION_RESULT"]
        assert len(handed) == len(apart.rids)
        last = max(each.log_time for each in apart.log if each.type == "FINAL_JOIN")
        assert max(each.log_time for each in handed) < last


class TestCosts:
    def test_f10_counters_are_the_closed_form_of_the_3_way_plan(self):
        for seed in range(10):
            rng = np.random.default_rng(seed)
            inputs = tpch(rng, BASE)
            run = topology(BASE, delay=random_delay(rng), channels="unordered", tasks=3)
            load = true_load(run, inputs)
            for mode, carried in (("early", frozenset(BASE.rels)), ("late", frozenset())):
                outcome = simulate(replace(run, carried=carried), inputs)
                terms = three_way_communication(load, "li", "o", "s", mode)
                edges = {
                    f"{a.replace(' ', '')}→{b.replace(' ', '')}": each.bytes
                    for (kind, a, b), each in outcome.edges.items()
                    if kind == "probe"
                }
                assert edges == {name: value for name, value in terms.items() if "fetch" not in name}
                fetched = {
                    f"fetch {a}→{b}": each.bytes
                    for (kind, a, b), each in outcome.edges.items()
                    if kind == "reconstruct"
                }
                assert fetched == {name: value for name, value in terms.items() if "fetch" in name}
                assert sum(outcome.stored.values()) == three_way_storage(load, "li", "o", "s", mode)

    def test_f10_what_is_not_charged_is_counted_by_name(self):
        inputs = tpch(np.random.default_rng(1), BASE)
        outcome = simulate(topology(BASE), inputs)
        load = true_load(topology(BASE), inputs)
        assert outcome.traffic("ingest").messages == len(inputs)
        assert outcome.traffic("store").messages == load.card(("li", "o"))
        assert outcome.traffic("emit").messages == load.results
        assert 0 < outcome.traffic("forward").messages < load.results
        assert outcome.charged.bytes == outcome.traffic("probe").bytes + outcome.traffic("reconstruct").bytes

    def test_f11_counters_are_the_model_on_random_trees(self):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            run, inputs = random_join(rng, n=int(rng.integers(2, 7)), rows=5)
            load = true_load(run, inputs)
            size = int(rng.integers(0, len(run.plan.rels) + 1))
            carried = frozenset(rng.choice(run.plan.rels, size, replace=False).tolist())
            for some in (frozenset(run.plan.rels), frozenset(), carried):
                order = tuple(rel for rel in run.order if rel not in some)
                outcome = simulate(replace(run, carried=some), inputs)
                cost = predict_join(run.plan, load, some, order)
                assert outcome.traffic("probe").bytes == pytest.approx(cost.communication)
                assert outcome.traffic("probe").messages == cost.join_messages
                assert outcome.traffic("reconstruct").bytes == pytest.approx(cost.reconstruction)
                assert sum(outcome.stored.values()) == pytest.approx(cost.storage)
                assert outcome.rids == joined(run, inputs)

    def test_f19_hybrids_give_the_same_results_at_the_predicted_cost(self):
        inputs = tpch(np.random.default_rng(9), EXTENDED)
        run = topology(EXTENDED, delay=lambda *_: 0.5)
        load = true_load(run, inputs)
        for size in range(5):
            for carried in itertools.combinations(EXTENDED.rels, size):
                outcome = simulate(replace(run, carried=frozenset(carried)), inputs)
                order = tuple(rel for rel in run.order if rel not in carried)
                cost = predict_join(EXTENDED, load, carried, order, forwarded=1.0)
                assert outcome.rids == joined(run, inputs)
                assert outcome.charged.bytes == pytest.approx(cost.bytes())
                if carried == ():
                    assert outcome.traffic("forward").bytes >= cost.forwarding

    def test_f18_a_switch_in_mid_stream_changes_no_result_and_the_bytes_from_then_on(self):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            inputs = tpch(rng, EXTENDED)
            times = [float(rng.uniform(5, 25)), float(rng.uniform(35, 55))]
            switches = ((times[0], frozenset()), (times[1], EVERYTHING))
            run = topology(EXTENDED, carried=EVERYTHING, switches=switches, delay=random_delay(rng, 1.0))
            outcome = simulate(run, inputs)
            assert outcome.rids == joined(run, inputs)
            probes = [sent for sent in outcome.trace if sent.kind == "probe"]
            thin = [sent for sent in probes if times[0] <= sent.time < times[1]]
            assert thin
            assert all(not sent.payload for sent in thin)
            assert any(sent.payload for sent in probes if sent.time < times[0])
            assert any(sent.payload for sent in probes if sent.time >= times[1]), "and back"

    def test_f31_the_n_ary_model_is_within_a_twentieth_on_even_arrivals(self):
        rng = np.random.default_rng(10)
        plan = Plan.parse("a b c", ["a.x = b.x", "b.y = c.y"])
        ids = dict.fromkeys("abc", ("id",))
        totals = np.zeros(2)
        for _ in range(8):
            tables = {
                "a": [Row((i,), {"id": i, "x": int(rng.integers(0, 60))}, 40.0) for i in range(150)],
                "b": [
                    Row((i,), {"id": i, "x": int(rng.integers(0, 60)), "y": int(rng.integers(0, 40))}, 60.0)
                    for i in range(150)
                ],
                "c": [Row((i,), {"id": i, "y": int(rng.integers(0, 40))}, 80.0) for i in range(150)],
            }
            rows = [(rel, row) for rel, own in tables.items() for row in own]
            inputs = [Input(float(t), *rows[i]) for t, i in enumerate(rng.permutation(len(rows)))]
            widths = {"a": 8.0, "b": 12.0, "c": 8.0}
            load = JoinLoad(
                {rel: Relation(150, widths[rel], own[0].payload) for rel, own in tables.items()},
                {frozenset("ab"): 1 / 60, frozenset("bc"): 1 / 40},
            )
            orders = probe_orders(load, plan.predicates)
            run = Topology(plan, ids, widths, ("a", "b", "c"), frozenset("abc"), orders=orders)
            totals += (
                simulate(run, inputs).traffic("probe").bytes,
                predict_join(plan, load, "abc", orders=orders).communication,
            )
        assert totals[0] == pytest.approx(totals[1], rel=0.05)

    def test_f35_theta_and_1_to_n_joins_equal_their_definition_and_the_model_with_true_counts(self):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            run, inputs = random_join(rng, n=3, values=5)
            less = {run.plan.predicates[0]: lambda left, right: left < right}
            near = {each: lambda left, right: abs(left - right) <= 1 for each in run.plan.predicates[1:]}
            for compare in (less, near, less | near):
                theta = replace(run, compare=compare)
                load = true_load(theta, inputs)
                for carried in (frozenset(run.plan.rels), frozenset()):
                    outcome = simulate(replace(theta, carried=carried), inputs)
                    order = run.order if not carried else ()
                    assert outcome.rids == joined(theta, inputs)
                    assert outcome.charged.bytes == pytest.approx(predict_join(run.plan, load, carried, order).bytes())

    def test_f35_erratum_a_theta_join_has_more_results_than_the_fact_table_has_rows(self):
        """The thesis bounds them by |Person| for predicates other than equality, too."""
        run, inputs = random_join(np.random.default_rng(3), n=2, values=8)
        theta = replace(run, compare={run.plan.predicates[0]: lambda left, right: left != right})
        assert len(simulate(theta, inputs).rids) > sum(each.rel == "r0" for each in inputs)

    def test_f37_dangling_intermediates_move_and_store_no_payload(self):
        """Four streams join, the fifth never matches: nothing is a result, and only late knows it in time."""
        names = [f"r{i}" for i in range(5)]
        plan = Plan.parse("(((r0 r1) r2) r3) r4", [f"{a}.k = {b}.k" for a, b in itertools.pairwise(names)])
        tables = {
            name: [Row((i,), {"id": i, "k": i if name != "r4" else -1}, 1000.0) for i in range(20)] for name in names
        }
        rows = [(rel, row) for rel, own in tables.items() for row in own]
        inputs = [Input(float(t), *rows[i]) for t, i in enumerate(np.random.default_rng(1).permutation(100))]
        late = Topology(plan, dict.fromkeys(names, ("id",)), dict.fromkeys(names, 8.0), tuple(names))
        thin, fat = simulate(late, inputs), simulate(replace(late, carried=frozenset(names)), inputs)
        assert thin.rids == fat.rids == []
        moved = [sent for sent in thin.trace if sent.kind != "ingest" and sent.payload]
        assert moved == []
        for node in plan.intermediates:
            assert thin.stored[str(node)] == 20 * 8 * len(node.rels)
            assert fat.stored[str(node)] == 20 * 1008 * len(node.rels)
        assert thin.charged.bytes * 50 < fat.charged.bytes


class TestProtocols:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("concurrent, one FIFO dispatcher, lineitem first", Tally(0, 6, 0)),
            ("concurrent, one FIFO dispatcher, order first", Tally(0, 6, 0)),
            ("concurrent, several dispatchers or no FIFO", Tally(6, 12, 6)),
            ("only lineitems chained, FIFO, lineitem first", Tally(0, 3, 5)),
            ("only lineitems chained, FIFO, order first", Tally(1, 3, 0)),
            ("both chained, any order", Tally(0, 2, 4)),
            ("both chained, any order, each pair once", Tally(0, 6, 0)),
        ],
    )
    def test_f16_all_interleavings_by_protocol(self, name, expected):
        assert tally({each.name: each for each in ORDERINGS}[name]) == expected

    @pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda each: each.name)
    def test_f16_the_simulation_finds_the_pair_as_often_as_each_interleaving_says(self, ordering):
        plan = Plan.parse("li o", ["li.orderkey = o.orderkey"])
        rows = {
            "li": Row((1, 1), {"orderkey": 1, "linenumber": 1, "suppkey": 1}, 1.0),
            "o": Row((1,), {"orderkey": 1, "custkey": 1}, 1.0),
        }
        chained = {"AB": "li", "CD": "o"}
        protocol = Protocol(
            frozenset(rel for each, rel in chained.items() if each in ordering.first),
            "chained",
            ordering.dedupe,
            park=True,
        )
        steps_of = {("ingest", "li"): "A", ("probe", "o"): "B", ("ingest", "o"): "C", ("probe", "li"): "D"}
        for steps in interleavings(ordering):
            clock = {step: float(place + 1) for place, step in enumerate(steps)}
            sent = {
                "B": clock["A"] if "li" in protocol.chained else 0.0,
                "D": clock["C"] if "o" in protocol.chained else 0.0,
            }

            def delay(kind, source, target, clock=clock, sent=sent):
                step = steps_of.get((kind, target))
                return clock[step] - sent.get(step, 0.0) if step else 0.0

            run = topology(
                plan, carried=frozenset(("li", "o")), protocol=protocol, delay=delay, channels="unordered", order=()
            )
            outcome = simulate(run, [Input(0.0, rel, row) for rel, row in rows.items()])
            assert len(outcome.results) == (min(1, found(steps)) if ordering.dedupe else found(steps))

    def test_f15_the_first_protocol_loses_results_under_delay_and_chaining_never(self):
        lost = Counter()
        for seed in range(10):
            inputs = tpch(np.random.default_rng(seed), BASE)
            expected = joined(topology(BASE), inputs)
            for name, protocol in (("concurrent", CONCURRENT), ("chained", None)):
                # Heavy rows are slow to reach their own store; keys overtake them.
                delay = random_delay(np.random.default_rng(seed))

                def slow(kind, source, target, delay=delay):
                    return 10 * delay(kind, source, target) if kind == "ingest" else delay(kind, source, target) / 10

                outcome = simulate(topology(BASE, protocol=protocol, delay=slow, dispatchers=3), inputs)
                lost[name] += len({*expected} - {*outcome.rids})
                lost[f"{name} unfetched"] += outcome.lost
        assert lost["concurrent"] > 0
        assert lost["concurrent unfetched"] > 0, "some were found, and their rows were not there yet"
        assert lost["chained"] == lost["chained unfetched"] == 0

    def test_f15_a_result_that_comes_before_its_row_waits_for_it_if_it_may(self):
        """The pair is found by its keys; its lineitem takes a hundred seconds to its own store."""
        plan = Plan.parse("li o", ["li.orderkey = o.orderkey"])
        rows = [
            Input(0.0, "o", Row((1,), {"orderkey": 1, "custkey": 1}, 1.0)),
            Input(5.0, "li", Row((1, 1), {"orderkey": 1, "linenumber": 1, "suppkey": 1}, 1.0)),
        ]

        def slow(kind, source, target):
            return 100.0 if (kind, target) == ("ingest", "li") else 1.0

        loses = topology(plan, order=("o", "li"), protocol=CONCURRENT, delay=slow, channels="unordered")
        outcome = simulate(loses, rows)
        assert (outcome.rids, outcome.lost) == ([], 1)
        waits = simulate(replace(loses, protocol=replace(CONCURRENT, park=True)), rows)
        assert (waits.rids, waits.lost) == ([((1, 1), (1,))], 0)
        assert waits.results[0][1] > 105

    def test_f15_the_thesis_s_fix_doubles_results(self):
        """Only lineitems chained: what both sides find comes out twice."""
        extra = missing = 0
        for seed in range(10):
            rng = np.random.default_rng(seed)
            inputs = [each._replace(time=each.time / 10) for each in tpch(rng, BASE)]
            expected = Counter(joined(topology(BASE), inputs))
            outcome = simulate(topology(BASE, protocol=thesis_fix("li"), delay=random_delay(rng)), inputs)
            extra += sum((Counter(outcome.rids) - expected).values())
            missing += sum((expected - Counter(outcome.rids)).values())
        assert extra > 0
        assert missing > 0

    def test_f16_ours_gives_each_result_once_whatever_the_delays(self):
        for seed in range(15):
            rng = np.random.default_rng(seed)
            run, inputs = random_join(rng, n=int(rng.integers(2, 6)))
            hasty = [each._replace(time=each.time / 10) for each in inputs]
            delayed = replace(run, delay=random_delay(rng), channels="unordered", dispatchers=3, tasks=2)
            for carried in (frozenset(run.plan.rels), frozenset()):
                outcome = simulate(replace(delayed, carried=carried), hasty)
                assert outcome.rids == joined(run, hasty)

    def test_f16_without_the_dedupe_results_come_out_more_than_once(self):
        rng = np.random.default_rng(2)
        inputs = [each._replace(time=each.time / 10) for each in tpch(rng, BASE)]
        careless = Protocol(frozenset(BASE.rels), "chained", dedupe=False, park=True)
        outcome = simulate(topology(BASE, protocol=careless, delay=random_delay(rng)), inputs)
        assert {*outcome.rids} == {*joined(topology(BASE), inputs)}
        assert len(outcome.rids) > len({*outcome.rids})


class TestLog:
    def test_f21_durations_come_from_the_raw_log_and_all_results_are_in_it(self):
        inputs = tpch(np.random.default_rng(11), EXTENDED)
        run = topology(EXTENDED, delay=lambda *_: 2.0)
        outcome = simulate(run, inputs)
        final = [each.log_time for each in outcome.log if each.type == "FINAL_JOIN"]
        everything = [each.log_time for each in outcome.log]
        first = min(each.log_time for each in outcome.log if each.type == "INPUT_TUPLE")
        assert len(final) == len(joined(run, inputs))
        assert len(outcome.log) == len(inputs) + len(final), "only inputs and results are logged"
        assert durations(outcome.log) == (
            max(final) - min(final),
            max(everything) - min(everything),
            min(final) - first,
        )
        assert {each.source for each in outcome.log if each.type == "FINAL_JOIN"} == {"li"}
        assert {each.source for each in outcome.log if each.type == "INPUT_TUPLE"} == {f"spout {r}" for r in EVERYTHING}

    def test_f21_no_results_take_no_time(self):
        effective, actual, delay = durations([Logged(1, "", "INPUT_TUPLE", 1.0), Logged(2, "", "INPUT_TUPLE", 4.0)])
        assert (effective, actual) == (0.0, 3.0)
        assert np.isnan(delay)


class TestBuffers:
    def drops(self, carried, gap, buffer, workers=1):
        """Rows dropped and results lost, a row each `gap` seconds; a byte takes a microsecond."""
        rows = tpch(np.random.default_rng(12), BASE, rows=150, orders=50)
        payload = {"li": 3072.0, "o": 100.0, "s": 100.0}
        inputs = [Input(t * gap, rel, row._replace(payload=payload[rel])) for t, rel, row in rows]
        run = topology(BASE, carried=carried, work=Work(1e-4, 1e-6), buffer=buffer, workers=workers)
        outcome = simulate(run, inputs)
        expected = joined(run, inputs)
        assert {*outcome.rids} <= {*expected}
        return outcome.dropped, len(expected) - len(outcome.rids)

    def test_f32_an_unbounded_buffer_loses_nothing_at_any_rate(self):
        for carried in modes(BASE):
            for gap in (0.05, 0.001):
                assert self.drops(carried, gap, None) == (0, 0)

    def test_f32_drops_and_lost_results_grow_with_the_rate_and_are_fewer_when_less_is_carried(self):
        early, late = ([self.drops(carried, gap, 10) for gap in (0.02, 0.004, 0.001)] for carried in modes(BASE))
        assert early[0] == late[0] == (0, 0)
        assert early[1][0] > 50 > late[1][0] == 0
        assert early[2][0] > early[1][0]
        assert early[2][0] > late[2][0] > 0
        assert early[1][1] > 0, "rows that are dropped are missing from results"

    def test_f32_late_drops_no_less_where_every_task_has_a_worker_of_its_own(self):
        """What late saves was the work of other tasks; the busiest one stores whole lineitems in both modes."""
        early, late = (self.drops(carried, 0.002, 10, workers=None) for carried in modes(BASE))
        assert late[0] >= early[0] > 0


def _exact_pairs(run, inputs) -> JoinLoad:
    base = true_load(run, inputs)
    counted = {pair: len(joined(run, inputs, pair)) for pair in {p.rels for p in run.plan.predicates}}
    rates = {pair: count / prod(base.relations[rel].rows for rel in pair) for pair, count in counted.items()}
    return JoinLoad(base.relations, rates)
