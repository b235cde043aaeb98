"""F32: generators for lookup joins – exponents as asked for, sizes exact, the same rows from the same seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.workloads.lookup import LonLike, MasterRows, TemporalLocality, TpchLike, ZipfStream
from lab.workloads.zipf import Zipf, scattered
from penstock import ConfigError
from penstock.kernels.zipf import harmonic

EXPONENTS = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]


def fitted(ranks, keys):
    """The most likely exponent of ranks from 1 on."""
    mean = np.log(ranks).mean()
    step = 1e-4
    low, high = -0.5, 3.0
    while high - low > step:
        middle = (low + high) / 2
        slope = (np.log(harmonic(keys, middle + step)) - np.log(harmonic(keys, middle - step))) / (2 * step)
        low, high = (middle, high) if -slope > mean else (low, middle)
    return (low + high) / 2


def width(table):
    """Bytes of the values of a row, which is the same for all rows."""
    total = 0
    for column in table.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            lengths = pc.unique(pc.binary_length(column)).to_pylist()
            assert len(lengths) == 1
            total += lengths[0]
        else:
            total += column.type.bit_width // 8
    return total


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_f32_keys_follow_the_exponent(exponent):
    ranks = Zipf(100_000, exponent, placement="local").draw(200_000, seed=5) + 1
    assert fitted(ranks, 100_000) == pytest.approx(exponent, abs=0.02)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_f32_the_exponent_holds_over_ten_million_keys_without_a_table_of_them(exponent):
    ranks = Zipf(10_000_000, exponent).ranks(200_000, seed=5) + 1
    assert fitted(ranks, 10_000_000) == pytest.approx(exponent, abs=0.02)


@given(st.integers(1, 3000), st.integers(0, 100))
def test_scattering_gives_each_number_a_place_of_its_own(size, seed):
    assert (np.sort(scattered(np.arange(size), size, seed)) == np.arange(size)).all()


def test_scattering_leaves_no_neighbours_together():
    moved = scattered(np.arange(100_000), 100_000, seed=1)
    assert (np.abs(np.diff(moved)) < 100).mean() < 0.01
    assert abs(np.corrcoef(moved[:-1], moved[1:])[0, 1]) < 0.02
    hot = np.bincount(moved[:10_000] // 1000, minlength=100)
    assert 60 < hot.min() < hot.max() < 140  # 100 each if evenly, by chance 10 more or less


def test_frequent_keys_lie_together_or_anywhere():
    local = Zipf(1000, 1.0, placement="local").at(np.arange(10))
    anywhere = Zipf(1000, 1.0, placement="random", seed=3).at(np.arange(10))
    assert local.tolist() == list(range(10))
    assert anywhere.max() > 100
    assert (anywhere != Zipf(1000, 1.0, seed=4).at(np.arange(10))).any()


def test_f32_a_master_table_has_its_size_to_the_byte_and_every_key():
    master = MasterRows(rows=70_000, row_bytes=120, keys=7_000, first=1)
    table = master.table()
    keys, counts = np.unique(table.column("key").to_numpy(), return_counts=True)
    assert table.num_rows * width(table) == master.nbytes == 8_400_000
    assert keys.tolist() == list(range(1, 7_001))
    assert set(counts) == {10}


def test_a_master_table_comes_in_pieces_that_are_not_kept():
    master = MasterRows(rows=10_000_000, row_bytes=120)
    first = next(master.batches())
    assert first.num_rows == 65_536
    assert first.column("key").to_numpy().max() > 9_000_000


def test_f32_stream_rows_have_their_width_to_the_byte():
    assert width(ZipfStream(10, Zipf(5)).table()) == 20
    assert width(ZipfStream(10, Zipf(5), row_bytes=138).table()) == 138
    assert ZipfStream(70_000, Zipf(5)).rows == 70_000


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: ZipfStream(70_000, Zipf(1000, seed=seed), seed=seed).table(),
        lambda seed: MasterRows(70_000, seed=seed).table(),
        lambda seed: TpchLike(1000, 70_000, seed=seed).order_table(),
        lambda seed: TpchLike(70_000, 1000, seed=seed).customer_table(),
        lambda seed: LonLike(40_000, 1000, seed=seed).stream.table(),
    ],
)
def test_f32_the_same_seed_gives_the_same_rows_and_another_others(make):
    assert make(1) == make(1)
    assert make(1) != make(2)


def test_any_part_of_a_stream_can_be_made_without_what_is_before_it():
    stream = ZipfStream(200_000, Zipf(1000), seed=3)
    assert stream.table().slice(140_000, 100) == pa.concat_tables(stream.slices(140_000, 140_100))


def test_f32_locality_has_25_intervals_from_0_to_24_and_never_leaves_the_domain():
    data = TemporalLocality(rows=100_000, per_key=10, stream_rows=50_000)
    keys = data.stream.table().column("key").to_numpy()
    intervals = (keys - 1) // 400
    assert (intervals == np.repeat(np.arange(25), 2000)).all()
    assert keys.min() >= 1
    assert keys.max() <= 10_000
    assert data.master.keys == 10_000


def test_f32_each_interval_follows_the_exponent():
    stream = ZipfStream(5_000_000, Zipf(100_000, 1.0, "local", first=1), intervals=25, seed=1)
    keys = pa.concat_tables(stream.slices(0, 200_000)).column("key").to_numpy()
    assert fitted(keys, 4_000) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_f32_customers_have_223_bytes_and_orders_138_at_either_exponent(exponent):
    data = TpchLike(customers=5_000, orders=200_000, exponent=exponent, placement="local")
    customers, orders = data.customer_table(), data.order_table()
    assert (width(customers), width(orders)) == (223, 138)
    assert sorted(customers.column("c_custkey").to_pylist()) == list(range(1, 5_001))
    assert customers.column("c_name")[0].as_py() == f"Customer#{customers.column('c_custkey')[0].as_py():09d}"
    assert fitted(orders.column("o_custkey").to_numpy(), 5_000) == pytest.approx(exponent, abs=0.02)


def test_f32_the_stand_in_for_cloud_reports_has_555_rows_per_longitude():
    full = LonLike()
    assert 555 <= full.master.rows / full.master.keys < 556
    small = LonLike(rows=72_002, stream_rows=100_000)
    keys = small.stream.table().column("key").to_numpy()
    assert 0 <= keys.min() < keys.max() <= 36_000
    assert width(small.master.table()) == width(small.stream.table()) == 128
    assert "stand-in" in LonLike.__doc__


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Zipf(0), "keys=0"),
        (lambda: Zipf(5, exponent=2.0), "exponent=2.0"),
        (lambda: Zipf(5, placement="here"), "placement='here'"),
        (lambda: MasterRows(10, row_bytes=4), "row_bytes=4"),
        (lambda: MasterRows(10, keys=11), "keys=11"),
        (lambda: ZipfStream(10, Zipf(5), row_bytes=19), "row_bytes=19"),
        (lambda: ZipfStream(10, Zipf(5), intervals=6), "intervals=6"),
        (lambda: ZipfStream(10, Zipf(5), rate=0), "rate=0"),
        (lambda: TpchLike(0, 1), "customers=0"),
    ],
)
def test_what_cannot_be_generated_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
