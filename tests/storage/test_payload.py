"""Payload that stayed in files: rows are found by their places, and a file that changed is refused."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv

from penstock.core.errors import SourceError, StateError
from penstock.storage import arrays, payload
from penstock.storage.alike import check_as_spark_reads, reads_alike
from penstock.storage.payload import Home, Unit, forget_decoded, read_placed, sizes_of, width_in, width_of
from penstock.storage.scans import files_of

ROWS = 11_000
"""More than two batches of a decoded unit."""


def table(first: int, rows: int = ROWS) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "t": pa.array(numbers),
            "text": [f"row {n}" for n in numbers],
            "inside": [{"a": n % 7, "b": None if n % 3 else f"b{n}"} for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("payload")
    (folder / "in").mkdir()
    pq.write_table(table(0), folder / "in" / "0.parquet", row_group_size=5_000)
    pq.write_table(table(ROWS), folder / "in" / "1.parquet")
    return folder


@pytest.fixture
def home(folder, request):
    flow = f"test-{os.getpid()}-{abs(hash(request.node.nodeid))}"
    made = Home(str(folder), flow, flow, flow, files_of("parquet", str(folder / "in"), None, None, None))
    yield made
    forget_decoded(flow)


def paths(home: Home) -> list[str]:
    return [f"{home.files.path}/{name}.parquet" for name in (0, 1)]


def placed(home: Home, late: frozenset[tuple[str, ...]] = frozenset()) -> pa.Table:
    """All rows with their places."""
    columns = pa.schema([*home.files.columns, pa.field("__at", pa.int64())])
    pieces = (
        piece for part in home.portions(0) for piece in read_placed(home.files, part, columns, "__at", late, 100_000)
    )
    return pa.concat_tables(pieces)


class TestPlaces:
    def test_row_groups_are_units(self, home):
        assert home.note(0, [(path, ()) for path in paths(home)]) == 4
        assert [part.group for part in home.portions(0)] == [0, 1, 2, 0]
        assert [part.number for part in home.portions(0)] == [0, 1, 2, 3]

    def test_rows_leave_late_columns_behind_and_say_where_they_are(self, home):
        home.note(0, [(path, ()) for path in paths(home)])
        rows = placed(home, frozenset([("text",), ("inside", "b")]))
        assert rows.column("t").to_pylist() == list(range(2 * ROWS))
        assert rows.column("text").null_count == 2 * ROWS
        assert rows.column("inside").slice(5, 2).to_pylist() == [{"a": 5, "b": None}, {"a": 6, "b": None}]
        assert len(set(rows.column("__at").to_pylist())) == 2 * ROWS

    def test_rows_of_a_file_that_changed_since_it_was_noted_are_not_read(self, home):
        home.note(0, [(path, ()) for path in paths(home)])
        os.utime(paths(home)[0], (1, 1))
        with pytest.raises(SourceError, match=r"0\.parquet is gone or has changed since it was read"):
            placed(home)

    def test_rows_of_a_portion_without_a_number_bring_everything(self, home):
        (part,) = payload.portions(home.files, paths(home)[1])
        columns = pa.schema([*home.files.columns, pa.field("__at", pa.int64())])
        rows = pa.concat_tables(read_placed(home.files, part, columns, "__at", frozenset([("text",)]), None))
        assert rows.drop_columns("__at").equals(table(ROWS).cast(home.files.columns))
        assert rows.column("__at").null_count == ROWS

    def test_a_later_epoch_numbers_on(self, home):
        home.note(0, [(paths(home)[0], ())])
        home.note(3, [(paths(home)[1], ())])
        (text,) = home.fetch(np.array([3 << 32, 0]), [("text",)])
        assert text.to_pylist() == [f"row {ROWS}", "row 0"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.integers(0, 2 * ROWS - 1), max_size=40))
def test_rows_come_back_in_the_order_of_their_places_duplicates_too(home, wanted):
    home.note(0, [(path, ()) for path in paths(home)])
    whole = placed(home)
    places = whole.column("__at").to_numpy()[wanted]
    text, b, inside = home.fetch(places, [("text",), ("inside", "b"), ("inside",)])
    expected = whole.take(pa.array(wanted, pa.int64()))
    assert text.to_pylist() == expected.column("text").to_pylist()
    assert inside.to_pylist() == expected.column("inside").to_pylist()
    assert b.to_pylist() == [each["b"] for each in inside.to_pylist()]


@pytest.mark.parametrize("longest", [1 << 31, 1 << 16], ids=["arrays", "batches too"])
def test_many_rows_come_back_in_any_order_from_arrays_and_batches(home, longest, monkeypatch):
    """Numbers and texts are found in one array each, unless the texts are too long for that."""
    monkeypatch.setattr(arrays, "_LONGEST", longest)
    home.note(0, [(path, ()) for path in paths(home)])
    whole = placed(home)
    wanted = np.random.default_rng(1).permutation(2 * ROWS)
    for order in (wanted, np.sort(wanted), wanted[np.argsort(wanted // ROWS, kind="stable")]):
        places = whole.column("__at").to_numpy()[order]
        t, text = home.fetch(places, [("t",), ("text",)], 20_000)
        assert t.to_pylist() == order.tolist()
        assert text.to_pylist() == [f"row {n}" for n in order]
    found = {name.rpartition(".")[2] for name in os.listdir(payload._folder(home.flow))} - {"lock"}
    assert found == ({"arrays"} if longest == 1 << 31 else {"arrays", "arrow"})


def test_where_files_may_not_have_holes_units_are_batches(home, monkeypatch):
    def refused(*_):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(payload, "write_arrays", refused)
    home.note(0, [(path, ()) for path in paths(home)])
    assert home.fetch(np.array([7, 3]), [("text",)])[0].to_pylist() == ["row 7", "row 3"]


def test_threads_that_ask_for_the_same_unit_decode_it_once(home, monkeypatch):
    home.note(0, [(path, ()) for path in paths(home)])
    read, asked = payload.read_file, Counter()

    def watched(files, path, *more):
        asked[path] += 1
        time.sleep(0.05)
        return read(files, path, *more)

    monkeypatch.setattr(payload, "read_file", watched)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: home.fetch(np.array([row]), [("text",)])[0].to_pylist(), range(8)))
    assert found == [[f"row {n}"] for n in range(8)]
    assert asked == {paths(home)[0]: 1}


class TestRefused:
    @pytest.fixture
    def home(self, tmp_path):
        pq.write_table(table(0, 10), tmp_path / "0.parquet")
        flow = f"test-{os.getpid()}-{abs(hash(str(tmp_path)))}"
        made = Home(str(tmp_path), flow, flow, "s", files_of("parquet", str(tmp_path / "0.parquet"), None, None, None))
        made.note(0, [(str(tmp_path / "0.parquet"), ())])
        yield made
        forget_decoded(flow)

    def test_a_file_that_is_gone(self, home, tmp_path):
        os.unlink(tmp_path / "0.parquet")
        with pytest.raises(SourceError, match=r"0\.parquet is gone or has changed since it was read.*payload='row'"):
            home.fetch(np.array([0]), [("text",)])

    def test_a_file_that_was_written_anew(self, home, tmp_path):
        pq.write_table(table(5, 10), tmp_path / "0.parquet")
        with pytest.raises(SourceError, match="has changed since it was read"):
            home.fetch(np.array([0]), [("text",)])

    def test_a_file_of_the_same_size_and_another_time(self, home, tmp_path):
        os.utime(tmp_path / "0.parquet", (1, 1))
        with pytest.raises(SourceError, match="has changed since it was read"):
            home.fetch(np.array([0]), [("text",)])

    @pytest.mark.parametrize("kind", ["parquet", "csv"])
    def test_a_file_of_the_same_size_and_time_that_ends_in_another_way(self, tmp_path, kind):
        def write(letter: str) -> tuple[int, int]:
            rows = pa.table({"text": [f"{letter}{n % 10}" for n in range(5_000)]})
            path = tmp_path / f"1.{kind}"
            pq.write_table(rows, path, compression=None) if kind == "parquet" else csv.write_csv(rows, path)
            os.utime(path, (9, 9))
            return path.stat().st_size, path.stat().st_mtime_ns

        before = write("a")
        flow = f"test-{os.getpid()}-{kind}"
        home = Home(str(tmp_path), flow, flow, "s", files_of(kind, str(tmp_path / f"1.{kind}"), None, None, None))
        home.note(0, [(home.files.path, ())])
        assert write("b") == before
        with pytest.raises(SourceError, match=rf"1\.{kind} is gone or has changed since it was read"):
            home.fetch(np.array([0]), [("text",)])
        write("a")
        assert home.fetch(np.array([1]), [("text",)])[0].to_pylist() == ["a1"]
        forget_decoded(flow)

    def test_a_file_that_is_written_anew_while_it_is_read(self, home, tmp_path, monkeypatch):
        read = payload.read_file

        def torn(*given):
            os.utime(tmp_path / "0.parquet", (1, 1))
            return read(*given)

        monkeypatch.setattr(payload, "read_file", torn)
        with pytest.raises(SourceError, match="has changed since it was read"):
            home.fetch(np.array([0]), [("text",)])

    def test_records_of_earlier_versions_tell_only_sizes_and_times(self, home):
        unit = home.unit(0)
        *older, _, _ = unit.to_json()
        assert Unit.from_json(older) == replace(unit, end=None)
        assert Unit.from_json([*older, True]) == replace(unit, end=None, segment=True)
        Unit.from_json(older).check()

    def test_places_that_are_not_on_record(self, home):
        with pytest.raises(StateError, match="knows no unit 7"):
            home.fetch(np.array([7 << 32]), [("text",)])

    def test_records_of_a_course_that_was_given_up_are_forgotten(self, home, tmp_path):
        """A backup restored over a checkpoint leaves records after those that it has: they name other files."""
        home.note(1, [(str(tmp_path / "0.parquet"), ())])
        home.forget_after(0)
        assert len(home.portions(0)) == 1
        with pytest.raises(StateError, match="knows no unit 1"):
            replace(home, start="again").fetch(np.array([1 << 32]), [("text",)])


class TestDecoded:
    def test_a_number_that_means_another_unit_after_a_restored_backup_finds_that_one(self, home):
        home.note(0, [(paths(home)[0], ())])
        assert home.fetch(np.array([0]), [("text",)])[0].to_pylist() == ["row 0"]
        again = replace(home, start="another")
        again.note(0, [(paths(home)[1], ())])
        assert again.fetch(np.array([0]), [("text",)])[0].to_pylist() == [f"row {ROWS}"]

    def test_a_unit_is_decoded_once(self, home, monkeypatch):
        home.note(0, [(path, ()) for path in paths(home)])
        read, asked = payload.read_file, Counter()

        def watched(files, path, *more):
            asked[path] += 1
            return read(files, path, *more)

        monkeypatch.setattr(payload, "read_file", watched)
        for _ in range(3):
            home.fetch(np.array([0, 1, 5]), [("text",)])
        assert asked == {paths(home)[0]: 1}

    def test_what_was_not_used_for_longest_goes_when_the_disk_is_full(self, home, monkeypatch):
        home.note(0, [(path, ()) for path in paths(home)])
        monkeypatch.setattr(payload, "_DISK", 1)
        for number in range(4):
            (text,) = home.fetch(np.array([number << 32]), [("text",)])
            assert text.null_count == 0
        left = [name for name in os.listdir(payload._folder(home.flow)) if name.endswith((".arrow", ".arrays"))]
        assert len(left) == 1

    def test_a_row_that_its_unit_lacks_is_no_other_row(self, home):
        home.note(0, [(path, ()) for path in paths(home)])
        with pytest.raises(SourceError, match=r"Input file .*0\.parquet has fewer rows than when it was read"):
            home.fetch(np.array([(2 << 32) + 9_999]), [("text",)])


def test_how_wide_payload_is(home):
    fixed = frozenset([("t",)])
    assert width_of(home.files, fixed) < width_of(home.files, fixed | {("text",)}) < 100


def test_footers_tell_how_many_rows_files_have_and_how_wide_they_are(tmp_path):
    for number, rows in enumerate((10, 0, 30)):
        texts = pa.array(["x" * 40] * rows, pa.string())
        written = pa.table({"t": pa.array(range(rows), pa.int64()), "text": texts})
        pq.write_table(written, tmp_path / f"{number}.parquet", use_dictionary=False, compression=None)
    (tmp_path / "empty.parquet").touch()
    sizes = sizes_of(files_of("parquet", tmp_path, None, None, None))
    assert sizes is not None
    assert sizes.rows == 40
    assert sizes.widths == {"t": pytest.approx(8, rel=0.7), "text": pytest.approx(44, rel=0.2)}


def test_of_many_files_some_footers_tell_about_all(tmp_path):
    for number in range(40):
        pq.write_table(pa.table({"t": range(100)}), tmp_path / f"{number}.parquet")
    sizes = sizes_of(files_of("parquet", tmp_path, None, None, None))
    assert sizes is not None
    assert sizes.rows == pytest.approx(4000, rel=0.01)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_of_other_or_unreadable_files_nothing_is_known(tmp_path, kind):
    (tmp_path / f"0.{kind}").write_text("t\n1\n")
    assert sizes_of(files_of(kind, tmp_path, pa.schema({"t": pa.int64()}), None, None)) is None


class TestWholeFiles:
    """Files that Spark reads are a unit each; columns may be called otherwise there."""

    def test_rows_are_found_by_their_number_in_the_file(self, folder, home):
        files = replace(home.files, columns=pa.schema({"t": pa.int64(), "said": pa.string()}))
        made = replace(home, files=files, names=(("said", "text"),), source=f"{home.source}-whole")
        count = made.note_whole(0, paths(home), frozenset({("said",), ("t",)}))
        assert count == 2
        places = np.array([(1 << 32) + 3, 10_999, (1 << 32) + 10_999, 0, 10_999])
        said, times = made.fetch(places, [("said",), ("t",)])
        assert said.to_pylist() == [f"row {n}" for n in (ROWS + 3, 10_999, 2 * ROWS - 1, 0, 10_999)]
        assert times.to_pylist() == [ROWS + 3, 10_999, 2 * ROWS - 1, 0, 10_999]

    @pytest.mark.parametrize(
        ("held", "kind", "alike"),
        [
            (pa.int32(), pa.int64(), True),
            (pa.int64(), pa.int32(), False),
            (pa.large_string(), pa.string(), True),
            (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
            (pa.binary(), pa.string(), False),
            (pa.int64(), pa.float64(), False),
            (pa.float32(), pa.float64(), True),
            (pa.decimal128(8, 2), pa.decimal128(10, 2), True),
            (pa.decimal128(8, 2), pa.decimal128(10, 3), False),
            (pa.struct({"a": pa.int32(), "b": pa.string()}), pa.struct({"a": pa.int64()}), True),
            (pa.struct({"A": pa.int64()}), pa.struct({"a": pa.int64()}), False),
            (pa.struct({"b": pa.int64()}), pa.struct({"a": pa.int64()}), False),
            (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
            (pa.list_(pa.string()), pa.list_(pa.int64()), False),
            (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64()), True),
            (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), False),
            (pa.duration("us"), pa.int64(), False),
        ],
    )
    def test_types_that_arrow_reads_as_spark_does(self, held, kind, alike):
        assert reads_alike(held, kind) is alike

    def test_a_file_that_is_gone_or_broken(self, folder, home, tmp_path):
        (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
        for name, why in (("gone", "is gone"), ("broken", "cannot be read as parquet")):
            with pytest.raises(SourceError, match=f"{name}.parquet {why}"):
                check_as_spark_reads(str(tmp_path / f"{name}.parquet"), pa.schema({"t": pa.int64()}))


def test_f09_the_width_of_an_epoch_s_rows_is_the_mean_over_its_files(tmp_path):
    """Weighted by rows; files of which nothing is known, or none, tell nothing."""
    draw, names = np.random.default_rng(9), []
    for number, (rows, size) in enumerate(((300, 160), (100, 400))):
        names.append(str(tmp_path / f"{number}.parquet"))
        texts = [draw.bytes(size // 2).hex() for _ in range(rows)]
        pq.write_table(pa.table({"k": range(rows), "text": texts}), names[-1])
    files, text = files_of("parquet", str(tmp_path), None, None, None), frozenset({("text",)})
    assert width_in(files, names[:1], text) == pytest.approx(160, rel=0.06)
    assert width_in(files, names, text) == pytest.approx((300 * 160 + 100 * 400) / 400, rel=0.06)
    assert width_in(files, [], text) is None
    assert width_in(files, [str(tmp_path / "gone.parquet")], text) is None
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "0.csv").write_text("k,text\n1,a\n")
    lines = files_of("csv", str(tmp_path / "csv"), pa.schema({"k": pa.int64(), "text": pa.string()}), None, None)
    assert width_in(lines, [str(tmp_path / "csv" / "0.csv")], text) is None


class TestForgetting:
    def test_of_a_start_that_is_over_nothing_is_known_and_what_was_decoded_stays_for_the_next_one(self, home):
        home.note(0, [(path, ()) for path in paths(home)])
        again = replace(home, start="another")
        for each in (home, again):
            assert each.fetch(np.array([0]), [("text",)])[0].to_pylist() == ["row 0"]
        decoded = sorted(os.listdir(payload._folder(home.flow)))
        payload.forget_start(home.start)
        for cache in (payload._NOTED, payload._WANTED, payload._WIDTHS):
            assert [key for key in cache if key[1] == home.source] == [("another", home.source)]
        assert [key[1] for key in payload._DECODED._mapped if key[2] == home.source] == ["another"]
        assert sorted(os.listdir(payload._folder(home.flow))) == decoded
        assert home.width([("text",)]) is None
        assert home.fetch(np.array([1]), [("text",)])[0].to_pylist() == ["row 1"]

    def test_a_process_that_nobody_tells_what_is_over_knows_a_limited_number_of_sources(self, home, monkeypatch):
        monkeypatch.setattr(payload, "_SOURCES", 3)
        home.note(0, [(path, ()) for path in paths(home)])
        starts = [f"start {n}" for n in range(5)]
        for start in starts:
            assert replace(home, start=start).fetch(np.array([0]), [("text",)])[0].to_pylist() == ["row 0"]
        for cache in (payload._NOTED, payload._WANTED, payload._WIDTHS):
            assert [key[0] for key in cache] == starts[-3:]
