"""The methods a window join can run by: names, parameters, defaults, and what a wrong parameter is told."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.core.budget import Budget
from penstock.core.errors import ConfigError, DurationError
from penstock.core.operator import State
from penstock.core.rows import RowType
from penstock.core.within import band, windows
from penstock.operators.window_join import (
    METHODS,
    AhEwj,
    AHEWJoin,
    Ewj,
    EWJoin,
    OAJoin,
    Rpwj,
    RPWJoin,
    WindowJoin,
    read_method,
)
from penstock.storage.memory import MemoryPages
from tests.streams import ROWS

EVERY = (Ewj, AhEwj, Rpwj)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("size", ["memory", "page", "row", "chunk"])
def test_a_size_below_one_is_refused(kind, size):
    with pytest.raises(ConfigError, match=rf"^{size}=0 must be a number of bytes, 1 or more\.$"):
        kind(**{size: 0})


@pytest.mark.parametrize("kind", [Ewj, AhEwj])
@pytest.mark.parametrize("parts", [(0.7, 0.2, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1), (0.5, 0.2, 0.2)])
def test_segments_that_are_not_parts_of_one_memory_are_refused(kind, parts):
    with pytest.raises(ConfigError) as refused:
        kind(recent=parts[0], frequent=parts[1], invalidation=parts[2])
    assert str(refused.value) == (
        f"recent={parts[0]}, frequent={parts[1]}, invalidation={parts[2]} must be fractions of the memory "
        f"that add up to 1, with recent above 0."
    )


def test_parts_that_add_up_but_for_rounding_are_taken():
    assert Ewj(recent=0.1 + 0.2, frequent=0.3, invalidation=0.4).recent == 0.1 + 0.2


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Ewj, "probe"),
        (Ewj, "decay"),
        (AhEwj, "least"),
        (AhEwj, "probe"),
        (AhEwj, "decay"),
        (Rpwj, "flush"),
        (Rpwj, "decay"),
    ],
)
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_fraction_beyond_0_or_1_is_refused(kind, name, value):
    with pytest.raises(ConfigError, match=rf"^{name}={value} must be a number from 0 to 1\.$"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Ewj, "refresh"), (AhEwj, "refresh"), (AhEwj, "partitions"), (AhEwj, "train"), (Rpwj, "partitions")],
)
def test_a_count_below_one_is_refused(kind, name):
    with pytest.raises(ConfigError, match=rf"^{name}=0 must be a whole number of at least 1\.$"):
        kind(**{name: 0})


@pytest.mark.parametrize(("kind", "name"), [(Ewj, "gain"), (AhEwj, "gain"), (Rpwj, "access_time"), (Rpwj, "low_mark")])
def test_less_than_nothing_is_refused(kind, name):
    with pytest.raises(ConfigError, match=rf"^{name}=-1 must be a number of at least 0\.$"):
        kind(**{name: -1})


@pytest.mark.parametrize("slide", [0, "-1 s"])
def test_a_slide_that_does_not_move_is_refused(slide):
    with pytest.raises(ConfigError, match=r"^slide=.* must be positive: how often rows may leave\.$"):
        Rpwj(slide=slide)


def test_a_disk_that_reads_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"^read_rate=0 must be above 0, in bytes per second\.$"):
        Rpwj(read_rate=0)


def test_a_least_memory_above_half_is_refused():
    with pytest.raises(ConfigError) as refused:
        AhEwj(least=0.6)
    assert str(refused.value) == "least=0.6 must be at most 0.5: two streams share the memory."


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("auto", "auto"),
        ("oa", "oa"),
        ("EWJ", "ewj"),
        ("global-order", "global_order"),
        ("AH-EWJ", "ah_ewj"),
        ("ah_ewj", "ah_ewj"),
        ("Rpwj", "rpwj"),
    ],
)
def test_a_method_is_read_by_its_name(written, read):
    assert read_method(written) == read


@pytest.mark.parametrize("method", [Ewj(probe=0.5), AhEwj(partitions=3), Rpwj(slide=5)])
def test_parameters_are_a_method_themselves(method):
    assert read_method(method) is method
    assert METHODS.parameters(method) is method


def test_an_unknown_method_is_told_which_there_are():
    with pytest.raises(ConfigError) as refused:
        read_method("sortmerge")
    assert str(refused.value) == (
        "method='sortmerge' is not one of auto, oa, ewj, ah_ewj, rpwj, opob, opib, global_order, rrpj, amortized_rrpj, "
        "rrpj_f, jgradient, random, xjoin, hmj, rpj, nerpj, la, pmj, shj. "
        "Write one of these, or the parameters of one, as in method=pk.Ewj(probe=0.5)."
    )


def test_a_method_has_a_name_however_it_is_given():
    given = ["auto", "oa", "ewj", "ah_ewj", "rpwj", Ewj(), AhEwj(), Rpwj()]
    assert [METHODS.name_of(method) for method in given] == [
        "auto",
        "oa",
        "ewj",
        "ah_ewj",
        "rpwj",
        "ewj",
        "ah_ewj",
        "rpwj",
    ]


@pytest.mark.parametrize(("name", "defaults"), [("ewj", Ewj()), ("ah_ewj", AhEwj()), ("rpwj", Rpwj())])
def test_a_name_stands_for_the_defaults(name, defaults):
    assert METHODS.parameters(name) == defaults


def logic_of(method, unit="ticks", within=None):
    """The algorithm that a method builds in a task of 1 MB."""
    config = WindowJoin((("k", "k"),), within or band(5, 5), unit=unit, method=method)
    types = ROWS
    if unit == "microseconds":
        types = RowType(pa.schema({"k": pa.int64(), "t": pa.timestamp("us")}), keys=("k",), time="t")
    return config.logic((types, types), MemoryPages(Budget(1 << 30)), Budget(1_000_000), State())


@pytest.mark.parametrize(
    ("method", "kind"),
    [("auto", OAJoin), ("oa", OAJoin), ("ewj", EWJoin), (Ewj(), EWJoin), ("ah_ewj", AHEWJoin), ("rpwj", RPWJoin)],
)
def test_each_method_builds_its_algorithm(method, kind):
    assert type(logic_of(method)) is kind


def test_what_is_not_said_follows_from_the_budget():
    """A part of it for the windows, pages by how many there should be, 16 of them to a basic window."""
    ewj, ah_ewj = logic_of("ewj"), logic_of(AhEwj(partitions=100))
    memory = ewj.memory
    assert 200_000 <= memory == ah_ewj.memory <= 300_000
    assert ewj.chunk == 16 * ewj.page
    assert ah_ewj.page < ewj.page, "many partitions make small pages"
    of_each, of_both = (ewj.recent_size, ewj.frequent_size, ewj.leaving_size), (ah_ewj.recent_size, ah_ewj.least_size)
    assert of_each == pytest.approx((0.35 * memory, 0.075 * memory, 0.075 * memory), abs=1)
    assert of_both == pytest.approx((0.7 * memory, 0.21 * memory), abs=1)


def test_what_is_said_counts():
    logic = logic_of(AhEwj(memory=1000, page=10, chunk=40, flush=30, train=2))
    assert (logic.memory, logic.page, logic.chunk, logic.flush_blocks, logic.train) == (1000, 10, 40, 3, 6)
    assert logic_of(AhEwj(memory=1000, page=10, chunk=40)).flush_blocks == 4, "a basic window"


@pytest.mark.parametrize("method", ["ewj", "ah_ewj", "rpwj"])
def test_quiet_times_are_15_seconds_apart_where_time_has_a_unit(method):
    assert logic_of(method, unit="microseconds", within=band("5 s", "5 s"))._gap == 15_000_000
    assert logic_of(method)._gap == 0


def test_counts_decay_every_10_seconds_where_time_has_a_unit():
    assert logic_of("ah_ewj", unit="microseconds", within=band("5 s", "5 s"))._count_epoch == 10_000_000
    assert logic_of(Rpwj(count_epoch=7))._count_epoch == 7


@pytest.mark.parametrize("method", [Ewj(idle_gap="1 s"), AhEwj(count_epoch="1 s"), Rpwj(slide="1 s")])
def test_real_time_on_an_integer_column_is_refused(method):
    with pytest.raises(DurationError, match="is real time, but the time column is an integer"):
        logic_of(method)


def test_only_methods_that_put_joins_off_defer():
    defers = [
        WindowJoin((("k", "k"),), windows(5, 5), method=method).defers
        for method in ("auto", "oa", "ewj", Ewj(), "ah_ewj", "rpwj", Rpwj(), "opob", "opib", "global_order")
    ]
    assert defers == [False, False, True, True, True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        (Ewj, {"memory": "1 MB"}, "memory='1 MB' must be a number of bytes, 1 or more."),
        (Ewj, {"memory": 1.5}, "memory=1.5 must be a number of bytes, 1 or more."),
        (Ewj, {"probe": "a"}, "probe='a' must be a number from 0 to 1."),
        (AhEwj, {"partitions": "a"}, "partitions='a' must be a whole number of at least 1."),
        (AhEwj, {"gain": None}, "gain=None must be a number of at least 0."),
        (AhEwj, {"recent": "a"}, "recent='a', frequent=0.15, invalidation=0.15 must be fractions of the memory "),
        (Rpwj, {"read_rate": "20 MB"}, "read_rate='20 MB' must be above 0, in bytes per second."),
    ],
)
def test_what_is_no_number_is_refused_as_such(method, arguments, message):
    with pytest.raises(ConfigError) as refused:
        method(**arguments)
    assert str(refused.value).startswith(message)
