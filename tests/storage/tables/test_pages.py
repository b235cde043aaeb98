"""Page tables against a dictionary: any keys, any cut, any history of changes."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError
from penstock.core.kept import kept_by
from penstock.core.master import TableSource
from penstock.core.rows import HASH, hashes_of
from penstock.kernels.hashing import hash_keys
from penstock.storage.tables import PageTable, build_page_table
from tests.streams import examples

COLUMNS = pa.schema({"k": pa.int64(), "v": pa.string()})

Model = dict[int, list[str]]


def rows(pairs) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in pairs], pa.int64()), "v": [v for _, v in pairs]}, COLUMNS)


def keys_of(values) -> tuple[np.ndarray, list[pa.Array]]:
    column = pa.array(values, pa.int64())
    return hash_keys([column]), [column]


def pairs_of(batch: pa.RecordBatch) -> Counter:
    return Counter(zip(batch.column("k").to_pylist(), batch.column("v").to_pylist(), strict=True))


def expected(model: Model, keys=None) -> Counter:
    return Counter((k, v) for k, values in model.items() if keys is None or k in keys for v in values)


def check(table, model: Model) -> None:
    """All of a table's ways to be read agree with the model."""
    count = sum(map(len, model.values()))
    assert table.size.rows == count
    assert table.unique == all(len(values) < 2 for values in model.values())
    scanned = [table.scan(number) for number in range(table.partitions)]
    for batch in scanned:
        assert batch.schema.names == [HASH, "k", "v"]
        assert hashes_of(batch).tolist() == sorted(hash_keys([batch.column("k")]).tolist())
    assert sum(map(pairs_of, scanned), Counter()) == expected(model)
    for wanted in (sorted(model), list(range(-3, 40)), [5], []):
        hashes, keys = keys_of(wanted)
        found = table.get(hashes, keys)
        assert pairs_of(found) == expected(model, set(wanted))
        assert hashes_of(found).tolist() == sorted(hashes_of(found).tolist())
        for key, number in zip(wanted, table.partition_of(hashes, keys).tolist(), strict=True):
            assert (number >= 0) == (key in model)
            if number >= 0:
                held = Counter({pair: n for pair, n in pairs_of(scanned[number]).items() if pair[0] == key})
                assert held == expected(model, {key})


def changed(table, since: str) -> set[int] | None:
    keys = table.changes(since).keys
    return None if keys is None else set(keys.column("k").to_pylist())


PAIRS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=25)
CHANGES = st.tuples(st.sampled_from(["append", "upsert"]), PAIRS) | st.tuples(
    st.just("delete"), st.lists(st.integers(0, 35), max_size=20)
)


def apply(table: PageTable, model: Model, change) -> tuple[Model, set[int]]:
    """Change both; the keys that the change concerns come back."""
    kind, given_ = change
    after = {k: list(values) for k, values in model.items()}
    if kind == "delete":
        table.delete(pa.table({"k": pa.array(given_, pa.int64())}))
        touched = set(given_) & set(model)
    else:
        getattr(table, kind)(rows(given_))
        touched = {k for k, _ in given_}
    if kind != "append":
        for k in touched:
            after.pop(k, None)
    if kind != "delete":
        for k, v in given_:
            after.setdefault(k, []).append(v)
    return after, touched


@pytest.mark.slow
@examples(0.4)
@given(
    st.data(),
    PAIRS,
    st.lists(CHANGES, max_size=6),
    st.sampled_from(["hash", "range"]),
    st.integers(1, 12),
    st.sampled_from([1, 700, 10**6]),
)
def test_a_page_table_equals_a_dictionary_in_every_version(data, first, history, by, theta, page):
    with tempfile.TemporaryDirectory() as folder:
        table = build_page_table(
            folder, [rows(first)], keys=["k"], by=by, partition_rows=theta, page=page, memory=data.draw(MEMORY)
        )
        model: Model = {}
        for k, v in first:
            model.setdefault(k, []).append(v)
        models, feeds = {table.version: model}, []
        for change in history:
            before = table.version
            old = table.open()
            homes = old.partition_of(*keys_of(range(40)))
            model, touched = apply(table, model, change)
            assert (table.version != before) == bool(touched)
            if touched:
                models[table.version] = model
                feeds.append((int(table.version), touched))
            stayed = table.open().partition_of(*keys_of(range(40)))
            if table.open().layout == old.layout:
                assert all(a == b for a, b in zip(homes, stayed, strict=True) if a >= 0 <= b)
        for version, then in models.items():
            check(table.open(version), then)
            since = int(version)
            assert changed(table.open(), version) == set().union(*(keys for v, keys in feeds if v > since))


MEMORY = st.sampled_from([2_000, 10**6])


@examples(0.1)
@given(PAIRS, st.integers(1, 12), st.sampled_from(["hash", "range"]))
def test_partitions_have_at_most_twice_theta_rows_whatever_was_appended(pairs, theta, by):
    with tempfile.TemporaryDirectory() as folder:
        unique = dict(pairs)
        table = build_page_table(folder, [rows([])], keys=["k"], by=by, partition_rows=theta)
        for pair in unique.items():
            table.append(rows([pair]))
        opened = table.open()
        assert all(opened.scan(number).num_rows <= 2 * theta for number in range(opened.partitions))
        check(opened, {k: [v] for k, v in unique.items()})


KINDS = {
    "bool": ([True, False], None),
    "int8": ([1, -1, 7], pa.int8()),
    "uint32": ([1, 2**32 - 1], pa.uint32()),
    "double": ([0.0, 1.5, float("nan"), float("-inf")], None),
    "float": ([0.5, -2.0], pa.float32()),
    "string": (["", "a", "ä", "zz"], None),
    "large": (["b", "a"], pa.large_string()),
    "binary": ([b"", b"\x00", b"\xff"], None),
    "decimal": ([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(9, 2)),
    "date": ([date(2024, 1, 1), date(1969, 1, 1)], None),
    "timestamp": ([datetime(2024, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)], None),
    "struct": ([{"a": 1, "b": None}, {"a": 2, "b": "x"}], None),
    "list": ([[], [1], [1, None]], None),
}
ORDERED = [name for name in KINDS if name not in ("struct", "list")]


@pytest.mark.parametrize(("name", "by"), [*((name, "hash") for name in KINDS), *((name, "range") for name in ORDERED)])
def test_keys_of_every_kind_are_found_changed_and_removed(name, by, tmp_path):
    values, kind = KINDS[name]
    keys = pa.array(values, kind)
    given_ = pa.table({"k": keys, "n": range(len(values))})
    table = build_page_table(str(tmp_path), [given_.slice(0, 1)], keys=["k"], by=by, partition_rows=1)
    table.append(given_.slice(1))
    table.upsert(given_.slice(0, 1).set_column(1, "n", pa.array([100])))
    opened = table.open()
    for place in range(len(values)):
        one = keys.slice(place, 1)
        found = opened.get(hash_keys([one]), [one])
        assert found.column("n").to_pylist() == [place or 100]
        assert opened.scan(int(opened.partition_of(hash_keys([one]), [one])[0])).num_rows >= 1
    table.delete(given_.slice(0, 1))
    assert table.open().size.rows == len(values) - 1
    assert not table.open().get(hash_keys([keys.slice(0, 1)]), [keys.slice(0, 1)]).num_rows


def test_both_zeros_are_one_key_and_nan_finds_nan(tmp_path):
    table = build_page_table(
        str(tmp_path), [pa.table({"k": [0.0, float("nan")], "n": [1, 2]})], keys=["k"], by="range", partition_rows=1
    )
    keys = [pa.array([-0.0, float("nan")])]
    assert sorted(table.open().get(hash_keys(keys), keys).column("n").to_pylist()) == [1, 2]


def test_several_keys_make_one(tmp_path):
    given_ = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "n": [1, 2, 3]})
    table = build_page_table(str(tmp_path), [given_], keys=["a", "b"])
    table.delete(pa.table({"a": [1], "b": ["y"]}))
    keys = [pa.array([1, 1, 2]), pa.array(["x", "y", "x"])]
    assert sorted(table.open().get(hash_keys(keys), keys).column("n").to_pylist()) == [1, 3]
    assert table.open().changes("1").keys.to_pylist() == [{"a": 1, "b": "y"}]


def test_keys_of_the_same_hash_stay_apart(tmp_path, monkeypatch):
    """Only their values tell keys apart, here as everywhere."""
    same_hash = lambda columns: np.full(len(columns[0]), 7, np.uint64)  # noqa: E731
    monkeypatch.setattr("penstock.storage.tables.partitions.hash_keys", same_hash)
    table = build_page_table(str(tmp_path), [rows([(1, "a"), (2, "b"), (3, "c")])], keys=["k"], partition_rows=1)
    table.upsert(rows([(2, "B")]))
    table.delete(pa.table({"k": [3, 4]}))
    assert pairs_of(table.open().scan(0)) == Counter({(1, "a"): 1, (2, "B"): 1})
    assert table.open().unique
    assert changed(table.open(), "1") == {2, 3}


def test_null_keys_match_nothing_and_are_counted_instead_of_stored(tmp_path):
    table = build_page_table(str(tmp_path), [rows([(1, "a"), (None, "b")])], keys=["k"])
    table.append(rows([(None, "c"), (2, "d")]))
    assert table.open().null_keys == 2
    check(table.open(), {1: ["a"], 2: ["d"]})


def test_a_table_without_rows_can_be_read_and_filled(tmp_path):
    table = build_page_table(str(tmp_path), [], keys=["k"], columns=COLUMNS)
    check(table.open(), {})
    table.upsert(rows([(1, "a")]))
    check(table.open(), {1: ["a"]})
    table.delete(pa.table({"k": [1]}))
    check(table.open(), {})


def test_what_travels_to_tasks_is_small_and_knows_the_columns(tmp_path):
    table = build_page_table(str(tmp_path), [rows([(1, "a")])], keys=["k"])
    assert isinstance(table, TableSource)
    sent = pickle.dumps(table)
    assert len(sent) < 1000
    there = pickle.loads(sent)
    assert (there.columns, there.keys, there) == (COLUMNS, ("k",), table)


def test_a_scan_is_a_view_of_the_file(tmp_path):
    table = build_page_table(str(tmp_path), [rows([(k, "v") for k in range(10_000)])], keys=["k"]).open()
    before = pa.total_allocated_bytes()
    batches = [table.scan(number) for number in range(table.partitions)]
    assert pa.total_allocated_bytes() == before
    assert sum(batch.num_rows for batch in batches) == 10_000


class Far:
    """The file systems of pyarrow, none of which is local as far as anybody can see."""

    @staticmethod
    def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
        return fs.SubTreeFileSystem("/", fs.LocalFileSystem()), uri.removeprefix("/")


@pytest.fixture
def far(monkeypatch):
    monkeypatch.setattr(fs, "FileSystem", Far)


class TestFarTables:
    def test_they_are_read_like_others_whatever_stays_of_them(self, far, tmp_path):
        model = {key: [f"{key}"] for key in range(30)}
        table = build_page_table(str(tmp_path), [rows([(k, v) for k, [v] in model.items()])], ["k"], partition_rows=5)
        for limit in (100_000, 5_000):
            check(table.open().within(Budget(limit)), model)

    def test_a_file_has_a_partition_or_two_unless_told(self, far, tmp_path):
        many = rows([(key, "x" * 100) for key in range(1000)])
        table = build_page_table(str(tmp_path), [many], ["k"], partition="10 kB")
        assert table.layout.page_bytes == 10_000
        listed = table.open().listed.column("page")
        assert len(listed) / 2 <= len(listed.unique()) > 3

    def test_a_task_pays_for_what_stays_of_them_and_that_is_a_quarter_of_its_memory_at_most(self, far, tmp_path):
        many = rows([(key, "x" * 100) for key in range(1000)])
        table = build_page_table(str(tmp_path), [many], ["k"], partition="5 kB").open()
        first, next_ = Budget(200_000), Budget(100_000)
        for budget, task in ((first, table.within(first)), (next_, table.within(next_))):
            for _ in range(2):
                for number in range(task.partitions):
                    task.scan(number)
            assert 0.5 * budget.limit / 4 < kept_by(budget) == budget.held <= budget.limit / 4
        assert first.held == 0

    def test_what_stays_is_not_fetched_again_by_another_version_either(self, far, tmp_path):
        table = build_page_table(str(tmp_path), [rows([(key, "x") for key in range(100)])], ["k"], partition=500)
        budget = Budget(1_000_000)
        for number in range(table.open().partitions):
            table.open().within(budget).scan(number)
        table.append(rows([(1000, "new")]))
        after = table.open().within(budget)
        fetched = [name for name in after._names if after._fetched.get(name) is not None]
        assert len(fetched) == len(after._names) - 1 > 1

    def test_a_page_that_does_not_fit_at_all_is_refused(self, far, tmp_path):
        table = build_page_table(str(tmp_path), [rows([(key, "x" * 100) for key in range(1000)])], ["k"], page="1 MB")
        with pytest.raises(BudgetError, match="a page that is fetched needs"):
            table.open().within(Budget(50_000)).scan(0)
