"""What Spark remembers of an epoch's rows: noted, compared, and mended where nothing depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import CheckpointError
from penstock.storage.records import Records
from penstock.storage.spark_log import SparkLog

META = '{"batchWatermarkMs":0,"batchTimestampMs":%d}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "spark"


@pytest.fixture
def spark(tmp_path: Path) -> SparkLog:
    return SparkLog(Records(str(tmp_path)))


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *lines]))


def offsets(root: Path, epoch: int, offset: int, at: int = 0) -> None:
    write(root / "offsets" / str(epoch), META % at, f'{{"logOffset":{offset}}}', "-")


def source(root: Path, name: str, *files: str) -> None:
    write(root / "sources" / "0" / name, *(f'{{"path":"{file}"}}' for file in files))


def test_an_epoch_run_again_has_the_rows_it_had_whatever_the_time_of_the_attempt(spark, root):
    offsets(root, 3, offset=7, at=1000)
    noted = spark.batch(3)
    offsets(root, 3, offset=7, at=2000)
    spark.compare(noted, 3)


def test_other_offsets_are_other_rows(spark, root):
    offsets(root, 3, offset=7)
    noted = spark.batch(3)
    offsets(root, 3, offset=8)
    with pytest.raises(CheckpointError) as error:
        spark.compare(noted, 3)
    found = spark.batch(3)["offsets/3"]
    assert str(error.value) == (
        f"Epoch 3 of checkpoint {root.parent} had other rows than Spark would give it now: spark/offsets/3 had "
        f"checksum {noted['offsets/3']} then and now has checksum {found}. Parts of the checkpoint are of different "
        f"ages, or damaged, so rows would be lost or counted twice; nothing was changed. Restore the whole folder "
        f"from one backup, or start with a new checkpoint folder."
    )


def test_the_same_offset_of_a_source_of_files_may_be_other_files(spark, root):
    """Spark numbers what a folder gives: after a restore number 1 may stand for another file."""
    offsets(root, 1, offset=1)
    source(root, "1", "a.parquet")
    noted = spark.batch(1)
    source(root, "1", "b.parquet")
    with pytest.raises(CheckpointError, match=r"spark/sources/0/1 had checksum"):
        spark.compare(noted, 1)


def test_offsets_that_are_gone_are_refused(spark, root):
    offsets(root, 1, offset=1)
    noted = spark.batch(1)
    (root / "offsets" / "1").unlink()
    with pytest.raises(CheckpointError, match=r"spark/offsets/1 had checksum \w{8} then and is gone"):
        spark.compare(noted, 1)


def test_the_log_of_a_source_may_go_once_a_later_one_has_what_it_had(spark, root):
    offsets(root, 1, offset=8)
    source(root, "8", "a")
    noted = spark.batch(1)
    (root / "sources" / "0" / "8").unlink()
    source(root, "7.compact", "a")
    with pytest.raises(CheckpointError, match="is gone"):
        spark.compare(noted, 1)
    source(root, "9.compact", "a", "b")
    spark.compare(noted, 1)


def test_only_the_logs_that_spark_goes_by_are_noted(spark, root):
    offsets(root, 20, offset=11)
    for name in ("8", "9.compact", "9", "10", "11", "notes", ".11.crc"):
        source(root, name, name)
    assert sorted(spark.batch(20)) == ["offsets/20", "sources/0/10", "sources/0/11", "sources/0/9.compact"]


def test_of_a_log_that_never_begins_anew_the_newest_are_noted(spark, root):
    for number in range(100):
        source(root, str(number), str(number))
    assert sorted(int(name[10:]) for name in spark.batch(0)) == list(range(36, 100))


def test_an_epoch_that_spark_has_as_done_and_we_have_not_is_told(spark, root):
    assert spark.ahead(-1) is None
    write(root / "commits" / "3", "{}")
    assert spark.ahead(2) == 3
    assert spark.ahead(3) is None


CUT = ["", "v", "v1", "v1\n", 'v1\n{"a', 'v1\n{"a":1}\n', 'v1\n{"a":1}\n{"b"']


@pytest.mark.parametrize("content", CUT)
def test_what_a_power_cut_left_of_an_epoch_that_had_not_begun_goes(spark, root, content):
    offsets(root, 3, offset=7)
    source(root, "7", "a")
    noted = spark.batch(3)
    torn = ["commits/3", "offsets/4", "sources/0/8"]
    for name in torn:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content)
        (root / name).with_name(f".{Path(name).name}.crc").touch()
    assert spark.mend(3, noted) == torn
    assert [name for name in torn if (root / name).exists()] == []
    assert not list(root.rglob("*.crc"))
    spark.compare(noted, 3)


@pytest.mark.parametrize("content", CUT)
def test_what_is_needed_or_whole_or_no_log_of_lines_is_never_mended(spark, root, content):
    offsets(root, 3, offset=7)
    source(root, "7", "a")
    noted = spark.batch(3)
    offsets(root, 4, offset=8)
    write(root / "commits" / "2", "{}")
    kept = ["offsets/3", "sources/0/7", "commits/4"]
    for name in kept:
        (root / name).write_text(content)
    (root / "sources" / "1").mkdir()
    (root / "sources" / "1" / "0").write_bytes(b"\x00\x01 not lines of JSON")
    assert spark.mend(3, noted) == []


def test_the_identity_of_a_query_that_has_done_nothing_may_be_cut_off(spark, root):
    root.mkdir()
    (root / "metadata").touch()
    assert spark.mend(3, {}) == []
    assert spark.mend(-1, {}) == ["metadata"]
    (root / "metadata").write_text('{"id":"1"}')
    assert spark.mend(-1, {}) == []


def test_what_a_query_that_has_done_nothing_left_goes_if_its_identity_is_lost(spark, root):
    offsets(root, 0, offset=0)
    source(root, "0", "a")
    assert spark.mend(-1, {"offsets/0": "planned"}) == []
    assert spark.mend(-1, {}) == ["offsets/0", "sources/0/0"]
    assert not list((root / "offsets").iterdir())
