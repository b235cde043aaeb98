"""Sums that 64 bits, or 38 digits, cannot hold: right or refused, whatever the method and the epochs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as pk
from tests.streams import examples

pytestmark = pytest.mark.slow

MOST, LEAST = 2**63 - 1, -(2**63)
NINES = Decimal("9" * 38)
WINDOWS = {
    "auto": (pk.sliding(6, 2), "auto"),
    "wid": (pk.sliding(6, 2), "wid"),
    "paned": (pk.sliding(6, 2), "paned"),
    "differential": (pk.sliding(6, 2), "differential"),
    "adapt": (pk.sliding(6, 2), "adapt"),
    "buffering": (pk.sliding(6, 2), "buffering"),
    "landmark": (pk.landmark(4), "auto"),
    "session": (pk.session(2), "auto"),
    "each row": (pk.slide_by_tuple(4), "auto"),
    "rows": (pk.rows(3, 2, order="t"), "auto"),
}

large = st.sampled_from([None, 0, 1, -1, 2**32, -(2**32) - 1, 2**62, -(2**62), MOST, -MOST, LEAST])
rows = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), large), min_size=1, max_size=12)


def summed(
    values: Sequence[tuple[int, str, Any]], kind: pa.DataType, name: str, cut: int = 0, **more: Any
) -> list[dict[str, Any]]:
    """What comes out of a window over (time, group, value), in two epochs."""
    window, method = WINDOWS[name]
    times, groups, numbers = zip(*values, strict=True)
    table = pa.table({"t": times, "k": groups, "x": pa.array(numbers, kind)})
    flow = pk.LocalFlow(shards=2)
    stream = flow.source([table.slice(0, cut), table.slice(cut)] if cut else table, time="t", progress=pk.ordered())
    by = () if name == "rows" else ("k",)
    out = stream.window(window).by(*by).agg(method=method, **more).to_memory()
    flow.run()
    return out.table().to_pylist()


@pytest.mark.parametrize("name", WINDOWS)
@given(steps=rows, cut=st.integers(0, 11), unsigned=st.booleans())
@example(steps=[(0, "a", MOST), (1, "a", MOST), (0, "a", -MOST), (1, "a", LEAST)], cut=2, unsigned=False)
@example(steps=[(0, "a", MOST), (1, "a", 1)], cut=1, unsigned=False)
@example(steps=[(0, "a", MOST), (1, "a", MOST), (0, "a", 1)], cut=1, unsigned=True)
@examples(0.01)
def test_a_sum_is_that_of_python_or_an_error_that_names_it(name, steps, cut, unsigned):
    """All values of a window are seen through collect_list; sums are refused only if one of them is too large."""
    kind, low, high = (pa.uint64(), 0, 2**64 - 1) if unsigned else (pa.int64(), LEAST, MOST)
    time, values = 0, []
    for step, group, value in steps:
        time += step
        values.append((time, group, abs(value) if unsigned and value is not None else value))
    given = (values, kind, name, min(cut, len(values)))
    subtractable = {} if name == "differential" else {"top": pk.max("x")}
    windows = summed(*given, mean=pk.mean("x"), all=pk.collect_list("x"), **subtractable)
    assert windows
    sums = [sum(window["all"]) if window["all"] else None for window in windows]
    for window, total in zip(windows, sums, strict=True):
        assert window["mean"] == (None if total is None else float(total) / len(window["all"]))
    if all(total is None or low <= total <= high for total in sums):
        found = summed(*given, total=pk.sum("x"), all=pk.collect_list("x"))
        assert [window["total"] for window in found] == [
            sum(window["all"]) if window["all"] else None for window in found
        ]
        assert sorted(map(str, sums)) == sorted(str(window["total"]) for window in found)
    else:
        with pytest.raises(pk.FlowError, match=rf"^total: the sum of 'x' at .* is too large for {kind}\."):
            summed(*given, total=pk.sum("x"))


@pytest.mark.parametrize("name", WINDOWS)
def test_a_decimal_of_38_digits_is_refused_only_if_the_whole_sum_has_more(name):
    if name == "differential":
        pytest.skip("decimals are not subtracted")
    there_and_back = [(0, "a", NINES), (0, "a", NINES), (0, "a", NINES.copy_negate())]
    far = [(9, "a", Decimal(0)), (9, "a", Decimal(0)), (9, "a", Decimal(0))]
    if name in ("auto", "wid", "paned", "adapt"):
        for cut in range(3):
            found = summed([*there_and_back, *far], pa.decimal128(38, 0), name, cut, total=pk.sum("x"))
            assert {window["total"] for window in found} == {NINES, Decimal(0)}
    cents = NINES.scaleb(-2, Context(prec=38))
    with pytest.raises(pk.FlowError, match=r"^total: the sum of 'x' at .* is too large for decimal128\(38, 2\)\."):
        summed([(0, "a", cents), (0, "a", cents), (0, "a", cents)], pa.decimal128(38, 2), name, total=pk.sum("x"))


def test_the_error_says_which_window_and_what_to_write_and_that_works():
    table = pa.table({"t": [0, 1], "shop": ["north", "north"], "x": [MOST, MOST]})
    flow = pk.LocalFlow()
    flow.source(table, time="t").window(range=10).by("shop").agg(eur=pk.sum("x")).to_memory()
    with pytest.raises(pk.FlowError) as error:
        flow.run()
    assert str(error.value) == (
        "eur: the sum of 'x' at shop='north', window_start=0, window_end=10 is too large for int64. "
        "Before the window write .select('*', 'cast(x AS decimal(20, 0)) AS wide'), and sum 'wide'."
    )
    flow = pk.LocalFlow()
    wide = flow.source(table, time="t").select("*", "cast(x AS decimal(20, 0)) AS wide")
    out = wide.window(range=10).by("shop").agg(eur=pk.sum("wide")).to_memory()
    flow.run()
    assert out.table().column("eur").to_pylist() == [Decimal(2 * MOST)]


def test_an_unsigned_sum_is_unsigned():
    found = summed([(0, "a", 2**64 - 2), (0, "a", 1)], pa.uint64(), "paned", total=pk.sum("x"))
    assert {window["total"] for window in found} == {2**64 - 1}


def test_a_sum_in_sql_is_refused_alike():
    flow = pk.LocalFlow()
    flow.source(pa.table({"t": [0, 1], "x": [MOST, 1]}), time="t", name="s")
    flow.sql("SELECT sum(x) AS total FROM s [RANGE 10 SLIDE 10 WATTR t]").to_memory()
    with pytest.raises(pk.FlowError, match="total: the sum of 'x' at"):
        flow.run()


def test_rows_between_windows_of_rows_have_a_sum_of_nothing():
    flow = pk.LocalFlow()
    epochs = [pa.table({"t": [t], "k": ["a"], "x": [10**t]}) for t in range(6)]
    windows = flow.source(epochs, time="t", progress=pk.ordered()).window(pk.rows(1, 3, partition="k")).by("k")
    out = windows.agg(total=pk.sum("x"), middle=pk.mean("x")).to_memory()
    flow.run()
    assert sorted(out.table().column("total").to_pylist()) == [100, 100_000]
