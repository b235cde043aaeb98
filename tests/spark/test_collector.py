"""What the garbage collector looks at in a worker."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
import penstock.spark.task
from penstock.spark.collector import pass_over_modules

before = len(gc.get_objects())
for _ in range(9):
    pass_over_modules()
after = len(gc.get_objects())
cycle = []
cycle.append(cycle)
del cycle
print(after * 100 < before, gc.collect() >= 1, gc.get_freeze_count() > before / 2)
sides = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
pass_over_modules()
print(gc.get_freeze_count() == sides)
"""


def test_modules_are_passed_over_and_garbage_of_later_tasks_is_not():
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["True"] * 4
