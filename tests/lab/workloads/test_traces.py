"""000-04, 000-05: traces of the stated rate, cap and skew; whole or from any place on; paused, bursty, out of order."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from lab.workloads.bmodel import largest
from lab.workloads.pqrs import Pqrs
from lab.workloads.traces import (
    COLUMNS,
    Burst,
    Composite,
    Disorder,
    Parallel,
    Pause,
    Replay,
    replay_of,
)
from penstock import ConfigError, DurationError
from penstock.core.time import as_times

SECOND = 1_000_000
SMALL = (
    Composite(rate=40, span="1 min", cap=150, keys=50, seed=7),
    Parallel(rate=40, span="1 min", keys=50, seed=7),
    Composite(rate=0.4, span="1 min", cap=8, keys=3, bias=0.9, seed=7),
)


def times(rows: pa.Table) -> np.ndarray:
    return as_times(rows.column("t")).to_numpy()


def whole(slices) -> pa.Table:
    return pa.concat_tables([COLUMNS.empty_table(), *slices])


def distance_from_exponential(gaps: np.ndarray, rate: float) -> float:
    """Kolmogorov and Smirnov: the largest difference between the gaps' distribution and the exponential one."""
    ordered = np.sort(gaps)
    expected = 1 - np.exp(-rate * ordered)
    steps = np.arange(gaps.size + 1) / gaps.size
    return max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())


def test_000_04_no_mini_interval_exceeds_the_cap_and_the_mean_rate_is_as_stated():
    trace = Composite(rate=200, span="4 h", seed=7)
    per_cell = np.diff(trace.layout().starts)
    assert per_cell.size == 2**trace.levels
    assert per_cell.max() <= 70_000
    assert largest(trace.rows, bias=0.6, levels=trace.levels - 1) > 70_000
    assert trace.rows == 200 * 4 * 3600


def test_000_04_rows_come_by_time_in_their_mini_interval_with_keys_of_the_domain():
    trace = Composite(rate=300, span="5 min", cap=5000, seed=7)
    rows = trace.table()
    at, keys = times(rows), rows.column("key").to_numpy()
    assert rows.schema == COLUMNS
    assert rows.num_rows == 90_000
    assert (np.diff(at) >= 0).all()
    assert (rows.column("id").to_numpy() == np.arange(90_000)).all()
    edges, starts = trace.layout()
    assert (np.diff(np.searchsorted(at, edges)) == np.diff(starts)).all()
    assert edges[-1] == 300 * SECOND
    assert at[-1] < 300 * SECOND
    assert keys.min() >= 0
    assert 9_000_000 < keys.max() <= 10_000_000


def test_000_04_the_keys_of_each_mini_interval_have_the_quadrants_shares():
    shape = Pqrs(p=0.4, q=0.1, r=0.4, s=0.1)
    rows = Composite(rate=1000, span="1 min", cap=10_000, quadrants=shape, seed=7).table()
    assert abs((rows.column("key").to_numpy() < 5_000_000).mean() - 0.8) < 0.01


@pytest.mark.slow
def test_000_04_more_bias_is_burstier():
    def busiest(bias):
        return np.bincount(times(Composite(rate=300, span="5 min", cap=2000, bias=bias).table()) // SECOND).max()

    assert busiest(0.5) < busiest(0.6) < busiest(0.7)


def test_000_05_gaps_between_arrivals_are_exponential():
    trace = Parallel(rate=1500, span="2 min", seed=7)
    gaps = np.diff(times(trace.table())) / SECOND
    # The 1 % point of the statistic; whole microseconds add 0.0015 at this rate.
    assert distance_from_exponential(gaps, rate=1500) < 1.63 / math.sqrt(gaps.size) + 0.0015
    assert distance_from_exponential(gaps, rate=1400) > 1.63 / math.sqrt(gaps.size) + 0.0015
    assert abs(trace.rows - 180_000) < 4 * math.sqrt(180_000)


def test_000_05_counts_of_disjoint_seconds_vary_as_poissons_do():
    counts = np.bincount(times(Parallel(rate=300, span="20 min", seed=7).table()) // SECOND, minlength=1200)
    assert abs(counts.mean() / 300 - 1) < 0.01
    assert 0.85 < counts.var() / counts.mean() < 1.15


def test_000_05_the_favoured_half_of_the_keys_has_seven_of_ten_rows_and_two_streams_share_it():
    tables = [Parallel(rate=1500, span="2 min", seed=seed).table() for seed in (1, 2)]
    low = [(table.column("key").to_numpy() < 5_000_001).mean() for table in tables]
    assert abs(max(low[0], 1 - low[0]) - 0.7) < 0.01
    assert abs(low[0] - low[1]) < 0.01


@pytest.mark.parametrize("trace", SMALL, ids=lambda trace: type(trace).__name__)
def test_the_same_fields_give_the_same_rows_and_another_seed_others(trace):
    fields = {name: getattr(trace, name) for name in trace.__slots__}
    assert type(trace)(**fields).table() == trace.table()
    assert type(trace)(**fields | {"seed": 8}).table() != trace.table()


@pytest.mark.slow
@given(st.sampled_from(SMALL), st.data())
def test_slices_from_any_place_are_what_the_table_has_there(trace, data):
    start = data.draw(st.integers(0, trace.rows))
    stop = data.draw(st.integers(start, trace.rows))
    slices = list(trace.slices(start, stop))
    assert all(rows.num_rows for rows in slices)
    assert whole(slices) == trace.table().slice(start, stop - start)


@pytest.mark.slow
def test_a_long_trace_is_walked_through_in_the_memory_of_a_stretch():
    def bytes_held(walk):
        tracemalloc.start()
        arrow = max(pa.total_allocated_bytes() for _ in walk)
        held = tracemalloc.get_traced_memory()[1] + arrow - before
        tracemalloc.stop()
        return held

    before = pa.total_allocated_bytes()
    trace = Composite(rate=100, span="2 h", cap=10_000, seed=7)
    assert bytes_held(trace.slices()) < 4_000_000 < trace.rows * 24
    assert bytes_held(Replay(trace, disorder="1 s").slices()) < 16_000_000 < trace.rows * 24


def test_a_payload_has_its_width_and_the_other_columns_stay():
    slim, wide = (Parallel(rate=40, span="1 min", seed=7, payload=width).table() for width in (0, 40))
    assert wide.drop_columns(["payload"]) == slim
    assert set(pc.binary_length(wide.column("payload")).to_pylist()) == {40}
    assert pc.count_distinct(wide.column("payload")).as_py() == wide.num_rows
    assert wide.schema == Parallel(rate=40, payload=40).schema


def test_a_pause_is_silent_and_keeps_every_row():
    rows = SMALL[1].table()
    paused = Pause(at="20 s", length="30 s")(rows)
    at = times(paused)
    assert not ((at >= 20 * SECOND) & (at < 50 * SECOND)).any()
    assert (np.where(at < 20 * SECOND, at, at - 30 * SECOND) == times(rows)).all()
    assert paused.drop_columns(["t"]) == rows.drop_columns(["t"])


def test_a_burst_brings_its_rows_faster_and_leaves_the_others():
    rows = SMALL[1].table()
    at, was = times(Burst(at="20 s", length="20 s", factor=4)(rows)), times(rows)
    inside = (was >= 20 * SECOND) & (was < 40 * SECOND)
    assert inside.sum() > 500
    assert (at[~inside] == was[~inside]).all()
    assert (at[inside] < 25 * SECOND).all()
    assert (at[inside] >= 20 * SECOND).all()
    assert (np.diff(at) >= 0).all()


def test_a_change_begins_with_its_first_microsecond_and_ends_before_its_last():
    rows = pa.table([[9, 10, 13, 19, 20], [1] * 5, range(5)], schema=COLUMNS)
    assert times(Pause("10 us", "5 us")(rows)).tolist() == [9, 15, 18, 24, 25]
    assert times(Burst("10 us", "10 us", 3)(rows)).tolist() == [9, 10, 11, 13, 20]


def test_disorder_is_bounded_as_set_and_reached():
    rows = Parallel(rate=400, span="2 min", seed=7).table()
    mixed = Disorder("5 s")(rows)
    at = times(mixed)
    behind = np.maximum.accumulate(at) - at
    assert 4 * SECOND < behind.max() <= 5 * SECOND
    assert mixed.sort_by("id") == rows
    assert Disorder("5 s", seed=1)(rows) != mixed
    assert Disorder(0)(rows) == rows


def test_changes_can_be_composed():
    rows = SMALL[0].table()
    replay = Replay(SMALL[0], changes=(Burst("10 s", "10 s", 3), Pause("15 s", "1 min")), disorder="2 s")
    by_hand = Disorder("2 s", seed=7)(Pause("15 s", "1 min")(Burst("10 s", "10 s", 3)(rows)))
    assert replay.table() == by_hand
    assert replay.rows == rows.num_rows


durations = st.integers(0, 90 * SECOND).map("{} us".format)
changes = st.one_of(st.builds(Pause, durations, durations), st.builds(Burst, durations, durations, st.integers(1, 50)))


@given(st.sampled_from(SMALL), st.lists(changes, max_size=3), durations, st.data())
@pytest.mark.slow
def test_a_replay_from_any_place_is_what_the_whole_trace_has_there(trace, changed, disorder, data):
    replay = Replay(trace, tuple(changed), disorder)
    start = data.draw(st.integers(0, trace.rows))
    stop = data.draw(st.integers(start, trace.rows))
    rows = trace.table()
    for change in changed:
        rows = change(rows)
    arrived = Disorder(disorder, seed=trace.seed)(rows)
    assert whole(replay.slices(start, stop)) == arrived.slice(start, stop - start)


@pytest.mark.slow
def test_a_replay_in_several_steps_holds_every_row_once():
    trace = Composite(rate=1000, span="5 min", cap=5000, seed=7)
    replay = Replay(trace, disorder="20 s")
    slices = list(replay.slices())
    assert len(slices) > 3
    assert whole(slices) == Disorder("20 s", seed=7)(trace.table())


def test_traces_run_in_a_flow_and_no_row_is_late_within_the_disorder():
    flow = pk.LocalFlow()
    replays = [Replay(Parallel(rate=40, span="1 min", keys=50, seed=seed), disorder="3 s") for seed in (1, 2)]
    left, right = (
        flow.source(list(replay.slices()), time="t", progress=pk.bounded_delay("3 s"), name=f"s{number}")
        for number, replay in enumerate(replays)
    )
    joined = left.join(right, on="key", within=pk.band(before="1 s", after="1 s")).to_memory()
    flow.run()
    tables = [replay.table() for replay in replays]
    (first, other), (one, two) = ([times(t) for t in tables], [t.column("key").to_numpy() for t in tables])
    near = np.abs(first[:, None] - other[None, :]) <= SECOND
    assert joined.table().num_rows == (near & (one[:, None] == two[None, :])).sum()


def test_a_replay_can_be_written_as_text():
    options = {
        "trace": json.dumps({"kind": "composite", "rate": 40, "span": "1 min", "quadrants": {"p": 0.3, "s": 0.26}}),
        "changes": json.dumps([{"kind": "burst", "at": "1 s", "length": "2 s", "factor": 3}]),
        "disorder": "5 s",
    }
    trace = Composite(rate=40, span="1 min", quadrants=Pqrs(p=0.3, s=0.26))
    assert replay_of(options) == Replay(trace, (Burst("1 s", "2 s", 3),), "5 s")
    assert replay_of({"trace": '{"kind": "parallel", "rate": 9}'}) == Replay(Parallel(rate=9), (), "0 s")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "trace is missing. Write what to replay"),
        ({"trace": "{kind}"}, "trace={kind} is not JSON"),
        ({"trace": "3"}, 'trace=3 is of no known kind. Write "kind": composite or parallel'),
        ({"trace": '{"kind": "poisson"}'}, "is of no known kind"),
        ({"trace": '{"kind": "parallel"}'}, "trace: 'parallel' needs 'rate'"),
        (
            {"trace": '{"kind": "parallel", "rate": 1, "bais": 0.7}'},
            "'bais' is no field of 'parallel'. Did you mean 'bias'",
        ),
        (
            {"trace": '{"kind": "parallel", "rate": 1, "zzz": 0.7}'},
            "'zzz' is no field of 'parallel'. It has: rate, span",
        ),
        ({"trace": '{"kind": "parallel", "rate": "1"}'}, "has a value of the wrong type"),
        ({"trace": '{"kind": "parallel", "rate": 1}', "changes": "{}"}, "changes={} is no list"),
        ({"trace": '{"kind": "parallel", "rate": 1}', "changes": '[{"kind": "stop"}]'}, '"kind": pause or burst'),
        ({"trace": '{"kind": "parallel", "rate": 1}', "disorder": "-1 s"}, "disorder='-1 s' is negative"),
    ],
)
def test_text_that_is_no_replay_is_refused(options, says):
    with pytest.raises(ConfigError) as error:
        replay_of(options)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Composite(rate=0), "rate=0 brings no rows"),
        (lambda: Composite(rate=1, span="0 s"), "span='0 s' is no length of time"),
        (lambda: Composite(rate=1, cap=0), "cap=0 leaves no room in a mini-interval"),
        (lambda: Composite(rate=1, bias=0.3), "bias=0.3 is no share of a favoured half"),
        (lambda: Composite(rate=1e6, span="1 ms", cap=1), "more than span='1 ms' has microseconds"),
        (lambda: Parallel(rate=1, keys=0), "keys=0 leaves no key"),
        (lambda: Parallel(rate=1, payload=-1), "payload=-1 is negative"),
        (lambda: Parallel(rate=1, seed=-1), "seed=-1 is negative"),
        (lambda: Burst("1 s", "1 s", 0), "factor=0 is no burst"),
        (lambda: Pause("-1 s", "1 s"), "at='-1 s' is negative"),
        (lambda: next(SMALL[0].slices(5, 2)), "Rows 5 to 2 are not all in a trace of 2400"),
        (lambda: next(Replay(SMALL[0], disorder="1 s").slices(0, 9999)), "Rows 0 to 9999 are not all"),
        (lambda: Parallel(rate=40, span="1 min", payload=2**21).table(), "is more than Arrow holds in one array"),
    ],
)
def test_what_cannot_be_made_is_refused(call, says):
    with pytest.raises(ConfigError) as error:
        call()
    assert says in str(error.value)


def test_a_span_needs_a_unit():
    with pytest.raises(DurationError, match="span=5 has no unit"):
        Parallel(rate=1, span=5)


def test_stretches_without_rows_are_passed_over():
    trace = Composite(rate=0.4, span="1 min", cap=8, keys=3, bias=0.9, seed=7)
    starts = trace.layout().starts
    assert any(one == other for one, other in itertools.pairwise(starts.tolist()))
    assert whole(trace.slices()).num_rows == 24
