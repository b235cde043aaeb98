"""An epoch of one shard: what a logic is told, in which order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import penstock as pk
from penstock.core.rows import RowType
from penstock.runtime.shard import Arrived, PortBounds, run

ROWS = RowType(pa.schema({"t": pa.int64()}), (), "t")


class Listening:
    """A logic that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def rows(self, port, rows):
        self.told.append(("rows", port, rows.num_rows))
        return iter([f"out of {port}"])

    def advance(self, port, bound):
        self.told.append(("advance", port, bound))
        return iter(())

    def idle(self, work):
        self.told.append(("idle", work.left()))
        return iter(())


def batch(*times: int) -> pa.RecordBatch:
    return ROWS.enter(pa.table({"t": times, "__time": times}), np.zeros(len(times), np.uint64))


def nothing(ports: int) -> Arrived:
    return Arrived([0] * ports, [0] * ports, [0] * ports, ((),) * ports)


def test_bounds_come_before_and_after_the_rows_and_rows_are_counted():
    logic, rests, counts = Listening(), [], nothing(2)
    ports = [PortBounds(1, 10), PortBounds(2, 20)]
    out = list(run(logic, ports, [(0, batch(3, 4)), (1, batch(5))], counts, iter, lambda: rests.append("rest")))
    assert logic.told == [
        *[("advance", 0, 1), ("advance", 1, 2)],
        *[("rows", 0, 2), ("rows", 1, 1)],
        *[("advance", 0, 10), ("advance", 1, 20)],
        ("idle", False),
    ]
    assert (out, rests, counts.rows, counts.nbytes) == (["out of 0", "out of 1"], ["rest", "rest"], [2, 1], [32, 16])


def test_an_epoch_without_rows_leaves_time_for_work_that_was_put_off():
    logic = Listening()
    assert list(run(logic, [PortBounds(1, 1)], [], nothing(1), iter)) == []
    assert logic.told[-1] == ("idle", True)


def test_a_shard_goes_as_far_as_its_own_rows_allow():
    logic = Listening()
    list(run(logic, [PortBounds(1, 4, pk.bounded_delay(2), "ticks")], [(0, batch(9, 7))], nothing(1), iter))
    assert logic.told[-2] == ("advance", 0, 7)
