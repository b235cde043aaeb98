"""SSIJ and the partition-based join: their phases, what they keep, and how pages in memory compare with rows (F30)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import METHODS, Front, Inlj, PartitionBased, Ssij, Stages
from penstock.operators.lookup.segments import keep_by_utility
from tests.operators.lookup.cases import Case, Shard, backs, cases, numbered, run, skewed
from tests.operators.lookup.test_partitioned import ranges
from tests.streams import examples


@examples(0.3)
@given(cases(st.builds(Stages, back=backs(Ssij, PartitionBased), front=st.none())))
def test_f30_both_equal_their_definition(case: Case):
    at_work = run(case)
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory


# SSIJ


def test_rows_are_pending_until_there_are_enough_and_are_read_for_once_too_many_wait():
    join = Shard(ranges(40, 10), Stages(Ssij(input_thr=3, stream_thr=3, cache_blocks=1)))
    assert join.rows([1, 11]).finished == 0
    assert len(join.logic.waiting) == 2
    assert join.rows([12]).finished == 0, "online: no block is in memory, three rows wait"
    assert join.rows([21, 13]).finished == 0, "pending again"
    assert join.rows([2]).finished == 3, "the block that most wait for is read, then no more than three wait"
    assert join.logic.back.blocks.segments.ids.tolist() == [1]


def test_rows_of_a_block_in_memory_are_answered_without_a_read():
    join = Shard(ranges(40, 10), Stages(Ssij(input_thr=1, stream_thr=1, cache_blocks=1)))
    join.rows([1, 2])
    reads = join.logic.desk.stats.reads
    assert join.rows([3]).finished == 3
    assert join.logic.desk.stats.reads == reads == 1


def test_the_block_of_most_utility_stays():
    """Block 0 has answered three rows. Block 1 answers two, and two again: then it is of more use."""
    join = Shard(ranges(40, 10), Stages(Ssij(input_thr=1, stream_thr=1, cache_blocks=1)))
    join.rows([1, 2, 3])
    assert join.logic.back.blocks.utility.tolist() == [3, 0, 0, 0]
    join.rows([11, 12])
    assert join.logic.back.blocks.segments.ids.tolist() == [0]
    join.rows([13, 14])
    assert join.logic.back.blocks.segments.ids.tolist() == [1]


# The partition-based join


def test_a_partition_is_read_when_its_waiting_area_is_large():
    join = Shard(ranges(40, 10), Stages(PartitionBased(area=3, cache_pages=0)))
    assert join.rows([1, 11, 2]).finished == 0
    assert join.rows([3]).finished == 3
    assert join.rows([4]).finished == 3, "no page is kept"


def test_a_row_that_has_waited_too_long_has_its_partition_read():
    join = Shard(ranges(40, 10), Stages(PartitionBased(area=100, max_wait=2)))
    join.rows([1]).rows([11])
    assert join.finished == 0
    assert join.rows([21]).finished == 1


def test_rows_answered_from_memory_count_for_the_wait_of_others_and_so_do_those_of_earlier_epochs():
    join = Shard(ranges(40, 10), Stages(PartitionBased(area=2, max_wait=5)))
    join.rows([1, 2]).rows([11]).rows([3]).again().rows([4]).again().rows([5]).again().rows([6])
    assert join.finished == 6
    assert len(join.logic.waiting) == 1
    assert join.rows([7]).finished == 8


@examples(0.3)
@given(st.lists(st.integers(0, 39), max_size=60), st.integers(0, 12))
def test_no_row_waits_for_more_than_max_wait_others(keys, most):
    join = Shard(ranges(40, 10), Stages(PartitionBased(area=100, max_wait=most, cache_pages=1)))
    for came, key in enumerate(keys, 1):
        join.rows([key])
        assert all(came - 1 - n < max(most, 1) for n in waiting(join))


def waiting(join: Shard) -> list[int]:
    rows = join.logic.waiting.rows(np.ones(len(join.logic.waiting), np.bool_))
    return rows.column("n").to_pylist()


# F30


def hit_share(join: Shard, keys: np.ndarray) -> float:
    """The part of the second half of the stream that needs no read."""
    half = keys.size // 2

    def answered() -> int:
        front = join.logic.front
        return join.logic.desk.stats.at_hand + (0 if front is None else front.stats.hits)

    for some in np.array_split(keys[:half], 10):
        join.rows(some.tolist())
    before = answered()
    for some in np.array_split(keys[half:], 10):
        join.rows(some.tolist())
    return (answered() - before) / (keys.size - half)


KEYS, PAGE, PAGES = 4000, 40, 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "paged",
    [Ssij(input_thr=200, stream_thr=1000, cache_blocks=PAGES), PartitionBased(area=20, cache_pages=PAGES)],
    ids=lambda back: METHODS.name_of(Stages(back)),
)
def test_f30_rows_in_memory_answer_for_more_of_a_skewed_stream_than_pages_of_as_many_bytes(paged):
    """Keys lie anywhere in the table, so a page has few frequent ones."""
    table = numbered(KEYS, PAGE)
    keys = skewed(12_000, KEYS)
    pages = Shard(table, Stages(paged))
    share_of_pages = hit_share(pages, keys)
    nbytes = pages.logic.back.blocks.segments.held
    assert len(pages.logic.back.blocks.segments) == PAGES
    rows = Shard(table, Stages(Inlj(batch=200), Front(slots=PAGES * PAGE, threshold=2, policy="decay")))
    share_of_rows = hit_share(rows, keys)
    assert rows.logic.front.keys.nbytes <= 1.5 * nbytes, "as many rows; theirs have a time and a flag beside"
    assert share_of_rows >= share_of_pages
    assert share_of_rows > 0.5 > share_of_pages > PAGES * PAGE / KEYS
    for join in (pages, rows):
        assert join.end().results == join.expected


def test_the_pages_kept_come_close_to_those_that_were_best_in_hindsight():
    table, keys = numbered(KEYS, PAGE), skewed(12_000, KEYS)
    share = hit_share(Shard(table, Stages(PartitionBased(area=20, cache_pages=PAGES))), keys)
    column = pa.array(keys)
    rows_of_page = np.bincount(table.open().partition_of(hash_keys([column]), [column]))
    assert share > 0.8 * np.sort(rows_of_page)[-PAGES:].sum() / keys.size


def test_a_block_that_does_not_fit_displaces_nothing():
    join = Shard(ranges(40, 10), Stages(Ssij(input_thr=1, stream_thr=1)))
    join.rows([1, 2])
    segments = join.logic.back.blocks.segments
    (held,) = segments.sizes.tolist()
    segments.limit = held
    twice = pa.concat_batches([segments.get(0)] * 2)
    keep_by_utility(segments, np.array([5.0, 9.0, 0, 0]), 1, twice)
    assert segments.ids.tolist() == [0]
    segments.limit = 2 * held
    keep_by_utility(segments, np.array([5.0, 9.0, 0, 0]), 1, twice)
    assert segments.ids.tolist() == [1]
