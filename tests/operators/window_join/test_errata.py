"""Wrong forms must fail: the errata of the source as printed, and each subtle rule of OA-Join broken on purpose.

Every mutant comes with the smallest stream that shows it; the real operator passes on the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress import Bounds
from penstock.core.time import TIME_MIN
from penstock.core.within import LEFT, RIGHT, Tumbling, band, tumbling, windows
from penstock.kernels.hashing import hash_keys
from penstock.kernels.match import ranges
from penstock.kernels.route import shard_of
from penstock.operators.window_join import OAJoin, WindowJoin
from penstock.operators.window_join.pairing import Pairing
from penstock.storage import compaction
from tests import streams
from tests.oracle import window_join as oracle
from tests.streams import Arrive, Case, EpochEnd, advance, cases, examples, left, near, right, run


def right_results(case: Case) -> bool:
    return run(case).results == case.expected()


# The errata of the source (spec 2.3, 2.4, 2.9, 6.1)


def test_ranges_the_wrong_way_round_fail():
    """5.2.1 and Fig 8-5 swap the ranges; complete is only window-on-Si: a left row stays for the *left* range."""
    events = [left(t=10, k=1), right(t=13, k=1)]
    printed = Case(windows(left=2, right=3), "inner", events)
    real = Case(windows(left=3, right=2), "inner", events)
    assert right_results(real)
    assert run(printed).results != real.expected()


@dataclass(frozen=True)
class CeilingBuckets:
    """Windows as printed, by ceilings: ⌈t/size⌉."""

    size: int

    def of(self, port, times):
        bucket = -(-times // self.size)
        return (bucket - 1) * self.size + 1, bucket * self.size


def test_tumbling_windows_by_ceilings_fail(monkeypatch):
    case = Case(tumbling(10), "inner", [left(t=0, k=1), right(t=9, k=1)])
    assert right_results(case)
    monkeypatch.setattr(Tumbling, "reach", lambda self, unit: CeilingBuckets(self.size.amount))
    assert not right_results(case)


def printed_bounds(size: int, b0: int, b1: int) -> tuple[int, int]:
    """Fig 7-2's punctuation: min(⌈b_other / R⌉ · R, b_own)."""
    return min(-(-b1 // size) * size, b0), min(-(-b0 // size) * size, b1)


def test_punctuation_of_tumbling_joins_by_ceilings_is_broken_by_a_later_result():
    """Bounds (12, 8), windows of 5: the left row at 7 may still meet a right row at 9, but ⌈8/5⌉·5 promises 10."""
    join = streams.Run(WindowJoin((("k", "k"),), tumbling(5)))
    for event in (left(t=7, k=1), advance(left=12), advance(right=8), right(t=9, k=1)):
        join.on(event)
    assert list(join.results) == [(7, 9)]
    assert printed_bounds(5, 12, 8)[LEFT] == 10, "unsound as printed: 7 is below"
    assert join.config.bounds(12, 8).individual[LEFT] == 5


def test_punctuation_of_tumbling_joins_without_the_scale_comes_to_nothing():
    """Fig 7-2 also leaves out "times R": a window's number is not a time. Sound here, but 2 instead of 10."""
    assert min(14 // 5, 12) == 2
    assert WindowJoin((("k", "k"),), tumbling(5)).bounds(12, 14).individual[LEFT] == 10


def test_fig_7_3s_filter_as_printed_filters_nothing():
    """It passes a box iff one side is within reach of the other, or the other of the one: always."""
    reach = 2
    assert all(b0 - b1 <= reach or b1 - b0 <= reach for b0 in range(-9, 10) for b1 in range(-9, 10))


def test_fig_7_3s_filter_with_and_loses_pairs_for_good():
    """Only boxes inside the band would be sent. Left runs ahead, then right: no box is, and (1, -1) never complete."""
    promises = [(0, 0), (10, 0), (10, 20)]
    sent = [(b0, b1) for b0, b1 in promises if b0 - b1 <= 2 and b1 - b0 <= 2]
    assert sent == [(0, 0)]
    assert not any(b0 > 1 and b1 > -1 for b0, b1 in sent)
    clipped = [WindowJoin((("k", "k"),), band(2, 2)).bounds(*promise).joint for promise in promises]
    assert clipped == [(0, 0), (2, 0), (10, 12)]
    assert clipped[1][LEFT] > 1
    assert clipped[1][RIGHT] > -1


def test_a_bound_read_as_everything_up_to_it_has_come_loses_the_row_at_it(monkeypatch):
    """The source says both "< p" and "<= p"; ours is strict, so a row at the bound may still come."""
    case = Case(band(2, 3), "inner", [left(t=5, k=1), advance(right=8), right(t=8, k=1)])
    assert right_results(case)
    purge_early(monkeypatch)
    assert not right_results(case)


@given(
    cases(within=st.builds(windows, left=st.integers(1, 6), right=st.integers(1, 6), ends=st.just("()"))),
)
@examples(0.06)
def test_widjoin_is_the_band_with_open_ends(case):
    """F19: a pair matches iff some window id holds both rows."""
    ranges_ = case.within.after.amount, case.within.before.amount
    assert run(case).results == oracle.window_join(*case.rows, near=oracle.widjoin(*ranges_), how=case.how)


# The rules of OA-Join, each broken


def every_hash(value):
    """Hashes that collide: `value` of the key's own number."""
    return lambda columns: np.array([value(k or 0) for k in columns[0].to_pylist()], np.uint64)


KEYS_THAT_COLLIDE = Case(band(5, 5), "inner", [left(t=0, k=1), right(t=0, k=2)])


@pytest.mark.parametrize("value", [lambda k: 0, lambda k: k % 2], ids=["all 0", "0 or 1"])
def test_with_hashes_that_collide_the_join_still_equals_its_definition(value):
    @given(cases())
    @examples(0.04)
    def check(case):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "hash_keys", every_hash(value))
            assert run(case).results == case.expected()

    check()


def test_keys_that_are_not_verified_fail_where_hashes_collide(monkeypatch):
    monkeypatch.setattr(streams, "hash_keys", every_hash(lambda k: 0))
    assert right_results(KEYS_THAT_COLLIDE)
    monkeypatch.setattr(
        Pairing, "_same_keys", lambda self, port, arrivals, mine, held, theirs: np.ones(mine.size, bool)
    )
    assert not right_results(KEYS_THAT_COLLIDE)


def without_floor(page):
    return replace(page, floor=TIME_MIN)


def forget_floor(patch):
    """Rows below the floor come out again."""
    real = OAJoin._unmatched
    patch.setattr(OAJoin, "_unmatched", lambda self, page, dead: real(self, without_floor(page), dead))


def merge_without_floor(patch):
    """Merging brings the dead back to life."""
    real = compaction._rewrite
    patch.setattr(compaction, "_rewrite", lambda pages, store: real([without_floor(page) for page in pages], store))


def merge_without_marks(patch):
    """Merging forgets who has met a partner."""
    real = compaction._rewrite
    patch.setattr(compaction, "_rewrite", lambda pages, store: real([replace(p, marks=None) for p in pages], store))


def split_without_marks(patch):
    """Splitting a shard forgets who has met a partner."""
    real = streams.clip_page

    def clip(store, page, first, last):
        part = real(store, page, first, last)
        return part if part is None or part is page else replace(part, marks=None)

    patch.setattr(streams, "clip_page", clip)


def marks_from_the_start(patch):
    """A slice reads the marks of the stored batch as if they were its own."""
    real = OAJoin._marks

    def marks(self, page):
        return np.roll(real(self, page), page.begin)

    patch.setattr(OAJoin, "_marks", marks)


def no_marks(patch):
    """Nobody remembers who has met a partner."""
    patch.setattr(OAJoin, "_mark", lambda self, page, marks: page)


def null_keys_match(patch):
    patch.setattr(Pairing, "with_keys", lambda self, port, rows: (rows, np.empty(0, int)))


def open_low_end(patch):
    patch.setattr("penstock.operators.window_join.pairing.ranges", lambda h, t, n, lo, hi: ranges(h, t, n, lo + 1, hi))


def open_high_end(patch):
    patch.setattr("penstock.operators.window_join.pairing.ranges", lambda h, t, n, lo, hi: ranges(h, t, n, lo, hi - 1))


def shifted_settle(by):
    def mutate(patch):
        real = OAJoin._settle

        def settle(self, port, arrivals, times, matched):
            self._bounds[1 - port] += by
            yield from real(self, port, arrivals, times, matched)
            self._bounds[1 - port] -= by

        patch.setattr(OAJoin, "_settle", settle)

    return mutate


def purge_early(patch):
    real = OAJoin.advance
    patch.setattr(OAJoin, "advance", lambda self, port, bound: real(self, port, min(bound + 1, 2**63 - 1)))


def probe_after_hold(patch):
    """Rows of one port only ever meet those that come later."""
    patch.setattr(OAJoin, "_probe", lambda self, *args: iter(()))


def pages_skipped_by_half_their_range(patch):
    """Page times taken for something narrower than they are."""
    real = OAJoin._arrive

    def arrive(self, port, rows):
        pages = self._pages[1 - port]
        pages[:] = [replace(page, max_time=page.min_time) for page in pages]
        yield from real(self, port, rows)

    patch.setattr(OAJoin, "_arrive", arrive)


def key_of_shard(shard: int) -> int:
    """A key that goes to this one of two shards."""
    keys = range(100)
    return keys[shard_of(hash_keys([pa.array(keys)]), 2).tolist().index(shard)]


LOW, HIGH = key_of_shard(0), key_of_shard(1)


def lefts(*rows: tuple[int, int]) -> Arrive:
    """Left rows (time, key) in one batch; ids are their places plus 100."""
    return Arrive(LEFT, [{"k": k, "t": t, "id": 100 + n} for n, (t, k) in enumerate(rows)])


FOUR_PAGES = [left(t=t, k=1) for t in (0, 1, 2, 3)]

MUTANTS = {
    "the floor ignored when rows die": (
        forget_floor,
        Case(band(1, 1), "left", [lefts((0, 1), (5, 1)), advance(right=2), advance(right=7)]),
    ),
    "the floor ignored when pages merge": (
        merge_without_floor,
        # In falling order of their hashes: pages of rising ones are one run as they are.
        Case(band(1, 1), "left", [*[lefts((0, n), (5, n)) for n in (3, 0, 2, 1)], advance(right=2), EpochEnd(1)]),
    ),
    "marks lost when pages merge": (
        merge_without_marks,
        Case(band(1, 1), "left", [*FOUR_PAGES, right(t=0, k=1), EpochEnd(1)]),
    ),
    "marks lost when a shard is split": (
        split_without_marks,
        Case(band(1, 1), "left", [lefts((0, LOW), (0, HIGH)), right(t=0, k=LOW), EpochEnd(2)]),
    ),
    "marks of a slice read from the start of its page": (
        marks_from_the_start,
        Case(band(1, 1), "left", [lefts((0, LOW), (0, HIGH)), right(t=0, k=HIGH), EpochEnd(2)]),
    ),
    "marks not kept at all": (
        no_marks,
        Case(band(1, 1), "left", [left(t=0, k=1), right(t=0, k=1)]),
    ),
    "a semi join that forgets who came out": (
        no_marks,
        Case(band(1, 1), "semi", [left(t=0, k=1), right(t=0, k=1), right(t=1, k=1)]),
    ),
    "null keys match": (
        null_keys_match,
        Case(band(1, 1), "inner", [left(t=0, k=None), right(t=0, k=None)]),
    ),
    "< for <= at the near end": (
        open_low_end,
        Case(band(5, 5), "inner", [left(t=5, k=1), right(t=10, k=1)]),
    ),
    "< for <= at the far end": (
        open_high_end,
        Case(band(5, 5), "inner", [left(t=5, k=1), right(t=0, k=1)]),
    ),
    "a row not stored although the last partner may still come": (
        shifted_settle(+1),
        Case(band(2, 3), "inner", [advance(right=8), left(t=5, k=1), right(t=8, k=1)]),
    ),
    "a row purged although the last partner may still come": (
        purge_early,
        Case(band(2, 3), "inner", [left(t=5, k=1), advance(right=8), right(t=8, k=1)]),
    ),
    "a row purged and called unmatched although its partner may still come": (
        purge_early,
        Case(band(2, 3), "left", [left(t=5, k=1), advance(right=8), right(t=8, k=1)]),
    ),
    "nothing held is met": (
        probe_after_hold,
        Case(band(2, 3), "inner", [left(t=5, k=1), right(t=5, k=1)]),
    ),
    "a page taken to end before its last row": (
        pages_skipped_by_half_their_range,
        Case(band(0, 0), "inner", [lefts((0, 1), (9, 1)), right(t=9, k=1)]),
    ),
}


@pytest.mark.parametrize(("mutate", "case"), MUTANTS.values(), ids=MUTANTS)
def test_a_broken_rule_is_found_by_its_example(mutate, case, monkeypatch):
    assert right_results(case)
    mutate(monkeypatch)
    assert not right_results(case)


@pytest.mark.parametrize("mutate", [shifted_settle(-1)], ids=["store rule off by one, to the safe side"])
def test_a_rule_that_only_holds_too_much_is_found_by_the_state(mutate, monkeypatch):
    """A left row at 4 cannot meet a right row at or after 8: it must not be held. Results would not show it."""

    def held() -> int:
        join = streams.Run(WindowJoin((("k", "k"),), band(2, 3)))
        for event in (advance(right=8), left(t=4, k=1)):
            join.on(event)
        return join.held

    assert held() == 0
    mutate(monkeypatch)
    assert held() == 1


def test_individual_bounds_that_forget_the_rows_in_state_are_broken_by_a_later_result():
    """min(b_own) alone: the left row held at 5 meets a right row at 8, below the left bound of 100."""
    join = streams.Run(WindowJoin((("k", "k"),), band(2, 3)))
    for event in (left(t=5, k=1), advance(left=100), advance(right=8), right(t=8, k=1)):
        join.on(event)
    assert list(join.results) == [(5, 8)]
    forgetful = Bounds(individual=(100, 8))
    assert forgetful.individual[LEFT] > 5
    assert join.config.bounds(100, 8).individual[LEFT] == 5


def test_the_oracle_itself_is_strict_about_the_ends():
    assert [near(band(2, 3))(0, r) for r in (-3, -2, 3, 4)] == [False, True, True, False]
    assert [near(band(2, 3, ends="()"))(0, r) for r in (-2, -1, 2, 3)] == [False, True, True, False]
