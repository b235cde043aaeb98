"""Blobs are a small part of a task's share however wide rows are, but for single rows that are wider themselves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.progress import Track
from penstock.flow.graph import OperatorNode, SourceNode
from penstock.runtime.entering import Entry
from penstock.runtime.lateness import Judge
from penstock.spark.blobs import Scan, ScanTask, Way, cut_by_shard, opened
from penstock.storage.scans import Portion, files_of, read_file

SHARE = 1_000_000
"""The least share of a task."""

MOST = SHARE // 12
"""Bytes that a blob of several rows may have."""


def uneven(rows: int) -> list[str]:
    """Texts of a few bytes, some of kilobytes, and a few that are wider than a blob."""
    rng = np.random.default_rng(5)
    widths = np.minimum(rng.lognormal(3, 2.2, rows), 60_000).astype(int)
    widths[rng.choice(rows, 5, replace=False)] = 300_000
    return [chr(97 + n % 26) * int(width) for n, width in enumerate(widths)]


TEXTS = {
    "uneven": uneven(3000),
    "all but one wide": ["w" * 70_000] * 40 + [""],
    "of a large dictionary": [chr(48 + n % 60) * 2_000 for n in range(20_000)],
    "of one text": ["s" * 5_000] * 3_000,
}


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "encoded"])
@pytest.mark.parametrize("texts", TEXTS)
def test_a_blob_of_several_rows_is_at_most_a_twelfth_of_a_share(texts, encoded):
    held = pa.array(TEXTS[texts])
    rng = np.random.default_rng(1)
    hashes = pa.array(rng.integers(0, 2**64, len(held), np.uint64))
    text = held.dictionary_encode() if encoded else held
    rows = pa.record_batch({"hash": hashes, "time": range(len(held)), "text": text})
    blobs = list(cut_by_shard(rows, 0, 2, SHARE))
    found = [rows for blob in blobs for _, rows in opened(blob)]
    for blob, part in zip(blobs, found, strict=True):
        assert blob.column("batch")[0].as_buffer().size <= MOST or part.num_rows == 1
    assert sorted(n for part in found for n in part.column("time").to_pylist()) == list(range(len(held)))
    assert Counter(text for part in found for text in part.column("text").to_pylist()) == Counter(TEXTS[texts])


@pytest.mark.parametrize("texts", TEXTS)
def test_a_task_that_scans_a_file_of_such_texts_keeps_to_that(tmp_path: Path, texts):
    """Parquet has encoded most of them, and they are read so."""
    rows = pa.table({"t": range(len(TEXTS[texts])), "text": TEXTS[texts]})
    pq.write_table(rows, tmp_path / "a.parquet", dictionary_pagesize_limit=1 << 24)
    files = files_of("parquet", tmp_path, None, None, None)
    if texts.startswith("of"):
        read = read_file(files, f"{tmp_path}/a.parquet", files.columns, SHARE // 8, texts="encoded")
        assert pa.types.is_dictionary(next(read).schema.field("text").type)
    node = pk.LocalFlow().parquet(tmp_path, time="t").distinct(on="t")._node
    assert isinstance(node, OperatorNode)
    source = node.inputs[0]
    assert isinstance(source, SourceNode)
    scan = Scan(files, files.columns, Judge.of(source, Track()))
    ways = [[Way((), 0, Entry.of(node, 0, 2))]]
    task = ScanTask([[(0, Portion(f"{tmp_path}/a.parquet", 0))]], [scan], ways, 2, SHARE)
    count = 0
    for blob in task(iter([pa.record_batch({"id": [0]})])):
        ((_, part),) = opened(blob)
        count += part.num_rows
        assert blob.column("batch")[0].as_buffer().size <= MOST or part.num_rows == 1
    assert count == len(TEXTS[texts])
