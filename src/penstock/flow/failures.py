"""Failures of an epoch in a line or two: what users read first, before the chained original."""

from __future__ import annotations

import re

LONGEST = 300
"""Characters of a cause that are worth reading."""

_FULL = re.compile(r"No space left on device|File too large|Disk quota exceeded")


def in_a_line(text: str) -> str:
    """The first informative line of a message, shortened.

    >>> in_a_line("\\n  no route\\n\\tto host")
    'no route'
    """
    lines = [line.strip() for line in text.splitlines()]
    line = next((line for line in lines if line), "no reason given")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def named(error: BaseException) -> str:
    """A Python error as in the last line of a traceback.

    >>> named(KeyError("shop"))
    "KeyError: 'shop'"
    """
    return f"{type(error).__name__}: {in_a_line(str(error))}" if str(error).strip() else type(error).__name__


def is_full(text: str) -> bool:
    """Whether a message says that a disk, a quota or a file is full.

    >>> is_full("[Errno 28] No space left on device")
    True
    """
    return _FULL.search(text) is not None
