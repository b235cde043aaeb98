"""The blocks of a window on disk: pages, which of their rows have met a partner, and when rows were born."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.pages import Debts, Page, PageStore, read_page, write_page
from penstock.core.rows import Indices
from penstock.operators.window_join.blocks import Block
from penstock.operators.window_join.pairing import Mask
from penstock.operators.window_join.slabs import Slab, unborn


class BlockPages:
    """Writes and reads the blocks of one port; marks are kept if `keeps`."""

    def __init__(self, port: int, store: PageStore, keeps: bool) -> None:
        self._port = port
        self._store = store
        self._keeps = keeps

    def write(self, block: Block, slab: Slab, segment: str) -> None:
        """Write a block's rows and marks."""
        block.page = write_page(self._store, self._port, slab.batch, segment=segment)
        self.write_marks(block, slab.met)

    def write_births(self, block: Block, births: Indices) -> None:
        """Remember when a block's rows were born, if not all at once."""
        if births.min() < births.max():
            block.births = self._store.put(pa.record_batch({"born": births}))

    def write_marks(self, block: Block, met: Mask | None) -> None:
        """Remember who has met a partner, if more have than is known."""
        page = block.page
        if met is None or page is None or (count := int(np.count_nonzero(met))) == block.marked:
            return
        block.marked = count
        self._drop(page.marks)
        block.page = replace(page, marks=self._put_marks(page, met))

    def _put_marks(self, page: Page, met: Mask | None) -> str | None:
        if met is None or not met.any():
            return None
        whole = np.concatenate([np.zeros(page.begin, np.bool_), met])
        return self._store.put(pa.RecordBatch.from_arrays([pa.array(whole)], names=["met"]))

    def read(self, block: Block, newest: int) -> Slab:
        """The rows of a block; they were born at `newest` unless more is known."""
        page = block.page
        if page is None:
            raise AssertionError(f"block {block.number} is not on disk")
        batch = read_page(self._store, page)
        births = np.full(page.rows, newest, np.int64)
        if block.births is not None:
            births = self._store.get(block.births).column(0).to_numpy()[page.begin : page.end].copy()
        return Slab(batch, np.full(page.rows, block.number, np.int64), births, self._read_marks(page))

    def _read_marks(self, page: Page) -> Mask | None:
        if not self._keeps:
            return None
        if page.marks is None:
            return np.zeros(page.rows, np.bool_)
        marks: Mask = self._store.get(page.marks).column(0).to_numpy(zero_copy_only=False)[page.begin : page.end].copy()
        return marks

    def take_up(self, block: Block, page: Page) -> None:
        """A block is on a page of the state before."""
        block.page, block.births = page, None if page.debts is None else page.debts.births
        marks = None if page.marks is None else self._read_marks(page)
        block.marked = 0 if marks is None else int(np.count_nonzero(marks))

    def drop(self, block: Block) -> None:
        """A block is not on disk any more."""
        if block.page is not None:
            self._drop(block.page.name, block.page.marks, block.births)
            block.page, block.births, block.marked = None, None, 0

    def drop_births(self, block: Block) -> None:
        """Nobody asks any more when a block's rows were born."""
        self._drop(block.births)
        block.births = None

    def write_unborn(self, slab: Slab) -> Page:
        """Rows that have met nobody yet, as a page that says so."""
        slab = slab.sorted()
        page = write_page(self._store, self._port, slab.batch)
        return replace(page, marks=self._put_marks(page, slab.met), debts=Debts(role="waiting"))

    def read_unborn(self, page: Page) -> Slab:
        """Such rows again; the page is over."""
        slab = unborn(read_page(self._store, page), self._read_marks(page))
        self._drop(page.name, page.marks)
        return slab

    def _drop(self, *names: str | None) -> None:
        for name in names:
            if name is not None:
                self._store.drop(name)
