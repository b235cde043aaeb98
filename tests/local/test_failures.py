"""Failures of sinks and sources in process: one short error, with the original chained."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

ROWS = pa.table({"t": [1, 2]})


def test_a_function_that_raises_is_named_with_its_epoch_and_its_error():
    def save(rows, epoch):
        if epoch == 1:
            raise ValueError("no such table: paid\nand many more lines")

    flow = pk.LocalFlow()
    flow.source([ROWS, ROWS], time="t", name="orders").foreach_epoch(save)
    with pytest.raises(pk.SinkError) as error:
        flow.run()
    assert str(error.value) == "Epoch 1 failed in sink foreach_epoch save: ValueError: no such table: paid."
    assert isinstance(error.value.__cause__, ValueError)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "out").write_text("a file")
    flow = pk.LocalFlow()
    flow.source(ROWS, time="t").to_parquet(str(tmp_path / "out"))
    with pytest.raises(pk.SinkError, match=r"Epoch 0 failed in sink parquet .*/out: (FileExists|NotADirectory)Error: "):
        flow.run()


def test_a_generator_that_raises_is_named_as_the_source_it_is():
    def tables():
        yield ROWS
        raise ConnectionError("broker unreachable")

    flow = pk.LocalFlow()
    rows = flow.source(tables(), time="t", name="orders").to_memory()
    with pytest.raises(pk.SourceError) as error:
        flow.run()
    assert str(error.value) == "Epoch 1 failed in source 'orders': ConnectionError: broker unreachable."
    assert isinstance(error.value.__cause__, ConnectionError)
    assert rows.table().num_rows == 2


def test_a_full_disk_is_told_in_one_line(tmp_path):
    def fill(rows, epoch):
        with open("/dev/full", "w") as disk:
            disk.write("row")

    flow = pk.LocalFlow()
    flow.source(ROWS, time="t").foreach_epoch(fill)
    with pytest.raises(pk.SinkError, match=r"^Epoch 0 failed in sink foreach_epoch fill: OSError: .*No space left"):
        flow.run()


def test_a_message_without_end_is_cut():
    def save(rows, epoch):
        raise ValueError("x" * 10_000)

    flow = pk.LocalFlow()
    flow.source(ROWS, time="t").foreach_epoch(save)
    with pytest.raises(pk.SinkError) as error:
        flow.run()
    assert len(str(error.value)) < 400
