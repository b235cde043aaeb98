"""What Spark itself records about a streaming query: which rows an epoch has, in offsets and in logs of its sources.

    spark/offsets/n       where each source was at the end of epoch n; a source of files says only a number
    spark/sources/s/k     which files that number stands for; k.compact has those of all before it, too
    spark/commits/n       that epoch n is done
    spark/metadata        the identity of the query, without which Spark refuses the rest

An epoch that is run again must have the same rows. Spark goes by these files alone and has no checksums that outlive a
restore from a backup, so plans and ledgers note what the files were.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping

from pyarrow import fs

from penstock.core.errors import CheckpointError
from penstock.storage.files import sync_file
from penstock.storage.records import Records

_NUMBER = re.compile(r"(\d+)(\.compact)?")

_SUMS = re.compile(r"\.(.+)\.crc")

_FILE_OFFSET = re.compile(rb'\{"logOffset":(-?\d+)\}')
"""How far a source of files is."""

_MOST = 64
"""Files of one source that are noted: the newest. Sources of files begin a new log after every tenth."""

Batch = Mapping[str, str]
"""What identifies the rows of an epoch: checksums of Spark's files, by name below ``spark/``."""


class SparkLog:
    """Spark's folder of a checkpoint."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._known: dict[str, str] = {}
        """Checksums of source logs that were read before: Spark never writes the same one twice."""
        self._unsynced: list[str] = []
        """What was noted, and may still be lost in a power cut."""

    @property
    def local(self) -> bool:
        """Whether reading these files takes no time to speak of."""
        return self._records.local

    def batch(self, epoch: int) -> dict[str, str]:
        """What identifies the rows that Spark brings for `epoch`. Once `keep` returns, it survives a power cut."""
        noted = {}
        sources = self._newest_sources()
        for name in [f"offsets/{epoch}", *(name for name in sources if name not in self._known)]:
            content = self._records.content(f"spark/{name}")
            if content is not None:
                noted[name] = _checksum(name, content)
        if not self._known and self._records.content("spark/metadata") is not None:
            self._unsynced += ["metadata", "sources/"]
        self._unsynced += noted
        known = {**self._known, **noted}
        self._known = {name: known[name] for name in sources if name in known}
        return {**noted, **self._known}

    def keep(self) -> None:
        """Make the files that were noted survive a power cut."""
        names, self._unsynced = self._unsynced, []
        if self._records.local:
            for name in names:
                if not name.endswith("/"):
                    sync_file(self._records.path(f"spark/{name}"))
            for folder in {f"spark/{name}".rpartition("/")[0] for name in names}:
                self._records.sync(folder)

    def compare(self, noted: Batch, epoch: int) -> None:
        """Raise if Spark's files are not those that were there when `epoch` was planned or committed."""
        for name, checksum in noted.items():
            content = self._records.content(f"spark/{name}")
            if content is None and self._is_compacted(name):
                continue
            now = None if content is None else _checksum(name, content)
            if now != checksum:
                raise CheckpointError.other_rows(self._records.uri, epoch, f"spark/{name}", checksum, now)

    def check(self) -> None:
        """Raise if a file that Spark reads when it starts is gone, cut off, or not what Hadoop's checksums say."""
        offsets, commits = self._numbered("offsets")[-2:], self._numbered("commits")[-1:]
        for name in ("metadata", *offsets, *commits):
            content = self._records.content(f"spark/{name}")
            if content is None and name == "metadata" and offsets:
                raise CheckpointError.damaged(self._records.uri, f"spark/{name}", "it is gone")
            if content is not None and _is_torn(name, content):
                raise CheckpointError.damaged(self._records.uri, f"spark/{name}", "it is cut off")
            self._check_sums(name, content)
        for name in self._newest_sources() if self._records.local else ():
            self._check_sums(name, self._records.content(f"spark/{name}"))

    def files(self, epoch: int) -> list[str]:
        """The URIs of the files that Spark gives `epoch`; of sources that are not folders it knows none."""
        return [uri for uris in (self.files_by_place(epoch) or {}).values() for uri in uris]

    def files_by_place(self, epoch: int) -> dict[int, list[str]] | None:
        """The same by the place of their source in the query; None if the log does not reach back to the last epoch."""
        before = self._file_offsets(epoch - 1) if epoch else {}
        if before is None:
            return None
        after = self._file_offsets(epoch) or {}
        numbers = {place: range(before.get(place, -1) + 1, last + 1) for place, last in after.items()}
        return {place: self._logged(place, some) for place, some in numbers.items() if some}

    def files_of(self, epoch: int, line: int, folder: int) -> list[str]:
        """The URIs of the files that Spark gives `epoch` of one source, by where its offsets and its own log are.

        A source that has given nothing yet has no offset.
        """
        before, after = self._known_offsets(epoch - 1) if epoch else {}, self._known_offsets(epoch)
        return self._logged(folder, range(before.get(line, -1) + 1, after.get(line, -1) + 1))

    def sources_in(self, epoch: int) -> int:
        """How many places of sources the offsets of an epoch have."""
        content = self._records.content(f"spark/offsets/{epoch}")
        return 0 if content is None else len(content.split(b"\n")) - 2

    def all_files(self, place: int, before: int | None = None) -> list[str]:
        """The URIs of all files that a source ever gave, or those that it gave epochs `before` one, in any order."""
        offsets = None if before is None else (self._file_offsets(before - 1) if before else {}) or {}
        last = None if offsets is None else offsets.get(place, -1)
        folder = f"spark/sources/{place}"
        found = [found for found in map(_NUMBER.fullmatch, self._records.list(folder)) if found]
        whole = max((int(each[1]) for each in found if each[2]), default=-1)
        logs = [each[0] for each in found if int(each[1]) > whole or (each[2] and int(each[1]) == whole)]
        contents = [self._records.content(f"{folder}/{name}") or b"" for name in logs]
        files = [json.loads(line) for content in contents for line in content.split(b"\n")[1:] if line]
        return [file["path"] for file in files if last is None or file["batchId"] <= last]

    def ahead(self, epoch: int) -> int | None:
        """An epoch after `epoch` that Spark has as done, if there is one."""
        done = max((int(name[8:]) for name in self._numbered("commits")), default=-1)
        return done if done > epoch else None

    def mend(self, epoch: int, noted: Batch) -> list[str]:
        """Delete what a power cut left of files that nothing depends on; Spark writes them again. Their names.

        Spark does not wait until its files are on disk. Those that `noted` names are, for we did. Of the others
        ``commits/n`` is not needed up to the committed `epoch`, whose rerun is skipped, and offsets and logs that are
        not noted are of an epoch that has not begun.
        """
        if not self._records.local:
            return []
        commits, offsets = self._numbered("commits"), self._numbered("offsets")
        torn = [name for name in commits if int(name[8:]) <= epoch and self._is_torn(name)]
        torn += [name for name in offsets if int(name[8:]) > epoch and name not in noted and self._is_torn(name)]
        torn += [name for name in self._newest_sources() if name not in noted and self._is_torn(name)]
        if epoch < 0 and not noted and (self._records.content("spark/metadata") is None or self._is_torn("metadata")):
            torn = ["metadata", *commits, *offsets, *self._newest_sources()]  # Spark refuses them without it.
            torn = [name for name in torn if self._records.content(f"spark/{name}") is not None]
        for name in torn:
            self._records.delete(f"spark/{name}")
        self._drop_lone_sums()
        return torn

    def _drop_lone_sums(self) -> None:
        """Delete checksums whose file is gone, torn or lost: Hadoop refuses to write a file beside old ones."""
        root = self._records.path("spark")
        infos = self._records.files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        paths = {info.path for info in infos if info.type == fs.FileType.File}
        for path in paths:
            folder, _, last = path.rpartition("/")
            found = _SUMS.fullmatch(last)
            if found and f"{folder}/{found[1]}" not in paths:
                self._records.delete(f"spark{path[len(root) :]}")

    def _check_sums(self, name: str, content: bytes | None) -> None:
        sums = self._records.content(_sums_of(name)) if self._records.local else None
        if content is not None and sums is not None and not _agrees(sums, content):
            raise CheckpointError.damaged(self._records.uri, f"spark/{name}", f"it disagrees with {_sums_of(name)}")

    def _numbered(self, folder: str) -> list[str]:
        """Files of offsets or commits, in the order of their epochs."""
        numbers = sorted(int(name) for name in self._records.list(f"spark/{folder}") if name.isdecimal())
        return [f"{folder}/{number}" for number in numbers]

    def _file_offsets(self, epoch: int) -> dict[int, int] | None:
        """The number of the last log that each source of files has in `epoch`, by its place; None if nobody knows."""
        content = self._records.content(f"spark/offsets/{epoch}")
        if content is None:
            return None
        lines = enumerate(content.split(b"\n")[2:])
        found = ((place, _FILE_OFFSET.fullmatch(line)) for place, line in lines)
        return {place: int(match[1]) for place, match in found if match}

    def _known_offsets(self, epoch: int) -> dict[int, int]:
        offsets = self._file_offsets(epoch)
        if offsets is None:
            raise CheckpointError.damaged(
                self._records.uri, f"spark/offsets/{epoch}", "it is gone, and tells which files are next"
            )
        return offsets

    def _logged(self, place: int, numbers: Collection[int]) -> list[str]:
        """The files that a source noted under some numbers: in a log of each, or in the next compact one."""
        folder = f"spark/sources/{place}"
        logs = sorted((int(f[1]), f[0]) for f in map(_NUMBER.fullmatch, self._records.list(folder)) if f)

        def log_of(number: int) -> str | None:
            return next((name for n, name in logs if n == number or (n > number and name.endswith(".compact"))), None)

        files: dict[str, None] = {}
        for name in dict.fromkeys(map(log_of, numbers)):
            content = self._records.content(f"{folder}/{name}") or b""
            files |= {json.loads(line)["path"]: None for number in numbers for line in _lines_of(number, content)}
        return list(files)

    def _is_torn(self, name: str) -> bool:
        content = self._records.content(f"spark/{name}")
        return content is not None and _is_torn(name, content)

    def _is_compacted(self, name: str) -> bool:
        """Whether the log of a source is gone because a later one has what it had."""
        folder, _, number = name.rpartition("/")
        if not folder.startswith("sources/"):
            return False
        newest = (_NUMBER.fullmatch(other) for other in self._records.list(f"spark/{folder}"))
        mine = _NUMBER.fullmatch(number)
        return mine is not None and any(f and f[2] and int(f[1]) >= int(mine[1]) for f in newest)

    def _newest_sources(self) -> list[str]:
        """The logs of the sources that Spark would go by: the last compact one and those after it."""
        root = self._records.path("spark/sources")
        infos = self._records.files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        folders: dict[str, list[tuple[int, bool, str]]] = {}
        for info in infos:
            found = _NUMBER.fullmatch(info.base_name)
            if found and info.type == fs.FileType.File:
                folder = info.path[len(root) :].rpartition("/")[0]
                folders.setdefault(folder, []).append((int(found[1]), bool(found[2]), info.base_name))
        names = []
        for folder, logs in sorted(folders.items()):
            first = max((number for number, compact, _ in logs if compact), default=0)
            newest = sorted(log for log in logs if log[0] >= first and (log[1] or log[0] > first or not first))
            names += [f"sources{folder}/{name}" for _, _, name in newest[-_MOST:]]
        return names


def _lines_of(number: int, log: bytes) -> Iterator[bytes]:
    """The lines of files that have a number in the log of a source; a compact log has one for every file ever read.

    >>> log = b'v1\\n{"path":"a","batchId":1}\\n{"path":"b","batchId":10}\\n{"path":"c","batchId":1}'
    >>> [json.loads(line)["path"] for line in _lines_of(1, log)]
    ['a', 'c']
    """
    for found in re.finditer(rb'"batchId":%d\b' % number, log):
        end = log.find(b"\n", found.end())
        yield log[log.rfind(b"\n", 0, found.start()) + 1 : end if end >= 0 else None]


def _is_torn(name: str, content: bytes) -> bool:
    """Whether a file is empty, or of lines of JSON of which the last is cut off."""
    if not content:
        return True
    first, *lines = [b"v1", content] if name == "metadata" else content.split(b"\n")
    if first != b"v1":
        return first == b"v" and not lines
    try:
        if name == "metadata":
            told = json.loads(content)
            return not isinstance(told, dict) or "id" not in told
        for line in lines:
            if line != b"-":  # a source that has given nothing yet
                json.loads(line)
    except ValueError:
        return True
    return not lines


def _sums_of(name: str) -> str:
    """Where Hadoop keeps the checksums of a file."""
    folder, _, last = f"spark/{name}".rpartition("/")
    return f"{folder}/.{last}.crc"


def _checksum(name: str, content: bytes) -> str:
    """Of offsets without their first lines, which tell the time and settings of an attempt."""
    told = b"\n".join(content.split(b"\n")[2:]) if name.startswith("offsets/") else content
    return f"{zlib.crc32(told):08x}"


def _agrees(sums: bytes, content: bytes) -> bool:
    """Whether the content of a file has the checksums that Hadoop noted; those that it would not read do not count.

    >>> _agrees(b"crc\\0" + (512).to_bytes(4, "big") + zlib.crc32(b"v1").to_bytes(4, "big"), b"v1")
    True
    """
    size = int.from_bytes(sums[4:8], "big", signed=True)
    if sums[:4] != b"crc\0" or size <= 0:
        return True
    chunks = (content[start : start + size] for start in range(0, len(content), size))
    return sums[8:] == b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
