"""Changes a page table by copying what is concerned: partitions are written anew, all others are shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import TableError
from penstock.core.rows import HASH, Indices, concat, hashes_of
from penstock.kernels.distinct import same_rows
from penstock.kernels.match import expand
from penstock.kernels.sort import stable_order
from penstock.storage.tables.manifest import Manifest, Versions
from penstock.storage.tables.opened import open_version
from penstock.storage.tables.partitions import PageWriter, cut_batch, distinct_keys, in_order, keys_of, order_of
from penstock.storage.tables.ranges import Cut, sort_order

Mask = npt.NDArray[np.bool_]

_PAIRS = 1 << 16

_SMALL_PAGES = 16
"""More pages than this that are less than half full are put together, so that look-ups touch few of them."""

_SPARE = 4096
"""Bytes of a page that need not be rows."""


class _Part(NamedTuple):
    """A partition that is written anew; it may have been cut."""

    rows: pa.RecordBatch
    cut: Cut
    number: int


class Edit:
    """One change of a table, begun at one of its versions.

    Partitions that have grown beyond 2θ are cut; the first part keeps the number.
    """

    def __init__(self, versions: Versions, base: Manifest, left_out: int = 0) -> None:
        self._versions = versions
        self._base = base
        self._left_out = left_out
        self._layout = base.layout
        self._table = open_version(versions.uri, base)
        self._parts = self._table.listed
        self._theta = base.layout.theta(base.rows, base.nbytes)
        self._removed: list[pa.RecordBatch] = []

    def commit(self, removed: pa.RecordBatch | None, added: pa.RecordBatch | None) -> Manifest:
        """Remove the rows of some keys, then add rows; keys and rows come with their hashes. The latest version."""
        if added is not None and not self._base.rows:
            self._theta = self._layout.theta(added.num_rows, added.nbytes)
        behind, inside = (None, None) if added is None else self._behind(added)
        store = self._versions.pages(self._base.version + 1)
        writer = PageWriter(store, self._layout)
        rewritten = self._concerned(removed, inside)
        moved = False
        for part in self._anew(rewritten, removed, inside):
            writer.put(part.rows, part.cut, [part.number])
            moved |= part.cut.ends.size > 1
        if behind is not None and behind.num_rows:
            writer.put(*cut_batch(behind, self._layout, self._theta))
        writer.flush()
        changed = self._changed(added)
        if not changed.num_rows:
            for name in {name for listed in writer.listed for name in listed.column("page").to_pylist()}:
                store.drop(name)
            return self._base
        kept = np.ones(self._parts.num_rows, np.bool_)
        kept[rewritten] = False
        parts = in_order(pa.concat_batches([self._parts.filter(pa.array(kept)), *writer.listed]))
        left_out = self._base.null_keys + self._left_out
        manifest = next_version(self._base, store.put(parts), parts, left_out, store.put(changed), moved)
        self._versions.commit(manifest)
        return manifest

    def _behind(self, added: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Rows that make partitions of their own after all others, and rows that go into those that are there.

        Nothing has to move for keys that are greater than all that ever were, unless they fill the last partition up.
        """
        parts = self._parts
        if not parts.num_rows:
            return added, added.slice(0, 0)
        if self._layout.by == "hash":
            return added.slice(0, 0), added
        greatest = parts.column("high")[parts.num_rows - 1]
        after = pc.greater(order_of(added, self._layout), greatest)
        last = parts.column("end")[-1].as_py() - parts.column("begin")[-1].as_py()
        count = pc.sum(after).as_py() or 0
        if last < self._theta and last + count <= 2 * self._theta:
            return added.slice(0, 0), added
        return added.filter(after), added.filter(pc.invert(after))

    def _concerned(self, removed: pa.RecordBatch | None, inside: pa.RecordBatch | None) -> Indices:
        """The places of partitions that have to be written anew."""
        none = np.empty(0, np.int64)
        if not self._parts.num_rows:
            return none
        gone = none if removed is None else self._present(removed)
        come = none if inside is None else self._places(inside)
        places = np.union1d(gone, come)
        return np.union1d(places, self._untidy(places)) if places.size else places

    def _present(self, keys: pa.RecordBatch) -> Indices:
        there = self._table.partition_of(hashes_of(keys), keys_of(keys, self._layout)) >= 0
        return self._places(keys.filter(pa.array(there)))

    def _places(self, rows: pa.RecordBatch) -> Indices:
        return self._table.place(hashes_of(rows), keys_of(rows, self._layout))

    def _untidy(self, concerned: Indices) -> Indices:
        """Partitions on pages of which less than half is needed, and on small pages once these are many."""
        live = np.ones(self._parts.num_rows, np.bool_)
        live[concerned] = False
        encoded = self._parts.column("page").dictionary_encode()
        page = encoded.indices.to_numpy()
        sizes = np.array([int(name.split("-")[-2]) for name in encoded.dictionary.to_pylist()])
        needed = np.bincount(page, np.where(live, self._parts.column("nbytes").to_numpy(), 0), sizes.size)
        small = (needed > 0) & (2 * sizes < self._layout.page_bytes)
        poor = 2 * needed < sizes - _SPARE
        chosen = poor | small if int(small.sum()) > _SMALL_PAGES else poor
        return np.flatnonzero(live & chosen[page])

    def _anew(self, places: Indices, removed: pa.RecordBatch | None, inside: pa.RecordBatch | None) -> Iterator[_Part]:
        goes, comes = self._sorted(removed), self._sorted(inside)
        for place in places.tolist():
            rows, number = self._table.slice(place), self._parts.column("number")[place].as_py()
            keys = _at(goes, place)
            if keys is not None:
                gone, found = _having(rows, keys, keys_of(rows, self._layout), keys_of(keys, self._layout))
                rows = rows.filter(pa.array(~gone))
                self._removed.append(keys.filter(pa.array(found)))
            new = _at(comes, place)
            yield _Part(*self._cut(place, rows, new), number)

    def _sorted(self, rows: pa.RecordBatch | None) -> tuple[pa.RecordBatch, Indices] | None:
        """Rows by the place of their partition, and these."""
        if rows is None or not rows.num_rows or not self._parts.num_rows:
            return None
        places = self._places(rows)
        order = np.argsort(places, kind="stable")
        return rows.take(pa.array(order)), places[order]

    def _cut(self, place: int, rows: pa.RecordBatch, new: pa.RecordBatch | None) -> tuple[pa.RecordBatch, Cut]:
        """The rows of a partition and those that come to it, cut if they are too many.

        It keeps the range it had, or a greater one: keys that it has lost may come back to it.
        """
        low, high = self._parts.column("low").slice(place, 1), self._parts.column("high").slice(place, 1)
        if new is not None:
            rows = pa.concat_batches([rows, new])
            rows = rows.take(pa.array(stable_order(hashes_of(rows))))
            values = order_of(new, self._layout)
            low, high = _least(low, values) if place == 0 else low, _greatest(high, values)
        if rows.num_rows > 2 * self._theta:
            rows, cut = cut_batch(rows, self._layout, self._theta)
            return rows, Cut(
                cut.ends,
                pa.concat_arrays([low, cut.low.slice(1)]),
                pa.concat_arrays([cut.high.slice(0, cut.ends.size - 1), high]),
            )
        return rows, Cut(np.array([rows.num_rows]), low, high)

    def _changed(self, added: pa.RecordBatch | None) -> pa.RecordBatch:
        names = [HASH, *self._layout.keys]
        keys = [*self._removed, *([] if added is None else [added.select(names)])]
        schema = pa.schema([pa.field(HASH, pa.uint64()), *(self._layout.columns.field(n) for n in self._layout.keys)])
        return distinct_keys(concat(keys, schema), self._layout)


def next_version(
    base: Manifest, listed: str, parts: pa.RecordBatch, left_out: int, changed: str | None, moved: bool
) -> Manifest:
    """The version after `base`, of which `parts` are the partitions, listed on a page."""
    version = base.version + 1
    rows = int((parts.column("end").to_numpy() - parts.column("begin").to_numpy()).sum())
    return Manifest(
        version=version,
        layout=base.layout,
        partitions=listed,
        rows=rows,
        nbytes=int(parts.column("nbytes").to_numpy().sum()),
        null_keys=left_out,
        unique=bool(parts.column("unique").to_numpy(zero_copy_only=False).all()),
        changed=changed,
        moved=version if moved else base.moved,
    )


def check_expected(versions: Versions, base: Manifest, expected: str | None) -> None:
    """Refuse a change of a table that is not at the version it is expected at."""
    if expected is not None and expected != str(base.version):
        raise TableError.conflict(versions.uri, expected, str(base.version))


def _at(some: tuple[pa.RecordBatch, Indices] | None, place: int) -> pa.RecordBatch | None:
    """Those of some rows, sorted by place, that are at one."""
    if some is None:
        return None
    rows, places = some
    begin, end = np.searchsorted(places, [place, place + 1]).tolist()
    return rows.slice(begin, end - begin) if end > begin else None


def _having(
    rows: pa.RecordBatch, keys: pa.RecordBatch, theirs: list[pa.Array], wanted: list[pa.Array]
) -> tuple[Mask, Mask]:
    """Which rows have one of some keys, and which keys a row has."""
    held, hashes = hashes_of(rows), hashes_of(keys)
    gone, found = np.zeros(rows.num_rows, np.bool_), np.zeros(keys.num_rows, np.bool_)
    for i, j in expand(held.searchsorted(hashes), held.searchsorted(hashes, "right"), _PAIRS):
        equal = same_rows(wanted, i, theirs, j)
        gone[j[equal]], found[i[equal]] = True, True
    return gone, found


def _least(one: pa.Array, others: pa.Array) -> pa.Array:
    every = pa.concat_arrays([one, others])
    return every.take(pa.array(sort_order(every)[:1]))


def _greatest(one: pa.Array, others: pa.Array) -> pa.Array:
    every = pa.concat_arrays([one, others])
    return every.take(pa.array(sort_order(every)[-1:]))
