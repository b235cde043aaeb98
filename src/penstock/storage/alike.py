"""Whether Arrow finds in a Parquet file what Spark would have read there: rows that Spark scans get payload by Arrow.

Spark goes by names without regard to case, takes values of columns from names of folders, and widens some types. What
both read alike passes; of anything else the file is refused before a row of it is taken in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import ConfigError, SourceError
from penstock.core.files import standard_columns
from penstock.storage.files import find_folder


def check_as_spark_reads(path: str, columns: pa.Schema) -> None:
    """Raise unless Arrow reads some columns of a file as Spark does; one that the file lacks is null for both."""
    system, place = find_folder(path)
    try:
        with pq.ParquetFile(place, filesystem=system) as file:
            why = why_not_alike(file, path, columns)
    except FileNotFoundError as gone:
        raise SourceError(f"Input file {path} is gone. Put it back and start the flow again.") from gone
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as wrong:
        raise SourceError(
            f"{path} cannot be read as parquet: {wrong}. Put the whole file there and start the flow again."
        ) from wrong
    if why is not None:
        raise SourceError(
            f"{why}, so results could not get from there what Spark reads. Write payload='row' or payload='segments' "
            f"for its source, and start the flow again."
        )


def why_not_alike(file: pq.ParquetFile, path: str, columns: pa.Schema) -> str | None:
    """Why Arrow reads some columns of a file at `path` other than Spark does; None if it reads them alike."""
    about = file.metadata
    there = _with_instants(file.schema_arrow, about)
    folders = {part.partition("=")[0].lower() for part in unquote(path).split("/")[:-1] if "=" in part}
    for field in columns:
        why = _why_not(field, there, folders) or _other_calendar(field, file.schema_arrow, about)
        if why is not None:
            return f"Column {field.name!r} of {path} {why}"
    return None


def _why_not(field: pa.Field, there: pa.Schema, folders: set[str]) -> str | None:
    if field.name.lower() in folders:
        return "is in the name of a folder"
    alike = [name for name in there.names if name.lower() == field.name.lower()]
    if not alike:
        return None
    if alike != [field.name]:
        return f"is called {' and '.join(map(repr, alike))} there"
    held = there.field(field.name).type
    return None if reads_alike(held, field.type) else f"is {held} there, and the source has it as {field.type}"


def _with_instants(there: pa.Schema, about: pq.FileMetaData) -> pa.Schema:
    """The columns of a file, with times in UTC where they are INT96, of which Arrow does not tell."""
    local = [each for field in there for each in _values(field.type) if pa.types.is_timestamp(each) and each.tz is None]
    old = _int96(about) if local else set()
    return pa.schema([field.with_type(instants(field.type)) if field.name in old else field for field in there])


def _int96(about: pq.FileMetaData) -> set[str]:
    """The columns of a file with times as INT96, and no others."""
    leaves = [about.schema.column(place) for place in range(about.num_columns)]
    kinds: dict[str, set[bool]] = {}
    for leaf in leaves:
        if leaf.physical_type == "INT96" or leaf.logical_type.type == "TIMESTAMP":
            kinds.setdefault(leaf.path.partition(".")[0], set()).add(leaf.physical_type == "INT96")
    return {name for name, some in kinds.items() if some == {True}}


def instants(kind: pa.DataType) -> pa.DataType:
    """A type with times in UTC where it has times without a zone.

    >>> instants(pa.struct({"at": pa.timestamp("us")}))
    StructType(struct<at: timestamp[us, tz=UTC]>)
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz or "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(instants(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(instants(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(instants(kind.key_type), instants(kind.item_type))
    return kind


def _values(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the values in a type."""
    if not pa.types.is_nested(kind):
        yield kind
    for place in range(kind.num_fields) if pa.types.is_nested(kind) else ():
        yield from _values(kind.field(place).type)


_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""What Spark notes in files with dates and times of the Julian calendar; versions before 3.1 wrote no others."""


def _other_calendar(field: pa.Field, there: pa.Schema, about: pq.FileMetaData) -> str | None:
    """Why dates and times of a column may be of a calendar that Arrow does not know."""
    notes = about.metadata or {}
    version = re.match(rb"(\d+)\.(\d+)", notes.get(b"org.apache.spark.version", b""))
    old = version is not None and (int(version[1]), int(version[2])) < (3, 1)
    if not (old or any(name in notes for name in _LEGACY)) or field.name not in there.names:
        return None
    dated = any(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in _values(there.field(field.name).type))
    return "has dates or times as old versions of Spark write them" if dated else None


def reads_alike(held: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values that a file has as one type are the same for Arrow and for Spark if both read them as another.

    >>> reads_alike(pa.int32(), pa.int64()), reads_alike(pa.binary(), pa.string())
    (True, False)
    """
    if pa.types.is_dictionary(held):
        return reads_alike(held.value_type, kind)
    if pa.types.is_struct(kind):
        return pa.types.is_struct(held) and all(
            [part.name for part in held if part.name.lower() == field.name.lower()] == [field.name]
            and reads_alike(held.field(field.name).type, field.type)
            for field in kind
        )
    if pa.types.is_list(kind):
        listed = pa.types.is_list(held) or pa.types.is_large_list(held) or pa.types.is_fixed_size_list(held)
        return listed and reads_alike(held.value_type, kind.value_type)
    if pa.types.is_map(kind):
        both = pa.types.is_map(held) and reads_alike(held.key_type, kind.key_type)
        return both and reads_alike(held.item_type, kind.item_type)
    try:
        (plain,) = standard_columns(pa.schema([("value", held)])).types
    except ConfigError:
        return False
    return plain == kind or _widens(plain, kind)


def _widens(held: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_integer(held) and pa.types.is_integer(kind):
        return bool(held.bit_width < kind.bit_width)
    if pa.types.is_decimal(held) and pa.types.is_decimal(kind):
        return bool(held.scale == kind.scale and held.precision < kind.precision)
    return bool(held == pa.float32() and kind == pa.float64())
