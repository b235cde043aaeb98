"""The allocator of a worker process: freed memory goes back to the system, so that the memory limit holds."""

from __future__ import annotations

import ctypes
import resource
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.core.budget import Budget

_LOOK, _KEPT = 8, 4
"""Whenever this part of the share was released, see whether the allocator keeps more than that one of it."""

_SMALL_SHARE = 1 << 26
"""Below so many bytes, what an allocator keeps for itself would be a good part of a share."""

_GROWN = 16
"""Below that, NumPy's own cache is emptied whenever a process has grown by this part of the share."""

_CACHED, _CACHED_EACH = 1 << 10, 7
"""NumPy never frees buffers of fewer bytes: it keeps so many of each size, almost 4 MB in all."""

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
"""glibc's names: the size from which an allocation is mapped on its own, and how much that is free it keeps."""

_MAPPED = 1 << 25
"""The largest size that glibc accepts for the former."""

_DECAY_MS = 10_000
"""For how long Arrow's allocator keeps what is free where memory is ample: longer than an epoch of a busy flow."""


@cache
def _c_library() -> ctypes.CDLL:
    """Loaded once: each time makes types of its own, which only the garbage collector frees."""
    return ctypes.CDLL(None)


def return_what_is_freed(share: int) -> None:
    """Let freed buffers go back to the system at once if they are large for this share; small ones are reused.

    Left to adapt its threshold, glibc keeps up to half a share for later.
    """
    adjust = getattr(_c_library(), "mallopt", None)
    if adjust is not None:
        adjust(_M_MMAP_THRESHOLD, max(1 << 17, min(1 << 25, share // 64)))


def keep_what_is_freed(share: int) -> None:
    """Let glibc, from which NumPy takes memory, keep what is freed for the next array, up to a part of this share."""
    adjust = getattr(_c_library(), "mallopt", None)
    if adjust is not None:
        adjust(_M_MMAP_THRESHOLD, _MAPPED)
        adjust(_M_TRIM_THRESHOLD, min(share // _KEPT, (1 << 31) - 1))


def give_back(limit: int = 0, held: int = 0) -> None:
    """Return what the allocator keeps for later: memory that is free must not count against the next phase.

    It costs milliseconds, and as many again until memory is back. Where `limit` is a large one, of which `held` bytes
    are in use, nothing is done while what this process took since the last time is little beside it. Where it is a
    small one, and the process has grown nevertheless, NumPy gives back what it keeps, too.
    """
    if limit >= _SMALL_SHARE:
        private = _private_memory()
        if private and 0 <= private - _LEFT.nbytes <= held + limit // _KEPT:
            return
    _return_it()
    _LEFT.nbytes = _private_memory()
    if not 0 < limit < _SMALL_SHARE:
        return
    besides = _LEFT.nbytes - held
    if _LEFT.besides is not None and besides - _LEFT.besides <= limit // _GROWN:
        return
    if _LEFT.besides is not None:
        _empty_cache()
        _return_it()
        _LEFT.nbytes = _private_memory()
    _LEFT.besides = _LEFT.nbytes - held


def _return_it() -> None:
    pool = pa.default_memory_pool()
    if pool.backend_name != "system":  # of the system's it would do what follows, once more
        pool.release_unused()
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _empty_cache() -> None:
    """Free the small buffers that NumPy keeps: those of an array that was made larger are freed with it."""
    kind = np.bool_
    for size in range(1, _CACHED):
        for array in [np.empty(size, kind) for _ in range(_CACHED_EACH)]:
            array.resize(_CACHED, refcheck=False)


class _Left:
    """What a process has for itself once all was returned; none before the first time."""

    nbytes = -(1 << 62)
    besides: int | None = None
    """The same without what was charged, when NumPy's cache was last emptied, or this was first looked at."""


_LEFT = _Left()


Allocator = Literal["thrifty", "keeping"]
"""One that keeps little of what is freed, or one that keeps it for the next allocation."""


class _Switch:
    """Arrow's allocator in this process: another one while it is needed, else the original."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needed: Counter[Allocator] = Counter()
        self._original = pa.default_memory_pool()

    @contextmanager
    def to(self, allocator: Allocator) -> Iterator[None]:
        """Use this one in a block. Where several threads ask for different ones, that which keeps little is used."""
        with self._lock:
            if not self._needed.total():
                self._original = pa.default_memory_pool()
            self._needed[allocator] += 1
            self._choose()
        try:
            yield
        finally:
            with self._lock:
                self._needed[allocator] -= 1
                self._choose()

    def _choose(self) -> None:
        if self._needed["thrifty"]:
            pa.set_memory_pool(pa.system_memory_pool())
        elif self._needed["keeping"] and self._original.backend_name == _EAGER and _KEEPING in _backends():
            pa.set_memory_pool(_keeping_pool())
        else:
            pa.set_memory_pool(self._original)


_EAGER, _KEEPING = "mimalloc", "jemalloc"
"""The allocator that returns within milliseconds what is freed, and one that can be told to wait."""


@cache
def _backends() -> list[str]:
    return list(pa.supported_memory_backends())


@cache
def _keeping_pool() -> pa.MemoryPool:
    """Told once: what is told later holds for new threads only."""
    pa.jemalloc_set_decay_ms(_DECAY_MS)
    return pa.jemalloc_memory_pool()


_SWITCH = _Switch()


@contextmanager
def allocating_within(share: int) -> Iterator[None]:
    """Let this process keep little of what is freed in a block, if its share is so small that it matters.

    Arrow's own allocator keeps some megabytes for each thread. Where the share is large, on the contrary, what is freed
    is kept for the next allocation: to return pages and get them again takes longer than much of what they are for.
    `TrimmedBudget` returns them once they are much beside the share.

    >>> with allocating_within(8_000_000):
    ...     pa.default_memory_pool().backend_name
    'system'
    """
    if share >= _SMALL_SHARE:
        keep_what_is_freed(share)
        with _SWITCH.to("keeping"):
            yield
        return
    return_what_is_freed(share)
    with _SWITCH.to("thrifty"):
        yield


def _private_memory() -> int:
    """The bytes that this process has for itself; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as counts:
            _, resident, shared, *_ = counts.read().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


class TrimmedBudget(Budget):
    """A budget that also counts memory that was released but stays with the allocator.

    Computing windows folds piece after piece before anything is emitted. Each leaves holes, which add up.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._before = _private_memory()
        self._released = 0

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        super().release(size)
        self._released += size
        if self._released >= self.limit // _LOOK:
            self._released = 0
            if _private_memory() - self._before - self.held > self.limit // _KEPT:
                give_back(self.limit if self.limit < _SMALL_SHARE else 0, self.held)

    def give_back(self) -> None:
        """Return what the allocator keeps, if it may be much."""
        give_back(self.limit, self.held)
