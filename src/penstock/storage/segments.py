"""Segments: rows of a source that cannot be read again, written once as Arrow files in the checkpoint.

An attempt at writing those of an epoch has a folder of its own, and each task, and each run of it, a file of its own
there. A file has its name only once it is whole and on the disk; the name ends in its size and checksum. So what dead
attempts and repeated tasks leave is never taken for what counts: a record names that (`storage.payload`).
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from pyarrow import fs

from penstock.core.errors import StateError
from penstock.storage.files import delete_own, find_folder, listed, open_folder, sync_file, sync_folder

_BATCH = 1 << 19
"""Bytes from which on the rows that wait are written as a batch of their segment."""

_FOLDER = re.compile(r"(\d{12,})-[0-9a-f]{8}")
_SEGMENT = re.compile(r"\d{5,}-[0-9a-f]{12}-(\d+)-([0-9a-f]{8})\.arrow")
_DRAFT = re.compile(r"\.\d{5,}-[0-9a-f]{12}\.draft")
"""Names of the folders of segments, of segments, and of those that are not finished."""

_CHUNK = 1 << 20
"""Bytes of a file that are looked at at a time."""


class Segment(NamedTuple):
    """A segment that is written: where it is, and how many rows it has."""

    path: str
    rows: int

    @property
    def nbytes(self) -> int:
        """The bytes of its file."""
        return about_segment(self.path)[0]


def folder_name(first: int) -> str:
    """The name of a new folder for the segments that are numbered from `first` on; no other attempt has it."""
    return f"{first:012d}-{uuid.uuid4().hex[:8]}"


def first_in(name: str) -> int | None:
    """From which number on the segments of a folder are numbered; None for a name that no attempt gives.

    >>> first_in("000000000007-0badc0de"), first_in("000000000007.json")
    (7, None)
    """
    found = _FOLDER.fullmatch(name)
    return int(found[1]) if found else None


def about_segment(path: str) -> tuple[int, int]:
    """The size and the checksum that a segment has, by its name.

    >>> about_segment("/checkpoint/payload/s/000000000000-0badc0de/00001-0123456789ab-512-0000002a.arrow")
    (512, 42)
    """
    found = _SEGMENT.fullmatch(path.rpartition("/")[2])
    if found is None:
        raise StateError.corrupt(path, "its name is not that of a segment")
    return int(found[1]), int(found[2], 16)


class SegmentWriter:
    """Writes a segment of one task, batch by batch; `part` is the number of the task.

    >>> import tempfile
    >>> writer = SegmentWriter(tempfile.mkdtemp(), 0, pa.schema({"n": pa.int64()}))
    >>> writer.write(pa.table({"n": [1, 2]}))
    >>> writer.close().rows
    2
    """

    def __init__(self, folder: str, part: int, columns: pa.Schema) -> None:
        self._files, self._folder = open_folder(folder)
        self._uri = folder.rstrip("/")
        self._name = f"{part:05d}-{uuid.uuid4().hex[:12]}"
        self._draft = f"{self._folder}/.{self._name}.draft"
        self._columns = columns
        self._sink = self._files.open_output_stream(self._draft)
        self._writer = pa.ipc.new_file(self._sink, columns)
        self._held: list[pa.Table] = []
        self._waiting = 0
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        self._held.append(rows)
        self._waiting += rows.nbytes
        self._rows += rows.num_rows
        if self._waiting >= _BATCH:
            self._flush()

    def close(self) -> Segment | None:
        """Give the segment its name, once it survives a power cut; None if it has no rows."""
        self._flush()
        self._writer.close()
        self._sink.close()
        if not self._rows:
            delete_own(self._files, self._draft)
            return None
        size, checksum = 0, 0
        with self._files.open_input_stream(self._draft) as source:
            for chunk in _chunks(source):
                size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
        name = f"{self._name}-{size}-{checksum:08x}.arrow"
        local = isinstance(self._files, fs.LocalFileSystem)
        if local:
            sync_file(self._draft)
        self._files.move(self._draft, f"{self._folder}/{name}")
        if local:
            sync_folder(self._folder)
        return Segment(f"{self._uri}/{name}", self._rows)

    def _flush(self) -> None:
        if not self._held:
            return
        whole = pa.concat_tables(self._held).combine_chunks()
        self._held, self._waiting = [], 0
        self._writer.write_table(pa.table(whole.columns, schema=self._columns))


def check_segment(path: str) -> None:
    """Raise unless a segment is what was written."""
    files, place = find_folder(path)
    size, checksum = about_segment(path)
    found = files.get_file_info(place)
    if found.type != fs.FileType.File:
        raise StateError.missing(path)
    if found.size != size:
        raise StateError.corrupt(path, f"it has {found.size} bytes instead of {size}")
    with files.open_input_stream(place) as source:
        _compare(path, _chunks(source), checksum)


def copied_segment(path: str, to: str) -> None:
    """Copy a segment to a local disk if it is what was written; else raise."""
    files, place = find_folder(path)
    size, checksum = about_segment(path)
    try:
        with files.open_input_stream(place) as source, open(to, "wb") as sink:
            _compare(path, _tee(_chunks(source), sink), checksum)
    except FileNotFoundError as gone:
        raise StateError.missing(path) from gone
    if os.path.getsize(to) != size:
        raise StateError.corrupt(path, f"it has {os.path.getsize(to)} bytes instead of {size}")


def _compare(path: str, chunks: Iterator[bytes], expected: int) -> None:
    checksum = 0
    for chunk in chunks:
        checksum = zlib.crc32(chunk, checksum)
    if checksum != expected:
        raise StateError.corrupt(path, "its checksum differs")


def _tee(chunks: Iterator[bytes], sink: BinaryIO) -> Iterator[bytes]:
    for chunk in chunks:
        sink.write(chunk)
        yield chunk


def _chunks(source: pa.NativeFile) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK):
        yield chunk


def delete_segments(folder: str, kept: frozenset[str] = frozenset()) -> tuple[int, int]:
    """Delete segments of a folder, finished or not, but for some; how many there were, and their bytes.

    The folder goes if nothing is to be kept or left in it, so that a missing segment can be put back where it was. What
    has another name stays, and so do links.
    """
    files, root = find_folder(folder)
    count = size = 0
    local = isinstance(files, fs.LocalFileSystem)
    if local and os.path.islink(root):
        return 0, 0
    for name in listed(files, root):
        path = f"{root}/{name}"
        if name in kept or not (_SEGMENT.fullmatch(name) or _DRAFT.fullmatch(name)) or (local and os.path.islink(path)):
            continue
        count, size = count + 1, size + int(files.get_file_info(path).size or 0)
        delete_own(files, path)
    if not kept and not listed(files, root) and files.get_file_info(root).type == fs.FileType.Directory:
        files.delete_dir(root)
    return count, size
