"""One driver at a time: a second is told who has the checkpoint, the dead make way, the replaced commit nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from penstock.core.errors import LeaseError
from penstock.storage import lease as leases
from penstock.storage.lease import Holder, Lease, take
from penstock.storage.records import Records
from penstock.storage.versioned import Checkpoint, Ledger, Plan


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Leases that lapse within half a second."""
    for name, value in (("BEAT", 0.05), ("PATIENCE", 0.5), ("_LOOK", 0.01), ("_IN_USE", 0.01)):
        monkeypatch.setattr(leases, name, value)
    yield
    for lease in list(leases._HELD.values()):
        lease.release()


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(str(tmp_path))


def of_another(records: Records, token: int, beats: int = 0, **who: object) -> None:
    """A lease of a process of another machine."""
    holder = replace(Holder.this_process(), machine="other", host="far", pid=7, user="ada", **who)
    record = {"holder": asdict(holder), "beats": beats, "released": False}
    records.write(f"lease/{token:08d}.json", record)


def needed() -> bool:
    return True


def test_a_second_driver_is_refused_with_who_has_the_checkpoint_and_since_when(records):
    take(records, needed)
    with pytest.raises(LeaseError) as error:
        take(Records(records.uri), needed)
    me = Holder.this_process()
    assert str(error.value) == (
        f"Checkpoint {records.uri} is in use: process {os.getpid()} of {me.user} on {me.host} since "
        f"{str(error.value).partition(' since ')[2][:23]} has it. Two drivers on one checkpoint would lose rows. "
        f"Stop the other one with query.stop(), or start with a new checkpoint folder. If it is dead, start again: "
        f"its lease lapses at once on its own machine, and elsewhere 0 s after its last sign of life."
    )


def test_a_released_lease_is_free_and_its_token_is_never_used_again(records):
    tokens = []
    for _ in range(3):
        lease = take(records, needed)
        tokens.append(lease.token)
        lease.release()
        lease.release()
    assert tokens == [1, 2, 3]
    assert len(records.list("lease")) == 1


def test_a_lease_ends_by_itself_when_it_is_no_longer_in_use(records):
    over = threading.Event()
    first = take(records, lambda: not over.is_set())
    over.set()
    assert take(records, needed).token == first.token + 1


def test_a_lease_that_is_over_is_also_released_for_other_processes(records):
    take(records, lambda: False)
    for _ in range(100):
        if (leases._read(records, 1) or {}).get("released"):
            return
        time.sleep(0.02)
    raise AssertionError("not released")


@pytest.mark.slow
def test_the_lease_of_a_process_of_this_machine_that_is_gone_lapses_at_once(records, monkeypatch):
    monkeypatch.setattr(leases, "PATIENCE", 600)
    code = (
        "import os, sys\nfrom penstock.storage.lease import take\nfrom penstock.storage.records import Records\n"
        f"take(Records({records.uri!r}), lambda: True)\nprint('taken', flush=True)\nsys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "taken\n"
    with pytest.raises(LeaseError, match=f"process {process.pid} of"):
        take(records, needed)
    process.kill()  # and not yet waited for: what is left of it is no process
    time.sleep(0.2)
    assert take(records, needed).token == 2
    process.wait()


def test_a_process_number_that_is_used_again_is_another_process(records):
    holder = replace(Holder.this_process(), pid=os.getppid(), began="1")
    records.write("lease/00000004.json", {"holder": asdict(holder), "beats": 0, "released": False})
    assert take(records, needed).token == 5


def test_the_lease_of_another_machine_lapses_when_its_heart_has_not_beaten_for_a_while(records):
    of_another(records, 3)
    begun = time.monotonic()
    assert take(records, needed).token == 4
    assert time.monotonic() - begun >= 0.5


def test_a_holder_on_another_machine_whose_heart_beats_is_alive_whatever_its_clock_says(records):
    of_another(records, 3, since="1999-01-01 00:00:00 UTC")
    threading.Timer(0.1, lambda: of_another(records, 3, beats=1, since="1999-01-01 00:00:00 UTC")).start()
    with pytest.raises(LeaseError, match="process 7 of ada on far since 1999-01-01 00:00:00 UTC has it"):
        take(records, needed)


def test_a_holder_on_another_machine_that_releases_while_it_is_watched_makes_way(records):
    of_another(records, 3)
    record = leases._read(records, 3)
    threading.Timer(0.1, lambda: records.write("lease/00000003.json", {**record, "released": True})).start()
    begun = time.monotonic()
    assert take(records, needed).token == 4
    assert time.monotonic() - begun < 0.45


def test_the_heart_beats(records):
    take(records, needed)
    before = leases._read(records, 1)["beats"]
    time.sleep(0.5)
    assert leases._read(records, 1)["beats"] > before


def test_what_is_left_of_a_lease_after_a_power_cut_lapses(records):
    (Path(records.uri) / "lease").mkdir()
    (Path(records.uri) / "lease" / "00000003.json").touch()
    assert take(records, needed).token == 4


def replaced(records: Records, lease: Lease) -> None:
    """Somebody takes the lease while its holder sleeps."""
    of_another(records, lease.token + 1)


def test_a_lease_that_a_full_disk_kept_from_being_released_is_free_for_its_own_process(records, monkeypatch):
    def full(self, name, record):
        raise OSError("No space left on device")

    lease = take(records, needed)
    with monkeypatch.context() as patch:
        patch.setattr(Records, "write", full)
        with pytest.raises(OSError, match="No space"):
            lease.release()
    again = take(records, needed)
    assert again.token == lease.token + 1
    with pytest.raises(LeaseError, match="has lost its lease"):
        lease.check()
    again.release()


def test_who_was_replaced_commits_nothing(records, tmp_path):
    checkpoint = Checkpoint(records.uri)
    checkpoint.claim({"operators": {}})
    lease = checkpoint.take_lease(needed)
    checkpoint.plan(Plan(0, 0, 1, {}))
    checkpoint.commit(Ledger(epoch=0))
    replaced(records, lease)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    uses = (lambda: checkpoint.plan(Plan(1, 0, 1, {})), lambda: checkpoint.commit(Ledger(epoch=1)))
    for use in uses:
        with pytest.raises(LeaseError, match=r"This driver, .* has lost its lease on .* to process 7 of ada"):
            use()
    time.sleep(0.2)  # some heartbeats
    lease.release()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


def test_who_has_released_its_lease_commits_nothing(records):
    checkpoint = Checkpoint(records.uri)
    checkpoint.claim({"operators": {}})
    checkpoint.take_lease(needed).release()
    with pytest.raises(LeaseError, match="has lost its lease"):
        checkpoint.commit(Ledger(epoch=0))


def test_of_two_drivers_that_pass_the_check_at_the_same_time_one_commits(records):
    """The check and the commit are two steps: the ledger itself can be made only once."""
    first, second = Checkpoint(records.uri), Checkpoint(records.uri)
    first.commit(Ledger(epoch=0, static=True))
    with pytest.raises(LeaseError, match=r"Epoch 0 of checkpoint .* was committed by another driver meanwhile"):
        second.commit(Ledger(epoch=0))
    assert first.latest().static
    first.plan(Plan(1, 0, 1, {}))
    with pytest.raises(LeaseError, match="Epoch 1 of checkpoint"):
        second.plan(Plan(1, 5, 1, {}))


def test_of_many_that_want_a_free_lease_one_gets_it(records, monkeypatch):
    monkeypatch.setattr(leases, "_HELD", {})
    gates = threading.Barrier(8)
    got: list[object] = []

    def want() -> None:
        gates.wait()
        try:
            got.append(take(Records(records.uri), needed))
        except LeaseError as error:
            got.append(error)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [lease for lease in got if isinstance(lease, Lease)]
    assert len(taken) == 1
    assert len(got) == 8
    taken[0].release()
