"""The power fails at every moment of some epochs: what was committed is there, and nothing half written passes for it.

A power cut takes the content of every file that was not synced, and the name of every file whose folder was not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.operator import State
from penstock.core.pages import Page
from penstock.storage import files as files_module
from penstock.storage import records as records_module
from penstock.storage.files import FilePages
from penstock.storage.versioned import Checkpoint, Ledger, Plan

FLOW = {"sources": {}, "operators": {"join0": {}}}
EPOCHS = 3


class PowerCutError(Exception):
    pass


class Disk:
    """Notes what was synced, and fails at the `fuse`-th time."""

    def __init__(self, fuse: int | None, patch: pytest.MonkeyPatch) -> None:
        self.fuse = fuse
        self.synced = 0
        self._contents: dict[tuple[int, int], int] = {}
        self._at: dict[int, int] = {}
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        if self.synced == self.fuse:
            raise PowerCutError
        self.synced += 1
        self._fsync(descriptor)
        about = os.fstat(descriptor)
        self._contents[about.st_ino, about.st_mtime_ns] = about.st_size
        self._at[about.st_ino] = time.time_ns()

    def cut(self, root: Path) -> None:
        """Leave what is on disk for sure."""
        for place, path in enumerate(sorted(path for path in root.rglob("*") if path.is_file())):
            about = path.stat()
            size = self._contents.get((about.st_ino, about.st_mtime_ns), 0)
            if self._at.get(path.parent.stat().st_ino, 0) < about.st_ctime_ns and place % 2:
                path.unlink()
            elif size < about.st_size:
                os.truncate(path, size)


def live(checkpoint: Checkpoint, committed: list[int]) -> None:
    """Some epochs, each with a page of its own and that of the one before."""
    checkpoint.claim(FLOW)
    kept: tuple[Page, ...] = ()
    for epoch in range(EPOCHS):
        offsets = Path(checkpoint.uri) / "spark" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        if not epoch:
            (offsets.parent / "metadata").write_text('{"id":"1"}')
        (offsets / str(epoch)).write_text(f'v1\n{{}}\n{{"offset":{epoch}}}')
        plan = Plan(epoch, 0, 1, {}, batch=checkpoint.spark.batch(epoch))
        checkpoint.plan(plan)
        store = FilePages(checkpoint.pages("join0"), f"{epoch:08d}-00000")
        for _ in range(2):
            name = store.put(pa.record_batch({"n": pa.array([epoch])}))
        store.sync()
        kept = (*kept[-1:], Page(name, 0, 0, 1, 8, 0, 0, 0, 0))
        checkpoint.commit(Ledger(epoch, states={"join0": (State(kept),)}, batch=plan.batch))
        committed.append(epoch)
        time.sleep(0.005)  # The kernel's clock of files ticks every 4 ms.


def what_is_left(root: Path, committed: list[int]) -> None:
    """Open what the power cut left."""
    checkpoint = Checkpoint(str(root))
    checkpoint.claim(FLOW)
    ledger = checkpoint.latest()
    assert ledger.epoch >= max(committed, default=-1)
    assert ledger.epoch < 0 or (root / "spark" / "metadata").read_text() == '{"id":"1"}'
    checkpoint.check(ledger)
    checkpoint.vacuum()
    store = FilePages(checkpoint.pages("join0"))
    last = [store.get(name).column("n")[0].as_py() for name in ledger.names("join0")]
    assert sorted(last) == list(range(max(0, ledger.epoch - 1), ledger.epoch + 1))


def all_cuts(root: Path) -> int:
    """Cut the power before each sync, and after all of them; how many there were."""
    fuse = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(fuse, patch)
            committed: list[int] = []
            place = root / str(fuse)
            with suppress(PowerCutError):
                live(Checkpoint(str(place)), committed)
            disk.cut(place)
        what_is_left(place, committed)
        if disk.synced < fuse:
            return fuse
        fuse += 1


@pytest.mark.slow
def test_a_power_cut_at_any_moment_loses_nothing_that_was_committed(tmp_path):
    assert all_cuts(tmp_path) > 20


@pytest.mark.parametrize("what", ["pages", "records", "folders"])
def test_what_is_not_synced_is_missed(tmp_path, monkeypatch, what):
    nothing = {
        "pages": lambda: monkeypatch.setattr(FilePages, "sync", lambda self: None),
        "records": lambda: monkeypatch.setattr(records_module, "sync_file", lambda path: None),
        "folders": lambda: [
            monkeypatch.setattr(module, "sync_folder", lambda path: None) for module in (files_module, records_module)
        ],
    }
    nothing[what]()
    with pytest.raises(Exception, match=r"missing|not what|assert"):
        all_cuts(tmp_path)
