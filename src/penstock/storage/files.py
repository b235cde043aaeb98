"""Pages as Arrow IPC files under a pyarrow.fs URI; local ones are memory-mapped and cost no private memory.

A file's name ends in its size and checksum, so that a page can be checked with nothing but its name. Each process
checks a file once, when it first reads it, and again if the file changes under it.

A segment of pages may be kept elsewhere. Its pages have whole paths or URIs for names, so that whoever knows a name
knows where it is.
"""

from __future__ import annotations

import os
import posixpath
import re
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyarrow import fs

from penstock.core.absent import with_absent, without_absent
from penstock.core.errors import ConfigError, StateError

_REMEMBERED = 1 << 14
"""So many files are remembered at most."""

_CHECKED = np.full((_REMEMBERED, 2), 0, np.int64)
"""Files this process has checked or written: hashes of their paths, and of their sizes and times of change.

A file has one place here, by the hash of its path, and takes it from the one that was there before. All of it is
written at once, so that it is there before anything is measured.
"""

_OPEN = 128
"""Files that a store keeps open, at most;"""

_OPEN_FILE = 1 << 12
"""bytes that each of them takes, about;"""

_OPEN_PART = 32
"""and the part of a task's share that they may take."""

_ALIAS = re.compile("^s3[an]://")
"""What Hadoop calls addresses that pyarrow writes s3://."""

_PAGE = re.compile(r"(\d{8,})-\d{5,}-[0-9a-f]{12}-\d+-[0-9a-f]{8}\.arrow")
_DRAFT = re.compile(r"\.(\d{8,})-\d{5,}-[0-9a-f]{12}\.draft")
"""Names of pages that the tasks of an epoch have written, and of those that they have not finished."""


class FilePages:
    """Keeps batches as files ``<prefix>-<unique>-<size>-<crc>.arrow`` in one folder.

    `elsewhere` names other places for some segments; there, too, the pages have a folder of their own. Where a task has
    a small `share` of memory, fewer files stay open.

    >>> import tempfile
    >>> store = FilePages(tempfile.mkdtemp())
    >>> name = store.put(pa.record_batch({"n": pa.array([1, 2])}))
    >>> store.get(name).column("n").to_pylist()
    [1, 2]
    """

    def __init__(
        self,
        uri: str,
        prefix: str = "page",
        errors: type[StateError] = StateError,
        elsewhere: Mapping[str, str] | None = None,
        share: int | None = None,
    ) -> None:
        self._files, self._folder = open_folder(uri)
        self._open = _OPEN if share is None else min(_OPEN, share // _OPEN_PART // _OPEN_FILE)
        self._elsewhere = {segment: folder_for(uri, place) for segment, place in (elsewhere or {}).items()}
        self._others: dict[str, FilePages] = {}
        self._local = isinstance(self._files, fs.LocalFileSystem)
        self._prefix = prefix
        self._errors = errors
        self._written: set[str] = set()
        self._unsynced: set[str] = set()
        self._touched: dict[str, int] = {}
        self._mapped: dict[str, pa.RecordBatch] = {}
        self._bytes_written = 0

    @property
    def local(self) -> bool:
        """Whether pages are mapped, and take no private memory."""
        return self._local

    @property
    def bytes_written(self) -> int:
        """Bytes of the pages put here."""
        return self._bytes_written + sum(other.bytes_written for other in self._others.values())

    @property
    def bytes_read(self) -> int:
        """Bytes of the pages that were asked for, each counted once."""
        return sum(self._touched.values()) + sum(other.bytes_read for other in self._others.values())

    def put(self, rows: pa.RecordBatch, segment: str = "main") -> str:
        """Write `rows` beside, check-sum them, and give them their name by renaming. A file is a segment by itself."""
        if segment in self._elsewhere:
            folder = self._elsewhere[segment]
            return f"{folder}/{self._other(folder).put(rows)}"
        draft = f"{self._folder}/.{self._prefix}-{uuid.uuid4().hex[:12]}.draft"
        kept = without_absent(rows)
        with self._files.open_output_stream(draft) as sink, pa.ipc.new_file(sink, kept.schema) as writer:
            writer.write_batch(kept)
        content = self._content(draft)
        name = f"{self._prefix}-{uuid.uuid4().hex[:12]}-{content.size}-{zlib.crc32(content):08x}.arrow"
        path = self._path(name)
        self._files.move(draft, path)
        if self._local:
            _remember(path)
        self._written.add(name)
        self._unsynced.add(name)
        self._bytes_written += content.size
        return name

    def get(self, name: str) -> pa.RecordBatch:
        """Map the file (or fetch it, if it is not local) and check it; some stay mapped."""
        folder, name = split_name(name)
        if folder:
            return self._other(folder).get(name)
        path = self._path(name)
        if name in self._mapped and _unchanged(path):
            return self._mapped[name]
        try:
            content = self._content(path)
        except FileNotFoundError as missing:
            raise self._errors.missing(path) from missing
        self._check(path, name, content)
        self._touched[name] = content.size
        try:
            rows = with_absent(pa.ipc.open_file(content).get_batch(0))
            if self._local:
                self._keep_open(name, rows)
            return rows
        except (pa.ArrowInvalid, OSError, IndexError) as broken:
            raise self._errors.corrupt(path, str(broken)) from broken

    def drop(self, name: str) -> None:
        """Delete the file if this store wrote it; older ones may belong to a version that can still be needed."""
        folder, name = split_name(name)
        if folder:
            self._other(folder).drop(name)
            return
        if name in self._written:
            self._written.discard(name)
            self._unsynced.discard(name)
            self._mapped.pop(name, None)
            _forget(self._path(name))
            self._files.delete_file(self._path(name))

    def sync(self) -> None:
        """Make the pages that this store wrote, and has not dropped, survive a power cut; on object stores they do."""
        for other in self._others.values():
            other.sync()
        if self._local and self._unsynced:
            for name in self._unsynced:
                sync_file(self._path(name))
            sync_folder(self._folder)
            self._unsynced.clear()

    def _other(self, folder: str) -> FilePages:
        if folder not in self._others:
            self._others[folder] = FilePages(folder, self._prefix, self._errors)
        return self._others[folder]

    def _keep_open(self, name: str, rows: pa.RecordBatch) -> None:
        """An open file costs some kilobytes and saves a tenth of a millisecond: some stay so.

        The first, not the latest: joins go round and round over their pages, and of those that do not all fit the
        latest would always be the wrong ones.
        """
        if len(self._mapped) < self._open:
            self._mapped[name] = rows

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _content(self, path: str) -> pa.Buffer:
        if not self._local:
            with self._files.open_input_file(path) as source:
                return source.read_buffer()
        if not os.path.getsize(path):
            return pa.py_buffer(b"")
        with pa.memory_map(path) as source:
            return source.read_buffer()

    def _check(self, path: str, name: str, content: pa.Buffer) -> None:
        if self._local and _unchanged(path):
            return
        size, checksum = page_size(name), name.removesuffix(".arrow").rpartition("-")[2]
        if content.size != size:
            raise self._errors.corrupt(path, f"it has {content.size} bytes, {size} were written")
        if zlib.crc32(content) != int(checksum, 16):
            raise self._errors.corrupt(path, "its checksum differs")
        if self._local:
            _remember(path)


def folder_for(uri: str, place: str) -> str:
    """The folder at another `place` for pages of a store at `uri`: two stores never share one.

    >>> folder_for("/checkpoint/state/lookup0", "s3://bucket/shed/")
    's3://bucket/shed/lookup0-241e9ff5'
    """
    uri = uri.rstrip("/")
    place = place if "://" in place or place.startswith("file:") else os.path.abspath(place)
    return f"{place.rstrip('/')}/{uri.rpartition('/')[2]}-{zlib.crc32(uri.encode()):08x}"


def split_name(name: str) -> tuple[str, str]:
    """A page's folder, which is empty for the store's own, and its name there.

    >>> split_name("s3://bucket/shed/page-1.arrow"), split_name("page-1.arrow")
    (('s3://bucket/shed', 'page-1.arrow'), ('', 'page-1.arrow'))
    """
    folder, _, rest = name.rpartition("/")
    return folder, rest


def page_size(name: str) -> int:
    """How many bytes the file of a page has.

    >>> page_size("page-0123456789ab-512-0badc0de.arrow")
    512
    """
    return int(name.split("-")[-2])


def page_epoch(name: str) -> int | None:
    """The epoch whose tasks wrote a page, finished or not; None for a name that no task gives.

    >>> page_epoch("00000007-00001-0123456789ab-512-0badc0de.arrow"), page_epoch("flow.json")
    (7, None)
    """
    found = _PAGE.fullmatch(name) or _DRAFT.fullmatch(name)
    return int(found[1]) if found else None


def listed(files: fs.FileSystem, folder: str) -> list[str]:
    """The names in a folder; none if it is not there.

    >>> listed(fs.LocalFileSystem(), "/nowhere/at/all")
    []
    """
    return [info.base_name for info in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))]


def delete_own(files: fs.FileSystem, path: str) -> None:
    """Delete a file that the caller knows by its name as one of ours. A link is not: it stays, and is not followed.

    >>> delete_own(fs.LocalFileSystem(), "/nowhere/at/all")
    """
    if isinstance(files, fs.LocalFileSystem):
        if not os.path.islink(path) and not os.path.isdir(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
    elif files.get_file_info(path).type == fs.FileType.File:
        files.delete_file(path)


def sync_file(path: str) -> None:
    """Make the content of a local file survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Make the names in a local folder survive a power cut, where folders can be opened."""
    if os.name == "posix":
        sync_file(path)


def sync_tree(uri: str) -> None:
    """Make a folder with everything in it survive a power cut, if it is local and there.

    >>> sync_tree("/nowhere/at/all")
    """
    files, root = find_folder(uri)
    if isinstance(files, fs.LocalFileSystem) and os.path.isdir(root):
        for folder, _, names in os.walk(root):
            for name in names:
                sync_file(os.path.join(folder, name))
            sync_folder(folder)
        sync_folder(os.path.dirname(root))


def open_folder(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system and path of a folder given as a path or URI, made if it is not there.

    >>> open_folder("/tmp")[1]
    '/tmp'
    """
    files, path = find_folder(uri)
    files.create_dir(path, recursive=True)
    return files, path


def make_folder(uri: str, given: str) -> None:
    """Make a folder that will be written to, or refuse it; `given` is the argument that asked for it.

    >>> make_folder("/tmp", "to='/tmp'")
    """
    remedy = "Write a folder that every process of the flow can write to."
    try:
        files, path = open_folder(uri)
    except (OSError, ConfigError) as error:
        raise ConfigError(f"{given} cannot be written to: {error} {remedy}") from error
    if isinstance(files, fs.LocalFileSystem) and not os.access(path, os.W_OK):
        raise ConfigError(f"{given} cannot be written to: {path} is read-only. {remedy}")


def path_of(place: str | os.PathLike[str], argument: str) -> str:
    """What was written as a path or URI, as text; `argument` is what the error message calls it.

    >>> from pathlib import Path
    >>> path_of(Path("/data/customers"), "path")
    '/data/customers'
    """
    if not isinstance(place, str | os.PathLike):
        raise ConfigError(
            f"{argument}={place!r} is neither a path nor a URI. Write one, as in '/data/customers' or "
            f"'s3://bucket/customers'."
        )
    if not os.fspath(place):
        raise ConfigError(f"{argument}='' names no folder. Write a path, as in '/data/customers'.")
    return os.fspath(place)


def whole_path(place: str) -> str:
    """A path from the root; a URI as it is. What else runs a flow may be in another folder, or be led to one.

    >>> whole_path("s3://bucket/in"), whole_path("/data/../in")
    ('s3://bucket/in', '/in')
    """
    return place if "://" in place or place.startswith("file:") else os.path.abspath(place)


def find_folder(uri: str) -> tuple[fs.FileSystem, str]:
    """The same of a folder that may not be there, which is left so.

    >>> find_folder("file:///nowhere/at/all/")[1]
    '/nowhere/at/all'
    """
    if "://" not in uri and not uri.startswith("file:"):
        uri = os.path.abspath(uri)
    uri = _ALIAS.sub("s3://", uri)
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{uri!r} is not in a file system that pyarrow supports ({error}). Write a path, or a URI such as "
            f"'s3://bucket/customers'."
        ) from error
    return files, path.rstrip("/")


def is_within(inner: str, outer: str) -> bool:
    """Whether a folder is another one, or in it, by the paths or URIs that they are written as.

    >>> is_within("file:///out/paid/", "/out"), is_within("s3a://b/out", "s3://b/out"), is_within("/outer", "/out")
    (True, True, False)
    """
    (there, path), (where, folder) = _located(inner), _located(outer)
    return there == where and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))


def is_hidden_in(inner: str, outer: str) -> bool:
    """Whether a folder in another one is passed by when that is read: some name on the way begins with _ or a dot.

    >>> is_hidden_in("/in/_out/x", "/in"), is_hidden_in("/in/out", "/in"), is_hidden_in("/in/_k=1", "/in")
    (True, False, False)
    """
    return is_hidden(_located(inner)[1][len(_located(outer)[1]) :].strip("/"))


def is_hidden(below: str) -> bool:
    """Whether Spark passes by what is at a path below a folder that it reads: some name begins with _ or a dot.

    >>> is_hidden("a/_SUCCESS"), is_hidden("_k=1/a")
    (True, False)
    """
    return any(name[:1] == "." or (name[:1] == "_" and "=" not in name) for name in below.split("/"))


def _located(uri: str) -> tuple[str, str]:
    """The store of a folder, empty for this machine, and its path there without links and detours."""
    path = local_path(uri)
    if path is not None:
        return "", os.path.realpath(path)
    parts = urlsplit(_ALIAS.sub("s3://", uri))
    return f"{parts.scheme}://{parts.netloc}", posixpath.normpath(parts.path or "/")


def local_path(uri: str) -> str | None:
    """The path of a file or folder on this machine, by its path or URI; None if it is elsewhere.

    >>> local_path("file:///in/a%20b.json"), local_path("in/a%20b.json"), local_path("s3a://bucket/a.json")
    ('/in/a b.json', 'in/a%20b.json', None)
    """
    if "://" not in uri and not uri.startswith("file:"):
        return uri
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else None


def is_local(uri: str) -> bool:
    """Whether a folder is on this machine, so that its files can be mapped.

    >>> is_local("/nowhere/at/all")
    True
    """
    return isinstance(find_folder(uri)[0], fs.LocalFileSystem)


def _remember(path: str) -> None:
    _CHECKED[hash(path) % _REMEMBERED] = hash(path), _stamp(path)


def _forget(path: str) -> None:
    if _CHECKED[hash(path) % _REMEMBERED, 0] == hash(path):
        _CHECKED[hash(path) % _REMEMBERED] = 0


def _unchanged(path: str) -> bool:
    """Whether this process has checked a file, and nobody touched it since."""
    try:
        path_hash, stamp = _CHECKED[hash(path) % _REMEMBERED].tolist()
        return bool(path_hash == hash(path) and stamp == _stamp(path))
    except FileNotFoundError:
        return False


def _stamp(path: str) -> int:
    stat = os.stat(path)
    return hash((stat.st_size, stat.st_mtime_ns))
