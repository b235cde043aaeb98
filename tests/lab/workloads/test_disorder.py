"""F28: disorder as set, and punctuation as early as it is true."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from lab.workloads.disorder import BandDisorder, BlockDisorder, max_disorder, punctuate, punctuations
from penstock.core.errors import ConfigError
from penstock.core.time import as_times
from tests.streams import examples

SECOND = 1_000_000
ROWS = pa.table({"ts": pa.array(range(0, 600 * SECOND, SECOND // 50), pa.timestamp("us")), "n": range(30_000)})


def times(rows: pa.Table) -> np.ndarray:
    return as_times(rows.column("ts")).to_numpy()


@pytest.mark.parametrize("at_most", ["3.2 s", "30 s"])
def test_f28_band_disorder_is_as_set_and_changes_the_order_only(at_most):
    rows = BandDisorder(at_most, seed=7)(ROWS)
    limit = pk.bounded_delay(at_most).delay.amount
    assert 0.95 * limit < max_disorder(rows) <= limit
    assert rows.sort_by("n") == ROWS


def test_f28_a_band_is_nearly_linear():
    """Against the place of arrival, a time is never further from a straight line than the disorder."""
    rows = BandDisorder("30 s", seed=7)(ROWS)
    line = np.arange(rows.num_rows) * SECOND // 50
    assert np.abs(times(rows) - line).max() <= 31 * SECOND
    assert np.corrcoef(times(rows), line)[0, 1] > 0.99


def test_f28_block_disorder_stays_in_its_block_and_is_about_as_long():
    """As in the experiments: the maximum disorder of blocks of a minute is a little less than a minute."""
    rows = BlockDisorder("1 min", seed=7)(ROWS)
    blocks = times(rows) // (60 * SECOND)
    assert (np.diff(blocks) >= 0).all()
    assert 59 * SECOND < max_disorder(rows) < 60 * SECOND
    assert rows.sort_by("n") == ROWS
    within = times(rows)[blocks == 3]
    assert abs(np.corrcoef(within, np.arange(within.size))[0, 1]) < 0.1, "no order is left within a block"


def test_f28_punctuation_stands_after_each_block():
    places, bounds = punctuations(BlockDisorder("1 min", seed=7)(ROWS), every="1 min")
    assert places.tolist() == [3000 * n for n in range(1, 10)]
    assert bounds.tolist() == [60 * SECOND * n for n in range(1, 10)]


@given(st.lists(st.integers(0, 40), max_size=25), st.integers(1, 9))
@examples(0.1)
def test_f28_punctuation_is_true_and_as_early_as_it_is(moments, every):
    rows = pa.table({"ts": pa.array(moments, pa.timestamp("us"))})
    places, bounds = punctuations(rows, every=f"{every} us")
    for place, bound in zip(places.tolist(), bounds.tolist(), strict=True):
        assert min(moments[place:], default=bound) >= bound
        assert moments[place - 1] < bound
    if moments:
        assert bounds.tolist() == [b for b in range(0, 50, every) if min(moments) < b <= max(moments)]


@given(st.lists(st.integers(0, 40), max_size=25), st.integers(1, 9))
@examples(0.05)
def test_f28_a_flow_that_reads_the_punctuation_finds_no_row_late(moments, every):
    rows = punctuate(pa.table({"ts": pa.array(moments, pa.timestamp("us"))}), every=f"{every} us")
    said, bound = as_times(rows.column("complete")).to_pylist(), 0
    for moment, word in zip(moments, said, strict=True):
        assert moment >= bound
        bound = max(bound, word or 0)


@pytest.mark.parametrize("disorder", [BandDisorder("2 s", seed=7), BlockDisorder("2 s", seed=7)])
def test_the_same_fields_give_the_same_order_and_another_seed_another(disorder):
    fields = {name: getattr(disorder, name) for name in disorder.__slots__}
    assert type(disorder)(**fields)(ROWS) == disorder(ROWS)
    assert type(disorder)(**fields | {"seed": 8})(ROWS) != disorder(ROWS)
    assert disorder(ROWS.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BandDisorder("-1 s"), r"^at_most='-1 s' is no length of time\. Write how long, as '30 s'\.$"),
        (lambda: BlockDisorder("0 s"), r"^block='0 s' is no length of time\."),
        (lambda: BandDisorder("1 s", sequences=0), r"^sequences=0 leaves no delay to draw\. Write 1 or more\.$"),
        (
            lambda: BlockDisorder("1 s", time="tx")(ROWS),
            r"^time='tx' is not a column of this stream\. Its columns are: ts, n\.",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
