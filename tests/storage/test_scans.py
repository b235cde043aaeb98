"""Reading files with Arrow: pieces, columns, types, and what is told of bad ones."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import ConfigError, SourceError
from penstock.core.files import Files, pruned, standard_columns
from penstock.expressions.view import View
from penstock.local.files import FileFeed
from penstock.storage.scans import files_of, listed_files, portions, read_file

ROWS = pa.table({"t": range(5000), "s": [{"a": n, "b": "x" * 9} for n in range(5000)], "w": ["y" * 50] * 5000})


def read(path: Path, columns: pa.Schema | None = None, **options) -> pa.Table:
    files = files_of("parquet", path.parent, None, None, None)
    wanted = files.columns if columns is None else columns
    return pa.concat_tables([wanted.empty_table(), *read_file(files, str(path), wanted, **options)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(ROWS, tmp_path / "a.parquet", row_group_size=1500)
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("size", [None, 1, 40_000, 10**9])
def test_pieces_of_any_size_have_each_row_once_in_order(path, size):
    assert read(path, size=size).equals(ROWS.cast(read(path).schema))


def test_pieces_are_no_larger_than_asked_for_though_rows_are_encoded_small(tmp_path):
    same = pa.table({"t": range(60_000), "w": pa.array(["z" * 1000] * 60_000)})
    pq.write_table(same, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 2_000_000, "encoded as a dictionary"
    files = files_of("parquet", tmp_path, None, None, None)
    pieces = list(read_file(files, str(tmp_path / "a.parquet"), files.columns, 4_000_000))
    assert max(piece.nbytes for piece in pieces) <= 4_500_000
    assert sum(piece.num_rows for piece in pieces) == 60_000


def test_the_row_groups_of_a_file_make_it_up(path):
    files = files_of("parquet", path.parent, None, None, None)
    found = portions(files, str(path))
    assert [portion.group for portion in found] == [0, 1, 2, 3]
    parts = [read(path, group=portion.group) for portion in found]
    assert pa.concat_tables(parts).equals(read(path))


def replaced(path: Path, rows: pa.Table) -> None:
    """Put another file in the place of one, as a rename does."""
    pq.write_table(rows, path.with_suffix(".new"), row_group_size=900)
    os.replace(path.with_suffix(".new"), path)


CHANGED = r"Input file .*a\.parquet has changed while an epoch read it.* rename them into the folder"


def test_row_groups_of_a_file_that_was_replaced_since_are_not_read(path):
    files = files_of("parquet", path.parent, None, None, None)
    found = portions(files, str(path))
    replaced(path, ROWS)
    for portion in found:
        with pytest.raises(SourceError, match=CHANGED):
            read(path, group=portion.group, stamp=portion.stamp)
    with pytest.raises(SourceError, match=CHANGED):
        portions(files, str(path), stamp=found[0].stamp)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json"])
def test_a_file_that_is_replaced_while_it_is_read_is_an_error_at_its_end(tmp_path, kind):
    columns = pa.schema({"t": pa.int64()})
    for name, rows in (("a", 2_000_000), ("b", 5)):
        text = "\n".join(["t", *map(str, range(rows))]) if kind == "csv" else '{"t": 1}\n' * rows
        if kind == "parquet":
            pq.write_table(pa.table({"t": range(rows)}), tmp_path / name)
        elif kind == "arrow":
            with pa.ipc.new_file(tmp_path / name, columns) as file:
                file.write_table(pa.table({"t": range(rows)}), 1000)
        else:
            (tmp_path / name).write_text(text)
    pieces = read_file(Files(kind, str(tmp_path), columns), f"{tmp_path}/a", columns, 1000)
    assert next(pieces).num_rows > 0
    os.replace(tmp_path / "b", tmp_path / "a")
    with pytest.raises(SourceError, match="a has changed while an epoch read it"):
        list(pieces)


def test_a_file_that_only_comes_back_is_the_same(path):
    (first, *_) = portions(files_of("parquet", path.parent, None, None, None), str(path))
    content, about = path.read_bytes(), path.stat()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert read(path, stamp=first.stamp).num_rows == 5000


def test_a_field_of_a_struct_is_read_by_itself(path):
    columns = pruned(read(path).schema, [("s", "a"), ("t",)])
    found = read(path, columns)
    assert found.schema.field("s").type == pa.struct({"a": pa.int64()})
    assert found.column("s").to_pylist()[7] == {"a": 7}


def test_a_file_that_has_none_of_the_columns_has_rows_of_nulls(path):
    columns = pa.schema({"more": pa.string()})
    assert read(path, columns).column("more").null_count == 5000


def test_struct_fields_that_a_file_lacks_are_null_and_null_structs_stay_null(tmp_path):
    rows = pa.table({"t": [1, 2], "s": pa.array([{"a": 1}, None], pa.struct({"a": pa.int32()}))})
    pq.write_table(rows, tmp_path / "a.parquet")
    columns = pa.schema({"s": pa.struct({"a": pa.int64(), "b": pa.string()})})
    assert read(tmp_path / "a.parquet", columns).to_pylist() == [{"s": {"a": 1, "b": None}}, {"s": None}]


def test_types_are_those_that_spark_has():
    given = pa.schema(
        {
            "u": pa.uint64(),
            "ns": pa.timestamp("ns", "Europe/Berlin"),
            "s": pa.struct({"d": pa.dictionary(pa.int8(), pa.large_string())}),
            "l": pa.large_list(pa.float16()),
            "b": pa.binary(16),
            "m": pa.map_(pa.string_view(), pa.date64()),
        }
    )
    assert standard_columns(given).types == [
        pa.decimal128(20, 0),
        pa.timestamp("us", "UTC"),
        pa.struct({"d": pa.string()}),
        pa.list_(pa.field("element", pa.float32())),
        pa.binary(),
        pa.map_(pa.string(), pa.date32()),
    ]


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.decimal256(60, 2), pa.struct([]), pa.list_(pa.time32("s"))])
def test_types_that_spark_does_not_have_are_refused(kind):
    with pytest.raises(ConfigError, match=r"Column 'c' is of type .*, which Spark does not have"):
        standard_columns(pa.schema({"c": kind}))


def test_unsigned_numbers_dictionaries_and_nanoseconds_come_as_what_spark_has(tmp_path):
    rows = pa.table(
        {
            "u": pa.array([2**64 - 1], pa.uint64()),
            "d": pa.array(["a"]).dictionary_encode(),
            "ns": pa.array([1_000], pa.timestamp("ns")),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert [str(found.column(name)[0]) for name in ("u", "d", "ns")] == [
        str(2**64 - 1),
        "a",
        "1970-01-01 00:00:00.000001",
    ]


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        ({"c": ["1"]}, {"c": pa.int64()}, "Column 'c' of .*a.parquet is string, but the source has it as int64"),
        ({"c": [2**40]}, {"c": pa.int32()}, "is int64, but the source has it as int32: Integer value"),
        ({"c": [2**53 + 1]}, {"c": pa.float64()}, "is int64, but the source has it as double: Integer value"),
        ({"c": [0.5]}, {"c": pa.int64()}, "is double, but the source has it as int64"),
        (
            {"c": pa.array([1], pa.timestamp("us"))},
            {"c": pa.timestamp("us", "UTC")},
            r"is timestamp\[us\], but the source has it as timestamp\[us, tz=UTC\]",
        ),
        ({"c": pa.array([1], pa.timestamp("ns"))}, {"c": pa.timestamp("us")}, "would lose data"),
    ],
)
def test_a_column_of_another_type_is_told(tmp_path, rows, columns, said):
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=said):
        read(tmp_path / "a.parquet", pa.schema(columns))


def test_files_are_listed_as_spark_lists_them_the_oldest_first(tmp_path):
    for name in ("b", "a", "sub/c", "_staging/d", ".hidden", "_SUCCESS", "_k=1/e"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000 + (name == "a"),) * 2)
    found = listed_files(Files("csv", str(tmp_path), pa.schema([])))
    assert [path[len(str(tmp_path)) + 1 :] for path in found] == ["_k=1/e", "b", "sub/c", "a"]


def local_rows(kind: str, folder: Path, schema: pa.Schema | None = None) -> list[dict]:
    files = files_of(kind, folder, schema, None, None)
    return pa.concat_tables(FileFeed(files).tables).to_pylist()


def test_only_a_field_without_a_character_is_null_in_csv(tmp_path):
    (tmp_path / "a.csv").write_text('t,c,s\n1,NaN,NA\n2,,\n3,1.5,""\n')
    schema = pa.schema({"t": pa.int64(), "c": pa.float64(), "s": pa.string()})
    first, *others = local_rows("csv", tmp_path, schema)
    assert first["c"] != first["c"]
    assert first["s"] == "NA"
    assert others == [{"t": 2, "c": None, "s": None}, {"t": 3, "c": 1.5, "s": ""}]


def test_a_csv_file_whose_first_line_names_no_column_is_told(tmp_path):
    (tmp_path / "0.csv").write_text("t,c\n1,a\n")
    (tmp_path / "1.csv").write_text("2,b\n3,c\n")
    with pytest.raises(SourceError, match=r"1.csv cannot be read as csv: its first line must name columns, and '2, b'"):
        local_rows("csv", tmp_path)


def test_a_csv_file_whose_first_line_is_not_utf_8_is_told(tmp_path):
    (tmp_path / "0.csv").write_bytes(b"t,c\n1,a\n")
    (tmp_path / "1.csv").write_bytes(b"t,\xff\n2,b\n")
    with pytest.raises(SourceError, match=r"1.csv cannot be read as csv: 'utf-8' codec can't decode byte 0xff"):
        local_rows("csv", tmp_path)
    (tmp_path / "0.csv").unlink()
    with pytest.raises(ConfigError, match=r"1.csv cannot be read as csv: 'utf-8' codec can't decode byte 0xff"):
        local_rows("csv", tmp_path)


def test_a_json_file_whose_texts_are_not_utf_8_is_told(tmp_path):
    (tmp_path / "a.json").write_bytes('{"t": 1, "s": "é"}\n'.encode("latin-1"))
    with pytest.raises(SourceError, match=r"a.json cannot be read as json: .*Invalid UTF8"):
        local_rows("json", tmp_path)


@pytest.mark.parametrize("opened", [pa.ipc.new_file, pa.ipc.new_stream])
def test_an_arrow_file_with_a_hole_of_zeros_is_told(tmp_path, opened):
    texts = pa.array(["a", "bc"] * 3000)
    with opened(tmp_path / "a.arrow", pa.schema({"t": pa.int64(), "s": pa.string()})) as writer:
        writer.write_table(pa.table({"t": range(6000), "s": texts}))
    whole = (tmp_path / "a.arrow").read_bytes()
    offsets = whole.index(texts.buffers()[1].to_pybytes()[:64])
    (tmp_path / "a.arrow").write_bytes(whole[: offsets + 4096] + bytes(4096) + whole[offsets + 8192 :])
    with pytest.raises(SourceError, match=r"a.arrow cannot be read as arrow: .*[Oo]ffset"):
        local_rows("arrow", tmp_path)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_long_rows_and_line_breaks_are_read(tmp_path, kind):
    texts = ["x" * 3_000_000, *(f"a\n{n}" for n in range(50_000))]
    if kind == "csv":
        (tmp_path / "a").write_text("t,s\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    else:
        (tmp_path / "a").write_text("".join(json.dumps({"t": n, "s": s}) + "\n" for n, s in enumerate(texts)))
    assert [row["s"] for row in local_rows(kind, tmp_path)] == texts


def test_dates_in_json_are_read(tmp_path):
    (tmp_path / "a").write_text('{"t": 1, "d": "2020-02-29"}\n{"t": 2}\n')
    schema = pa.schema({"t": pa.int64(), "d": pa.date32()})
    assert [row["d"] for row in local_rows("json", tmp_path, schema)] == [dt.date(2020, 2, 29), None]


@pytest.mark.parametrize(("kind", "nothing"), [("csv", "t,c\n"), ("json", "\n")])
def test_a_first_file_without_rows_does_not_tell_the_columns(tmp_path, kind, nothing):
    (tmp_path / "0").write_text(nothing)
    with pytest.raises(ConfigError, match="has no file yet to infer its columns from"):
        files_of(kind, tmp_path, None, None, None)
    (tmp_path / "1").write_text("t,c\n1,a\n" if kind == "csv" else '{"t": 1, "c": "a"}\n')
    assert local_rows(kind, tmp_path) == [{"t": 1, "c": "a"}]


def test_whole_numbers_are_read_as_floats_where_the_source_has_floats(tmp_path):
    pq.write_table(pa.table({"c": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"c": [0.5]}), tmp_path / "b.parquet")
    found = local_rows("parquet", tmp_path, pa.schema({"c": pa.float64()}))
    assert sorted(row["c"] for row in found) == [0.5, 1.0, 2.0]


def test_no_path_is_refused():
    with pytest.raises(ConfigError, match="path='' names no folder"):
        files_of("parquet", "", None, None, None)


@pytest.mark.parametrize(
    ("limits", "epochs"),
    [((None, None), [10]), ((3, None), [3, 3, 3, 1]), ((None, 1), [1] * 10), ((4, 10**9), [4, 4, 2])],
)
def test_an_epoch_takes_so_many_files_or_bytes(tmp_path, limits, epochs):
    for number in range(10):
        pq.write_table(pa.table({"t": [number]}), tmp_path / f"{number}.parquet")
    files = files_of("parquet", tmp_path, None, *limits)
    tables = list(FileFeed(files).tables)
    assert [table.num_rows for table in tables] == epochs
    assert pa.concat_tables(tables).column("t").to_pylist() == list(range(10))


def test_wide_rows_after_narrow_ones_do_not_make_a_large_piece(tmp_path):
    texts = ["a"] * 2000 + ["b" * 2000] * 20_000
    pq.write_table(pa.table({"t": np.arange(len(texts)), "w": texts}), tmp_path / "a.parquet")
    files = files_of("parquet", tmp_path, None, None, None)
    pieces = list(read_file(files, str(tmp_path / "a.parquet"), files.columns, 1_000_000))
    # The first rows show nothing of what follows: up to 16 times as many may be read at once.
    assert max(piece.nbytes for piece in pieces) < 16 * 1024 * 2020
    assert [piece.nbytes for piece in pieces][-2] < 2_200_000
    assert sum(piece.num_rows for piece in pieces) == len(texts)


def pieces_of(folder: Path, number: int, texts: list[str], size: int) -> list[pa.Table]:
    """One more file of a folder, in pieces."""
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({"t": np.arange(len(texts)), "w": texts}), path)
    files = files_of("parquet", folder, None, None, None)
    pieces = list(read_file(files, str(path), files.columns, size))
    assert pa.concat_tables(pieces).column("w").to_pylist() == texts
    return pieces


def test_a_file_is_read_in_large_pieces_at_once_after_one_of_the_same_folder(tmp_path):
    texts = [f"{n:0100}" for n in range(20_000)]
    assert len(pieces_of(tmp_path, 0, texts, 1_200_000)) > 3, "how wide rows are had to be seen first"
    pieces = pieces_of(tmp_path, 1, texts, 1_200_000)
    assert len(pieces) == 2
    assert max(piece.nbytes for piece in pieces) <= 1_200_000


@pytest.mark.parametrize("repeated", [False, True])
def test_a_file_of_wider_rows_than_the_last_makes_no_large_piece(tmp_path, repeated):
    pieces_of(tmp_path, 0, ["a"] * 20_000, 1_000_000)
    wide = ["z" * 2000] * 20_000 if repeated else [f"{n:02000}" for n in range(20_000)]
    pieces = pieces_of(tmp_path, 1, wide, 1_000_000)
    assert max(piece.nbytes for piece in pieces) <= 2_000_000


@pytest.mark.parametrize("limit", [64, 1 << 20])
@pytest.mark.parametrize("size", [None, 1, 200_000])
def test_texts_may_stay_encoded_and_mean_the_same(tmp_path, limit, size):
    """A dictionary that gets too large for its page ends in the middle of a row group."""
    words = [None if n % 7 == 0 else f"word {n % 5 if n % 3 else n % 40}" for n in range(30_000)]
    event = [None if n % 11 == 0 else {"n": n, "word": word} for n, word in enumerate(words)]
    rows = pa.table({"t": range(30_000), "word": words, "event": event})
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, row_group_size=9_000, dictionary_pagesize_limit=limit, data_page_size=1000)
    files = files_of("parquet", tmp_path, None, None, None)
    pieces = list(read_file(files, str(path), files.columns, size, texts="encoded"))
    plain = [View.of(piece, files.columns).table() for piece in pieces]
    assert pa.concat_tables(plain).equals(rows.cast(files.columns))
    assert read(path, size=size).equals(rows.cast(files.columns))
    if limit > 64:
        assert all(pa.types.is_dictionary(piece.schema.field("word").type) for piece in pieces)
        assert all(pa.types.is_dictionary(piece.schema.field("event").type.field("word").type) for piece in pieces)


def test_a_file_of_many_small_row_groups_is_read_as_a_whole(tmp_path):
    """Each group would be opened with the whole footer, which takes the square of their number."""
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"k": range(100)}), path, row_group_size=1)
    files = files_of("parquet", tmp_path, None, None, None)
    assert [portion.group for portion in portions(files, str(path))] == [None]


def test_a_file_of_nulls_alone_is_told_of(tmp_path):
    pq.write_table(pa.table({"t": [1], "note": pa.nulls(1)}), tmp_path / "0.parquet")
    with pytest.raises(ConfigError, match=r"0\.parquet has only nulls in column 'note', .* schema=pa\.schema"):
        files_of("parquet", tmp_path, None, None, None)
