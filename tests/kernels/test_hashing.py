"""Hashes of keys: uniform, sensitive to every value and to order. (Equal values, equal hashes: see test_equal.)"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import hashing
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import shard_of
from tests.streams import examples

MANY = 20_000
COLUMNS = {
    "consecutive numbers": pa.array(range(MANY)),
    "multiples of 4096": pa.array(range(0, MANY * 4096, 4096)),
    "numbers from -10000": pa.array(range(-MANY // 2, MANY // 2), pa.int32()),
    "floats": pa.array(np.arange(MANY) / 8),
    "texts": pa.array([f"order-{n}" for n in range(MANY)]),
    "long texts that differ at the end": pa.array(["x" * 50 + str(n) for n in range(MANY)]),
    "long texts that differ at the start": pa.array([str(n) + "x" * 50 for n in range(MANY)]),
    "numbers from 2**63": pa.array(range(2**63, 2**63 + MANY), pa.uint64()),
    "large binaries": pa.array([b"%d" % n for n in range(MANY)], pa.large_binary()),
    "binaries of one size": pa.array([b"%05d" % n for n in range(MANY)], pa.binary(5)),
    "dictionaries": pa.array([f"order-{n}" for n in range(MANY)]).dictionary_encode(),
    "lists of one size": pa.array([[n % 100, n // 100] for n in range(MANY)], pa.list_(pa.int64(), 2)),
    "times": pa.array(range(MANY), pa.int32()).view(pa.time32("s")),
    "dates": pa.array(range(MANY), pa.int32()).view(pa.date32()),
    "seconds": pa.array(range(0, MANY * 10**6, 10**6)).view(pa.timestamp("us")),
    "decimals": pa.array(range(MANY)).cast(pa.decimal128(20, 0)),
    "structs": pa.array([{"a": n % 100, "b": n // 100} for n in range(MANY)]),
    "lists": pa.array([[n % 100, n // 100] for n in range(MANY)]),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_hashes_of_distinct_keys_differ_and_fill_every_shard_alike(column):
    hashes = hash_keys([column])
    assert np.unique(hashes).size == MANY
    filled = np.bincount(shard_of(hashes, 100), minlength=100)
    assert filled.min() > 130, "200 each on average; six standard deviations below is 115"
    assert filled.max() < 285


def test_the_order_of_columns_letters_and_elements_counts():
    one, two = pa.array([1]), pa.array([2])
    assert hash_keys([one, two]) != hash_keys([two, one])
    ab, ba = hash_keys([pa.array(["ab", "ba"])])
    assert ab != ba
    up, down = hash_keys([pa.array([[1, 2], [2, 1]])])
    assert up != down


def test_nothing_empty_and_zero_are_three_things():
    nothing, empty = hash_keys([pa.array([None, ""])])
    assert nothing != empty
    null, zero = hash_keys([pa.array([None, 0])])
    assert null != zero
    none, no_elements, one_null = hash_keys([pa.array([None, [], [None]], pa.list_(pa.int64()))])
    assert len({int(none), int(no_elements), int(one_null)}) == 3


def test_where_a_text_ends_counts():
    columns = pa.array(["a", "ab"]), pa.array(["bc", "c"])
    first, second = hash_keys(list(columns))
    assert first != second


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=20), st.integers(0, 20), st.integers(0, 20))
@examples(0.1)
def test_a_slice_hashes_as_the_whole(values, begin, length):
    whole = pa.array(values, pa.string())
    assert hash_keys([whole.slice(begin, length)]).tolist() == hash_keys([whole])[begin : begin + length].tolist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.binary(), pa.list_(pa.string())], ids=str)
def test_no_rows_have_no_hashes(kind):
    assert hash_keys([pa.array([], kind)]).tolist() == []


def test_a_batch_that_hides_bytes_behind_a_null_hashes_as_one_that_does_not():
    hidden = pa.Array.from_buffers(
        pa.string(),
        3,
        [pa.py_buffer(bytes([0b101])), pa.py_buffer(np.array([0, 1, 6, 7], np.int32)), pa.py_buffer(b"aHIDE!b")],
    )
    assert hidden.to_pylist() == ["a", None, "b"]
    assert hash_keys([hidden]).tolist() == hash_keys([pa.array(["a", None, "b"])]).tolist()


@examples(0.2)
@given(
    values=st.lists(st.none() | st.text("aé", max_size=9), min_size=1, max_size=8),
    block=st.integers(1, 12),
)
def test_texts_and_lists_hash_alike_however_much_is_hashed_at_a_time(values, block):
    columns = [pa.array(values, pa.string()), pa.array([v and list(v.encode()) for v in values], pa.list_(pa.int16()))]
    whole = [hash_keys([column]).tolist() for column in columns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_BLOCK", block)
        assert [hash_keys([column]).tolist() for column in columns] == whole


@pytest.mark.parametrize("count", [1, 400], ids=["one text", "many"])
def test_hashing_takes_a_small_part_of_what_the_texts_do(count):
    texts = pa.array(["x" * (20_000_000 // count)] * count)
    tracemalloc.start()
    hash_keys([texts])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < texts.nbytes / 10


def test_hashes_do_not_change_from_version_to_version():
    """State is found by hash: a checkpoint outlives the process that wrote it."""
    assert hash_keys([pa.array([1, 2])]).tolist() == hash_keys([pa.array([1, 2], pa.int32())]).tolist()
    assert hash_keys([pa.array(["a"])]).tolist() == hash_keys([pa.array(["a"], pa.large_string())]).tolist()
    assert hash_keys([pa.array([1, 2])]).tolist() == hash_keys([pa.array([1, 2], pa.uint64())]).tolist()
    assert hash_keys([pa.array([b"a"])]).tolist() == hash_keys([pa.array([b"a"], pa.binary(1))]).tolist()
    unsigned = hash_keys([pa.array([7, 2**63 - 1], pa.uint64())]).tolist()
    assert unsigned == [13309476754707697221, 7622863033291099422]
