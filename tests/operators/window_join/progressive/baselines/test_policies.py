"""The policies to compare with (P2, P3, P5): the golden flush list of RPJ, Eq 5.1 by hand, and fading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.core.errors import ConfigError
from penstock.operators.window_join.progressive.baselines.parameters import La, Random, Rpj
from penstock.operators.window_join.progressive.baselines.policies import (
    ArrivalRate,
    ByChance,
    Everything,
    Largest,
    LargestPair,
    LastSeen,
    Nothing,
)
from penstock.operators.window_join.progressive.policies import Victim
from tests.streams import Run, ever_trace

LEFT, RIGHT = 0, 1


def test_p2_the_golden_flush_list_of_rpj():
    """R p(2, 4, 6, 8) = 10, 15, 4, 6 %; S = 5, 20, 30, 10 %; two rows of each: S(6) × 2, R(2) × 2, S(8) × 2 leave."""
    policy = ArrivalRate(4)
    policy.weight = np.array([[10.0, 15, 4, 6], [5, 20, 30, 10]])
    policy.rates = policy.weight.sum(axis=1)
    policy.resident[:] = 2
    assert np.allclose(policy.probabilities(), np.array([[0.10, 0.15, 0.04, 0.06], [0.05, 0.20, 0.30, 0.10]]))
    assert policy.victims(6) == [Victim(RIGHT, 2, 2), Victim(LEFT, 0, 2), Victim(RIGHT, 3, 2)]


def test_p2_rpj_by_hand():
    """Eq 5.1: 3 of 4 left rows are of partition 0, and 4 of the 5 latest rows are left ones."""
    policy = ArrivalRate(2)
    policy.arrive(LEFT, np.array([0, 0, 0, 1]))
    policy.arrive(RIGHT, np.array([1]))
    assert np.allclose(policy.probabilities(), [[0.75 * 0.8, 0.25 * 0.8], [0, 0.2]])
    assert np.allclose(policy.scores(), [[0, 0.2], [0.75 * 0.8, 0.25 * 0.8]])


def test_p3_la_evicts_what_was_not_seen_lately():
    policy = LastSeen(3, share=0.5, history=2)
    policy.arrive(LEFT, np.array([0, 0, 0, 1, 2]))
    policy.arrive(RIGHT, np.array([0, 1, 2]))
    # P = 3/5, 1/5, 1/5; the last two were 1 and 2.
    assert np.allclose(policy.scores()[RIGHT], [0.3, 0.1 + 0.25, 0.1 + 0.25])
    assert policy.victims(1) == [Victim(LEFT, 0, 1)]  # right: 1/6, then 1/6 + 1/4 twice


def test_p3_xjoin_takes_the_largest_and_hmj_the_largest_pair():
    largest, pair = Largest(2), LargestPair(2)
    for policy in (largest, pair):
        policy.arrive(LEFT, np.array([0, 0, 0, 1, 1]))
        policy.arrive(RIGHT, np.array([1, 1]))
    assert largest.victims(1) == [Victim(LEFT, 0, 1)]
    assert pair.victims(4) == [Victim(LEFT, 1, 2), Victim(RIGHT, 1, 2)]


def test_p3_pmj_lets_all_leave_and_shj_none():
    assert Everything.loads
    assert not Nothing.flushes


def test_chance_has_a_seed():
    def ranks(seed):
        policy = ByChance(20, seed)
        first = policy.ranked(1).tolist()
        policy.flushed()
        return first, policy.ranked(1).tolist()

    assert ranks(1) == ranks(1)
    assert ranks(1) != ranks(2)
    assert len(set(map(tuple, ranks(1)))) == 2


@pytest.mark.parametrize("kind", [Rpj, La])
def test_p5_sigma_of_one_is_the_plain_policy(kind):
    """P5: the same trace; with less, arrivals fade."""

    def traces(**parameters):
        case = replace(ever_trace(3, 0), how="inner", method=kind(memory=12, row=1, partitions=5, **parameters))
        at_work, seen = Run(case.config, case.shards, case.memory), []
        for event in case.events:
            at_work.on(event)
            seen.append(at_work.results)
        return seen

    assert traces() == traces(sigma=1.0)
    policy = kind(sigma=0.5, partitions=2).policy()
    policy.arrive(LEFT, np.array([0, 1]))
    policy.flushed()
    assert policy.weight[LEFT].tolist() == [0.5, 0.5]


def test_parameters_are_checked():
    for make, said in (
        (lambda: Random(seed=-1), "seed=-1 must be a whole number"),
        (lambda: La(history=0), "history=0 must be a whole number"),
        (lambda: La(share=2), "share=2 must be a number from 0 to 1"),
        (lambda: Rpj(sigma=-1), "sigma=-1 must be a number from 0 to 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            make()
