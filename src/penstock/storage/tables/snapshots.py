"""Versions of a table that is files: which files they were, what is known of their keys, and where the indexes are."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.storage.tables.keyindex import FileIndex, Verdict, write_index

_REMEMBERED = 32
"""Of so many versions the list of files is kept, and with them their indexes."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the table as it was listed: where it is, its size, when it was changed."""

    path: str
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a version, and what is known of their keys."""

    files: tuple[DataFile, ...]
    verdict: Verdict = field(default=Verdict(), compare=False)

    @property
    def version(self) -> str:
        """The same for the same files only."""
        return digest([[file.path, file.size, file.changed] for file in self.files])


class IndexFolder:
    """Where the indexes of a table are, and the lists of files of its last versions."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(path, exist_ok=True)

    def index_of(self, file: DataFile) -> str:
        """The path of a file's index."""
        return os.path.join(self.path, f"{digest([file.path, file.size, file.changed])}.arrow")

    def has(self, file: DataFile) -> bool:
        """Whether a file is indexed."""
        return os.path.exists(self.index_of(file))

    def map(self, file: DataFile, read: Callable[[DataFile], pq.ParquetFile], keys: pa.Schema) -> FileIndex:
        """A file's index, made if there is none."""
        if not self.has(file):
            write_index(read(file), keys, self.index_of(file))
        return FileIndex(self.index_of(file))

    def recall(self, version: str) -> Snapshot | None:
        """The files of a version, if they are remembered."""
        try:
            with open(os.path.join(self.path, f"{version}.json"), encoding="utf-8") as source:
                held = json.load(source)
        except FileNotFoundError:
            return None
        return Snapshot(tuple(DataFile(**file) for file in held["files"]), Verdict(**held["verdict"]))

    def latest(self) -> Snapshot:
        """The files that were remembered last, none if nothing is."""
        versions = self._versions()
        return (self.recall(versions[-1]) if versions else None) or Snapshot(())

    def remember(self, snapshot: Snapshot) -> None:
        """Remember the files of a version, and forget the oldest with the indexes that no other needs."""
        draft = os.path.join(self.path, f"{uuid.uuid4().hex}.draft")
        with open(draft, "w", encoding="utf-8") as sink:
            held = {"files": [asdict(file) for file in snapshot.files], "verdict": asdict(snapshot.verdict)}
            json.dump(held, sink)
        os.replace(draft, os.path.join(self.path, f"{snapshot.version}.json"))
        versions = self._versions()
        if len(versions) > _REMEMBERED:
            self._forget(versions[:-_REMEMBERED], versions[-_REMEMBERED:])

    def _forget(self, versions: list[str], kept: list[str]) -> None:
        gone = {file for version in versions for file in self._files(version)}
        for file in gone - {file for version in kept for file in self._files(version)}:
            _remove(self.index_of(file))
        for version in versions:
            _remove(os.path.join(self.path, f"{version}.json"))

    def _files(self, version: str) -> tuple[DataFile, ...]:
        snapshot = self.recall(version)
        return () if snapshot is None else snapshot.files

    def _versions(self) -> list[str]:
        """The versions that are remembered, the latest last."""
        with os.scandir(self.path) as entries:
            held = [(entry.stat().st_mtime_ns, entry.name) for entry in entries if entry.name.endswith(".json")]
        return [name.removesuffix(".json") for _, name in sorted(held)]


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def digest(what: object) -> str:
    """A short name that only this has.

    >>> digest(["a", 1]) == digest(["a", 2])
    False
    """
    return hashlib.blake2b(json.dumps(what).encode(), digest_size=12).hexdigest()
