"""Stateless steps between streams, independent of the graph, so that they can be pickled into tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.operator import Timing
from penstock.core.rows import TIME, Indices
from penstock.core.time import as_times
from penstock.expressions import evaluate
from penstock.expressions.view import View
from penstock.flow.graph import (
    Fetched,
    FetchNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StepNode,
    UnionNode,
)
from penstock.storage.payload import at_unit, unit_of

_FEW = 1 << 6
"""Number of rows that are fetched first, to measure their width,"""

_FEWEST = 1 << 3
"""and number of rows that are fetched at a time, however wide they are."""

_AHEAD = 64
"""Most units that are decoded before rows of them are fetched."""

_COMBINED = 1 << 30
"""Most combinations of units that rows are sorted by."""

_READ = 1_000_000
"""Bytes of payload that are read at a time, if there is no limit."""


@dataclass(frozen=True, slots=True)
class Select:
    """Columns computed from each row."""

    expressions: tuple[str, ...]

    def of(self, rows: View) -> View:
        """What becomes of some rows."""
        return evaluate.selected(rows, self.expressions)


@dataclass(frozen=True, slots=True)
class Where:
    """The rows for which a condition holds."""

    condition: str

    def of(self, rows: View) -> View:
        """What becomes of some rows."""
        return evaluate.held(rows, self.condition)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Rows with the payload that stayed in their sources."""

    fetched: tuple[Fetched, ...]
    columns: tuple[str, ...]
    """What they have then, beside their event time if that is there."""

    def of(self, rows: View) -> View:
        """What becomes of some rows."""
        return View.of(self.whole(rows.table()))

    def whole(self, rows: pa.Table, size: int = _READ) -> pa.Table:
        """Some rows with their payload; what of it is not at hand is read in pieces of about `size` bytes."""
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for each in self.fetched:
            columns |= _fetched(rows, each, size)
        names = [*self.columns, TIME] if TIME in columns else list(self.columns)
        return pa.Table.from_arrays([columns[name] for name in names], names=names)

    def pieces(self, rows: pa.Table, size: int) -> Iterator[pa.Table]:
        """The same in pieces of about `size` bytes, in an order in which it is found fast."""
        for part in self.parts(rows, size):
            yield self.whole(part, size)

    def parts(self, rows: pa.Table, size: int) -> Iterator[pa.Table]:
        """Some rows in parts that take about `size` bytes once they have their payload."""
        left = [each for each in self.fetched if rows.column(each.row).null_count < rows.num_rows]
        if not left:
            yield rows
            return
        bare = _bare(rows, left)
        if rows.num_rows > _FEW:
            replaced = [name for each in left if not rows.column(each.row).null_count for name, _ in each.columns]
            order = _order(rows, left, bare)
            rows, bare = rows.drop_columns(replaced).take(pa.array(order)), bare[order]
        # Rows of one part have all left a payload behind, or none has: to put both together takes longer.
        edges = [*np.flatnonzero(np.diff(bare)) + 1, rows.num_rows] if rows.num_rows > _FEW else [rows.num_rows]
        start, own = 0, rows.nbytes / rows.num_rows
        for end in edges:
            while start < end:
                part = rows.slice(start, min(_fit(own, left, size), end - start))
                start += part.num_rows
                yield part

    def units(self, rows: pa.Table) -> list[tuple[Fetched, int]]:
        """The units that the payload of some rows is in, those of the source with most payload first."""
        found = []
        for each in reversed(self.fetched):
            numbers = unit_of(rows.column(each.row).drop_null().to_numpy())
            first = int(numbers.min()) if len(numbers) else 0
            found += [(each, first + int(number)) for number in np.flatnonzero(np.bincount(numbers - first))]
        return found


def fetched_ahead(fetch: Fetch, tables: Iterator[pa.Table], size: int, threads: int) -> Iterator[pa.Table]:
    """Rows with their payload, in order, in pieces of about `size` bytes.

    While the next rows are made, and while those before are taken, `threads` fetch payload; so many pieces may wait.
    """
    waiting: deque[Future[pa.Table]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for rows in tables:
                for each, number in fetch.units(rows)[:_AHEAD]:
                    pool.submit(each.home.open, number, [path for _, path in each.columns], size)
                for part in fetch.parts(rows, size):
                    waiting.append(pool.submit(fetch.whole, part, size))
                    del part
                    while len(waiting) > threads:
                        yield waiting.popleft().result()
                del rows
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _fetched(rows: pa.Table, what: Fetched, size: int) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Some columns of rows from a source; those without a place there keep what they have."""
    places = rows.column(what.row).combine_chunks()
    if places.null_count == len(places):
        return {}
    found = what.home.fetch(places.drop_null().to_numpy(), [path for _, path in what.columns], size)
    columns = dict(zip((name for name, _ in what.columns), found, strict=True))
    if places.null_count:
        valid = places.is_valid().to_numpy(zero_copy_only=False)
        where = pa.array(np.cumsum(valid) - 1, mask=~valid)
        for name, array in columns.items():
            columns[name] = pc.if_else(pa.array(valid), array.take(where), rows.column(name))
    return columns


def _fit(own: float, fetched: Sequence[Fetched], size: int) -> int:
    """How many rows may be fetched at a time that have `own` bytes each: few, until it is known how wide they are."""
    widths = [each.home.width([path for _, path in each.columns]) for each in fetched]
    known = sum(width for width in widths if width is not None)
    if None in widths:
        return _FEW
    return max(_FEWEST, int(size / (known + own + 1)))


def _bare(rows: pa.Table, fetched: Sequence[Fetched]) -> Indices:
    """Which payload each row has brought, a bit for each source."""
    bits = np.zeros(rows.num_rows, np.int64)
    for number, each in enumerate(fetched):
        places = rows.column(each.row)
        if places.null_count:
            bits |= places.is_null().to_numpy().astype(np.int64) << number
    return bits


def _order(rows: pa.Table, fetched: Sequence[Fetched], bare: Indices) -> Indices:
    """An order in which payload is found fast: by units, and in those of the source with most of it by their rows.

    Where rows of a unit are found only in their order, it is that of this source alone.
    """
    places = [_filled(rows.column(each.row)) for each in fetched]
    paths = [[path for _, path in each.columns] for each in fetched]
    if not all(each.home.in_any_order(*some) for each, *some in zip(fetched, places, paths, strict=True)):
        return np.lexsort((places[-1], bare)) if bare.any() else np.argsort(places[-1])
    combined, count = bare.copy(), int(bare.max()) + 1
    for some in reversed(places):
        units = unit_of(some)
        first, last = int(units.min()), int(units.max())
        count *= last - first + 1
        if count >= _COMBINED:
            break
        combined = combined * (last - first + 1) + units - first
    return np.argsort(at_unit(combined, places[-1]))


def _filled(places: pa.ChunkedArray) -> Indices:
    """Places, one of them for each row that has none."""
    filled: Indices = (places.fill_null(places.drop_null()[0]) if places.null_count else places).to_numpy()
    return filled


Step = Select | Where | Fetch


@dataclass(frozen=True, slots=True)
class ResultTime:
    """The event time that an operator gives its results: of which columns, and how it follows from them."""

    clock: tuple[str, ...]
    timing: Timing

    @classmethod
    def of(cls, node: OperatorNode) -> ResultTime:
        """Of the results of `node`."""
        return cls(node.clock, node.timing)

    def beside(self, rows: pa.Table) -> pa.Table:
        """Results with their event time; it is null if they have lost it."""
        if not self.clock:
            return rows.append_column(TIME, pa.nulls(rows.num_rows, pa.int64()))
        times = [as_times(rows.column(name)) for name in self.clock]
        if self.timing == "before end":
            return rows.append_column(TIME, pc.subtract(times[0], 1))
        if self.timing == "column":
            return rows.append_column(TIME, times[0])
        pick = pc.max_element_wise if self.timing == "latest" else pc.min_element_wise
        return rows.append_column(TIME, pick(*times))


def step(node: StepNode) -> Step:
    """The step that leads to a stream."""
    if isinstance(node, FetchNode):
        return fetch_of(node)
    return Select(node.expressions) if isinstance(node, SelectNode) else Where(node.condition)


def fetch_of(node: FetchNode) -> Fetch:
    """The step that leads to a stream whose payload was missing."""
    return Fetch(node.fetched, tuple(node.columns.names))


def all_of(source: SourceNode) -> Fetched:
    """What rows of a source lack of all that they have there."""
    names = dict.fromkeys(path[0] for path in sorted(source.lets_go))
    return Fetched(str(source.row), source.home, tuple((name, (name,)) for name in names))


Way = tuple[SourceNode | OperatorNode, tuple[Step, ...]]
"""Where rows come from, and the steps from there."""


def ways_to(node: Node) -> list[Way]:
    """The paths of rows to a stream: one, or one per member of a union."""
    if isinstance(node, SourceNode | OperatorNode):
        return [(node, ())]
    if isinstance(node, StepNode):
        return [(root, (*steps, step(node))) for root, steps in ways_to(node.input)]
    if isinstance(node, UnionNode):
        columns = Select(tuple(map(quoted, node.columns.names)))
        return [(root, (*steps, columns)) for member in node.members for root, steps in ways_to(member)]
    raise TypeError(node)


def quoted(name: str) -> str:
    """A name as expressions write one that may hold anything.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def through(steps: tuple[Step, ...], rows: pa.Table, declared: pa.Schema | None = None) -> pa.Table:
    """Rows after some steps; those of a file, whose columns are `declared`, may have texts that are encoded."""
    view = View.of(rows, declared)
    for each in steps:
        view = each.of(view)
    return view.table()


def in_pieces(
    steps: tuple[Step, ...], rows: pa.Table, size: int, declared: pa.Schema | None = None
) -> Iterator[pa.Table]:
    """The same, in pieces of about `size` bytes where rows get wider on the way."""
    before = next((number for number, each in enumerate(steps) if isinstance(each, Fetch)), len(steps))
    made = through(steps[:before], rows, declared)
    if before == len(steps):
        yield made
        return
    fetch = steps[before]
    if not isinstance(fetch, Fetch):
        raise TypeError(fetch)
    for piece in fetch.pieces(made, size):
        yield from in_pieces(steps[before + 1 :], piece, size)
