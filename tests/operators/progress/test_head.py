"""Head: the first rows of a stream, as many as asked for, the same ones whenever an epoch is run again."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.operator import Quiet, State
from penstock.core.pages import clip_page
from penstock.core.rows import RowType
from penstock.core.time import TIME_MAX
from penstock.kernels.route import hash_range
from penstock.operators.progress import Head, head
from penstock.storage.memory import MemoryPages
from tests.items import Bound, Host, Restart, rows
from tests.streams import ROWS, batch, examples

epochs = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12), max_size=6)


def epoch(host: Host, *pairs: tuple[int, int]) -> list[tuple[int, int]]:
    """What comes out of one epoch."""
    before = len(host.pairs())
    host.on(rows(*pairs))
    host.out += host.logic.idle(Quiet(len(pairs)))
    return host.pairs()[before:]


def test_of_an_epoch_that_has_too_many_the_earliest_come_out():
    host = Host(Head(3))
    assert epoch(host, (1, 7), (2, 9)) == [(1, 7), (2, 9)]
    assert epoch(host, (3, 5), (4, 2), (5, 1)) == [(5, 1)]
    assert epoch(host, (6, 0)) == []
    assert host.config.has_enough([host.logic.state()])


def test_fewer_rows_than_asked_for_all_come_out_and_are_not_enough():
    host = Host(Head(3))
    assert epoch(host, (1, 7), (2, 9)) == [(1, 7), (2, 9)]
    assert not host.config.has_enough([host.logic.state()])


def rows_of(cut: list[list[tuple[int, int]]]) -> list[list[dict[str, int]]]:
    """Rows of epochs, each with an id of its own."""
    ids = iter(range(1000))
    return [[{"k": k, "t": t, "id": next(ids)} for k, t in pairs] for pairs in cut]


def taken(
    cut: list[list[dict[str, int]]], wanted: int, order: random.Random, memory: int = 1 << 20
) -> list[list[tuple[int, ...]]]:
    """What comes out of each epoch, whose rows arrive in some order and some pieces; each starts from saved state."""
    config, state, out = Head(wanted), State(), []
    store = MemoryPages(Budget(1 << 20))
    for some in cut:
        budget = Budget(memory)
        logic = config.logic((ROWS,), store, budget, state)
        some = order.sample(some, len(some))
        found = []
        while some:
            size = order.randint(1, len(some))
            found += logic.rows(0, batch(some[:size], ROWS))
            some = some[size:]
        found += logic.idle(Quiet(0))
        state = logic.state()
        assert budget.held == 0
        assert budget.peak <= memory
        out.append([tuple(row.values()) for each in found for row in each.rows.to_pylist()])
    return out


@given(epochs, st.integers(1, 30), st.integers(0, 99))
@examples(0.5)
def test_it_gives_the_first_rows_of_the_epochs_whatever_their_order_and_memory(cut, wanted, seed):
    whole = rows_of(cut)
    found = taken(whole, wanted, random.Random(seed))
    left = wanted
    for some, given_ in zip(whole, found, strict=True):
        times = sorted(row["t"] for row in some)
        assert sorted(row[1] for row in given_) == times[:left]
        assert set(given_) <= {tuple(row.values()) for row in some}
        assert len(set(given_)) == len(given_)
        left -= len(given_)
    assert sum(map(len, found)) == min(wanted, sum(map(len, whole)))
    again = taken(whole, wanted, random.Random(seed + 1), memory=4_000)
    assert [set(one) for one in again] == [set(one) for one in found]


def test_rows_beyond_the_memory_wait_in_pages():
    whole = rows_of([[(n % 7, n % 3) for n in range(900)], [(1, 1)] * 30])
    small, large = (taken(whole, 700, random.Random(memory), memory) for memory in (6_000, 1 << 20))
    assert [len(one) for one in small] == [700, 0]
    assert set(small[0]) == set(large[0])


def test_of_rows_that_are_all_alike_exactly_as_many_come_out_as_are_wanted():
    config = Head(20)
    columns = pa.schema({"t": pa.int64(), "tags": pa.map_(pa.string(), pa.string())})
    kind = RowType(columns, (), "t")
    logic = config.logic((kind,), MemoryPages(Budget(1 << 20)), Budget(3_000), State())
    alike = pa.record_batch(
        [pa.array([0] * 200, pa.uint64()), pa.array([5] * 200), pa.array([[("a", "b")]] * 200, columns.field(1).type)],
        schema=kind.inside,
    )
    out = [*logic.rows(0, alike), *logic.idle(Quiet(0))]
    assert sum(each.rows.num_rows for each in out) == 20


def test_its_count_goes_with_the_shard_that_gets_its_rows():
    host = Host(Head(5))
    epoch(host, (1, 1), (2, 2))
    (page,) = host.logic.state().pages
    parts = [clip_page(host.store, page, *hash_range(shard, 4)) for shard in range(4)]
    (kept,) = [part for part in parts if part is not None]
    logic = Head(5).logic((ROWS,), host.store, Budget(1 << 20), State((kept,)))
    assert logic.counts() == {"given": 2}


def test_restarts_lose_no_count():
    host = Host(Head(4))
    epoch(host, (1, 1), (2, 2))
    host.on(Restart())
    assert epoch(host, (3, 3), (4, 4), (5, 5)) == [(3, 3), (4, 4)]
    host.on(Restart(), Bound(0, TIME_MAX))
    assert epoch(host, (6, 6)) == []


@pytest.mark.parametrize("rows_", [0, -1, 2.5, True, "3"])
def test_a_head_of_no_rows_is_refused(rows_):
    with pytest.raises(ConfigError, match=r"is not a number of rows\. Write how many to take, as in head\(100\)"):
        Head(rows_)


def test_a_choice_by_the_order_of_arrival_is_found_out(monkeypatch):
    """Mutation: candidates are taken as they come."""
    monkeypatch.setattr(head, "order_by", lambda columns: __import__("numpy").arange(columns[0].size))
    whole = rows_of([[(n, 9 - n) for n in range(9)]])
    assert taken(whole, 3, random.Random(1)) != taken(whole, 3, random.Random(2))
