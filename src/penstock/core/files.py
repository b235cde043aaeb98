"""Files as a source: what they are, which columns their rows have, and how many make an epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa

from penstock.core.errors import ConfigError

Format = Literal["parquet", "arrow", "csv", "json", "delta"]

Changes = Literal["refuse", "skip"]
"""What to do with commits of a Delta table that delete or rewrite rows."""

Payload = Literal["auto", "row", "source", "segments"]
"""Where columns that only results need are kept: in the row, in its source, or in segments of the checkpoint, which are
written once; auto is whichever costs less."""

ScanBy = Literal["auto", "arrow", "spark"]
"""Who reads the rows of a streaming DataFrame over Parquet files."""

Path = tuple[str, ...]
"""A column, or a field of a struct by the names that lead to it."""


_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a folder, or those that match a pattern: each is read once, new ones as they arrive.

    Their rows have these `columns`, in types that Spark has, too. An epoch takes `max_files` of them, or as many as
    have `max_bytes`; without either, all that are there. Of a Delta table the files in question are its commits.
    """

    format: Format
    path: str
    columns: pa.Schema
    max_files: int | None = None
    max_bytes: int | None = None
    partitions: pa.Schema = _NO_COLUMNS
    """Columns that are not in the files; each file comes with its values of them."""
    changes: Changes = "refuse"
    as_spark: bool = False
    """Whether rows are to be what Spark would read: a file that gives others is refused."""

    def __str__(self) -> str:
        return f"Delta table {self.path}" if self.format == "delta" else f"{self.format} files of {self.path}"

    @property
    def inside(self) -> Format:
        """What each of the files is: those of a Delta table are Parquet files."""
        return "parquet" if self.format == "delta" else self.format


def as_read(files: Files, segment: bool) -> Files:
    """Files as they are read; segments of a source have its columns, whatever its files are."""
    return Files("arrow", files.path, files.columns) if segment else files


Values = tuple[tuple[str, str | None], ...]
"""Columns and the value that each has in all rows of a file, as text."""


class Stamp(NamedTuple):
    """What tells whether a file is still the one that it was."""

    size: int
    changed: int
    """When it was modified, in nanoseconds."""


class Sizes(NamedTuple):
    """About how many rows a source has now, and how many bytes each of its columns takes per row."""

    rows: float
    widths: dict[str, float]


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that an epoch reads, and the columns of its rows that are not in it."""

    path: str
    values: Values = ()
    nbytes: int | None = None
    """Its size, if that is known."""
    segment: bool = False
    """Whether it is a segment that rows of the source were written to."""
    stamp: Stamp | None = None
    """What it was when its epoch began, if it is read several times."""


def check_limit(name: str, value: int | None) -> int | None:
    """A limit of what an epoch takes; raise unless it lets a file pass.

    >>> check_limit("max_files", 3)
    3
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"{name}={value!r} must be a whole number of at least 1. Leave it out for no limit.")
    return value


def standard_columns(columns: pa.Schema) -> pa.Schema:
    """Columns in the types that Spark has for the same values.

    >>> standard_columns(pa.schema({"n": pa.uint8(), "c": pa.dictionary(pa.int8(), pa.string())})).types
    [DataType(int16), DataType(string)]
    """
    standard = []
    for field in columns:
        kind = _standard(field.type)
        if kind is None:
            raise ConfigError(
                f"Column {field.name!r} is of type {field.type}, which Spark does not have. Leave it out with schema=, "
                f"or give it another type there."
            )
        standard.append(pa.field(field.name, kind))
    return pa.schema(standard)


_SAME = {
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
    pa.string(), pa.binary(), pa.date32(),
}  # fmt: skip

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


def is_wkb(kind: pa.DataType) -> bool:
    """Whether a type is one of geometries as WKB, as libraries for GeoParquet register them with Arrow.

    >>> is_wkb(pa.binary())
    False
    """
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name in _WKB


_WKB = ("geoarrow.wkb", "ogc.wkb")


def pruned(columns: pa.Schema, paths: Collection[Path]) -> pa.Schema:
    """The columns, and fields of structs, that some paths name.

    >>> event = pa.schema({"t": pa.int64(), "bid": pa.struct({"price": pa.int64(), "url": pa.string()})})
    >>> pruned(event, [("bid", "price")]).field("bid").type
    StructType(struct<price: int64>)
    """
    return pa.schema(list(_named(columns, paths)))


def lacking(columns: pa.Schema, paths: Collection[Path]) -> pa.Schema:
    """The columns without those, and without the fields of structs, that some paths name.

    >>> event = pa.schema({"t": pa.int64(), "bid": pa.struct({"price": pa.int64(), "url": pa.string()})})
    >>> lacking(event, [("bid", "url")]).field("bid").type, lacking(event, [("bid",)]).names
    (StructType(struct<price: int64>), ['t'])
    """
    return pa.schema(list(_not_named(columns, paths)))


def _not_named(fields: Iterable[pa.Field], paths: Collection[Path]) -> Iterator[pa.Field]:
    for field in fields:
        below = [path[1:] for path in paths if path[:1] == (field.name,)]
        if not below:
            yield field
        elif all(below):
            kept = list(_not_named(field.type, below))
            if kept:
                yield field.with_type(pa.struct(kept))


def decoded(kind: pa.DataType) -> pa.DataType:
    """The type of values of which some may be encoded by a dictionary.

    >>> decoded(pa.struct({"url": pa.dictionary(pa.int32(), pa.string())}))
    StructType(struct<url: string>)
    """
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.struct([field.with_type(decoded(field.type)) for field in kind]) if pa.types.is_struct(kind) else kind


def _named(fields: Iterable[pa.Field], paths: Collection[Path]) -> Iterator[pa.Field]:
    for field in fields:
        below = [path[1:] for path in paths if path[:1] == (field.name,)]
        if below and all(below) and pa.types.is_struct(field.type):
            yield field.with_type(pa.struct(list(_named(field.type, below))))
        elif below:
            yield field


def _standard(kind: pa.DataType) -> pa.DataType | None:
    """The type in which Spark holds values of a type; None if it has none."""
    if isinstance(kind, pa.BaseExtensionType):  # of those that are registered, some cannot be hashed
        return pa.binary() if is_wkb(kind) else None
    if kind in _SAME:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 and kind.scale >= 0 else None
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _standard(kind.value_type)
    if pa.types.is_struct(kind):
        parts = [(field.name, _standard(field.type)) for field in kind]
        return None if not parts or any(part is None for _, part in parts) else pa.struct(parts)
    if pa.types.is_map(kind):
        key, item = _standard(kind.key_type), _standard(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        value = _standard(kind.value_type)
        return None if value is None else pa.list_(pa.field("element", value))
    return None
