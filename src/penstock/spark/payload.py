"""Which sources of a flow on Spark let their rows leave payload behind: decided at its first start, on record since."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.errors import CheckpointError, ConfigError, StateError
from penstock.core.files import Files, Path, Payload
from penstock.flow.graph import SourceNode, sources_of
from penstock.flow.sinks import Sink, operators_needed
from penstock.runtime.payload import (
    AskedTooSoonError,
    Late,
    Told,
    detached_and_told,
    place_of,
    read_late,
    untouched,
)
from penstock.spark.file_stream import FileStream
from penstock.spark.here import columns_here
from penstock.spark.segments import SegmentStream, with_row
from penstock.storage.payload import Home, Paths, forget_decoded, width_of
from penstock.storage.versioned import Checkpoint

_RECORD = "payload.json"

_WIDE = 64
"""Bytes of a row from which on they may be worth leaving behind."""


def detached_on_spark(
    sinks: Sequence[Sink], checkpoint: Checkpoint, zone: str, homes: Mapping[SourceNode, Payload]
) -> list[Sink]:
    """The sinks of a flow whose rows may leave payload behind, as its first start decided.

    `homes` is what joins ask for, which goes before what a source was given.
    """
    sources = sources_of(*(sink.node for sink in sinks))
    record = checkpoint.records.read(_RECORD)
    if record is None:
        latest, first = checkpoint.latest(), checkpoint.planned(0)
        if any(latest.units.values()) or (first is not None and first.late):
            raise StateError.missing(checkpoint.records.path(_RECORD))
        begun = latest.epoch >= 0 or first is not None
        asked = {source: _asked(source, homes) for source in sources}
        columns = {} if begun else _columns(sinks, asked, zone)
        named = {source.name: sorted(map(list, paths)) for source, paths in columns.items()}
        record = {"flow": uuid.uuid4().hex, "columns": named}
        if not any(named.values()):
            checkpoint.records.write(_RECORD, record)
    left: dict[str, Paths] = {name: frozenset(map(_path, paths)) for name, paths in record["columns"].items() if paths}
    if not left:
        return list(sinks)
    _refuse_other_files(checkpoint, [source for source in sources if source.name in left])
    start = uuid.uuid4().hex
    atexit.register(forget_decoded, record["flow"])
    try:
        late = {
            source: Late(
                left[source.name],
                read_late(source, left[source.name], sinks),
                Home(checkpoint.uri, record["flow"], start, source.name, _files(source)),
                _data(source, homes.get(source, source.payload)),
                _asked(source, homes),
                width_of(_files(source), left[source.name]),
            )
            for source in sources
            if source.name in left
        }
        made, told = detached_and_told(sinks, late)
    except (AskedTooSoonError, ConfigError) as wrong:
        raise CheckpointError(
            f"Rows in the state of checkpoint {checkpoint.uri} left columns in their source, and this flow cannot "
            f"fetch them in time: {wrong} Or start with a new checkpoint folder. Nothing was touched."
        ) from wrong
    if "told" not in record:
        checkpoint.records.write(_RECORD, {**record, "told": told})
    _refuse_other_columns(checkpoint, record.get("told", told), told)
    return made


def _refuse_other_columns(checkpoint: Checkpoint, were: Told, told: Told) -> None:
    """Refuse expressions that give other columns of a source to an operator whose state has rows that lack them."""
    for name in were.keys() & told.keys():
        for before, now in zip(were[name], told[name], strict=False):
            for column, place in before.items():
                if now.get(column) != place:
                    raise CheckpointError(
                        f"Rows in the state of {name} in checkpoint {checkpoint.uri} left {column!r} in its source, "
                        f"and it is computed differently now. Nothing was touched. Undo the change of the select "
                        f"before {name}, or start with a new checkpoint folder."
                    )


def _columns(sinks: Sequence[Sink], asked: Mapping[SourceNode, Payload], zone: str) -> dict[SourceNode, Paths]:
    """The columns that rows of sources may leave behind."""
    wanted = [source for source, payload in asked.items() if payload != "row"]
    if not wanted or isinstance(columns_here(operators_needed(sinks), sinks, zone), str):
        return {}
    found = untouched(sinks, wanted)
    return {
        source: paths
        for source, paths in found.items()
        if paths and (asked[source] != "auto" or width_of(_files(source), paths) >= _WIDE)
    }


def _refuse_other_files(checkpoint: Checkpoint, sources: Sequence[SourceNode]) -> None:
    """Refuse a DataFrame in the place of files that rows in state have left columns in."""
    ledger = checkpoint.latest()
    planned = checkpoint.planned(ledger.epoch + 1)
    for source in sources:
        if isinstance(source.data, FileStream):
            continue
        home = Home(checkpoint.uri, "", uuid.uuid4().hex, source.name, _files(source))
        first = None if planned is None else planned.late.get(source.name)
        kept = any(not each.nbytes for each in ledger.kept.get(source.name, ()))
        if kept or (first is not None and not home.size(first[0])):
            raise CheckpointError(
                f"Rows in the state of checkpoint {checkpoint.uri} left columns in the files of source "
                f"{source.name!r}, which is a DataFrame now. Nothing was touched. Read the files as before, with "
                f"flow.parquet(…) for example, or start with a new checkpoint folder."
            )


def _asked(source: SourceNode, homes: Mapping[SourceNode, Payload]) -> Payload:
    """Where payload of a source is to be; of a DataFrame, whose rows are not read again, it travels unless told.

    Those of Parquet files could be: a scan without the payload takes a quarter of the time, and `_metadata` has the
    places (`benchmarks/frame_places.py`). But the scan is fixed when the query starts, so that `auto` could not choose.
    """
    asked = homes.get(source, source.payload)
    return asked if asked == "segments" or isinstance(source.data, FileStream) else "row"


def _files(source: SourceNode) -> Files:
    """What a source reads; of a DataFrame, its columns."""
    return source.data.files if isinstance(source.data, FileStream) else Files("arrow", "", source.columns)


def _data(source: SourceNode, asked: Payload) -> Any:
    """What the rows of a source come from, with a column for their places."""
    row = place_of(source)
    if asked == "segments":
        return SegmentStream(source.data, _files(source), row)
    return source.data.with_row(row) if isinstance(source.data, FileStream) else with_row(source.data, row)


def _path(names: Sequence[str]) -> Path:
    return tuple(names)
