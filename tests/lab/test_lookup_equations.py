"""Memory equations, cycles and the tuner of lookup joins (F25)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.lookup_equations import (
    Operations,
    Setting,
    Sizes,
    gain,
    hybrid_cycle,
    hybrid_memory,
    hybrid_waiting,
    inlj_cycle,
    mesh_cycle,
    mesh_memory,
    mesh_waiting,
    partitioned_cycle,
)
from lab.lookup_tuning import least_memory, tune
from penstock.core.errors import ConfigError
from penstock.operators.lookup import MeshJoin
from penstock.planner.lookup.reads import ReadCosts
from penstock.planner.lookup.skew import Skew
from penstock.planner.machine import Disk

SIZES = Sizes(100_000, table_row=120, stream_row=20, memory=1_200_000)
SLOTS = {"mesh": 28, "hybrid": 36}
READS = ReadCosts.of_disk(Disk(), row=120, request=0.001)


@given(st.integers(1, 2000), st.floats(0.02, 1), st.floats(0, 0.9))
def test_what_may_wait_fills_the_memory_and_no_more(rows, share, cache):
    sizes, setting = Sizes(100_000, 120, 20, share * 12e6), Setting(rows, cache)
    cached = sizes.cached(cache) * 128
    hybrid, mesh = hybrid_waiting(sizes, setting), mesh_waiting(sizes, setting)
    if hybrid:
        assert -37 <= hybrid_memory(sizes, rows, hybrid) + cached - sizes.memory <= 1e-3
    if mesh:
        chunk = mesh / sizes.partitions(rows)
        assert (
            -29
            <= mesh_memory(sizes, rows, 1) + (chunk - 1) * (20 + sizes.partitions(rows) * 28) + cached - sizes.memory
            <= 1e-3
        )


def test_a_waiting_row_takes_28_bytes_in_meshjoin_and_36_in_hybridjoin():
    empty = Setting(1)
    assert mesh_waiting(SIZES, empty) == pytest.approx((SIZES.memory - 120) / 28, rel=1e-4)
    assert hybrid_waiting(SIZES, empty) == (SIZES.memory - 120) // 36


def test_too_large_a_partition_leaves_no_room_to_wait():
    assert hybrid_waiting(SIZES, Setting(20_000)) == 0
    assert hybrid_cycle(SIZES, Setting(20_000), Skew(100_000), READS).rate == 0


def test_the_spec_s_yields_65_rows_of_meshjoin_and_130_of_hybridjoin():
    even = Skew(100_000)
    assert hybrid_cycle(SIZES, Setting(200), even, READS).back == pytest.approx(130, rel=0.02)
    assert hybrid_waiting(SIZES, Setting(200)) * 200 / 100_000 == pytest.approx(65, rel=0.02)


@pytest.mark.parametrize(
    ("cache", "simulated"), [(0.05, 2.11), (0.10, 2.27), (0.15, 2.32), (0.20, 2.31), (0.30, 2.18), (0.50, 1.65)]
)
def test_the_gain_is_near_what_the_spec_simulated(cache, simulated):
    assert gain(SIZES, cache, Skew(100_000, 1.0), 1000, "mesh") == pytest.approx(simulated, rel=0.07)


def test_the_gain_of_the_largest_table_is_bounded_by_4():
    sizes = Sizes(10**8, 120, 20, 0.1 * 120e8)
    gains = {x: gain(sizes, x, Skew(10**8, 1.0), 1000, "mesh") for x in (0.1, 0.2, 0.3)}
    assert max(gains.values()) == pytest.approx(3.9, rel=0.05)


def test_an_even_stream_is_a_little_slower_with_a_cache():
    plain, cached = (hybrid_cycle(SIZES, Setting(200, x), Skew(100_000), READS).rate for x in (0.0, 0.15))
    assert 0.8 < cached / plain < 0.95


def test_r_meshjoin_has_what_meshjoin_has_of_a_read():
    one, four = (mesh_cycle(SIZES, Setting(500, loads=loads), Skew(100_000), READS) for loads in (1, 4))
    assert four.reads == 4
    assert four.per_read == pytest.approx(one.per_read, rel=0.05)


def best_buffer(table_rows: int, logical: int | None) -> int | None:
    """b of the highest rate, to the block, with as many logical partitions or one for each read; None if none will do.

    Rows enter in whole numbers: h_S = k · w with w of 1 at least.
    """
    sizes = Sizes(table_rows, table_row=120, stream_row=20, memory=120_000)
    rates: dict[int, float] = {}
    for rows in range(34, 900, 34):
        partitions = sizes.partitions(rows)
        loads = 1 if logical is None else partitions // logical
        waiting = mesh_waiting(sizes, Setting(rows, loads=loads))
        chunk = MeshJoin(waiting, loads).chunk(partitions)
        if chunk * (partitions // loads) <= waiting:
            rates[rows] = chunk * partitions / loads / READS.all_of(rows * 120, partitions)
    return max(rates, key=rates.__getitem__, default=None)


def test_f03_the_best_buffer_of_r_meshjoin_stays_when_the_table_doubles_and_that_of_meshjoin_does_not():
    """By its equations alone, with fractions of rows, MESHJOIN's would hardly move; whole rows are what moves it."""
    sizes = [100_000 * 2**n for n in range(5)]
    ours = [best_buffer(rows, logical=16) for rows in sizes]
    theirs = [best_buffer(rows, logical=None) for rows in sizes]
    assert max(ours) - min(ours) <= 34, "one block"
    assert [abs(after - before) // 34 for before, after in pairwise(theirs[:3])] == [2, 3], "blocks"
    assert theirs[-1] is None, "there are more partitions than rows can wait"


def test_inlj_does_not_depend_on_the_memory_and_cinlj_does():
    small, large = (Sizes(100_000, 120, 20, memory) for memory in (1e5, 1e6))
    skew = Skew(100_000, 1.0)
    plain = [inlj_cycle(sizes, Setting(1), skew, READS).rate for sizes in (small, large)]
    cached = [inlj_cycle(sizes, Setting(1, 0.5), skew, READS).rate for sizes in (small, large)]
    assert plain[0] == plain[1]
    assert cached[1] > 1.2 * cached[0] > plain[0]


def test_a_request_for_many_keys_is_shared():
    one, many = (inlj_cycle(SIZES, Setting(1), Skew(100_000), READS, batch=batch).rate for batch in (1, 1000))
    assert many > one


def test_whole_partitions_are_worth_keeping_where_frequent_keys_lie_together():
    skew = Skew(100_000, 1.0)
    local, anywhere = (partitioned_cycle(SIZES, Setting(200), skew, READS, None, p) for p in ("local", "random"))
    tuples = hybrid_cycle(SIZES, Setting(200, 0.15), skew, READS)
    assert local.hit_share > tuples.hit_share > anywhere.hit_share
    assert local.rate > anywhere.rate


GRID_ROWS = (1, 5, 17, 34, 68, 136, 200, 300, 500, 1000, 2000, 5000)
GRID_CACHE = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75)
GRID_ALPHA = (0.3, 0.5, 0.6, 2 / 3, 0.75, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("share", [pytest.param(0.01, marks=pytest.mark.deep), 0.1])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("method", ["mesh", "hybrid"])
def test_f25_the_tuner_is_within_5_percent_of_the_best_of_a_grid(method, exponent, share):
    sizes, skew = Sizes(100_000, 120, 20, share * 12e6), Skew(100_000, exponent)
    cycle = mesh_cycle if method == "mesh" else hybrid_cycle
    alphas = (None,) if method == "mesh" else GRID_ALPHA
    settings = [Setting(rows, x, a) for rows in GRID_ROWS for x in GRID_CACHE for a in alphas]
    best = max(cycle(sizes, setting, skew, READS).rate for setting in settings)
    tuned = tune(method, sizes, skew, READS)
    assert tuned.rate >= 0.95 * best
    assert tuned.rate == cycle(sizes, tuned.setting, skew, READS).rate


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("method", ["mesh", "hybrid"])
def test_f25_the_least_memory_for_a_rate_is_within_5_percent_of_the_best_of_a_grid(method, exponent):
    sizes, skew = Sizes(100_000, 120, 20, 12e6), Skew(100_000, exponent)
    cycle = mesh_cycle if method == "mesh" else hybrid_cycle
    least = least_memory(method, 20_000, sizes, skew, READS)
    assert least.rate >= 20_000
    below = Sizes(100_000, 120, 20, 0.95 * least.sizes.memory)
    rates = [cycle(below, Setting(rows, x), skew, READS).rate for rows in GRID_ROWS for x in GRID_CACHE]
    assert max(rates) < 20_000


def test_a_rate_that_no_memory_gives_is_refused():
    with pytest.raises(ConfigError, match=r"rate=1e\+09 is more than"):
        least_memory("mesh", 1e9, SIZES, Skew(100_000), READS)


def test_more_memory_is_never_slower():
    rates = [tune("mesh", Sizes(100_000, 120, 20, m), Skew(100_000, 0.8), READS).rate for m in (2e5, 5e5, 1e6, 3e6)]
    assert (np.diff(rates) > 0).all()


def test_the_operations_of_a_row_add_up():
    ops = Operations(1, 2, 4, 8, 16, 32)
    assert (ops.front, ops.back) == (1 + 8 + 16, 16 + 4 + 1 + 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sizes(0, 1, 1, 1), "table_rows=0"),
        (lambda: Setting(0), "partition_rows=0"),
        (lambda: Setting(1, cache=1.0), "cache=1.0"),
        (lambda: Setting(1, alpha=1.0), "alpha=1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
