"""Whether Arrow finds in a Parquet file what Spark would have read there: rows that Spark scans get payload by Arrow.

Spark goes by names without regard to case, takes values of columns from names of folders, and widens some types. What
both read alike passes; of anything else the file is refused before a row of it is taken in.
"""

from __future__ import annotations

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
        there = pq.read_schema(place, filesystem=system)
    except FileNotFoundError as gone:
        raise SourceError(f"Input file {path} is gone. Put it back and start the flow again.") from gone
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as wrong:
        raise SourceError(
            f"{path} cannot be read as parquet: {wrong}. Put the whole file there and start the flow again."
        ) from wrong
    folders = {part.partition("=")[0].lower() for part in unquote(path).split("/")[:-1] if "=" in part}
    for field in columns:
        why = _why_not(field, there, folders)
        if why is not None:
            raise SourceError(
                f"Column {field.name!r} of {path} {why}, so results could not get from there what Spark reads. Write "
                f"payload='row' or payload='segments' for its source, and start the flow again."
            )


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
