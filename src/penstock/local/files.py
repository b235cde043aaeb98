"""Files as a source in process: their rows, an epoch after the other, and payload that stays in them."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.files import Files, Payload
from penstock.flow.graph import SourceNode, sources_of
from penstock.flow.sinks import Sink
from penstock.runtime.payload import Late, detached, place_of, read_late, untouched
from penstock.storage.payload import Home, Paths, forget_decoded, read_placed, width_of
from penstock.storage.scans import Portion, epochs_of


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


def detached_here(sinks: Sequence[Sink], folder: str, homes: Mapping[SourceNode, Payload]) -> list[Sink]:
    """The sinks of a flow whose rows leave payload in their files where that is asked for; records go to `folder`.

    In process rows go nowhere, so that payload stays with them unless somebody says otherwise.
    """
    sources = [node for node in sources_of(*(sink.node for sink in sinks)) if isinstance(node.data, FileFeed)]
    left = untouched(sinks, [node for node in sources if homes.get(node, node.payload) == "source"])
    flow = uuid.uuid4().hex
    if left:
        atexit.register(forget_decoded, flow)
    late = {}
    for source, paths in left.items():
        if paths:
            home = Home(folder, flow, flow, source.name, source.data.files)
            lets_go = read_late(source, paths, sinks)
            feed = FileFeed(source.data.files, home, place_of(source), lets_go)
            late[source] = Late(paths, lets_go, home, feed, "source", width_of(source.data.files, lets_go))
    return detached(sinks, late) if late else list(sinks)
