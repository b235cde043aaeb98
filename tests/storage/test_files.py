"""Pages as files: what was written comes back, and what is not what was written is never read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError, StateError
from penstock.storage import files
from penstock.storage.files import FilePages, make_folder, open_folder
from tests.streams import examples

BATCH = pa.record_batch(
    {
        "n": pa.array([1, None, 3]),
        "text": pa.array(["a", "", None]),
        "list": pa.array([[1], [], None], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1.5}, {"a": None}, None], pa.struct({"a": pa.float64()})),
    }
)
REMEDY = r"Restore the file from a backup of the checkpoint, or start the flow with a new checkpoint directory\."


@pytest.fixture(autouse=True)
def _as_another_process(monkeypatch):
    """Nothing has been checked yet, as in a process that did not write the files."""
    monkeypatch.setattr(files, "_CHECKED", np.zeros_like(files._CHECKED))


def written(folder: Path) -> tuple[FilePages, str, Path]:
    """A store, and a page in it that this process has not checked."""
    store = FilePages(str(folder))
    name = store.put(BATCH)
    files._CHECKED.fill(0)
    return FilePages(str(folder)), name, folder / name


def flip(path: Path, place: int) -> None:
    """Change one byte, and the file's time with it."""
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def test_what_was_written_comes_back(tmp_path):
    store, name, _ = written(tmp_path)
    assert store.get(name).equals(BATCH)


def test_the_name_tells_size_and_checksum_and_no_draft_is_left(tmp_path):
    _, name, path = written(tmp_path)
    assert name.startswith("page-")
    assert f"-{path.stat().st_size}-" in name
    assert os.listdir(tmp_path) == [name]


def test_reading_maps_the_file_and_takes_no_memory_of_arrows_pool(tmp_path):
    store = FilePages(str(tmp_path))
    name = store.put(pa.record_batch({"n": pa.array(range(100_000))}))
    before = pa.total_allocated_bytes()
    kept = store.get(name)
    assert kept.num_rows == 100_000
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_missing_file_is_an_error_with_its_path_and_the_remedy(tmp_path):
    store, name, path = written(tmp_path)
    path.unlink()
    with pytest.raises(StateError, match=rf"State file {path} is missing, .* no epoch can run on it. {REMEDY}"):
        store.get(name)


@pytest.mark.parametrize("kept", [0, 1, 100])
def test_a_truncated_file_is_an_error_with_both_sizes(tmp_path, kept):
    store, name, path = written(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StateError, match=rf"not what was written: it has {kept} bytes, {size} were written.*{REMEDY}"):
        store.get(name)


@given(place=st.integers(0, 10**6))
@examples(0.02)
def test_one_flipped_byte_anywhere_is_found(tmp_path_factory, place):
    store, name, path = written(tmp_path_factory.mktemp("pages"))
    flip(path, place)
    with pytest.raises(StateError, match=r"its checksum differs\. No epoch can run on it and nothing was changed"):
        store.get(name)


def test_a_file_that_changes_after_it_was_read_is_found_too(tmp_path):
    store, name, path = written(tmp_path)
    assert store.get(name).num_rows == 3
    flip(path, 200)
    with pytest.raises(StateError, match="its checksum differs"):
        store.get(name)


def test_a_file_is_checked_once_and_not_every_time(tmp_path, monkeypatch):
    store, name, _ = written(tmp_path)
    checked = []
    monkeypatch.setattr(
        files.zlib, "crc32", lambda content, check=files.zlib.crc32: checked.append(1) or check(content)
    )
    for _ in range(3):
        store.get(name)
    assert len(checked) == 1


def test_a_store_deletes_what_it_wrote_and_nothing_older(tmp_path):
    older, name, path = written(tmp_path)
    older.drop(name)
    assert path.exists(), "an older version may still need it"
    store = FilePages(str(tmp_path))
    own = store.put(BATCH)
    store.drop(own)
    assert not (tmp_path / own).exists()
    with pytest.raises(StateError, match="is missing"):
        store.get(own)


def test_a_folder_is_a_path_or_a_uri_and_is_made(tmp_path):
    for given_ in (f"{tmp_path}/a/b", f"file://{tmp_path}/a/b", f"file:{tmp_path}/a/b", f"{tmp_path}/a/b/"):
        assert open_folder(given_)[1] == f"{tmp_path}/a/b"
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_with_spaces_and_signs_in_its_name_is_one(tmp_path):
    store = FilePages(str(tmp_path / "my folder %20 #1 ü"))
    assert store.get(store.put(BATCH)).num_rows == 3
    assert (tmp_path / "my folder %20 #1 ü").is_dir()


def test_a_segment_may_be_kept_elsewhere_and_any_store_finds_it_by_name(tmp_path):
    store = FilePages(str(tmp_path / "here"), elsewhere={"shed": str(tmp_path / "there")})
    near, far = store.put(BATCH), store.put(BATCH, "shed")
    assert (tmp_path / "here" / near).exists()
    assert far.startswith(str(tmp_path / "there"))
    assert store.bytes_written == (tmp_path / "here" / near).stat().st_size + Path(far).stat().st_size
    other = FilePages(str(tmp_path / "here"))
    assert other.get(far).equals(BATCH)
    assert other.bytes_read == Path(far).stat().st_size
    other.drop(far)
    assert Path(far).exists(), "another store wrote it: a version may need it"
    store.drop(far)
    assert not Path(far).exists()


def test_a_folder_that_may_only_be_read_is_refused_before_it_is_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.storage.files.os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"^to='x' cannot be written to: .* is read-only\. Write a folder that"):
        make_folder(str(tmp_path), "to='x'")
