"""Writes a page table from batches, within a memory limit, or piece by piece from many tasks.

One process:

    build_page_table(folder, batches, keys=["id"])

A cluster: begin once, write the rows of each range in a task of its own, commit what the tasks report. A task may run
several times; only what is reported counts.

    build = PageBuild.begin(folder, columns, keys=["id"])               # in the driver; picklable
    report = build.write(batches)                                       # in the task of each range
    table = build.commit(reports)                                       # in the driver

Ranges are of the hash of the key, as `kernels.hashing.hash_keys` tells it and `kernels.route.shard_of` cuts it, or of
the key itself if the table is cut by range; either way no two tasks may have rows of the same range.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.core.budget import parse_bytes
from penstock.core.errors import ConfigError
from penstock.core.master import master_schema
from penstock.core.rows import RESERVED, Indices, concat
from penstock.kernels.equal import same
from penstock.kernels.plain import plain_columns, plain_rows
from penstock.storage.files import is_local, path_of
from penstock.storage.tables.edit import next_version
from penstock.storage.tables.manifest import Layout, Manifest, Versions
from penstock.storage.tables.pages import PageTable
from penstock.storage.tables.partitions import (
    PageWriter,
    check_arrow,
    cut_batch,
    enter,
    in_order,
    order_of,
    partition_list,
)
from penstock.storage.tables.ranges import By, check_order, route_over, sort_order

_FAN = 64
"""Rows that do not fit into memory are split into so many ranges on disk, and those again if they must."""

_COPIES = 5
"""A range that is sorted takes up to so many times its size."""

_PAGE = 32 << 20
"""Bytes of a file that is mapped."""

_SAMPLE = 64
"""Keys taken from each batch to find ranges of about the same size."""


def build_page_table(
    uri: str | os.PathLike[str],
    batches: Iterable[pa.Table | pa.RecordBatch],
    keys: Sequence[str],
    *,
    columns: pa.Schema | None = None,
    by: By = "hash",
    partition: str | int = "1 MB",
    partition_rows: int | None = None,
    page: str | int | None = None,
    memory: str | int = "256 MB",
) -> PageTable:
    """Write rows as a page table into a folder; a table that is there becomes the new one in its next version.

    Rows are cut into partitions of one to two times `partition` bytes (or `partition_rows` rows), which joins read at
    once, by ranges of the hash of their key, or of one key if ``by="range"``. About `page` bytes make a file, which is
    checked as a whole when a process first reads of it: 32 MB if not given, or `partition` on a file system that is not
    local, from which files are fetched whole. Rows beyond `memory` are sorted on disk. Rows with a null key
    are counted, not stored.

    >>> import tempfile
    >>> table = build_page_table(tempfile.mkdtemp(), [pa.table({"id": [1, 2, None]})], keys=["id"])
    >>> table.open().size.rows, table.open().null_keys, table.open().unique
    (2, 1, True)
    """
    given = iter(batches)
    if columns is None:
        first = next(given, None)
        if first is None:
            raise ConfigError("batches= is empty, so the table's columns are not known. Write columns=pa.schema(…).")
        if not isinstance(first, pa.Table | pa.RecordBatch):
            raise ConfigError(
                f"rows={type(batches).__name__} holds {type(first).__name__}, not Arrow tables or batches. Write "
                f"pa.table({{…}}), or pa.Table.from_pandas(…) for a pandas DataFrame."
            )
        columns, given = first.schema, chain([first], given)
    build = PageBuild.begin(uri, columns, keys, by=by, partition=partition, partition_rows=partition_rows, page=page)
    return build.commit([build.write(given, memory)])


@dataclass(frozen=True)
class PageBuild:
    """A page table that is being written: what it is, and the version it will be.

    >>> import tempfile
    >>> build = PageBuild.begin(tempfile.mkdtemp(), pa.schema({"id": pa.int64()}), keys=["id"], by="range")
    >>> reports = [build.write([pa.table({"id": ids})]) for ids in ([1, 2], [3])]
    >>> build.commit(reports).open().partitions
    2
    """

    uri: str
    layout: Layout
    version: int

    @classmethod
    def begin(
        cls,
        uri: str | os.PathLike[str],
        columns: pa.Schema,
        keys: Sequence[str],
        *,
        by: By = "hash",
        partition: str | int = "1 MB",
        partition_rows: int | None = None,
        page: str | int | None = None,
    ) -> PageBuild:
        """Check what is asked for; nothing is written yet."""
        folder = path_of(uri, "uri")
        plain = pa.schema([pa.field(entry.name, entry.type) for entry in plain_columns(columns)])
        _check_columns(plain, keys)
        check_order(by, keys, plain)
        if partition_rows is not None and partition_rows < 1:
            raise ConfigError(f"partition_rows={partition_rows} leaves no room for a row. Use at least 1.")
        partition_bytes = parse_bytes(partition, "partition")
        usual = _PAGE if is_local(folder) else partition_bytes
        page_bytes = usual if page is None else parse_bytes(page, "page")
        layout = Layout(plain, tuple(keys), by, partition_bytes, partition_rows, page_bytes)
        there = Versions(folder).numbers()
        if there:
            _check_same(folder, Versions(folder).read().layout, layout)
        return cls(folder, layout, there[-1] + 1 if there else 1)

    def write(self, batches: Iterable[pa.Table | pa.RecordBatch], memory: str | int = "256 MB") -> bytes:
        """Write the rows of a range, and report what was written."""
        store = Versions(self.uri).pages(self.version)
        writer = PageWriter(store, self.layout)
        schema = master_schema(self.layout.columns)
        left_out = 0

        def entered() -> Iterator[pa.RecordBatch]:
            nonlocal left_out
            for batch in _smaller(batches, limit):
                rows, nulls = enter(batch, self.layout)
                left_out += nulls
                yield rows

        limit = max(1, parse_bytes(memory) // _COPIES)
        with tempfile.TemporaryDirectory(prefix="penstock-table-") as folder:
            for rows in _in_ranges(entered(), schema, self.layout, limit, Path(folder)):
                if rows.num_rows:
                    theta = self.layout.theta(rows.num_rows, rows.nbytes)
                    writer.put(*cut_batch(rows, self.layout, theta))
        writer.flush()
        kind = order_of(concat([], schema), self.layout).type
        listed = concat(writer.listed, partition_list(kind))
        return _report(listed, left_out)

    def commit(self, reports: Iterable[bytes]) -> PageTable:
        """Make what was reported the table's next version."""
        versions = Versions(self.uri)
        read = [_read_report(report) for report in reports]
        if not read:
            raise ConfigError("reports=[] holds no report. Write at least one range, also of a table without rows.")
        listed, left_out = zip(*read, strict=True)
        parts = in_order(pa.concat_batches(listed))
        _check_apart(parts)
        store = versions.pages(self.version)
        before = Manifest(self.version - 1, self.layout, "", 0, 0, 0, unique=True, changed=None, moved=0)
        manifest = next_version(before, store.put(parts), parts, sum(left_out), None, moved=True)
        versions.commit(manifest)
        return PageTable(self.uri)


def _in_ranges(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, layout: Layout, limit: int, folder: Path
) -> Iterator[pa.RecordBatch]:
    """The rows of all batches, range after range, each of at most `limit` bytes unless it is one key."""
    held: list[pa.RecordBatch] = []
    size = 0
    while size <= limit:
        batch = next(batches, None)
        if batch is None:
            yield concat(held, schema)
            return
        held.append(batch)
        size += batch.nbytes
    every: Iterator[pa.RecordBatch] = chain(held, batches)
    low = _even(0, (1 << 64) - 1)
    if layout.by == "range":
        _spool(every, folder / "all", schema)
        low = _quantiles(_read(folder / "all"), layout)
        every = _read(folder / "all")
    yield from _range_by_range(every, low, (1 << 64) - 1, schema, layout, limit, folder)


def _range_by_range(
    batches: Iterator[pa.RecordBatch],
    low: pa.Array,
    last: int,
    schema: pa.Schema,
    layout: Layout,
    limit: int,
    folder: Path,
) -> Iterator[pa.RecordBatch]:
    """Split rows into ranges that begin with `low`, and those that are still too large again."""
    sizes = _split(batches, low, schema, layout, limit, folder)
    for place, size in enumerate(sizes):
        path = folder / f"{place}"
        if not path.exists():
            continue
        if size <= limit or len(low) == 1:
            yield concat(list(_read(path)), schema)
        else:
            end = last if layout.by == "range" or place + 1 == len(low) else low[place + 1].as_py() - 1
            finer = _even(low[place].as_py(), end) if layout.by == "hash" else _quantiles(_read(path), layout)
            inner = folder / f"{place}-again"
            inner.mkdir()
            yield from _range_by_range(_read(path), finer, end, schema, layout, limit, inner)
        path.unlink()


def _split(
    batches: Iterator[pa.RecordBatch], low: pa.Array, schema: pa.Schema, layout: Layout, limit: int, folder: Path
) -> list[int]:
    """Write the rows of each range to a file; the bytes of each."""
    route = route_over(low)
    held: list[list[pa.RecordBatch]] = [[] for _ in low]
    sizes, waiting = [0] * len(low), 0
    files: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def flush() -> None:
        for place, some in enumerate(held):
            if some:
                if place not in files:
                    files[place] = pa.ipc.new_stream(str(folder / f"{place}"), schema)
                files[place].write_batch(concat(some, schema))
                some.clear()

    for batch in batches:
        places = route.place(order_of(batch, layout))
        order = np.argsort(places, kind="stable")
        rows, ends = batch.take(pa.array(order)), _ends(places[order], len(low))
        for place in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            begin = int(ends[place - 1]) if place else 0
            held[place].append(rows.slice(begin, int(ends[place]) - begin))
            sizes[place] += held[place][-1].nbytes
        waiting += rows.nbytes
        if waiting >= limit:
            flush()
            waiting = 0
    flush()
    for file in files.values():
        file.close()
    return sizes


def _ends(places: Indices, count: int) -> Indices:
    return np.searchsorted(places, np.arange(count), "right")


def _spool(batches: Iterator[pa.RecordBatch], path: Path, schema: pa.Schema) -> None:
    with pa.ipc.new_stream(str(path), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as source:
        yield from pa.ipc.open_stream(source)


def _even(first: int, last: int) -> pa.Array:
    """The least hashes of ranges of the same length."""
    length = max(1, (last - first + 1) // _FAN)
    count = min(_FAN, last - first + 1)
    return pa.array([first + place * length for place in range(count)], pa.uint64())


def _quantiles(batches: Iterator[pa.RecordBatch], layout: Layout) -> pa.Array:
    """The least keys of ranges of about the same number of rows; no two are the same."""
    some = [order_of(batch.take(_evenly(batch.num_rows, _SAMPLE)), layout) for batch in batches]
    sample = pa.concat_arrays(some)
    chosen = sample.take(pa.array(sort_order(sample))).take(_evenly(len(sample), _FAN))
    fresh = np.concatenate([[True], ~same(chosen.slice(0, len(chosen) - 1), chosen.slice(1))])
    return chosen.filter(pa.array(fresh))


def _evenly(rows: int, count: int) -> pa.Array:
    """Up to `count` places, evenly among the rows."""
    return pa.array(np.unique(np.linspace(0, max(0, rows - 1), min(rows, count)).astype(np.int64)))


def _smaller(batches: Iterable[pa.Table | pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The same rows, of plain types, in batches that are small against the limit."""
    for batch in batches:
        check_arrow(batch)
        whole = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        width = max(1, whole.nbytes // max(1, whole.num_rows))
        for small in whole.to_batches(max_chunksize=max(1, limit // 4 // width)):
            yield from plain_rows(pa.Table.from_batches([small])).to_batches()


def _report(listed: pa.RecordBatch, left_out: int) -> bytes:
    sink = pa.BufferOutputStream()
    noted = listed.replace_schema_metadata({"null_keys": str(left_out)})
    with pa.ipc.new_stream(sink, noted.schema) as writer:
        writer.write_batch(noted)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _read_report(report: bytes) -> tuple[pa.RecordBatch, int]:
    batch = pa.ipc.open_stream(report).read_next_batch()
    return batch.replace_schema_metadata(None), int(batch.schema.metadata[b"null_keys"])


def _check_columns(columns: pa.Schema, keys: Sequence[str]) -> None:
    if not keys:
        raise ConfigError("keys=[] names no key. Write keys=['customer_id'], or several columns.")
    for name in keys:
        if name not in columns.names:
            raise ConfigError.unknown_column("keys", name, columns.names, "this table")
    for name in columns.names:
        if name in RESERVED:
            raise ConfigError(f"columns: {name!r} is a name that penstock reserves. Rename that column.")


def _check_same(uri: str, there: Layout, given: Layout) -> None:
    if there.columns != given.columns or there.keys != given.keys:
        raise ConfigError(
            f"uri={uri!r} holds a table of {_shown(there)}, not of {_shown(given)}. Joins that read it would break: "
            f"write the new table to another folder."
        )


def _shown(layout: Layout) -> str:
    columns = ", ".join(f"{entry.name}: {entry.type}" for entry in layout.columns)
    return f"({columns}) keyed by {', '.join(layout.keys)}"


def _check_apart(parts: pa.RecordBatch) -> None:
    """Refuse ranges that overlap: a key would be in two partitions."""
    others = max(0, parts.num_rows - 1)
    high, low = parts.column("high").slice(0, others), parts.column("low").slice(1)
    # The end of each and the begin of the next, one after the other: sorting leaves them so if none overlap.
    ends = pa.concat_arrays([high, low]).take(pa.array(np.arange(2 * others).reshape(2, -1).T.ravel()))
    if np.any(np.diff(sort_order(ends)) < 0) or same(high, low).any():
        raise ConfigError(
            "reports: two of them cover the same range, so rows of one key would be in two partitions. "
            "Give each task a range of hashes (or of keys, with by='range') of its own."
        )
