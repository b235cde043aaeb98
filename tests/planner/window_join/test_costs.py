"""The cost equations: numbers worked out by hand, limits, and what must never go down when something goes up."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.join_equations import EwjWindow, ewj_seconds, invalidation_seconds, recent_seconds
from penstock.core.budget import Budget
from penstock.core.operator import State
from penstock.core.rows import RowType
from penstock.core.within import band, windows
from penstock.operators.window_join import WindowJoin
from penstock.operators.window_join.methods import AhEwj, Ewj, Rpwj
from penstock.planner.machine import Disk, Machine
from penstock.planner.window_join import costs
from penstock.planner.window_join.costs import (
    Cost,
    Partition,
    Reader,
    ah_ewj_cost,
    dd_passes,
    dd_seconds,
    ewj_cost,
    md_seconds,
    oa_cost,
    rewrites,
    rpwj_cost,
    run_count,
    scan_seconds,
    slide_seconds,
)
from penstock.planner.window_join.load import Load
from penstock.storage import compaction
from tests.storage.test_pages import CountingPages, page_of
from tests.streams import examples

PLAIN = Machine(memory_bandwidth=1e9, page_fault=0.0, page_cache=0, disk_access=0.01, disk_bandwidth=1e6)
"""Nothing cached: 10 ms an access, 1 MB a second."""

# EWJ, as printed

ROUND = Disk(latency=0.004, seek=0.006, bandwidth=1e6, block_bytes=1000, window_blocks=10)
"""10 ms to position, 1 ms a block, ten blocks to a basic window."""

SLOW = EwjWindow(rows_per_second=10, row_bytes=100, recent=20, invalidation=5, on_disk=30)
FAST = EwjWindow(rows_per_second=20, row_bytes=100, recent=20, invalidation=10, on_disk=45)


def test_recent_blocks_by_hand():
    # 10 rows/s of 100 B for 100 s are 100 blocks; a turn dumps 10 (20 ms) and reads 45: ⌈4.5⌉ · 10 ms + 45 ms
    assert recent_seconds(ROUND, SLOW, FAST, probe=0.5, seconds=100) == pytest.approx(10 * (0.020 + 0.095))
    # 101 s are one turn more, though it does no more than a tenth of its work
    assert recent_seconds(ROUND, SLOW, FAST, probe=0.5, seconds=101) == pytest.approx(11 * (0.020 + 0.095))
    # 200 blocks in turns of 10; reads 30: 30 ms + 30 ms
    assert recent_seconds(ROUND, FAST, SLOW, probe=0.5, seconds=100) == pytest.approx(20 * (0.020 + 0.060))


def test_a_dump_is_a_block_at_least():
    # 100 turns of a block (11 ms) and 45 (95 ms)
    assert recent_seconds(ROUND, SLOW, FAST, probe=0.0, seconds=100) == pytest.approx(100 * (0.011 + 0.095))


def test_invalidation_by_hand():
    # 100 blocks, five at a time, in 10 ms + 5 ms; without invalidation memory, one at a time in 11 ms
    assert invalidation_seconds(ROUND, SLOW, seconds=100) == pytest.approx(20 * 0.015)
    assert invalidation_seconds(ROUND, replace(SLOW, invalidation=0), seconds=100) == pytest.approx(100 * 0.011)


def test_the_source_divides_the_reads_of_the_invalidation_by_the_recent_memory():
    # as printed: ⌈100 / 20⌉ turns instead of 20, so that three quarters of what expires would never be read
    printed = math.ceil(SLOW.bytes_per_second * 100 / (SLOW.recent * 1000)) * ROUND.read_seconds(SLOW.invalidation)
    assert printed == pytest.approx(invalidation_seconds(ROUND, SLOW, seconds=100) / 4)


def test_the_work_of_both_streams():
    # 1.15 + 0.3 for the slow one, 1.6 + ⌈200 / 10⌉ · 20 ms for the fast one
    assert ewj_seconds(ROUND, (SLOW, FAST), probe=0.5, seconds=100) == pytest.approx(1.15 + 0.3 + 1.6 + 0.4)


def test_the_thesis_defaults():
    # §2.2: 200 rows/s of 128 B, 3,584 recent blocks of 4 KiB, r = 0.95: a probe every 545 s, 7 in an hour
    window = EwjWindow(rows_per_second=200, row_bytes=128, recent=3584, invalidation=768, on_disk=6130)
    fresh = 0.95 * 3584
    assert fresh * 4096 / window.bytes_per_second == pytest.approx(545, abs=0.5)
    turn = 24 * 0.00829 + 6130 * 4096 / 20e6 + 14 * 0.00829 + fresh * 4096 / 20e6
    assert recent_seconds(Disk(), window, window, probe=0.95, seconds=3600) == pytest.approx(7 * turn)


def test_streams_without_rows_cost_nothing():
    silent = replace(SLOW, rows_per_second=0)
    assert recent_seconds(ROUND, silent, FAST, probe=0.5, seconds=100) == 0
    assert invalidation_seconds(ROUND, silent, seconds=100) == 0


# RPWJ, as printed

READER = Reader(access_time=0.01, byte_seconds=1e-6, memory=1000)
SMALL, LARGE, EMPTY = Partition(runs=2, size=2000), Partition(runs=3, size=5000), Partition(runs=0, size=0)


def test_memory_meets_disk_by_hand():
    # 2 runs + 2 buffers: 40 ms, and 2 ms; 3 + 5: 80 ms, and 5 ms
    assert md_seconds(READER, SMALL) == pytest.approx(0.042)
    assert md_seconds(READER, LARGE) == pytest.approx(0.085)


def test_a_scan_by_hand():
    # 2 runs + 4 half buffers: 60 ms, and 2 ms; 3 + 10: 130 ms, and 5 ms
    assert scan_seconds(READER, SMALL) == pytest.approx(0.062)
    assert scan_seconds(READER, LARGE) == pytest.approx(0.135)


def test_disk_meets_disk_by_hand():
    # the small one once, and for each of its 4 half buffers the large one; or the large one, and 10 times the small one
    assert dd_seconds(READER, SMALL, LARGE) == pytest.approx(0.062 + 4 * 0.135)
    assert dd_seconds(READER, LARGE, SMALL) == pytest.approx(0.135 + 10 * 0.062)


def test_a_tiny_outer_scans_the_inner_once_and_an_empty_one_never():
    # (4.3) as printed would scan 0.2 of the inner for 100 bytes
    assert dd_passes(READER, Partition(runs=1, size=100)) == 1
    assert dd_passes(READER, EMPTY) == dd_seconds(READER, EMPTY, LARGE) == 0


def test_a_slide_does_three_tasks_for_each_partition_with_the_cheaper_outer():
    # 42 ms + 85 ms + 602 ms, whichever side is which
    assert slide_seconds(READER, SMALL, LARGE, partitions=4) == pytest.approx(4 * 0.729)
    assert slide_seconds(READER, LARGE, SMALL, partitions=4) == pytest.approx(4 * 0.729)
    assert slide_seconds(READER, EMPTY, EMPTY, partitions=4) == 0


def test_a_slide_with_one_stream_on_disk_joins_no_disk_with_disk():
    assert slide_seconds(READER, LARGE, EMPTY, partitions=4) == pytest.approx(4 * 0.085)


# What the planner compares, by hand


def test_ewj_in_the_long_run_by_hand():
    # Each stream: 1,000 B/s, 100,000 B of window, half of 20,000 B: 90,000 B on disk, 5,000 B fresh, 2,000 B refilled.
    # Basic windows of 10,000 B. A turn (every 5 s) reads 9 · 10 ms + 90 ms and writes 10 ms + 5 ms;
    # a refill (every 2 s) takes 10 ms + 2 ms.
    load = Load((10.0, 10.0), (100.0, 100.0), (100.0, 100.0))
    ewj = Ewj(memory=20_000, page=1000, chunk=10_000, recent=0.5, frequent=0.3, invalidation=0.2, probe=1.0)
    cost = ewj_cost(load, 10**9, PLAIN, ewj)
    assert cost.seconds == pytest.approx(2 * ((0.180 + 0.015) / 5 + 0.012 / 2))
    # 18,000 + 1,000 B/s read and 1,000 B/s written for 10 rows/s; a tenth of the opposite window is in memory
    assert (cost.read, cost.written, cost.at_once) == pytest.approx((1900, 100, 0.1))


def test_ewj_in_the_long_run_is_what_the_equations_say_of_a_long_time():
    # sizes that fill basic windows, so that the ceilings are exact
    load = Load((10.0, 20.0), (100.0, 100.0), (110.0, 60.0))
    ewj = Ewj(memory=40_000, page=1000, chunk=10_000, recent=0.5, frequent=0.0, invalidation=0.5, probe=1.0)
    left, right = (EwjWindow(rate, 100, 10, 10, disk) for rate, disk in ((10, 90), (20, 100)))
    printed = ewj_seconds(ROUND, (left, right), probe=1.0, seconds=10**6) / 10**6
    assert ewj_cost(load, 10**9, PLAIN, ewj).seconds == pytest.approx(printed)


def test_ah_ewj_in_the_long_run_by_hand():
    # 20,000 B: 14,000 recent (7,000 each), 6,000 for the rest (3,000 each): of 100,000 B each, 90,000 on disk.
    # A probe per 0.9 · 0.3 · 14,000 = 3,780 B reads 9 · 10 ms + 90 ms; dumps and refills of 10,000 B take 20 ms.
    load = Load((10.0, 10.0), (100.0, 100.0), (100.0, 100.0))
    cost = ah_ewj_cost(load, 10**9, PLAIN, AhEwj(memory=20_000, page=1000, chunk=10_000))
    assert cost.seconds == pytest.approx(2 * (0.180 * 1000 / 3780 + 2 * 0.020 / 10))
    assert cost.read == pytest.approx((90_000 * 1000 / 3780 + 1000) / 10)
    assert (cost.written, cost.at_once) == pytest.approx((100, 0.1))


def test_ah_ewj_dumps_by_flushes():
    # 5,000 B at a time: 10 ms + 5 ms, twice as often
    load = Load((10.0, 10.0), (100.0, 100.0), (100.0, 100.0))
    cost = ah_ewj_cost(load, 10**9, PLAIN, AhEwj(memory=20_000, page=1000, chunk=10_000, flush=5000))
    assert cost.seconds == pytest.approx(2 * (0.180 * 1000 / 3780 + 0.015 / 5 + 0.020 / 10))


@pytest.mark.parametrize("rates", [(10.0, 100.0), (100.0, 10.0)])
def test_ah_ewj_gives_the_slower_stream_the_memory(rates):
    # 100,000 B for 10 rows/s, 1,000,000 B for 100. Memory 20,000 B as above: 0.7 · 14,000 + 3,000 = 12,800 for the
    # slower stream, 7,200 for the faster. Each makes half of the pairs: those of the faster find 12.8 % at once, those
    # of the slower 0.72 %.
    load = Load(rates, (100.0, 100.0), (100.0, 100.0))
    cost = ah_ewj_cost(load, 10**9, PLAIN, AhEwj(memory=20_000, page=1000, chunk=10_000))
    assert cost.at_once == pytest.approx((0.128 + 0.0072) / 2)
    slower, faster = 100_000 - 12_800, 1_000_000 - 7_200
    assert cost.read * 110 == pytest.approx((10_000 * slower + 1000 * faster) / 3780 + 11_000)


def test_rpwj_in_the_long_run_by_hand():
    # 20,000 B, 16,000 on average, 8,000 each. After a slide of 10 s a stream holds 110,000 B: 102,000 on disk, in 2
    # partitions of 51,000 B in runs of 5,000 B. Through 1,000 B: md (10.2 + 51) · 10 ms + 51 ms = 663 ms, scan
    # (10.2 + 102) · 10 ms + 51 ms = 1,173 ms, dd 103 scans. Each stream flushes 5,000 B in 15 ms, every 5 s.
    load = Load((10.0, 10.0), (100.0, 100.0), (100.0, 100.0))
    rpwj = Rpwj(memory=20_000, page=1000, chunk=10_000, partitions=2, slide="10 s", read_memory=1000)
    cost = rpwj_cost(load, 10**9, PLAIN, rpwj)
    tasks = 2 * (2 * 0.663 + 103 * 1.173)
    assert cost.seconds == pytest.approx(tasks / 10 + 2 * 0.015 / 5)
    assert cost.read == pytest.approx(2 * (2 * 51_000 + 103 * 51_000) / 10 / 20)
    assert (cost.written, cost.at_once) == pytest.approx((100, 0.08))
    # a plain number counts the seconds of the rates; without one, a tenth of both windows is 20 s
    assert rpwj_cost(load, 10**9, PLAIN, replace(rpwj, slide=10)) == cost
    assert rpwj_cost(load, 10**9, PLAIN, replace(rpwj, slide=None)) == rpwj_cost(
        load, 10**9, PLAIN, replace(rpwj, slide=20)
    )


def test_oa_join_by_hand_where_arrivals_lie_dense():
    # Each port: 1 row/s of 100 B for 25,600 s: 2.56 MB. Epochs of 100 s bring 10,000 B; state is 4⁴ of them: 5 runs.
    # 100 arrivals touch 500 pages of 4,096 B: 5 s of access and 2.048 s; all of it would be 0.05 s + 2.56 s.
    # The 10,000 B are written (20 ms), then four times read (10 ms) and written as part of 10 MB (10 ms + 10 µs).
    load = Load((1.0, 1.0), (100.0, 100.0), (25_600.0, 25_600.0))
    cost = oa_cost(load, memory=60e6, epoch_seconds=100.0, machine=PLAIN)
    assert cost.seconds == pytest.approx(2 * (2.61 + 0.020 + 4 * (0.010 + 0.01001)) / 100)
    assert cost.read == pytest.approx((2_560_000 + 4 * 10_000) / 100)
    assert (cost.written, cost.at_once) == pytest.approx((500, 1.0))


def test_oa_join_by_hand_where_arrivals_lie_scattered():
    # Epochs of 100 s. Left: a row, that does not stay. Right: 100 rows, 10,000 B, of 4⁶ epochs: 40.96 MB in 7 runs.
    # The left row touches a page of each, 7 · (10 ms + 4.096 ms), and is written in 10.1 ms.
    # The right rows meet nothing; they are written (20 ms), then six times read and written as above.
    load = Load((0.01, 1.0), (100.0, 100.0), (0.0, 409_600.0))
    cost = oa_cost(load, memory=60e6, epoch_seconds=100.0, machine=PLAIN)
    assert cost.seconds == pytest.approx((0.098672 + 0.0101 + 0.020 + 6 * (0.010 + 0.01001)) / 100)
    assert cost.read == pytest.approx((7 * 4096 + 6 * 10_000) / 101)


def test_oa_join_sweeps_once_for_each_piece_that_fits_its_memory():
    # 60,000 B a second against a sixth of 36,000 B: ten pieces, each over 600 kB of the other side; a piece is written
    # in 16 ms, and again in 16 ms after it was read in 6 ms
    load = Load((600.0, 600.0), (100.0, 100.0), (10.0, 10.0))
    cost = oa_cost(load, memory=36_000, epoch_seconds=1.0, machine=PLAIN)
    again = math.log(72_000 / 6000, 4)
    runs = again + 600_000 / 72_000
    swept = runs * 0.01 + 0.6
    assert cost.seconds == pytest.approx(2 * 10 * (swept + 0.016 + again * 0.022))


def test_oa_join_writes_no_less_than_a_row_at_a_time():
    # a row of 100 B in 1,000 s takes 10.1 ms however short the epochs
    load = Load((0.001, 0.0), (100.0, 100.0), (0.0, 0.0))
    for epoch_seconds in (1.0, 100.0):
        cost = oa_cost(load, memory=60e6, epoch_seconds=epoch_seconds, machine=PLAIN)
        assert cost.seconds == pytest.approx(0.0101 / 1000)


def test_cached_state_costs_memory_instead_of_the_disk():
    load = Load((1e4, 1e4), (100.0, 100.0), (600.0, 600.0))
    for method in (ewj_cost, ah_ewj_cost, rpwj_cost):
        assert (
            method(load, 64e6, Machine(page_cache=2e9)).seconds < method(load, 64e6, Machine(page_cache=0)).seconds / 5
        )
    cached, not_cached = (oa_cost(load, 64e6, 2.0, Machine(page_cache=size)).seconds for size in (2e9, 0))
    assert cached < not_cached / 5


def test_runs_and_rewrites():
    assert run_count(state=0, arrivals=1, largest=10) == 0
    assert run_count(state=1, arrivals=5, largest=10) == 1
    assert run_count(state=256, arrivals=1, largest=16) == pytest.approx(2 + 16)
    assert rewrites(state=1, arrivals=5, largest=10) == 0
    assert rewrites(state=256, arrivals=1, largest=16) == pytest.approx(2)


def test_keeping_up():
    assert Cost(1.0, 0, 0, 1).keeps_up
    assert not Cost(1.01, 0, 0, 1).keeps_up


# Limits


def every_cost(load: Load, memory: float = 64e6, machine: Machine = PLAIN) -> dict[str, Cost]:
    return {
        "oa": oa_cost(load, memory, 2.0, machine),
        "ewj": ewj_cost(load, memory, machine),
        "ah_ewj": ah_ewj_cost(load, memory, machine),
        "rpwj": rpwj_cost(load, memory, machine),
    }


@pytest.mark.parametrize(
    "load",
    [
        Load((0.0, 0.0), (100.0, 100.0), (600.0, 600.0)),
        Load((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
    ],
)
def test_without_rows_nothing_costs_anything(load):
    assert set(every_cost(load).values()) == {Cost(0.0, 0.0, 0.0, 1.0)}


def test_what_fits_the_memory_of_the_windows_is_not_put_off_and_not_on_disk():
    # 2 MB each against 9.6 MB for each stream's window
    found = every_cost(Load((100.0, 100.0), (100.0, 100.0), (200.0, 200.0)))
    assert found["ewj"] == found["ah_ewj"] == found["rpwj"] == Cost(0.0, 0.0, 0.0, 1.0)
    assert found["oa"].at_once == 1


@pytest.mark.parametrize("port", [0, 1])
def test_one_silent_stream_leaves_nothing_to_probe(port):
    rates = (1000.0, 0.0) if port == 0 else (0.0, 1000.0)
    found = every_cost(Load(rates, (100.0, 100.0), (6000.0, 6000.0)))
    # what is dumped comes back at the end of its window; no pair can be late
    assert found["ewj"].read == found["ah_ewj"].read == pytest.approx(100)
    assert [cost.at_once for cost in found.values()] == [1, 1, 1, 1]
    assert found["rpwj"].written == pytest.approx(100)
    assert found["oa"].written > 100


def test_a_window_that_stays_in_memory_is_not_dumped_though_the_other_is():
    # the left window is 1 MB; the right one, of 600 MB, is dumped, probed by nobody and read back once
    load = Load((10.0, 10_000.0), (100.0, 100.0), (1000.0, 600.0))
    cost = ewj_cost(load, 64e6, PLAIN)
    assert cost.written * 10_010 == pytest.approx(1e6)
    assert cost.read * 10_010 == pytest.approx(1e6)
    assert ah_ewj_cost(load, 64e6, PLAIN).written == pytest.approx(cost.written)


# What must not go down, or up


def loads_at(rates: st.SearchStrategy[float]) -> st.SearchStrategy[Load]:
    return st.builds(
        Load,
        rows_per_second=st.tuples(rates, rates),
        row_bytes=st.tuples(st.floats(1, 2000), st.floats(1, 2000)),
        window_seconds=st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)),
    )


loads = loads_at(st.just(0.0) | st.floats(1e-6, 1e6))
memories = st.floats(1e5, 1e10)
machines = st.builds(
    Machine,
    page_cache=st.sampled_from([0.0, 1e8, 2.0**30, 1e11]),
    disk_access=st.floats(1e-5, 1e-2),
    disk_bandwidth=st.floats(1e7, 5e9),
)
ROUNDING = 1 + 1e-6


@given(loads, memories, st.floats(1, 100), machines)
@examples(0.4)
def test_more_memory_never_raises_the_cost_of_methods_that_put_joins_off(load, memory, factor, machine):
    for method in (ewj_cost, ah_ewj_cost):
        less, more = method(load, memory, machine), method(load, factor * memory, machine)
        assert more.seconds <= less.seconds * ROUNDING
    assert ewj_cost(load, factor * memory, machine).at_once >= ewj_cost(load, memory, machine).at_once / ROUNDING


@given(loads, st.tuples(st.floats(1, 100), st.floats(1, 100)), memories, machines)
@examples(0.4)
def test_a_higher_rate_never_lowers_a_cost(load, factors, memory, machine):
    left, right = load.rows_per_second
    faster = replace(load, rows_per_second=(left * factors[0], right * factors[1]))
    before, after = every_cost(load, memory, machine), every_cost(faster, memory, machine)
    for method in before:
        assert after[method].seconds >= before[method].seconds / ROUNDING, method


@given(loads_at(st.floats(0, 1e6)), memories, machines)
@examples(0.2)
def test_costs_are_finite_and_shares_are_shares(load, memory, machine):
    for cost in every_cost(load, memory, machine).values():
        assert all(0 <= value < math.inf for value in (cost.seconds, cost.read, cost.written))
        assert 0 <= cost.at_once <= 1 * ROUNDING


@given(loads, memories, machines)
@examples(0.1)
def test_costs_do_not_depend_on_which_stream_is_left(load, memory, machine):
    turned = Load(load.rows_per_second[::-1], load.row_bytes[::-1], load.window_seconds[::-1])
    here, there = every_cost(load, memory, machine), every_cost(turned, memory, machine)
    for method in here:
        assert here[method].seconds == pytest.approx(there[method].seconds)


# Against what the methods and compaction do


@pytest.mark.parametrize("parameters", [Ewj(), AhEwj(), Rpwj(), Ewj(memory=50_000, page=100, chunk=700)])
def test_windows_are_laid_out_as_the_methods_lay_them_out(parameters):
    rows = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), keys=("k",), time="t")
    join = WindowJoin(on=(("k", "k"),), within=band(5, 5), method=parameters)
    logic = join.logic((rows, rows), CountingPages(), Budget(10**7), State())
    layout = costs._Layout.of(parameters, 10**7)
    assert (logic.memory, logic.page, logic.chunk) == pytest.approx(
        (layout.memory, layout.page, layout.chunk), rel=1e-3
    )


def test_slides_are_as_long_as_rpwj_makes_them():
    join = WindowJoin(on=(("k", "k"),), within=windows(left=100, right=50), method=Rpwj())
    assert join.slide == costs._slide(Load((1.0, 1.0), (8.0, 8.0), (100.0, 50.0)), Rpwj()) == 15


def test_compaction_merges_by_the_fan_the_planner_counts_with():
    assert costs.FAN == compaction.FAN
    assert costs.LARGEST_RUN == compaction._LARGEST_RUN / 2


def compacted(window: int, room: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Runs on average, and how often a row was rewritten, when eight rows arrive per epoch and stay for `window`."""
    store, rng, written, counts = CountingPages(), np.random.default_rng(1), [], []
    write_page = compaction.write_page

    def counting(store, port, rows, **kwargs):
        written.append(rows.num_rows)
        return write_page(store, port, rows, **kwargs)

    monkeypatch.setattr(compaction, "write_page", counting)
    pages = ()
    for epoch in range(3 * window):
        if epoch == 2 * window:
            written.clear()
        arrived = page_of(store, sorted((int(hash_), epoch) for hash_ in rng.integers(0, 2**60, 8)))
        dead = epoch - window
        alive = [replace(p, floor=max(p.floor, dead)) if p.min_time < dead else p for p in pages if p.max_time >= dead]
        pages = compaction.compact((*alive, arrived), store, Budget(room))
        counts.append(len({page.maker or page.name for page in pages}))
    return float(np.mean(counts[2 * window :])), sum(written) / (window * 8)


@pytest.mark.parametrize(("window", "room"), [(64, 10**9), (64, 1200), (64, 600), (128, 2400), (128, 1200)])
def test_runs_and_rewrites_are_what_compaction_makes_within_a_factor_of_two(window, room, monkeypatch):
    # eight rows of a hash and a time are 128 B: state of 8 and 16 kB, runs up to twice 600, 1,200 and 2,400 B
    runs, again = compacted(window, room, monkeypatch)
    sizes = {"state": window * 128, "arrivals": 128, "largest": costs.LARGEST_RUN * room}
    assert runs / 2 <= run_count(**sizes) <= runs * 2
    assert again / 2 <= rewrites(**sizes) <= again * 2


def test_more_state_takes_more_runs_and_larger_runs_fewer():
    assert all(a < b for a, b in pairwise(run_count(4.0**n, 1, 256) for n in range(1, 9)))
    assert all(a > b for a, b in pairwise(run_count(1e6, 1, 4.0**n) for n in range(1, 9)))
