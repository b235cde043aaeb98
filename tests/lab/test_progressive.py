"""Joins without a window in the lab (X1–X5): shapes at small scale, the table at full size, counts against rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.progressive_figures import BAND, DRIFTS, FAR, FEW, TABLE
from lab.progressive_runs import CLEANUP, IN_MEMORY, PARTITIONS, THROUGHPUT, Run
from lab.progressive_simulation import complete, count_results
from lab.workloads.progressive import Drifting, Skewed
from penstock.core.errors import ConfigError
from penstock.operators.window_join.progressive.baselines.policies import ArrivalRate, Largest
from penstock.operators.window_join.progressive.policies import Policy, ResultRate

PATTERNS = pytest.mark.parametrize("pattern", ["harmony", "reverse"])
DRIFT = Run(period=32_000.0, skew=2.0)


def measured(run: Run, measure, scale: float = 1 / 20, seed: int = 0) -> float:
    return run.point(scale, seed, lambda *_: None).totals[measure.name]


def by_row(policy: Policy, side, keys, memory: int, flush: int) -> int:
    """The definition (spec §2.1), row by row."""
    held: list[list[int]] = [[], []]
    results = 0
    for port, key in zip(side.tolist(), keys.tolist(), strict=True):
        found = held[1 - port].count(key)
        credits = np.zeros(policy.partitions, np.int64)
        credits[key % policy.partitions] = found
        policy.credit(1 - port, credits)
        results += found
        if len(held[0]) + len(held[1]) + 1 > memory:
            for victim in policy.victims(flush):
                mine = [n for n, k in enumerate(held[victim.port]) if k % policy.partitions == victim.partition]
                gone = set(mine[: victim.rows])
                held[victim.port] = [k for n, k in enumerate(held[victim.port]) if n not in gone]
                policy.leave(victim)
            policy.flushed()
        held[port].append(key)
        policy.arrive(port, np.array([key % policy.partitions]))
    return results


@pytest.mark.parametrize("make", [ResultRate, Largest, ArrivalRate, lambda n: ResultRate(n, 0.5)])
@pytest.mark.parametrize("flush", [1, 5, 30])
def test_counting_by_key_is_joining_row_by_row(make, flush):
    side, keys = Drifting(100, partitions=4, domain=40).draw(500, seed=3)
    counted = count_results(make(4), side, keys, memory=30, flush=flush / 30)
    assert counted.total == by_row(make(4), side, keys, 30, flush)


def test_with_memory_for_all_every_result_is_there():
    side, keys = Skewed(partitions=10, domain=100).draw(2000, seed=1)
    counted = count_results(ResultRate(10), side, keys, memory=2000, flush=0.1)
    assert (counted.total, counted.runs) == (complete(side, keys), 0)


@PATTERNS
def test_x1_rrpj_equals_rpj_where_partitions_are_uniform_and_beats_it_where_not(pattern):
    uniform, apart = (
        measured(Run("RRPJ", pattern=pattern, disjoint=part), IN_MEMORY)
        / measured(Run("RPJ", pattern=pattern, disjoint=part), IN_MEMORY)
        for part in (0.0, 0.5)
    )
    assert 0.95 <= uniform <= 1.05
    assert apart > 1.2


def test_x2_amortising_helps_the_more_the_longer_a_permutation_lasts():
    never, long = (
        measured(replace(DRIFT, period=period, sigma=0.0), THROUGHPUT)
        / measured(replace(DRIFT, period=period), THROUGHPUT)
        for period in (0.0, 32_000.0)
    )
    assert 0.95 <= never <= 1.05
    assert long > 2


@PATTERNS
def test_x3_x5_small_flushes_give_more_from_memory_and_single_tuples_cost_most_at_clean_up(pattern):
    side, keys = Skewed(pattern, partitions=10, domain=100).draw(6000, seed=1)
    runs = [count_results(ResultRate(10), side, keys, 400, flush, page=4) for flush in (0.0, 0.1, 0.4, 1.0)]
    one, *larger = runs
    assert [run.total for run in sorted(runs, key=lambda run: -run.total)] == [run.total for run in runs]
    assert [run.runs for run in sorted(runs, key=lambda run: -run.runs)] == [run.runs for run in runs]
    assert one.cleanup > max(run.cleanup for run in larger)


@PATTERNS
def test_x5_from_ten_per_cent_on_clean_up_hardly_depends_on_flushes_unless_partitions_are_many(pattern):
    """With the limit of the lab's figures. A flush starts a page in each partition that it takes from."""

    def spread(partitions: int) -> float:
        runs = [Run(pattern=pattern, flush=flush, partitions=partitions) for flush in (0.1, 0.4, 1.0)]
        seconds = [measured(run, CLEANUP, scale=1 / 8) for run in runs]
        return max(seconds) / min(seconds)

    assert spread(FEW) < 1.2 < BAND
    assert spread(PARTITIONS) > BAND


def test_rpj_gains_by_small_flushes_only_if_the_most_frequent_partition_meets():
    """Fig 4.7: RPJ keeps what is frequent, be it productive or not."""

    def small_over_large(most_meet: bool) -> float:
        runs = [Run("RPJ", disjoint=0.5, flush=flush, most_meet=most_meet) for flush in (0.1, 1.0)]
        return measured(runs[0], IN_MEMORY) / measured(runs[1], IN_MEMORY)

    assert small_over_large(most_meet=False) < 1
    assert small_over_large(most_meet=True) > 5


def test_x4_without_skew_all_are_equal():
    rates = [
        measured(replace(DRIFT, skew=0.0, sigma=sigma, memory=memory, flush=flush), THROUGHPUT, 1 / 50) / memory
        for memory in (42_500.0, 85_000.0)
        for flush in (0.1, 0.2)
        for sigma in (0.0, 0.5, 1.0)
    ]
    assert max(rates) < 1.15 * min(rates)


@pytest.mark.deep
@pytest.mark.parametrize("label", TABLE)
def test_x4_each_cell_of_the_table_at_full_size(label):
    sigma = 1.0 if label == "RRPJ" else float(label.removeprefix("σ = "))
    for period, printed in zip(DRIFTS, TABLE[label], strict=True):
        run = replace(DRIFT, period=period, sigma=sigma)
        found = float(np.mean([measured(run, THROUGHPUT, scale=1.0, seed=seed) for seed in range(5)]))
        assert found == pytest.approx(printed, rel=0.25 if (label, period) in FAR else 0.1)


def test_p5_amortising_helps_rpj_and_does_la_no_harm():
    """Under drift RPJ gains as RRPJ does; LA goes by the latest arrivals anyway."""
    rpj, la = (
        measured(replace(DRIFT, policy=policy, sigma=0.2), THROUGHPUT)
        / measured(replace(DRIFT, policy=policy), THROUGHPUT)
        for policy in ("RPJ", "LA")
    )
    assert rpj > 2
    assert 0.9 < la < 1.1


def test_streams_are_checked():
    with pytest.raises(ConfigError, match="domain=10 has less than two keys for each of 100 partitions"):
        Skewed(domain=10)
    with pytest.raises(ConfigError, match="disjoint=2 is not a fraction"):
        Skewed(disjoint=2)
    with pytest.raises(ConfigError, match="period=-1 is negative"):
        Drifting(-1)
