"""Rules that are easily got wrong: each is broken here on purpose, and results are then wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.window_join.progressive import engine, met, side
from penstock.operators.window_join.progressive.met import Known, done, log_of
from tests.streams import ever_trace, run


def wrong(seeds: range = range(40)) -> bool:
    """Whether one of some streams comes out wrong."""
    return any(run(case).results != case.expected() for case in map(ever_trace, seeds))


def test_unbroken_it_is_right():
    assert not wrong(range(8, 20))


def _without_memory(mine, i, theirs, j):
    """Who met in memory meets again on disk."""
    parted = replace(mine, arrived=np.full_like(mine.arrived, met.FOREVER))
    return done(parted, i, theirs, j)


def _without_scans(mine, i, theirs, j):
    """Who met from disk to memory meets again."""
    none = np.zeros((1, 0), np.int64)
    blind = [replace(known, scans=np.repeat(none, len(known.met), axis=0)) for known in (mine, theirs)]
    return done(blind[0], i, blind[1], j)


def _without_disk(mine, i, theirs, j):
    """Who met on disk meets again."""
    blind = [replace(known, met=np.zeros_like(known.met)) for known in (mine, theirs)]
    return done(blind[0], i, blind[1], j)


def _one_orientation(mine, i, theirs, j):
    """Only scans of my side's pages count."""
    return done(mine, i, replace(theirs, scans=np.zeros((len(theirs.met), 0), np.int64)), j)


def _either_was_there(mine, i, theirs, j):
    """One of them was in memory when the other came, never mind which left first: max for min of the DTS."""
    came = np.maximum(mine.arrived[i], theirs.arrived[j])
    return done(mine, i, theirs, j) | (came < np.maximum(mine.left[i], theirs.left[j]))


@pytest.mark.parametrize(
    "rule",
    [_without_memory, _without_scans, _without_disk, _one_orientation, _either_was_there],
    ids=lambda r: r.__name__,
)
def test_each_part_of_the_rule_is_needed(monkeypatch, rule):
    monkeypatch.setattr(engine, "done", rule)
    assert wrong()


def test_an_earlier_scan_counts_if_rows_left_after_it(monkeypatch):
    def only_the_last(page, at, others):
        return replace(page, log=replace(log_of(page), scans=(at,)))

    monkeypatch.setattr(engine, "scanned", only_the_last)
    assert wrong()


def test_rows_of_a_merged_page_left_one_by_one(monkeypatch):
    monkeypatch.setattr(side, "_FAN", 2)
    assert not wrong(range(8, 20))
    monkeypatch.setattr(met, "leavings", lambda store, page: np.full(page.rows, log_of(page).left))
    assert wrong()


def test_what_leaves_is_probed_before_it_does(monkeypatch):
    """Probe, flush, insert: flushed first, rows are taken for met by arrivals that never saw them."""

    def flush_first(self, port, rows, met):
        self._make_room(rows)
        yield from probe(self, port, rows, met)

    probe = engine.ProgressiveJoin._probe
    monkeypatch.setattr(engine.ProgressiveJoin, "_probe", flush_first)
    assert wrong()


def test_ticks_go_on_from_the_pages(monkeypatch):
    """A shard that counts from the beginning takes what came later for what came before."""
    monkeypatch.setattr(engine, "latest_tick", lambda page: 0)
    assert wrong()


def test_rows_in_memory_have_not_left():
    slab = side.Slab(pa.record_batch({"k": [1]}), np.ones(1, np.int64), np.array([5]), None)
    assert Known.in_memory(slab).left.tolist() == [met.FOREVER]
