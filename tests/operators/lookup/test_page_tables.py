"""Lookup joins over page tables, also while these change (F27, F28, 000-34): none stale, twice or missed."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.master import layout_of
from penstock.operators.lookup import Front, HybridJoin, Inlj, LookupJoin, MeshJoin, Stages
from penstock.storage.tables import ArrowTable, PageTable, build_page_table
from tests.operators.lookup.cases import TABLE, Case, Run, Shard, backs, cases, fronts, run, skewed
from tests.streams import examples

CUTS = st.tuples(st.sampled_from(["hash", "range"]), st.sampled_from([1, 2, 5, 100]))


def paged(folder: str, rows: pa.Table, by: str, theta: int) -> PageTable:
    return build_page_table(folder, [rows], keys=["k"], by=by, partition_rows=theta, page=700)


@examples(0.3)
@given(cases(), CUTS)
def test_a_lookup_join_over_a_page_table_equals_its_definition(case: Case, cut):
    with tempfile.TemporaryDirectory() as folder:
        table = paged(folder, case.config.table.rows, *cut)
        at_work = run(replace(case, config=replace(case.config, table=table)))
    assert at_work.results == case.expected()
    assert at_work.peak <= case.memory
    assert all(len(logic.waiting) == 0 for logic in at_work.logics)


KEYS = st.integers(0, 12)
ROWS = st.lists(st.tuples(KEYS, st.sampled_from("abc")), max_size=8)
CHANGES = st.tuples(st.sampled_from(["append", "upsert"]), ROWS) | st.tuples(st.just("delete"), ROWS) | st.none()
EPOCHS = st.lists(
    st.tuples(st.lists(KEYS, max_size=20), CHANGES, st.integers(1, 3), st.booleans()), min_size=1, max_size=6
)


def table_of(pairs) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in pairs], pa.int64()), "v": [v for _, v in pairs]}, TABLE)


def changed(model: dict[int, Counter], kind: str, pairs) -> dict[int, Counter]:
    after = {k: Counter(values) for k, values in model.items()}
    for k in {k for k, _ in pairs} if kind != "append" else ():
        after.pop(k, None)
    for k, v in pairs if kind != "delete" else ():
        after.setdefault(k, Counter())[v] += 1
    return after


def run_while_it_changes(table: PageTable, config: LookupJoin, first, epochs) -> tuple[list, dict, dict, list]:
    """What the table was in each epoch, when each row came, what came out of it in which epoch, and its key."""
    model = changed({}, "append", first)
    at_work = Run(config, memory=10**6)
    models, came, out, keys = [], {}, defaultdict(lambda: defaultdict(Counter)), []
    for number, (arrivals, change, shards, idle) in enumerate([*epochs, ([], None, 1, True)]):
        models.append(model)
        for k in arrivals:
            came[len(keys)] = number
            keys.append(k)
        before = Counter(at_work.results)
        at_work.epoch([(k, 0) for k in arrivals], shards, end=number == len(epochs), idle=idle)
        for (k, _, t, v), count in (at_work.results - before).items():
            assert keys[t] == k
            out[t][number][v] += count
        if change is not None:
            kind, pairs = change
            getattr(table, kind)(table_of(pairs))
            model = changed(model, kind, pairs)
    assert all(len(logic.waiting) == 0 for logic in at_work.logics)
    return models, came, out, keys


@pytest.mark.slow
@examples(0.3)
@given(ROWS, EPOCHS, CUTS, backs(), fronts(), st.sampled_from(["inner", "left"]))
def test_f27_f28_000_34_a_row_sees_the_table_as_it_is_when_it_is_answered(first, epochs, cut, back, front, how):
    with tempfile.TemporaryDirectory() as folder:
        table = paged(folder, table_of(first), *cut)
        config = LookupJoin(table, (("k", "k"),), how, Stages(back, front))
        models, came, out, keys = run_while_it_changes(table, config, first, epochs)
    for t, k in enumerate(keys):
        waited = range(came[t], came[t] + 1 if isinstance(back, Inlj) else len(models))
        if t not in out:
            assert how == "inner"
            assert any(k not in models[number] for number in waited)
            continue
        ((number, values),) = out[t].items()
        assert number in waited
        if values == Counter([None]):
            # A row of MESHJOIN may have passed the place of its key before it leaves.
            first_look = came[t] if isinstance(back, MeshJoin) else number
            assert any(k not in models[then] for then in range(first_look, number + 1))
        else:
            assert values == models[number][k]


def test_f27_rows_that_have_not_come_round_pass_through_what_is_appended_and_others_do_not(tmp_path):
    """F27: MESHJOIN over a table that grows behind its end. Four partitions, four slots, a row enters per read."""
    table = paged(str(tmp_path), table_of([(k, "old") for k in range(8)]), "range", 2)
    assert table.open().partitions == 4
    at_work = Run(LookupJoin(table, (("k", "k"),), "left", Stages(MeshJoin(slots=4))), memory=10**6)
    at_work.epoch([(100, n) for n in range(6)], 1, idle=False)
    (logic,) = at_work.logics
    assert logic.back.cursor == 1
    assert logic.waiting.start.tolist() == [2, 3, 0, 1]
    layout = layout_of(table.open())
    table.append(table_of([(100, "new"), (101, "new"), (102, "new")]))
    assert layout_of(table.open()) == layout
    assert table.open().partitions == 5
    at_work.epoch([], 1, end=True)
    assert {(n, v) for _, n, _, v in at_work.results} == {
        (0, None),
        (1, None),
        (2, None),
        (3, None),
        (4, "new"),
        (5, "new"),
    }


def rows_for_bytes(table: PageTable, back: MeshJoin | HybridJoin, more: pa.Table | None) -> list[float]:
    """Rows that leave for a kilobyte that is read, in each of 24 parts of a stream; `more` is appended after eight."""
    join = Shard(table, Stages(back, Front(slots=100, threshold=1)), "left")
    keys = np.random.default_rng(2).permutation(2000)[skewed(12_000, 2000)]
    rates = []
    for number, some in enumerate(np.split(keys, 24)):
        if number == 8:
            if more is not None:
                table.append(more)
            join.again()
        read, left = join.logic.desk.stats.bytes_read, join.finished
        join.rows(some.tolist())
        rates.append(1000 * (join.finished - left) / (join.logic.desk.stats.bytes_read - read))
    return rates


@pytest.mark.slow
@pytest.mark.parametrize("back", [MeshJoin(slots=400), HybridJoin(slots=400)], ids=lambda back: type(back).__name__)
def test_f27_when_the_table_has_doubled_the_join_is_soon_as_fast_as_if_it_had_been_so(tmp_path, back):
    """F27: the rate recovers; with half of the table to read it was higher."""
    half, rest = (table_of([(k, "v") for k in keys]) for keys in (range(1000), range(1000, 2000)))
    small, large = str(tmp_path / "small"), str(tmp_path / "large")
    grown = rows_for_bytes(build_page_table(small, [half], keys=["k"], partition_rows=50), back, rest)
    whole = rows_for_bytes(build_page_table(large, [half, rest], keys=["k"], partition_rows=50), back, None)
    assert np.mean(grown[2:8]) > 1.2 * np.mean(whole[2:8])
    assert np.mean(grown[16:]) == pytest.approx(np.mean(whole[16:]), rel=0.1)


@pytest.mark.parametrize("back", [MeshJoin(slots=40), HybridJoin(slots=40)])
def test_rows_that_wait_while_partitions_are_cut_meet_their_key_once(tmp_path, back):
    table = paged(str(tmp_path), table_of([(k, "old") for k in range(10)]), "hash", 5)
    at_work = Run(LookupJoin(table, (("k", "k"),), "left", Stages(back)), memory=10**6)
    layouts = []
    for epoch in range(4):
        at_work.epoch([(k, epoch) for k in range(60)], 1, idle=False)
        layouts.append(layout_of(table.open()))
        table.append(table_of([(10 * epoch + 10 + k, "new") for k in range(10)]))
    at_work.epoch([], 1, end=True)
    assert len(set(layouts)) > 1
    seen = Counter((k, n) for k, n, _, _ in at_work.results.elements())
    assert seen == Counter((k, n) for n in range(4) for k in range(60))
    assert all(v is not None for k, n, _, v in at_work.results if k < 10 + 10 * n)


@pytest.mark.parametrize("back", [Inlj(), MeshJoin(), HybridJoin()])
def test_f28_no_stale_row_comes_out_of_the_cache(tmp_path, back):
    """F28: what is cached of changed keys is forgotten, also that there was none; the rest stays."""
    table = paged(str(tmp_path), table_of([(1, "old"), (2, "old"), (3, "old")]), "hash", 2)
    front = Front(threshold=1, slots=10)
    at_work = Run(LookupJoin(table, (("k", "k"),), "left", Stages(back, front)), memory=10**6)
    ask = [(k, 0) for k in (1, 2, 3, 4)] * 2
    at_work.epoch(ask, 1)
    at_work.epoch([], 1)
    table.upsert(table_of([(1, "new")]))
    table.delete(table_of([(2, "")]))
    table.append(table_of([(4, "new")]))
    at_work.results.clear()
    at_work.epoch(ask, 1)
    (logic,) = at_work.logics
    at_work.epoch([], 1)
    assert logic.front.stats.hits >= 2
    assert {(k, v) for k, _, _, v in at_work.results} == {(1, "new"), (2, None), (3, "old"), (4, "new")}
    assert sum(at_work.results.values()) == 8


def test_a_table_that_does_not_tell_may_have_moved_keys_with_every_version():
    table = ArrowTable(table_of([(1, "a")]), ("k",)).open()
    assert layout_of(table) == table.version
