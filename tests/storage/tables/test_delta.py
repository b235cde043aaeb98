"""Delta tables as master tables: what their log says, not what lies in the folder."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import ConfigError, TableError
from penstock.storage.tables import ParquetTable
from tests.storage.tables.rows import get, scanned
from tests.streams import examples


def rows(ids) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([f"v{n}" for n in ids], pa.string())})


def found(folder, ids) -> list[int]:
    return sorted(row["id"] for row in get(ParquetTable(str(folder), ("id",)).open(), ids))


steps = st.one_of(
    st.tuples(st.sampled_from(["append", "overwrite"]), st.lists(st.integers(0, 20), min_size=1, max_size=6)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
)


@given(history=st.lists(steps, min_size=1, max_size=6))
@examples(0.1)
def test_whatever_was_written_and_deleted_the_rows_of_the_latest_version_are_found(tmp_path_factory, history):
    folder, model = tmp_path_factory.mktemp("delta"), []
    write_deltalake(str(folder), rows([]))
    for what, which in history:
        if what == "delete":
            DeltaTable(str(folder)).delete(f"id = {which}")
            model = [n for n in model if n != which]
        else:
            write_deltalake(str(folder), rows(which), mode=what)
            model = [*(model if what == "append" else []), *which]
        table = ParquetTable(str(folder), ("id",)).open()
        assert sorted(row["id"] for row in scanned(table)) == sorted(model)
        assert found(folder, list(range(21))) == sorted(model)


def test_the_keys_of_files_that_came_or_went_have_changed(tmp_path):
    write_deltalake(str(tmp_path), rows([1, 2]))
    before = ParquetTable(str(tmp_path), ("id",)).open().version
    write_deltalake(str(tmp_path), rows([3]), mode="append")
    after = ParquetTable(str(tmp_path), ("id",)).open()
    assert after.version != before
    assert after.changes(before).keys.column("id").to_pylist() == [3]


def test_columns_that_were_added_later_are_null_before(tmp_path):
    write_deltalake(str(tmp_path), rows([1]))
    DeltaTable(str(tmp_path)).alter.add_columns([Field("w", PrimitiveType("long"))])
    table = ParquetTable(str(tmp_path), ("id",)).open()
    assert get(table, [1]) == [{"id": 1, "v": "v1", "w": None}]


def test_files_in_a_folder_whose_name_must_be_quoted_are_found(tmp_path):
    folder = tmp_path / "a table of 100%"
    write_deltalake(str(folder), rows([1, 2]))
    assert found(folder, [2]) == [2]


def test_a_lookup_in_one_sees_its_latest_version_in_each_epoch(tmp_path):
    folder = str(tmp_path)

    def orders():
        for epoch, name in enumerate(("old", "new")):
            write_deltalake(folder, pa.table({"k": [1], "v": [name]}), mode="overwrite")
            yield pa.table({"k": [1], "t": [epoch]})

    write_deltalake(folder, pa.table({"k": [1], "v": ["older"]}))
    flow = pk.LocalFlow()
    out = flow.source(orders(), time="t").lookup(folder, on="k", freshness="latest").to_memory()
    flow.run()
    assert sorted(out.table().column("v").to_pylist()) == ["new", "old"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: write_deltalake(folder, rows([1]), partition_by=["v"]),
            r"columns in the names of folders \(v\).*read as they are. Look up in the batch DataFrame",
        ),
        (
            lambda folder: write_deltalake(folder, rows([1]), configuration={"delta.enableDeletionVectors": "true"}),
            "with deletionVectors.* whose files cannot be read as they are",
        ),
    ],
)
def test_what_cannot_be_read_off_the_files_is_refused_with_the_remedy(tmp_path, make, message):
    make(str(tmp_path))
    with pytest.raises(TableError, match=message):
        ParquetTable(str(tmp_path), ("id",)).open()


def test_without_the_package_its_extra_is_named(tmp_path, monkeypatch):
    write_deltalake(str(tmp_path), rows([1]))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"Install penstock\[delta\]"):
        ParquetTable(str(tmp_path), ("id",)).open()
