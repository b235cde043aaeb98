"""Tables on a simulated disk: sequential scans take transfers, any other read a positioning as well."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lab.simulated_disk import DiskModel, VirtualClock
from lab.simulated_table import SimulatedTable
from penstock.core.rows import hashes_of
from penstock.kernels.hashing import hash_keys
from penstock.storage.tables import ArrowTable

DISK = DiskModel(latency=0.0, seek=0.01, bandwidth=1000.0, block_bytes=100, window_blocks=8)
"""A block takes 100 ms, a positioning 10 ms."""


def opened(rows=100, partition_rows=10, row_bytes=20, arm="stays"):
    clock = VirtualClock()
    source = ArrowTable(pa.table({"k": pa.array(range(rows), pa.int64())}), ("k",), partition_rows)
    return clock, SimulatedTable(source, DISK, clock, row_bytes, arm=arm).open()


def seconds(clock, do):
    before = clock.disk
    do()
    return round(clock.disk - before, 6)


def test_a_table_says_of_itself_what_its_source_does():
    _, table = opened()
    assert (table.partitions, table.unique, table.clustered, table.version) == (10, True, True, "0")
    assert table.size.nbytes == 2000
    hashes = hash_keys([pa.array([5])])
    assert table.partition_of(hashes, [pa.array([5])])[0] >= 0
    assert table.changes("0").keys.num_rows == 0


def test_partitions_in_their_order_take_a_positioning_per_basic_window():
    clock, table = opened()
    whole = seconds(clock, lambda: [table.scan(n) for n in range(10)])
    assert whole == pytest.approx(20 * 0.1 + 3 * 0.01)  # 20 blocks, windows of 8


def test_an_arm_that_leaves_takes_what_the_thesis_says_for_each_partition():
    clock, table = opened(partition_rows=50, arm="leaves")
    for partition in (0, 1, 1):
        assert seconds(clock, lambda: table.scan(partition)) == pytest.approx(DISK.read_seconds(10))  # noqa: B023


def test_a_partition_out_of_order_takes_a_positioning_more():
    clock, table = opened()
    table.scan(0)
    assert seconds(clock, lambda: table.scan(1)) == pytest.approx(0.2)
    assert seconds(clock, lambda: table.scan(3)) == pytest.approx(0.21)
    assert seconds(clock, lambda: table.scan(3)) == pytest.approx(0.21)


def test_the_scan_of_a_whole_table_gives_all_its_rows():
    _, table = opened()
    assert sum(table.scan(n).num_rows for n in range(10)) == 100


def test_each_key_that_is_looked_up_takes_a_random_access():
    clock, table = opened()
    keys = pa.array([3, 4, 1000])
    found = []
    took = seconds(clock, lambda: found.append(table.get(hash_keys([keys]), [keys])))
    assert took == pytest.approx(3 * 0.11)
    assert found[0].num_rows == 2
    assert np.isin(hashes_of(found[0]), hash_keys([keys])).all()
    assert table.reads.looked_up == 3


def test_a_key_of_many_rows_takes_all_their_blocks():
    clock = VirtualClock()
    source = ArrowTable(pa.table({"k": pa.array([7] * 12 + [8], pa.int64())}), ("k",))
    table = SimulatedTable(source, DISK, clock, row_bytes=20).open()
    keys = pa.array([7])
    assert seconds(clock, lambda: table.get(hash_keys([keys]), [keys])) == pytest.approx(0.01 + 3 * 0.1)
