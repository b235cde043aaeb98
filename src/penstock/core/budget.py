"""The memory budget: a limit that is never exceeded.

Everything that grows with data is charged before it is allocated. Code asks how much room there is and sizes its chunks
accordingly; a charge that does not fit raises an error, so that an overrun shows at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.core.errors import BudgetError, ConfigError

_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


class Budget:
    """A number of bytes, and how many of them are charged.

    >>> budget = Budget(100)
    >>> with budget.hold(60, "rows"):
    ...     budget.room
    40
    >>> budget.room, budget.peak
    (100, 60)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.peak = 0

    @property
    def room(self) -> int:
        """Bytes that can still be charged."""
        return self.limit - self.held

    def within(self, other: Budget) -> bool:
        """Whether what is charged here is charged to `other`.

        >>> whole = Budget(100)
        >>> BudgetPart(whole, 60).within(whole), whole.within(Budget(100))
        (True, False)
        """
        return self is other

    def charge(self, size: int, what: str) -> None:
        """Take `size` bytes for `what`, or refuse."""
        if size > self.room:
            raise BudgetError(
                f"{what} needs {show_bytes(size)}, but {show_bytes(max(0, self.room))} of this task's "
                f"{show_bytes(self.limit)} are free. Give the flow more memory=, or use fewer cores for it."
            )
        self.held += size
        self.peak = max(self.peak, self.held)

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        self.held -= size

    @contextmanager
    def hold(self, size: int, what: str) -> Iterator[None]:
        """Charge for the length of a block."""
        self.charge(size, what)
        try:
            yield
        finally:
            self.release(size)

    @contextmanager
    def tab(self, what: str) -> Iterator[Callable[[int], None]]:
        """Charge for the length of a block, piece by piece as sizes become known.

        >>> budget = Budget(100)
        >>> with budget.tab("rows") as charge:
        ...     for size in (30, 20):
        ...         charge(size)
        ...     budget.held
        50
        >>> budget.held
        0
        """
        total = 0

        def charge(size: int) -> None:
            nonlocal total
            self.charge(size, what)
            total += size

        try:
            yield charge
        finally:
            self.release(total)


def ample() -> Budget:
    """A budget without a limit, for work outside of tasks.

    >>> ample().room > 10**15
    True
    """
    return Budget(1 << 62)


class BudgetPart(Budget):
    """A part of another budget, with its own limit: what is charged here is charged there, too.

    >>> whole = Budget(100)
    >>> part = BudgetPart(whole, 60)
    >>> with part.hold(50, "rows"):
    ...     whole.room, part.room
    (50, 10)
    >>> with whole.hold(90, "others"):
    ...     part.room
    10
    """

    def __init__(self, whole: Budget, limit: int) -> None:
        super().__init__(min(limit, whole.limit))
        self._whole = whole

    def within(self, other: Budget) -> bool:
        """Whether what is charged here is charged to `other`."""
        return self is other or self._whole.within(other)

    @property
    def room(self) -> int:
        """Bytes that can still be charged, here and there."""
        return min(self.limit - self.held, self._whole.room)

    def charge(self, size: int, what: str) -> None:
        """Take `size` bytes for `what`, or refuse."""
        super().charge(size, what)
        self._whole.charge(size, what)

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        super().release(size)
        self._whole.release(size)


def parse_bytes(value: str | int, argument: str = "memory") -> int:
    """Read a size: ``"512 MB"`` (10⁶), ``"1 GiB"`` or ``"1g"`` (2³⁰, as Spark writes it), or a number of bytes.

    >>> parse_bytes("64 MB"), parse_bytes("1g"), parse_bytes(1000)
    (64000000, 1073741824, 1000)
    """
    size = _SIZE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if size is None or size[2].lower() not in _BYTES or (total := int(float(size[1]) * _BYTES[size[2].lower()])) <= 0:
        raise ConfigError(f"{argument}={value!r} is not an amount of memory. Write a size like '512 MB' or '2 GiB'.")
    return total


def show_bytes(size: int) -> str:
    """A size as people read it.

    >>> show_bytes(64_000_000), show_bytes(1500)
    ('64.0 MB', '1.5 kB')
    """
    for factor, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= factor:
            return f"{size / factor:.1f} {name}"
    return f"{size} B"
