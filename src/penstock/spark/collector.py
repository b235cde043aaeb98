"""Python's garbage collector in a worker. Spark runs it after every task, over everything ever imported.

That takes a tenth of a second per task. Modules are never garbage, so the collector is told to skip them.
"""

from __future__ import annotations

import gc
from itertools import count

_TASKS = 4
"""In so many tasks of a worker modules are still being imported."""

_begun = count()


def pass_over_modules() -> None:
    """Let the collector pass over what is there as one of the first tasks of this process begins.

    Spark has just collected what was left of the task before, so that what is there is modules, and what they keep.
    """
    if next(_begun) < _TASKS:
        gc.freeze()
