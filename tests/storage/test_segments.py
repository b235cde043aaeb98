"""Segments: rows come back as they were written, damage is told, and what no version needs goes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.errors import StateError
from penstock.core.files import Files
from penstock.core.time import TIME_MAX
from penstock.storage import payload, segments
from penstock.storage.payload import Home, read_placed
from penstock.storage.segments import Segment, SegmentWriter, about_segment
from penstock.storage.versioned import Checkpoint, Kept, Ledger

INSIDE = pa.struct({"a": pa.int64(), "b": pa.string()})
COLUMNS = pa.schema({"t": pa.int64(), "text": pa.string(), "inside": INSIDE})


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    inside = [None if n % 5 == 4 else {"a": n, "b": f"b{n}"} for n in numbers]
    texts = [f"row {n}" if n % 7 else None for n in numbers]
    return pa.table({"t": list(numbers), "text": texts, "inside": inside}, COLUMNS)


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(str(tmp_path), "flow", os.urandom(8).hex(), "a source", Files("arrow", "", COLUMNS))


def written(home: Home, first: int, *tables: pa.Table, columns: pa.Schema = COLUMNS) -> list[Segment]:
    """Each table in pieces of 100 rows as one segment, all of one attempt."""
    folder, made = home.new_folder(first), []
    for part, table in enumerate(tables):
        writer = SegmentWriter(folder, part, columns)
        for start in range(0, table.num_rows, 100):
            writer.write(table.slice(start, 100))
        made.append(writer.close())
    return [segment for segment in made if segment is not None]


def folders(home: Home) -> list[str]:
    return sorted(path.name for path in (Path(home.root) / "payload" / "a source").glob("*-*"))


class TestRows:
    def test_come_back_by_their_places(self, home):
        assert home.note_segments(0, written(home, 0, rows(0, 1_300), rows(1_300, 10))) == 2
        places = np.array([(1 << 32) + 3, 1_299, 0, 1_299])
        text, b = home.fetch(places, [("text",), ("inside", "b")])
        assert text.to_pylist() == ["row 1303", "row 1299", None, "row 1299"]
        assert b.to_pylist() == ["b1303", None, "b0", None]

    def test_are_read_as_files_are(self, home):
        home.note_segments(0, written(home, 0, rows(0, 1_300)))
        columns = pa.schema([*COLUMNS, pa.field("__at", pa.int64())])
        (part,) = home.portions(0)
        pieces = read_placed(home.files, part, columns, "__at", frozenset([("text",)]), None)
        found = pa.concat_tables(pieces)
        assert found.column("t").to_pylist() == found.column("__at").to_pylist() == list(range(1_300))
        assert found.column("text").null_count == 1_300

    def test_a_column_that_was_not_written_is_no_null(self, home):
        narrow = pa.schema({"t": pa.int64(), "inside": pa.struct({"a": pa.int64()})})
        table = pa.table({"t": [1], "inside": [{"a": 1}]}, narrow)
        home.note_segments(0, written(home, 0, table, columns=narrow))
        assert home.fetch(np.array([0]), [("inside", "a")])[0].to_pylist() == [1]
        for path, name in ((("text",), "text"), (("inside",), "inside.b")):
            with pytest.raises(StateError, match=f"has no column '{name}': the flow did not need it"):
                home.fetch(np.array([0]), [path])

    def test_none_make_no_segment(self, home):
        assert written(home, 0, rows(0, 0)) == []
        assert os.listdir(Path(home.root) / "payload" / "a source" / folders(home)[0]) == []

    def test_elsewhere_are_copied_to_a_local_disk_and_checked(self, home, monkeypatch):
        (segment,) = written(home, 0, rows(0, 600))
        home.note_segments(0, [segment])
        monkeypatch.setattr(payload, "local_path", lambda uri: None)
        assert home.fetch(np.array([599]), [("text",)])[0].to_pylist() == ["row 599"]
        os.truncate(segment.path, 100)
        assert home.fetch(np.array([598]), [("text",)])[0].to_pylist() == ["row 598"]
        payload.forget_decoded(home.flow)
        payload._SEGMENTS._mapped.clear()
        with pytest.raises(StateError, match="is not what was written"):
            home.fetch(np.array([598]), [("text",)])
        payload.forget_decoded(home.flow)


class TestDamage:
    @pytest.mark.parametrize("mapped", [False, True], ids=["never read", "mapped before"])
    @pytest.mark.parametrize("how", ["gone", "short", "changed"])
    def test_is_told_with_the_path_and_the_remedy(self, home, how, mapped):
        (segment,) = written(home, 0, rows(0, 600))
        home.note_segments(0, [segment])
        if mapped:
            home.fetch(np.array([0]), [("text",)])
        if how == "gone":
            os.unlink(segment.path)
        elif how == "short":
            os.truncate(segment.path, segment.nbytes - 1)
        else:
            content = bytearray(Path(segment.path).read_bytes())
            content[len(content) // 2] ^= 1
            Path(segment.path).write_bytes(content)
        with pytest.raises(StateError, match=r"0000000-.*\.arrow is (missing|not what was written).*backup") as told:
            home.fetch(np.array([5]), [("text",)])
        assert segment.path in str(told.value)
        with pytest.raises(StateError, match=r"is (missing|not what was written)"):
            home.check(0)

    def test_of_a_name(self):
        with pytest.raises(StateError, match="its name is not that of a segment"):
            about_segment("/checkpoint/payload/s/000000000000-0badc0de/x.arrow")


class TestVacuum:
    @pytest.fixture
    def checkpoint(self, tmp_path) -> Checkpoint:
        checkpoint = Checkpoint(str(tmp_path))
        checkpoint.claim({"sources": {}, "operators": {}})
        return checkpoint

    def commit(self, checkpoint: Checkpoint, epoch: int, units: int, *kept: Kept) -> None:
        checkpoint.commit(Ledger(epoch=epoch, units={"a source": units}, kept={"a source": kept}))

    def test_deletes_what_no_kept_version_needs(self, home, checkpoint):
        for first in range(4):
            home.note_segments(first, written(home, first, rows(first, 10)))
        self.commit(checkpoint, 0, 2, Kept(0, 2, 9, 1))
        self.commit(checkpoint, 1, 3, Kept(1, 2, 9, 1))
        self.commit(checkpoint, 2, 3, Kept(2, 3, 9, 1))
        count, size = checkpoint.vacuum()
        assert (count, size > 100) == (1, True)
        # Number 3 is of the epoch that may be running.
        assert [name[11] for name in folders(home)] == ["1", "2", "3"]
        assert home.fetch(np.array([1 << 32]), [("t",)])[0].to_pylist() == [1]
        with pytest.raises(StateError, match="is missing"):
            Home(home.root, "flow", "again", home.source, home.files).fetch(np.array([0]), [("t",)])

    def test_deletes_what_dead_attempts_and_repeated_tasks_left(self, home, checkpoint):
        written(home, 0, rows(100, 10))
        alive = written(home, 0, rows(0, 10), rows(10, 10))
        home.note_segments(0, alive[:1])
        draft = Path(alive[0].path).parent / ".00003-0123456789ab.draft"
        draft.write_bytes(b"half")
        self.commit(checkpoint, 0, 1, Kept(0, 1, 9, 1))
        assert checkpoint.vacuum()[0] == 3
        assert [str(path) for path in Path(home.root).rglob("*.arrow")] == [alive[0].path]
        assert not draft.exists()

    def test_touches_nothing_that_is_not_ours(self, home, checkpoint, tmp_path):
        (segment,) = written(home, 0, rows(0, 10))
        home.note_segments(0, [segment])
        other, link = Path(segment.path).parent / "notes.txt", Path(segment.path)
        other.write_text("mine")
        target = tmp_path.parent / f"{tmp_path.name}-target.arrow"
        os.rename(segment.path, target)
        link.symlink_to(target)
        self.commit(checkpoint, 0, 1)
        assert checkpoint.vacuum()[0] == 0
        assert all(path.exists() for path in (other, link, target))

    def test_keeps_all_units_of_a_ledger_from_before_they_were_noted(self, checkpoint):
        older = Ledger(epoch=0, units={"a source": 7}).to_json()
        del older["kept"]
        assert Ledger.from_json(older).kept == {"a source": (Kept(0, 7, TIME_MAX, 0),)}

    def test_a_folder_of_payload_that_is_a_link_is_refused(self, home, checkpoint, tmp_path):
        (tmp_path / "payload").mkdir(exist_ok=True)
        (tmp_path / "payload" / "linked").symlink_to(tmp_path.parent)
        with pytest.raises(Exception, match="payload/linked is a symbolic link"):
            checkpoint.vacuum()


def test_the_folder_of_a_missing_segment_stays_so_that_it_can_be_put_back(home, tmp_path):
    (segment,) = written(home, 0, rows(0, 10))
    folder, _, name = segment.path.rpartition("/")
    shutil.move(segment.path, tmp_path / "aside")
    assert segments.delete_segments(folder, frozenset({name})) == (0, 0)
    shutil.move(tmp_path / "aside", segment.path)
    assert segments.delete_segments(folder)[0] == 1
    assert not os.path.exists(folder)


def test_a_folder_that_is_not_there_has_nothing_to_delete():
    assert segments.delete_segments("/nowhere/at/all") == (0, 0)
