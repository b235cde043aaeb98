"""The front stage: a cache of single master rows that answers frequent keys before any back end is asked.

An entry is all rows of one key, or the fact that there are none, so a hit is a complete answer. Which entries are worth
their room depends on how often they matched (`admission`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.operator import Out
from penstock.core.pages import Page, PageStore, read_page, write_page
from penstock.core.rows import HASH, TIME, Hashes, Indices, concat, hashes_of
from penstock.kernels.distinct import run_starts
from penstock.kernels.hashing import hash_keys
from penstock.kernels.sort import stable_order
from penstock.operators.lookup.admission import RULES, Frequencies, Threshold
from penstock.operators.lookup.answers import Answers, Mask
from penstock.operators.lookup.config import PRESENT
from penstock.operators.lookup.methods import Front

CACHED = 1
"""The kind of pages that hold cached master rows."""

_BLOCKS = 8
"""Blocks of entries are merged if there are more than this, as are those that are mostly empty."""

_COPIES = 3
"""Rows are offered only while there is room for this many times their bytes, to sort and select them."""

_MERGED = 4
"""Blocks of up to 1/_MERGED of the cache are merged at a time: that much is in memory twice meanwhile."""

_FEW = 4096
"""Up to this many cached rows are always merged into one block: searching another block would take as long."""

_SLOT = 16
"""Bytes beside each row: its frequency and its entry."""


@dataclass(slots=True)
class FrontStats:
    """Hits, misses and evictions so far."""

    hits: int = 0
    misses: int = 0
    """Rows that went on to the back end."""
    evictions: int = 0


@dataclass(slots=True)
class _Block:
    """Cached rows, ascending by hash; an entry is a run of them."""

    rows: pa.RecordBatch
    first: Indices
    freq: Frequencies
    alive: Mask
    page: Page | None = None
    changed: bool = True

    @property
    def single(self) -> bool:
        """Whether each entry is one row."""
        return bool(self.first.size == self.rows.num_rows)

    @property
    def sizes(self) -> Indices:
        """How many rows each entry has."""
        return np.diff(self.first, append=self.rows.num_rows)

    def by_row(self, of_entries: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of entries, repeated for each of their rows."""
        return of_entries if self.single else np.repeat(of_entries, self.sizes)

    def of_rows(self, rows: Indices) -> Indices:
        """The entries of some rows."""
        return rows if self.single else np.searchsorted(self.first, rows, "right") - 1


class FrontStage:
    """The cache of one shard."""

    def __init__(self, settings: Front, answers: Answers, columns: pa.Schema, budget: Budget) -> None:
        self._settings = settings
        self._answers = answers
        self._budget = budget
        self.limit = int(settings.share * budget.limit)
        self.schema = pa.schema([(HASH, pa.uint64()), (TIME, pa.int64()), *columns, (PRESENT, pa.bool_())])
        self.threshold = Threshold(settings.threshold, settings.every, settings.adaptive)
        self.stats = FrontStats()
        self._blocks: list[_Block] = []
        self._charged = 0
        self._offers = 0

    @property
    def rows(self) -> int:
        """How many rows are cached."""
        return sum(int(block.sizes[block.alive].sum()) for block in self._blocks)

    @property
    def slots(self) -> int:
        """How many rows there is room for, by the average width of cached rows."""
        if self._settings.slots is not None:
            return self._settings.slots
        held = sum(block.rows.num_rows for block in self._blocks)
        width = sum(block.rows.nbytes for block in self._blocks) / held if held else _WIDTH
        return max(1, int(self.limit / (width + _SLOT)))

    @property
    def keys(self) -> pa.Table:
        """The cached rows, for inspection."""
        live = [block.rows.take(pa.array(np.flatnonzero(block.by_row(block.alive)))) for block in self._blocks]
        return pa.Table.from_batches(live, self.schema)

    def asked_for(self, misses: int) -> int:
        """How many rows to probe to get about `misses` misses, by the hit rate so far, plus a margin."""
        hits, more = self.stats.hits, misses + misses // 8
        return more + more * hits // max(1, self.stats.misses)

    def probe(self, rows: pa.RecordBatch) -> Generator[Out, None, Mask]:
        """Answer the rows whose key is cached. Returns which those are."""
        hit = np.zeros(rows.num_rows, np.bool_)
        hashes = hashes_of(rows)
        for block in self._blocks:
            counts = np.zeros(block.rows.num_rows, np.int64)
            for i, j in self._answers.pairs(rows, hashes, block.rows):
                live = block.alive[block.of_rows(j)]
                i, j = i[live], j[live]
                hit[i] = True
                there = block.rows.column(PRESENT).to_numpy(zero_copy_only=False)[j]
                if self._settings.policy == "decay":
                    counts += np.bincount(j, minlength=counts.size)
                yield from self._answers.found(rows, i[there], block.rows, j[there])
                yield from self._answers.alone(rows, i[~there])
            if counts.any():
                block.freq += counts[block.first]
                block.changed = True
        self.stats.hits += int(hit.sum())
        return hit

    def offer(self, rows: pa.RecordBatch, hashes: Hashes, counts: Indices) -> None:
        """Offer master rows, complete for each key, in the order in which they matched.

        `hashes` are those of the stream rows that matched, `counts` their number.
        """
        worth = counts >= self.threshold.value
        if not worth.any() or _COPIES * rows.nbytes > self._budget.room:
            return
        places = np.flatnonzero(worth)
        order = places[stable_order(hashes[places])]
        rows, hashes, counts = rows.take(pa.array(order)), hashes[order], counts[order]
        first = run_starts(hashes.view(np.int64))
        self._forget(hashes)
        with self._budget.hold(rows.nbytes, "rows that are offered to the cache"):
            self._admit(_block(rows, hashes, self.schema), first, counts[first].astype(np.float64), order[first])

    def offer_missing(self, keys: Sequence[pa.Array], names: Sequence[str], hashes: Hashes, counts: Indices) -> None:
        """Offer the fact that the table does not have these keys."""
        given = {name: _encoded(key, self.schema.field(name).type) for name, key in zip(names, keys, strict=True)}
        columns = [given.get(f.name, pa.nulls(hashes.size, f.type)) for f in self.schema if f.name not in _OURS]
        fields = [field for field in self.schema if field.name not in _OURS]
        rows = pa.RecordBatch.from_arrays(
            [*columns, pa.array(np.zeros(hashes.size, np.bool_))],
            schema=pa.schema([*fields, self.schema.field(PRESENT)]),
        )
        self.offer(rows, hashes, counts)

    def invalidate(self, keys: Sequence[pa.Array] | None) -> None:
        """Drop the entries of these keys, or all entries."""
        if keys is None:
            self._clear()
            return
        changed = hash_keys(keys)
        for block in self._blocks:
            gone = np.isin(self._answers.hashes(block.rows, self._answers.master_keys(block.rows)), changed)
            block.alive &= ~np.logical_or.reduceat(gone, block.first)
            block.changed = True
        self._tidy()

    def resize(self, limit: int) -> None:
        """Change the memory limit of the cache; if it shrinks, the least frequent entries are evicted."""
        self.limit = limit
        excess = self.rows - self.slots
        if excess > 0:
            where, freq, sizes = self._entries()
            order = np.argsort(freq, kind="stable")
            gone = order[: np.searchsorted(np.cumsum(sizes[order]), excess) + 1]
            self._evict(where, gone)
            self._tidy()

    @property
    def span(self) -> int:
        """Number of misses over which missed keys are counted, in front of a back end that answers at once."""
        return self._settings.span or 4 * self.slots

    def iterated(self, evictions: int, *, shedding: bool = False) -> None:
        """Record the end of an iteration of the join."""
        slots = self.slots
        self.threshold.look(self.rows / slots, evictions, slots, shedding)

    def save(self, store: PageStore) -> list[Page]:
        """Write the cache to pages. Rows that are in a page already stay there; frequencies are stored beside it."""
        self._tidy()
        pages = []
        for block in self._blocks:
            if block.page is None:
                block.page = write_page(store, CACHED, block.rows)
            if block.changed:
                worth = block.by_row(np.where(block.alive, block.freq, -1.0))
                entry = block.by_row(np.arange(block.first.size))
                beside = pa.record_batch({"freq": pa.array(worth), "entry": pa.array(entry)})
                block.page = replace(block.page, marks=store.put(beside))
            pages.append(block.page)
        return pages

    def restore(self, store: PageStore, pages: Sequence[Page]) -> None:
        """Restore saved pages as far as there is room: those of several shards may not fit."""
        for page in pages:
            rows = read_page(store, page)
            beside = store.get(str(page.marks)).slice(page.begin, page.rows)
            entry = beside.column("entry").to_numpy()
            first = run_starts(entry)
            freq = beside.column("freq").to_numpy()[first].copy()
            if self._charge(rows):
                self._blocks.append(_Block(rows, first, freq, freq >= 0, page, changed=False))
        self.resize(self.limit)

    def _admit(self, rows: pa.RecordBatch, first: Indices, offered: Frequencies, order: Indices) -> None:
        where, freq, sizes = self._entries()
        needs = np.diff(first, append=rows.num_rows)
        rank = np.argsort(order, kind="stable")
        free = max(0, self.slots - int(sizes.sum()))
        verdict = RULES[self._settings.policy](freq, sizes, free, offered[rank], needs[rank])
        admitted = np.sort(rank[verdict.admitted])
        self._evict(where, verdict.evicted)
        self.stats.evictions += verdict.evicted.size + verdict.passing
        self._decay(offered.size)
        if admitted.size:
            chosen = np.zeros(first.size, np.bool_)
            chosen[admitted] = True
            kept = rows.filter(pa.array(np.repeat(chosen, needs)))
            if self._charge(kept):
                starts = np.cumsum(needs[chosen]) - needs[chosen]
                self._blocks.append(_Block(kept, starts, offered[chosen], np.ones(admitted.size, np.bool_)))
        self._tidy()

    def _entries(self) -> tuple[list[tuple[_Block, Indices]], Frequencies, Indices]:
        """The live entries: where they are, their frequencies, their rows."""
        where = [(block, np.flatnonzero(block.alive)) for block in self._blocks]
        freq = [block.freq[live] for block, live in where]
        sizes = [block.sizes[live] for block, live in where]
        return where, np.concatenate([np.empty(0), *freq]), np.concatenate([np.empty(0, np.int64), *sizes])

    def _evict(self, where: list[tuple[_Block, Indices]], gone: Indices) -> None:
        before = 0
        for block, live in where:
            mine = gone[(gone >= before) & (gone < before + live.size)] - before
            if mine.size:
                block.alive[live[mine]] = False
                block.changed = True
            before += live.size

    def _forget(self, hashes: Hashes) -> None:
        """Drop entries that are offered again. `hashes` are ascending, like those of a block."""
        for block in self._blocks:
            held = hashes_of(block.rows)
            held = held if block.single else held[block.first]
            places = held.searchsorted(hashes)
            again = places[held.take(places, mode="clip") == hashes]
            if block.alive[again].any():
                block.alive[again] = False
                block.changed = True

    def _decay(self, offers: int) -> None:
        if self._settings.policy != "decay":
            return
        self._offers += offers
        if self._offers >= (self._settings.halve or self.slots):
            self._offers = 0
            for block in self._blocks:
                block.freq /= 2
                block.changed = True

    def _charge(self, rows: pa.RecordBatch) -> bool:
        """Charge rows to the budget; False if they do not fit, and are not cached."""
        size = _size(rows)
        if size > self._budget.room:
            return False
        self._budget.charge(size, "cached master rows")
        self._charged += size
        return True

    def _tidy(self) -> None:
        """Merge blocks if there are many, or if most of their rows were evicted."""
        held, live = sum(block.rows.num_rows for block in self._blocks), self.rows
        if len(self._blocks) <= (_BLOCKS if held > _FEW else 1) and 2 * live >= held:
            return
        chosen = self._to_merge()
        if len(chosen) > 1 or any(not block.alive.all() for block in chosen):
            self._merge(chosen)

    def _to_merge(self) -> list[_Block]:
        """All blocks if they are small; else those that are mostly empty, then the smallest, up to the size limit."""
        most = min(self.limit // _MERGED, self._budget.room)
        if sum(_size(block.rows) for block in self._blocks) <= most:
            return self._blocks
        by_size = sorted(self._blocks, key=lambda block: (2 * block.alive.sum() >= block.alive.size, _size(block.rows)))
        sizes = np.cumsum([_size(block.rows) for block in by_size])
        return by_size[: max(1, int(sizes.searchsorted(most, "right")))]

    def _merge(self, chosen: list[_Block]) -> None:
        """Merge the live rows of blocks into one block, or drop them for lack of room. Each is released once copied."""
        needs = sum(_size(block.rows) for block in chosen)
        if needs > self._budget.room:
            self._taken_out(chosen)
            return
        with self._budget.hold(needs, "blocks of cached rows, while they are merged"):
            freq = np.concatenate([np.empty(0), *(b.by_row(np.where(b.alive, b.freq, -1.0)) for b in chosen)])
            kept = self._taken_out(chosen)
            whole = concat(kept, self.schema)
            del kept
            order = stable_order(hashes_of(whole))
            freq = freq[freq >= 0][order]
            merged = whole.take(pa.array(order))
            del whole
        if merged.num_rows and self._charge(merged):
            first = run_starts(hashes_of(merged).view(np.int64))
            self._blocks.append(_Block(merged, first, freq[first], np.ones(first.size, np.bool_)))

    def _taken_out(self, chosen: list[_Block]) -> list[pa.RecordBatch]:
        """Remove blocks from the cache and return their live rows."""
        chosen, kept = list(chosen), []
        gone = {id(block) for block in chosen}
        self._blocks = [block for block in self._blocks if id(block) not in gone]
        while chosen:
            block = chosen.pop(0)
            size = _size(block.rows)
            kept.append(block.rows.filter(pa.array(block.by_row(block.alive))))
            self._budget.release(size)
            self._charged -= size
            del block
        return kept

    def _clear(self) -> None:
        self._blocks = []
        self._budget.release(self._charged)
        self._charged = 0


_OURS = (HASH, TIME, PRESENT)

_WIDTH = 120
"""Assumed bytes of a row while none is cached."""


def _size(rows: pa.RecordBatch) -> int:
    size: int = rows.nbytes + _SLOT * rows.num_rows
    return size


def _encoded(key: pa.Array, kind: pa.DataType) -> pa.Array:
    """A stream's key in the type of the table's, which may be a dictionary of the values that the stream has."""
    return key if key.type == kind else key.dictionary_encode().cast(kind)


def _block(rows: pa.RecordBatch, hashes: Hashes, schema: pa.Schema) -> pa.RecordBatch:
    """Master rows in the cache's schema, with the hashes of the stream rows that matched."""
    count = rows.num_rows
    names = [field.name for field in schema if field.name not in _OURS]
    there = rows.column(PRESENT) if PRESENT in rows.schema.names else pa.array(np.ones(count, np.bool_))
    arrays = [pa.array(hashes), pa.array(np.zeros(count, np.int64)), *(rows.column(name) for name in names), there]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
