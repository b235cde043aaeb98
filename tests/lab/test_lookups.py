"""Lookup experiments: setups at a scale, delays that can be worked out by hand, the records and their shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lab import chapter6, shapes
from lab.arrivals import DONE, TOTALS, PairMachine, measure_history, simulate_arrivals
from lab.catalog import find
from lab.chapter6 import HASH, MESHJOIN, RANGE
from lab.experiments import OverTime
from lab.measures import BUFFERED, DELAY, DISK, PATHS, WALL, Point
from lab.segmented import BUCKETS, SegmentedTable
from lab.simulated_disk import DiskModel
from lab.simulation import Pace
from lab.workloads.traces import COLUMNS
from penstock.core.rows import hashes_of
from penstock.kernels.hashing import hash_keys
from penstock.operators.lookup import LookupJoin, MeshJoin, Partitioned, Stages
from tests.lab.test_experiments import table

pytestmark = pytest.mark.slow

FIGURES = [f"6.{number}" for number in range(5, 14)]
EXPERIMENTS = {each.id: each for each in chapter6.EXPERIMENTS}
FREE = DiskModel(latency=0, seek=0, bandwidth=1e12)


def trace(*rows: tuple[float, int]) -> pa.Table:
    """Rows at these seconds, of these keys."""
    times = [round(1_000_000 * second) for second, _ in rows]
    keys = [key for _, key in rows]
    return pa.table({"t": times, "key": keys, "id": range(len(rows))}).cast(COLUMNS)


def master(*keys: int, by="range", theta=2) -> SegmentedTable:
    return SegmentedTable(pa.table({"key": pa.array(keys, pa.int64())}), by, theta)


def run(source, method, rows, machine=None, until=100.0, batch=1):
    config = LookupJoin(source, (("key", "key"),), method=Stages(method))
    return simulate_arrivals(config, rows, machine or PairMachine(FREE, 0, 128), Pace(0, batch), until)


class TestSegments:
    @pytest.mark.parametrize("by", ["range", "hash", "scan"])
    def test_every_row_is_in_one_segment_sorted_by_hash(self, by):
        keys = np.random.default_rng(1).integers(0, 500, 3000)
        opened = master(*keys, by=by, theta=100).open()
        scans = [opened.scan(place) for place in range(opened.partitions)]
        assert sorted(key for rows in scans for key in rows.column("key").to_pylist()) == sorted(keys)
        assert all((np.diff(hashes_of(rows).astype(float)) >= 0).all() for rows in scans)

    @pytest.mark.parametrize("by", ["range", "hash"])
    def test_a_key_finds_its_segment_also_one_without_rows(self, by):
        opened = master(*range(0, 1000, 2), by=by, theta=50).open()
        keys = pa.array(range(1000), pa.int64())
        places = opened.partition_of(hash_keys([keys]), [keys])
        assert (places >= 0).all()
        for place in range(opened.partitions):
            held = opened.scan(place).column("key").to_numpy()
            assert (places[held] == place).all()

    def test_ranges_have_theta_rows_to_twice_as_many(self):
        opened = master(*range(1000), theta=50).open()
        counts = [opened.scan(place).num_rows for place in range(opened.partitions)]
        assert min(counts[:-1]) >= 50
        assert max(counts) <= 100

    def test_rows_in_no_order_keep_their_keys_together(self):
        opened = master(*[1, 2, 3] * 10, by="scan", theta=8).open()
        kinds = [set(opened.scan(place).column("key").to_pylist()) for place in range(opened.partitions)]
        assert sum(len(some) for some in kinds) == 3
        assert opened.get(hash_keys([pa.array([2])]), []).num_rows == 10
        assert opened.changes("0").keys.num_rows == 0
        with pytest.raises(NotImplementedError, match="no order of keys"):
            opened.partition_of(np.zeros(1, np.uint64), [pa.array([1])])


class TestArrivals:
    def test_meshjoin_reads_when_its_segment_of_the_queue_is_full(self):
        """Two table segments, one row enters at a time: each row meets one segment when the next row arrives."""
        rows = trace((0, 1), (1, 2), (2, 1), (3, 2), (4, 1), (5, 2))
        history = run(master(1, 2, by="scan", theta=1), MeshJoin(slots=2), rows)
        assert set((history.emitted - history.times).round(6)) <= {1.0, 2.0}
        assert history.taken == pytest.approx(range(6))

    def test_pairs_that_meet_take_time_and_what_they_make_comes_out_after_it(self):
        history = run(master(1, 2), Partitioned(wait=1), trace((0, 1), (10, 2)), PairMachine(FREE, 0.5, 128))
        assert history.emitted.tolist() == pytest.approx([1, 11])
        assert history.progress.cpu[-1] == 2

    def test_a_read_positions_anew_each_time(self):
        disk = DiskModel(latency=1, seek=1, bandwidth=1e12, block_bytes=128, window_blocks=2)
        history = run(
            master(1, 2, 3, theta=3), Partitioned(wait=1, cache=0), trace((0, 1), (9, 2)), PairMachine(disk, 0, 128)
        )
        assert history.progress.disk[-1] == pytest.approx(8)

    def test_rows_queue_up_while_the_join_works(self):
        rows = trace(*[(second, 1) for second in range(6)])
        history = run(master(1), Partitioned(wait=1, cache=0), rows, PairMachine(FREE, 2, 128))
        assert history.taken == pytest.approx([0, 2, 4, 6, 8, 10])

    def test_it_ends_with_the_trace(self):
        rows = trace(*[(second, 1) for second in range(6)])
        history = run(master(1), Partitioned(wait=1, cache=0), rows, PairMachine(FREE, 2, 128), until=5)
        assert history.taken == pytest.approx([0, 2, 4])
        point = measure_history(history, since=1, until=5, scale=0.5)
        assert point.totals[DONE.name] == 2 / 0.5
        assert point.totals[DELAY.name] == pytest.approx((2 + 3) / 2)
        assert point.paths[BUFFERED.name][-1] == 3 / 0.5

    def test_the_wall_clock_is_read_at_the_same_moments_as_the_other(self):
        rows = trace(*[(second, 1) for second in range(6)])
        history = run(master(1), Partitioned(wait=1, cache=0), rows, PairMachine(FREE, 2, 128))
        assert history.wall.shape == history.progress.moments.shape
        assert (np.diff(history.wall) > 0).all()
        slow = history._replace(wall=np.arange(1.0, history.wall.size + 1))
        halves = (
            measure_history(each, since=1, until=9, scale=0.5) for each in (slow, slow._replace(wall=2 * slow.wall))
        )
        first, second = (point.totals[WALL.name] for point in halves)
        assert first == 2 * second > 0


class TestSetups:
    def test_defaults_are_those_of_the_thesis(self):
        assert MESHJOIN.method_at(1).chunk(200) == 3194
        method = RANGE.method_at(1)
        assert (method.wait, method.block, method.invoke, method.every) == (65_536, 64, 3000, 10_000)
        assert (method.refill, method.rho, method.alpha, method.high, method.low) == (0.4, 0.25, 0.3, 100, 2)
        assert method.cache == (40 - 4 - 2) * 2**20 // 128 * 16

    @pytest.mark.parametrize("setup", [MESHJOIN, RANGE, HASH])
    def test_a_segment_is_read_as_fast_at_every_scale(self, setup):
        full, small = (setup.machine_at(scale).disk for scale in (1, 1 / 32))
        assert small.read_seconds(256) == pytest.approx(full.read_seconds(256), rel=1e-3)

    @pytest.mark.parametrize("scale", [1 / 100, 1 / 16])
    def test_the_number_of_segments_stays(self, scale):
        assert MESHJOIN.table_at(scale, 0).open().partitions == pytest.approx(200, abs=2)
        assert HASH.table_at(scale, 0).open().partitions == BUCKETS
        assert 100 <= RANGE.table_at(scale, 0).open().partitions <= 200

    def test_a_pair_costs_more_as_fewer_meet(self):
        assert RANGE.machine_at(1).pair == 4e-9
        assert MESHJOIN.machine_at(1).pair == pytest.approx(40e-9 / 89)
        assert RANGE.machine_at(0.1).pair == pytest.approx(4e-7)

    def test_the_table_is_the_same_whatever_the_stream_does(self):
        other = replace(RANGE, workload=replace(RANGE.workload, rate=2000, bias=0.7))
        assert other.table_at(1 / 200, 3).rows.equals(RANGE.table_at(1 / 200, 3).rows)
        assert not RANGE.table_at(1 / 200, 4).rows.equals(RANGE.table_at(1 / 200, 3).rows)

    def test_meshjoin_waits_half_of_a_residence_at_a_steady_rate(self):
        """(M - d) / (64 B · λ) = 639 s at 1,000/s: half of it, and half of the time in which a segment fills."""
        steady = replace(MESHJOIN, workload=replace(MESHJOIN.workload, bias=0.5))
        assert steady.point(1 / 100, 0).totals[DELAY.name] == pytest.approx(320, rel=0.1)


class TestRecords:
    def test_every_figure_is_there_in_order(self):
        assert list(EXPERIMENTS) == FIGURES == [each.id for each in find("6")]

    @pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
    def test_a_record_is_well_formed(self, experiment):
        assert all(check.says.endswith(".") and check.name for check in experiment.expected)
        assert len({check.name for check in experiment.expected}) == len(experiment.expected) > 0
        known = (*PATHS, WALL) if isinstance(experiment.x, OverTime) else TOTALS
        assert {measure.name for measure in experiment.measures} <= {measure.name for measure in known}
        assert experiment.workload.startswith("a composite trace against a table of 200 MB")
        assert experiment.seeds >= 5
        assert WALL in experiment.measures

    @pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
    def test_its_checks_find_their_series_and_places(self, experiment):
        point = Point(
            {m.name: 1.0 for m in TOTALS}, np.array([0.0, 60.0]), {m.name: np.ones(2) for m in (*PATHS, WALL)}
        )
        measured = experiment.table(lambda setup: (point,))
        assert all(check.test(measured).measured for check in experiment.expected)

    def test_figures_of_one_sweep_share_its_runs(self):
        assert set(EXPERIMENTS["6.7"].setups()) < set(EXPERIMENTS["6.10"].setups()) == set(EXPERIMENTS["6.11"].setups())
        assert set(EXPERIMENTS["6.5"].setups()) < set(EXPERIMENTS["6.7"].setups())


CURVES = table(
    a_delay=([1, 2, 3, 4], [9, 3, 5, 5]),
    b_delay=([1, 2, 3, 4], [10, 4, 4, 4]),
    a_disk=([1, 2], [8, 15]),
    b_disk=([1, 2], [1, 1]),
)


class TestShapes:
    @pytest.mark.parametrize(
        ("test", "passed"),
        [
            (shapes.falls_until("A", DELAY, 2), True),
            (shapes.falls_until("A", DELAY, 3), False),
            (shapes.plateaus("A", DELAY, 3), True),
            (shapes.plateaus("A", DELAY, 2), False),
            (shapes.crosses("A", "B", DELAY, 2.5), True),
            (shapes.crosses("B", "A", DELAY, 2.5), False),
            (shapes.crosses("A", "B", DELAY, 1.5), False),
            (shapes.about_times("A", "B", DISK, 10), True),
            (shapes.about_times("A", "B", DISK, 4), False),
            (shapes.about_times("A", "B", DISK, 20), False),
        ],
    )
    def test_over_a_sweep(self, test, passed):
        assert test(CURVES).passed == passed

    def test_over_time(self):
        waves = table(a_buffered=(range(4), [0, 8, 2, 0]))
        assert shapes.reaches("A", BUFFERED, 8)(waves).passed
        assert not shapes.reaches("A", BUFFERED, 9)(waves).passed
