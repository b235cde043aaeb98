"""Whether rows of a source are in time, late, or without a usable time; on Spark, see `spark/lateness`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.durations import TimeUnit
from penstock.core.files import pruned
from penstock.core.progress import Punctuated, Seen, Track
from penstock.core.rows import TIME
from penstock.core.time import TIME_MIN, Time, as_times, in_range
from penstock.flow.graph import SourceNode


class Split(NamedTuple):
    """Some rows of a source, split into those in time and the others."""

    kept: pa.Table
    """Those in time, with their time beside them."""
    late: pa.Table
    """The others, as they came."""
    reasons: pa.ChunkedArray | pa.Array
    """Why each of them is late."""
    seen: Seen
    """What was seen of the source."""

    @property
    def below(self) -> int:
        """How many are below the bound."""
        return int(pc.sum(pc.equal(self.reasons, "late")).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides whether rows are late: by their time column and the bound at the start of the epoch."""

    time: str
    unit: TimeUnit
    bound: Time
    mark: str | None = None
    """The column that holds punctuation of the whole source."""

    @classmethod
    def of(cls, node: SourceNode, track: Track) -> Judge:
        """For the rows of a source with this track at the start of the epoch."""
        mark = node.progress.linear if isinstance(node.progress, Punctuated) else None
        return cls(str(node.time), node.unit, track.bound, mark)

    def looks_at(self, columns: pa.Schema) -> pa.Schema:
        """The columns, of those of the source, that it needs to tell what was seen."""
        return pruned(columns, [(name,) for name in (self.time, self.mark) if name is not None])

    def split(self, rows: pa.Table) -> Split:
        """Split rows; a row exactly at the bound is in time."""
        column = rows.column(self.time)
        times = as_times(column)
        timed = rows.append_column(TIME, times)
        mark = TIME_MIN if self.mark is None else _largest(as_times(rows.column(self.mark)))
        if self._all_in_time(times):
            return Split(timed, rows.slice(0, 0), pa.array([], pa.string()), _seen(timed, mark))
        usable = pc.fill_null(in_range(times, self.unit), fill_value=False)
        late = pc.fill_null(pc.or_(pc.invert(usable), pc.less(times, self.bound)), fill_value=True)
        missing = pc.is_null(column).combine_chunks()
        reasons = pc.if_else(missing, "no-time", pc.if_else(usable, "late", "out-of-range")).filter(late)
        kept = timed.filter(pc.invert(late))
        return Split(kept, rows.filter(late), reasons, _seen(kept, mark))

    def _all_in_time(self, times: pa.Int64Array) -> bool:
        """Whether no row is late: most pieces have none, and the first and the last time tell."""
        if times.null_count or not len(times):
            return not len(times)
        ends = pc.min_max(times).as_py()
        return ends["min"] >= self.bound and all(pc.all(in_range(pa.array([ends[e]]), self.unit)).as_py() for e in ends)


def both(a: Seen, b: Seen) -> Seen:
    """What two pieces of a source show together."""
    return Seen(a.rows + b.rows, max(a.max_time, b.max_time), max(a.mark, b.mark))


def _seen(kept: pa.Table, mark: Time) -> Seen:
    return Seen(kept.num_rows, _largest(kept.column(TIME)), mark)


def _largest(times: pa.Array | pa.ChunkedArray) -> Time:
    top = pc.max(times).as_py()
    return TIME_MIN if top is None else int(top)
