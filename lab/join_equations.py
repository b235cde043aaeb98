"""What EWJ's disk takes, as the exact-join spec prints it (3.1–3.3): the planner's own costs are their long run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.core.within import LEFT, RIGHT
from penstock.planner.machine import Disk


@dataclass(frozen=True, slots=True)
class EwjWindow:
    """One stream under EWJ: λ and c_tup; the blocks of its recent and invalidation memory and those on disk.

    >>> EwjWindow(rows_per_second=200, row_bytes=128, recent=3584, invalidation=768, on_disk=6130).bytes_per_second
    25600
    """

    rows_per_second: float
    row_bytes: float
    recent: float
    invalidation: float
    on_disk: float

    @property
    def bytes_per_second(self) -> float:
        """λ · c_tup."""
        return self.rows_per_second * self.row_bytes


def recent_seconds(disk: Disk, own: EwjWindow, other: EwjWindow, probe: float, seconds: float) -> float:
    """(3.1) T_rec: each time fresh blocks fill `probe` of the recent memory, dump them and probe the other's disk.

    >>> disk = Disk(latency=0, seek=0.01, bandwidth=1e6, block_bytes=1000, window_blocks=10)
    >>> window = EwjWindow(rows_per_second=10, row_bytes=100, recent=20, invalidation=5, on_disk=30)
    >>> round(recent_seconds(disk, window, window, probe=0.5, seconds=100), 6)  # 10 turns of 60 and 20 ms
    0.8
    """
    fresh = max(1.0, probe * own.recent)
    turns = math.ceil(own.bytes_per_second * seconds / (fresh * disk.block_bytes))
    return turns * (disk.read_seconds(other.on_disk) + disk.write_seconds(fresh))


def invalidation_seconds(disk: Disk, own: EwjWindow, seconds: float) -> float:
    """(3.3) T_inv: read the end of the window back each time it has expired. The source divides by W_rec.

    >>> disk = Disk(latency=0, seek=0.01, bandwidth=1e6, block_bytes=1000, window_blocks=10)
    >>> window = EwjWindow(rows_per_second=10, row_bytes=100, recent=20, invalidation=5, on_disk=30)
    >>> round(invalidation_seconds(disk, window, seconds=100), 6)  # 20 turns of 15 ms
    0.3
    """
    blocks = max(1.0, own.invalidation)
    return math.ceil(own.bytes_per_second * seconds / (blocks * disk.block_bytes)) * disk.read_seconds(blocks)


def ewj_seconds(disk: Disk, windows: tuple[EwjWindow, EwjWindow], probe: float, seconds: float) -> float:
    """(3.2) The disk's work in `seconds` of stream. The spec does not print it: (3.1) and (3.3) of both streams.

    >>> disk = Disk(latency=0, seek=0.01, bandwidth=1e6, block_bytes=1000, window_blocks=10)
    >>> window = EwjWindow(rows_per_second=10, row_bytes=100, recent=20, invalidation=5, on_disk=30)
    >>> round(ewj_seconds(disk, (window, window), probe=0.5, seconds=100), 6)
    2.2
    """
    return sum(
        recent_seconds(disk, windows[port], windows[1 - port], probe, seconds)
        + invalidation_seconds(disk, windows[port], seconds)
        for port in (LEFT, RIGHT)
    )
