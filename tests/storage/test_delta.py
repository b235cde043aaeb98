"""Delta tables as sources: which rows each version brings, by random histories, by hand, and against deltalake."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError, SourceError
from penstock.core.files import Files, InputFile
from penstock.local.files import FileFeed
from penstock.storage.delta import CommitLog, commits_from, delta_files, first_version, inputs_of
from penstock.storage.scans import portions, read_file
from tests.streams import examples


def table(*ids: int, day: str = "mon") -> pa.Table:
    return pa.table({"t": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


def append(folder: Path, rows: pa.Table, **options: Any) -> None:
    write_deltalake(str(folder), rows, mode="append", **options)


def source(folder: Path, schema: pa.Schema | None = None, limit: int | None = None, changes: str = "refuse") -> Files:
    return delta_files(folder, schema, limit, changes)


def rows_of(files: Files, inputs: list[InputFile]) -> list[dict[str, Any]]:
    pieces = (piece for each in inputs for piece in read_file(files, each.path, files.columns, values=each.values))
    return pa.concat_tables([files.columns.empty_table(), *pieces]).to_pylist()


def ids_of(files: Files, last: int, reached: int | None) -> list[int]:
    return sorted(row["t"] for row in rows_of(files, inputs_of(files, last, reached)))


def epochs(files: Files) -> list[list[int]]:
    return [sorted(rows.column("t").to_pylist()) for rows in FileFeed(files).tables]


def log_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020d}.json"


def clean_up(folder: Path) -> None:
    """Delete the log before the latest checkpoint, as happens after a month."""
    numbers = [int(path.name[:20]) for path in (folder / "_delta_log").glob("*.checkpoint*.parquet")]
    for path in (folder / "_delta_log").glob("0*"):
        if int(path.name[:20]) < max(numbers, default=0):
            path.unlink()


def commit(folder: Path, *actions: dict[str, Any]) -> int:
    """A commit by hand; its version."""
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    version = len(list((folder / "_delta_log").glob("*.json")))
    log_file(folder, version).write_text("".join(json.dumps(action) + "\n" for action in actions))
    return version


def created(*columns: tuple[str, Any], **more: Any) -> list[dict[str, Any]]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    about = {
        "id": "1",
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        **more,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": about}]


def added(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, **more}}


# -- the rows of versions --------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.sampled_from(["append", "append", "append", "two days", "compact", "checkpoint", "delete", "overwrite", "poll"]),
    min_size=1,
    max_size=12,
)


@given(history=STEPS, limit=st.sampled_from([None, 1, 2]))
@examples(0.35)
def test_whatever_becomes_of_a_table_a_source_has_its_rows_at_the_start_and_each_row_appended_since_once(
    tmp_path_factory, history, limit
):
    """Between polls the table is appended to, compacted and vacuumed, and its log cleaned up; changes are skipped."""
    folder, ids = tmp_path_factory.mktemp("delta"), iter(range(1000))
    append(folder, table(next(ids)), partition_by=["day"])
    held, expected, found = [0], Counter(), Counter()
    files, reached = source(folder, limit=limit, changes="skip"), None
    for step in [*history, "poll"]:
        now = DeltaTable(str(folder))
        if step == "poll":
            if reached is None:
                expected.update(held)
                for rows in epochs(files):
                    found.update(rows)
            else:
                found.update(ids_of(files, now.version(), reached))
            reached = now.version()
            now.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        elif step == "compact":
            now.optimize.compact()
        elif step == "checkpoint":
            now.create_checkpoint()
            if reached is None or reached == now.version():
                clean_up(folder)
        elif step == "delete":
            gone = held.pop(len(held) // 2) if held else -1
            now.delete(f"t = {gone}")
        elif step == "overwrite":
            if reached is not None and not held:
                expected.update([next_id := next(ids)])  # nothing is taken away from an empty table
            else:
                next_id = next(ids)
            held = [next_id]
            write_deltalake(str(folder), table(*held), mode="overwrite")
        else:
            new = [next(ids), next(ids)]
            days = [table(new[0]), table(new[1], day="tue" if step == "two days" else "mon")]
            append(folder, pa.concat_tables(days))
            held += new
            if reached is not None:
                expected.update(new)
    assert found == expected


def test_without_a_limit_the_first_epoch_is_the_table_as_it_is(tmp_path):
    for n in range(3):
        append(tmp_path, table(n))
    DeltaTable(str(tmp_path)).delete("t = 1")
    assert epochs(source(tmp_path)) == [[0, 2]]


def test_with_a_limit_what_was_appended_since_the_last_change_comes_in_commits(tmp_path):
    for n in range(3):
        append(tmp_path, table(n))
    assert epochs(source(tmp_path, limit=1)) == [[0], [1], [2]]
    DeltaTable(str(tmp_path)).optimize.compact()
    for n in range(3, 6):
        append(tmp_path, table(n))
    assert epochs(source(tmp_path, limit=1)) == [[0, 1, 2], [3], [4], [5]]
    assert epochs(source(tmp_path, limit=2)) == [[0, 1, 2, 3], [4, 5]]
    assert epochs(source(tmp_path, limit=9)) == [[0, 1, 2, 3, 4, 5]]


def test_a_log_that_was_cleaned_up_is_followed_from_its_checkpoint(tmp_path):
    for n in range(3):
        append(tmp_path, table(n))
    DeltaTable(str(tmp_path)).create_checkpoint()
    clean_up(tmp_path)
    append(tmp_path, table(3))
    assert not log_file(tmp_path, 0).exists()
    assert epochs(source(tmp_path, limit=1)) == [[0, 1, 2], [3]]
    log_file(tmp_path, 2).unlink()
    assert first_version(source(tmp_path, limit=1)) == 3
    assert epochs(source(tmp_path)) == [[0, 1, 2, 3]]


def test_a_snapshot_does_not_depend_on_which_checkpoint_was_there(tmp_path):
    for n in range(4):
        append(tmp_path, table(n))
    before = CommitLog(str(tmp_path)).snapshot(3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    append(tmp_path, table(4))
    assert CommitLog(str(tmp_path)).snapshot(3) == before
    assert len(before) == 4


@pytest.mark.parametrize("kind", ["parts", "sidecars", "json"])
def test_checkpoints_of_several_files_are_read(tmp_path, kind):
    for n in range(4):
        append(tmp_path, table(n))
    DeltaTable(str(tmp_path)).create_checkpoint()
    clean_up(tmp_path)
    whole = log_file(tmp_path, 3).with_suffix("").with_suffix(".checkpoint.parquet")
    rows = pq.read_table(whole)
    if kind == "parts":
        for part in (1, 2):
            some = rows.slice(3 * (part - 1), 3 if part == 1 else None)
            pq.write_table(some, f"{whole}".replace(".parquet", f".000000000{part}.0000000002.parquet"))
    else:
        unique = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
        adds = rows.filter(rows.column("add").is_valid()).select(["add", "remove"])
        (whole.parent / "_sidecars").mkdir()
        pq.write_table(adds, whole.parent / "_sidecars" / "s 1.parquet")
        beside = {"path": "s%201.parquet", "sizeInBytes": 1, "modificationTime": 1, "tags": None}
        others = [row for row in rows.drop_columns(["add"]).to_pylist() if row["protocol"] or row["metaData"]]
        if kind == "json":
            plain = [{"protocol": others[0]["protocol"]}, {"metaData": others[1]["metaData"]}, {"sidecar": beside}]
            plain[1]["metaData"]["configuration"] = {}
            plain[1]["metaData"]["format"] = {}
            text = "".join(json.dumps(action) + "\n" for action in plain)
            whole.with_name(f"{3:020d}.checkpoint.{unique}.json").write_text(text)
        else:
            told = pa.Table.from_pylist([*others, {"sidecar": beside}], rows.drop_columns(["add"]).schema)
            pq.write_table(told, whole.with_name(f"{3:020d}.checkpoint.{unique}.parquet"))
    whole.unlink()
    append_by_hand = log_file(tmp_path, 4)
    pq.write_table(table(4), tmp_path / "more.parquet")
    append_by_hand.write_text(json.dumps(added("more.parquet")) + "\n")
    assert epochs(source(tmp_path)) == [[0, 1, 2, 3, 4]]


def test_a_checkpoint_of_which_a_part_is_missing_is_passed_by(tmp_path):
    for n in range(3):
        append(tmp_path, table(n))
    DeltaTable(str(tmp_path)).create_checkpoint()
    whole = log_file(tmp_path, 2).with_suffix("").with_suffix(".checkpoint.parquet")
    pq.write_table(pq.read_table(whole).slice(0, 2), f"{whole}".replace(".parq", ".0000000001.0000000002.parq"))
    whole.unlink()
    assert epochs(source(tmp_path)) == [[0, 1, 2]]


def test_a_file_that_a_commit_removes_and_adds_again_is_in_the_table(tmp_path):
    pq.write_table(pa.table({"t": [1]}), tmp_path / "a.parquet")
    commit(tmp_path, *created(("t", "long")), added("a.parquet"))
    files = source(tmp_path)
    retagged = added("a.parquet", dataChange=False, tags={"zone": "z"})
    commit(tmp_path, retagged, {"remove": {"path": "a.parquet", "dataChange": False}})
    assert ids_of(files, 1, None) == [1]
    assert ids_of(files, 1, 0) == []


@given(at=st.integers(0, 10**20 - 1), other=st.integers(0, 10**20 - 1))
def test_the_pattern_of_commits_matches_a_version_and_those_after_it(at, other):
    pattern = commits_from(at).replace("{", "(").replace("}", ")").replace(",", "|").replace(".json", r"\.json")
    assert (re.fullmatch(pattern, f"{other:020d}.json") is not None) == (other >= at)
    assert re.fullmatch(pattern, f"{at:020d}.json")


# -- columns that are not in the files -------------------------------------------------------------------------------

PARTITIONED = pa.table(
    {
        "t": [1, 2, 3, 4],
        "text": ["a/b", "ü %=\"'{}", "", None],
        "day": [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
        "price": pa.array([Decimal("1.50"), None, Decimal("-3.00"), Decimal("0.01")], pa.decimal128(10, 2)),
        "at": pa.array([1, None, 1_593_570_600_123_456, -1], pa.timestamp("us", "UTC")),
        "clock": pa.array([1, None, 1_593_570_600_123_456, -1], pa.timestamp("us")),
        "on": [True, False, None, True],
        "f": [1.5, float("nan"), float("-inf"), 1e-5],
        "n": pa.array([-128, 127, None, 0], pa.int8()),
    }
)


def test_partition_columns_have_the_values_and_types_that_deltalake_reads(tmp_path):
    folder = tmp_path / "a table of 100%"
    append(folder, PARTITIONED, partition_by=PARTITIONED.column_names[1:])
    expected = DeltaTable(str(folder)).to_pyarrow_table().sort_by("t")
    files = source(folder)
    assert files.columns == PARTITIONED.schema
    for _ in range(2):
        found = pa.concat_tables(FileFeed(files).tables).sort_by("t").select(expected.column_names)
        assert str(found.to_pylist()) == str(expected.to_pylist())
        assert found.column("text").to_pylist() == ["a/b", "ü %=\"'{}", None, None]
        DeltaTable(str(folder)).create_checkpoint()


def test_only_partition_columns_may_be_asked_for(tmp_path):
    append(tmp_path, pa.table({"t": range(3000), "day": ["mon"] * 3000}), partition_by=["day"])
    files = source(tmp_path, pa.schema({"day": pa.string()}))
    (file,) = inputs_of(files, 0, None)
    pieces = list(read_file(files, file.path, files.columns, size=20_000, values=file.values))
    assert pa.concat_tables(pieces).column("day").to_pylist() == ["mon"] * 3000
    assert max(piece.nbytes for piece in pieces) <= 20_000
    assert len(pieces) > 1


def test_wide_partition_values_do_not_make_large_pieces(tmp_path):
    rows = pa.table({"t": range(100_000), "day": ["x" * 200] * 100_000})
    append(tmp_path, rows, partition_by=["day"])
    files = source(tmp_path)
    (file,) = inputs_of(files, 0, None)
    pieces = list(read_file(files, file.path, files.columns, size=2_000_000, values=file.values))
    assert max(piece.nbytes for piece in pieces) < 2_500_000
    assert sum(piece.num_rows for piece in pieces) == 100_000


def test_portions_of_a_file_have_its_partition_values(tmp_path):
    append(tmp_path, table(1, 2, day="tue"), partition_by=["day"])
    files = source(tmp_path)
    (file,) = inputs_of(files, 0, None)
    assert [portion.values for portion in portions(files, file.path, file.values)] == [(("day", "tue"),)]
    assert file.nbytes == Path(file.path).stat().st_size


@pytest.mark.parametrize("text", ["2024-01-31 10:00:00", "2024-01-31T10:00:00.000000Z", "2024-01-31 12:00:00+02:00"])
def test_times_in_the_log_are_in_utc_unless_they_say_otherwise(tmp_path, text):
    pq.write_table(pa.table({"t": [1]}), tmp_path / "a.parquet")
    commit(
        tmp_path,
        *created(("t", "long"), ("at", "timestamp"), partitionColumns=["at"]),
        added("a.parquet", partitionValues={"at": text}),
    )
    files = source(tmp_path)
    assert rows_of(files, inputs_of(files, 0, None))[0]["at"].isoformat() == "2024-01-31T10:00:00+00:00"


def test_a_partition_value_that_is_none_of_its_type_is_told(tmp_path):
    pq.write_table(pa.table({"t": [1]}), tmp_path / "a.parquet")
    commit(
        tmp_path,
        *created(("t", "long"), ("n", "integer"), partitionColumns=["n"]),
        added("a.parquet", partitionValues={"n": "many"}),
    )
    with pytest.raises(SourceError, match=r"log has 'many' for partition column 'n' of .*a.parquet, which is int32"):
        epochs(source(tmp_path))


def test_binary_partition_columns_are_refused(tmp_path):
    commit(tmp_path, *created(("t", "long"), ("b", "binary"), partitionColumns=["b"]))
    with pytest.raises(ConfigError, match="is partitioned by 'b', which is binary"):
        source(tmp_path)


# -- commits that bring no rows, or none that can be read --------------------------------------------------------------


def test_a_commit_that_only_rearranges_rows_brings_none(tmp_path):
    for n in range(3):
        append(tmp_path, table(n))
    files = source(tmp_path)
    DeltaTable(str(tmp_path)).optimize.compact()
    append(tmp_path, table(9))
    assert [ids_of(files, last, last - 1) for last in (3, 4)] == [[], [9]]


@pytest.mark.parametrize("how", ["delete", "overwrite", "update", "drop all"])
def test_a_commit_that_changes_rows_is_refused_or_skipped(tmp_path, how):
    append(tmp_path, table(0, 1))
    files, skipping = source(tmp_path), source(tmp_path, changes="skip")
    if how == "delete":
        DeltaTable(str(tmp_path)).delete("t = 0")
    elif how == "update":
        DeltaTable(str(tmp_path)).update({"t": "7"}, predicate="t = 0")
    elif how == "overwrite":
        write_deltalake(str(tmp_path), table(5), mode="overwrite")
    else:
        DeltaTable(str(tmp_path)).delete()
    append(tmp_path, table(8))
    with pytest.raises(SourceError, match=r"Version 1 of Delta table .* deletes or rewrites rows.*changes='skip'"):
        inputs_of(files, 2, 0)
    assert ids_of(skipping, 2, 0) == [8]


def test_a_vacuumed_file_is_told_and_so_is_an_emptied_one(tmp_path):
    append(tmp_path, table(0))
    append(tmp_path, table(1))
    files = source(tmp_path)
    (file,) = inputs_of(files, 1, 0)
    DeltaTable(str(tmp_path)).optimize.compact()
    DeltaTable(str(tmp_path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceError, match=r"\.parquet is gone\. .*VACUUM deletes files.*new checkpoint folder"):
        ids_of(files, 1, 0)
    Path(file.path).touch()
    with pytest.raises(SourceError, match="cannot be read as parquet"):
        ids_of(files, 1, 0)


VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}


def test_files_with_deletion_vectors_are_refused_by_version(tmp_path):
    pq.write_table(pa.table({"t": [1]}), tmp_path / "a.parquet")
    commit(tmp_path, *created(("t", "long")), added("a.parquet"))
    files = source(tmp_path)
    removed = {"remove": {"path": "a.parquet", "dataChange": True}}
    commit(tmp_path, added("a.parquet", deletionVector=VECTOR), removed)
    commit(tmp_path, added("b.parquet", deletionVector=VECTOR))
    for last, reached in ((1, None), (2, 1)):
        with pytest.raises(SourceError, match=rf"Version {last} of .* has a deletion vector for .*REORG TABLE"):
            inputs_of(files, last, reached)
    commit(tmp_path, {"remove": {"path": "a.parquet", "dataChange": True, "deletionVector": VECTOR}})
    commit(tmp_path, {"remove": {"path": "b.parquet", "dataChange": True, "deletionVector": VECTOR}})
    assert ids_of(files, 4, None) == []


def unreadable() -> Iterator[tuple[list[dict[str, Any]], str]]:
    mapped = {"configuration": {"delta.columnMapping.mode": "name"}}
    yield created(("t", "long"), **mapped), "with columnMapping, which"
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz", "quantumRows"]}
    yield [{"protocol": features}, created(("t", "long"))[1]], "with quantumRows, which penstock cannot read"
    yield [{"protocol": {"minReaderVersion": 4}}, created(("t", "long"))[1]], "with reader version 4, which"


@pytest.mark.parametrize(("actions", "said"), list(unreadable()))
def test_tables_with_features_that_are_not_known_are_refused_at_the_start_and_when_they_come(tmp_path, actions, said):
    commit(tmp_path / "old", *actions)
    with pytest.raises(ConfigError, match=said):
        source(tmp_path / "old")
    commit(tmp_path / "new", *created(("t", "long")))
    files = source(tmp_path / "new")
    commit(tmp_path / "new", *actions)
    for reached in (None, 0):
        with pytest.raises(SourceError, match=rf"{said}|Stream it as a DataFrame"):
            inputs_of(files, 1, reached)


def test_features_that_a_table_may_use_and_does_not_are_no_hindrance(tmp_path):
    pq.write_table(pa.table({"t": [1]}), tmp_path / "a.parquet")
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping", "deletionVectors"]}
    commit(tmp_path, {"protocol": features}, created(("t", "long"))[1], added("a.parquet"))
    assert epochs(source(tmp_path)) == [[1]]


def test_a_table_that_is_partitioned_anew_is_refused(tmp_path):
    append(tmp_path, table(1))
    files = source(tmp_path, changes="skip")
    write_deltalake(str(tmp_path), table(2), mode="overwrite", schema_mode="overwrite", partition_by=["day"])
    for reached in (None, 0):
        with pytest.raises(SourceError, match=r"Version 1 of .* partitioned by day; .* by nothing when"):
            inputs_of(files, 1, reached)


# -- columns that come and grow ----------------------------------------------------------------------------------------


def test_columns_that_were_added_before_the_start_are_null_in_older_files_and_later_ones_are_left_out(tmp_path):
    append(tmp_path, table(1))
    DeltaTable(str(tmp_path)).alter.add_columns([Field("w", PrimitiveType("long"))])
    files = source(tmp_path)
    assert rows_of(files, inputs_of(files, 1, None)) == [{"t": 1, "day": "mon", "w": None}]
    more = table(2).append_column("w", pa.array([7])).append_column("x", pa.array([8]))
    append(tmp_path, more, schema_mode="merge")
    assert rows_of(files, inputs_of(files, 2, 1)) == [{"t": 2, "day": "mon", "w": 7}]


def test_a_schema_names_columns_and_wider_types(tmp_path):
    append(tmp_path, pa.table({"t": pa.array([1], pa.int16()), "p": pa.array([2], pa.int16())}), partition_by=["p"])
    files = source(tmp_path, pa.schema({"p": pa.int64(), "t": pa.int32(), "later": pa.string()}))
    assert rows_of(files, inputs_of(files, 0, None)) == [{"p": 2, "t": 1, "later": None}]
    narrow = source(tmp_path, pa.schema({"p": pa.string(), "t": pa.int32()}))
    with pytest.raises(SourceError, match=r"Column 'p' of .* is int16, but the source has it as string"):
        rows_of(narrow, inputs_of(narrow, 0, None))


def test_types_that_were_widened_are_read_from_older_files(tmp_path):
    pq.write_table(
        pa.table({"t": pa.array([1], pa.int32()), "f": pa.array([0.5], pa.float32())}), tmp_path / "a.parquet"
    )
    pq.write_table(pa.table({"t": [2**40], "f": [0.1]}), tmp_path / "b.parquet")
    commit(tmp_path, *created(("t", "long"), ("f", "double")), added("a.parquet"), added("b.parquet"))
    files = source(tmp_path)
    assert rows_of(files, inputs_of(files, 0, None)) == [{"t": 1, "f": 0.5}, {"t": 2**40, "f": 0.1}]


def test_times_that_spark_wrote_as_int96_are_in_utc(tmp_path):
    kind = pa.struct({"z": pa.timestamp("us")})
    rows = pa.table({"t": pa.array([5], pa.timestamp("us")), "s": pa.array([{"z": 7}], kind)})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    inner = {"type": "struct", "fields": [{"name": "z", "type": "timestamp", "nullable": True, "metadata": {}}]}
    commit(tmp_path, *created(("t", "timestamp"), ("s", inner)), added("a.parquet"))
    files = source(tmp_path)
    (row,) = rows_of(files, inputs_of(files, 0, None))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert row == {
        "t": epoch + dt.timedelta(microseconds=5),
        "s": {"z": epoch + dt.timedelta(microseconds=7)},
    }


def test_nested_types_are_those_of_the_table(tmp_path):
    kind = pa.struct({"a": pa.list_(pa.int32()), "m": pa.map_(pa.string(), pa.decimal128(12, 3))})
    rows = pa.table({"t": [1], "s": pa.array([{"a": [1, None], "m": [("k", Decimal("1.125"))]}], kind)})
    append(tmp_path, rows)
    files = source(tmp_path)
    assert rows_of(files, inputs_of(files, 0, None)) == rows.to_pylist()


def test_a_type_that_cannot_be_read_may_be_left_out(tmp_path):
    commit(tmp_path, *created(("t", "long"), ("v", "variant")))
    with pytest.raises(ConfigError, match=r"Column 'v' is of type variant, which .*\. Leave it out"):
        source(tmp_path)
    assert source(tmp_path, pa.schema({"t": pa.int64()})).columns.names == ["t"]


# -- where the files are, and what is wrong with the log ---------------------------------------------------------------


def test_paths_in_the_log_are_escaped_and_may_be_absolute(tmp_path):
    (tmp_path / "t").mkdir()
    for name in ("t/a b.parquet", "100%.parquet", "c.parquet"):
        pq.write_table(pa.table({"t": [len(name)]}), tmp_path / name)
    paths = ["a%20b.parquet", f"file://{tmp_path}/100%25.parquet", f"{tmp_path}/c.parquet"]
    commit(tmp_path / "t", *created(("t", "long")), *map(added, paths))
    assert epochs(source(tmp_path / "t")) == [[9, 12, 13]]


def test_what_is_no_table_or_has_no_version_is_refused_while_the_flow_is_built(tmp_path):
    (tmp_path / "folder" / "_delta_log").mkdir(parents=True)
    pq.write_table(table(1), tmp_path / "folder" / "a.parquet")
    for path in (tmp_path / "nowhere", tmp_path / "folder", tmp_path / "folder" / "a.parquet"):
        with pytest.raises(ConfigError, match=r"is not a Delta table: there is no version .*it may be empty"):
            source(path, table().schema)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"changes": "ignore"}, "changes='ignore' must be 'refuse' or 'skip'"),
        ({"limit": 0}, "max_commits=0 must be a whole number of at least 1"),
    ],
)
def test_arguments_are_checked(tmp_path, options, said):
    append(tmp_path, table(1))
    with pytest.raises(ConfigError, match=said):
        source(tmp_path, **options)


def test_an_empty_table_has_columns_and_no_rows(tmp_path):
    append(tmp_path, table())
    files = source(tmp_path)
    assert files.columns.names == ["t", "day"]
    assert epochs(files) == [[]]
    append(tmp_path, table(4))
    assert ids_of(files, 1, 0) == [4]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "1.json of a Delta table is damaged or cut off"),
        (lambda path: path.write_bytes(b"[1]\n"), "1.json of a Delta table is damaged or cut off"),
        (lambda path: path.write_bytes(b""), "1.json of a Delta table is empty"),
        (lambda path: path.unlink(), "Commit 1 of Delta table .* is gone|commit 1 is not in its log"),
    ],
    ids=["torn", "other", "empty", "gone"],
)
@pytest.mark.parametrize("reached", [None, 0])
def test_a_bad_commit_is_named(tmp_path, spoil, said, reached):
    for n in range(3):
        append(tmp_path, table(n))
    files = source(tmp_path)
    spoil(log_file(tmp_path, 1))
    with pytest.raises(SourceError, match=said):
        inputs_of(files, 2, reached)


def test_a_bad_checkpoint_is_named(tmp_path):
    append(tmp_path, table(1))
    files = source(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"Checkpoint .*checkpoint.parquet of a Delta table cannot be read"):
        inputs_of(files, 0, None)


def test_a_table_whose_latest_commit_was_cleaned_up_needs_another(tmp_path):
    append(tmp_path, table(1))
    append(tmp_path, table(2))
    DeltaTable(str(tmp_path)).create_checkpoint()
    log_file(tmp_path, 1).unlink()
    with pytest.raises(ConfigError, match=r"lacks the commit of its latest version. Commit to it once more"):
        source(tmp_path)
    log_file(tmp_path, 0).unlink()
    with pytest.raises(ConfigError, match=r"lacks the commit of its latest version"):
        source(tmp_path)


def test_a_version_to_which_the_log_does_not_reach_back_is_told(tmp_path):
    for n in range(4):
        append(tmp_path, table(n))
    files = source(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    clean_up(tmp_path)
    with pytest.raises(SourceError, match=r"Version 2 of .* is no longer available: commit 0 is not .*new checkpoint"):
        inputs_of(files, 2, None)
    with pytest.raises(SourceError, match=r"Commit 2 of .* is gone: .*logRetentionDuration"):
        inputs_of(files, 3, 1)
    assert ids_of(files, 3, None) == [0, 1, 2, 3]


def test_other_files_in_the_log_are_passed_by(tmp_path):
    append(tmp_path, table(1))
    for name in (f"{7:020d}.crc", f"{0:020d}.{9:020d}.compacted.json", f"{8:020d}.json.tmp", f".{8:020d}.json.crc"):
        (tmp_path / "_delta_log" / name).write_text("?")
    (tmp_path / "_delta_log" / "_commits").mkdir()
    assert epochs(source(tmp_path)) == [[1]]
    shutil.rmtree(tmp_path / "_delta_log")
    with pytest.raises(ConfigError, match="is not a Delta table"):
        source(tmp_path)
