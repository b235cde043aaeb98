"""What it takes to read from where a master table is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.core.errors import ConfigError
from penstock.planner.machine import Disk


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """What it takes to read from where a table is. Seconds, bytes per second, bytes.

    Each read takes `request`; `key` comes for each key that is looked up; a disk takes `seek` to get to a place, and
    each `window` bytes while it reads on, and transfers whole blocks.

    >>> disk = ReadCosts(request=0.001, key=0.01, bandwidth=1e6, seek=0.008, window=1e6)
    >>> round(disk.anywhere(1000), 6), round(disk.all_of(1000, 50), 6), round(disk.lookups(10, 1000), 6)
    (0.010008, 0.108, 0.102)
    """

    request: float
    key: float
    bandwidth: float
    seek: float = 0.0
    block: float = 1.0
    window: float = math.inf

    def __post_init__(self) -> None:
        for name in ("request", "key", "seek"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be 0 or more, in seconds.")
        for name in ("bandwidth", "block", "window"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0.")

    @classmethod
    def of_disk(cls, disk: Disk, row: float, request: float = 0.0) -> ReadCosts:
        """A table of rows of `row` bytes on a disk, each key of which is a random access.

        >>> ReadCosts.of_disk(Disk(), row=120).seek == Disk().access_time
        True
        """
        blocks = math.ceil(row / disk.block_bytes) * disk.block_bytes
        key = disk.access_time + (blocks - row) / disk.bandwidth
        return cls(request, key, disk.bandwidth, disk.access_time, disk.block_bytes, disk.window_bytes)

    def all_of(self, size: float, partitions: int) -> float:
        """To read so many partitions of `size` bytes, one behind the other, from the first to the last."""
        total = partitions * self._whole(size)
        return partitions * self.request + self.seek * math.ceil(total / self.window) + total / self.bandwidth

    def anywhere(self, size: float) -> float:
        """To read `size` bytes that lie anywhere."""
        beyond = max(0.0, self._whole(size) - self.block) / self.window
        return self.request + self.seek * (1 + beyond) + self._whole(size) / self.bandwidth

    def lookups(self, keys: float, size: float) -> float:
        """To look so many keys up in one request, whose rows have `size` bytes together."""
        return self.request + keys * self.key + size / self.bandwidth

    def scaled(self, factor: float) -> ReadCosts:
        """A place that takes `factor` times as long.

        >>> ReadCosts(0.001, 1e-6, 1e9).scaled(2).request
        0.002
        """
        request, key, seek = self.request * factor, self.key * factor, self.seek * factor
        return replace(self, request=request, key=key, seek=seek, bandwidth=self.bandwidth / factor)

    def _whole(self, size: float) -> float:
        return math.ceil(size / self.block) * self.block if self.block > 1 else size


STORES: dict[str, ReadCosts] = {
    "arrow": ReadCosts(request=5e-5, key=0.3e-6, bandwidth=20e9),
    "pages": ReadCosts(request=1.3e-4, key=0.3e-6, bandwidth=10e9),
    "parquet": ReadCosts(request=2e-3, key=2e-6, bandwidth=500e6),
    "sql": ReadCosts(request=1e-3, key=8e-6, bandwidth=50e6),
    "remote": ReadCosts(request=3e-2, key=2e-5, bandwidth=100e6),
}
"""What reads take by the kind of store, until it is measured: a table in this process, mapped pages, files, a database
behind a socket, files in an object store."""
