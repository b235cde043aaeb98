"""What a setup becomes at a scale: what shrinks, what grows, what stays."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from lab.chapter3 import EWJ
from lab.chapter5 import AH, RPWJ
from penstock.core.errors import ConfigError
from penstock.operators.window_join.methods import Ewj


def test_sizes_shrink():
    method = EWJ.method_at(1 / 20)
    assert method.memory == 2 << 20
    assert method.chunk == pytest.approx((1 << 20) / 20, abs=1)
    assert (method.page, method.row) == (4096, 128)
    assert RPWJ.method_at(1 / 32).read_memory == 1 << 15
    assert RPWJ.method_at(1 / 32).read_rate == 20e6 / 32
    assert replace(AH, method=replace(AH.method, flush=1 << 20)).method_at(1 / 32).flush == 1 << 15


def test_pages_of_partitions_shrink_to_a_quarter_at_most():
    assert [AH.method_at(scale).page for scale in (1, 1 / 2, 1 / 40)] == [1024, 512, 256]
    assert [RPWJ.machine_at(scale).disk.block_bytes for scale in (1, 1 / 2, 1 / 40)] == [1024, 512, 256]
    assert AH.machine_at(1 / 32).disk.window_blocks * 256 == AH.method_at(1 / 32).chunk


def test_partitions_of_ah_ewj_shrink_to_a_tenth_at_most_and_comparisons_with_them():
    """A row is compared with a partition of the other window: ten times as many rows, a tenth of the cost each."""
    assert [AH.partitions_at(scale) for scale in (1, 1 / 4, 1 / 40)] == [60, 15, 6]
    assert AH.method_at(1 / 40).partitions == 6
    for scale in (1, 1 / 40):
        rate, partitions, cpu = 1200 * scale, AH.method_at(scale).partitions, AH.machine_at(scale).cpu
        busy = partitions / 2 * cpu.probing(*at_once(4 * rate / partitions, rate * 600 / partitions), by="block")
        row, block = 2 * 1200 * 1200 * 600 / 60 * AH.comparison, 2 * (1200 / 16) * (1200 * 600 / 16) / 60 * AH.scan
        assert busy == pytest.approx(row + block)


def test_a_page_of_ah_ewj_spans_about_as_much_time_at_a_hundredth_as_at_full_size():
    def span(scale):
        method = AH.method_at(scale)
        return method.page / method.row * method.partitions / (1200 * scale)

    assert (span(1), span(1 / 100)) == (pytest.approx(0.8), pytest.approx(2.0))


@pytest.mark.parametrize("setup", [AH, RPWJ, EWJ])
def test_pages_of_any_size_see_the_same_arrivals(setup):
    large = replace(setup, method=replace(setup.method, page=4 * setup.method.page))
    assert large.pace_at(1 / 100) == setup.pace_at(1 / 100)


def test_rpwj_is_shown_enough_of_a_backlog_to_pass_its_high_mark():
    for page in (512, 1024, 4096):
        setup = replace(RPWJ, method=replace(RPWJ.method, page=page))
        method, shown = setup.method_at(1 / 100), setup.pace_at(1 / 100).batch * 64
        assert method.low_mark * method.page < method.high_mark * method.page < shown


def test_nothing_falls_below_a_page():
    assert EWJ.method_at(1e-6).memory == EWJ.method_at(1e-6).chunk == 4096


def test_fractions_and_counts_stay():
    assert AH.method_at(1 / 40).flush is None
    assert RPWJ.method_at(1 / 40).flush == 0.4
    assert RPWJ.method_at(1 / 40).partitions == 60


def test_the_machine_keeps_its_seeks_and_times_the_window():
    full, small = EWJ.machine_at(1), EWJ.machine_at(1 / 16)
    assert small.disk.seek == full.disk.seek
    assert small.disk.bandwidth == full.disk.bandwidth / 16
    assert (full.disk.window_blocks, small.disk.window_blocks) == (256, 16)
    once = at_once(1, 1)
    assert small.cpu.probing(*once, by="tuple") == pytest.approx(256 * full.cpu.probing(*once, by="tuple"))


def test_a_scan_of_a_window_takes_as_long_at_every_scale():
    """A window of W seconds at rate λ has as many basic windows, and its bytes take as long."""
    blocks = 200 * 1800 * 128 // 4096
    full, small = EWJ.machine_at(1).disk, EWJ.machine_at(1 / 16).disk
    assert small.read_seconds(blocks // 16) == pytest.approx(full.read_seconds(blocks), rel=0.02)


def test_the_saturated_cpu_is_the_same_at_every_scale():
    """λ rows a second against windows of λ·W: f² comparisons at 1/f² each."""
    for scale in (1, 1 / 20):
        rate = 250 * scale
        busy = 2 * EWJ.machine_at(scale).cpu.probing(*at_once(rate, rate * 1800), by="tuple")
        assert busy == pytest.approx(0.9)


def at_once(pending: float, stored: float) -> tuple[np.ndarray, np.ndarray]:
    return np.array([pending]), np.array([stored])


def test_traces_shrink_in_rows_and_keys_and_keep_their_bursts():
    small, full = (EWJ.workload.trace(scale, seed=3) for scale in (1 / 20, 1))
    assert (small.rate, small.cap, small.keys) == (10, 3500, 500_000)
    assert small.levels == full.levels


def test_sides_and_seeds_have_their_own_traces():
    workload = replace(EWJ.workload, span=60)
    traces = [table.column("key").to_pylist() for seed in (0, 1) for table in workload.traces(1 / 20, seed)]
    assert len({tuple(trace) for trace in traces}) == 4


def test_an_experiment_says_all_sizes():
    with pytest.raises(ConfigError, match=re.escape("memory, page, row, chunk = (None, 4096, None, None)")):
        replace(EWJ, method=Ewj(page=4096))
