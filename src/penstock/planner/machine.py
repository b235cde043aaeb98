"""The cost of reading and writing state: the disk of the exact-join experiments, and the machine of a task."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from penstock.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk whose blocks are in basic windows; positioning takes latency and seek (spec §2.0).

    The fields and their defaults are those of the simulated disk, so that its constants can be passed on.

    >>> disk = Disk(latency=0.003, seek=0.005, bandwidth=1e6, block_bytes=1000, window_blocks=4)
    >>> round(disk.read_seconds(4), 6), round(disk.read_seconds(5), 6)
    (0.012, 0.021)
    """

    latency: float = 2.99e-3  # C_L
    seek: float = 5.3e-3  # C_S
    bandwidth: float = 20e6  # B
    block_bytes: float = 4096  # c_b
    window_blocks: float = 256  # B_win

    def __post_init__(self) -> None:
        _check_positive(bandwidth=self.bandwidth, block_bytes=self.block_bytes, window_blocks=self.window_blocks)
        _check_seconds(latency=self.latency, seek=self.seek)

    @property
    def access_time(self) -> float:
        """t_A: seconds to position the arm."""
        return self.latency + self.seek

    @property
    def window_bytes(self) -> float:
        """The size of a basic window."""
        return self.block_bytes * self.window_blocks

    def read_seconds(self, blocks: float) -> float:
        """RT: to read so many blocks that begin a basic window."""
        accesses = math.ceil(blocks / self.window_blocks)
        return accesses * self.access_time + blocks * self.block_bytes / self.bandwidth

    def write_seconds(self, blocks: float) -> float:
        """WT: to write so many; the same."""
        return self.read_seconds(blocks)

    def stream_seconds(self, size: float) -> float:
        """RT in the long run, for `size` bytes: parts of basic windows count as parts, but for the first access.

        >>> disk = Disk(latency=0.003, seek=0.005, bandwidth=1e6, block_bytes=1000, window_blocks=4)
        >>> round(disk.stream_seconds(4000), 6), round(disk.stream_seconds(5000), 6), disk.stream_seconds(0)
        (0.012, 0.015, 0.0)
        """
        if not size:
            return 0.0
        return max(1.0, size / self.window_bytes) * self.access_time + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class Machine:
    """What a task has to read and write with. Seconds, bytes per second, bytes.

    State in the operating system's page cache costs a page fault and memory bandwidth; the rest costs disk reads.
    `page_cache` is how much state the system can cache: MemAvailable, if the host knows it.

    >>> Machine(page_cache=0).reading(state=1e9, block=4096, chunk=65536).access_time
    0.0001
    """

    memory_bandwidth: float = 10e9
    page_fault: float = 1e-6
    page_cache: float = 2.0**30
    disk_access: float = 1e-4
    disk_bandwidth: float = 500e6

    def __post_init__(self) -> None:
        _check_positive(memory_bandwidth=self.memory_bandwidth, disk_bandwidth=self.disk_bandwidth)
        _check_seconds(page_fault=self.page_fault, disk_access=self.disk_access)
        if not self.page_cache >= 0:
            raise ConfigError(f"page_cache={self.page_cache} must be 0 or more, in bytes.")

    def shared(self, tasks: int) -> Machine:
        """The share of one of `tasks` tasks on this machine.

        >>> Machine(page_cache=8e9).shared(4).page_cache
        2000000000.0
        """
        bandwidths = self.memory_bandwidth / tasks, self.disk_bandwidth / tasks
        return Machine(bandwidths[0], self.page_fault, self.page_cache / tasks, self.disk_access, bandwidths[1])

    def writing(self, block: float, chunk: float) -> Disk:
        """The disk as a writer meets it: what is written gets there in the end."""
        return Disk(self.disk_access, 0.0, self.disk_bandwidth, block, chunk / block)

    def reading(self, state: float, block: float, chunk: float) -> Disk:
        """The disk as a reader of `state` bytes meets it: behind the page cache."""
        cached = min(1.0, self.page_cache / state) if state else 1.0
        access = cached * self.page_fault + (1 - cached) * self.disk_access
        byte = cached / self.memory_bandwidth + (1 - cached) / self.disk_bandwidth
        return Disk(access, 0.0, 1 / byte, block, chunk / block)


def _check_positive(**sizes: float) -> None:
    for name, value in sizes.items():
        if not value > 0:
            raise ConfigError(f"{name}={value} must be above 0.")


def _check_seconds(**times: float) -> None:
    for name, value in times.items():
        if not value >= 0:
            raise ConfigError(f"{name}={value} must be 0 or more, in seconds.")


SERVER = Machine()
"""A small server with an SSD and a gigabyte to spare for caching."""


def here() -> Machine:
    """This machine, as far as it tells: the memory it could use to cache files.

    >>> here().page_cache > 0
    True
    """
    try:
        free = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return SERVER
    return SERVER if free is None else Machine(page_cache=1024 * int(free[1]))
