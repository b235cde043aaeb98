"""Building page tables: in little memory, and in pieces that tasks of a cluster write."""

from __future__ import annotations

import os
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.errors import ConfigError, TableError
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import shard_of
from penstock.storage.tables import PageBuild, PageTable, build_page_table
from tests.storage.tables.test_pages import COLUMNS, check, pairs_of, rows


@pytest.mark.parametrize("by", ["hash", "range"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64()])
def test_a_table_larger_than_memory_is_the_same_as_one_built_at_once(tmp_path, by, kind):
    rng = np.random.default_rng(3)
    keys = np.concatenate([np.sort(rng.integers(0, 10**6, 20_000)), np.full(3000, 77)])
    given = pa.table({"k": pa.array(keys).cast(kind), "v": np.arange(keys.size)})
    tables = [
        build_page_table(
            str(tmp_path / name), given.to_batches(1000), keys=["k"], by=by, partition_rows=500, memory=memory
        ).open()
        for name, memory in {"small": "100 kB", "large": "100 MB"}.items()
    ]
    for table in tables:
        batches = [table.scan(number) for number in range(table.partitions)]
        held = Counter(value for batch in batches for value in batch.column("v").to_pylist())
        assert held == Counter(range(keys.size))
        homes = [set(batch.column("k").to_pylist()) for batch in batches]
        assert sum(map(len, homes)) == len(set().union(*homes))
        assert not table.unique
        distinct = given.column("k").unique()
        asked = table.partition_of(hash_keys([distinct]), [distinct])
        assert all(key in homes[home] for key, home in zip(distinct.to_pylist(), asked.tolist(), strict=True))
        sizes = sorted(batch.num_rows for batch in batches)
        assert sum(size > 1000 for size in sizes) == 1
        assert 3000 <= sizes[-1] < 4000


def test_views_and_runs_become_plain_columns(tmp_path):
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", "y"]))
    given = pa.table({"k": pa.array(["a", "b", "c"], pa.string_view()), "v": runs})
    table = build_page_table(str(tmp_path), [given], keys=["k"], memory="100 kB").open()
    found = pa.Table.from_batches([table.scan(number) for number in range(table.partitions)])
    assert found.schema.field("k").type == pa.string()
    assert sorted(map(tuple, (row.values() for row in found.select(["k", "v"]).to_pylist()))) == [
        ("a", "x"),
        ("b", "x"),
        ("c", "y"),
    ]


def test_dictionaries_get_indices_that_count_the_values_of_all_rows(tmp_path):
    few = pa.dictionary(pa.int8(), pa.string())
    given = [pa.table({"k": pa.array(map(str, range(n, n + 100))).cast(few)}) for n in range(0, 300, 100)]
    table = build_page_table(str(tmp_path), given, keys=["k"]).open()
    found = pa.Table.from_batches([table.scan(number) for number in range(table.partitions)])
    assert sorted(found.column("k").to_pylist()) == sorted(map(str, range(300)))


def test_building_leaves_nothing_behind_on_the_way(tmp_path, monkeypatch):
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    build_page_table(
        str(tmp_path / "table"), rows([(k, "v") for k in range(5000)]).to_batches(100), ["k"], memory=10_000
    )
    assert not os.listdir(spool)
    assert sorted(os.listdir(tmp_path / "table")) == ["pages", "versions"]


def test_theta_is_bytes_unless_it_is_rows(tmp_path):
    given = pa.table({"k": range(100_000), "v": np.zeros(100_000)})
    table = build_page_table(str(tmp_path), [given], keys=["k"], partition="24 kB").open()
    sizes = [table.scan(number).num_rows for number in range(table.partitions)]
    assert set(sizes[:-1]) == {1000}


@pytest.mark.parametrize("by", ["hash", "range"])
def test_tasks_write_ranges_and_the_driver_commits_what_they_report(tmp_path, by):
    build = pickle.loads(pickle.dumps(PageBuild.begin(str(tmp_path), COLUMNS, ["k"], by=by, partition_rows=10)))
    given = rows([(k, "v") for k in range(200)] + [(None, "null")])
    places = shard_of(hash_keys([given.column("k").combine_chunks()]), 3) if by == "hash" else np.arange(201) // 67
    parts = [given.filter(pa.array(places == shard)) for shard in range(3)]
    lost = build.write([parts[0]])
    reports = [build.write(part.to_batches(20)) for part in reversed(parts)]
    assert lost
    table = build.commit(reports)
    check(table.open(), {k: ["v"] for k in range(200)})
    assert table.open().null_keys == 1
    assert table.vacuum()[0] == 1, "what the task wrote that reported to nobody"
    check(table.open(), {k: ["v"] for k in range(200)})


def test_ranges_that_overlap_are_refused(tmp_path):
    build = PageBuild.begin(str(tmp_path), COLUMNS, ["k"])
    reports = [build.write([rows([(k, "v") for k in some])]) for some in (range(9), range(9, 20))]
    with pytest.raises(ConfigError, match=r"reports: two of them cover the same range, so rows of one key"):
        build.commit(reports)
    by_range = PageBuild.begin(str(tmp_path), COLUMNS, ["k"], by="range")
    reports = [by_range.write([rows([(k, "v") for k in some])]) for some in (range(10), range(9, 20))]
    with pytest.raises(ConfigError, match=r"two of them cover the same range"):
        by_range.commit(reports)
    with pytest.raises(ConfigError, match=r"reports=\[\] holds no report"):
        by_range.commit([])


def test_two_builds_of_one_table_do_not_overwrite_each_other(tmp_path):
    one, other = (PageBuild.begin(str(tmp_path), COLUMNS, ["k"]) for _ in range(2))
    reports = [build.write([rows([(1, name)])]) for build, name in ((one, "one"), (other, "other"))]
    one.commit(reports[:1])
    with pytest.raises(TableError, match=r"was at version 0 when this change began and is at 1 now"):
        other.commit(reports[1:])
    assert pairs_of(PageTable(str(tmp_path)).open().scan(0)) == {(1, "one"): 1}


def test_a_folder_may_be_a_path_object_and_nothing_else(tmp_path):
    table = build_page_table(tmp_path, [rows([(1, "a")])], keys=["k"])
    assert table == PageTable(tmp_path) == PageTable(str(tmp_path))
    assert table.open().size.rows == 1
    for make in (PageTable, lambda uri: build_page_table(uri, [rows([(1, "a")])], keys=["k"])):
        with pytest.raises(ConfigError, match=r"uri=None is neither a path nor a URI\. Write one"):
            make(None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keys": []}, r"keys=\[\] names no key\. Write keys=\['customer_id'\]"),
        ({"keys": ["key"]}, r"keys='key' is not a column of this table\. Its columns are: k, v"),
        ({"partition_rows": 0}, r"partition_rows=0 leaves no room for a row\. Use at least 1"),
        ({"batches": []}, r"batches= is empty, so the table's columns are not known\. Write columns="),
        ({"batches": "k"}, r"rows=str holds str, not Arrow tables or batches\. Write pa\.table\("),
        ({"batches": [{"k": 1}]}, r"rows=list holds dict, not Arrow tables .* pa\.Table\.from_pandas\("),
        ({"batches": [rows([(1, "a")]), {"k": 1}]}, r"rows=dict is not an Arrow table\. Write pa\.table\("),
        ({"batches": [pa.table({"k": [1], "__hash": [1]})]}, r"columns: '__hash' is a name that penstock reserves"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, settings, message):
    given = {"batches": [rows([(1, "a")])], "keys": ["k"], **settings}
    with pytest.raises(ConfigError, match=message):
        build_page_table(str(tmp_path), **given)


def test_values_of_every_kind_come_back(tmp_path):
    values = {
        "k": pa.array([1, 2, 3]),
        "nested": pa.array([[{"a": 1}], [], None]),
        "words": pa.array(["x", None, "x"]).dictionary_encode(),
        "nothing": pa.nulls(3),
    }
    table = build_page_table(str(tmp_path), [pa.table(values)], keys=["k"], partition_rows=1)
    table.append(pa.table({**values, "k": [4, 5, 6], "words": pa.array(["y", "z", "x"]).dictionary_encode()}))
    keys = [pa.array([3, 1, 2, 5])]
    found = {row.pop("k"): row for row in table.open().get(hash_keys(keys), keys).to_pylist()}
    assert found[1] == {"__hash": found[1]["__hash"], "nested": [{"a": 1}], "words": "x", "nothing": None}
    assert (found[2]["words"], found[3]["nested"], found[5]["words"]) == (None, None, "z")
