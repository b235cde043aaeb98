"""Top: the rows with the greatest values of each window and group."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import LocalFlow, bounded_delay, count, session
from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.operator import Quiet, State
from penstock.core.pages import clip_page
from penstock.core.rows import RowType, hashes_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import sliding
from penstock.kernels.route import hash_range, shard_of
from penstock.operators.progress import Top
from penstock.operators.progress import top as module
from penstock.storage.compaction import compact
from tests.items import Bound, Host, Restart, Rows, memories, rows, streams
from tests.oracle import progress as oracle
from tests.streams import EpochPages, batch, examples

VALUES = RowType(pa.schema({"k": pa.int64(), "t": pa.int64(), "v": pa.float64(), "note": pa.string()}), ("k",), "t")


def latest(n: int, size: int = 10) -> Top:
    """The latest rows of each key in windows of some size."""
    return Top(("k",), n, "t", sliding(size))


def came(items: list[Any]) -> list[dict[str, Any]]:
    return [{"k": k, "t": t} for item in items if isinstance(item, Rows) for k, t in item.rows]


def shown(found: list[dict[str, Any]]) -> Counter[Any]:
    """Rows that can be compared: NaN is NaN."""
    plain = lambda value: "nan" if isinstance(value, float) and math.isnan(value) else value  # noqa: E731
    return Counter(tuple(plain(value) for value in row.values()) for row in found)


def test_each_window_and_group_has_its_own_best_rows():
    host = Host(latest(2)).on(rows((1, 0), (1, 9), (1, 5), (1, 10), (2, 3), (None, 4))).end()
    assert Counter(host.pairs()) == Counter([(1, 9), (1, 5), (1, 10), (2, 3), (None, 4)])


def test_rows_that_tie_for_the_last_place_all_come_out():
    host = Host(latest(2)).on(rows((1, 5), (1, 3)), rows((1, 3), (1, 3), (1, 2))).end()
    assert Counter(host.pairs()) == Counter([(1, 5), (1, 3), (1, 3), (1, 3)])


def test_rows_that_tie_for_more_than_the_last_place_leave_none_for_others():
    host = Host(latest(2)).on(rows((1, 5), (1, 5), (1, 5), (1, 3))).end()
    assert host.pairs() == [(1, 5)] * 3


def test_a_row_leaves_once_its_window_is_complete_and_not_before():
    host = Host(latest(1)).on(rows((1, 3), (1, 12)), Bound(0, 9))
    assert (host.pairs(), host.bounds[-1]) == ([], 0)
    host.on(rows((1, 9)), Bound(0, 10))
    assert (host.pairs(), host.bounds[-1]) == ([(1, 9)], 10)
    host.on(Restart(), Bound(0, 10), rows((1, 11)), Bound(0, 19))
    assert host.pairs() == [(1, 9)]
    assert host.end().pairs() == [(1, 9), (1, 12)]


def test_a_row_without_a_value_does_not_come_out_and_nan_is_the_greatest():
    found = top([{"v": None}, {"v": 1.0}, {"v": math.nan}, {"v": 7.0}, {"v": -0.0}, {"v": None}], n=2)
    assert shown(found) == shown([row(v=7.0), row(v=math.nan)])
    assert top([{"v": None}], n=5) == []


def test_other_columns_come_with_their_rows():
    assert top([{"v": 1.0, "note": "a"}, {"v": 2.0, "note": "b"}], n=1) == [row(v=2.0, note="b")]


@given(streams(), memories, st.integers(1, 3), st.sampled_from([1, 4, 10, 1000]))
@example([rows(*[(1, 3)] * 40)], 5_000, 1, 10)
@examples(0.2)
def test_top_equals_its_definition(items, memory, n, size):
    host = Host(latest(n, size), memory=memory).on(*items).end()
    expected = [(row["k"], row["t"]) for row in oracle.top(came(items), ("k",), n, "t", size)]
    assert Counter(host.pairs()) == Counter(expected)
    assert host.budget.peak <= memory
    assert host.logic.state().pages == ()
    assert host.budget.held == 0


def row(k: int | None = 1, t: int = 0, v: float | None = 0.0, note: str | None = None) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v, "note": note}


def top(some: list[dict[str, Any]], n: int, memory: int = 1 << 20, collide: bool = False) -> list[dict[str, Any]]:
    """What comes out of rows in one window of 100, with `collide` of groups that share a hash."""
    logic = Top(("k",), n, "v", sliding(100)).logic((VALUES,), EpochPages(), Budget(memory), State())
    outs: list[Any] = []
    for start in range(0, len(some), 50):
        arriving = batch([row(**each) for each in some[start : start + 50]], VALUES)
        if collide:
            arriving = arriving.set_column(0, arriving.schema.field(0), pa.array(np.zeros(len(arriving), np.uint64)))
        outs += logic.rows(0, arriving)
    outs += logic.advance(0, TIME_MAX)
    return [found for out in outs for found in out.rows.to_pylist()]


numbers = st.sampled_from([None, 0.0, -0.0, 1.0, 1.0, 2.5, -3.25, 7.0, math.nan])


@given(
    st.lists(
        st.builds(row, st.sampled_from([1, 1, 2, None]), st.integers(-50, 150), numbers, st.sampled_from(["a", "b"])),
        max_size=160,
    ),
    st.integers(1, 4),
    st.sampled_from([12_000, 1 << 20]),
    st.booleans(),
)
@examples(0.2)
def test_top_of_values_equals_its_definition_whatever_the_memory_and_hashes(some, n, memory, collide):
    assert shown(top(some, n, memory, collide)) == shown(oracle.top(some, ("k",), n, "v", 100))


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("span", [100, 400])
def test_a_group_that_outgrows_the_memory_comes_out_in_pieces(monkeypatch, collide, span):
    chance = np.random.default_rng(7)
    many = [row(int(k), int(t), float(v)) for k, t, v in chance.integers(0, [3, span, 40], (500, 3))]
    tied = [row(5, 3, 40.0) for _ in range(300)]
    went_in_pieces = []
    whole = module.Ranking._leave_in_pieces
    monkeypatch.setattr(module.Ranking, "_leave_in_pieces", lambda *given: (went_in_pieces.append(1), whole(*given))[1])
    some = [*many, *tied]
    assert shown(top(some, 3, 16_000, collide)) == shown(oracle.top(some, ("k",), 3, "v", 100))
    assert went_in_pieces


class Shards:
    """Top on several shards, as hosts run it: state moves when their number changes, bounds are told anew."""

    def __init__(self, config: Top) -> None:
        self.config, self.store = config, EpochPages()
        self.logics = [self._logic(State())]
        self.bound = TIME_MIN
        self.out: list[dict[str, Any]] = []

    def _logic(self, state: State) -> Any:
        return self.config.logic((VALUES,), self.store, Budget(1 << 16), state)

    def epoch(self, some: list[dict[str, Any]], bound: int, shards: int) -> None:
        """One epoch on so many shards: rows first, then the bound."""
        states = [logic.state() for logic in self.logics]
        pages = [page for state in states for page in compact(state.pages, self.store, Budget(1 << 16))]
        self.store.seal()
        parts = [[clip_page(self.store, page, *hash_range(n, shards)) for page in pages] for n in range(shards)]
        self.logics = [self._logic(State(tuple(page for page in part if page is not None))) for part in parts]
        arriving = batch(some, VALUES)
        places = shard_of(hashes_of(arriving), shards)
        for n, logic in enumerate(self.logics):
            outs = [*logic.advance(0, self.bound), *logic.rows(0, arriving.filter(pa.array(places == n)))]
            for out in [*outs, *logic.advance(0, bound), *logic.idle(Quiet(len(some)))]:
                self.out += out.rows.to_pylist()
        self.bound = bound


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), numbers), max_size=8), st.integers(1, 3))
    )
)
@examples(0.2)
def test_top_is_the_same_on_any_number_of_shards(epochs):
    host, every, bound = Shards(Top(("k",), 2, "v", sliding(10))), [], 0
    for some, shards in epochs:
        arriving = [row(k, bound + t, v) for k, t, v in some]
        every += arriving
        bound += 7
        host.epoch(arriving, bound, shards)
    host.epoch([], TIME_MAX, 2)
    assert shown(host.out) == shown(oracle.top(every, ("k",), 2, "v", 10))


def test_a_flow_has_the_best_rows_and_what_follows_them_has_their_time():
    flow = LocalFlow()
    table = pa.table({"lot": ["a", "b", "a", "a"], "price": ["1", "5", "7", "30"], "t": [1, 2, 3, 14]})
    best = flow.source(table, time="t", progress=bounded_delay(2)).window(range=10).by("lot").top(1, "price")
    counted = best.window(range=10).agg(n=count()).to_memory()
    results = best.to_memory()
    query = flow.run()
    assert sorted(results.table().to_pylist(), key=lambda each: each["t"]) == [
        {"lot": "b", "price": "5", "t": 2},
        {"lot": "a", "price": "7", "t": 3},
        {"lot": "a", "price": "30", "t": 14},
    ]
    assert counted.table().column("n").to_pylist() == [2, 1]
    assert "top 1 of price by lot in sliding(range=10, slide=10)" in str(query.explain())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda s: s.window(range=10).top(0, "v"), r"top\(0, …\) takes a whole number of at least 1"),
        (
            lambda s: s.window(range=10, slide=5).top(1, "v"),
            r"but the window is sliding\(range=10, slide=5\)\. Write \.window\(range=10\), without",
        ),
        (
            lambda s: s.window(range=5, slide=10).top(1, "v"),
            r"but the window is sliding\(range=5, slide=10\)\. Write \.window\(range=5\), without",
        ),
        (
            lambda s: s.window(range="1 min", slide="5 s").top(1, "v"),
            r"Write \.window\(range='1 min'\), without",
        ),
        (lambda s: s.window(session(5)).top(1, "v"), r"Write \.window\(range=…\), without slide=\."),
        (
            lambda s: s.window(range=10).top(1, "w"),
            r"of='w' is not a column of this stream\. Its columns are: t, v, list",
        ),
        (lambda s: s.window(range=10).by("w").top(1, "v"), r"by='w' is not a column of this stream\."),
        (lambda s: s.window(range=10).top(1, "list"), r"top\(\): of='list' is of type list<item: int64>, whose values"),
    ],
)
def test_what_cannot_be_ranked_is_refused(asked, said):
    stream = LocalFlow().source(pa.table({"t": [1], "v": [2], "list": [[1]]}), time="t")
    with pytest.raises(ConfigError, match=said):
        asked(stream)
