"""Progress policies (F01, F02): no bound is ever above what still comes, and none goes back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.progress import (
    Bounds,
    NoPromise,
    Seen,
    Track,
    blocks,
    bounded_delay,
    bounded_tuples,
    follow,
    ordered,
    punctuated,
    timer,
    wake,
)
from penstock.core.time import TIME_MAX, TIME_MIN
from tests.streams import examples

some_times = st.lists(st.integers(-50, 50), max_size=25)


def cut(times: list[int], sizes: list[int]) -> list[list[int]]:
    """A stream in epochs of these sizes, over and over; empty epochs among them."""
    epochs, at, turn = [], 0, 0
    while at < len(times):
        size = sizes[turn % len(sizes)]
        epochs.append(times[at : at + size])
        at, turn = at + size, turn + 1
    return epochs


cuts = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)


def seen(times: list[int], mark: int = TIME_MIN) -> Seen:
    return Seen(rows=len(times), max_time=max(times, default=TIME_MIN), mark=mark)


def tracks(policy, epochs: list[list[int]], unit="ticks") -> list[Track]:
    """The track after each epoch."""
    after = [Track()]
    for times in epochs:
        after.append(follow(after[-1], policy, unit, seen(times), now=0))
    return after[1:]


def assert_sound(bounds: list[int], epochs: list[list[int]]) -> None:
    """F02: each bound is at most the true low watermark of what comes after it; none goes back."""
    assert bounds == sorted(bounds)
    for place, bound in enumerate(bounds):
        assert bound <= min((t for later in epochs[place + 1 :] for t in later), default=TIME_MAX)


@given(some_times, cuts)
@examples(0.1)
def test_ordered_follows_the_latest_time_and_ties_may_still_come(times, sizes):
    epochs = cut(sorted(times), sizes)
    bounds = [track.bound for track in tracks(ordered(), epochs)]
    assert_sound(bounds, epochs)
    arrived = [t for epoch in epochs for t in epoch]
    assert not arrived or bounds[-1] == max(arrived)


def at_most_late(times: list[int], delay: int) -> list[int]:
    """The stream made to keep the promise: no row more than `delay` below the latest before it."""
    kept: list[int] = []
    for time in times:
        kept.append(max([time, *(earlier - delay for earlier in kept)]))
    return kept


@given(some_times, cuts, st.integers(0, 20))
@examples(0.1)
def test_bounded_delay_follows_the_latest_time_less_the_delay(times, sizes, delay):
    epochs = cut(at_most_late(times, delay), sizes)
    bounds = [track.bound for track in tracks(bounded_delay(delay), epochs)]
    assert_sound(bounds, epochs)
    arrived = [t for epoch in epochs for t in epoch]
    assert not arrived or bounds[-1] == max(arrived) - delay


def at_most_rows_late(times: list[int], count: int) -> list[int]:
    """The stream made to keep the promise: no row below one that came more than `count` rows before it."""
    kept: list[int] = []
    for time in times:
        kept.append(max([time, *kept[: max(0, len(kept) - count)]]))
    return kept


def by_the_spec(arrived: list[int], count: int) -> int:
    """Spec 2.2: the largest time over all arrived rows except the last `count`."""
    return max(arrived[: len(arrived) - count], default=TIME_MIN) if len(arrived) > count else TIME_MIN


@given(some_times, cuts, st.integers(0, 8))
@examples(0.1)
def test_bounded_tuples_stays_at_or_below_the_spec_and_what_still_comes(times, sizes, count):
    epochs = cut(at_most_rows_late(times, count), sizes)
    bounds = [track.bound for track in tracks(bounded_tuples(count), epochs)]
    assert_sound(bounds, epochs)
    arrived: list[int] = []
    for bound, epoch in zip(bounds, epochs, strict=True):
        arrived += epoch
        assert bound <= by_the_spec(arrived, count)


@given(some_times, st.integers(0, 8))
@examples(0.1)
def test_bounded_tuples_is_the_spec_where_every_row_is_an_epoch(times, count):
    stream = at_most_rows_late(times, count)
    bounds = [track.bound for track in tracks(bounded_tuples(count), [[t] for t in stream])]
    assert bounds == [by_the_spec(stream[: n + 1], count) for n in range(len(stream))]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(0, 12))
@examples(0.05)
def test_bounded_tuples_remembers_no_more_epochs_than_it_needs(sizes, count):
    for track in tracks(bounded_tuples(count), [[0] * size for size in sizes]):
        assert sum(rows for rows, _ in track.recent[2:]) < max(1, count)


@given(some_times, cuts, st.data())
@examples(0.1)
def test_punctuated_takes_the_largest_word_of_the_source(times, sizes, data):
    epochs = cut(times, sizes)
    track, bounds, said = Track(), [], TIME_MIN
    for place, epoch in enumerate(epochs):
        low = min((t for later in epochs[place + 1 :] for t in later), default=99)
        mark = data.draw(st.one_of(st.just(TIME_MIN), st.integers(-60, low) if low >= -60 else st.just(low)))
        track = follow(track, punctuated("p"), "ticks", seen(epoch, mark), now=0)
        said = max(said, mark)
        bounds.append(track.bound)
        assert track.bound == said
    assert_sound(bounds, epochs)


def in_blocks(times: list[int], length: int, origin: int) -> list[int]:
    """The stream made to keep the promise: block after block, in any order within one."""
    return sorted(times, key=lambda time: (time - origin) // length)


@given(some_times, cuts, st.integers(1, 20), st.integers(-9, 9))
@examples(0.1)
def test_f02_blocks_follow_the_start_of_the_latest_block(times, sizes, length, origin):
    epochs = cut(in_blocks(times, length, origin), sizes)
    bounds = [track.bound for track in tracks(blocks(length, origin=origin), epochs)]
    assert_sound(bounds, epochs)
    if times:
        assert bounds[-1] <= max(times) < bounds[-1] + length
        assert (bounds[-1] - origin) % length == 0


def test_f02_the_end_of_the_latest_block_would_be_a_block_too_early():
    """Mutation: rows of the latest block itself may still come."""
    (track,) = tracks(blocks(60), [[61, 119]])
    assert track.bound == 60
    assert track.bound + 60 > 70, "a row at 70 is still to come"


@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 40), max_size=3)), max_size=12))
@examples(0.1)
def test_timer_follows_the_data_and_in_a_lull_the_clock(steps):
    """A promise kept: rows in order of time, and none more than the slack behind the clock when they come."""
    slack, now, latest, track = 10, 0, TIME_MIN, Track()
    epochs, bounds = [], []
    for pause, ahead in steps:
        before, now = now, now + pause
        times = sorted(max(latest, before - slack) + a for a in ahead)
        latest = max([latest, *times])
        track = follow(track, timer(f"{slack} us"), "microseconds", seen(times), now)
        epochs.append(times)
        bounds.append(track.bound)
        assert track.bound == max([TIME_MIN, latest, now - slack])
    # Rows are drawn from the clock before them, which the bound of the epoch before knew.
    assert_sound(bounds, epochs)


def test_timer_in_a_lull_by_hand():
    policy, track = timer("2 s"), Track()
    track = follow(track, policy, "microseconds", seen([10_000_000]), now=10_500_000)
    assert track.bound == 10_000_000, "the latest time seen: the clock is only half a second ahead"
    track = follow(track, policy, "microseconds", seen([]), now=11_900_000)
    assert track.bound == 10_000_000, "no lull yet"
    track = follow(track, policy, "microseconds", seen([]), now=15_000_000)
    assert track.bound == 13_000_000, "a lull: the clock less the slack"
    track = follow(track, policy, "microseconds", seen([14_000_000]), now=15_500_000)
    assert track.bound == 14_000_000, "data again"
    track = follow(track, policy, "microseconds", seen([]), now=9_000_000)
    assert track.bound == 14_000_000, "a clock that goes back takes nothing back"


@given(some_times, cuts)
@examples(0.02)
def test_without_a_promise_the_bound_stays(times, sizes):
    assert {track.bound for track in tracks(NoPromise(), cut(times, sizes))} <= {TIME_MIN}


POLICIES = [ordered(), bounded_delay(3), blocks(5), bounded_tuples(2), punctuated("p"), NoPromise()]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_shard_never_claims_more_than_the_driver_would(policy):
    """`bound_from_rows` is what a shard may use by itself."""
    for top in (TIME_MIN, -7, 0, 12):
        driver = follow(Track(), policy, "ticks", Seen(rows=1, max_time=top), now=0).bound
        assert policy.bound_from_rows(top, "ticks") <= driver


def test_bounded_delay_at_the_start_of_the_axis_does_not_wrap_around():
    (track,) = tracks(bounded_delay(10), [[TIME_MIN + 3]])
    assert track.bound == TIME_MIN


# Idle sources


def idle_after_20(bound: int, heard: int) -> tuple[Track, object]:
    return Track(bound=bound, heard=heard), ordered(idle="20 us")


def woken(*sources: tuple[Track, object], now: int) -> list[int]:
    after = wake([t for t, _ in sources], [p for _, p in sources], ["ticks"] * len(sources), now)
    return [track.bound for track in after]


def test_a_silent_source_catches_up_with_the_slowest_that_is_not():
    busy, busier = (Track(bound=90, heard=60), ordered()), (Track(bound=95, heard=60), ordered())
    assert woken(idle_after_20(5, heard=39), busy, busier, now=60) == [90, 90, 95]


def test_a_source_is_silent_from_its_idle_time_on_and_not_before():
    busy = (Track(bound=90, heard=60), ordered())
    assert woken(idle_after_20(5, heard=41), busy, now=60) == [5, 90]
    assert woken(idle_after_20(5, heard=40), busy, now=60) == [90, 90]


def test_where_all_are_silent_none_moves():
    assert woken(idle_after_20(5, heard=0), idle_after_20(90, heard=0), now=60) == [5, 90]


def test_a_silent_source_that_is_ahead_stays_ahead():
    assert woken(idle_after_20(99, heard=0), (Track(bound=90, heard=60), ordered()), now=60) == [99, 90]


def test_sources_that_count_in_other_units_do_not_wake_each_other():
    quiet, busy = idle_after_20(5, heard=0), (Track(bound=90, heard=60), ordered())
    after = wake([quiet[0], busy[0]], [quiet[1], busy[1]], ["ticks", "days"], now=60)
    assert [track.bound for track in after] == [5, 90]


def test_a_source_never_heard_from_is_silent_from_the_first_epoch_on():
    track = follow(Track(), ordered(idle="20 us"), "ticks", Seen(), now=100)
    assert track.heard == 100
    busy = (Track(bound=90, heard=100), ordered())
    assert woken((track, ordered(idle="20 us")), busy, now=119) == [TIME_MIN, 90]
    assert woken((track, ordered(idle="20 us")), busy, now=120) == [90, 90]


# What is refused


@pytest.mark.parametrize(
    ("policy", "unit", "message"),
    [
        (bounded_delay("-1 s"), "microseconds", r"bounded_delay\(delay=-1 s\) is negative. Write how late a row may"),
        (bounded_delay("1 s"), "ticks", "delay=1 s is real time, but the time column is an integer"),
        (bounded_delay(5), "microseconds", "delay=5 has no unit"),
        (bounded_delay("1 h"), "days", "delay=1 h is not a whole number of days"),
        (bounded_tuples(-1), "ticks", r"bounded_tuples\(count=-1\) is negative. Write how many rows late one may be"),
        (blocks(0), "ticks", r"blocks\(length=0\) must be positive. Write how much time one block holds"),
        (blocks("1 min"), "ticks", "length=1 min is real time, but the time column is an integer"),
        (timer("2 s"), "ticks", r"timer\(slack=2 s\) compares event time with the clock, .* Make it a timestamp, or"),
        (timer("2 s"), "days", "but the time column counts days"),
        (timer("-2 s"), "microseconds", r"timer\(slack=-2 s\) is negative. Write how far behind the clock"),
    ],
)
def test_a_policy_that_makes_no_sense_on_its_column_is_refused(policy, unit, message):
    with pytest.raises(ConfigError, match=message):
        policy.check(unit)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_policy_that_makes_sense_is_not(policy):
    policy.check("ticks")


@pytest.mark.parametrize("idle", [10, "10 parsecs", "-5 s"])
def test_idle_is_real_time_whatever_the_column_counts_and_refused_when_written_otherwise(idle):
    with pytest.raises(ConfigError, match="idle="):
        ordered(idle=idle).check("ticks")


# What the ledger keeps

a_track = st.builds(
    Track,
    bound=st.integers(TIME_MIN, TIME_MAX),
    max_time=st.integers(TIME_MIN, TIME_MAX),
    mark=st.integers(TIME_MIN, TIME_MAX),
    heard=st.one_of(st.none(), st.integers(0, 2**60)),
    recent=st.lists(st.tuples(st.integers(1, 9), st.integers(TIME_MIN, TIME_MAX)), max_size=3).map(tuple),
)


@given(a_track)
@examples(0.05)
def test_a_track_comes_back_from_json_as_it_was(track):
    assert Track.from_json(json.loads(json.dumps(track.to_json()))) == track


def test_the_later_time_needs_either_individual_bound_and_the_earlier_both():
    assert (Bounds((5, 3)).latest, Bounds((5, 3)).earliest) == (5, 3)
