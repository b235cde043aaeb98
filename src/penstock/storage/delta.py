"""Delta tables as sources: which data files each version of a table brings, by the table's log.

A source begins with the snapshot of some version: the files that make up the table then. Every later version brings the
files that its commit adds. A commit that only rearranges rows (``dataChange`` is false) brings none; one that removes
rows is refused or skipped, because rows that were read cannot be taken back.

What a version brings never changes, so an epoch that is known by its versions can be read again. It may become
impossible: old commits are cleaned up, and VACUUM deletes files that the table no longer has. Then an error says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.core.errors import ConfigError, SourceError
from penstock.core.files import Changes, Files, InputFile, check_limit, standard_columns
from penstock.storage.files import find_folder, local_path, path_of, whole_path
from penstock.storage.tables.delta import LOG

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
"""Names of commits, and of checkpoints, which may have several parts."""

_UNDERSTOOD = {
    "columnMapping",  # unless the table uses it
    "deletionVectors",  # unless a file has one
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features of tables that readers must know, and that are looked after here."""

_OF_FILES = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
"""What counts of a file that a checkpoint lists."""

_ANEW = "Start with a new checkpoint folder: a flow begins with the table as it is then."


def delta_files(path: Any, schema: pa.Schema | None, max_commits: int | None, changes: Any) -> Files:
    """A Delta table as a source; its columns are those of its latest version unless a schema says which."""
    place = whole_path(path_of(path, "path"))
    if changes not in get_args(Changes):
        raise ConfigError(
            f"changes={changes!r} must be 'refuse' or 'skip': what to do with commits that delete or rewrite rows."
        )
    limit = check_limit("max_commits", max_commits)
    log = CommitLog(place)
    log.check_there()
    try:
        about = log.about(log.latest)
    except SourceError as unreadable:
        raise ConfigError(str(unreadable)) from unreadable
    binary = [field.name for field in about.partitions if pa.types.is_binary(field.type)]
    if binary:
        raise ConfigError(
            f"{place} is partitioned by {binary[0]!r}, which is binary, and writers do not agree on how its values are "
            f"written. Partition the table by another column."
        )
    columns = standard_columns(about.columns if schema is None else schema)
    return Files("delta", place, columns, limit, partitions=standard_columns(about.partitions), changes=changes)


def version_of(path: str) -> int:
    """The version that a commit makes, by the path or URI of its file.

    >>> version_of("file:///t/_delta_log/00000000000000000017.json")
    17
    """
    return int(path.rpartition("/")[2].removesuffix(".json"))


def first_version(files: Files) -> int:
    """The version with whose snapshot a new flow begins: the latest, unless an epoch may take so many commits only.

    Then it is the version since which the table was only appended to, as far as its log reaches back: what was added
    since comes in commits, and all files of those are still in the table. Either way the rows are the same.
    """
    log = CommitLog(files.path)
    return log.latest if files.max_files is None else log.appended_since


def inputs_of(files: Files, last: int, reached: int | None) -> list[InputFile]:
    """The files that an epoch up to version `last` has after those up to version `reached`; None: it is the first."""
    log = CommitLog(files.path)
    if reached is None:
        log.about(last).check_partitions(files, last)
        return log.snapshot(last)
    return [file for version in range(reached + 1, last + 1) for file in log.added(version, files)]


def epochs_of_table(files: Files) -> Iterator[list[InputFile]]:
    """The files of the table as it is now, an epoch after the other."""
    first, latest = first_version(files), CommitLog(files.path).latest
    step = files.max_files or latest - first + 1
    ends = range(min(first + step - 1, latest), latest + step, step)
    reached = None
    for end in ends:
        last = min(end, latest)
        yield inputs_of(files, last, reached)
        reached = last


def commits_from(version: int) -> str:
    """A pattern of the names of commits that make this version or a later one, as Hadoop reads patterns.

    >>> commits_from(10**20 - 2).split(",")[0], commits_from(0)
    ('{99999999999999999998', '[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].json')
    """  # noqa: E501
    digits = f"{version:020d}"
    if not version:
        return "[0-9]" * 20 + ".json"
    larger = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'[0-9]' * (19 - place)}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    return f"{{{','.join([digits, *larger])}}}.json"


@dataclass(frozen=True, slots=True)
class About:
    """What a version of a table says of itself: its columns, and which of them are not in its files."""

    uri: str
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def check(self) -> None:
        """Refuse what cannot be read off the files alone."""
        reasons = {*(self.protocol.get("readerFeatures") or ())} - _UNDERSTOOD
        if (self._configuration.get("delta.columnMapping.mode") or "none") != "none":
            reasons.add("columnMapping")
        if self.protocol.get("minReaderVersion", 1) > 3:
            reasons.add(f"reader version {self.protocol['minReaderVersion']}")
        if reasons:
            raise SourceError(
                f"{self.uri} is a Delta table with {', '.join(sorted(reasons))}, which penstock cannot read. Stream it "
                f"as a DataFrame instead: flow.source(spark.readStream.format('delta').load({self.uri!r}), …)."
            )

    def check_partitions(self, files: Files, version: int) -> None:
        """Raise unless the table is partitioned as the source is."""
        now, then = list(self.metadata.get("partitionColumns") or ()), files.partitions.names
        if now != then:
            raise SourceError(
                f"Version {version} of {self.uri} is partitioned by {', '.join(now) or 'nothing'}; the table was "
                f"partitioned by {', '.join(then) or 'nothing'} when the flow was built. Build the flow again."
            )

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""
        return pa.schema([_field(part) for part in json.loads(self.metadata["schemaString"])["fields"]])

    @property
    def partitions(self) -> pa.Schema:
        """Those that are not in its files."""
        names = self.metadata.get("partitionColumns") or ()
        fields = {part["name"]: part for part in json.loads(self.metadata["schemaString"])["fields"]}
        return pa.schema([_field(fields[name]) for name in names])

    @property
    def _configuration(self) -> dict[str, str]:
        return dict(self.metadata.get("configuration") or {})


class CommitLog:
    """The log of a Delta table, as it is now.

    >>> import tempfile
    >>> from deltalake import write_deltalake
    >>> folder = tempfile.mkdtemp()
    >>> for ids in ([1, 2], [3]):
    ...     write_deltalake(folder, pa.table({"id": ids}), mode="append")
    >>> log = CommitLog(folder)
    >>> log.latest, len(log.snapshot(1)), log.about(1).columns.names
    (1, 2, ['id'])
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._system, self._root = find_folder(uri)

    def check_there(self) -> None:
        """Raise unless there is a table to begin with."""
        if not self._commits and not self._checkpoints:
            raise ConfigError(
                f"path={self._uri!r} is not a Delta table: there is no version of one in its folder {LOG}. Create the "
                f"table before the flow; it may be empty."
            )
        if not self._commits or max(self._checkpoints, default=0) > max(self._commits):
            raise ConfigError(
                f"The log of Delta table {self._uri} lacks the commit of its latest version. Commit to it once more."
            )

    @cached_property
    def latest(self) -> int:
        """The latest version."""
        if not self._commits:
            raise SourceError(f"There is no commit of Delta table {self._uri} in its folder {LOG}. Put the table back.")
        return max(self._commits)

    @cached_property
    def appended_since(self) -> int:
        """The oldest version since which there are only appends, and to whose snapshot the log reaches back."""
        oldest = self.latest
        while oldest - 1 in self._commits:
            oldest -= 1
        # A checkpoint has all that was before it; without one, only the very first commit has nothing before it.
        begins = [max(number, oldest) for number in self._checkpoints if number >= oldest - 1]
        first = 0 if oldest == 0 else min(begins, default=self.latest)
        version = self.latest
        while version > first and not any("remove" in action for action in self._actions(version)):
            version -= 1
        return version

    def about(self, version: int) -> About:
        """What the table says of itself in a version, unless it cannot be read."""
        told = dict(self._replayed(version, ("protocol", "metaData")))
        if "metaData" not in told:
            raise SourceError(f"The log of Delta table {self._uri} has no columns of version {version}: it is damaged.")
        about = About(self._uri, told.get("protocol", {}), told["metaData"])
        about.check()
        return about

    def snapshot(self, version: int) -> list[InputFile]:
        """The files that make up the table in a version, the oldest first."""
        held: dict[tuple[str, str], tuple[int, InputFile]] = {}
        for kind, action in self._replayed(version, ("remove", "add")):
            if kind == "remove":
                held.pop(_key(action), None)
            else:
                held[_key(action)] = int(action.get("modificationTime") or 0), self._input(action, version=None)
        for (_, vector), (_, file) in held.items():
            if vector:
                raise self._has_vector(file.path, version)
        # In an order that does not depend on which checkpoint was there.
        return [file for _, file in sorted(held.values(), key=lambda each: (each[0], each[1].path))]

    def added(self, version: int, files: Files) -> list[InputFile]:
        """The files whose rows a version brings."""
        actions = self._actions(version)
        self._check_changed(actions, files, version)
        if any("remove" in action and action["remove"].get("dataChange", True) for action in actions):
            if files.changes == "skip":
                return []
            raise SourceError(
                f"Version {version} of Delta table {self._uri} deletes or rewrites rows, and rows that a flow has read "
                f"cannot be taken back. Write changes='skip' to skip such commits, with all rows that they add, or "
                f"start again from the table as it is, with a new checkpoint folder."
            )
        added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        return [self._input(action, version) for action in added]

    def _check_changed(self, actions: Sequence[Mapping[str, Any]], files: Files, version: int) -> None:
        """Raise if a version makes the table one that cannot be read on."""
        changed = {kind: action[kind] for action in actions for kind in ("protocol", "metaData") if kind in action}
        if changed:
            about = About(self._uri, changed.get("protocol", {}), changed.get("metaData", {}))
            about.check()
            if about.metadata:
                about.check_partitions(files, version)

    def _input(self, action: Mapping[str, Any], version: int | None) -> InputFile:
        path = _located(self._uri, action["path"])
        if version is not None and action.get("deletionVector"):
            raise self._has_vector(path, version)
        values = tuple(dict(action.get("partitionValues") or ()).items())
        return InputFile(path, values, int(action.get("size") or 0))

    def _has_vector(self, path: str, version: int) -> SourceError:
        return SourceError(
            f"Version {version} of Delta table {self._uri} has a deletion vector for {path}: some rows of the file are "
            f"deleted, and penstock cannot tell which. Rewrite such files with REORG TABLE … APPLY (PURGE)."
        )

    def _replayed(self, version: int, kinds: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The actions of some kinds that make a version: those of a checkpoint, then those of commits after it.

        A commit's removals come first: what it adds is there after it.
        """
        before = max((number for number in self._checkpoints if number <= version), default=None)
        commits = range(0 if before is None else before + 1, version + 1)
        gone = [number for number in commits if number not in self._commits]
        if gone:
            raise SourceError(
                f"Version {version} of Delta table {self._uri} is no longer available: commit {gone[0]} is not in its "
                f"log, which is cleaned up after a time (delta.logRetentionDuration). {_ANEW}"
            )
        if before is not None:
            yield from self._checkpointed(before, kinds)
        for number in commits:
            actions = self._actions(number)
            for kind in kinds:
                yield from ((kind, action[kind]) for action in actions if kind in action)

    def _actions(self, version: int) -> list[dict[str, Any]]:
        """What a commit did."""
        path = f"{self._root}/{LOG}/{version:020d}.json"
        try:
            with self._system.open_input_stream(path) as source:
                content = source.read()
        except FileNotFoundError as gone:
            raise SourceError(
                f"Commit {version} of Delta table {self._uri} is gone: {path}. Logs are cleaned up after a time "
                f"(delta.logRetentionDuration). Put the file back and start the flow again. Or: {_ANEW}"
            ) from gone
        return _parsed(path, content)

    def _checkpointed(self, version: int, kinds: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The actions of some kinds in a checkpoint. What it says of removed files is for VACUUM alone."""
        wanted = [kind for kind in kinds if kind != "remove"]
        beside: list[str] = []
        for name in self._checkpoints[version]:
            for kind, action in self._read_part(f"{self._root}/{LOG}/{name}", [*wanted, "sidecar"]):
                if kind == "sidecar":
                    beside.append(f"{self._root}/{LOG}/_sidecars/{unquote(action['path'])}")
                else:
                    yield kind, action
        for path in beside:
            yield from self._read_part(path, wanted)

    def _read_part(self, path: str, kinds: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        try:
            if path.endswith(".json"):
                with self._system.open_input_stream(path) as source:
                    actions = _parsed(path, source.read())
                yield from ((kind, action[kind]) for action in actions for kind in kinds if kind in action)
                return
            names = [name for kind in kinds for name in ([f"add.{n}" for n in _OF_FILES] if kind == "add" else [kind])]
            with self._system.open_input_file(path) as source, pq.ParquetFile(source) as file:
                for batch in file.iter_batches(1 << 14, columns=names):
                    for kind in kinds:
                        if kind in batch.schema.names:
                            column = batch.column(kind)
                            yield from ((kind, action) for action in column.filter(column.is_valid()).to_pylist())
        except (pa.ArrowInvalid, OSError) as wrong:
            raise SourceError(f"Checkpoint {path} of a Delta table cannot be read: {wrong}") from wrong

    @cached_property
    def _names(self) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{LOG}", allow_not_found=True)
        return sorted(info.base_name for info in self._system.get_file_info(selector) if info.type == fs.FileType.File)

    @cached_property
    def _commits(self) -> frozenset[int]:
        return frozenset(int(found[1]) for found in map(_COMMIT.fullmatch, self._names) if found)

    @cached_property
    def _checkpoints(self) -> dict[int, list[str]]:
        """The files of each checkpoint that is complete."""
        parts: dict[tuple[int, int], list[str]] = {}
        for found in filter(None, map(_CHECKPOINT.fullmatch, self._names)):
            parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(found[0])
        # Of several checkpoints of one version any will do.
        return {
            version: names if count > 1 else names[:1]
            for (version, count), names in sorted(parts.items())
            if len(names) >= count
        }


def _parsed(path: str, content: bytes) -> list[dict[str, Any]]:
    lines = [line for line in content.split(b"\n") if line.strip()]
    try:
        actions = [{kind: told for kind, told in json.loads(line).items() if told is not None} for line in lines]
    except (ValueError, AttributeError) as torn:
        raise SourceError(
            f"{path} of a Delta table is damaged or cut off: {torn}. Put the whole file there and start the flow again."
        ) from torn
    if not actions:
        raise SourceError(f"{path} of a Delta table is empty. Put the whole file there and start the flow again.")
    return actions


def _key(action: Mapping[str, Any]) -> tuple[str, str]:
    """What tells a file of a table from others: the path, and which of its rows do not count."""
    vector = action.get("deletionVector") or {}
    return str(action["path"]), "".join(str(vector.get(part, "")) for part in _OF_VECTORS)


_OF_VECTORS = ("storageType", "pathOrInlineDv", "offset")


def _located(uri: str, path: str) -> str:
    """Where a file of a table is, by its path in the log, which is escaped as URIs are.

    >>> _located("/t", "p=a%252Fb/x%20y"), _located("s3://b/t/", "p=a%252Fb/x"), _located("/t", "file:///u/x%20y")
    ('/t/p=a%2Fb/x y', 's3://b/t/p=a%252Fb/x', '/u/x y')
    """
    whole = path if "://" in path or path.startswith(("file:", "/")) else None
    if whole is not None:
        return unquote(whole) if whole.startswith("/") else local_path(whole) or whole
    folder = local_path(uri)
    return f"{uri.rstrip('/')}/{path}" if folder is None else f"{folder.rstrip('/')}/{unquote(path)}"


def _field(part: Mapping[str, Any]) -> pa.Field:
    return pa.field(part["name"], _type(part["type"], part["name"]))


def _type(written: Any, column: str) -> pa.DataType:
    """A type as the log of a table writes it.

    >>> _type("decimal(10,2)", "price"), _type({"type": "array", "elementType": "timestamp"}, "times")
    (Decimal128Type(decimal128(10, 2)), ListType(list<item: timestamp[us, tz=UTC]>))
    """
    if isinstance(written, str):
        decimal = re.fullmatch(r"decimal\((\d+), *(\d+)\)", written)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if written in _TYPES:
            return _TYPES[written]()
    elif written["type"] == "struct":
        return pa.struct([_field(part) for part in written["fields"]])
    elif written["type"] == "array":
        return pa.list_(_type(written["elementType"], column))
    elif written["type"] == "map":
        return pa.map_(_type(written["keyType"], column), _type(written["valueType"], column))
    raise ConfigError(
        f"Column {column!r} is of type {written}, which penstock cannot read. Leave it out: name the columns that the "
        f"flow needs with schema=."
    )


_TYPES: Mapping[str, Callable[[], pa.DataType]] = {
    "string": pa.string,
    "byte": pa.int8,
    "short": pa.int16,
    "integer": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "boolean": pa.bool_,
    "binary": pa.binary,
    "date": pa.date32,
    "timestamp": lambda: pa.timestamp("us", "UTC"),
    "timestamp_ntz": lambda: pa.timestamp("us"),
}
