"""Distinct: one row per key within some time, whatever the order of arrival."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.durations import Duration
from penstock.core.errors import ConfigError
from penstock.core.operator import Quiet, State
from penstock.core.pages import clip_page
from penstock.core.rows import RowType, hashes_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.progress import Distinct
from penstock.operators.progress import distinct as module
from penstock.operators.progress.distinct import Deciding
from penstock.storage.compaction import compact
from tests.items import Bound, Host, Restart, Rows, memories, rows, streams
from tests.oracle import progress as oracle
from tests.streams import ROWS, EpochPages, batch, examples


def within(steps: int | None) -> Distinct:
    return Distinct(within=None if steps is None else Duration.of(steps))


def came(items: list[Any]) -> list[tuple[Any, int]]:
    return [pair for item in items if isinstance(item, Rows) for pair in item.rows]


def ended(host: Host) -> Host:
    """Streams end as hosts end them."""
    return host.on(Bound(0, TIME_MAX))


def test_a_key_counts_as_seen_from_the_row_that_was_kept_for_so_long_and_no_longer():
    host = ended(Host(within(10)).on(rows((1, 0), (1, 9), (1, 10), (1, 19), (1, 20), (2, 5))))
    assert Counter(host.pairs()) == Counter([(1, 0), (1, 10), (1, 20), (2, 5)])


def test_a_row_that_was_dropped_does_not_keep_its_key_seen():
    host = ended(Host(within(10)).on(rows((1, 0), (1, 6), (1, 12))))
    assert Counter(host.pairs()) == Counter([(1, 0), (1, 12)])


def test_an_earlier_row_that_arrives_later_is_the_one_that_is_kept():
    host = ended(Host(within(10)).on(rows((1, 7)), rows((1, 3)), Bound(0, 4), rows((1, 8))))
    assert host.pairs() == [(1, 3)]


def test_a_row_leaves_once_the_bound_has_passed_it():
    host = Host(within(10)).on(rows((1, 3)), Bound(0, 3))
    assert host.pairs() == []
    assert host.on(Bound(0, 4)).pairs() == [(1, 3)]


def test_null_is_a_key_like_any_other():
    host = ended(Host(within(10)).on(rows((None, 3), (None, 5), (1, 4))))
    assert Counter(host.pairs()) == Counter([(None, 3), (1, 4)])


def test_without_within_only_rows_of_the_same_time_are_duplicates():
    host = ended(Host(within(None)).on(rows((1, 3), (1, 3), (1, 4)), rows((1, 4))))
    assert Counter(host.pairs()) == Counter([(1, 3), (1, 4)])


@given(streams(), memories, st.sampled_from([None, 1, 2, 5, 100, 2**62]))
@example([rows((1, 0)), Bound(0, 1), Restart(), rows((1, 5)), Bound(0, 6), Restart(), rows((1, 10))], 5_000, 10)
@examples(0.2)
def test_distinct_equals_its_definition(items, memory, steps):
    host = ended(Host(within(steps), memory=memory).on(*items))
    assert Counter(host.pairs()) == Counter(oracle.distinct(came(items), steps or 1))
    assert host.budget.peak <= memory
    assert host.logic.state().pages == ()
    assert host.budget.held == 0


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, None]), st.integers(0, 8), st.integers(0, 2)), max_size=20),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 3]),
)
@examples(0.2)
def test_the_same_rows_are_kept_whatever_the_order_of_arrival(given_rows, chance, steps):
    shuffled = given_rows[:]
    chance.shuffle(shuffled)
    assert kept_of(given_rows, steps, chance) == kept_of(shuffled, steps, chance)


def kept_of(given_rows: list[tuple[Any, int, int]], steps: int, chance: random.Random) -> Counter[Any]:
    """What is kept of rows (key, time, id) that come in this order, in batches, some with a restart between them."""
    host = Host(within(steps))
    left = list(given_rows)
    while left:
        size = chance.randint(1, 6)
        part, left = left[:size], left[size:]
        host.ids = (row[2] for row in part)
        host.on(Rows(0, tuple((k, t) for k, t, _ in part)), *([Restart()] if chance.random() < 0.3 else []))
    ended(host)
    return Counter(tuple(row.values()) for out in host.out for row in out.rows.to_pylist())


class Shards:
    """Distinct on several shards, as hosts run it: state moves when their number changes, bounds are told anew."""

    def __init__(self, config: Distinct, memory: int) -> None:
        self.config, self.memory, self.store = config, memory, EpochPages()
        self.logics = [self._logic(State())]
        self.bound = TIME_MIN
        self.kept: list[tuple[Any, int]] = []

    def _logic(self, state: State) -> Any:
        return self.config.logic((ROWS,), self.store, Budget(self.memory), state)

    def epoch(self, pairs: list[tuple[Any, int]], bound: int, shards: int) -> None:
        """One epoch on so many shards: rows first, then the bound."""
        states = [logic.state() for logic in self.logics]
        pages = [page for state in states for page in compact(state.pages, self.store, Budget(self.memory))]
        self.store.seal()
        parts = [[clip_page(self.store, page, *hash_range(n, shards)) for page in pages] for n in range(shards)]
        self.logics = [self._logic(State(tuple(page for page in part if page is not None))) for part in parts]
        rows = batch([{"k": k, "t": t, "id": 0} for k, t in pairs], ROWS)
        places = shard_of(hashes_of(rows), shards)
        for n, logic in enumerate(self.logics):
            outs = [*logic.advance(0, self.bound), *logic.rows(0, rows.filter(pa.array(places == n)))]
            for out in [*outs, *logic.advance(0, bound), *logic.idle(Quiet(len(pairs)))]:
                self.kept += zip(out.rows.column("k").to_pylist(), out.rows.column("t").to_pylist(), strict=True)
        self.bound = bound


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 15)), max_size=12), st.integers(1, 4)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([1, 4, 30]),
    memories,
)
@examples(0.2)
def test_distinct_equals_its_definition_while_its_shards_change(parts, steps, memory):
    shards = Shards(within(steps), memory)
    given_rows = []
    for number, (pairs, count) in enumerate(parts):
        moved = [(k, 5 * number + t) for k, t in pairs]
        given_rows += moved
        shards.epoch(moved, 5 * number + 5 if number + 1 < len(parts) else TIME_MAX, count)
    assert Counter(shards.kept) == Counter(oracle.distinct(given_rows, steps))


def test_state_is_what_the_bound_has_not_passed_and_keys_kept_less_than_within_before_it():
    host, most = Host(within(30)), 0
    for step in range(60):
        host.on(rows(*((n, 10 * step + n) for n in range(10))), Bound(0, 10 * step))
        most = max(most, sum(page.rows for page in host.logic.state().pages))
    # Ten rows wait; every third batch is kept, and the one before it may still be remembered.
    assert most <= 10 + 2 * 10
    assert len(ended(host).pairs()) == 200


def test_repeated_rows_of_a_key_that_was_kept_do_not_wait():
    host = Host(within(1000)).on(rows((1, 0)), Bound(0, 1), rows(*((1, t) for t in range(1, 500))))
    assert sum(page.rows for page in host.logic.state().pages) == 1


def test_more_rows_of_one_key_and_one_time_than_memory_holds():
    host = Host(within(10), memory=20_000)
    host.on(*(rows(*[(7, 5)] * 40) for _ in range(60)), *(rows(*[(7, t) for t in range(6, 46)]) for _ in range(20)))
    assert Counter(ended(host).pairs()) == Counter([(7, 5), (7, 15), (7, 25), (7, 35), (7, 45)])
    assert host.budget.peak <= 20_000


def test_keys_that_share_a_hash_are_told_apart(monkeypatch):
    host = Host(within(10))
    honest = host.batch
    monkeypatch.setattr(
        host, "batch", lambda pairs: honest(pairs).set_column(0, honest([]).schema.field(0), alike(pairs))
    )
    ended(host.on(rows((1, 0), (2, 1), (1, 2), (2, 12)), Bound(0, 3), rows((1, 5), (2, 5), (1, 10))))
    assert Counter(host.pairs()) == Counter([(1, 0), (2, 1), (1, 10), (2, 12)])


def alike(pairs: Any) -> pa.Array:
    return pa.array(np.full(len(pairs), 7), pa.uint64())


def test_keys_and_columns_of_other_types():
    columns = pa.schema(
        {"k": pa.list_(pa.int64()), "t": pa.int64(), "id": pa.int64(), "m": pa.map_(pa.int64(), pa.int64())}
    )
    config = within(10)
    host = Host(config, types=RowType(columns, keys=("k",), time="t"))
    ended(host.on(rows(([1], 5), ([1], 6), ([2], 5), (None, 5), ([1], 15))))
    assert Counter(map(str, host.pairs())) == Counter(map(str, [([1], 5), ([2], 5), (None, 5), ([1], 15)]))


def test_a_length_that_makes_nothing_a_duplicate_is_refused():
    with pytest.raises(ConfigError, match="within=0 is not positive, so nothing would be a duplicate"):
        within(0)


MUTANTS = {
    "remembers kept rows one step too short": lambda patch: patch.setattr(
        Deciding, "_forget", _with_steps(Deciding._forget, -1)
    ),
    "rules out what is just far enough": lambda patch: patch.setattr(
        Deciding, "_not_ruled_out", _with_steps(Deciding._not_ruled_out, +1)
    ),
    "forgets who was kept in earlier epochs": lambda patch: patch.setattr(
        Deciding, "_since", lambda self, rows: np.full(rows.num_rows, -(2**63))
    ),
    "takes keys of one hash for equal": lambda patch: patch.setattr(module, "leaders", lambda labels, columns: labels),
}


def _with_steps(method: Any, more: int) -> Any:
    def changed(self: Deciding, *given: Any) -> Any:
        self._steps += more
        try:
            return method(self, *given)
        finally:
            self._steps -= more

    return changed


CASES = [
    [rows((1, 0)), Bound(0, 10), rows((1, 10), (1, 11)), Bound(0, 11)],
    [rows((1, 0)), Bound(0, 9), rows((1, 9), (1, 10)), Bound(0, 11)],
    [rows((1, 0), (1, 7)), Bound(0, 5), Bound(0, 8)],
]


@pytest.mark.parametrize("name", MUTANTS)
def test_each_of_these_mistakes_would_show(monkeypatch, name):
    MUTANTS[name](monkeypatch)
    if "hash" in name:
        with pytest.raises(AssertionError):
            test_keys_that_share_a_hash_are_told_apart(monkeypatch)
        return
    results = [Counter(ended(Host(within(10)).on(*items)).pairs()) for items in CASES]
    assert results != [Counter(oracle.distinct(came(items), 10)) for items in CASES]
