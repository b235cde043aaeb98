"""The driver against traces whose delays and queues can be worked out by hand, and what it hands over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lab.simulated_disk import CpuModel, DiskModel, VirtualClock
from lab.simulation import Machine, Pace, _entered, _RowsOnDisk, simulate
from lab.workloads.traces import COLUMNS, Composite
from penstock.core.delays import buffered, production_delays
from penstock.core.operator import Out
from penstock.core.rows import hashes_of
from penstock.core.time import TIME_MAX
from penstock.core.within import windows
from penstock.operators.window_join.config import WindowJoin
from penstock.operators.window_join.methods import AhEwj, Ewj, Rpwj
from tests.oracle import window_join as oracle

FREE = Machine(DiskModel(latency=0, seek=0, bandwidth=1e12), CpuModel(comparison=0), row_bytes=128)
SIZES = {"memory": 1 << 14, "page": 512, "row": 64, "chunk": 2048}
METHODS = {
    "ewj": Ewj(**SIZES),
    "ah": AhEwj(**SIZES, partitions=3),
    "rpwj": Rpwj(**SIZES, partitions=3, slide="10 s"),
}


def trace(*seconds: float, key: int = 7) -> pa.Table:
    """Rows of one key at these moments."""
    times = [round(1_000_000 * second) for second in seconds]
    return pa.table({"t": times, "key": [key] * len(times), "id": range(len(times))}).cast(COLUMNS)


def join(width: str = "100 s", method="oa") -> WindowJoin:
    return WindowJoin((("key", "key"),), windows(width, width), unit="microseconds", method=method)


class Slow:
    """A join that takes a second for each row and then says that it met the first row of the other port."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.work = 1.0

    def logic(self, inputs, store, budget, state, meter=None):
        self.meter = meter
        return self

    def output(self, inputs) -> pa.Schema:
        kinds = {"t": COLUMNS.field("t").type, "id": pa.int64()}
        return pa.schema({**kinds, **{f"{name}_right": kind for name, kind in kinds.items()}})

    def rows(self, port, rows):
        times = rows.column("__time").to_pylist()
        self.calls.append(("rows", port, [time / 1e6 for time in times], self.meter.now))
        for time, number in zip(times, rows.column("id").to_pylist(), strict=True):
            self.meter.compute(comparisons=1)
            yield Out(
                "results",
                pa.record_batch([[time], [number], [0], [0]], self.output(None).names).cast(self.output(None)),
            )

    def advance(self, port, bound):
        self.calls.append(("end", port) if bound == TIME_MAX else ("advance", port, bound / 1e6))
        return iter(())

    def idle(self, work):
        steps = 0
        while work.left() and steps < 100:
            self.meter.transfer(0.25)
            steps += 1
        self.calls.append(("idle", steps))
        return iter(())


SECOND_A_ROW = Machine(DiskModel(), CpuModel(comparison=1.0), row_bytes=128)


class TestTheClock:
    def test_rows_queue_up_while_the_join_works(self):
        """Rows at 1, 1.5, 2, 10 s, a second each: taken at 1, 2, 3, 10, done at 2, 3, 4, 11."""
        slow = Slow()
        run = simulate(slow, (trace(1, 1.5, 2, 10), trace()), SECOND_A_ROW, Pace())
        assert run.taken[0].tolist() == pytest.approx([1, 2, 3, 10])
        assert run.results.emitted.tolist() == pytest.approx([2, 3, 4, 11])
        assert production_delays(run.results.emitted, run.results.times[0]).tolist() == pytest.approx([1, 1.5, 2, 1])
        queue = buffered(run.arrived[0], run.taken[0])
        assert queue.peak == 1
        assert queue.at(np.array([0.9, 1.7, 2.5, 3.5])).tolist() == [0, 1, 1, 0]

    def test_idle_work_stops_when_a_row_is_there(self):
        """Nothing until 1 s: four quarters. Then work until 2 s, and 32 quarters until 10 s."""
        slow = Slow()
        simulate(slow, (trace(1, 10), trace()), SECOND_A_ROW, Pace())
        assert [call for call in slow.calls if call[0] == "idle"] == [("idle", 4), ("idle", 32)]

    def test_work_is_known_after_each_hand_over(self):
        run = simulate(Slow(), (trace(1, 10), trace()), SECOND_A_ROW, Pace())
        assert run.progress.moments.tolist() == pytest.approx([2, 11, 11])
        assert run.progress.reached.tolist() == [1, 10, np.inf]
        assert run.progress.cpu.tolist() == pytest.approx([1, 2, 2])
        assert run.progress.disk.tolist() == pytest.approx([1, 9, 9])

    def test_the_oldest_row_goes_first_over_both_ports(self):
        slow = Slow()
        simulate(slow, (trace(1, 3), trace(2, 4)), SECOND_A_ROW, Pace())
        assert [call[1:3] for call in slow.calls if call[0] == "rows"] == [(0, [1]), (1, [2]), (0, [3]), (1, [4])]

    def test_progress_is_told_to_both_ports_after_all_rows_up_to_there(self):
        slow = Slow()
        simulate(slow, (trace(1, 3), trace(2)), SECOND_A_ROW, Pace())
        kinds = [call[:3] if call[0] != "rows" else (call[0], call[1]) for call in slow.calls if call[0] != "idle"]
        assert kinds == [
            *[("rows", 0), ("advance", 0, 1.0), ("advance", 1, 1.0)],
            *[("rows", 1), ("advance", 0, 2.0), ("advance", 1, 2.0)],
            *[("rows", 0), ("advance", 0, 3.0), ("advance", 1, 3.0)],
            ("end", 0),
            ("end", 1),
        ]


class TestCharges:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", METHODS)
    def test_every_pair_of_rows_in_a_partition_is_compared_once(self, name):
        """Nested loops compare what is in each other's window; a block goes whole, so that some that are over are too.

        Keys are few: whoever meets in memory, from disk or on a refill is compared where that happens and never again.
        """
        traces = tuple(Composite(rate=4, span="120 s", cap=50, keys=30, seed=seed).table() for seed in (1, 2))
        tiny = Machine(DiskModel(block_bytes=512, window_blocks=4), CpuModel(comparison=1e-9), row_bytes=64)
        run = simulate(join("40 s", METHODS[name]), traces, tiny, Pace(tick=0.5, batch=8))
        times = [trace.column("t").cast(pa.int64()).to_numpy() / 1e6 for trace in traces]
        parts = [_partitions(trace, 1 if name == "ewj" else 3) for trace in traces]
        near = np.abs(times[0][:, None] - times[1][None, :]) <= 40
        pairs = int(np.count_nonzero(near & (parts[0][:, None] == parts[1][None, :])))
        assert pairs <= round(run.progress.cpu[-1] / 1e-9) <= 1.25 * pairs

    def test_notes_about_rows_take_no_time_on_disk(self):
        clock = VirtualClock()
        store = _RowsOnDisk(SECOND_A_ROW, clock)
        name = store.put(pa.record_batch({"born": [1, 2]}))
        assert store.get(name).column("born").to_pylist() == [1, 2]
        store.drop(name)
        assert clock.disk == 0
        rows = _entered(trace(1, 2))
        store.get(store.put(rows, "stream-0"))
        assert clock.disk > 0


def _partitions(rows: pa.Table, count: int) -> np.ndarray:
    return hashes_of(_entered(rows)) % np.uint64(count)


class TestThePace:
    def test_rows_gather_for_a_tick(self):
        slow = Slow()
        simulate(slow, (trace(1, 1.5, 2, 2.6), trace()), SECOND_A_ROW, Pace(tick=1, batch=10))
        assert [call[2:] for call in slow.calls if call[0] == "rows"] == [([1, 1.5, 2], 2.0), ([2.6], 5.0)]

    def test_a_batch_is_no_larger_than_asked_for(self):
        slow = Slow()
        simulate(slow, (trace(*range(10)), trace(*range(10))), FREE, Pace(tick=20, batch=3))
        assert [len(call[2]) for call in slow.calls if call[0] == "rows"] == [3, 3, 3, 3, 3, 3, 1, 1]

    def test_rows_of_one_time_go_together(self):
        slow = Slow()
        simulate(slow, (trace(1, 1, 1, 1, 2), trace()), FREE, Pace(tick=5, batch=2))
        assert [call[2] for call in slow.calls if call[0] == "rows"] == [[1, 1, 1, 1], [2]]

    def test_the_watcher_sees_time_pass(self):
        seen = []
        simulate(join(), (trace(1, 2), trace(3)), FREE, Pace(), seen.append)
        assert seen == [1, 2, 3]


class TestJoins:
    def test_a_free_machine_delays_nothing(self):
        run = simulate(join("5 s"), (trace(1, 2, 20), trace(3, 30)), FREE, Pace())
        pairs = sorted(zip(*(ids.tolist() for ids in run.results.ids), strict=True))
        assert pairs == [(0, 0), (1, 0)]
        assert run.results.emitted.tolist() == pytest.approx([3, 3])
        assert [times.tolist() for times in run.results.times] == [[1, 2], [3, 3]]

    def test_nothing_comes_of_nothing(self):
        run = simulate(join(), (trace(), trace()), FREE, Pace())
        assert run.results.emitted.size == run.taken[0].size == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("name", METHODS)
    @pytest.mark.parametrize("comparison", [0, pytest.param(1e-5, marks=pytest.mark.deep), 1e-3])
    def test_every_method_is_exact_however_slow_the_machine(self, name, comparison):
        traces = [Composite(rate=4, span="90 s", cap=50, keys=30, seed=seed).table() for seed in (1, 2)]
        machine = Machine(DiskModel(block_bytes=512, window_blocks=4), CpuModel(comparison=comparison), row_bytes=64)
        run = simulate(join("20 s", METHODS[name]), tuple(traces), machine, Pace(tick=0.5, batch=8))
        rows = [[{"k": r["key"], "t": r["t"].timestamp(), "id": r["id"]} for r in t.to_pylist()] for t in traces]
        expected = oracle.window_join(*rows, near=oracle.band(-20, 20), how="inner")
        assert dict.fromkeys(zip(*(ids.tolist() for ids in run.results.ids), strict=True), 1) == dict(expected)
        assert run.results.emitted.size == sum(expected.values())
        assert (production_delays(run.results.emitted, *run.results.times) >= -1e-6).all()
