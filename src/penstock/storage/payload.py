"""Payload that stayed in files or was put into segments: where that of a row is, and its columns for results.

The place of a row is one number: that of a unit – a file, a row group of one, or a segment – and its row there. Units
are numbered as epochs read them; records in the checkpoint say which they are. A unit of a file is decoded once a row
of it is needed, into a file on a local disk, from which rows are taken by mapping it: that takes no private memory, and
the second epoch that needs rows of a unit finds it there. Its columns are one array each if they can be
(`storage.arrays`), else Arrow's batches. A segment is mapped where it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.absent import absent
from penstock.core.errors import SourceError, StateError
from penstock.core.files import Files, Path, Sizes, Stamp, Values, as_read, pruned
from penstock.core.rows import Indices
from penstock.storage.alike import check_as_spark_reads
from penstock.storage.arrays import TooLongError, can_hold, map_arrays, size_on_disk, write_arrays
from penstock.storage.files import find_folder, local_path
from penstock.storage.records import Records
from penstock.storage.scans import (
    GONE,
    Portion,
    Texts,
    as_type,
    leaves_of,
    listed_files,
    portions,
    read_file,
    size_of,
    stamp_of,
)
from penstock.storage.segments import (
    Segment,
    check_segment,
    copied_segment,
    delete_segments,
    first_in,
    folder_name,
)

Paths = frozenset[Path]
"""Columns, and fields of structs, of a source."""

_RECORD = re.compile(r"(\d{12,})\.json")
"""Names of records of units."""

_ROWS = 32
"""Bits of a place that number rows of a unit."""

_RUN = 16
"""Rows of one unit in a row, in the mean, for which it pays to take them without sorting all."""

_READ = 8_000_000
"""Bytes that are decoded at a time, at most."""

_TAIL = 1 << 14
"""Bytes at the end of a file that are read to tell whether it is the same: most footers fit."""

_MAPPED = 256
"""Decoded units that a process keeps mapped."""

_REMEMBERED = 1 << 14
"""Units of a source that a process remembers."""

_OLD = 86_400
"""Seconds after which what was decoded for a flow that has not touched it goes."""

_DISK = 8 << 30
"""Bytes that decoded units take on a disk, or half of what is free there; then those not used for longest go."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a file, and what the file was when it was read."""

    portion: Portion
    size: int
    changed: int
    end: str | None = None
    """A digest of how the file ends: of Parquet, the footer. None if that was not noted."""
    segment: bool = False
    """Whether it is a segment, whose name tells what it was."""

    def to_json(self) -> list[Any]:
        """For a record."""
        each = self.portion
        return [each.path, each.nbytes, each.group, each.values, self.size, self.changed, self.segment, self.end]

    @property
    def stamp(self) -> Stamp:
        """What the file was."""
        return Stamp(self.size, self.changed)

    @classmethod
    def from_json(cls, record: Sequence[Any]) -> Unit:
        """From a record; those of earlier versions end sooner."""
        path, nbytes, group, values, size, changed, *more = record
        segment = bool(more and more[0])
        end = more[1] if len(more) > 1 else None
        given: Values = tuple((name, value) for name, value in values)
        return cls(Portion(path, nbytes, group, given), size, changed, end, segment)

    def check(self) -> None:
        """Raise unless the file is what it was; one with other pages and the same footer is taken for the same."""
        path = self.portion.path
        now = stamp_of(path)
        if now != self.stamp or (self.end is not None and self.end != _ending(path, now.size)):
            raise _changed(path)


@dataclass(frozen=True, slots=True)
class Home:
    """Where the payload of a source is: in its files, or in segments.

    `root` is where the records are, and the segments, of each source in a folder. `files` are what the source reads;
    of one that reads no files, they only have its columns.
    """

    root: str
    flow: str
    """What tells flows apart that had the same `root`,"""
    start: str
    """and starts of one: after a restored backup the same number may be that of another unit."""
    source: str
    files: Files
    names: tuple[tuple[str, str], ...] = ()
    """What columns are called in the files that are called otherwise there."""

    def note(self, first: int, paths: Sequence[tuple[str, Values]]) -> int:
        """Number the units of some files from `first` on, in a record that survives a power cut; how many there are."""
        units = []
        for path, values in paths:
            stamp = stamp_of(path)
            end = _ending(path, stamp.size)
            units += [Unit(portion, *stamp, end) for portion in portions(self.files, path, values, stamp)]
        self._note(first, units)
        return len(units)

    def note_whole(self, first: int, paths: Sequence[str], left: Paths) -> int:
        """The same for files that Spark reads, each of them a unit; Arrow must find what is `left` as Spark would."""
        wanted = self._in_files(pruned(self.files.columns, left))
        units = []
        for path in paths:
            stamp = stamp_of(path)
            if stamp.size:
                check_as_spark_reads(path, wanted)
            units.append(Unit(Portion(path, stamp.size), *stamp, _ending(path, stamp.size)))
        self._note(first, units)
        return len(units)

    def _in_files(self, columns: pa.Schema) -> pa.Schema:
        """Columns under the names that they have in the files."""
        names = dict(self.names)
        return pa.schema([field.with_name(names.get(field.name, field.name)) for field in columns])

    def new_folder(self, first: int) -> str:
        """A folder for the segments that will be numbered from `first` on."""
        return f"{self.root}/{_folder_of(self.source)}/{folder_name(first)}"

    def note_segments(self, first: int, segments: Sequence[Segment]) -> int:
        """Number some segments of one folder from `first` on, in the same way; how many there are."""
        self._note(
            first, [Unit(Portion(path, nbytes), nbytes, 0, segment=True) for path, nbytes in map(_sized, segments)]
        )
        return len(segments)

    def _note(self, first: int, units: Sequence[Unit]) -> None:
        self._records.write(self._name(first), {"units": [unit.to_json() for unit in units]})
        if not first:
            for folder in ("payload", ""):
                self._records.sync(folder)

    def size(self, first: int) -> int:
        """The bytes of the segments that were numbered from `first` on."""
        return sum(unit.size for unit in self._units(first) if unit.segment)

    def check(self, first: int) -> None:
        """Raise unless the segments that were numbered from `first` on are what was written."""
        for unit in self._units(first):
            if unit.segment:
                check_segment(unit.portion.path)

    def forget_after(self, first: int) -> None:
        """Delete records of units after those that begin at `first`: a restored backup knows nothing of them."""
        for each in self._firsts():
            if each > first:
                self._records.delete(self._name(each))

    def _firsts(self) -> list[int]:
        """From which numbers on units are on record."""
        found = map(_RECORD.fullmatch, self._records.list(_folder_of(self.source)))
        return [int(match[1]) for match in found if match]

    def portions(self, first: int) -> list[Portion]:
        """What was numbered from `first` on."""
        return [
            replace(u.portion, number=first + n, segment=u.segment, stamp=None if u.segment else u.stamp)
            for n, u in enumerate(self._units(first))
        ]

    def _units(self, first: int) -> list[Unit]:
        record = self._records.read(self._name(first))
        if record is None:
            raise StateError.missing(self._records.path(self._name(first)))
        return list(map(Unit.from_json, record["units"]))

    def fetch(self, places: Indices, paths: Sequence[Path], size: int = _READ) -> list[pa.Array | pa.ChunkedArray]:
        """Some columns, or fields of structs, of the rows at some places, in their order.

        Units that are not decoded yet are, in pieces of about `size` bytes. Places whose units change seldom from one
        to the next are the fastest.
        """
        wanted = self._wanted(paths)
        again: Indices | None = None
        numbers = unit_of(places)
        edges = _edges(numbers)
        few = len(edges) < len(places) // _RUN and self.in_any_order(places, paths)
        if not few and (places[1:] < places[:-1]).any():
            places, again = np.unique(places, return_inverse=True)
            numbers = unit_of(places)
            edges = _edges(numbers)
        rows = places & ((1 << _ROWS) - 1)
        batches: list[pa.RecordBatch] = []
        for begin, end in pairwise(edges):
            number = int(numbers[begin])
            opened = self._opened(number, wanted, size)
            batches += opened.take(rows[begin:end], wanted, self.unit(number).portion.path)
        whole = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches, schema=wanted.schema)
        _known(_WIDTHS, (self.start, self.source))[wanted.paths] = whole.nbytes / max(1, whole.num_rows)
        if again is not None:
            whole = (whole.combine_chunks() if len(batches) > 1 else whole).take(pa.array(again))
        return [_field(whole.column(place), path) for place, path in zip(wanted.places, wanted.paths, strict=True)]

    def in_any_order(self, places: Indices, paths: Sequence[Path]) -> bool:
        """Whether rows at some places of a unit are found as fast in any order as in their own."""
        plain = self.files.inside == "parquet" and self._wanted(paths).can_hold
        return plain and not self.unit(int(places[0]) >> _ROWS).segment

    def open(self, number: int, paths: Sequence[Path], size: int = _READ) -> None:
        """Decode some columns of a unit, if they are not yet: who fetches rows of it later need not wait for that."""
        self._opened(number, self._wanted(paths), size)

    def width(self, paths: Sequence[Path]) -> float | None:
        """The bytes that some columns had in a row when this process fetched them last; None if it never has."""
        return _WIDTHS.get((self.start, self.source), {}).get(tuple(paths))

    def _wanted(self, paths: Sequence[Path]) -> _Wanted:
        """The columns that some paths are in."""
        known = _known(_WANTED, (self.start, self.source))
        key = tuple(paths)
        if key not in known:
            known[key] = _Wanted.of(pruned(self.files.columns, set(key)), key)
        return known[key]

    def _opened(self, number: int, wanted: _Wanted, size: int) -> _Mapped:
        """A unit, mapped; it has at least what is `wanted`."""
        unit = self.unit(number)
        if unit.segment:
            return _SEGMENTS.open(self, number, unit)
        return _DECODED.open(self, number, wanted, min(_READ, size))

    def unit(self, number: int) -> Unit:
        """The unit of a number."""
        known = _known(_NOTED, (self.start, self.source))
        if number not in known:
            first = max((each for each in self._firsts() if each <= number), default=None)
            if first is None:
                raise StateError.missing(self._records.path(self._name(number)))
            if len(known) > _REMEMBERED:
                known.clear()
            known.update({first + n: unit for n, unit in enumerate(self._units(first))})
        if number not in known:
            raise StateError.corrupt(self._records.path(_folder_of(self.source)), f"it knows no unit {number}")
        return known[number]

    @property
    def _records(self) -> Records:
        return Records(self.root)

    def _name(self, first: int) -> str:
        return _record_of(self.source, first)


def read_placed(
    files: Files,
    portion: Portion,
    columns: pa.Schema,
    row: str | None,
    late: Paths,
    size: int | None,
    texts: Texts = "plain",
) -> Iterator[pa.Table]:
    """The rows of a portion; if they have a column `row`, with the place of each in it.

    Rows of a portion that is not numbered have no place: they bring all their columns. The others lack what is `late`.
    """
    plain = columns if row is None else pa.schema([field for field in columns if field.name != row])
    start = None if portion.number is None else portion.number << _ROWS
    left = frozenset() if start is None else late
    read = as_read(files, portion.segment)
    path, stamp = portion.path, portion.stamp
    if start is not None and stamp is not None and stamp_of(path) not in (stamp, GONE):
        raise _changed(path)
    for piece in read_file(read, path, plain, size, portion.group, portion.values, left, texts, stamp):
        if row is None:
            yield piece
        elif start is None:
            yield piece.append_column(row, absent(piece.num_rows, pa.int64()))
        else:
            yield piece.append_column(row, pa.array(np.arange(start, start + piece.num_rows)))
            start += piece.num_rows
        del piece


def retire(records: Records, source: str, live: Callable[[int], bool], until: int) -> tuple[int, int]:
    """Delete the records, and the segments, of a source that are numbered below `until` and from no `live` number on.

    Where several attempts have written segments of the same number, those go that the record does not name, and so do
    those that repeated tasks left among the last ones. How many segments went, and their bytes, comes back.
    """
    folder = _folder_of(source)
    names = records.list(folder)
    attempts: dict[int, list[str]] = {}
    for name in names:
        first = first_in(name)
        if first is not None and first < until:
            attempts.setdefault(first, []).append(name)
    count = size = 0
    last = max(attempts, default=None)
    for first, some in attempts.items():
        if live(first) and len(some) == 1 and first != last:
            continue
        kept = _named_in(records, source, first) if live(first) else frozenset()
        for name in some:
            ours = frozenset(segment for attempt, segment in kept if attempt == name)
            gone = delete_segments(f"{records.uri}/{folder}/{name}", ours)
            count, size = count + gone[0], size + gone[1]
    for match in filter(None, map(_RECORD.fullmatch, names)):
        if int(match[1]) < until and not live(int(match[1])):
            records.delete(f"{folder}/{match[0]}")
    return count, size


def _folder_of(source: str) -> str:
    """The folder of a source, whose name may have any characters."""
    return "payload/" + re.sub(r"[^A-Za-z0-9_ -]", lambda found: f"={found[0].encode().hex()}=", source)


def _record_of(source: str, first: int) -> str:
    return f"{_folder_of(source)}/{first:012d}.json"


def _named_in(records: Records, source: str, first: int) -> frozenset[tuple[str, str]]:
    """The segments that a record knows: the folder of the attempt that wrote each, and its name."""
    record = records.read(_record_of(source, first))
    paths = (Unit.from_json(each).portion.path for each in (record or {"units": ()})["units"])
    return frozenset((folder.rpartition("/")[2], name) for folder, _, name in (path.rpartition("/") for path in paths))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Columns of a source, and what need not be found out anew for each few rows."""

    schema: pa.Schema
    paths: tuple[Path, ...]
    places: tuple[int, ...]
    """The column that each path is in."""
    key: bytes
    """What tells the columns apart from others; schemas take long to hash."""
    can_hold: bool
    """Whether `storage.arrays` can hold them."""

    @classmethod
    def of(cls, schema: pa.Schema, paths: tuple[Path, ...]) -> _Wanted:
        """Of the paths that made the schema."""
        places = tuple(schema.get_field_index(path[0]) for path in paths)
        return cls(schema, paths, places, schema.serialize().to_pybytes(), can_hold(schema))


_NOTED: dict[tuple[str, str], dict[int, Unit]] = {}
"""The units that this process has looked up,"""

_WANTED: dict[tuple[str, str], dict[tuple[Path, ...], _Wanted]] = {}
"""and the columns that it was asked for, by the start of a flow and the source;"""

_WIDTHS: dict[tuple[str, str], dict[tuple[Path, ...], float]] = {}
"""and what these took in a row."""

_SOURCES = 64
"""Of how many sources that is kept: nobody tells a worker process that a start is over."""

K = TypeVar("K")
V = TypeVar("V")


def _known(all_known: dict[tuple[str, str], dict[K, V]], source: tuple[str, str]) -> dict[K, V]:
    """What is known of a source; of one more, that of the source that came first is forgotten."""
    if source not in all_known:
        for first in list(all_known)[: len(all_known) - _SOURCES + 1]:
            all_known.pop(first, None)
    return all_known.setdefault(source, {})


def width_of(files: Files, paths: Paths) -> float:
    """About how many bytes some columns take in a row: as the first file says, or by their types."""
    columns = pruned(files.columns, paths)
    with suppress(Exception):
        first = next(name for name in listed_files(files) if size_of(name)) if files.format == "parquet" else None
        if first is not None:
            size, rows = _measured(first, columns)
            return size / max(1, rows)
    return sum(map(_width, columns.types))


def width_in(files: Files, names: Sequence[str], paths: Paths) -> float | None:
    """About how many bytes some columns take in a row of some files, as their footers say; None if nobody knows."""
    asked = names[:: max(1, -(-len(names) // _FOOTERS))]
    if files.inside == "parquet" and asked:
        with suppress(Exception):
            columns = pruned(files.columns, paths)
            sizes, rows = zip(*(_measured(name, columns) for name in asked if size_of(name)), strict=True)
            return float(sum(sizes) / sum(rows))
    return None


def sizes_of(files: Files) -> Sizes | None:
    """How many rows Parquet files have, and about how wide their columns are, as footers say; None for other files.

    Of many files some tell what the others are like, by their sizes.
    """
    if files.format != "parquet":
        return None
    with suppress(Exception):
        names = listed_files(files)
        system, _ = find_folder(files.path)
        sizes = {info.path: info.size for info in system.get_file_info(names) if info.size}
        asked = list(sizes)[:: max(1, -(-len(sizes) // _FOOTERS))]
        about = [pq.read_metadata(path, filesystem=system) for path in asked]
        rows = sum(each.num_rows for each in about)
        widths = dict.fromkeys(files.columns.names, 0.0)
        for each in about:
            for group in range(each.num_row_groups):
                for place in range(each.num_columns):
                    chunk = each.row_group(group).column(place)
                    column = chunk.path_in_schema.partition(".")[0]
                    if column in widths:
                        widths[column] += chunk.total_uncompressed_size / max(1, rows)
        return Sizes(rows * sum(sizes.values()) / max(1, sum(sizes[path] for path in asked)), widths)
    return None


def _measured(path: str, columns: pa.Schema) -> tuple[int, int]:
    """The bytes that some columns of a Parquet file have, and its rows."""
    about = pq.read_metadata(path)
    leaves = {leaf for field in columns for leaf, _ in leaves_of(field.name, field.type)}
    size = 0
    for group in range(about.num_row_groups):
        chunks = (about.row_group(group).column(n) for n in range(about.num_columns))
        size += sum(c.total_uncompressed_size for c in chunks if _leads_to(c.path_in_schema, leaves))
    return size, about.num_rows


def _leads_to(path: str, leaves: Iterable[str]) -> bool:
    return any(path == leaf or path.startswith(f"{leaf}.") for leaf in leaves)


def _width(kind: pa.DataType) -> int:
    """About how many bytes a value takes."""
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return int(kind.bit_width) // 8 if fixed else _TEXT


_FOOTERS = 8
"""Files of a source whose footers are read to tell how many rows all have."""

_TEXT = 16
"""Bytes that a text has, where nothing is known of it."""


def forget_start(start: str) -> None:
    """Forget what this process knows of the units of a start that is over; what was decoded stays for the next one."""
    every: list[dict[tuple[str, str], Any]] = [_NOTED, _WANTED, _WIDTHS]
    for known in every:
        for key in [key for key in list(known) if key[0] == start]:
            known.pop(key, None)
    _DECODED.close(start)
    _SEGMENTS.close(start)


def forget_decoded(flow: str) -> None:
    """Delete what was decoded here for a flow: nobody needs it any more."""
    _DECODED.forget(flow)


def unit_of(places: Indices) -> Indices:
    """The numbers of the units that rows at some places are in."""
    return places >> _ROWS


def at_unit(numbers: Indices, places: Indices) -> Indices:
    """Places of the same rows in units of other numbers."""
    return (numbers << _ROWS) | (places & ((1 << _ROWS) - 1))


def _edges(numbers: Indices) -> list[int]:
    """Where runs of equal numbers begin, and where the last one ends."""
    return [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)] if len(numbers) else [0]


class _Mapped:
    """The rows of a unit as batches that are mapped; they stay so if the file is deleted."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        self.in_any_order = len(batches) == 1
        """Whether `take` takes rows in any order."""
        self._lengths = np.array([batch.num_rows for batch in self._batches], np.int64)
        self._ends = np.cumsum(self._lengths)
        self._selected: dict[bytes, list[pa.RecordBatch]] = {}

    @classmethod
    def batches_of(cls, path: str) -> _Mapped:
        """Those of an Arrow file."""
        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            return cls([file.get_batch(n) for n in range(file.num_record_batches)])

    def take(self, rows: Indices, wanted: _Wanted, path: str) -> Iterator[pa.RecordBatch]:
        """The rows at some places, in the columns that are wanted; the unit is in the file at `path`.

        Places ascend, unless they may be in any order.
        """
        if rows.max() >= (self._ends[-1] if self._batches else 0):
            raise SourceError(
                f"Input file {path} has fewer rows than when it was read. The state holds rows of it without their "
                f"payload. Restore the file, or write payload='row' and start with a new checkpoint folder."
            )
        batches = self._with(wanted, path)
        numbers = np.zeros(0, np.int64) if self.in_any_order else np.searchsorted(self._ends, rows, "right")
        edges = [0, len(rows)] if self.in_any_order else _edges(numbers)
        where = pa.array(rows if self.in_any_order else rows - (self._ends - self._lengths)[numbers])
        for begin, end in pairwise(edges):
            batch = batches[0 if self.in_any_order else numbers[begin]]
            taken = pc.take(batch, where.slice(begin, end - begin), boundscheck=False)
            yield taken if taken.schema == wanted.schema else _as_wanted(taken, wanted.schema)

    def _with(self, wanted: _Wanted, path: str) -> list[pa.RecordBatch]:
        """The batches with the columns that are wanted, as they are there."""
        if wanted.key not in self._selected:
            there = self._batches[0].schema
            if there != wanted.schema:
                _check_columns(there, wanted.schema, path)
            self._selected[wanted.key] = [batch.select(wanted.schema.names) for batch in self._batches]
        return self._selected[wanted.key]


def _check_columns(there: pa.Schema, wanted: pa.Schema, path: str) -> None:
    """Raise unless a segment has all columns, and fields of structs, that are wanted."""
    held = {leaf for field in there for leaf, _ in leaves_of(field.name, field.type)}
    lacks = next((leaf for f in wanted for leaf, _ in leaves_of(f.name, f.type) if leaf not in held), None)
    if lacks is not None:
        raise StateError(
            f"Segment {path} has no column {lacks!r}: the flow did not need it when its rows came. Leave it out of the "
            f"results, or start with a new checkpoint folder."
        )


def _as_wanted(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Rows of a segment in the columns that are wanted: of structs, only some fields may be."""
    arrays = [
        as_type(pa.chunked_array([column]), f.type).chunk(0) for column, f in zip(rows.columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _sized(segment: Segment) -> tuple[str, int]:
    return segment.path, segment.nbytes


def _field(column: pa.Array | pa.ChunkedArray, path: Path) -> pa.Array | pa.ChunkedArray:
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1 else column
    for name in path[1:]:
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def _changed(path: str) -> SourceError:
    return SourceError(
        f"Input file {path} is gone or has changed since it was read. The state holds rows of it without their "
        f"payload. Restore it with its old modification time, or write payload='row' and start with a new "
        f"checkpoint folder."
    )


def _ending(path: str, size: int) -> str:
    """A digest of how a file ends: of Parquet, of the whole footer, which has the sizes and ranges of all columns."""
    system, place = find_folder(path)
    if not size:
        return ""
    with system.open_input_file(place) as file:
        tail = file.read_at(min(size, _TAIL), max(0, size - _TAIL))
        if tail[-4:] == b"PAR1":
            footer = 8 + int.from_bytes(tail[-8:-4], "little")
            tail = tail[-footer:] if footer <= len(tail) else file.read_at(min(size, footer), max(0, size - footer))
    return hashlib.sha1(tail).hexdigest()


class _Decoded:
    """Units as files on a local disk."""

    def __init__(self) -> None:
        self._mapped: OrderedDict[_Key, _Mapped] = OrderedDict()
        self._lock = threading.Lock()
        self._decoding: dict[_Key, threading.Lock] = {}

    def open(self, home: Home, number: int, wanted: _Wanted, size: int) -> _Mapped:
        """Some columns of a unit, mapped. Threads that ask for the same wait for the one that decodes it."""
        key = (home.flow, home.start, home.source, number, wanted.key)
        with self._lock:
            if key in self._mapped:
                self._mapped.move_to_end(key)
                return self._mapped[key]
            alone = self._decoding.setdefault(key, threading.Lock())
        with alone:
            found = self._mapped.get(key) or self._opened(home, number, wanted.schema, size)
            with self._lock:
                self._mapped[key] = found
                self._decoding.pop(key, None)
                while len(self._mapped) > _MAPPED:
                    self._mapped.popitem(last=False)
        return found

    def close(self, start: str) -> None:
        """Keep nothing mapped for a start."""
        with self._lock:
            for key in [key for key in self._mapped if key[1] == start]:
                del self._mapped[key]

    def forget(self, flow: str) -> None:
        """Delete what was decoded for a flow."""
        with self._lock:
            for key in [key for key in self._mapped if key[0] == flow]:
                del self._mapped[key]
        shutil.rmtree(_folder(flow), ignore_errors=True)

    def _opened(self, home: Home, number: int, columns: pa.Schema, size: int) -> _Mapped:
        unit = home.unit(number)
        what = hashlib.sha1(columns.serialize().to_pybytes() + repr(unit).encode())
        path = f"{_folder(home.flow)}/{number}-{what.hexdigest()}"
        if not (found := _found(path)):
            _make_folder(os.path.dirname(path))
            with _alone(f"{path}.lock"):
                found = _found(path) or self._decode(path, home, unit, columns, size)
        with suppress(OSError):
            os.utime(found)
        return _Mapped([map_arrays(found, columns)]) if found.endswith(_ARRAYS) else _Mapped.batches_of(found)

    def _decode(self, path: str, home: Home, unit: Unit, columns: pa.Schema, size: int) -> str:
        """Decode a unit; into which file."""
        unit.check()
        _make_room(os.path.dirname(path))
        draft, rows = f"{path}.draft", _rows_of(home.files, unit.portion) if can_hold(columns) else None
        end = _BATCHES if rows is None else _ARRAYS
        if rows is not None:
            try:
                write_arrays(draft, columns, rows, _pieces(home, unit, columns, size))
            except (TooLongError, OSError):  # such as of a file system that has no holes, or a limit on sizes of files
                end = _BATCHES
        if end == _BATCHES:
            with pa.OSFile(draft, "wb") as sink, pa.ipc.new_file(sink, columns) as writer:
                for piece in _pieces(home, unit, columns, size):
                    writer.write_table(piece.combine_chunks())
        unit.check()
        os.replace(draft, f"{path}{end}")
        return f"{path}{end}"


_Key = tuple[str, str, str, int, bytes]
"""A flow and its start, a source, a unit and its columns."""

_ARRAYS, _BATCHES = ".arrays", ".arrow"
"""How names of decoded units end."""


def _found(path: str) -> str | None:
    """The file of a unit that is decoded, if there is one."""
    return next((f"{path}{end}" for end in (_ARRAYS, _BATCHES) if os.path.exists(f"{path}{end}")), None)


def _pieces(home: Home, unit: Unit, columns: pa.Schema, size: int) -> Iterator[pa.Table]:
    portion, read = unit.portion, home._in_files(columns)
    for piece in read_file(home.files, portion.path, read, size, portion.group, portion.values):
        yield piece.rename_columns(columns.names)


def _rows_of(files: Files, portion: Portion) -> int | None:
    """How many rows a unit has, if that is known before it is read."""
    system, place = find_folder(portion.path)
    if files.inside != "parquet" or not size_of(portion.path):
        return None
    about = pq.read_metadata(place, filesystem=system)
    return int(about.num_rows if portion.group is None else about.row_group(portion.group).num_rows)


_DECODED = _Decoded()


class _Segments:
    """Segments as this process has them mapped; of those on another file system there is a copy on a local disk."""

    def __init__(self) -> None:
        self._mapped: OrderedDict[tuple[str, str, str], _Mapped] = OrderedDict()

    def close(self, start: str) -> None:
        """Keep nothing mapped for a start."""
        for key in [key for key in list(self._mapped) if key[0] == start]:
            self._mapped.pop(key, None)

    def open(self, home: Home, number: int, unit: Unit) -> _Mapped:
        """The rows of a segment; it is checked when it is mapped."""
        uri = unit.portion.path
        key = (home.start, uri, _state_of(uri))
        found = self._mapped.pop(key, None) or self._opened(home, number, uri)
        self._mapped[key] = found
        while len(self._mapped) > _MAPPED:
            self._mapped.popitem(last=False)
        return found

    def _opened(self, home: Home, number: int, uri: str) -> _Mapped:
        path = local_path(uri)
        if path is None:
            path = f"{_folder(home.flow)}/{number}-{hashlib.sha1(uri.encode()).hexdigest()}.arrow"
            _make_folder(os.path.dirname(path))
            with _alone(f"{path}.lock"):
                if not os.path.exists(path):
                    _make_room(os.path.dirname(path))
                    copied_segment(uri, f"{path}.draft")
                    os.replace(f"{path}.draft", path)
            with suppress(OSError):
                os.utime(path)
        else:
            check_segment(uri)
        try:
            return _Mapped.batches_of(path)
        except (pa.ArrowInvalid, OSError) as broken:
            raise StateError.corrupt(uri, str(broken)) from broken


_SEGMENTS = _Segments()


def _state_of(uri: str) -> str:
    """What tells whether a segment was touched since it was checked; one on another file system is not asked again."""
    path = local_path(uri)
    if path is None:
        return ""
    try:
        about = os.stat(path)
    except FileNotFoundError as gone:
        raise StateError.missing(path) from gone
    return f"{about.st_ino} {about.st_size} {about.st_mtime_ns}"


def _folder(flow: str) -> str:
    """Where the decoded units of a flow are on this machine."""
    return f"{tempfile.gettempdir()}/penstock-{os.getuid()}/payload-{flow}"


def _make_folder(folder: str) -> None:
    """Make a folder for what is decoded that nobody else can look into; what flows that are long gone left goes."""
    ours = os.path.dirname(folder)
    os.makedirs(ours, mode=0o700, exist_ok=True)
    if os.stat(ours).st_uid != os.getuid():
        raise SourceError(f"{ours} belongs to another user. Delete it, or set TMPDIR to a folder of your own.")
    if not os.path.exists(folder):
        for entry in os.scandir(ours):
            with suppress(OSError):
                if time.time() - entry.stat().st_mtime > _OLD:
                    shutil.rmtree(entry.path, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """As the only process of this machine."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_room(folder: str) -> None:
    """Delete the decoded units that were not used for longest, until there is room for another."""
    files = [entry for entry in os.scandir(folder) if entry.name.endswith((_ARRAYS, _BATCHES))]
    held = sum(size_on_disk(entry.stat()) for entry in files)
    limit = min(_DISK, (held + shutil.disk_usage(folder).free) // 2)
    for entry in sorted(files, key=lambda each: each.stat().st_mtime):
        if held <= limit:
            return
        held -= size_on_disk(entry.stat())
        with suppress(OSError):
            os.unlink(entry.path)
