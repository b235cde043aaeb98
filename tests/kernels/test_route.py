"""Shards: contiguous ranges of the hash space that cover it without gap or overlap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.kernels.route import hash_range, shard_of
from tests.streams import examples

counts = st.one_of(st.integers(1, 9), st.integers(1, 5000))


@given(st.integers(0, 2**64 - 1), counts)
@example(0, 1)
@example(2**64 - 1, 5000)
@examples(0.2)
def test_a_hash_lies_in_the_range_of_its_shard(hash_, shards):
    shard = int(shard_of(np.array([hash_], np.uint64), shards)[0])
    first, last = hash_range(shard, shards)
    assert 0 <= shard < shards
    assert first <= hash_ <= last


@given(counts)
@examples(0.05)
def test_the_ranges_cover_the_space_one_after_the_other(shards):
    ranges = [hash_range(shard, shards) for shard in range(shards)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2**64 - 1
    assert all(one[1] + 1 == next_[0] for one, next_ in pairwise(ranges))


@given(counts, st.integers(0, 4999))
@examples(0.1)
def test_both_ends_of_a_range_belong_to_its_shard(shards, shard):
    shard %= shards
    ends = np.array(hash_range(shard, shards), np.uint64)
    assert shard_of(ends, shards).tolist() == [shard, shard]


def test_shards_are_of_like_size():
    sizes = [last - first for first, last in (hash_range(shard, 7) for shard in range(7))]
    assert max(sizes) - min(sizes) <= 2**32
