"""Checkpoints: state in versions, one per epoch, each committed by a single file.

A task of epoch n reads version n-1, writes new immutable pages, and stages what its shard is now. When every shard
has, and the sinks have the epoch's rows, the driver commits ``ledger/n``. A rerun of epoch n starts again from n-1,
by the same plan, so that it does the same; what an attempt left behind is swept later.

    flow.json          what the flow is: sources, operators, state format
    plan/n.json        what epoch n is about to do: bounds, clock, shards; kept until n+1 is planned
    ledger/n.json      what epoch n left: bounds, and the pages of every shard of every operator
    staged/…           what the shards of an epoch have done, before it is committed
    state/<operator>/  pages

Pages that an operator keeps elsewhere are named by their whole path or URI.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pyarrow import fs

from penstock.core.errors import CheckpointError, StateError
from penstock.core.operator import State
from penstock.core.pages import Page, names_of
from penstock.core.progress import Track
from penstock.storage.files import open_folder, split_name

FORMAT = 1
"""The version of everything written here; another one is refused."""

_KEPT = 2
"""Versions whose pages are kept: the committed one, and the one before, which straggling tasks may still read."""

_BUFFER = 1 << 16
"""Bytes that are written at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an epoch is about to do. Written before it runs, so that a rerun does the same."""

    epoch: int
    now: int
    shards: int
    tracks: Mapping[str, Track]
    static: bool = False
    end: bool = False
    methods: Mapping[str, str] = field(default_factory=dict)
    """The methods of the operators that a planner chooses for."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Which version of its master table each lookup sees."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """How often a shard of each lookup that sheds load may read its table."""

    def to_json(self) -> dict[str, Any]:
        """For the checkpoint."""
        tracks = {name: track.to_json() for name, track in self.tracks.items()}
        plain = {
            name: getattr(self, name)
            for name in ("epoch", "now", "shards", "static", "end", "methods", "versions", "quotas")
        }
        return {**plain, "tracks": tracks}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From the checkpoint."""
        tracks = {name: Track.from_json(track) for name, track in record["tracks"].items()}
        return cls(**{**record, "tracks": tracks})


@dataclass(frozen=True, slots=True)
class Ledger:
    """What an epoch left: how far each source and port has got, and the state of every shard of every operator."""

    epoch: int = -1
    tracks: Mapping[str, Track] = field(default_factory=dict)
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    states: Mapping[str, tuple[State, ...]] = field(default_factory=dict)
    static: bool = False
    ended: bool = False
    methods: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def names(self, operator: str) -> set[str]:
        """The stored batches that an operator's pages need."""
        return names_of(page for state in self.states.get(operator, ()) for page in state.pages)

    def to_json(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {
            "epoch": self.epoch,
            "tracks": {name: track.to_json() for name, track in self.tracks.items()},
            "ports": self.ports,
            "states": {name: [state_to_json(state) for state in states] for name, states in self.states.items()},
            "static": self.static,
            "ended": self.ended,
            "methods": self.methods,
            "versions": self.versions,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From the checkpoint."""
        return cls(
            epoch=record["epoch"],
            tracks={name: Track.from_json(track) for name, track in record["tracks"].items()},
            ports={name: tuple(bounds) for name, bounds in record["ports"].items()},
            states={name: tuple(map(state_from_json, states)) for name, states in record["states"].items()},
            static=record["static"],
            ended=record["ended"],
            methods=record.get("methods", {}),
            versions=record.get("versions", {}),
        )


class Checkpoint:
    """A checkpoint folder, at a path or a pyarrow.fs URI.

    >>> import tempfile
    >>> checkpoint = Checkpoint(tempfile.mkdtemp())
    >>> checkpoint.claim({"sources": {}, "operators": {}})
    >>> checkpoint.commit(Ledger(epoch=0))
    >>> checkpoint.latest().epoch
    0
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._files, self._root = open_folder(self.uri)

    def claim(self, flow: Mapping[str, Any]) -> None:
        """Make this the checkpoint of `flow`, or refuse if it is another's."""
        ours = json.loads(json.dumps({"format": FORMAT, **flow}))
        theirs = self._read("flow.json")
        if theirs is None:
            if self.latest().epoch >= 0:
                raise StateError.missing(f"{self._root}/flow.json")
            self._write("flow.json", ours)
        elif theirs != ours:
            raise CheckpointError(
                f"Checkpoint {self.uri} belongs to a flow that differs from this one:\n"
                + "\n".join(f"  {line}" for line in _differences(theirs, ours))
                + "\nIts state was left untouched. Undo the change, or start with a new checkpoint folder."
            )

    def latest(self) -> Ledger:
        """The last committed version; an empty one if nothing was ever committed."""
        last = max(self._numbers("ledger"), default=-1)
        planned = max(self._numbers("plan"), default=-1)
        if planned > last + 1:
            raise StateError.missing(f"{self._root}/ledger/{planned - 1:08d}.json")
        return Ledger() if last < 0 else self._ledger(last)

    def planned(self, epoch: int) -> Plan | None:
        """What an earlier attempt at `epoch` was about to do, if there was one."""
        record = self._read(f"plan/{epoch:08d}.json")
        return None if record is None else Plan.from_json(record)

    def plan(self, plan: Plan) -> None:
        """Write what an epoch is about to do; the plans before its predecessor's go."""
        self._write(f"plan/{plan.epoch:08d}.json", plan.to_json())
        for epoch in self._numbers("plan"):
            if epoch < plan.epoch - 1:
                self._files.delete_file(f"{self._root}/plan/{epoch:08d}.json")

    def pages(self, operator: str) -> str:
        """The folder of an operator's pages."""
        return f"{self.uri}/state/{operator}"

    def stage(self, attempt: str, operator: str, shard: int, record: Mapping[str, Any], state: State) -> None:
        """Say what a shard has become; a later attempt of the same task says it again."""
        self._write_parts(f"staged/{attempt}/{operator}-{shard:05d}.json", _in_parts(record, state))

    def staged(self, attempt: str, operator: str, shards: int) -> list[dict[str, Any]]:
        """What every shard of an operator has become in this attempt; each record has its ``state``."""
        records = []
        for shard in range(shards):
            record = self._read(f"staged/{attempt}/{operator}-{shard:05d}.json")
            if record is None:
                raise StateError(
                    f"Shard {shard} of {operator} did not report for {attempt}: its task never ran to its end. "
                    f"A sink must take all of its rows; the epoch was not committed."
                )
            records.append(record)
        return records

    def commit(self, ledger: Ledger) -> None:
        """Make a version the committed one: from here on the epoch has happened."""
        self._write(f"ledger/{ledger.epoch:08d}.json", ledger.to_json())
        for epoch in self._numbers("ledger"):
            if epoch <= ledger.epoch - _KEPT:
                self._files.delete_file(f"{self._root}/ledger/{epoch:08d}.json")

    def forget(self, attempt: str) -> None:
        """Remove what was staged for an attempt."""
        if self._files.get_file_info(f"{self._root}/staged/{attempt}").type == fs.FileType.Directory:
            self._files.delete_dir(f"{self._root}/staged/{attempt}")

    def drop(self, operator: str, names: Iterable[str]) -> None:
        """Delete pages that no kept version needs."""
        for name in names:
            folder, rest = split_name(name)
            files, root = open_folder(folder) if folder else (self._files, f"{self._root}/state/{operator}")
            if files.get_file_info(f"{root}/{rest}").type == fs.FileType.File:
                files.delete_file(f"{root}/{rest}")

    def check(self, ledger: Ledger) -> None:
        """Raise if something is not there that goes with `ledger`: a page, or Spark's record of what was read."""
        if ledger.epoch >= 0 and not self._list("spark/offsets"):
            raise StateError.missing(f"{self._root}/spark/offsets")
        for operator in ledger.states:
            there = set(self._list(f"state/{operator}"))
            names = ledger.names(operator)
            for folder in _elsewhere(names):
                there |= {f"{folder}/{name}" for name in _listed(*open_folder(folder))}
            for name in sorted(names - there):
                raise StateError.missing(name if split_name(name)[0] else f"{self._root}/state/{operator}/{name}")

    def vacuum(self) -> tuple[int, int]:
        """Delete everything that no kept version needs; give back how many files and bytes that was.

        What the epoch after the last committed one has written stays: somebody may be at it.
        """
        kept = [self._ledger(epoch) for epoch in self._numbers("ledger")]
        last = max((ledger.epoch for ledger in kept), default=-1)
        files = size = 0
        for operator in self._list("state"):
            needed = set().union(*(ledger.names(operator) for ledger in kept)) if kept else set()
            gone = set(self._list(f"state/{operator}"))
            for folder in _elsewhere(needed):
                gone |= {f"{folder}/{name}" for name in _listed(*open_folder(folder))}
            old = [name for name in gone - needed if _epoch_of(split_name(name)[1]) <= last]
            files += len(old)
            size += sum(self._size(operator, name) for name in old)
            self.drop(operator, old)
        for attempt in self._list("staged"):
            if _epoch_of(attempt) <= last:
                self.forget(attempt)
        return files, size

    def _ledger(self, epoch: int) -> Ledger:
        record = self._read(f"ledger/{epoch:08d}.json")
        if record is None:
            raise StateError.missing(f"{self._root}/ledger/{epoch:08d}.json")
        try:
            return Ledger.from_json(record)
        except (KeyError, TypeError, AttributeError, ValueError) as broken:
            path = f"{self._root}/ledger/{epoch:08d}.json"
            raise StateError.corrupt(path, f"{type(broken).__name__}: {broken}") from broken

    def _size(self, operator: str, name: str) -> int:
        folder, rest = split_name(name)
        files, root = open_folder(folder) if folder else (self._files, f"{self._root}/state/{operator}")
        return files.get_file_info(f"{root}/{rest}").size or 0

    def _list(self, folder: str) -> list[str]:
        return _listed(self._files, f"{self._root}/{folder}")

    def _numbers(self, folder: str) -> list[int]:
        stems = [name.removesuffix(".json") for name in self._list(folder)]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _read(self, name: str) -> dict[str, Any] | None:
        path = f"{self._root}/{name}"
        try:
            with self._files.open_input_stream(path) as source:
                content = source.read()
        except FileNotFoundError:
            return None
        try:
            record: dict[str, Any] = json.loads(content)
        except ValueError as broken:
            raise StateError.corrupt(path, str(broken)) from broken
        return record

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        self._write_parts(name, [_text(record)])

    def _write_parts(self, name: str, parts: Iterable[str]) -> None:
        path = f"{self._root}/{name}"
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(f"{path}.draft", buffer_size=_BUFFER) as sink:
            for part in parts:
                sink.write(part.encode())
        self._files.move(f"{path}.draft", path)


def _listed(files: fs.FileSystem, folder: str) -> list[str]:
    return [info.base_name for info in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))]


def _elsewhere(names: Iterable[str]) -> set[str]:
    """The folders of pages that are not in the checkpoint."""
    return {folder for folder, _ in map(split_name, names) if folder}


def _epoch_of(name: str) -> int:
    """The epoch that wrote a page or staged an attempt: its name begins with it; -1 for one that no epoch wrote."""
    first = name.partition("-")[0]
    return int(first) if first.isdecimal() else -1


def _text(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"))


def _in_parts(record: Mapping[str, Any], state: State) -> Iterator[str]:
    """A record and a state as JSON, page by page: of all of them it would be several times their list."""
    yield "{" + "".join(f"{_text(name)}:{_text(what)}," for name, what in record.items())
    yield f'"state":{{"meta":{_text(state.meta)},"pages":['
    for place, page in enumerate(state.pages):
        yield f"{',' if place else ''}{_text(page.to_json())}"
    yield "]}}"


def state_to_json(state: State) -> dict[str, Any]:
    """For a ledger."""
    return {"pages": [page.to_json() for page in state.pages], "meta": state.meta}


def state_from_json(record: Mapping[str, Any]) -> State:
    """From a ledger."""
    return State(tuple(map(Page.from_json, record["pages"])), dict(record["meta"]))


def next_ledger(ledger: Ledger, **changes: Any) -> Ledger:
    """The version after `ledger`.

    >>> next_ledger(Ledger(epoch=3)).epoch
    4
    """
    return replace(ledger, epoch=ledger.epoch + 1, **changes)


def _differences(theirs: Any, ours: Any, at: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        lines = []
        for key in sorted(theirs.keys() | ours.keys()):
            lines += _differences(theirs.get(key, "nothing"), ours.get(key, "nothing"), f"{at}.{key}" if at else key)
        return lines
    return [] if theirs == ours else [f"{at}: was {theirs}, is now {ours}"]
