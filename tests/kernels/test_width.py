"""Widths of rows and the cuts they give: every part fits, nothing is lost, a row that does not fit comes alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.width import cut, even_pieces, row_widths

settings_here = settings(max_examples=200)


@settings_here
@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 60))
def test_parts_are_consecutive_complete_and_fit(widths, room):
    parts = list(cut(np.array(widths, np.int64), room))
    assert [n for part in parts for n in range(part.start, part.stop)] == list(range(len(widths)))
    for part in parts:
        assert sum(widths[part]) <= room or part.stop - part.start == 1


@settings_here
@given(st.lists(st.one_of(st.none(), st.text(max_size=9)), min_size=1, max_size=12), st.data())
def test_strings_count_by_their_own_length_in_slices_too(texts, data):
    start = data.draw(st.integers(0, len(texts) - 1))
    rows = pa.record_batch({"s": pa.array(texts, pa.string())}).slice(start)
    which = np.arange(rows.num_rows)[::-1]
    expected = [4 + len((text or "").encode()) for text in texts[start:]][::-1]
    assert row_widths(rows, which).tolist() == expected


@settings_here
@given(st.lists(st.one_of(st.none(), st.text(max_size=9)), min_size=1, max_size=6), st.data())
def test_rows_that_are_asked_for_several_times_are_as_wide_each_time(texts, data):
    rows = pa.record_batch(
        {"s": pa.array(texts, pa.string()), "n": range(len(texts)), "none": pa.nulls(len(texts), pa.string())}
    )
    which = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=4 * len(texts))), np.int64)
    expected = [4 + len((texts[place] or "").encode()) + 8 + 4 for place in which]
    assert row_widths(rows, which).tolist() == expected


def test_numbers_flags_and_nested_values():
    rows = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "b": [True, False], "l": [[1, 2], [3, 4]]})
    nested = rows.column("l").nbytes // 2
    assert row_widths(rows, np.array([0, 1])).tolist() == [4 + 1 + nested] * 2


def test_a_column_of_nothing_takes_nothing_and_a_view_what_its_column_does_on_average():
    rows = pa.record_batch({"nothing": pa.nulls(2), "view": pa.array(["a", "b" * 84], pa.string_view())})
    assert row_widths(rows.select(["nothing"]), np.array([1, 0])).tolist() == [0, 0]
    assert row_widths(rows, np.array([1, 0])).tolist() == [rows.column("view").nbytes // 2] * 2


@settings_here
@given(
    st.lists(st.one_of(st.none(), st.text(max_size=9), st.just("x" * 300)), min_size=1, max_size=30),
    st.integers(1, 900),
    st.sampled_from([pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())]),
)
def test_pieces_are_the_rows_in_order_and_fit_but_for_single_ones_also_where_texts_are_encoded(texts, limit, kind):
    rows = pa.record_batch({"s": pa.array(texts, pa.string()).cast(kind), "n": range(len(texts))}).slice(
        len(texts) // 4
    )
    pieces = list(even_pieces(rows, limit))
    assert pa.Table.from_batches(pieces, rows.schema).to_pylist() == rows.to_pylist()
    assert all(piece.nbytes <= limit * 5 // 4 + 16 or piece.num_rows == 1 for piece in pieces)
