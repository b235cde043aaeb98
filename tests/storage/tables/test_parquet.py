"""Parquet files as master tables: found by key or scanned, in any row groups, while files come and go."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.budget import Budget
from penstock.core.errors import BudgetError, ConfigError, TableError
from penstock.kernels.hashing import hash_keys
from penstock.storage.tables import ParquetTable, build_page_table, keyindex
from tests.storage.tables.rows import get, scanned
from tests.streams import examples


def write(folder, name, rows, groups=1000):
    pq.write_table(pa.table(rows), f"{folder}/{name}", row_group_size=groups)


def numbered(first, count):
    return {
        "id": pa.array(range(first, first + count), pa.int64()),
        "v": [f"v{n}" for n in range(first, first + count)],
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_rows_are_found_by_key_in_any_row_group(folder):
    write(folder, "a.parquet", numbered(0, 100), groups=7)
    write(folder, "b.parquet", numbered(100, 50), groups=50)
    table = ParquetTable(str(folder), ("id",)).open()
    assert get(table, [3, 99, 120, 777]) == [{"id": n, "v": f"v{n}"} for n in (120, 3, 99)]
    assert get(table, [777]) == []
    assert (table.size.rows, table.unique, table.clustered) == (150, True, True)


def test_one_file_is_a_table_too(tmp_path):
    write(tmp_path, "one.parquet", numbered(0, 10))
    assert get(ParquetTable(f"file://{tmp_path}/one.parquet", ("id",)).open(), [4]) == [{"id": 4, "v": "v4"}]


def test_small_row_groups_make_one_partition(folder):
    write(folder, "a.parquet", numbered(0, 100), groups=10)
    assert ParquetTable(str(folder), ("id",), partition_rows=35).open().partitions == 4
    assert ParquetTable(str(folder), ("id",), partition_rows=5).open().partitions == 10


def test_partition_of_tells_where_a_scan_finds_the_key(folder):
    write(folder, "a.parquet", numbered(0, 100), groups=10)
    table = ParquetTable(str(folder), ("id",), partition_rows=10).open()
    keys = [pa.array([5, 55, 1000])]
    assert table.partition_of(hash_keys(keys), keys).tolist() == [0, 5, -1]
    assert 55 in table.scan(5).column("id").to_pylist()


def test_hidden_and_underscore_files_are_no_part_of_the_table(folder):
    write(folder, "a.parquet", numbered(0, 3))
    write(folder, "_b.parquet", numbered(3, 3))
    (folder / "_temporary").mkdir()
    write(folder, "_temporary/c.parquet", numbered(6, 3))
    (folder / "_SUCCESS").write_text("")
    assert ParquetTable(str(folder), ("id",)).open().size.rows == 3


def test_null_keys_are_never_returned(folder):
    write(folder, "a.parquet", {"id": pa.array([1, None, 2]), "v": ["a", "b", "c"]})
    table = ParquetTable(str(folder), ("id",)).open()
    assert get(table, [1, None]) == [{"id": 1, "v": "a"}]
    assert len(scanned(table)) == 2


def test_a_key_of_several_columns_of_several_types(folder):
    write(folder, "a.parquet", {"a": ["x'", "ü", "x'"], "b": [1.5, 2.5, 2.5], "v": [1, 2, 3]}, groups=1)
    table = ParquetTable(str(folder), ("b", "a")).open()
    assert get(table, [2.5, 2.5], ["x'", "ü"]) == [{"a": "x'", "b": 2.5, "v": 3}, {"a": "ü", "b": 2.5, "v": 2}]


@pytest.mark.parametrize(("rows", "groups", "verdict"), [([1, 1, 2], 3, (False, True)), ([1, 2, 1], 2, (False, False))])
def test_repeated_keys_are_noticed(folder, rows, groups, verdict):
    write(folder, "a.parquet", {"id": rows, "v": list("abc")}, groups=groups)
    table = ParquetTable(str(folder), ("id",), partition_rows=1).open()
    assert (table.unique, table.clustered) == verdict
    assert len(get(table, [1])) == 2


def test_a_table_that_is_not_clustered_says_so_where_one_partition_is_asked_for(folder):
    write(folder, "a.parquet", {"id": [1, 2, 1]}, groups=2)
    table = ParquetTable(str(folder), ("id",), partition_rows=2).open()
    with pytest.raises(TableError, match="Write the files sorted by the key"):
        table.partition_of(np.zeros(1, np.uint64), [pa.array([1])])


def test_a_file_that_is_added_changes_the_version_and_names_its_keys(folder):
    write(folder, "a.parquet", numbered(0, 10))
    source = ParquetTable(str(folder), ("id",))
    before = source.open()
    write(folder, "b.parquet", numbered(10, 3))
    after = source.open()
    assert after.version != before.version
    assert sorted(after.changes(before.version).keys.column("id").to_pylist()) == [10, 11, 12]
    assert get(before, [11]) == []
    assert get(after, [11]) == [{"id": 11, "v": "v11"}]
    assert source.open(before.version).size.rows == 10


def test_a_file_that_is_removed_names_its_keys_too(folder):
    write(folder, "a.parquet", numbered(0, 10))
    write(folder, "b.parquet", numbered(10, 3))
    source = ParquetTable(str(folder), ("id",))
    before = source.open()
    os.remove(folder / "b.parquet")
    after = source.open()
    assert sorted(after.changes(before.version).keys.column("id").to_pylist()) == [10, 11, 12]
    assert get(after, [11]) == []


def test_only_new_files_are_scanned_for_the_index(folder, monkeypatch):
    write(folder, "a.parquet", numbered(0, 10))
    source = ParquetTable(str(folder), ("id",))
    source.open()
    scans = []
    monkeypatch.setattr(
        "penstock.storage.tables.snapshots.write_index",
        lambda file, keys, path: (scans.append(path), keyindex.write_index(file, keys, path)),
    )
    source.open()
    assert scans == []
    write(folder, "b.parquet", numbered(5, 10))
    assert not source.open().unique
    assert len(scans) == 1
    os.remove(folder / "a.parquet")
    assert source.open().unique
    assert len(scans) == 1


def test_changes_since_a_version_that_is_not_known_may_be_anything(folder):
    write(folder, "a.parquet", numbered(0, 10))
    assert ParquetTable(str(folder), ("id",)).open().changes("0123").keys is None


def test_a_version_that_is_not_known_cannot_be_opened(folder):
    write(folder, "a.parquet", numbered(0, 10))
    with pytest.raises(TableError, match="Open the table without version="):
        ParquetTable(str(folder), ("id",)).open("0123")


def test_a_file_that_is_overwritten_while_it_is_read_is_refused(folder):
    write(folder, "a.parquet", numbered(0, 10))
    table = ParquetTable(str(folder), ("id",)).open()
    write(folder, "a.parquet", numbered(0, 1000))
    with pytest.raises(TableError, match="overwritten since the table"):
        get(table, [1])
    os.remove(folder / "a.parquet")
    with pytest.raises(TableError, match="is gone since the table"):
        table.scan(0)


def test_files_may_have_columns_in_other_types_or_lack_them(folder):
    write(folder, "a.parquet", {**numbered(0, 2), "w": [1, 2]})
    write(folder, "b.parquet", {"v": pa.array(["x"]).dictionary_encode(), "id": pa.array([7], pa.int32())})
    table = ParquetTable(str(folder), ("id",)).open()
    assert get(table, [7, 1]) == [{"id": 1, "v": "v1", "w": 2}, {"id": 7, "v": "x", "w": None}]


def test_dictionaries_come_as_their_values(folder):
    write(folder, "a.parquet", {"id": pa.array(["a", "b"]).dictionary_encode()})
    assert ParquetTable(str(folder), ("id",)).columns.field("id").type == pa.string()


def test_an_empty_folder_is_an_empty_table_if_its_columns_are_given(folder):
    with pytest.raises(TableError, match=r"Write pk\.ParquetTable\('.*', \('id',\), schema=pa\.schema\("):
        ParquetTable(str(folder), ("id",)).open()
    table = ParquetTable(str(folder), ("id",), pa.schema({"id": pa.int64()})).open()
    assert (table.partitions, table.size.rows, get(table, [1])) == (0, 0, [])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, r"does not exist\. Write the path"),
        (lambda folder: (folder / "no").mkdir(), "has no Parquet files yet"),
        (lambda folder: (folder / "no/_delta_log").mkdir(parents=True), "has no version of a table"),
        (
            lambda folder: (folder / "no/day=1").mkdir(parents=True) or write(folder, "no/day=1/a", {"id": [1]}),
            "partitionBy",
        ),
        (lambda folder: (folder / "no").write_text("id,v"), "is not a Parquet file"),
    ],
)
def test_what_is_no_table_is_refused_with_the_remedy(folder, make, message):
    make(folder)
    with pytest.raises(TableError, match=message):
        ParquetTable(str(folder / "no"), ("id",)).open()


def test_a_page_table_is_told_from_a_folder_of_files_and_nobody_is_told_to_move_its_pages(folder):
    build_page_table(str(folder), [pa.table({"id": [1]})], keys=["id"])
    message = rf"{folder} is a page table, .* Write pk\.PageTable\('{folder}'\)"
    for schema in (None, pa.schema({"id": pa.int64()})):
        with pytest.raises(TableError, match=message):
            ParquetTable(str(folder), ("id",), schema).open()


def test_a_path_may_be_a_path_object_and_nothing_else(folder):
    write(folder, "a.parquet", numbered(0, 2))
    assert ParquetTable(folder, ("id",)) == ParquetTable(str(folder), ("id",))
    with pytest.raises(ConfigError, match=r"path=5 is neither a path nor a URI\. Write one"):
        ParquetTable(5, ("id",))


def test_an_unknown_key_is_refused(folder):
    write(folder, "a.parquet", numbered(0, 1))
    with pytest.raises(ConfigError, match=r"keys='idd' is not a column of this table\. Did you mean 'id'"):
        ParquetTable(str(folder), ("idd",)).open()
    with pytest.raises(ConfigError, match="names no column"):
        ParquetTable(str(folder), ())


def test_the_index_goes_where_it_is_told_to(folder, tmp_path):
    write(folder, "a.parquet", numbered(0, 10))
    source = ParquetTable(str(folder), ("id",), index=str(tmp_path / "index"))
    assert get(pickle.loads(pickle.dumps(source)).open(), [1]) == [{"id": 1, "v": "v1"}]
    assert os.listdir(tmp_path / "index")
    assert not os.path.exists(tmp_path / ".data.penstock")


def test_an_index_beside_data_that_cannot_be_written_is_temporary(folder, monkeypatch):
    write(folder, "a.parquet", numbered(0, 10))
    monkeypatch.setattr("penstock.storage.tables.parquet._writable", lambda folder: False)
    assert get(ParquetTable(str(folder), ("id",)).open(), [1]) == [{"id": 1, "v": "v1"}]
    assert os.listdir(folder.parent) == ["data"]


def test_old_versions_are_forgotten_with_their_indexes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.storage.tables.snapshots._REMEMBERED", 2)
    source = ParquetTable(str(folder), ("id",), pa.schema({"id": pa.int64()}), index=str(tmp_path / "index"))
    for n in range(5):
        write(folder, f"{n}.parquet", {"id": [n]})
        if n:
            os.remove(folder / f"{n - 1}.parquet")
        source.open()
    (inside,) = (tmp_path / "index").iterdir()
    assert sorted(path.suffix for path in inside.iterdir()) == [".arrow"] * 2 + [".json"] * 2


def test_row_groups_are_kept_within_the_limit(folder):
    write(folder, "a.parquet", numbered(0, 10_000), groups=1000)
    table = ParquetTable(str(folder), ("id",), cache_bytes=50_000).open()
    assert len(get(table, list(range(0, 10_000, 3)))) == 3334
    assert 0 < table._groups._kept.held <= 50_000
    streamed = ParquetTable(str(folder), ("id",), cache_bytes=10).open()
    assert len(get(streamed, list(range(0, 10_000, 3)))) == 3334
    assert streamed._groups._kept.held == 0


def test_row_groups_that_are_kept_are_paid_for_by_whoever_reads_and_go_if_it_cannot(folder):
    write(folder, "a.parquet", numbered(0, 10_000), groups=1000)
    table = ParquetTable(str(folder), ("id",)).open()
    rich, poor = Budget(1_000_000), Budget(120_000)
    assert get(table.within(rich), [3])
    one = rich.held
    assert one == table._groups._kept.held > 0
    assert len(get(table.within(rich), list(range(10_000)))) == 10_000
    assert one < rich.held == table._groups._kept.held <= rich.limit // 4
    assert get(table.within(poor), [4])
    assert (rich.held, poor.held) == (0, table._groups._kept.held)
    assert 0 < poor.held <= poor.limit // 4


def test_what_does_not_fit_is_refused_before_it_is_there(folder):
    write(folder, "a.parquet", {"id": pa.array(range(1000), pa.int64()), "v": ["x" * 1000] * 1000}, groups=1000)
    budget = Budget(400_000)
    table = ParquetTable(str(folder), ("id",)).open().within(budget)
    assert sum(index.group_bytes[0] for index in table._index.files) < 100_000, "encoded it is small"
    assert table.size.nbytes > 1_000_000
    assert len(get(table, list(range(100)))) == 100
    with pytest.raises(BudgetError, match="rows that are looked up"):
        get(table, list(range(1000)))
    with pytest.raises(BudgetError, match=r"takes 2.* while it is sorted, .* smaller row groups"):
        table.scan(0)
    assert budget.held == 0, "a row group that is too large is not kept"


def test_an_index_of_wide_keys_is_made_in_pieces(folder, monkeypatch):
    keys = [f"{n:05d}" + "k" * 1000 for n in range(2000)]
    write(folder, "a.parquet", {"id": keys, "v": range(2000)}, groups=2000)
    monkeypatch.setattr(keyindex, "_READ", 10)
    monkeypatch.setattr(keyindex, "_RUN_BYTES", 100_000)
    with pq.ParquetFile(folder / "a.parquet") as source:
        keyindex.write_index(source, pa.schema({"id": pa.string()}), str(folder / "index"))
    sizes = [run.nbytes for run in keyindex.FileIndex(str(folder / "index")).runs]
    assert max(sizes) < 120_000 < 2_000_000 < sum(sizes)


@examples(0.2)
@given(
    files=st.lists(st.lists(st.none() | st.integers(0, 9), max_size=12), max_size=4),
    groups=st.integers(1, 5),
    partition_rows=st.integers(1, 8),
    run=st.sampled_from([(1, 10**6), (3, 10**6), (100, 50), (100, 10**6)]),
    later=st.lists(st.integers(0, 9), max_size=5),
)
def test_any_files_in_any_row_groups_and_runs(tmp_path_factory, files, groups, partition_rows, run, later):
    folder = tmp_path_factory.mktemp("any")
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyindex, "_RUN", run[0])
        patch.setattr(keyindex, "_RUN_BYTES", run[1])
        patch.setattr(keyindex, "_READ", 2)
        source = ParquetTable(str(folder), ("id",), schema, partition_rows=partition_rows)
        for epoch, epoch_files in enumerate((files, [*files, later])):
            for n, ids in enumerate(epoch_files):
                if n >= epoch * len(files):
                    rows = {
                        "id": pa.array(ids, pa.int64()),
                        "v": pa.array(range(100 * n, 100 * n + len(ids)), pa.int64()),
                    }
                    write(folder, f"{n}.parquet", rows, groups)
            _as_written(source.open(), epoch_files)


def _as_written(table, files):
    rows = [{"id": i, "v": 100 * n + r} for n, ids in enumerate(files) for r, i in enumerate(ids) if i is not None]
    ids = [row["id"] for row in rows]
    assert scanned(table) == sorted(rows, key=str)
    for wanted in ([1, 3, 5], list(range(11))):
        assert get(table, wanted) == sorted((row for row in rows if row["id"] in wanted), key=str)
    assert table.unique == (len(set(ids)) == len(ids))
    held = [set(table.scan(n).column("id").to_pylist()) for n in range(table.partitions)]
    assert table.clustered == (sum(map(len, held)) == len(set(ids)))
    if table.clustered:
        keys = [pa.array(range(11), pa.int64())]
        there = table.partition_of(hash_keys(keys), keys).tolist()
        assert there == [next((p for p, some in enumerate(held) if key in some), -1) for key in range(11)]
