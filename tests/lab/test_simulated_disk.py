"""The simulated disk and its clock: costs that a reader can work out by hand, and nothing but costs."""

from __future__ import annotations

import math
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulated_disk import Access, CpuModel, DiskModel, Extent, SimulatedDisk, VirtualClock
from penstock.core.budget import Budget
from penstock.core.errors import ConfigError, StateError
from penstock.storage.memory import MemoryPages
from tests.streams import examples

ROUND = DiskModel(latency=0.003, seek=0.005, bandwidth=1e6, block_bytes=1000, window_blocks=4)
"""8 ms to position, 1 ms a block, four blocks to a basic window."""


def disk_of(model: DiskModel = ROUND) -> SimulatedDisk:
    """A row is a block."""
    return SimulatedDisk(MemoryPages(Budget(1 << 40)), model, VirtualClock(), row_bytes=model.block_bytes)


def page(blocks: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(blocks), pa.int64())})


def written(disk: SimulatedDisk, segment: str, sizes: list[int]) -> list[str]:
    return [disk.put(page(size), segment) for size in sizes]


def runs(disk: SimulatedDisk) -> list[tuple[str, str, int, int, int]]:
    return [(a.kind, a.segment, a.first, a.blocks, a.seeks) for a in disk.log]


# The model


@pytest.mark.parametrize(
    ("blocks", "seconds"),
    [(0, 0.0), (1, 0.009), (3, 0.011), (4, 0.012), (5, 0.021), (8, 0.024), (9, 0.033)],
)
def test_reading_and_writing_by_hand(blocks, seconds):
    assert ROUND.read_seconds(blocks) == pytest.approx(seconds)
    assert ROUND.write_seconds(blocks) == pytest.approx(seconds)


def test_the_thesis_disk_by_hand():
    # 3,584 blocks of 4 KiB are 14 basic windows of 1 MiB: 14 · 8.29 ms + 3,584 · 4,096 B / 20 MB/s
    assert DiskModel().read_seconds(3584) == pytest.approx(14 * 0.00829 + 0.7340032)
    # AH-EWJ: 1 KiB blocks, a dump of one basic window
    assert DiskModel(block_bytes=1024, window_blocks=1024).write_seconds(1024) == pytest.approx(0.00829 + 0.0524288)


def test_pages_take_whole_blocks_and_one_at_least():
    assert [ROUND.blocks(size) for size in (0, 1, 1000, 1001, 4000)] == [1, 1, 1, 2, 4]


def test_a_smaller_experiment_keeps_its_times():
    half = ROUND.scaled(0.5)
    assert (half.bandwidth, half.window_blocks) == (5e5, 2)
    assert (half.latency, half.seek, half.block_bytes) == (0.003, 0.005, 1000)
    assert ROUND.scaled(0.01).window_blocks == 1


@pytest.mark.parametrize("field", ["bandwidth", "block_bytes", "window_blocks"])
def test_a_disk_of_nothing_is_refused(field):
    with pytest.raises(ConfigError, match=rf"{field}=0 is no disk: write a number above 0\."):
        DiskModel(**{field: 0})


@pytest.mark.parametrize("field", ["latency", "seek"])
def test_a_disk_that_gives_time_back_is_refused(field):
    with pytest.raises(ConfigError, match=rf"{field}=-1 would turn back the clock: write seconds, 0 or more\."):
        DiskModel(**{field: -1})


def test_cpu_seconds_by_hand():
    assert CpuModel().seconds(comparisons=2 * 250 * 450_000) == pytest.approx(0.9)
    assert CpuModel().seconds(chain_nodes=1000) == pytest.approx(40e-6)
    assert CpuModel(comparison=12e-9).seconds(comparisons=10, chain_nodes=1) == pytest.approx(160e-9)
    with pytest.raises(ConfigError, match=r"comparison=-1 would turn back the clock"):
        CpuModel(comparison=-1)


def test_what_is_looked_through_is_loaded_for_each_row_or_each_block_of_rows():
    """20 rows through 160, 1 through 32, in blocks of 16: by row 20·10 + 1·2 blocks are loaded, else 2·10 + 1·2."""
    model, pending, stored = CpuModel(comparison=0, scan=1.0, block_rows=16), np.array([20, 1]), np.array([160, 32])
    assert model.probing(pending, stored, by="tuple") == 202
    assert model.probing(pending, stored, by="block") == 22
    compared = CpuModel(comparison=2.0, scan=0).probing(pending, stored, by="block")
    assert compared == 2 * (20 * 160 + 1 * 32)


def test_a_row_that_stands_for_many_costs_what_they_do():
    full, tenth = (CpuModel(comparison=1.0, scan=3.0, block_rows=16, each=each) for each in (1, 10))
    for by in ("tuple", "block"):
        whole = full.probing(np.array([320]), np.array([1600]), by=by)
        assert tenth.probing(np.array([32]), np.array([160]), by=by) == whole


# The clock


def test_the_clock_moves_by_what_is_charged_and_keeps_cpu_and_disk_apart():
    clock = VirtualClock(CpuModel(comparison=0.5, chain_node=2.0))
    clock.compute(comparisons=3)
    clock.compute(chain_nodes=1)
    clock.transfer(0.25)
    assert (clock.cpu, clock.disk, clock.busy, clock.idle, clock.now) == (3.5, 0.25, 3.75, 0.0, 3.75)


def test_waiting_is_no_work_and_never_goes_back():
    clock = VirtualClock()
    clock.wait_until(0.1 + 0.2)
    clock.transfer(1.0)
    clock.wait_until(1.0)
    assert clock.now == pytest.approx(1.3)
    clock.wait_until(7.7)
    assert clock.now == 7.7, "to the moment, not nearly: its rows are due"
    assert (clock.busy, clock.idle) == (1.0, pytest.approx(6.7))


def test_the_time_of_day_is_nothing_to_it():
    disk = disk_of()
    name = disk.put(page(2))
    before = disk.clock.now
    time.sleep(0.01)
    assert disk.clock.now == before
    disk.get(name)
    again = disk_of()
    again.get(again.put(page(2)))
    assert again.clock.now == disk.clock.now


# The disk


def test_a_sequential_write_seeks_once_per_basic_window():
    # 000-14
    disk = disk_of()
    written(disk, "left", [1] * 10)
    assert disk.log == (Access("write", "left", 0, 10, 3, pytest.approx(0.034)),)
    assert disk.clock.disk == pytest.approx(ROUND.write_seconds(10))
    assert disk.clock.cpu == 0


def test_the_next_dump_goes_on_where_the_last_one_ended():
    disk = disk_of()
    written(disk, "left", [1] * 6)
    written(disk, "right", [1])
    written(disk, "left", [1] * 3)
    assert runs(disk) == [("write", "left", 0, 6, 2), ("write", "right", 0, 1, 1), ("write", "left", 6, 3, 2)]


def test_a_dump_of_whole_basic_windows_costs_what_the_formula_says_every_time():
    disk = disk_of()
    for dumps in range(1, 4):
        written(disk, "left", [2] * 4)
        written(disk, "right", [4])
        assert disk.clock.disk == pytest.approx(dumps * (ROUND.write_seconds(8) + ROUND.write_seconds(4)))


def test_a_scan_costs_what_the_formula_says():
    disk = disk_of()
    names = written(disk, "left", [1] * 10)
    written(disk, "right", [1])
    before = disk.clock.disk
    assert [name for name, _ in disk.scan("left")] == names
    assert disk.clock.disk - before == pytest.approx(ROUND.read_seconds(10))
    assert runs(disk)[-1] == ("read", "left", 0, 10, 3)


def test_a_scan_that_is_interrupted_has_to_seek_again():
    disk = disk_of()
    left, right = written(disk, "left", [1] * 3), written(disk, "right", [1])
    for name, _ in disk.scan("left"):
        if name == left[1]:
            disk.get(right[0])
    reads = [run for run in runs(disk) if run[0] == "read"]
    assert reads == [("read", "left", 0, 2, 1), ("read", "right", 0, 1, 1), ("read", "left", 2, 1, 1)]


def test_what_a_scan_skips_inside_a_basic_window_passes_under_the_arm():
    disk = disk_of()
    names = written(disk, "left", [1] * 8)
    written(disk, "right", [1])
    for place in (0, 2, 5, 7):
        disk.get(names[place])
    reads = [run for run in runs(disk) if run[0] == "read"]
    assert reads == [("read", "left", 0, 3, 1), ("read", "left", 5, 3, 1)]


def test_a_gap_that_takes_longer_than_a_seek_is_not_waited_for():
    disk = disk_of(DiskModel(latency=0.003, seek=0.005, bandwidth=1e6, block_bytes=1000, window_blocks=100))
    names = written(disk, "left", [1] * 40)
    written(disk, "right", [1])
    for place in (0, 9, 19, 18):
        disk.get(names[place])
    reads = [run for run in runs(disk) if run[0] == "read"]
    assert reads == [("read", "left", 0, 10, 1), ("read", "left", 19, 1, 1), ("read", "left", 18, 1, 1)]


def test_writing_never_passes_over_blocks():
    disk = disk_of()
    first, *_ = written(disk, "left", [1] * 2)
    disk.get(first)
    disk.put(page(1), "left")
    assert runs(disk) == [("write", "left", 0, 2, 1), ("read", "left", 0, 1, 1), ("write", "left", 2, 1, 1)]


def test_reading_a_page_again_is_another_seek():
    disk = disk_of()
    name = disk.put(page(1))
    disk.get(name)
    disk.get(name)
    assert [run[4] for run in runs(disk)] == [1, 1, 1]


def test_without_a_row_size_rows_count_what_they_take_in_arrow():
    disk = SimulatedDisk(MemoryPages(Budget(1 << 40)), ROUND, VirtualClock())
    assert disk.extent(disk.put(page(125))) == Extent("main", 0, 1)
    assert disk.extent(disk.put(page(126))) == Extent("main", 1, 2)


def test_a_dropped_page_leaves_a_hole_and_cannot_be_read():
    disk = disk_of()
    names = written(disk, "left", [1, 1, 1])
    before = disk.clock.now
    disk.drop(names[0])
    assert disk.clock.now == before
    assert disk.pages("left") == tuple(names[1:])
    assert disk.extent(disk.put(page(1), "left")).first == 3
    with pytest.raises(StateError, match=rf"State file {names[0]} is missing"):
        disk.get(names[0])


def test_pages_that_go_during_a_scan_are_not_read():
    disk = disk_of()
    names = written(disk, "left", [1, 1, 1])
    seen = []
    for name, _ in disk.scan("left"):
        seen.append(name)
        if name == names[0]:
            disk.drop(names[1])
    assert seen == [names[0], names[2]]


def test_a_dropped_page_is_not_in_its_segment():
    disk = disk_of()
    name = disk.put(page(3), "left")
    assert disk.get(name).equals(page(3))
    assert disk.pages("left") == (name,)
    disk.drop(name)
    assert disk.pages("left") == ()
    assert disk.pages("nobody's") == ()


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), max_size=12),
    st.lists(st.integers(0, 11), max_size=12),
    st.integers(1, 6),
)
@examples(0.1)
def test_the_log_accounts_for_every_second_and_rows_come_back(pages, reads, window):
    model = DiskModel(0.003, 0.005, 1e6, 1000, window)
    disk = disk_of(model)
    names = [disk.put(page(size), segment) for segment, size in pages]
    for place in reads:
        if place < len(names):
            assert disk.get(names[place]).num_rows == pages[place][1]
    assert disk.clock.now == disk.clock.disk == pytest.approx(sum(access.seconds for access in disk.log))
    for access in disk.log:
        assert access.seconds == pytest.approx(model.seconds(access.seeks, access.blocks))
        entered = (access.end - 1) // window - access.first // window + 1
        assert access.seeks == entered or access.seeks == entered - 1, "one per basic window, the first perhaps open"
    assert sum(a.blocks for a in disk.log if a.kind == "write") == sum(size for _, size in pages)
    assert math.isfinite(disk.clock.now)
