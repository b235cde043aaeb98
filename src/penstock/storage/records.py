"""Small JSON files that are written atomically, survive a power cut, and are refused if a byte has changed.

The last line of a record is its seal: size and checksum of what stands before it. The record's own name goes into the
checksum, so that a record copied over another one is refused like one that was changed.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from pyarrow import fs

from penstock.core.errors import StateError
from penstock.storage.files import delete_own, listed, open_folder, sync_file, sync_folder

Create = Callable[[str, bytes], bool]
"""Makes a file at a path or URI with some content, unless there is one already; whether it did."""

_BUFFER = 1 << 16
"""Bytes that are written at once."""


class Records:
    """The records in a folder and the folders in it, by name.

    `create` makes a file only if there is none, for file systems that are not local; there pyarrow has no such call.

    >>> import tempfile
    >>> records = Records(tempfile.mkdtemp())
    >>> records.write("plan/1.json", {"n": 1})
    >>> records.read("plan/1.json"), records.read("plan/2.json")
    ({'n': 1}, None)
    >>> records.create("plan/1.json", {"n": 2})
    False
    """

    def __init__(self, uri: str, create: Create | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.files, self.root = open_folder(self.uri)
        self.local = isinstance(self.files, fs.LocalFileSystem)
        self._create = create

    def path(self, name: str) -> str:
        """Where a record is, in its file system."""
        return f"{self.root}/{name}"

    def content(self, name: str) -> bytes | None:
        """The bytes of a file, whatever it is; None if it is not there."""
        try:
            with self.files.open_input_stream(self.path(name)) as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None

    def read(self, name: str) -> dict[str, Any] | None:
        """A record as it was written; None if there is none."""
        content = self.content(name)
        return None if content is None else self.unseal(name, content)

    def unseal(self, name: str, content: bytes) -> dict[str, Any]:
        """A record from its bytes, or an error if they are not those that were written under this name."""
        body, _, seal = content.removesuffix(b"\n").rpartition(b"\n")
        if content[-1:] != b"\n" or seal != _seal(len(body), zlib.crc32(body, _seed(name))):
            raise StateError.corrupt(self.path(name), "its checksum differs")
        record: dict[str, Any] = json.loads(body)
        return record

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a record in place of whatever has its name; when this returns, it survives a power cut."""
        self._move(self._draft(name, [as_text(record)]), name)
        self.sync(name.rpartition("/")[0])

    def write_parts(self, name: str, parts: Iterable[str]) -> None:
        """Write a record given in pieces. It may be lost in a power cut: for what only the running attempt reads."""
        self._move(self._draft(name, parts, lasting=False), name)

    def create(self, name: str, record: Mapping[str, Any]) -> bool:
        """Write a record unless there is one already, of whatever content; whether it was written.

        Of several processes that try at the same time one succeeds. It survives a power cut, as by `write`.
        """
        if not self.local:
            content = b"".join(_sealed(name, [as_text(record)]))
            return self._create(f"{self.uri}/{name}", content) if self._create else self._create_if_none(name, content)
        draft = self._draft(name, [as_text(record)])
        try:
            os.link(draft, self.path(name))
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        self.sync(name.rpartition("/")[0])
        return True

    def delete(self, name: str) -> None:
        """Delete a file that is ours, if it is there."""
        delete_own(self.files, self.path(name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder if nothing is in it."""
        path = self.path(name)
        if self.local:
            with suppress(OSError):
                os.rmdir(path)
        elif not self.list(name) and self.files.get_file_info(path).type == fs.FileType.Directory:
            self.files.delete_dir(path)

    def list(self, folder: str) -> list[str]:
        """What is in a folder; nothing if it is not there."""
        return listed(self.files, self.path(folder))

    def sync(self, folder: str) -> None:
        """Make names in a folder survive a power cut, if it is there."""
        path = self.path(folder).rstrip("/")
        if self.local and os.path.isdir(path):
            sync_folder(path)

    def _draft(self, name: str, parts: Iterable[str], lasting: bool = True) -> str:
        """Write a sealed record beside its place, and give back where."""
        draft = f"{self.path(name)}.{uuid.uuid4().hex[:12]}.draft"
        self._make_folder(draft.rpartition("/")[0])
        with self.files.open_output_stream(draft, buffer_size=_BUFFER) as sink:
            for piece in _sealed(name, parts):
                sink.write(piece)
        if self.local and lasting:
            sync_file(draft)
        return draft

    def _move(self, draft: str, name: str) -> None:
        self.files.move(draft, self.path(name))

    def _make_folder(self, path: str) -> None:
        if self.local and os.path.isdir(path):
            return
        self.files.create_dir(path, recursive=True)
        if self.local:
            sync_folder(os.path.dirname(path))

    def _create_if_none(self, name: str, content: bytes) -> bool:
        """The same where nobody said how: two processes within milliseconds of each other may both succeed."""
        if self.files.get_file_info(self.path(name)).type != fs.FileType.NotFound:
            return False
        with self.files.open_output_stream(self.path(name)) as sink:
            sink.write(content)
        return True


def as_text(record: Any) -> str:
    """A record as JSON, in few bytes and one line."""
    return json.dumps(record, separators=(",", ":"))


def _sealed(name: str, parts: Iterable[str]) -> Iterable[bytes]:
    size, checksum = 0, _seed(name)
    for part in parts:
        piece = part.encode()
        size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        yield piece
    yield b"\n" + _seal(size, checksum) + b"\n"


def _seal(size: int, checksum: int) -> bytes:
    return f'{{"bytes":{size},"crc32":"{checksum:08x}"}}'.encode()


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())
