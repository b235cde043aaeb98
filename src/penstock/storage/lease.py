"""The lease on a checkpoint: one driver at a time may commit to it.

    lease/<token>.json    who holds it and since when, and a heartbeat; the highest token is the valid one

To take the lease, a process creates the file with the next token, which only one process can do. Tokens only grow: the
file of the last holder stays, marked as released. A holder that was presumed dead and comes back finds a higher token
than its own, and commits nothing more.

A lease expires if its holder is dead: at once if it was a process of this machine, else when a waiting process has seen
its heartbeat not move for `PATIENCE` seconds. Clocks of two machines are never compared.
"""

from __future__ import annotations

import atexit
import getpass
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.core.errors import LeaseError, StateError
from penstock.storage.records import Records

log = logging.getLogger("penstock")

BEAT = 5.0
"""Seconds from one heartbeat to the next."""

PATIENCE = 30.0
"""Seconds without a heartbeat after which a lease lapses."""

_LOOK = 0.25
"""Seconds between two looks at the heartbeat of another."""

_IN_USE = 1.0
"""Seconds between two looks at whether our own use is over."""

_TOKEN = re.compile(r"(\d{8,})\.json")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, so that others on its machine can tell whether it is alive, and people can find it."""

    host: str
    machine: str
    """Tells machines, their boots and containers apart: process numbers mean something only within one."""
    pid: int
    began: str
    """When the process began, as its machine counts: process numbers are used again."""
    user: str
    since: str

    @classmethod
    def this_process(cls) -> Holder:
        """Who we are."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        return cls(socket.gethostname(), _machine(), os.getpid(), _began(os.getpid()) or "", _user(), since)

    @property
    def dead(self) -> bool:
        """Whether it is sure that the process is gone."""
        return self.machine == _machine() and _began(self.pid) != self.began

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host} since {self.since}"


@dataclass(slots=True)
class Lease:
    """A lease that is held until `release`; `in_use` says whether it is still needed."""

    records: Records
    token: int
    holder: Holder
    in_use: Callable[[], bool]
    _done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _beats: int = 0

    def check(self) -> None:
        """Raise if the lease is no longer ours: somebody took us for dead, and may have committed since."""
        tokens = _tokens(self.records)
        if self._done.is_set() or not tokens or max(tokens) != self.token:
            newer = max(tokens, default=-1)
            by = _read(self.records, newer) if newer > self.token else None
            raise LeaseError.lost(self.records.uri, str(self.holder), _shown(by))

    def release(self) -> None:
        """Let others have the checkpoint. May be called more than once."""
        with self._lock:
            if not self._done.is_set():
                self._done.set()
                _HELD.pop(self.records.root, None)
                atexit.unregister(self.release)
                _LEFT.add((self.records.root, self.token))
                self._write(released=True)

    def _keep(self) -> None:
        """Renew the lease while it is in use, then release it."""
        renewed = time.monotonic()
        while not self._done.wait(_IN_USE):
            try:
                if not self.in_use():
                    self.release()
                elif time.monotonic() - renewed >= BEAT:
                    renewed = time.monotonic()
                    with self._lock:
                        self._beats += 1
                        if not self._done.is_set():
                            self._write()
            except Exception as failure:
                log.warning("The lease on checkpoint %s could not be renewed: %s", self.records.uri, failure)

    def _write(self, released: bool = False) -> None:
        record = {"holder": asdict(self.holder), "beats": self._beats, "released": released}
        if max(_tokens(self.records), default=-1) == self.token:
            self.records.write(_name(self.token), record)


_HELD: dict[str, Lease] = {}
"""The leases of this process, by checkpoint."""

_LEFT: set[tuple[str, int]] = set()
"""Checkpoints and tokens of leases that this process has released, even if a full disk kept that from being written."""


def take(records: Records, in_use: Callable[[], bool]) -> Lease:
    """Take the lease on a checkpoint, or raise `LeaseError` if somebody who is alive holds it.

    >>> import tempfile
    >>> lease = take(Records(tempfile.mkdtemp()), in_use=lambda: True)
    >>> lease.token
    1
    >>> lease.release()
    """
    mine = _HELD.get(records.root)
    if mine is not None and not mine.in_use():
        mine.release()
    last = max(_tokens(records), default=0)
    record = _read(records, last) if last else None
    if last and not _is_free(record) and (records.root, last) not in _LEFT:
        _watch(records, last)
    holder = Holder.this_process()
    made = records.create(_name(last + 1), {"holder": asdict(holder), "beats": 0, "released": False})
    tokens = _tokens(records)
    if not made or max(tokens) > last + 1:
        raise LeaseError.held(records.uri, _shown(_read(records, max(tokens))), PATIENCE)
    for token in tokens:
        if token <= last:
            records.delete(_name(token))
    lease = _HELD[records.root] = Lease(records, last + 1, holder, in_use)
    atexit.register(lease.release)
    threading.Thread(target=lease._keep, name="penstock-lease", daemon=True).start()
    return lease


def _is_free(record: Mapping[str, Any] | None) -> bool:
    """Whether a lease was released, or is that of a process that is gone for sure."""
    return record is not None and (record["released"] or Holder(**record["holder"]).dead)


def _watch(records: Records, token: int) -> None:
    """Return once a lease has lapsed; raise as soon as its holder shows that it is alive."""
    first = records.content(_name(token))
    record = _read(records, token)
    here = record is not None and record["holder"]["machine"] == _machine()
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if here or records.content(_name(token)) != first:
            record = _read(records, token)
            if _is_free(record):
                return
            raise LeaseError.held(records.uri, _shown(record), PATIENCE)
        time.sleep(_LOOK)


def _tokens(records: Records) -> list[int]:
    found = map(_TOKEN.fullmatch, records.list("lease"))
    return [int(match[1]) for match in found if match]


def _name(token: int) -> str:
    return f"lease/{token:08d}.json"


def _read(records: Records, token: int) -> dict[str, Any] | None:
    """A lease, as far as it can be read: a power cut may have left only a part of it."""
    try:
        return records.read(_name(token))
    except StateError:
        return None


def _shown(record: Mapping[str, Any] | None) -> str:
    return "somebody" if record is None else str(Holder(**record["holder"]))


def _machine() -> str:
    """This machine since it was started, and the container in it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {os.name}"


def _began(pid: int) -> str | None:
    """When a process of this machine began; None if there is none, or it has ended and nobody has looked yet."""
    try:
        with open(f"/proc/{pid}/stat") as status:
            state, *fields = status.read().rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "an unknown user"
