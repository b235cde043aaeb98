"""Checkpoints: state in versions, one per epoch, each committed by a single file.

A task of epoch n reads version n-1, writes new immutable pages, and stages the new state of its shard. When every shard
has done so, and the sinks have the epoch's rows, the driver commits ``ledger/n``. A repetition of epoch n starts again
from n-1, by the same plan, so that it does the same; leftovers of attempts are deleted later.

    flow.json          what the flow is: sources, operators, plans of joins, state format
    start.json         what sources promised, and operators got, at the last start
    plan/n.json        what epoch n is about to do: bounds, clock, shards; kept until n+1 is planned
    ledger/n.json      what epoch n left: bounds, the pages of every shard of every operator, counts of joins, and what
                       was learned of where payload is kept
    lease/             which driver may commit
    staged/…           what the shards of an epoch have done, before it is committed
    state/<operator>/  pages
    partials.json      which columns partial results of joins of several streams keep
    payload.json       which columns of which sources rows may leave behind
    payload/<source>/  which files, row groups of them, or segments rows that did are in; and the segments
    tables/<operator>/ master tables that were given as rows
    spark/             what Spark itself remembers: the offsets of each epoch

All but the pages, segments and Spark's files are sealed records (`storage.records`). Pages that an operator keeps
elsewhere are named by their whole path or URI.

Only files of ours are deleted: those in folders of the flow's own operators whose names have the pattern that tasks
give. Links are not followed.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

from pyarrow import fs

from penstock.core.errors import CheckpointError, LeaseError, StateError
from penstock.core.operator import State
from penstock.core.pages import Page, names_of
from penstock.core.progress import Track
from penstock.core.time import TIME_MAX
from penstock.storage.files import delete_own, find_folder, listed, open_folder, page_epoch, split_name
from penstock.storage.lease import Lease, take
from penstock.storage.payload import retire
from penstock.storage.records import Create, Records, as_text
from penstock.storage.spark_log import Batch, SparkLog

log = logging.getLogger("penstock")

T = TypeVar("T")

FORMAT = 2
"""The version of everything written here; another one is refused."""

_KEPT = 2
"""Versions whose pages are kept: the committed one, and the one before, which straggling tasks may still read."""

_ATTEMPT = re.compile(r"(\d{8,})-[0-9a-f]{8}")
_STAGED = r"-\d{5,}(-[0-9a-f]{12})?\.json(\.[0-9a-f]{12}\.draft)?"
_RECORD = re.compile(r"(\d{8,})\.json")
_HALF = re.compile(r"(?:plan|ledger)/(\d{8,})\.json\.[0-9a-f]{12}\.draft")
_DRAFT = re.compile(r"flow\.json\.[0-9a-f]{12}\.draft")
"""Names of the folders of attempts, of what is staged there, of ledgers and plans, and of those half written."""

_FOLDERS = ("flow.json", "start.json", "plan", "ledger", "lease", "staged", "state", "payload")
"""What must not be a link: files in there are deleted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an epoch is about to do. Written before it runs, so that a repetition does the same."""

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
    spare: float | None = None
    """Seconds that each shard has for work that was put off, if the epoch brings no rows; None if there is no limit."""
    batch: Batch = field(default_factory=dict)
    """What identifies the epoch's rows."""
    place: Literal["driver", "pieces", "tasks", "spark"] = "spark"
    """Where it runs,"""
    why: str = ""
    """and why there."""
    size: int = 0
    """How large it is: the bytes of its files, or about how many rows it has."""
    late: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The sources whose rows leave payload behind: the number of the first unit that they are in, and how many are."""
    sites: int = 1
    """How many sites there are for rows that may be anywhere (`core.routes`)."""

    def to_json(self) -> dict[str, Any]:
        """For the checkpoint."""
        tracks = {name: track.to_json() for name, track in self.tracks.items()}
        plain = {
            name: getattr(self, name)
            for name in (
                "epoch",
                "now",
                "shards",
                "static",
                "end",
                "methods",
                "versions",
                "quotas",
                "spare",
                "batch",
                "place",
                "why",
                "size",
                "late",
                "sites",
            )
        }
        return {**plain, "tracks": tracks}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From the checkpoint."""
        tracks = {name: Track.from_json(track) for name, track in record["tracks"].items()}
        late = {name: (first, count) for name, (first, count) in record.get("late", {}).items()}
        return cls(**{**record, "tracks": tracks, "late": late})


class Kept(NamedTuple):
    """Units of a source, from a number until before another, that rows in state may be in (`storage.payload`)."""

    first: int
    end: int
    latest: int
    """The latest event time of their rows,"""
    nbytes: int
    """and their bytes if they are segments; none if they are files."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The result of an epoch: the bounds of each source and port, and the state of every shard of every operator."""

    epoch: int = -1
    tracks: Mapping[str, Track] = field(default_factory=dict)
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    states: Mapping[str, tuple[State, ...]] = field(default_factory=dict)
    static: bool = False
    ended: bool = False
    methods: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    batch: Batch = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    """How many units of each source are numbered (`storage.payload`),"""
    kept: Mapping[str, tuple[Kept, ...]] = field(default_factory=dict)
    """and which of them rows in state may be in."""
    joins: Mapping[str, Any] = field(default_factory=dict)
    """What was counted of each join of several streams."""
    homes: Mapping[str, Any] = field(default_factory=dict)
    """What was learned of each source whose rows may leave payload behind."""
    sites: int = 0
    """How many sites there are for rows that may be anywhere: as many as the first epoch had shards; 0 before it."""

    def needs(self, source: str, number: int) -> bool:
        """Whether rows in state may be in the unit of a source that has a number."""
        return any(first <= number < end for first, end, *_ in self.kept.get(source, ()))

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
            "batch": self.batch,
            "units": self.units,
            "kept": self.kept,
            "joins": self.joins,
            "homes": self.homes,
            "sites": self.sites,
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
            methods=record["methods"],
            versions=record["versions"],
            batch=record["batch"],
            units=record.get("units", {}),
            kept=_kept(record),
            joins=record.get("joins", {}),
            homes=record.get("homes", {}),
            sites=record.get("sites", 0),
        )


def _kept(record: Mapping[str, Any]) -> dict[str, tuple[Kept, ...]]:
    """The units that a ledger keeps; one from before that was noted keeps all that there are."""
    if "kept" not in record:
        return {name: (Kept(0, end, TIME_MAX, 0),) for name, end in record.get("units", {}).items()}
    return {name: tuple(Kept(*each) for each in some) for name, some in record["kept"].items()}


class Checkpoint:
    """A checkpoint folder, at a path or a pyarrow.fs URI. `create` is how its records are made only once (`Records`).

    >>> import tempfile
    >>> checkpoint = Checkpoint(tempfile.mkdtemp())
    >>> checkpoint.claim({"sources": {}, "operators": {}})
    >>> checkpoint.commit(Ledger(epoch=0))
    >>> checkpoint.latest().epoch
    0
    """

    def __init__(self, uri: str, create: Create | None = None) -> None:
        self.uri = uri.rstrip("/")
        try:
            self.records = Records(self.uri, create)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint={self.uri!r} cannot be created: {error}. Write a path where a folder can be created."
            ) from error
        self.spark = SparkLog(self.records)
        self.lease: Lease | None = None
        self._synced = False

    def claim(self, flow: Mapping[str, Any], prepare: Callable[[], None] | None = None) -> None:
        """Make this the checkpoint of `flow`; refuse a folder that is another flow's, or nobody's but not empty.

        `prepare` runs once the folder is known to be free or the flow's own. If it raises, a free folder stays free.
        """
        ours = json.loads(json.dumps({"format": FORMAT, **flow}))
        self._refuse_links()
        theirs = self._flow()
        if theirs is None:
            self._refuse_foreign()
        self._refuse_other_flow(theirs or ours, ours)
        if prepare is not None:
            prepare()
        if theirs is None:
            self.records.create("flow.json", ours)
            self._refuse_other_flow(self._flow(), ours)  # Another flow may have been faster.

    @classmethod
    def plans(cls, uri: str) -> Mapping[str, str] | None:
        """By which plans joins of the flow run that a folder is the checkpoint of, by name; None if it is nobody's yet.

        Nothing is made there.
        """
        files, path = find_folder(uri.rstrip("/"))
        if files.get_file_info(f"{path}/flow.json").type == fs.FileType.NotFound:
            return None
        flow = cls(uri)._flow()
        return None if flow is None else flow.get("plans", {})

    def take_lease(self, in_use: Callable[[], bool]) -> Lease:
        """Make this the only driver that may commit, as long as `in_use` says, or until the lease is released."""
        self._ours()
        self.lease = take(self.records, in_use)
        return self.lease

    def latest(self) -> Ledger:
        """The last committed version; an empty one if nothing was ever committed."""
        last = max(self._numbers("ledger"), default=-1)
        planned = max(self._numbers("plan"), default=-1)
        if planned > last + 1:
            raise StateError.missing(self.records.path(f"ledger/{planned - 1:08d}.json"))
        return Ledger() if last < 0 else self._ledger(last)

    def planned(self, epoch: int) -> Plan | None:
        """What an earlier attempt at `epoch` was about to do, if there was one."""
        name = f"plan/{epoch:08d}.json"
        record = self.records.read(name)
        return None if record is None else self._parsed(name, Plan.from_json, record)

    def plan(self, plan: Plan) -> None:
        """Write what an epoch is about to do; the plans before its predecessor's go.

        What it notes of Spark's files survives a power cut before it does.
        """
        self.spark.keep()
        self._create(f"plan/{plan.epoch:08d}.json", plan.epoch, plan.to_json())
        for epoch in self._numbers("plan"):
            if epoch < plan.epoch - 1:
                self.records.delete(f"plan/{epoch:08d}.json")

    def pages(self, operator: str) -> str:
        """The folder of an operator's pages."""
        return f"{self.uri}/state/{operator}"

    def stage(
        self, attempt: str, operator: str, shard: int, record: Mapping[str, Any], state: State, run: str = ""
    ) -> None:
        """Say what a shard has become; `run` tells runs of the same task apart, which otherwise replace each other.

        A power cut may lose it: only the attempt that it is for ever reads it.
        """
        self.records.write_parts(_staged(attempt, operator, shard, run), _in_parts(record, state))

    def staged(
        self, attempt: str, operator: str, shards: int, runs: Mapping[int, str] | None = None
    ) -> list[dict[str, Any]]:
        """What every shard of an operator has become in this attempt, by the run that counts; with its ``state``."""
        records = []
        for shard in range(shards):
            run = "" if runs is None else runs.get(shard)
            record = None if run is None else self.records.read(_staged(attempt, operator, shard, run))
            if record is None:
                raise StateError(
                    f"Shard {shard} of {operator} did not report for {attempt}: its task never ran to its end. "
                    f"A sink must take all of its rows; the epoch was not committed."
                )
            records.append(record)
        return records

    def commit(self, ledger: Ledger) -> None:
        """Make a version the committed one: from here on the epoch has happened, and survives a power cut."""
        if not self._synced:
            for folder in ("", "state"):
                self.records.sync(folder)
            self._synced = True
        self._create(f"ledger/{ledger.epoch:08d}.json", ledger.epoch, ledger.to_json())
        for epoch in self._numbers("ledger"):
            if epoch <= ledger.epoch - _KEPT:
                self.records.delete(f"ledger/{epoch:08d}.json")

    def forget(self, attempt: str, operators: Iterable[str]) -> None:
        """Remove what the shards of some operators staged for an attempt, and its folder if nothing else is there."""
        if _ATTEMPT.fullmatch(attempt) and not self._is_link(f"staged/{attempt}"):
            staged = re.compile(f"({'|'.join(map(re.escape, operators))}){_STAGED}")
            for name in self.records.list(f"staged/{attempt}"):
                if staged.fullmatch(name):
                    self.records.delete(f"staged/{attempt}/{name}")
            self.records.delete_folder(f"staged/{attempt}")

    def drop(self, operator: str, names: Iterable[str]) -> None:
        """Delete pages that no kept version needs; whatever else has one of the names stays."""
        for name in names:
            folder, rest = split_name(name)
            if page_epoch(rest) is None:
                continue
            if folder:
                files, root = open_folder(folder)
                delete_own(files, f"{root}/{rest}")
            else:
                self.records.delete(f"state/{operator}/{rest}")

    def retire(self, source: str, ledgers: Sequence[Ledger]) -> tuple[int, int]:
        """Delete what is on record of units of a source, and its segments, that no version needs which is kept.

        How many segments that were, and their bytes, comes back. Those of the epoch after the last one stay.
        """
        until = max((ledger.units.get(source, 0) for ledger in ledgers), default=0)
        return retire(
            self.records, source, lambda number: any(ledger.needs(source, number) for ledger in ledgers), until
        )

    def check(self, ledger: Ledger) -> None:
        """Raise if something is missing that goes with `ledger`, or of another age: a page, or Spark's files."""
        planned = self.planned(ledger.epoch + 1)
        noted = {**ledger.batch, **(planned.batch if planned else {})}
        if torn := self.spark.mend(ledger.epoch, noted):
            log.warning("Removed %s of Spark, cut off by a crash: no epoch needs them.", ", ".join(torn))
        if ledger.epoch >= 0 and not self.records.list("spark/offsets"):
            raise StateError.missing(self.records.path("spark/offsets"))
        self.spark.compare(ledger.batch, ledger.epoch)
        if planned is not None:
            self.spark.compare(planned.batch, planned.epoch)
        self.spark.check()
        if (done := self.spark.ahead(ledger.epoch)) is not None:
            raise CheckpointError.other_age(self.uri, done + 1, ledger.epoch)
        for operator in ledger.states:
            there = set(self.records.list(f"state/{operator}"))
            names = ledger.names(operator)
            for folder in _elsewhere(names):
                there |= {f"{folder}/{name}" for name in listed(*open_folder(folder))}
            for name in sorted(names - there):
                raise StateError.missing(name if split_name(name)[0] else self.records.path(f"state/{operator}/{name}"))

    def vacuum(self) -> tuple[int, int]:
        """Delete every page, segment and staged record that no kept version needs; how many files and bytes it was.

        What the epoch after the last committed one has written stays: somebody may be at it.
        """
        flow = self._ours()
        kept = [self._ledger(epoch) for epoch in self._numbers("ledger")]
        last = max((ledger.epoch for ledger in kept), default=-1)
        operators = {*flow.get("operators", ()), *(name for ledger in kept for name in ledger.states)}
        files = size = 0
        for operator in sorted(operators):
            needed = set().union(*(ledger.names(operator) for ledger in kept)) if kept else set()
            gone = set(self.records.list(f"state/{operator}"))
            for folder in _elsewhere(needed):
                gone |= {f"{folder}/{name}" for name in listed(*open_folder(folder))}
            old = [name for name in gone - needed if _written_until(last, split_name(name)[1])]
            old = [name for name in old if not self._is_link(f"state/{operator}/{name}")]
            files += len(old)
            size += sum(self._size(operator, name) for name in old)
            self.drop(operator, old)
        for source in sorted({name for ledger in kept for name in ledger.units}):
            count, nbytes = self.retire(source, kept)
            files, size = files + count, size + nbytes
        for attempt in self.records.list("staged"):
            found = _ATTEMPT.fullmatch(attempt)
            if found and int(found[1]) <= last:
                self.forget(attempt, operators)
        for name in (f"{kind}/{name}" for kind in ("plan", "ledger") for name in self.records.list(kind)):
            found = _HALF.fullmatch(name)
            if found and int(found[1]) <= last:
                self.records.delete(name)
        return files, size

    def _create(self, name: str, epoch: int, record: Mapping[str, Any]) -> None:
        """Write what only one driver may write, and only while it has the lease, if one was taken."""
        if self.lease is not None:
            self.lease.check()
        if not self.records.create(name, record):
            raise LeaseError.committed(self.uri, epoch)

    def _flow(self) -> dict[str, Any] | None:
        """What flow this is the checkpoint of; of an older format, which had no seals, as far as it says."""
        content = self.records.content("flow.json")
        if content is None:
            return None
        try:
            older = json.loads(content)
        except ValueError:
            return self.records.unseal("flow.json", content)
        if isinstance(older, dict) and isinstance(older.get("format"), int) and older["format"] < FORMAT:
            return older
        raise StateError.corrupt(self.records.path("flow.json"), "it has no checksum")

    def _ours(self) -> dict[str, Any]:
        """What flow this is the checkpoint of, if it is one that files may be deleted from."""
        self._refuse_links()
        flow = self._flow() or {"format": FORMAT}
        if flow["format"] != FORMAT:
            raise CheckpointError(
                f"Checkpoint {self.uri} has state format {flow['format']}, but this version of penstock reads "
                f"{FORMAT}. Nothing was touched. Use the version of penstock that wrote it."
            )
        return flow

    def _refuse_other_flow(self, theirs: dict[str, Any] | None, ours: dict[str, Any]) -> None:
        if theirs != ours:
            raise CheckpointError(
                f"Checkpoint {self.uri} belongs to a flow that differs from this one:\n"
                + "\n".join(f"  {line}" for line in _differences(theirs, ours))
                + "\nIts state was left untouched. Undo the change, or start with a new checkpoint folder."
            )

    def _refuse_foreign(self) -> None:
        """Refuse a folder in which something is that no flow of this checkpoint can have put there."""
        found = sorted(name for name in self.records.list("") if not _DRAFT.fullmatch(name))
        if self._numbers("ledger"):
            raise StateError.missing(self.records.path("flow.json"))
        if found:
            shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
            raise CheckpointError(
                f"checkpoint={self.uri!r} is not a checkpoint and not empty: it has {shown}, but no flow.json. "
                f"A flow deletes old state in its checkpoint, so nothing else may be there; nothing was touched. "
                f"Write a folder that is empty or does not exist, such as checkpoint='{self.uri}/checkpoint'."
            )

    def _refuse_links(self) -> None:
        """Refuse folders that are links to elsewhere."""
        state = [f"state/{operator}" for operator in (() if self._is_link("state") else self.records.list("state"))]
        payload = [f"payload/{name}" for name in (() if self._is_link("payload") else self.records.list("payload"))]
        ours = [*_FOLDERS, *state, *payload]
        for name in ours:
            if self._is_link(name):
                path = self.records.path(name)
                raise CheckpointError(
                    f"{path} is a symbolic link. penstock deletes old files in its checkpoint and follows no links, "
                    f"so that it deletes nothing elsewhere; nothing was touched. Put the whole checkpoint where the "
                    f"link points to, or replace the link by the folder itself."
                )

    def _is_link(self, name: str) -> bool:
        return self.records.local and os.path.islink(self.records.path(name))

    def _ledger(self, epoch: int) -> Ledger:
        name = f"ledger/{epoch:08d}.json"
        record = self.records.read(name)
        if record is None:
            raise StateError.missing(self.records.path(name))
        return self._parsed(name, Ledger.from_json, record)

    def _parsed(self, name: str, parse: Callable[[Mapping[str, Any]], T], record: Mapping[str, Any]) -> T:
        try:
            return parse(record)
        except (KeyError, TypeError, AttributeError, ValueError) as broken:
            raise StateError.corrupt(self.records.path(name), f"{type(broken).__name__}: {broken}") from broken

    def _size(self, operator: str, name: str) -> int:
        folder, rest = split_name(name)
        files, root = open_folder(folder) if folder else (self.records.files, self.records.path(f"state/{operator}"))
        return files.get_file_info(f"{root}/{rest}").size or 0

    def _numbers(self, folder: str) -> list[int]:
        found = map(_RECORD.fullmatch, self.records.list(folder))
        return sorted(int(match[1]) for match in found if match)


def _elsewhere(names: Iterable[str]) -> set[str]:
    """The folders of pages that are not in the checkpoint."""
    return {folder for folder, _ in map(split_name, names) if folder}


def _written_until(epoch: int, name: str) -> bool:
    """Whether a file is a page, finished or not, that `epoch` or one before it wrote."""
    written = page_epoch(name)
    return written is not None and written <= epoch


def _staged(attempt: str, operator: str, shard: int, run: str) -> str:
    return f"staged/{attempt}/{operator}-{shard:05d}{run and f'-{run}'}.json"


def _in_parts(record: Mapping[str, Any], state: State) -> Iterator[str]:
    """A record and a state as JSON, page by page: of all of them it would be several times their list."""
    yield "{" + "".join(f"{as_text(name)}:{as_text(what)}," for name, what in record.items())
    yield f'"state":{{"meta":{as_text(state.meta)},"pages":['
    for place, page in enumerate(state.pages):
        yield f"{',' if place else ''}{as_text(page.to_json())}"
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
