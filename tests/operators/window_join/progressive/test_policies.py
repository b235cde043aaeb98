"""Which rows leave memory (P1, P4): the goldens of the source, counters against recounts, ties."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from lab.progressive_simulation import count_results
from lab.workloads.progressive import Drifting, Skewed
from penstock.core.errors import ConfigError
from penstock.operators.window_join import Rrpj
from penstock.operators.window_join.progressive.policies import DriftRate, ResultRate, RowRate, Victim
from tests.streams import EpochEnd, Run, ever_trace


def counted(policy, rows, results):
    """A policy that knows so many rows and results of the left side's partitions."""
    policy.arrive(0, np.repeat(np.arange(len(rows)), rows))
    policy.credit(0, np.array(results))
    return policy


def test_p1_a_large_partition_has_no_advantage():
    """(R=100, N=1) ties (1000, 10)."""
    rates = counted(ResultRate(2), [1, 10], [100, 1000]).scores()[0]
    assert rates[0] == rates[1]


def test_equal_scores_go_left_first_and_by_number():
    policy = ResultRate(3)
    for port in (1, 0):
        policy.arrive(port, np.array([2, 1, 0]))
    assert [tuple(victim)[:2] for victim in policy.victims(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("sigma", "expected"), [(1.0, [5.0, 5.0]), (0.0, [4.5, 0.5]), (0.5, [4.75, 2.75])], ids=["1", "0", "0.5"]
)
def test_p1_older_results_fade(sigma, expected):
    """N = 10 each, epochs P1 = (5, 45), P2 = (45, 5) of Eq 3.4."""
    policy = counted(ResultRate(2, sigma), [10, 10], [5, 45])
    policy.flushed()
    policy.credit(0, np.array([45, 5]))
    assert policy.scores()[0].tolist() == expected


def test_p1_jgradient_knows_no_sizes():
    rows, results = [1, 100], [10, 20]
    assert counted(ResultRate(2, per="nothing"), rows, results).victims(1) == [Victim(0, 0, 1)]
    assert counted(ResultRate(2), rows, results).victims(1) == [Victim(0, 1, 1)]


def test_a_small_victim_is_emptied_and_the_next_taken():
    policy = counted(ResultRate(3), [2, 3, 4], [0, 9, 1])
    assert policy.victims(5) == [Victim(0, 0, 2), Victim(0, 2, 3)]


def trace_of(method, seed):
    """What comes out after each event."""
    case = replace(ever_trace(seed, 0), how="inner", method=method)
    at_work, seen = Run(case.config, case.shards, case.memory), []
    for event in case.events:
        at_work.on(event)
        seen.append(at_work.results)
    return seen


def test_p1_sigma_of_one_is_rrpj(monkeypatch):
    """P1: the same trace as if nothing ever faded, and another one for other sigmas."""
    tight = {"memory": 12, "row": 1, "partitions": 5, "flush": 0.2}
    one, none = ([trace_of(Rrpj(**tight, sigma=sigma), n) for n in range(8)] for sigma in (1.0, 0.0))
    monkeypatch.setattr(ResultRate, "flushed", lambda policy: None)
    assert [trace_of(Rrpj(**tight, sigma=1.0), n) for n in range(8)] == one
    assert one != none


def from_memory(policy, streams):
    """Results from memory of 100,000 rows, with room for 4,250 of them."""
    return count_results(policy, *streams.draw(100_000, seed=1), memory=4_250, flush=0.1).total


def test_sigma_follows_drift():
    """Where streams drift, older results are left out, and more come out than by counting all; but nothing else."""
    drifting = Drifting(period=1_600, partitions=100, domain=500, skew=1.0)
    plain, last, auto = (
        from_memory(policy, drifting) for policy in (ResultRate(100), ResultRate(100, 0), DriftRate(100))
    )
    assert auto > 1.25 * plain
    assert auto > 0.95 * last


@pytest.mark.parametrize("pattern", ["harmony", "reverse"])
@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_sigma_stays_where_streams_are_steady(pattern, skew):
    steady = Skewed(pattern, partitions=100, domain=500, skew=skew, disjoint=0.0)
    assert from_memory(DriftRate(100), steady) > 0.98 * from_memory(ResultRate(100), steady)


def test_what_drift_is_told_by_is_remembered():
    policy = counted(DriftRate(2), [10, 10], [90, 10])
    for results in ([90, 10], [10, 90], [10, 90], [10, 90]):
        policy.victims(1)
        policy.credit(0, np.array(results))
    policy.victims(1)
    again = DriftRate(2)
    again.take_up(json.loads(json.dumps(policy.to_json())))
    assert policy.drifts
    assert again.drifts
    assert (again.scores() == policy.scores()).all()


def test_results_are_those_of_the_partition_that_was_probed():
    """Three left rows of a key are found by one right row: three results of the left partition, none of the right."""
    case = replace(ever_trace(0, 0), events=[], how="inner", shards=1, method=Rrpj(memory=99, row=1, partitions=4))
    at_work = Run(case.config)
    at_work.on(*_arrivals([(0, 7), (0, 7), (0, 7), (1, 7), (1, 8)]))
    (logic,) = at_work.logics
    assert logic._policy.results.sum(axis=1).tolist() == [3, 0]


def _arrivals(keys):
    from tests.streams import Arrive

    return [Arrive(port, [{"k": k, "t": n, "id": n}]) for n, (port, k) in enumerate(keys)]


@pytest.mark.parametrize("seed", range(4))
def test_p4_results_counted_by_row_equal_a_recount(seed):
    """P4: a row's counter is how many arrivals found it in memory, over epochs, too."""
    case = replace(
        ever_trace(seed, 1),
        how="inner",
        shards=1,
        memory=1 << 20,
        method=Rrpj(by="row", memory=500, row=1, partitions=3),
    )
    at_work, came, found = Run(case.config), {}, Counter()
    for event in case.events:
        before = at_work.results
        at_work.on(replace(event, shards=1) if isinstance(event, EpochEnd) else event)
        port = getattr(event, "port", None)
        for pair, times in (at_work.results - before).items():
            found[pair[1 - port]] += times
        came |= {row["id"]: None for row in getattr(event, "rows", ()) if row["k"] is not None}
    (logic,) = at_work.logics
    logic._wake()
    slabs = [slab for side in logic.sides for slab in side.slabs]
    counters = {
        row: hits
        for slab in slabs
        for row, hits in zip(slab.batch.column("id").to_pylist(), slab.hits.tolist(), strict=True)
    }
    assert counters == {row: found[row] for row in came}


def test_rows_with_the_fewest_results_leave_first_and_young_ones_are_spared():
    hits, came = np.array([3, 0, 1, 0]), np.array([1, 4, 3, 2])
    assert RowRate(1).order(hits, came).tolist() == [3, 1, 2, 0]
    assert RowRate(1, grace=0.25).order(hits, came).tolist() == [3, 2, 0, 1]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"sigma": 2}, 'sigma=2 must be a number from 0 to 1, or "auto".'),
        ({"flush": -1}, "flush=-1 must be a number from 0 to 1"),
        ({"memory": 0}, "memory=0 must be a number of bytes, 1 or more."),
        ({"partitions": 0}, "partitions=0 must be a whole number from 1 to 1,024."),
        ({"per": "seen"}, "per='seen' is not one of arrived, resident, nothing."),
        ({"by": "page"}, "by='page' is not one of partition, row."),
        ({"grace": 1.5}, "grace=1.5 must be a number from 0 to 1"),
    ],
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else "",
)
def test_parameters_are_checked(parameters, said):
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        Rrpj(**parameters)
