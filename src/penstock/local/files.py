"""Files as a source in process: their rows, an epoch after the other, and payload that stays in them or in segments."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.core.files import Files, Payload
from penstock.flow.graph import SourceNode, sources_of
from penstock.flow.sinks import Sink
from penstock.kernels.plain import plain_rows
from penstock.runtime.payload import Late, detached, place_of, read_late, untouched
from penstock.storage.payload import Home, Paths, forget_decoded, read_placed, width_of
from penstock.storage.scans import Portion, epochs_of
from penstock.storage.segments import Segment, SegmentWriter


@dataclass(frozen=True, slots=True)
class FileFeed:
    """The files of a source, and what their rows leave behind, if they do."""

    files: Files
    home: Home | None = None
    row: str | None = None
    late: Paths = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        place = [] if self.row is None else [pa.field(self.row, pa.int64())]
        return pa.schema([*self.files.columns, *place])

    @property
    def tables(self) -> Iterator[pa.Table]:
        """The rows of the files that are there now, an epoch after the other."""
        first = 0
        for some in epochs_of(self.files):
            parts = [Portion(file.path, 0, values=file.values) for file in some]
            if self.home is not None:
                count = self.home.note(first, [(file.path, file.values) for file in some])
                parts = self.home.portions(first)
                first += count
            pieces = (
                piece
                for part in parts
                for piece in read_placed(self.files, part, self.schema, self.row, self.late, None)
            )
            yield pa.concat_tables([self.schema.empty_table(), *pieces])


@dataclass(frozen=True, slots=True)
class SegmentFeed:
    """A source whose rows are put into segments as they come; `given` has them, an epoch after the other."""

    given: Any
    home: Home
    row: str
    late: Paths

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([*self.given.schema, pa.field(self.row, pa.int64())])

    @property
    def tables(self) -> Iterator[pa.Table]:
        """The rows, which leave behind what they can."""
        first, columns = 0, self.given.schema
        for rows in self.given.tables:
            plain = plain_rows(rows) if isinstance(rows, pa.Table) else rows
            if not isinstance(plain, pa.Table) or (plain.schema.names, plain.schema.types) != (
                columns.names,
                columns.types,
            ):
                yield rows  # Whoever takes it refuses it.
                continue
            writer = SegmentWriter(self.home.new_folder(first), 0, columns)
            writer.write(plain)
            segment = writer.close()
            parts = [] if segment is None else self._noted(first, segment)
            first += len(parts)
            pieces = (
                piece
                for part in parts
                for piece in read_placed(self.home.files, part, self.schema, self.row, self.late, None)
            )
            yield pa.concat_tables([self.schema.empty_table(), *pieces])

    def _noted(self, first: int, segment: Segment) -> list[Portion]:
        self.home.note_segments(first, [segment])
        return self.home.portions(first)


def detached_here(sinks: Sequence[Sink], folder: str, homes: Mapping[SourceNode, Payload]) -> list[Sink]:
    """The sinks of a flow whose rows leave payload behind where that is asked for; records and segments go to `folder`.

    In process rows go nowhere, so that payload stays with them unless somebody says otherwise.
    """
    sources = sources_of(*(sink.node for sink in sinks))
    asked = {node: homes.get(node, node.payload) for node in sources}
    left = untouched(sinks, [node for node in sources if asked[node] in ("source", "segments")])
    flow = uuid.uuid4().hex
    if left:
        atexit.register(forget_decoded, flow)
    late = {}
    for source, paths in left.items():
        if paths:
            data, row, lets_go = source.data, place_of(source), read_late(source, paths, sinks)
            files = data.files if isinstance(data, FileFeed) else Files("arrow", "", source.columns)
            home = Home(folder, flow, flow, source.name, files)
            feed: FileFeed | SegmentFeed = SegmentFeed(data, home, row, lets_go)
            if asked[source] == "source":
                feed = FileFeed(files, home, row, lets_go)
            late[source] = Late(paths, lets_go, home, feed, asked[source], width_of(files, lets_go))
    return detached(sinks, late) if late else list(sinks)
