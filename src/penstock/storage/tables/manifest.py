"""The versions of a page table: a small file for each, committed by giving it its name.

    versions/00000007.json    what version 7 is: columns, keys, how it is cut, and the names of the two pages below
    pages/00000007-….arrow    what version 7 wrote: rows, the list of its partitions, the keys that it changed

Pages never change. A version shares those of its partitions that it left alone with the versions before it.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import dataclass, field, fields
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from penstock.core.errors import ConfigError, TableError
from penstock.storage.files import FilePages, find_folder
from penstock.storage.tables.ranges import By

FORMAT = 1
"""The version of everything written here; another one is refused."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a page table is, whatever rows it has."""

    columns: pa.Schema
    keys: tuple[str, ...]
    by: By = "hash"
    partition_bytes: int = 1 << 20
    partition_rows: int | None = None
    page_bytes: int = 32 << 20

    def theta(self, rows: int, nbytes: int) -> int:
        """How many rows a partition has at least.

        >>> Layout(pa.schema({}), ("k",)).theta(rows=10_000, nbytes=1_200_000)
        8738
        """
        if self.partition_rows is not None:
            return self.partition_rows
        return max(1, self.partition_bytes * max(1, rows) // max(1, nbytes))

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        plain = {name: getattr(self, name) for name in ("by", "partition_bytes", "partition_rows", "page_bytes")}
        columns = base64.b64encode(self.columns.serialize().to_pybytes()).decode()
        return {"columns": columns, "keys": list(self.keys), **plain}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """From a manifest."""
        columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record["columns"])))
        return cls(**{**record, "columns": columns, "keys": tuple(record["keys"])})


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table."""

    version: int
    layout: Layout
    partitions: str
    """The page that lists its partitions."""
    rows: int
    nbytes: int
    null_keys: int
    """How many rows were left out in all, because a null key matches nothing."""
    unique: bool
    changed: str | None
    """The page with the keys that changed since the version before; None if any may have."""
    moved: int
    """The version in which a key last moved to another partition."""
    writer: str = field(default_factory=lambda: uuid4().hex)

    def to_bytes(self) -> bytes:
        """As a file: a line of JSON, and its checksum."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "layout"}
        line = json.dumps({"format": FORMAT, **plain, "layout": self.layout.to_json()}, separators=(",", ":")).encode()
        return line + b"\n%08x\n" % zlib.crc32(line)

    @classmethod
    def from_bytes(cls, content: bytes, path: str) -> Self:
        """From a file; it is checked."""
        line, _, rest = content.partition(b"\n")
        if rest.strip() != b"%08x" % zlib.crc32(line):
            raise TableError.corrupt(path, "its checksum differs")
        record = json.loads(line)
        written = record.pop("format")
        if written != FORMAT:
            raise TableError(
                f"{path} has format {written}, but this version of penstock reads {FORMAT}. Write the table again."
            )
        return cls(**{**record, "layout": Layout.from_json(record["layout"])})


class Versions:
    """The folder of a table.

    >>> import tempfile
    >>> Versions(tempfile.mkdtemp()).numbers()
    []
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._files, self._root = find_folder(self.uri)

    def numbers(self) -> list[int]:
        """The versions that are there, ascending."""
        selector = fs.FileSelector(f"{self._root}/versions", allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def read(self, version: str | None = None) -> Manifest:
        """A version, or the latest."""
        numbers = self.numbers()
        if not numbers:
            raise ConfigError(
                f"uri={self.uri!r} holds no page table. Write one with pk.write_page_table(rows, {self.uri!r}, keys=…)."
            )
        number = numbers[-1] if version is None else _number(version)
        if number not in numbers:
            raise TableError(
                f"Version {version} of table {self.uri} does not exist; it has {numbers[0]} to {numbers[-1]}. "
                f"Older ones were vacuumed: open a newer one, and vacuum with a larger keep= if readers need more "
                f"time. A flow that looks up in a snapshot stays with its version: write freshness='latest', or start "
                f"it with a new checkpoint."
            )
        found = self.find(number)
        if found is None:
            raise TableError.missing(self._path(number))
        return found

    def find(self, number: int) -> Manifest | None:
        """A version, if it is there."""
        path = self._path(number)
        try:
            with self._files.open_input_stream(path) as source:
                content = source.read()
        except FileNotFoundError:
            return None
        return Manifest.from_bytes(content, path)

    def pages(self, version: int | None = None) -> FilePages:
        """The pages; those that are written get the number of the version they are meant for."""
        return FilePages(f"{self.uri}/pages", f"{version or 0:08d}", TableError)

    def commit(self, manifest: Manifest) -> None:
        """Make a version the latest, if nobody else did; this is the moment it exists.

        On local disks the file system decides who was first. Elsewhere it is looked whether the version is there
        already, so two writers that commit within the same instant may not notice: let one write at a time.
        """
        path = self._path(manifest.version)
        draft = f"{path}.{manifest.writer}.draft"
        self._files.create_dir(f"{self._root}/versions", recursive=True)
        with self._files.open_output_stream(draft) as sink:
            sink.write(manifest.to_bytes())
        try:
            self._claim(draft, path)
        except FileExistsError as taken:
            self._files.delete_file(draft)
            raise TableError.conflict(self.uri, str(manifest.version - 1), str(self.numbers()[-1])) from taken

    def _claim(self, draft: str, path: str) -> None:
        if isinstance(self._files, fs.LocalFileSystem):
            os.link(draft, path)
            os.unlink(draft)
            return
        if self._files.get_file_info(path).type != fs.FileType.NotFound:
            raise FileExistsError(path)
        self._files.move(draft, path)

    def sweep(self, keep: int) -> tuple[int, int]:
        """Delete all but the last `keep` versions, and pages that none of those needs: how many files, and bytes.

        What is written for the version after the last stays: somebody may be at it.
        """
        numbers = self.numbers()
        for number in numbers[:-keep]:
            self._files.delete_file(self._path(number))
        if not numbers:
            return 0, 0
        needed = set().union(*(self._needs(number) for number in numbers[-keep:]))
        files = size = 0
        for info in self._files.get_file_info(fs.FileSelector(f"{self._root}/pages")):
            prefix = info.base_name.partition("-")[0]
            if prefix.isdecimal() and int(prefix) <= numbers[-1] and info.base_name not in needed:
                self._files.delete_file(info.path)
                files, size = files + 1, size + (info.size or 0)
        return files, size

    def _needs(self, number: int) -> set[str]:
        manifest = self.find(number)
        if manifest is None:
            return set()
        named = {manifest.partitions} | ({manifest.changed} if manifest.changed else set())
        return named | set(self.pages().get(manifest.partitions).column("page").to_pylist())

    def _path(self, number: int) -> str:
        return f"{self._root}/versions/{number:08d}.json"


def _number(version: str) -> int:
    if not version.isdecimal():
        raise ConfigError(f"version={version!r} is not a version of a page table. Write a number: '1', '2', ….")
    return int(version)
