"""Partitions that follow the streams (E6): every pair once across new cuts, and none much larger than the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.kernels.hashing import hash_keys
from penstock.operators.window_join import Rrpj
from penstock.operators.window_join.progressive import cutting
from penstock.operators.window_join.progressive.cutting import BUCKETS, UNEVEN, Cut
from tests.operators.window_join.progressive.test_engine import check, join
from tests.streams import LEFT, RIGHT, Advance, Arrive, EpochEnd, cases, ever, examples, progressives

PARTITIONS = 8


@given(cases(within=ever, methods=progressives()))
@examples(0.5)
def test_e6_every_pair_comes_out_once_across_new_cuts(case):
    """Few rows are enough, so that keys are dealt out anew in many of the cases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "_ENOUGH", 0)
        patch.setattr(cutting, "UNEVEN", 1.0)
        patch.setattr(cutting, "_GAIN", 1.0)
        check(case)


def drifting(epochs: int, rows: int = 2000) -> list[np.ndarray]:
    """Keys of each epoch: two of eight partitions by hash, others every ten epochs, have nearly all."""
    numbers = np.arange(200_000)
    partitions = (hash_keys([pa.array(numbers)]) % np.uint64(PARTITIONS)).astype(int)
    of = [numbers[partitions == partition] for partition in range(PARTITIONS)]
    rng = np.random.default_rng(2)
    found = []
    for epoch in range(epochs):
        weights = np.full(PARTITIONS, 0.02)
        weights[[epoch // 10 % PARTITIONS, (epoch // 10 + 3) % PARTITIONS]] = 1
        which = rng.choice(PARTITIONS, rows, p=weights / weights.sum())
        found.append(np.array([rng.choice(of[partition][:300]) for partition in which]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["fixed", "adaptive"])
def test_e6_under_drift_no_partition_gets_much_more_than_its_part(cut):
    at_work = join(Rrpj(memory=800, row=1, partitions=PARTITIONS, cut=cut))
    uneven, cuts = [], set()
    expected = 0
    seen = [np.zeros(200_000, np.int64) for _ in (LEFT, RIGHT)]
    for epoch, keys in enumerate(drifting(30)):
        (logic,) = at_work.logics
        counts = np.bincount(logic.sides[0].cut.of(hash_keys([pa.array(keys)])), minlength=PARTITIONS)
        uneven.append(counts.max() / counts.mean())
        cuts.add(logic.sides[0].cut.number)
        port = epoch % 2
        rows = [{"k": int(k), "t": epoch, "id": 2000 * epoch + n} for n, k in enumerate(keys)]
        at_work.on(Arrive(port, rows), EpochEnd(1))
        expected += int(seen[1 - port][keys].sum())
        np.add.at(seen[port], keys, 1)
    settled = [ratio for epoch, ratio in enumerate(uneven) if epoch % 10 >= 3]
    if cut == "fixed":
        assert min(uneven) > 3
        assert cuts == {0}
    else:
        assert max(settled) < UNEVEN + 0.2
        assert len(cuts) >= 3
    at_work.end()
    assert sum(at_work.results.values()) == len(at_work.results) == expected


def test_a_hot_bucket_fills_a_partition_and_the_others_are_even():
    loads = np.ones(BUCKETS)
    loads[7] = 4000
    cut = Cut(PARTITIONS)
    assert cut.adapted(loads, 0) is cut  # nothing would be gained
    loads[15] = 4000  # of the same partition
    better = cut.adapted(loads, taken=5)
    assert better.number == 6
    assert better.unevenness(loads) == pytest.approx(cut.unevenness(loads) / 2, rel=0.1)
    rest = np.bincount(better.of(np.arange(BUCKETS, dtype=np.uint64)), weights=loads, minlength=PARTITIONS)
    assert sorted(rest)[-3] < 1.05 * sorted(rest)[0]


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_what_is_counted_of_partitions_moves_with_their_keys(partitions, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 50, (2, BUCKETS))
    one = Cut(partitions)
    other = Cut(partitions, 1, tuple(rng.integers(0, partitions, BUCKETS).tolist()))
    policy = Rrpj(partitions=partitions).policy()
    for port in (LEFT, RIGHT):
        policy.arrived[port] = np.bincount(one._owners(), weights=rows[port], minlength=partitions)
    policy.recut(one.moved(other, rows))
    for port in (LEFT, RIGHT):
        wanted = np.bincount(other._owners(), weights=rows[port], minlength=partitions)
        assert np.allclose(policy.arrived[port], wanted, atol=1e-3)


def test_there_are_two_ways_to_cut():
    with pytest.raises(ConfigError, match="cut='sometimes' is not one of fixed, adaptive"):
        Rrpj(cut="sometimes")


def test_a_shard_that_is_made_of_others_begins_anew():
    at_work = join(Rrpj(memory=100, row=1, partitions=PARTITIONS, cut="adaptive"))
    for epoch, keys in enumerate(drifting(3, rows=300)):
        at_work.on(Arrive(LEFT, [{"k": int(k), "t": epoch, "id": n} for n, k in enumerate(keys)]), EpochEnd(1))
    assert at_work.logics[0].sides[0].cut.number > 0
    at_work.on(EpochEnd(2), EpochEnd(1))
    assert at_work.logics[0].sides[0].cut.number == 0
    at_work.on(Advance(LEFT, 5))
    at_work.end()
    assert at_work.held == 0
