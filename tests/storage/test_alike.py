"""Which Parquet files Arrow reads as Spark does."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import SourceError
from penstock.core.files import Files
from penstock.storage.alike import why_not_alike
from penstock.storage.scans import read_file

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
AT = dt.datetime(2026, 11, 18, 12)
SPARK_3_0 = {"org.apache.spark.version": "3.0.3"}


def why(path, rows: pa.Table, columns: pa.Schema, **options) -> str | None:
    pq.write_table(rows, path, **options)
    with pq.ParquetFile(path) as file:
        return why_not_alike(file, str(path), columns)


def test_times_as_int96_are_instants_and_others_without_a_zone_are_not(tmp_path):
    path, rows = tmp_path / "0.parquet", pa.table({"t": pa.array([AT], LOCAL)})
    instants, local = pa.schema({"t": UTC}), pa.schema({"t": LOCAL})
    assert why(path, rows, instants, use_deprecated_int96_timestamps=True) is None
    told = why(path, rows, local, use_deprecated_int96_timestamps=True)
    assert told == f"Column 't' of {path} is timestamp[ns, tz=UTC] there, and the source has it as timestamp[us]"
    assert why(path, rows, local) is None
    told = why(path, rows, instants)
    assert told == f"Column 't' of {path} is timestamp[us] there, and the source has it as timestamp[us, tz=UTC]"


def test_times_as_int96_inside_other_types_are_read_as_instants(tmp_path):
    kinds = {
        "list": (pa.list_(LOCAL), pa.list_(pa.field("element", UTC)), [AT, None]),
        "pair": (
            pa.struct({"at": LOCAL, "n": pa.int64()}),
            pa.struct({"at": UTC, "n": pa.int64()}),
            {"at": AT, "n": 1},
        ),
        "by": (pa.map_(pa.string(), LOCAL), pa.map_(pa.string(), UTC), [("a", AT)]),
    }
    rows = pa.table({name: pa.array([value, None], held) for name, (held, _, value) in kinds.items()})
    columns = pa.schema({name: kind for name, (_, kind, _) in kinds.items()})
    path = tmp_path / "0.parquet"
    assert why(path, rows, columns, use_deprecated_int96_timestamps=True) is None
    found = pa.concat_tables(read_file(Files("parquet", str(tmp_path), columns, as_spark=True), str(path), columns))
    assert found.schema == columns
    assert found["list"].to_pylist() == [[AT.replace(tzinfo=dt.UTC), None], None]
    assert found["pair"].to_pylist() == [{"at": AT.replace(tzinfo=dt.UTC), "n": 1}, None]
    assert found["by"].to_pylist() == [[("a", AT.replace(tzinfo=dt.UTC))], None]


@pytest.mark.parametrize(
    ("notes", "old"),
    [
        ({}, False),
        ({"org.apache.spark.version": "3.1.0"}, False),
        ({"org.apache.spark.version": "4.3.0"}, False),
        (SPARK_3_0, True),
        ({"org.apache.spark.version": "2.4.8"}, True),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}, True),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyINT96": ""}, True),
    ],
)
def test_dates_and_times_of_old_versions_of_spark_may_be_of_another_calendar(tmp_path, notes, old):
    path = tmp_path / "0.parquet"
    rows = pa.table({"day": pa.array([AT.date()]), "times": pa.array([[AT]], pa.list_(UTC)), "n": [1]})
    rows = rows.replace_schema_metadata(notes)
    said = "has dates or times as old versions of Spark write them"
    for name, dated in (("day", True), ("times", True), ("n", False), ("missing", False)):
        kind = rows.schema.field(name).type if name in rows.column_names else pa.date32()
        told = why(path, rows, pa.schema({name: kind}))
        assert told == (f"Column {name!r} of {path} {said}" if old and dated else None)


def test_a_file_that_spark_would_read_otherwise_is_refused_before_its_rows_and_others_are_read(tmp_path):
    columns = pa.schema({"k": pa.int64()})
    pq.write_table(pa.table({"k": pa.array([1], pa.int32())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"k": ["1"]}), tmp_path / "1.parquet")
    files = Files("parquet", str(tmp_path), columns, as_spark=True)
    (found,) = read_file(files, f"{tmp_path}/0.parquet", columns)
    assert found.to_pylist() == [{"k": 1}]
    with pytest.raises(SourceError) as refused:
        list(read_file(files, f"{tmp_path}/1.parquet", columns))
    assert str(refused.value) == (
        f"Column 'k' of {tmp_path}/1.parquet is string there, and the source has it as int64: Arrow, which reads this "
        f"source in place of Spark, would read something else there. Write flow.source(…, scan='spark') and start the "
        f"flow again."
    )
