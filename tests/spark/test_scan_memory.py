"""The private memory of a task that reads files and sends their rows to shards, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SHARE = 8_000_000
ROWS = 15_000

PROGRAM = """
import json, sys
import pyarrow as pa
import penstock as pk
from penstock.core.progress import Track
from penstock.flow.sinks import operators_needed
from penstock.runtime.entering import Entry
from penstock.runtime.lateness import Judge
from penstock.runtime.steps import ways_to
from penstock.spark.blobs import Scan, ScanTask, Way, spread
from penstock.storage.scans import portions
from tests.worker_memory import drivers_memory, watched

def scan(folder, share):
    flow = pk.LocalFlow(memory=2 * share)
    told = {"time": "t", "progress": pk.ordered()}
    sides = {name: flow.parquet(f"{folder}/{name}.parquet", name=name, **told) for name in "ab"}
    flow.join(**sides, on=["a.k = b.k"]).to_parquet(f"{folder}/out")
    node = operators_needed(flow._sinks)[0]
    scans, ways, work = [], [], []
    for port, part in enumerate(node.inputs):
        [(source, steps)] = ways_to(part)
        scans.append(Scan(source.data.files, source.columns, Judge.of(source, Track())))
        ways.append([Way(steps, port, Entry.of(node, port, 1))])
        work += [(port, each) for each in portions(source.data.files, source.data.files.path)]
    task = ScanTask(spread(work, 1), scans, ways, 2, share)
    sent = 0
    for batch in task(iter([pa.record_batch({"task": [0]})])):
        sent += batch.nbytes
        del batch
    return sent

share = int(sys.argv[3])
scan(sys.argv[1], share)
[before] = drivers_memory().values()
with watched(drivers_memory) as most:
    sent = scan(sys.argv[2], share)
[after] = drivers_memory().values()
print(json.dumps({"sent": sent, "most": most[0] - before, "left": after - before}))
"""


def files(folder, rows: int) -> str:
    """Two files whose keys are long and all different: each text of the one is in the other, too."""
    folder.mkdir()
    numbers = pa.array(np.arange(rows))
    keys = pc.utf8_lpad(numbers.cast(pa.string()), 200, "k")
    for name in "ab":
        pq.write_table(pa.table({"k": keys, "l": keys, "t": numbers}), folder / f"{name}.parquet")
    return str(folder)


def test_a_task_that_reads_files_stays_within_its_share_and_returns_what_it_freed(tmp_path):
    few, many = files(tmp_path / "few", 10), files(tmp_path / "many", ROWS)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, few, many, str(SHARE)],
        check=True,
        capture_output=True,
        text=True,
        # As workers have it.
        env={
            **os.environ,
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
    )
    measured = json.loads(ran.stdout)
    assert measured["sent"] > 2 * 400 * ROWS
    assert measured["most"] <= 1.25 * SHARE, measured
    assert measured["left"] <= SHARE // 8, measured
