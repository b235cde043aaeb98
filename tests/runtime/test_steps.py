"""Payload fetched in parts, and by several threads: the same rows with the same payload, and errors come out."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import SourceError
from penstock.core.rows import TIME
from penstock.flow.graph import Fetched
from penstock.runtime.steps import Fetch, fetched_ahead
from penstock.storage.payload import Home, forget_decoded
from penstock.storage.scans import files_of

ROWS, FILES = 400, 3


def home_of(folder: Path, name: str) -> Home:
    """A source of three files whose row n has the text ``<name> n``."""
    (folder / name).mkdir()
    for number in range(FILES):
        texts = [f"{name} {n}" for n in range(number * ROWS, (number + 1) * ROWS)]
        pq.write_table(pa.table({"text": texts}), folder / name / f"{number}.parquet", row_group_size=150)
    flow = f"steps-{os.getpid()}-{folder.name}"
    home = Home(str(folder), flow, flow, name, files_of("parquet", str(folder / name), None, None, None))
    home.note(0, [(str(path), ()) for path in sorted((folder / name).iterdir())])
    return home


def places(home: Home, numbers: np.ndarray) -> np.ndarray:
    """Where rows are: each file has row groups of 150, 150 and 100."""
    within = numbers % ROWS
    return ((numbers // ROWS * 3 + within // 150) << 32) | (within % 150)


@pytest.fixture
def case(tmp_path):
    """Rows that refer to two sources, some of one with text that they have brought."""
    homes = {name: home_of(tmp_path, name) for name in "ab"}
    draw = np.random.default_rng(3)
    a, b = (draw.integers(0, FILES * ROWS, 2_000) for _ in homes)
    brought = draw.random(2_000) < 0.2
    rows = pa.table(
        {
            "n": np.arange(2_000),
            "a": pa.nulls(2_000, pa.string()),
            "b": pa.array([f"own {n}" if own else None for n, own in enumerate(brought)], pa.string()),
            "at a": places(homes["a"], a),
            "at b": pa.array(places(homes["b"], b), mask=brought),
            TIME: np.arange(2_000),
        }
    )
    fetched = tuple(Fetched(f"at {name}", home, ((name, ("text",)),)) for name, home in homes.items())
    expected = Counter((n, f"a {a[n]}", f"own {n}" if brought[n] else f"b {b[n]}", n) for n in range(2_000))
    yield Fetch(fetched, ("n", "a", "b")), rows, expected
    forget_decoded(homes["a"].flow)


def counted(pieces: list[pa.Table]) -> Counter:
    whole = pa.concat_tables(pieces)
    assert whole.column_names == ["n", "a", "b", TIME]
    return Counter(zip(*(column.to_pylist() for column in whole.columns), strict=True))


@pytest.mark.parametrize("size", [1_000, 20_000, 10_000_000])
def test_rows_get_their_payload_in_parts_of_any_size(case, size):
    fetch, rows, expected = case
    pieces = list(fetch.pieces(rows, size))
    assert counted(pieces) == expected
    assert len(pieces) > 5 or size > 20_000


def test_a_source_whose_rows_brought_all_does_not_make_parts_small(case):
    fetch, rows, _ = case
    rows = rows.set_column(4, "at b", pa.nulls(rows.num_rows, pa.int64()))
    rows = rows.set_column(2, "b", pa.array([f"own {n}" for n in range(rows.num_rows)]))
    pieces = list(fetch.pieces(rows, 10_000_000))
    assert [piece.num_rows for piece in pieces] == [64, rows.num_rows - 64]
    assert all(own == f"own {n}" for n, _, own, _ in counted(pieces))


def test_rows_of_a_part_have_all_left_their_payload_behind_or_none_has(case):
    fetch, rows, expected = case
    list(fetch.pieces(rows, 10_000_000))
    parts = list(fetch.parts(rows, 10_000_000))
    assert sorted({part.column("at b").null_count for part in parts}) == [0, max(p.num_rows for p in parts[1:])]
    assert counted([fetch.whole(part) for part in parts]) == expected


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_fetch_the_same(case, threads):
    fetch, rows, expected = case
    tables = iter([rows.slice(0, 900), rows.slice(900, 0), rows.slice(900, 3), rows.slice(903)])
    assert counted(list(fetched_ahead(fetch, tables, 5_000, threads))) == expected


def test_what_threads_cannot_fetch_is_an_error_where_rows_are_taken(case):
    fetch, rows, _ = case
    home = fetch.fetched[0].home
    os.unlink(sorted(Path(home.files.path).iterdir())[1])
    with pytest.raises(SourceError, match=r"1\.parquet is gone or has changed"):
        list(fetched_ahead(fetch, iter([rows]), 5_000, 2))


def test_who_takes_no_more_rows_leaves_no_thread_at_work(case):
    fetch, rows, _ = case
    made = fetched_ahead(fetch, iter([rows]), 1_000, 2)
    next(made)
    made.close()
    assert list(made) == []


def test_f07_f09_f33_in_which_order_sources_are_asked_changes_no_row_and_no_byte_that_is_read(case, monkeypatch):
    """A payload is read by its own places alone: none is handed from source to source, so no order moves less."""
    fetch, rows, expected = case
    asked: list[tuple[str, bytes, int]] = []
    took = Home.fetch

    def noted(self, places, paths, size):
        found = took(self, places, paths, size)
        asked.append((self.source, places.tobytes(), sum(column.nbytes for column in found)))
        return found

    monkeypatch.setattr(Home, "fetch", noted)
    read = []
    for order in (fetch.fetched, fetch.fetched[::-1]):
        assert counted([Fetch(order, fetch.columns).whole(rows)]) == expected
        assert [source for source, *_ in asked] == [each.home.source for each in order]
        read.append(sorted(asked))
        asked.clear()
    assert read[0] == read[1]
