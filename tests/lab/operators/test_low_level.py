"""F24: what leaves a low-level table sums up, in order where it must, and the printed flush sticks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lab.operators.low_level import LowLevel, _Slot, _Table, evictions


def rolled_up(settings: LowLevel, groups, wids) -> Counter:
    total: Counter = Counter()
    for gone in evictions(settings, groups, wids):
        total[gone.group, gone.wid] += gone.rows
    return total


@pytest.mark.parametrize("flush", ["iop-slow", "lazy", "oop-slow"])
@pytest.mark.parametrize("slots", [1, 2, 7, 64, 1000])
def test_f24_what_leaves_the_table_sums_up_whatever_its_size(flush, slots):
    rng = np.random.default_rng(slots)
    wids = np.sort(rng.integers(0, 6, 500)) - (rng.integers(0, 3, 500) if flush != "iop-slow" else 0)
    groups = rng.integers(0, 30, 500)
    settings = LowLevel(slots, flush, every=5)
    assert rolled_up(settings, groups, wids) == Counter(zip(groups.tolist(), wids.tolist(), strict=True))


@pytest.mark.parametrize("slots", [1, 2, 7, 64])
def test_f24_in_order_processing_puts_windows_out_in_order(slots):
    rng = np.random.default_rng(slots)
    wids = np.sort(rng.integers(0, 6, 300))
    out = [gone.wid for gone in evictions(LowLevel(slots, "iop-slow"), rng.integers(0, 30, 300), wids)]
    assert out == sorted(out)


def test_f24_lazy_flush_is_never_more_than_so_many_windows_behind():
    rng = np.random.default_rng(1)
    wids = np.sort(rng.integers(0, 20, 400))
    for gone in evictions(LowLevel(512, "lazy", behind=2), rng.integers(0, 90, 400), wids):
        if gone.at < 400:
            assert wids[gone.at] - gone.wid <= 4


class PrintedTable(_Table):
    """Fig 8-6: the flush does not step over a slot that is not old."""

    def _flush_one(self):
        slot = self._slots[self._place] if self._place < self._settings.slots else None
        if slot is not None and self._is_old(slot):
            yield from self._leave(self._place)
            self._place += 1


@pytest.mark.parametrize(("table", "leaves"), [(_Table, 1), (PrintedTable, 0)])
def test_f24_the_printed_slow_flush_sticks_at_a_slot_that_is_not_old(table, leaves):
    flushing = table(LowLevel(4, "iop-slow"))
    flushing._current = 5
    flushing._slots = [_Slot(0, 5, 1), None, _Slot(2, 4, 3), None]
    assert len(list(flushing._flush_one())) == leaves
