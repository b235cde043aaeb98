"""Linear multi-way joins against their definition: every result once, by every method (F25, F30), and their bounds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.core.errors import ConfigError
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.within import Always, band, tumbling
from penstock.operators.multi_way import METHODS, MultiJoin
from penstock.operators.multi_way.baselines.mjoin import MJoin
from penstock.operators.multi_way.expansion import Expansion
from penstock.operators.multi_way.nearness import Nearness
from tests import streams
from tests.operators.multi_way.cases import LinearCase, LinearRun, arrive, cases, columns_of, linear
from tests.streams import Advance, Arrive, EpochEnd, examples

OF_MANY = ["msj", "mjoin", "amjoin"]


def check(case: LinearCase) -> None:
    join = case.run()
    assert join.results == case.expected()
    assert join.held == 0
    assert join.budget.held == 0
    assert join.budget.peak <= case.memory


@given(cases())
@examples(1.3)
def test_f25_f30_every_method_equals_the_definition_whatever_happens_to_it(case):
    """Methods take over from each other at the end of epochs."""
    check(case)


# By hand


@pytest.mark.parametrize("method", OF_MANY)
def test_a_result_comes_with_the_last_of_its_rows_and_once(method):
    join = LinearRun(linear(3, band(before=5, after=5), method))
    join.on(arrive(1, (7, 4), ids=10), arrive(0, (7, 0), (7, 1), ids=20), arrive(2, (8, 3), ids=30))
    assert not join.results
    join.on(arrive(2, (7, 3), ids=40))
    assert join.results == Counter([(20, 10, 40), (21, 10, 40)])


@pytest.mark.parametrize("method", OF_MANY)
def test_two_stored_rows_must_be_near_each_other_too(method):
    """Both are within 5 of the arrival, but 8 apart."""
    join = LinearRun(linear(3, band(before=5, after=5), method))
    join.on(arrive(0, (1, 0)), arrive(1, (1, 8)), arrive(2, (1, 4)))
    assert not join.results


@pytest.mark.parametrize("method", OF_MANY)
def test_the_stream_that_is_named_first_is_the_left_one_whichever_arrives_first(method):
    """From 1 to 3 after: times must rise with the ports."""
    for ports in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        join = LinearRun(linear(3, band("+1", "+3"), method))
        join.on(*(arrive(port, (1, port), (2, -port)) for port in ports))
        assert join.results == Counter([(0, 0, 0)])


def test_null_in_any_key_column_matches_nothing_and_is_not_kept():
    types = RowType(pa.schema({"a": pa.int64(), "b": pa.string(), "t": pa.int64(), "id": pa.int64()}), ("a", "b"), "t")
    config = MultiJoin((("a", "b"),) * 3, Always(), prefixes=("r0_", "r1_", "r2_"))
    join = LinearRun(config, types=(types,) * 3)
    keys = [(1, "x"), (1, None), (None, "x"), (1, "y"), (None, None)]
    for port in range(3):
        join.on(Arrive(port, [{"a": a, "b": b, "t": 0, "id": n} for n, (a, b) in enumerate(keys)]))
    assert join.results == Counter([(0, 0, 0), (3, 3, 3)])
    assert join.held == 6


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string(), ["", "a", "ab", None]),
        (pa.float64(), [0.0, -0.0, 1.5, float("nan"), None]),
        (pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": 1, "b": "x"}, {"a": 1, "b": None}, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", OF_MANY)
def test_keys_of_several_types_match_as_spark_compares_them(method, kind, keys):
    types = RowType(pa.schema({"k": kind, "t": pa.int64(), "id": pa.int64()}), keys=("k",), time="t")
    join = LinearRun(linear(3, method=method), types=(types,) * 3)
    for port in range(3):
        join.on(Arrive(port, [{"k": k, "t": 0, "id": n} for n, k in enumerate(keys)]), EpochEnd(1))
    known = [n for n, k in enumerate(keys) if k is not None]
    equal = {n: [m for m in known if str(keys[m]).lstrip("-") == str(keys[n]).lstrip("-")] for n in known}
    assert join.results == Counter((a, b, c) for a in known for b in equal[a] for c in equal[a])


@pytest.mark.parametrize("method", OF_MANY)
def test_keys_whose_hashes_collide_do_not_match(method, monkeypatch):
    monkeypatch.setattr(
        streams, "hash_keys", lambda columns: np.array([(k or 0) % 2 for k in columns[0].to_pylist()], np.uint64)
    )
    rows = [(k, t) for k in range(5) for t in range(2)]
    case = LinearCase(linear(3, band(9, 9), method), [arrive(port, *rows) for port in (0, 1, 2, 0)])
    check(case)


# When rows leave, and what is promised: a row is needed as long as a row of *any* other port may come that is near it.

HELD_FOR_A_THIRD = [
    arrive(0, (1, 0)),
    arrive(1, (1, 0)),
    Advance(1, 100),
    EpochEnd(1),
    arrive(2, (1, 0)),
]
"""Port 1 is far ahead, so no later row of its can meet the row of port 0; but one that is there can, with port 2's."""


@pytest.mark.parametrize("method", OF_MANY)
def test_a_row_is_held_though_one_other_port_has_passed_it(method):
    join = LinearCase(linear(3, band(5, 5), method), HELD_FOR_A_THIRD).run()
    assert join.results == Counter([(0, 0, 0)])


def test_a_row_leaves_once_all_other_ports_have_passed_it():
    join = LinearRun(linear(3, band(5, 5)))
    join.on(arrive(0, (1, 0), (1, 20)), Advance(1, 100), Advance(0, 100))
    assert join.held == 2
    join.on(Advance(2, 5))
    assert join.held == 2, "0 can still meet 5"
    join.on(Advance(2, 10), EpochEnd(1), Advance(2, 26))
    assert join.held == 0


def test_a_row_that_all_other_ports_have_passed_meets_what_is_there_and_is_not_stored():
    join = LinearRun(linear(3, band(5, 5)))
    join.on(arrive(1, (1, 0)), arrive(2, (1, 0)), Advance(1, 100), Advance(2, 100), arrive(0, (1, 0)))
    assert join.results == Counter([(0, 0, 0)])
    assert [page.kind for page in join.logics[0].state().pages] == [1, 2]


def test_of_all_history_nothing_leaves_before_all_others_end():
    join = LinearRun(linear(3))
    join.on(arrive(0, (1, 0)), Advance(0, TIME_MAX), Advance(1, TIME_MAX), Advance(2, 10**9))
    assert join.held == 1
    join.on(Advance(2, TIME_MAX))
    assert join.held == 0


def times_after_each_event(case: LinearCase):
    """After each event: the config's bounds before it, and the times of the results that came with it."""
    join = case.start()
    bounds = case.config.bounds(*join.bounds)
    for event in [*case.events, None]:
        before = len(join.out)
        join.on(event) if event is not None else join.end()
        yield bounds, list(columns_of(join.out[before:], "t", case.config.ports))
        bounds = case.config.bounds(*join.bounds)


@given(cases(switching=False))
@examples(0.7)
def test_no_later_result_lies_below_a_bound(case):
    pick = {"latest": max, "earliest": min}.get(case.config.time, lambda times: times[case.config.time])
    for bounds, results in times_after_each_event(case):
        for times in results:
            assert all(time >= bound for time, bound in zip(times, bounds.individual, strict=True))
            assert not all(time < bound for time, bound in zip(times, bounds.joint, strict=True))
            assert pick(times) >= case.config.bound(bounds)


@pytest.mark.parametrize(
    ("within", "bounds", "individual", "latest"),
    [
        (Always(), (10, 20, 30), (TIME_MIN,) * 3, 10),
        (band(2, 3), (10, 20, 30), (10, 8, 8), 10),
        (band(2, 3), (30, 20, 10), (7, 7, 10), 10),
        (band("+5", "+9"), (10, 100, 100), (10, 15, 15), 15),
        (tumbling(10), (15, 25, 99), (15, 10, 10), 15),
        (band(2, 3), (TIME_MAX, TIME_MAX, 10), (7, 7, 10), 10),
        (band(2, 3), (TIME_MAX,) * 3, (TIME_MAX,) * 3, TIME_MAX),
    ],
)
def test_bounds_by_hand(within, bounds, individual, latest):
    config = linear(3, within)
    assert config.bounds(*bounds).individual == individual
    assert config.bound(config.bounds(*bounds)) == latest


def test_each_bound_is_reached_by_some_later_result():
    """What is promised is not less than can be: with rows at the bounds, a result comes at each of them."""
    config = linear(3, band(2, 3))
    for port, time in enumerate(config.bounds(10, 20, 30).individual):
        for times in ((10, 8, 8), (10, 10, 10)):
            if times[port] == time:
                join = LinearRun(config)
                join.on(arrive(1, (1, times[1])), arrive(2, (1, times[2])))
                join.on(*(Advance(p, bound) for p, bound in enumerate((10, 20, 30))), arrive(0, (1, times[0])))
                assert join.results.total() == 1


# Mutants: each rule is needed


def fails(case: LinearCase) -> bool:
    return case.run().results != case.expected()


def dead_once_one_port_has_passed(self, port, bounds):
    return max(self.horizon(port, other, bounds[other]) for other in range(self.ports) if other != port)


def dead_by_its_own_bound(self, port, bounds):
    return self.horizon(port, (port + 1) % self.ports, bounds[port])


def dead_by_its_neighbour_alone(self, port, bounds):
    other = (port + 1) % self.ports
    return self.horizon(port, other, bounds[other])


@pytest.mark.parametrize(
    "rule",
    [dead_once_one_port_has_passed, dead_by_its_own_bound, dead_by_its_neighbour_alone],
    ids=lambda f: f.__name__,
)
def test_rows_that_leave_by_a_weaker_rule_are_missed(rule, monkeypatch):
    own_bound = [arrive(0, (1, 0)), Advance(0, 100), Advance(1, -50), arrive(1, (1, 0)), arrive(2, (1, 0))]
    some = [LinearCase(linear(3, band(5, 5)), events) for events in (HELD_FOR_A_THIRD, own_bound)]
    assert not any(map(fails, some))
    monkeypatch.setattr(Nearness, "dead", rule)
    assert any(map(fails, some))


def test_a_band_that_is_read_the_same_way_from_both_sides_is_wrong(monkeypatch):
    case = LinearCase(linear(3, band("+1", "+3")), [arrive(port, (1, port)) for port in (0, 1, 2)])
    assert not fails(case)
    monkeypatch.setattr(Nearness, "of", lambda self, port, times, other: self.reach.of(0, times))
    assert fails(case)


def test_nearness_to_the_arrival_alone_is_wrong(monkeypatch):
    case = LinearCase(linear(3, band(5, 5)), [arrive(0, (1, 0)), arrive(1, (1, 8)), arrive(2, (1, 4))])
    assert not fails(case)
    whole = Expansion._matches

    def without_times(self, arrivals, stores, port, partials):
        return whole(self, arrivals, stores, port, partials._replace(times={}))

    monkeypatch.setattr(Expansion, "_matches", without_times)
    assert fails(case)


# Memory


@pytest.mark.parametrize("method", OF_MANY)
def test_a_hot_key_gives_every_result_within_the_budget(method):
    """32 rows a stream of one key and a few others: 32,768 results, 2.4 MB, in 100 kB and bounded chunks."""
    join = LinearRun(linear(3, method=method), memory=100_000)
    count = largest = 0
    for start in range(0, 32, 16):
        for port in range(3):
            join.on(arrive(port, *((0, n) for n in range(start, start + 16)), (1000 + 10 * start + port, 0)))
            count += sum(out.num_rows for out in join.out)
            largest = max([largest, *(out.nbytes for out in join.out)])
            join.out.clear()
        join.on(EpochEnd(1))
    assert count == 32**3
    assert largest <= join.memory / 4
    assert join.budget.peak <= join.memory


def test_a_few_wide_rows_of_a_hot_key_come_in_chunks_that_fit():
    types = RowType(pa.schema({"k": pa.string(), "t": pa.int64(), "id": pa.int64(), "w": pa.string()}), ("k",), "t")
    join = LinearRun(linear(3), memory=400_000, types=(types,) * 3)
    hot = "h" * 500
    for port in range(3):
        rows = [{"k": hot, "t": 0, "id": n, "w": "w" * (2000 if n == 0 else 2)} for n in range(20)]
        join.on(Arrive(port, rows + [{"k": f"{port}-{n}", "t": 0, "id": n, "w": ""} for n in range(200)]))
    assert sum(out.num_rows for out in join.out) == 20**3
    assert max(out.nbytes for out in join.out) <= 400_000 / 4
    assert join.budget.peak <= 400_000


# What it refuses


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"on": (("k",),)}, "A join takes two or more"),
        ({"on": (("k",), ("k", "l"))}, "as many for each stream"),
        ({"on": ((), ())}, "one or more"),
        ({"time": 3}, "a port from 0 to 2"),
        ({"time": "left"}, "'latest', 'earliest'"),
        ({"prefixes": ("a_",)}, "one for each of 3 streams"),
        ({"method": "bistream"}, "joins two streams, but there are 3"),
        ({"method": "hash"}, "is not one of auto, msj, mjoin, amjoin, bistream"),
        ({"method": MJoin(order=(0, 0, 1))}, "each of the ports 0 to 2 once"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        MultiJoin(**{"on": (("k",),) * 3, "within": Always(), **given})


def test_columns_of_one_name_need_prefixes():
    rows = RowType(pa.schema({"k": pa.int64()}), ("k",))
    with pytest.raises(ConfigError, match=r"Two streams have a column 'k'. Write prefixes="):
        MultiJoin((("k",),) * 2, Always()).output((rows, rows))


def test_only_msj_is_for_auto():
    assert [name for name, method in METHODS.items() if method.auto == "may pick"] == ["msj"]
    assert linear(3, method="auto").parameters == METHODS["msj"].parameters
