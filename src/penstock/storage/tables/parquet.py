"""A master table of Parquet files: one file, a folder whose files come and go, or a Delta table.

A partition is a row group, or several small ones together. Keys are found by an index that is built when the table is
first opened (`keyindex`). Rows with a null in their key are never returned.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.core.budget import Budget, ample, show_bytes
from penstock.core.errors import BudgetError, ConfigError, TableError
from penstock.core.kept import Kept
from penstock.core.master import Changes, TableSize, master_schema
from penstock.core.rows import Hashes, Indices, concat, hashes_of
from penstock.storage.files import find_folder, is_local, path_of
from penstock.storage.tables.arrow import distinct, sorted_master
from penstock.storage.tables.delta import DeltaLog, is_delta
from penstock.storage.tables.keyindex import (
    GROUP,
    ROW,
    FileIndex,
    KeyIndex,
    conform,
    not_null,
)
from penstock.storage.tables.snapshots import DataFile, IndexFolder, Snapshot, digest

_CHANGED_KEYS = 1 << 20
"""If more keys than this have changed, all count as changed."""

_BATCH = 1 << 16
"""Rows that are read at a time, or as many as are this part of the memory:"""

_PIECE = 32

_SAMPLE = 256
"""Number of rows whose width is taken as that of a file's rows."""

_OPEN = 64
"""Number of files that stay open."""

_MANIFEST = re.compile(r"versions/\d+\.json")
"""A file that only page tables have."""


@dataclass(frozen=True)
class ParquetTable:
    """The Parquet file or folder at `path`, a path or pyarrow.fs URI, looked up by `keys`.

    Files whose name, or that of a folder above them, begins with ``.`` or ``_`` are not part of the table. A Delta
    table has the files and columns of its latest version (penstock[delta]). Otherwise the columns are those of
    `schema`, or of the first file by name; other files may have other types, or lack columns that are not keys. The
    index of the keys is kept in the local folder `index`, which may be deleted at any time; by default a hidden folder
    beside the data, or a temporary one if that cannot be written. Neighbouring row groups form one partition up to
    `partition_rows`. Up to `cache_bytes` of row groups stay in memory, but no more than a quarter of the reading task's
    memory, together with what it keeps of other tables.

    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), folder + "/part-0.parquet")
    >>> table = ParquetTable(folder, keys=("id",)).open()
    >>> table.size.rows, table.unique, table.partitions
    (2, True, 1)
    """

    path: str
    keys: tuple[str, ...]
    schema: pa.Schema | None = None
    index: str | None = None
    partition_rows: int = 1 << 16
    cache_bytes: int = 32 << 20

    versioned: ClassVar[bool] = False

    @property
    def store(self) -> str:
        """Files, here or elsewhere."""
        return "parquet" if is_local(self.path) else "remote"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", path_of(self.path, "path"))
        object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        if not self.keys:
            raise ConfigError("keys=() names no column to look rows up by. Write keys=('customer_id',).")

    def __str__(self) -> str:
        return f"Parquet files {self.path}"

    @cached_property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        for name in self.keys:
            if name not in self.held.names:
                raise ConfigError.unknown_column("keys", name, self.held.names, "this table")
        return self.held

    @cached_property
    def held(self) -> pa.Schema:
        """The columns of the files, whether they include the keys or not."""
        return self.schema if self.schema is not None else self._first_schema()

    def open(self, version: str | None = None) -> OpenParquetTable:
        """The table with the files that it has now, or had as of `version`; they must all still exist."""
        folder = IndexFolder(self._index_folder)
        if version is not None and (known := folder.recall(version)) is not None:
            return _opened(self, known)
        listed = Snapshot(self._list())
        if version is not None and listed.version != version:
            raise TableError(
                f"Version {version} of {self.path} is unknown: it is not the current one, and the index at "
                f"{folder.path} has no record of it. Open the table without version=, or keep index= in a permanent "
                f"folder."
            )
        return _opened(self, folder.recall(listed.version) or self._examined(listed, folder))

    def _examined(self, listed: Snapshot, folder: IndexFolder) -> Snapshot:
        """Index the files that have none, find out about repeated keys, and remember all that."""
        index = KeyIndex([folder.map(file, self.read, self.key_columns) for file in listed.files], self.partition_rows)
        base = folder.latest()
        if not base.verdict.unique or not base.verdict.clustered:
            # What a file that has gone repeated may be repeated no more.
            base = base if set(base.files) <= set(listed.files) else Snapshot(())
        before = set(base.files)
        verdict = index.verdict(base.verdict, [file not in before for file in listed.files])
        examined = Snapshot(listed.files, verdict)
        folder.remember(examined)
        return examined

    def read(self, file: DataFile) -> pq.ParquetFile:
        """A file of the table, opened; refused if it is not the one that was listed."""
        files, _ = find_folder(self.path)
        info = files.get_file_info(file.path)
        if info.type != fs.FileType.File or (info.size, info.mtime_ns or 0) != (file.size, file.changed):
            what = "is gone" if info.type != fs.FileType.File else "has been overwritten"
            raise TableError(
                f"{file.path} {what} since the table at {self.path} was opened, so this version of it can no longer "
                f"be read. Add files under new names, and delete old ones once no epoch reads them. The table can be "
                f"opened again as it is now."
            )
        try:
            local = isinstance(files, fs.LocalFileSystem)
            # Reading ahead would hold the bytes of whole row groups, or files, in private memory.
            return pq.ParquetFile(
                pa.memory_map(file.path) if local else files.open_input_file(file.path), pre_buffer=False
            )
        except pa.ArrowInvalid as error:
            raise TableError(
                f"{file.path} is not a Parquet file ({error}). Move it out of {self.path}, or begin its name with '_'."
            ) from error

    @property
    def key_columns(self) -> pa.Schema:
        """The key columns."""
        return pa.schema([self.columns.field(name) for name in self.keys])

    def _first_schema(self) -> pa.Schema:
        if is_delta(*find_folder(self.path)):
            return DeltaLog(self.path).columns
        listed = self._list()
        if not listed:
            raise TableError(
                f"{self.path} has no Parquet files yet, so its columns are not known. "
                f"Write pk.ParquetTable({self.path!r}, {self.keys}, schema=pa.schema(…))."
            )
        return pa.schema([_plain(field) for field in self.read(listed[0]).schema_arrow])

    def _list(self) -> tuple[DataFile, ...]:
        files, path = find_folder(self.path)
        info = files.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise TableError(f"{self.path} does not exist. Write the path of a Parquet file or of a folder of them.")
        if info.type == fs.FileType.File:
            return _data_files([info])
        if is_delta(files, path):
            # From the log, not from what was in the folder before the log was read.
            return _data_files(files.get_file_info([f"{path}/{name}" for name in sorted(DeltaLog(self.path).files)]))
        infos = files.get_file_info(fs.FileSelector(path, recursive=True))
        shown = {name: info for info in infos if not _hidden(name := info.path[len(path) :].lstrip("/"))}
        if any(_MANIFEST.fullmatch(name) for name in shown):
            raise TableError(
                f"{self.path} is a page table, not a folder of Parquet files. Write pk.PageTable({self.path!r})."
            )
        for name in shown:
            if "=" in os.path.dirname(name):
                raise TableError(
                    f"{self.path} keeps a column in the names of its folders ({os.path.dirname(name)}), which is not "
                    f"supported. Write the table without partitionBy(…)."
                )
        return _data_files([info for _, info in sorted(shown.items()) if info.type == fs.FileType.File])

    @property
    def _index_folder(self) -> str:
        """Where this table's index is: apart from those of other keys or other types of them."""
        files, path = find_folder(self.path)
        what = digest([path, self.keys, [str(field.type) for field in self.key_columns], self.partition_rows])
        if self.index is not None:
            return os.path.join(self.index, what)
        beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.penstock")
        if isinstance(files, fs.LocalFileSystem) and _writable(beside):
            return os.path.join(beside, what)
        return os.path.join(tempfile.gettempdir(), f"penstock-index-{os.getuid()}", what)


class OpenParquetTable:
    """One version of the table: its files, and the index of their keys."""

    def __init__(self, source: ParquetTable, snapshot: Snapshot, folder: IndexFolder) -> None:
        self._source = source
        self._snapshot = snapshot
        self._folder = folder
        self._index = KeyIndex(
            [folder.map(file, source.read, source.key_columns) for file in snapshot.files], source.partition_rows
        )
        self._groups = _Groups(source, snapshot.files)
        self._budget = ample()
        self.columns: pa.Schema = source.columns
        self.keys = source.keys
        self.unique = snapshot.verdict.unique
        self.clustered = snapshot.verdict.clustered
        self.version = snapshot.version
        self.edition = (source, snapshot.version)

    @cached_property
    def size(self) -> TableSize:
        """By what Parquet says, or by the width of some rows: an encoding may have made them small there."""
        rows, files = self._index.rows, self._index.files
        first = next((number for number, file in enumerate(files) if sum(file.group_rows)), None)
        wide = 0 if first is None else round(self._groups.width(first) * rows)
        return TableSize(rows, max(self._index.nbytes, wide))

    def within(self, budget: Budget) -> OpenParquetTable:
        """The same table, with what reading takes, and what stays of it, charged to `budget`."""
        charged = copy(self)
        charged._budget = budget
        return charged

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self._index.partitions)

    def partition_of(self, hashes: Hashes, keys: Sequence[pa.Array]) -> Indices:
        """By the index; -1 where no row has the hash."""
        if not self.clustered:
            raise TableError(
                f"{self._source.path} has rows of one {', '.join(self.keys)} in several row groups, so no single one "
                f"can be read for it. Write the files sorted by the key, or another method: 'cinlj' or 'meshjoin'."
            )
        return self._index.partition_of(hashes)

    def scan(self, partition: int) -> pa.RecordBatch:
        """The rows of a partition's row groups."""
        file, groups = self._index.partitions[partition]
        index = self._index.files[file]
        known = sum(index.group_bytes[group] for group in groups)
        wide = self._groups.width(file) * sum(index.group_rows[group] for group in groups)
        # Several row groups are made one before they are sorted.
        size = int(max(known, wide)) * (2 if len(groups) == 1 else 3)
        if size > self._budget.room:
            raise BudgetError(
                f"A partition of {self._source} takes {show_bytes(size)} while it is sorted, but "
                f"{show_bytes(max(0, self._budget.room))} of this task's {show_bytes(self._budget.limit)} are free. "
                f"Write the files in smaller row groups, or a smaller partition_rows=, or method='cinlj'; or give the "
                f"flow more memory=."
            )
        with self._budget.hold(size, "a partition of Parquet files"):
            rows = self._groups.read(file, groups)
            return sorted_master(not_null(rows, self.keys), self.keys)

    def get(self, hashes: Hashes, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """Find rows by the index, and read them from the row groups that have any."""
        wanted = distinct(hashes)
        found: list[pa.RecordBatch] = []
        with self._budget.tab("rows that are looked up") as charge:
            for number in range(len(self._index.files)):
                for rows in self._fetch(number, wanted):
                    charge(2 * rows.nbytes)
                    found.append(rows)
            return _by_hash(found, master_schema(self.columns))

    def changes(self, since: str) -> Changes:
        """The keys of the files that were added or removed, if the earlier files are known."""
        then = self._folder.recall(since)
        if then is None:
            return Changes(None)
        differing = set(then.files) ^ set(self._snapshot.files)
        indexes = [FileIndex(self._folder.index_of(file)) for file in differing if self._folder.has(file)]
        rows = sum(sum(index.group_rows) for index in indexes)
        if len(indexes) < len(differing) or rows > _CHANGED_KEYS:
            return Changes(None)
        keys = [self._source.key_columns.empty_table(), *(index.keys() for index in indexes if index.runs)]
        return Changes(pa.concat_tables(keys))

    def _fetch(self, number: int, wanted: Hashes) -> Iterator[pa.RecordBatch]:
        """The rows of one file that have these hashes, by row group."""
        places = self._index.files[number].places(wanted)
        groups, row = places.column(GROUP).to_numpy(), places.column(ROW).to_numpy()
        for group in np.unique(groups).tolist():
            begin, end = groups.searchsorted(group), groups.searchsorted(group, "right")
            rows = self._groups.take(number, group, row[begin:end].astype(np.int64), self._budget)
            arrays = [pa.array(hashes_of(places)[begin:end]), *rows.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=master_schema(self.columns))


class _Groups:
    """A cache of the latest row groups, limited by the reader's budget."""

    def __init__(self, source: ParquetTable, files: Sequence[DataFile]) -> None:
        self._source = source
        self._files = files
        self._open: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._kept: Kept[tuple[int, int], list[pa.RecordBatch]] = Kept()
        self._widths: dict[int, float] = {}
        self._lock = threading.RLock()

    def read(self, number: int, groups: list[int]) -> pa.Table:
        """Some row groups of a file."""
        return self._conform(self._file(number).read_row_groups(groups, columns=self._columns(number)))

    def take(self, number: int, group: int, rows: Indices, budget: Budget) -> pa.RecordBatch:
        """Some rows of a row group, which ascend."""
        self._kept.charge_to(budget, self._source.cache_bytes)
        parts, first = [], 0
        for batch in self._kept.get((number, group)) or self._batches(number, group, budget):
            here = rows[rows.searchsorted(first) : rows.searchsorted(first + batch.num_rows)]
            parts.append(batch.take(pa.array(here - first)))
            first += batch.num_rows
        return _batch(pa.Table.from_batches(parts, self._source.columns))

    def width(self, number: int) -> float:
        """The bytes of a row of a file, by some of them: an encoding may have made them small there."""
        if number not in self._widths:
            file = self._file(number)
            groups = range(file.num_row_groups)
            full = [group for group in groups if file.metadata.row_group(group).num_rows][:1]
            sample = next(file.iter_batches(_SAMPLE, row_groups=full, columns=self._columns(number)), None)
            self._widths[number] = sample.nbytes / sample.num_rows if sample is not None and sample.num_rows else 0.0
        return self._widths[number]

    def _batches(self, number: int, group: int, budget: Budget) -> Iterator[pa.RecordBatch]:
        """A row group as it is read, piece by piece; it stays if there is room for all of it."""
        file, width = self._file(number), max(1.0, self.width(number))
        at_once = max(1, min(_BATCH, int(budget.limit / _PIECE / width)))
        keep = self._kept.clear_for(int(width * file.metadata.row_group(group).num_rows))
        kept: list[pa.RecordBatch] = []
        with budget.tab("a row group, while it is read,") as charge:
            for batch in file.iter_batches(at_once, row_groups=[group], columns=self._columns(number)):
                rows = _batch(self._conform(pa.Table.from_batches([batch])))
                del batch
                with budget.hold(rows.nbytes, "a piece of a row group"):
                    yield rows
                keep = keep and 2 * rows.nbytes <= budget.room
                if keep:
                    charge(rows.nbytes)
                    kept.append(rows)
        if keep:
            self._kept.put((number, group), kept, sum(rows.nbytes for rows in kept))

    def _conform(self, rows: pa.Table) -> pa.Table:
        return conform(rows, self._source.columns)

    def _columns(self, number: int) -> list[str]:
        held = set(self._file(number).schema_arrow.names)
        return [name for name in self._source.columns.names if name in held]

    def _file(self, number: int) -> pq.ParquetFile:
        with self._lock:
            file = self._open.pop(number, None) or self._source.read(self._files[number])
            self._open[number] = file
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)
        return file


@lru_cache(maxsize=8)
def _opened(source: ParquetTable, snapshot: Snapshot) -> OpenParquetTable:
    """Tables stay open over epochs, and with them what they keep of row groups."""
    return OpenParquetTable(source, snapshot, IndexFolder(source._index_folder))


def _plain(field: pa.Field) -> pa.Field:
    """A column's name and type, without an encoding of its values; another file may lack it, so it may be null."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)


def _batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _by_hash(found: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Rows that were found here and there as one batch, ascending by hash; the list is empty then."""
    rows = concat(found, schema)
    found.clear()
    return rows.take(pa.array(np.argsort(hashes_of(rows), kind="stable")))


def _data_files(infos: Sequence[fs.FileInfo]) -> tuple[DataFile, ...]:
    return tuple(DataFile(info.path, info.size or 0, info.mtime_ns or 0) for info in infos)


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _writable(folder: str) -> bool:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
