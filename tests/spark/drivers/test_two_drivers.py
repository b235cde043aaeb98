"""Two drivers on one checkpoint, a kill, and a power cut: the second is refused, and nothing is lost.

A power cut takes the content of every file that was not synced, and the name of every file whose folder was not.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spark.drivers.killing import PATIENCE, Job, Streams, names, results, windows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_f07_a_second_driver_is_refused_and_after_a_power_cut_the_next_one_goes_on_at_once(tmp_path):
    streams = Streams(tmp_path, epochs=18)
    notes = tmp_path / "synced"
    path = os.pathsep.join([str(Path(__file__).parent / "power_cut"), os.environ.get("PYTHONPATH", "")])
    first = Job(tmp_path, PYTHONPATH=path, PENSTOCK_TEST_SYNCED=str(notes))
    assert first.wait_for("ready")
    second = Job(tmp_path, log="second.log")
    assert first.wait_for("epoch"), (tmp_path / "job.log").read_text()[-3000:]
    assert second.process.wait(PATIENCE) != 0
    said = (tmp_path / "second.log").read_text()
    assert f"is in use: process {first.process.pid} of " in said, said[-3000:]
    # An epoch is told of once it is committed: Spark has then written more of which nothing is synced.
    first.wait_for(f"epoch {streams.done + 1}")
    assert first.process.poll() is None, "the first ended before the second was refused"
    first.kill()
    lost = cut_power(notes, tmp_path / "checkpoint", *(tmp_path / name for name in ("out", "windows", "names")))
    assert lost, "Spark syncs nothing of its own"
    third = Job(tmp_path, log="third.log")
    assert third.wait_for("done"), (tmp_path / "third.log").read_text()[-3000:]
    third.process.wait(60)
    assert results(tmp_path) == streams.expected()
    assert windows(tmp_path) == streams.expected_windows()
    assert names(tmp_path) == streams.expected_names()


def cut_power(notes: Path, *folders: Path) -> list[Path]:
    """Leave what is on disk for sure; the files that lost their content or their name."""
    contents: dict[tuple[int, int], int] = {}
    folder_at: dict[int, int] = {}
    for line in notes.read_text().splitlines():
        inode, changed, size, at = map(int, line.split())
        contents[inode, changed] = size
        folder_at[inode] = at
    lost = []
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        about = path.stat()
        size = contents.get((about.st_ino, about.st_mtime_ns), 0)
        if folder_at.get(path.parent.stat().st_ino, 0) < about.st_ctime_ns and len(lost) % 2:
            lost.append(path)
            path.unlink()
        elif size < about.st_size:
            lost.append(path)
            os.truncate(path, size)
    return lost
