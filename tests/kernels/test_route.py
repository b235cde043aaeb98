"""Shards: contiguous ranges of the hash space that cover it without gap or overlap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.absent import is_absent
from penstock.kernels.route import by_shard, hash_range, shard_of, sorted_by_shard
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


rows_of = st.lists(st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(-2, 2)), max_size=20)


@given(st.lists(rows_of, min_size=1, max_size=4), st.integers(1, 5))
@examples(0.2)
def test_sorted_rows_of_shards_are_those_of_the_shards_with_ties_as_they_came(batches, shards):
    number = iter(range(100))
    made = [
        pa.record_batch(
            {
                "hash": pa.array([h for h, _ in rows], pa.uint64()),
                "time": pa.array([t for _, t in rows], pa.int64()),
                "n": pa.array([next(number) for _ in rows], pa.int64()),
                "text": pa.array([f"{t}" * h.bit_length() for h, t in rows], pa.string()),
                "none": pa.nulls(len(rows), pa.string()),
            }
        )
        for rows in batches
    ]
    parts = sorted_by_shard(made, shards)
    assert len(parts) == shards
    for shard, part in enumerate(parts):
        mine = [row for rows in made for row in by_shard(rows, shards)[shard].to_pylist()]
        assert part.to_pylist() == sorted(mine, key=lambda row: (row["hash"], row["time"]))
        assert part.schema == made[0].schema
        assert not part.num_rows or is_absent(part.column("none"))
