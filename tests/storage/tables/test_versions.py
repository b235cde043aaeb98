"""Versions of page tables: readers keep theirs, writers do not overwrite each other, nothing broken is read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.errors import ConfigError, StateError, TableError
from penstock.storage import files
from penstock.storage.tables import PageTable, build_page_table, opened
from penstock.storage.tables.edit import Edit
from penstock.storage.tables.manifest import Versions
from penstock.storage.tables.partitions import enter
from tests.storage.tables.test_pages import changed, check, keys_of, pairs_of, rows


@pytest.fixture(autouse=True)
def _as_another_process(monkeypatch):
    """Nothing is open and nothing has been checked yet."""
    monkeypatch.setattr(opened, "_OPEN", type(opened._OPEN)())
    monkeypatch.setattr(files, "_CHECKED", np.zeros_like(files._CHECKED))


def written(folder: Path, count: int = 20, **settings) -> PageTable:
    return build_page_table(
        str(folder), [rows([(k, "a") for k in range(count)])], keys=["k"], **{"partition_rows": 4, **settings}
    )


def forget() -> None:
    opened._OPEN.clear()
    files._CHECKED.fill(0)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def test_a_reader_keeps_its_version_while_a_writer_commits(tmp_path):
    table = written(tmp_path)
    reader = table.open()
    first = reader.scan(0)
    table.upsert(rows([(k, "b") for k in range(20)]))
    table.delete(pa.table({"k": [1]}))
    check(reader, {k: ["a"] for k in range(20)})
    assert reader.scan(0).equals(first)
    check(table.open(), {k: ["b"] for k in range(20) if k != 1})


def test_a_change_copies_only_the_partitions_concerned(tmp_path):
    table = written(tmp_path, 4000, partition_rows=100, page="20 kB")
    before = set(table.open().listed.column("page").to_pylist())
    table.upsert(rows([(7, "b")]))
    after = set(table.open().listed.column("page").to_pylist())
    assert len(after - before) == 1
    assert len(before - after) <= 1
    (new,) = after - before
    assert int(new.split("-")[-2]) < 10_000


@pytest.mark.slow
def test_pages_stay_few_however_many_changes_come(tmp_path):
    table = written(tmp_path, 2000, partition_rows=20, page="20 kB")
    for k in range(150):
        table.upsert(rows([(k * 13 % 2000, f"b{k}")]))
    pages = set(table.open().listed.column("page").to_pylist())
    assert len(pages) < 30
    model = {k: ["a"] for k in range(2000)} | {k * 13 % 2000: [f"b{k}"] for k in range(150)}
    check(table.open(), model)
    freed, _ = table.vacuum(keep=1)
    assert freed > 100
    check(table.open(), model)


def test_the_second_of_two_writers_is_told_and_keeps_nothing(tmp_path):
    table = written(tmp_path)
    versions = Versions(table.uri)
    one, other = Edit(versions, versions.read()), Edit(versions, versions.read())
    one.commit(None, enter(rows([(100, "one")]), table.layout)[0])
    with pytest.raises(TableError, match=r"was at version 1 when this change began and is at 2 now: another writer"):
        other.commit(None, enter(rows([(101, "other")]), table.layout)[0])
    check(table.open(), {k: ["a"] for k in range(20)} | {100: ["one"]})
    assert not [name for name in os.listdir(tmp_path / "versions") if "draft" in name]


def test_a_change_can_be_made_to_depend_on_what_was_read(tmp_path):
    table = written(tmp_path)
    assert table.append(rows([(50, "x")]), expected="1") == "2"
    for change in (table.append, table.upsert, table.delete):
        with pytest.raises(TableError, match=r"was at version 1 .* and is at 2 now"):
            change(rows([(51, "x")]), expected="1")
    assert table.version == "2"


def test_vacuum_keeps_some_versions_and_their_changes(tmp_path):
    table = written(tmp_path)
    for k in (1, 2, 3):
        table.upsert(rows([(k, "b")]))
    table.vacuum(keep=2)
    latest = table.open()
    assert changed(latest, "4") == set()
    assert changed(latest, "3") == {3}
    assert changed(latest, "2") == {2, 3}
    assert changed(latest, "1") is None
    assert changed(latest, "9") is None
    check(table.open("3"), {k: ["b" if k in (1, 2) else "a"] for k in range(20)})
    with pytest.raises(
        TableError, match=r"Version 2 of table .* does not exist; it has 3 to 4\. Older ones were vacuumed"
    ):
        table.open("2")
    assert table.vacuum(keep=2) == (0, 0)


def test_vacuum_leaves_alone_what_a_writer_has_just_written(tmp_path):
    table = written(tmp_path)
    at_work = Versions(table.uri).pages(2).put(pa.record_batch({"n": [1]}))
    stranded = Versions(table.uri).pages(1).put(pa.record_batch({"n": [1]}))
    assert table.vacuum()[0] == 1
    names = os.listdir(tmp_path / "pages")
    assert at_work in names
    assert stranded not in names


def test_building_again_makes_a_new_version_of_which_anything_may_have_changed(tmp_path):
    written(tmp_path)
    table = written(tmp_path, 3)
    assert table.version == "2"
    check(table.open(), {k: ["a"] for k in range(3)})
    assert changed(table.open(), "1") is None
    check(table.open("1"), {k: ["a"] for k in range(20)})


def test_a_table_of_other_columns_is_not_overwritten(tmp_path):
    written(tmp_path)
    with pytest.raises(ConfigError, match=r"holds a table of \(k: int64, v: string\) keyed by k, not of \(k: int64\)"):
        build_page_table(str(tmp_path), [pa.table({"k": [1]})], keys=["k"])


def test_what_is_no_table_is_not_made_one_by_looking(tmp_path):
    with pytest.raises(
        ConfigError, match=r"holds no page table\. Write one with pk\.write_page_table\(rows, '.*typo', keys="
    ):
        PageTable(str(tmp_path / "typo")).open()
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("version", ["two", "-1"])
def test_versions_are_numbers(tmp_path, version):
    with pytest.raises(ConfigError, match=rf"version='{version}' is not a version of a page table"):
        written(tmp_path).open(version)


def test_a_damaged_page_is_not_read(tmp_path):
    table = written(tmp_path)
    (page,) = set(table.open().listed.column("page").to_pylist())
    damage(tmp_path / "pages" / page)
    forget()
    with pytest.raises(
        TableError, match=r"its checksum differs\. Nothing was read from it\. Restore the file from a ba"
    ):
        table.open().get(*keys_of([1]))


def test_a_missing_page_is_missed_only_by_those_who_need_it(tmp_path):
    table = written(tmp_path, 4000, partition_rows=100, page="20 kB")
    pages = table.open().listed.column("page").to_pylist()
    (tmp_path / "pages" / pages[-1]).unlink()
    forget()
    reader = table.open()
    assert reader.scan(0).num_rows
    with pytest.raises(TableError, match=r"Table file .* is missing, and so are its rows\. If its version was vac"):
        reader.scan(len(pages) - 1)


def test_a_damaged_or_cut_manifest_is_an_error(tmp_path):
    table = written(tmp_path)
    path = tmp_path / "versions" / "00000001.json"
    whole = path.read_bytes()
    damage(path)
    with pytest.raises(StateError, match=r"00000001\.json is not what was written: its checksum differs"):
        table.open()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StateError, match="its checksum differs"):
        table.open()
    path.write_bytes(b"")
    with pytest.raises(StateError, match="its checksum differs"):
        table.open()


def test_a_table_of_another_format_is_refused(tmp_path, monkeypatch):
    table = written(tmp_path)
    monkeypatch.setattr("penstock.storage.tables.manifest.FORMAT", 2)
    with pytest.raises(TableError, match=r"has format 1, but this version of penstock reads 2\. Write the table again"):
        table.open()


def test_changes_name_the_columns_they_miss(tmp_path):
    table = written(tmp_path)
    with pytest.raises(ConfigError, match=r"keys='k' is not a column of the table given\. .* K"):
        table.delete(pa.table({"K": [1]}))
    with pytest.raises(
        ConfigError, match=r"rows: column 'v' \(string\) is not among k\. Pass all columns of the table"
    ):
        table.append(pa.table({"k": [1]}))
    with pytest.raises(
        ConfigError, match=r"rows: column 'k' is string, but int64 in the table, and not every value can"
    ):
        table.append(pa.table({"k": ["x"], "v": ["x"]}))
    assert table.append(pa.table({"v": ["x"], "k": pa.array([77], pa.int8())})) == "2"
    assert pairs_of(table.open().get(*keys_of([77]))) == {(77, "x"): 1}


def test_changes_are_arrow_tables(tmp_path):
    table = written(tmp_path)
    for change in (table.append, table.upsert):
        with pytest.raises(ConfigError, match=r"rows=list is not an Arrow table\. .* pa\.Table\.from_pandas\("):
            change([{"k": 1}])
    with pytest.raises(ConfigError, match=r"keys=list is not an Arrow table\. Write pa\.table\("):
        table.delete([1])


def test_at_least_one_version_is_kept(tmp_path):
    with pytest.raises(ConfigError, match=r"keep=0 would delete the table"):
        written(tmp_path).vacuum(keep=0)


def test_rows_behind_all_others_of_a_table_cut_by_range_move_nothing(tmp_path):
    table = written(tmp_path, by="range")
    before = table.open()
    table.append(rows([(k, "new") for k in range(100, 111)]))
    after = table.open()
    assert after.layout == before.layout
    assert after.partitions > before.partitions
    for number in range(before.partitions):
        assert after.scan(number).equals(before.scan(number))
    table.append(rows([(k, "between") for k in range(5, 60)]))
    assert table.open().layout != before.layout
