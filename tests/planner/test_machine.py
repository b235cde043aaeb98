"""The disk and the machine: what the thesis' formula says, and what a page cache makes of it."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulated_disk import DiskModel
from penstock.core.errors import ConfigError
from penstock.planner.machine import SERVER, Disk, Machine
from tests.streams import examples

ROUND = Disk(latency=0.003, seek=0.005, bandwidth=1e6, block_bytes=1000, window_blocks=4)
"""8 ms to position, 1 ms a block, four blocks to a basic window."""


@pytest.mark.parametrize(
    ("blocks", "seconds"),
    [(0, 0.0), (1, 0.009), (3, 0.011), (4, 0.012), (5, 0.021), (8, 0.024), (9, 0.033)],
)
def test_reading_and_writing_by_hand(blocks, seconds):
    assert ROUND.read_seconds(blocks) == pytest.approx(seconds)
    assert ROUND.write_seconds(blocks) == pytest.approx(seconds)


@given(st.integers(0, 10**7))
@examples(0.02)
def test_the_planner_and_the_simulated_disk_agree(blocks):
    model = DiskModel()
    assert Disk(**asdict(model)) == Disk()
    assert math.isclose(Disk().read_seconds(blocks), model.read_seconds(blocks))


def test_a_long_transfer_counts_parts_of_basic_windows_and_a_short_one_an_access():
    # 1 block: 8 ms + 1 ms. 6 blocks: 1.5 windows of 8 ms and 6 ms, where the printed formula has two windows.
    assert ROUND.stream_seconds(0) == 0
    assert ROUND.stream_seconds(1000) == pytest.approx(0.009)
    assert ROUND.stream_seconds(6000) == pytest.approx(0.012 + 0.006)
    assert ROUND.read_seconds(6) == pytest.approx(0.016 + 0.006)
    assert ROUND.window_bytes == 4000


def test_state_in_the_page_cache_costs_memory_and_the_rest_the_disk():
    machine = Machine(memory_bandwidth=1e9, page_fault=1e-6, page_cache=3e6, disk_access=1e-3, disk_bandwidth=1e8)
    # 3 of 4 MB are cached: 0.75 · 1 µs + 0.25 · 1 ms; a byte takes 0.75 · 1 ns + 0.25 · 10 ns
    disk = machine.reading(state=4e6, block=1000, chunk=4000)
    assert disk.access_time == pytest.approx(250.75e-6)
    assert 1 / disk.bandwidth == pytest.approx(3.25e-9)
    assert disk.window_blocks == 4


@pytest.mark.parametrize("state", [0.0, 1e6])
def test_what_fits_the_cache_never_costs_the_disk(state):
    disk = SERVER.reading(state, block=1000, chunk=4000)
    assert (disk.access_time, disk.bandwidth) == (SERVER.page_fault, pytest.approx(SERVER.memory_bandwidth))


def test_writes_reach_the_disk_whatever_is_cached():
    disk = Machine(page_cache=1e12).writing(block=1000, chunk=4000)
    assert (disk.access_time, disk.bandwidth, disk.window_bytes) == (1e-4, 500e6, 4000)


def test_tasks_share_bandwidth_and_cache_but_not_access_times():
    assert Machine(8e9, 1e-6, 4e9, 1e-4, 4e8).shared(4) == Machine(2e9, 1e-6, 1e9, 1e-4, 1e8)


@pytest.mark.parametrize(
    ("kind", "argument", "value", "remedy"),
    [
        (Disk, "bandwidth", 0, "above 0"),
        (Disk, "block_bytes", -1, "above 0"),
        (Disk, "window_blocks", math.nan, "above 0"),
        (Disk, "latency", -1.0, "0 or more"),
        (Machine, "memory_bandwidth", 0, "above 0"),
        (Machine, "disk_access", -1.0, "0 or more"),
        (Machine, "page_cache", -1.0, "0 or more"),
    ],
)
def test_what_cannot_be_is_refused_by_name(kind, argument, value, remedy):
    with pytest.raises(ConfigError, match=rf"{argument}={value} .*{remedy}"):
        kind(**{argument: value})
