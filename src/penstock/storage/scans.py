"""Reading files of rows with Arrow: the columns that are needed, piece by piece, in the types that were declared.

A file may have its columns in any order and more of them; one that it lacks is null, and narrower types are widened.
Anything else about its columns is an error that names the file. A file without a byte has no rows. Columns by which a
Delta table is partitioned are not in its files: their values come with each file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.core.absent import absent
from penstock.core.errors import ConfigError, SourceError
from penstock.core.files import (
    Files,
    Format,
    InputFile,
    Path,
    Stamp,
    Values,
    check_limit,
    decoded,
    is_wkb,
    lacking,
    standard_columns,
)
from penstock.storage.alike import why_not_alike
from penstock.storage.delta import epochs_of_table
from penstock.storage.files import find_folder, is_hidden, path_of, whole_path

_PIECE = 1 << 18
"""Rows that are read at a time, where the format allows it."""

_BLOCK = 1 << 23
"""Bytes of a CSV or JSON file that are read at a time: no row may be longer."""

IN_THREADS = 1 << 22
"""Bytes of a piece from which on its columns are read side by side: each thread keeps some memory for itself."""

_SMALLEST = 1 << 7
"""Rows that are read first, to see how wide they are,"""

_GROWTH = 16
"""and how many times as many may be read next."""

_FOLDERS = 256
"""How many sources are remembered by how wide their rows are."""

_CODE = 8
"""Bytes of a text in a Parquet file up to which it is taken to be encoded: it repeats, or is null."""

Texts = Literal["plain", "encoded"]
"""Whether texts that a file has encoded come out as they are, or as codes and the texts that these stand for."""

Read = Callable[[fs.FileSystem, str, pa.Schema, int | None], Iterator[pa.Table]]


def files_of(
    format_name: Format, path: Any, schema: pa.Schema | None, max_files: int | None, max_bytes: int | None
) -> Files:
    """Files as a source; their columns are those of the first of them unless a schema says which."""
    place = whole_path(path_of(path, "path"))
    columns = _first_columns(format_name, place) if schema is None else schema
    return Files(
        format_name,
        place,
        standard_columns(columns),
        check_limit("max_files", max_files),
        check_limit("max_bytes", max_bytes),
    )


@dataclass(frozen=True, slots=True)
class Portion:
    """What one task reads at a time: a file, or one row group of it."""

    path: str
    nbytes: int
    group: int | None = None
    values: Values = ()
    number: int | None = None
    """Its number among the units of its source, if rows of it may be asked for again (`storage.payload`)."""
    segment: bool = False
    """Whether it is a segment that rows of the source were put into."""
    stamp: Stamp | None = None
    """What the file was when it was cut into portions: of another, the rows would be others."""


_MANY_GROUPS, _SMALL_GROUP = 64, 1 << 18
"""A file of more row groups, of fewer bytes on average, is read as a whole: each group would take its whole footer."""


def portions(files: Files, path: str, values: Values = (), stamp: Stamp | None = None) -> list[Portion]:
    """The parts of a file that different tasks may read; raise if it is no longer what it was."""
    system, place = find_folder(path)
    now = stamp_of(path)
    if stamp is not None:
        _check_same(path, stamp, now)
    if files.inside != "parquet" or not now.size:
        return [Portion(path, now.size, None, values, stamp=now)]
    with _told(files, path), _parquet_file(system, place) as file:
        about = file.metadata
        groups = [about.row_group(n).total_byte_size for n in range(about.num_row_groups)]
        if len(groups) > _MANY_GROUPS and sum(groups) < _SMALL_GROUP * len(groups):
            return [Portion(path, sum(groups), None, values, stamp=now)]
        return [Portion(path, nbytes, n, values, stamp=now) for n, nbytes in enumerate(groups)]


def read_file(
    files: Files,
    uri: str,
    columns: pa.Schema,
    size: int | None = None,
    group: int | None = None,
    values: Values = (),
    late: Collection[Path] = (),
    texts: Texts = "plain",
    stamp: Stamp | None = None,
) -> Iterator[pa.Table]:
    """The rows of one of the files, in `columns`, which are some of its own, in pieces of about `size` bytes.

    Of a Parquet file, only a row `group` may be asked for. `values` are those of columns that are not in the file.
    Columns, or fields of structs, that are `late` are null: they are not read.
    `texts` that are encoded there may stay so: their type is a dictionary of the one that `columns` have then.
    A file that changes while it is read is an error, and so is one that is not what its `stamp` says.
    """
    if late:
        for piece in read_file(files, uri, lacking(columns, late), size, group, values, texts=texts, stamp=stamp):
            yield _conformed(piece, columns, uri, texts)
        return
    system, path = find_folder(uri)
    given = _constants(files, uri, columns, values)
    with _told(files, uri):
        about = system.get_file_info(path)
        now = _stamp(about)
        if stamp is not None:
            _check_same(uri, stamp, now)
        if about.size == 0 and files.format != "delta":
            return
        if files.inside == "parquet":
            within = pa.schema([field for field in columns if field.name not in given])
            extra = sum(map(_width, given.values()))
            pieces = _read_parquet(system, path, within, size, group, extra, files, uri)
        else:
            pieces = _READERS[files.inside](system, path, columns, size)
        told = files.format == "delta" or files.as_spark
        try:
            for piece in pieces:
                piece = _with_constants(piece, given)
                piece = _conformed(_instants(piece, columns) if told else piece, columns, uri, texts)
                yield piece
                del piece  # the next one is read without it
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError):
            _check_same(uri, now, stamp_of(uri))
            raise
        _check_same(uri, now, stamp_of(uri))


def _constants(files: Files, uri: str, columns: pa.Schema, values: Values) -> dict[str, pa.Scalar]:
    """What a file has in all its rows, in the types of its table."""
    given = dict(values)
    return {
        field.name: _constant(given.get(field.name), field, uri)
        for field in files.partitions
        if field.name in columns.names
    }


def _constant(text: str | None, field: pa.Field, uri: str) -> pa.Scalar:
    """A value of a partition column, as the log of a Delta table writes it: no text is null, times are in UTC."""
    kind = field.type
    if not text:
        return pa.scalar(None, kind)
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    try:
        return pa.scalar(f"{text}Z" if zoned and not _ZONE.search(text) else text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise SourceError(
            f"The table's log has {text!r} for partition column {field.name!r} of {uri}, which is {kind}: {wrong}"
        ) from wrong


_ZONE = re.compile(r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$")
"""The end of a time that says in which zone it is."""


def _with_constants(rows: pa.Table, given: Mapping[str, pa.Scalar]) -> pa.Table:
    for name, value in given.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _width(value: pa.Scalar) -> int:
    """The bytes that a value takes in each row."""
    return int(pa.array([value.as_py()], value.type).nbytes) + 4


def _instants(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows whose times are in UTC where `columns` say so: those that Spark writes as INT96 do not tell.

    Delta tables and streams of Spark's have no others without a zone where their columns have one.
    """
    for place, field in enumerate(rows.schema):
        if field.name in columns.names:
            kind = _instant(field.type, columns.field(field.name).type)
            if kind != field.type:
                rows = rows.set_column(place, field.name, rows.column(place).cast(kind))
    return rows


def _instant(held: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(held) and held.tz is None and pa.types.is_timestamp(wanted) and wanted.tz is not None:
        return pa.timestamp(held.unit, "UTC")
    if pa.types.is_struct(held) and pa.types.is_struct(wanted):
        places = {field.name: field.type for field in wanted}
        return pa.struct([field.with_type(_instant(field.type, places.get(field.name, field.type))) for field in held])
    if pa.types.is_list(held) and pa.types.is_list(wanted):
        return pa.list_(held.value_field.with_type(_instant(held.value_type, wanted.value_type)))
    if pa.types.is_map(held) and pa.types.is_map(wanted):
        return pa.map_(_instant(held.key_type, wanted.key_type), _instant(held.item_type, wanted.item_type))
    return held


@contextmanager
def _told(files: Files, uri: str) -> Iterator[None]:
    """Tell what is wrong with a file by an error that names it."""
    try:
        yield
    except FileNotFoundError as gone:
        raise SourceError(
            f"Input file {uri} is gone. Put it back and start the flow again.{_GONE.get(files.format, '')}"
        ) from gone
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, OSError) as wrong:
        raise SourceError(
            f"{uri} cannot be read as {files.inside}: {wrong}. Put the whole file there and start the flow again."
        ) from wrong


_GONE: Mapping[Format, str] = {
    "delta": " VACUUM deletes files of earlier versions once they are old: give it a longer retention than a flow may "
    "be behind. To begin again from the table as it is, start with a new checkpoint folder."
}


def size_of(path: str) -> int:
    """The bytes of a file; none if it is gone, which reading it will tell."""
    return stamp_of(path).size


def stamp_of(path: str) -> Stamp:
    """What a file is now; zeros if it is gone, which reading it will tell."""
    system, place = find_folder(path)
    return _stamp(system.get_file_info(place))


GONE = Stamp(0, 0)
"""What a file is that is not there."""


def _stamp(about: fs.FileInfo) -> Stamp:
    return Stamp(int(about.size or 0), int(about.mtime_ns or 0))


def stamped(files: Sequence[InputFile]) -> list[InputFile]:
    """Files that are read more than once: each must be the same every time. Segments never change."""
    return [file if file.segment else replace(file, stamp=stamp_of(file.path)) for file in files]


def _check_same(path: str, before: Stamp, now: Stamp) -> None:
    """Raise if a file is another than when its epoch read it before; one that is gone is told of when it is opened."""
    if now not in (before, GONE):
        raise SourceError(
            f"Input file {path} has changed while an epoch read it, so rows might be lost or come twice. Write files "
            f"elsewhere on the same disk and rename them into the folder once they are complete. Start the flow again: "
            f"the epoch is repeated with the file as it is then."
        )


def epochs_of(files: Files) -> Iterator[list[InputFile]]:
    """The files that are there now, those of an epoch after those of another."""
    return epochs_of_table(files) if files.format == "delta" else _epochs_of_folder(files)


def _epochs_of_folder(files: Files) -> Iterator[list[InputFile]]:
    system, _ = find_folder(files.path)
    waiting = listed_files(files)
    while waiting:
        sizes = accumulate(system.get_file_info(path).size for path in waiting)
        fit = sum(1 for size in sizes if files.max_bytes is None or size <= files.max_bytes)
        count = min(max(1, fit), files.max_files or len(waiting))
        some, waiting = waiting[:count], waiting[count:]
        yield [InputFile(path) for path in some]


def listed_files(files: Files) -> list[str]:
    """The files that are there now, the oldest first, as Spark takes them; of the same age, by name."""
    system, path = find_folder(files.path)
    about = system.get_file_info(path)
    if about.type == fs.FileType.File:
        return [path]
    if about.type == fs.FileType.NotFound:
        raise ConfigError(f"path={files.path!r} does not exist. Write a folder of {files.format} files.")
    found = system.get_file_info(fs.FileSelector(path, recursive=True))
    below = len(path) + 1
    shown = [info for info in found if info.type == fs.FileType.File and not is_hidden(info.path[below:])]
    return [info.path for info in sorted(shown, key=lambda info: (info.mtime_ns // 10**6, info.path))]


def _first_columns(format_name: Format, path: str) -> pa.Schema:
    there = listed_files(Files(format_name, path, pa.schema([])))
    system, _ = find_folder(path)
    for name in there:
        if system.get_file_info(name).size:
            try:
                columns = _SCHEMAS[format_name](system, name)
                names = columns.names  # decodes them
            except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as wrong:
                raise ConfigError(f"{name} cannot be read as {format_name}: {wrong}") from wrong
            unknown = next((field.name for field in columns if pa.types.is_null(field.type)), None)
            if names and unknown is None:
                return columns
            if unknown is not None and name == there[-1] and format_name in ("parquet", "arrow"):
                raise ConfigError(
                    f"{name} has only nulls in column {unknown!r}, so its type is unknown. Give all columns, as in "
                    f"schema=pa.schema({{{unknown!r}: pa.string(), …}})."
                )
    raise ConfigError(
        f"path={path!r} has no file yet to infer its columns from. Give them, as in "
        f"schema=pa.schema({{'ts': pa.timestamp('us'), 'id': pa.int64()}})."
    )


def _parquet_file(
    system: fs.FileSystem, path: str, about: pq.FileMetaData | None = None, encoded: Sequence[str] = ()
) -> pq.ParquetFile:
    local = isinstance(system, fs.LocalFileSystem)
    source = path if local else system.open_input_file(path)
    options = {"memory_map": local, "coerce_int96_timestamp_unit": "us", "pre_buffer": not local}
    return pq.ParquetFile(source, metadata=about, read_dictionary=list(encoded), **options)


def _read_parquet(
    system: fs.FileSystem,
    path: str,
    columns: pa.Schema,
    size: int | None,
    group: int | None,
    extra: int,
    files: Files,
    uri: str,
) -> Iterator[pa.Table]:
    """The rows of one of some files; each will take so many `extra` bytes for columns that are not in it."""
    with _parquet_file(system, path) as file:
        why = why_not_alike(file, uri, columns) if files.as_spark else None
        if why is not None:
            raise SourceError(
                f"{why}: Arrow, which reads this source in place of Spark, would read something else there. Write "
                f"flow.source(…, scan='spark') and start the flow again."
            )
        groups = range(file.num_row_groups) if group is None else [group]
        there = set(file.schema_arrow.names)
        leaves = [leaf for field in columns if field.name in there for leaf in leaves_of(field.name, field.type)]
        if not leaves:
            # Only how many rows there are is known of a file that has none of the columns.
            rows = sum(file.metadata.row_group(number).num_rows for number in groups)
            most = _PIECE if size is None else max(_SMALLEST, min(_PIECE, size // max(1, extra)))
            for start in range(0, rows, most):
                yield _of_length(min(most, rows - start))
            return
        paths = [leaf for leaf, _ in leaves]
        seen = (files.path, *paths)
        known = _WIDTHS.get(seen)
        widest = 0
        for number in groups:
            chunks = _chunks(file.metadata.row_group(number), leaves)
            encoded = [chunk.path for chunk in chunks if chunk.encoded]
            with _parquet_file(system, path, file.metadata, encoded) as coded:
                told = sum(chunk.width for chunk in chunks)
                pieces = _Pieces(number, paths, size, extra, None if known is None else max(known, told))
                try:
                    yield from pieces.of(coded)
                except pa.ArrowNotImplementedError:
                    # A field of a struct whose texts are encoded in a part of the row group only.
                    yield from pieces.of(file)
                known = widest = max(widest, pieces.widest)
        if size is not None and widest:
            _WIDTHS.put(seen, widest)


class _Widths:
    """How wide rows of a folder were in the file that was read last, by the columns that were read.

    Files that follow one another mostly have rows of about the same width.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], int] = {}

    def get(self, of: tuple[str, ...]) -> int | None:
        """Bytes of the widest rows; None if none were read."""
        return self._known.get(of)

    def put(self, of: tuple[str, ...], width: int) -> None:
        """Remember a width; those that were remembered first go."""
        self._known.pop(of, None)
        self._known[of] = width
        for old in list(self._known)[: max(0, len(self._known) - _FOLDERS)]:
            self._known.pop(old, None)


_WIDTHS = _Widths()


class _Chunk(NamedTuple):
    """A column of a row group, as far as the file's metadata tells."""

    path: str
    encoded: bool
    """Whether it is of texts that are encoded, as far as sizes tell."""
    width: float
    """Bytes of its values in a row; what texts that are encoded take is not known."""


def _chunks(about: pq.RowGroupMetaData, leaves: Sequence[tuple[str, pa.DataType]]) -> list[_Chunk]:
    """Those of some columns; a column of lists has several."""
    kinds = dict(leaves)
    texts = (pa.string(), pa.binary())
    found = []
    for place in range(about.num_columns):
        part = about.column(place)
        path = part.path_in_schema
        if path not in kinds and not any(path.startswith(f"{leaf}.") for leaf in kinds):
            continue
        size, kind = part.total_uncompressed_size, kinds.get(path)
        encoded = kind in texts and part.has_dictionary_page and size <= _CODE * part.num_values
        width = size / max(1, about.num_rows)
        if kind is not None and pa.types.is_primitive(kind):
            width = kind.bit_width / 8
        found.append(_Chunk(path, encoded, width))
    return found


class _Pieces:
    """A row group in batches of about `size` bytes. How wide rows are is not known before they are read.

    So the first batch has few rows, unless rows are expected to have a `width`, and each tells how many the next may
    have. To go on with another number the reader begins anew and passes over what it has given.
    """

    def __init__(self, group: int, leaves: list[str], size: int | None, extra: int, width: float | None) -> None:
        self._group = group
        self._leaves = leaves
        self._size = size
        self._extra = extra
        self._rows = _PIECE if size is None else _SMALLEST if width is None else self._fit(width)
        """How many rows the next batch may have."""
        self._done = 0
        self.widest = 0
        """Bytes of a row of the batch with the widest ones."""

    def of(self, file: pq.ParquetFile) -> Iterator[pa.Table]:
        """Those of a file that have not been given yet."""
        while True:
            skip, more = self._done, self._rows
            threads = self._size is None or self._size >= IN_THREADS
            for batch in file.iter_batches(
                self._rows, row_groups=[self._group], columns=self._leaves, use_threads=threads
            ):
                fresh = batch.slice(min(skip, batch.num_rows))
                skip -= batch.num_rows - fresh.num_rows
                if not fresh.num_rows:
                    continue
                self._done += fresh.num_rows
                del batch
                if self._size is None:
                    yield pa.Table.from_batches([fresh])
                    continue
                width = -(-sum(map(_decoded, fresh.columns)) // fresh.num_rows)
                self.widest = max(self.widest, width)
                fit = self._fit(width)
                # What is encoded gets wide only where it is decoded.
                some = fresh.num_rows if fresh.num_rows < 2 * fit else fit
                for start in range(0, fresh.num_rows, some):
                    yield pa.Table.from_batches([fresh.slice(start, some)])
                del fresh
                more = min(_GROWTH * self._rows, fit)
                if more >= 2 * self._rows or 2 * more <= self._rows:
                    break
            else:
                return
            self._rows = more

    def _fit(self, width: float) -> int:
        """How many rows of a width make a batch."""
        return min(_PIECE, max(_SMALLEST, int((self._size or 0) / max(1.0, width + self._extra))))


def _decoded(column: pa.Array) -> int:
    """The bytes that a column takes once its texts are no longer encoded."""
    if pa.types.is_struct(column.type):
        return sum(_decoded(column.field(place)) for place in range(column.type.num_fields)) + len(column) // 8
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return 4 * len(column) + int(pc.sum(lengths).as_py() or 0)


def leaves_of(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """What Parquet calls the parts of a column, and the types that they are to have."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves_of(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _read_arrow(system: fs.FileSystem, path: str, columns: pa.Schema, size: int | None) -> Iterator[pa.Table]:
    local = isinstance(system, fs.LocalFileSystem)
    with pa.memory_map(path) if local else system.open_input_file(path) as source:
        whole = source.read(6) == b"ARROW1"
        source.seek(0)
        with pa.ipc.open_file(source) if whole else pa.ipc.open_stream(source) as batches:
            some = (batches.get_batch(n) for n in range(batches.num_record_batches)) if whole else batches
            for batch in some:
                kept = [name for name in batch.schema.names if name in columns.names]
                rows = pa.Table.from_batches([batch]).select(kept) if kept else _of_length(batch.num_rows)
                # Buffers come as they are in the file, and offsets in a torn one may point anywhere.
                rows.validate(full=True)
                yield rows


def _read_csv(system: fs.FileSystem, path: str, columns: pa.Schema, size: int | None) -> Iterator[pa.Table]:
    from pyarrow import csv

    convert = csv.ConvertOptions(
        column_types=columns,
        include_columns=columns.names,
        include_missing_columns=True,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    there = _csv_schema(system, path).names
    if not {*there} & {*columns.names}:
        raise pa.ArrowInvalid(f"its first line must name columns, and {', '.join(there)!r} are none of this source's")
    with system.open_input_stream(path) as source, _csv(source, convert) as batches:
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _csv(source: Any, convert: Any = None) -> Any:
    from pyarrow import csv

    read, parse = csv.ReadOptions(block_size=_BLOCK), csv.ParseOptions(newlines_in_values=True)
    return csv.open_csv(source, read, parse, convert or csv.ConvertOptions(null_values=[""], strings_can_be_null=True))


def _read_json(system: fs.FileSystem, path: str, columns: pa.Schema, size: int | None) -> Iterator[pa.Table]:
    from pyarrow import json

    # Arrow's reader takes dates for numbers; Arrow itself reads them from texts.
    dates = [field.name for field in columns if pa.types.is_date(field.type)]
    given = pa.schema([field.with_type(pa.string()) if field.name in dates else field for field in columns])
    parse = json.ParseOptions(explicit_schema=given, unexpected_field_behavior="ignore")
    read = json.ReadOptions(block_size=_BLOCK)
    with system.open_input_stream(path) as source:
        if not source.read(_BLOCK).strip():
            return
    with system.open_input_stream(path) as source, json.open_json(source, read, parse) as batches:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            rows.validate(full=True)  # Arrow's reader takes any bytes for a text
            for name in dates:
                place = rows.schema.get_field_index(name)
                rows = rows.set_column(place, name, rows.column(place).cast(columns.field(name).type))
            yield rows


def _of_length(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)})


def _arrow_schema(system: fs.FileSystem, path: str) -> pa.Schema:
    with system.open_input_file(path) as source:
        whole = source.read(6) == b"ARROW1"
        source.seek(0)
        with pa.ipc.open_file(source) if whole else pa.ipc.open_stream(source) as batches:
            return batches.schema


def _csv_schema(system: fs.FileSystem, path: str) -> pa.Schema:
    with system.open_input_stream(path) as source, _csv(source) as batches:
        return batches.schema


def _json_schema(system: fs.FileSystem, path: str) -> pa.Schema:
    from pyarrow import json

    with system.open_input_stream(path) as source:
        return json.read_json(source, json.ReadOptions(block_size=_BLOCK)).schema


_READERS: Mapping[Format, Read] = {
    "arrow": _read_arrow,
    "csv": _read_csv,
    "json": _read_json,
}

_SCHEMAS: Mapping[Format, Callable[[fs.FileSystem, str], pa.Schema]] = {
    "parquet": lambda system, path: _parquet_file(system, path).schema_arrow,
    "arrow": _arrow_schema,
    "csv": _csv_schema,
    "json": _json_schema,
}


def _conformed(rows: pa.Table, columns: pa.Schema, uri: str, texts: Texts) -> pa.Table:
    """Rows in the declared columns."""
    if rows.schema == columns:
        return rows
    there = {name: place for place, name in enumerate(rows.column_names)}
    arrays = []
    for field in columns:
        if field.name not in there:
            arrays.append(absent(rows.num_rows, field.type))
            continue
        column = rows.column(there[field.name])
        if texts == "encoded" and decoded(column.type) == field.type:
            arrays.append(column)
            continue
        try:
            arrays.append(column if column.type == field.type else as_type(column, field.type))
        except (TypeError, pa.ArrowInvalid) as wrong:
            detail = f": {wrong}" if isinstance(wrong, pa.ArrowInvalid) else ""
            raise SourceError(
                f"Column {field.name!r} of {uri} is {column.type}, but the source has it as {field.type}{detail}. "
                f"Write the file in that type{_or_wider(column.type)}."
            ) from wrong
    held = [field.with_type(array.type) for field, array in zip(columns, arrays, strict=True)]
    return pa.table(arrays, schema=pa.schema(held))


def _or_wider(kind: pa.DataType) -> str:
    """What else helps against values that do not fit; finer times than Spark has do not get wider."""
    return "" if pa.types.is_timestamp(kind) else ", or give the source a wider one with schema="


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in another type that holds its values; TypeError if the types mean different things."""
    return pa.chunked_array([_array_as_type(chunk, kind) for chunk in column.chunks], kind)


def _array_as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in another type that holds them all; TypeError if the types mean different things."""
    if array.type == kind:
        return array
    if pa.types.is_run_end_encoded(array.type) or pa.types.is_dictionary(array.type):
        return _array_as_type(array.cast(array.type.value_type), kind)
    if is_wkb(array.type):
        return _array_as_type(array.storage, kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        parts = [
            _array_as_type(array.field(names.index(field.name)), field.type)
            if field.name in names
            else absent(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if not _widens(array.type, kind):
        raise TypeError(kind)
    return array.cast(kind)


def _widens(held: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of a type are values of another, by what they mean."""
    families: list[Callable[[pa.DataType], bool]] = [
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        lambda each: pa.types.is_string(each) or pa.types.is_large_string(each) or pa.types.is_string_view(each),
        lambda each: any(test(each) for test in _BINARIES),
        pa.types.is_date,
        lambda each: pa.types.is_timestamp(each) and each.tz is None,
        lambda each: pa.types.is_timestamp(each) and each.tz is not None,
        lambda each: pa.types.is_list(each) or pa.types.is_large_list(each) or pa.types.is_fixed_size_list(each),
        pa.types.is_map,
    ]
    if pa.types.is_null(held) or any(family(held) and family(kind) for family in families):
        return True
    number = pa.types.is_integer(held)
    return bool(number and (pa.types.is_decimal(kind) or pa.types.is_floating(kind)))


_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
