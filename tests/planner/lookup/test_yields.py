"""What a cache answers and what a read yields, by the skew of keys."""

from __future__ import annotations

import pytest

from penstock.planner.lookup.skew import Skew
from penstock.planner.lookup.yields import partition_shares, read_yield, steady_share


def test_hot_partitions_are_read_for_more_rows():
    assert read_yield(5000, 500, Skew(100_000, 1.2)) > 1.02 * read_yield(5000, 500, Skew(100_000))
    assert read_yield(0, 500, Skew(100)) == 0.0


def test_shares_of_many_partitions_are_told_by_few_values():
    shares, weights = partition_shares(Skew(10_000_000, 1.0), 1000, 50_000)
    assert shares.size <= 512
    assert float((shares * weights).sum()) == pytest.approx(1.0)
    assert weights.sum() == 50_000


def test_a_cache_with_many_looks_or_no_skew_settles_at_the_ideal():
    skew = Skew(20_000, 0.9)
    assert steady_share(skew, 500, 10**7) == skew.share(500)
    assert steady_share(skew, 0, 100) == 0.0
    assert steady_share(skew, 20_000, 100) == 1.0
    assert steady_share(Skew(20_000), 500, 1000) == pytest.approx(500 / 20_000, rel=0.05)
