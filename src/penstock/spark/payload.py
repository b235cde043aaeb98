"""Which sources of a flow on Spark let rows leave payload behind: decided and recorded at its first start."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.core.errors import CheckpointError, ConfigError, StateError
from penstock.core.files import Files, Path, Payload
from penstock.flow.graph import OperatorNode, SourceNode, sources_of
from penstock.flow.sinks import Sink, operators_needed
from penstock.runtime.homes import guessed
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
from penstock.spark.parquet_frames import ParquetScan, PlacedFrame, parquet_scan
from penstock.spark.segments import SegmentStream, with_row
from penstock.spark.session import Meant
from penstock.storage.files import whole_path
from penstock.storage.payload import Home, Paths, forget_decoded, width_of
from penstock.storage.versioned import Checkpoint, Plan

_RECORD = "payload.json"

_WIDE = 64
"""Bytes of a row from which on they may be worth leaving behind."""


def detached_on_spark(
    sinks: Sequence[Sink], checkpoint: Checkpoint, meant: Meant, homes: Mapping[SourceNode, Payload]
) -> tuple[list[Sink], list[str]]:
    """The sinks of a flow whose rows may leave payload behind, as its first start decided, and why some may not.

    `homes` is what joins ask for, which goes before what a source was given.
    """
    sources = sources_of(*(sink.node for sink in sinks))
    record = checkpoint.records.read(_RECORD)
    asked = {source: homes.get(source, source.payload) for source in sources}
    known = {} if record is None else record["columns"]
    scans = {source: _scan(source) for source in sources if asked[source] != "row" or known.get(source.name)}
    notes = list(_notes(sinks, asked, scans))
    if record is None:
        latest, first = checkpoint.latest(), checkpoint.planned(0)
        if any(latest.units.values()) or (first is not None and first.late):
            raise StateError.missing(checkpoint.records.path(_RECORD))
        begun = latest.epoch >= 0 or first is not None
        columns = {} if begun else _columns(sinks, asked, scans, meant)
        named = {source.name: sorted(map(list, paths)) for source, paths in columns.items()}
        record = {"flow": uuid.uuid4().hex, "columns": named}
        if not any(named.values()):
            checkpoint.records.write(_RECORD, record)
    left: dict[str, Paths] = {name: frozenset(map(_path, paths)) for name, paths in record["columns"].items() if paths}
    if not left:
        return list(sinks), notes
    start = uuid.uuid4().hex
    atexit.register(forget_decoded, record["flow"])
    ours = [source for source in sources if source.name in left]
    of = {
        source: _Kept(source, left[source.name], asked[source], _usable(scans.get(source), left[source.name]))
        for source in ours
    }
    with_homes = {source: kept.home(checkpoint.uri, record["flow"], start) for source, kept in of.items()}
    names = _names_on_record(checkpoint, of, with_homes, record)
    planned = checkpoint.planned(checkpoint.latest().epoch + 1)
    operators = operators_needed(sinks)
    chosen = {
        source: kept.chosen(with_homes[source], planned, record.get("modes", {}), operators)
        for source, kept in of.items()
    }
    try:
        late = {}
        for source, kept in of.items():
            lets_go = read_late(source, kept.left, sinks)
            payload, why = chosen[source]
            data = kept.data(payload, lets_go)
            late[source] = Late(kept.left, lets_go, with_homes[source], data, payload, kept.width, why)
        made, told = detached_and_told(sinks, late)
    except (AskedTooSoonError, ConfigError) as wrong:
        raise CheckpointError(
            f"Rows in the state of checkpoint {checkpoint.uri} left columns in their source, and this flow cannot "
            f"fetch them in time: {wrong} Or start with a new checkpoint folder. Nothing was touched."
        ) from wrong
    _refuse_other_columns(checkpoint, record.get("told", told), told)
    modes = {source.name: "files" if isinstance(source.data, FileStream) else chosen[source][0] for source in ours}
    now = {"told": told, **record, "names": names, "modes": modes}
    if now != record:
        checkpoint.records.write(_RECORD, now)
    return made, notes


class _Kept(NamedTuple):
    """A source whose rows may leave some columns behind: which, what is asked for, and what a DataFrame reads."""

    source: SourceNode
    left: Paths
    asked: Payload
    scan: ParquetScan | None

    def home(self, root: str, flow: str, start: str) -> Home:
        """What finds its payload."""
        source = self.source
        if isinstance(source.data, FileStream):
            return Home(root, flow, start, source.name, source.data.files)
        if self.scan is None:
            return Home(root, flow, start, source.name, Files("arrow", "", source.columns))
        files = Files("parquet", self.scan.folder, source.columns)
        other = tuple((ours, theirs) for ours, theirs in self.names.items() if ours != theirs)
        return Home(root, flow, start, source.name, files, other)

    @property
    def names(self) -> dict[str, str]:
        """What the columns are called in the files."""
        names = {path[0]: path[0] for path in sorted(self.left)}
        return names if self.scan is None else {ours: self.scan.names[ours] for ours in names}

    @property
    def width(self) -> float:
        """About how many bytes the columns have in a row."""
        return _width(self.source, self.scan, self.left)

    def chosen(
        self, home: Home, planned: Plan | None, modes: Mapping[str, str], operators: Sequence[OperatorNode]
    ) -> tuple[Payload, str]:
        """Where payload is from this start on, and why; what changes from epoch to epoch is not chosen here."""
        if isinstance(self.source.data, FileStream):
            return self.asked, ""
        was = None if planned is None else planned.late.get(self.source.name)
        in_files = was is not None and not home.size(was[0])
        if self.asked == "segments":
            return ("row", _AS_PLANNED) if in_files else ("segments", "")
        if self.asked == "row":
            return "row", ""
        if was is not None and not in_files:
            return "segments", _AS_PLANNED
        if planned is not None and modes.get(self.source.name) != "source":
            return "row", _AS_PLANNED
        if self.scan is None:
            return ("row" if self.asked == "auto" else "segments"), _NOT_IN_FILES
        if self.asked == "source":
            return "source", ""
        stays, why = guessed(self.source, self.width, len(self.left), operators)
        return ("source" if stays else "row"), f" while the query runs, as chosen at its start: {why}"

    def data(self, payload: Payload, lets_go: Paths) -> Any:
        """What the rows come from, with a column for their places."""
        data, row = self.source.data, place_of(self.source)
        if payload == "segments":
            files = data.files if isinstance(data, FileStream) else Files("arrow", "", self.source.columns)
            return SegmentStream(data, files, row)
        if isinstance(data, FileStream):
            return data.with_row(row)
        return PlacedFrame(data, row, self.left, lets_go) if payload == "source" else with_row(data, row)


_AS_PLANNED = " until the flow starts again: its next epoch was planned so before it stopped"

_NOT_IN_FILES = ": some of the columns that rows leave behind since its first start are not in the files as they are"


def _scan(source: SourceNode) -> ParquetScan | str | None:
    """What a DataFrame reads whose payload may stay in Parquet files, or why it may not; None of files themselves."""
    return None if isinstance(source.data, FileStream) else parquet_scan(source.data)


def _usable(scan: ParquetScan | str | None, left: Paths) -> ParquetScan | None:
    """A scan, if the files have all that rows leave behind."""
    return scan if isinstance(scan, ParquetScan) and all(map(scan.can_stay, left)) else None


def _notes(
    sinks: Sequence[Sink], asked: Mapping[SourceNode, Payload], scans: Mapping[SourceNode, ParquetScan | str | None]
) -> Iterator[str]:
    """Why payload travels of DataFrames for which that was left open, if they have any to speak of."""
    reasons = {source: scan for source, scan in scans.items() if isinstance(scan, str) and asked[source] == "auto"}
    for source, paths in untouched(sinks, list(reasons)).items() if reasons else ():
        if paths and _width(source, None, paths) >= _WIDE:
            shown = ", ".join(sorted(".".join(path) for path in paths))
            yield (
                f"payload of {source.name} ({shown}) travels with the rows: they cannot be read again, because "
                f"{reasons[source]}; payload='segments' would put it into the checkpoint once"
            )


def _names_on_record(
    checkpoint: Checkpoint, of: Mapping[SourceNode, _Kept], homes: Mapping[SourceNode, Home], record: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """What columns are called in files that rows in state have left them in; raise if they cannot be found there."""
    ledger = checkpoint.latest()
    planned = checkpoint.planned(ledger.epoch + 1)
    known: dict[str, dict[str, str]] = {}
    for source, kept in of.items():
        first = None if planned is None else planned.late.get(source.name)
        in_files = any(not each.nbytes for each in ledger.kept.get(source.name, ()))
        if in_files or (first is not None and not homes[source].size(first[0])):
            if kept.scan is None and not isinstance(source.data, FileStream):
                raise CheckpointError(
                    f"Rows in the state of checkpoint {checkpoint.uri} left columns in the files of source "
                    f"{source.name!r}, which is a DataFrame now that does not pass them on. Nothing was touched. Read "
                    f"the files with flow.parquet(…), or as before, or start with a new checkpoint folder."
                )
            before = record.get("names", {}).get(source.name, {name: name for name in kept.names})
            for ours, theirs in kept.names.items():
                if before.get(ours) != theirs:
                    raise CheckpointError(
                        f"Rows in the state of checkpoint {checkpoint.uri} left {ours!r} of source "
                        f"{source.name!r} in its files, as column {before.get(ours)!r}, and it is {theirs!r} now. "
                        f"Nothing was touched. Undo the change of the DataFrame, or start with a new checkpoint folder."
                    )
        known[source.name] = kept.names
    return known


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


def _columns(
    sinks: Sequence[Sink],
    asked: Mapping[SourceNode, Payload],
    scans: Mapping[SourceNode, ParquetScan | str | None],
    meant: Meant,
) -> dict[SourceNode, Paths]:
    """The columns that rows of sources may leave behind."""
    wanted = [
        source
        for source, payload in asked.items()
        if payload != "row" and (payload == "segments" or not isinstance(scans[source], str))
    ]
    if not wanted or isinstance(columns_here(operators_needed(sinks), sinks, meant), str):
        return {}
    columns = {}
    for source, paths in untouched(sinks, wanted).items():
        scan, payload = scans[source], asked[source]
        if isinstance(scan, ParquetScan) and payload != "segments":
            paths = frozenset(filter(scan.can_stay, paths))
        known = scan if isinstance(scan, ParquetScan) and payload != "segments" else None
        if paths and (payload != "auto" or _width(source, known, paths) >= _WIDE):
            columns[source] = paths
    return columns


def _width(source: SourceNode, scan: ParquetScan | None, paths: Paths) -> float:
    """About how many bytes some columns of a source have in a row."""
    if isinstance(source.data, FileStream):
        return width_of(source.data.files, paths)
    if scan is None:
        return width_of(Files("arrow", "", source.columns), paths)
    called = [field.with_name(scan.names.get(field.name, field.name)) for field in source.columns]
    theirs = frozenset((scan.names[path[0]], *path[1:]) for path in paths)
    return width_of(Files("parquet", whole_path(scan.folder), pa.schema(called)), theirs)


def _path(names: Sequence[str]) -> Path:
    return tuple(names)
