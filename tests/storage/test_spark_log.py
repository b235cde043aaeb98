"""What Spark remembers of an epoch's rows: noted, compared, and mended where nothing depends on it."""

from __future__ import annotations

import zlib
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
    """The log of a source of files: those it gives under one number, or, if it is compact, under some."""
    entries = (file.split("@") if "@" in file else (file, name.split(".")[0]) for file in files)
    lines = (f'{{"path":"{path}","timestamp":1,"batchId":{number}}}' for path, number in entries)
    write(root / "sources" / "0" / name, *lines)


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
        f"Spark would give epoch 3 of checkpoint {root.parent} other rows than it had: spark/offsets/3 had "
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


def test_the_files_of_an_epoch_are_those_that_its_sources_noted_since_the_last(spark, root):
    offsets(root, 0, offset=0)
    offsets(root, 1, offset=2)
    for name, files in {"0": "a", "1": "bc", "2": "d", "3": "e"}.items():
        source(root, name, *files)
    assert spark.files(0) == ["a"]
    assert spark.files(1) == ["b", "c", "d"]


def test_the_files_of_an_epoch_are_found_in_a_compact_log(spark, root):
    offsets(root, 8, offset=7)
    offsets(root, 9, offset=9)
    source(root, "9.compact", "a@7", "b@8", "c@9")
    source(root, "8", "b")
    assert spark.files(9) == ["b", "c"]
    (root / "sources" / "0" / "8").unlink()
    assert spark.files(9) == ["b", "c"]


def test_nobody_knows_the_files_of_an_epoch_whose_predecessor_is_gone_or_of_other_sources(spark, root):
    offsets(root, 9, offset=9)
    source(root, "9.compact", "a@7", "b@8", "c@9")
    assert spark.files(9) == []
    write(root / "offsets" / "0", META % 0, '{"topic":{"0":7}}', "-", "5")
    assert spark.files(0) == []


def test_all_files_that_a_source_gave_before_an_epoch_are_in_its_newest_compact_log_and_those_after(spark, root):
    offsets(root, 7, offset=8)
    offsets(root, 8, offset=10)
    source(root, "9.compact", "a@0", "b@8", "c@9")
    for name, files in {"8": "b", "9": "c", "10": "d", "11": "e"}.items():
        source(root, name, *(f"{file}@{name}" for file in files))
    assert sorted(spark.all_files(0)) == ["a", "b", "c", "d", "e"]
    assert sorted(spark.all_files(0, before=9)) == ["a", "b", "c", "d"]
    assert sorted(spark.all_files(0, before=8)) == ["a", "b"]
    assert spark.all_files(0, before=0) == spark.all_files(1) == []


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


def test_checksums_whose_file_a_power_cut_took_go_and_others_stay(spark, root):
    offsets(root, 3, offset=7)
    source(root, "7", "a")
    noted = spark.batch(3)
    for folder in ("offsets", "commits", "sources/0", "sources/1"):
        (root / folder).mkdir(exist_ok=True, parents=True)
    lone = [root / "sources" / "1" / ".1.crc", root / "sources" / "0" / ".9.compact.crc", root / "commits" / ".3.crc"]
    kept = [root / "sources" / "0" / ".7.crc", root / "offsets" / ".3.crc", root / "offsets" / "notes.crc"]
    for path in lone + kept:
        path.touch()
    assert spark.mend(3, noted) == []
    assert [path for path in lone + kept if path.exists()] == kept


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


def hadoop(root: Path) -> None:
    """Spark's files after three epochs, with the checksums that Hadoop writes beside them."""
    for epoch in range(3):
        offsets(root, epoch, offset=epoch)
        write(root / "commits" / str(epoch), '{"nextBatchWatermarkMs":0}')
        source(root, str(epoch), "a" * 600)
    (root / "metadata").write_text('{"id":"1"}')
    for path in [path for path in root.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        chunks = [content[at : at + 512] for at in range(0, len(content), 512)]
        sums = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + sums)


@pytest.mark.parametrize("content", ["{}", "[]", "1", '{"name": "1"}'])
def test_metadata_without_an_id_is_torn(content, root, spark):
    root.mkdir()
    (root / "metadata").write_text(content)
    assert spark.mend(-1, {}) == ["metadata"]


READ = ["metadata", "offsets/1", "offsets/2", "commits/2", "sources/0/2"]


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("of", ["content", "checksums"])
def test_a_changed_byte_in_what_spark_starts_from_is_refused_with_the_remedy(spark, root, name, of):
    hadoop(root)
    spark.check()
    path = root / name
    path = path if of == "content" else path.with_name(f".{path.name}.crc")
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        spark.check()
    assert str(error.value).startswith(f"spark/{name} of checkpoint {root.parent} is not what Spark wrote: it ")
    assert str(error.value).endswith("Restore the whole folder from one backup, or start with a new checkpoint folder.")


@pytest.mark.parametrize("name", READ[:-1])
@pytest.mark.parametrize("content", CUT)
def test_what_spark_starts_from_is_refused_if_it_is_cut_off(spark, root, name, content):
    hadoop(root)
    (root / name).with_name(f".{Path(name).name}.crc").unlink()
    if name == "metadata":
        content = content[3:].partition("\n")[0] + "{"
    (root / name).write_text(content)
    with pytest.raises(CheckpointError, match=rf"spark/{name} of .* is not what Spark wrote: it is cut off\."):
        spark.check()


def test_offsets_of_a_query_that_lost_its_identity_are_refused(spark, root):
    hadoop(root)
    (root / "metadata").unlink()
    with pytest.raises(CheckpointError, match=r"spark/metadata of .* is not what Spark wrote: it is gone\."):
        spark.check()


def test_what_spark_does_not_start_from_and_checksums_that_hadoop_does_not_read_are_not_looked_at(spark, root):
    hadoop(root)
    (root / "offsets" / "0").write_text("gone wrong")
    (root / "commits" / "0").write_text("gone wrong")
    (root / "offsets" / ".1.crc").write_bytes(b"")
    (root / "offsets" / ".2.crc").write_bytes(bytes(12))
    spark.check()
