"""F26: in-order and out-of-order plans give the same answers, and what each holds is counted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.plans import QUERIES, Plan, plan
from lab.workloads.netflow import PACKETS, Packets
from penstock.core.errors import ConfigError
from tests.streams import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND
SPAN = 3 * MINUTE

BEHIND = {"1-2": "Control", "8-1": "packets", "8-2": "B", "8-3": "BD", "8-4": "Control", "8-5": "Control"}
"""Which sources come late in the experiment on each query."""

JOINS = {"8-3": 10, "8-4": 60}
"""The queries that join, and the seconds of their windows."""

REPLIES = ("C", "D", "Main2")


def links(query: str, rate: float = 20, span: int = SPAN) -> dict[str, pa.Table]:
    """A link for each source of a query, in order; the fewer flows, the more packets of a group, or pairs of a join."""
    flows = 4_000 if query in JOINS else 60
    return {
        name: Packets(
            rate if name != "Control" else 1, f"{span} us", flows, reverse=name in REPLIES, seed=number
        ).table()
        for number, name in enumerate(plan(query, "oop").sources)
    }


def times(packets: pa.Table) -> np.ndarray:
    return packets.column("ts").to_numpy().view(np.int64)


def run(a_plan: Plan, packets: dict[str, pa.Table], late: dict[str, int], step: int) -> Plan:
    """Packets as they come, a step of time after the other, each with the bound that its link keeps."""
    last = max(int(times(rows)[-1]) + late[name] for name, rows in packets.items())
    for now in range(0, last + step, step):
        for name, rows in packets.items():
            begin, end = np.searchsorted(times(rows), [now - late[name], now - late[name] + step])
            a_plan.rows(name, rows.slice(begin, end - begin))
            a_plan.bound(name, now - late[name] + step)
    a_plan.end()
    return a_plan


def behind(query: str, seconds: int) -> dict[str, int]:
    """By how much each source is late."""
    late = BEHIND[query]
    return {
        name: seconds * SECOND if name == late or (len(name) == 1 and name in late) else 0
        for name in plan(query, "oop").sources
    }


def both(query: str, seconds: int, rate: float = 20, step: int = 5 * SECOND, span: int = SPAN) -> tuple[Plan, Plan]:
    packets = {
        name: rows.slice(0, np.searchsorted(times(rows), span)) for name, rows in links(query, rate, span).items()
    }
    late = behind(query, seconds)
    return run(plan(query, "iop"), packets, late, step), run(plan(query, "oop"), packets, late, step)


def multiset(table: pa.Table) -> Counter:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sources_of(query: str, packets: dict[str, pa.Table]) -> list[list[dict]]:
    """The rows of each side of a query, brute force."""
    sides = {"8-3": ("AB", "CD"), "8-4": (("Main1",), ("Main2", "Control"))}.get(query, (tuple(packets),))
    return [[row for name in side for row in packets[name].to_pylist()] for side in sides]


def counted(rows: list[dict], size: int, slide: int, by: tuple[str, ...]) -> Counter:
    """The oracle: every window that a row is in, window by window."""
    counts: Counter = Counter()
    for row in rows:
        at = (row["ts"].timestamp()) * SECOND
        end = (int(at) // slide + 1) * slide
        while end - size <= at < end:
            counts[*(row[name] for name in by), end] += 1
            end += slide
    return counts


WINDOWS = {
    "1-2": (MINUTE, MINUTE, ()),
    "8-1": (MINUTE, MINUTE, ("srcIP", "destIP")),
    "8-2": (MINUTE, MINUTE, ("srcIP", "destIP")),
    "8-5": (5 * MINUTE, MINUTE, ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("seconds", [pytest.param(0, marks=pytest.mark.deep), 20])
def test_f26_both_architectures_give_the_answers_of_the_definition(query, seconds):
    iop, oop = both(query, seconds)
    packets = links(query)
    assert multiset(iop.results()) == multiset(oop.results())
    assert iop.late == oop.late == 0
    if query in WINDOWS:
        size, slide, by = WINDOWS[query]
        ends = oop.results().column("window_end").cast(pa.int64()).to_pylist()
        found = zip(*(oop.results().column(name).to_pylist() for name in by), ends, strict=True)
        counts = Counter(dict(zip(found, oop.results().column("count").to_pylist(), strict=True)))
        assert counts == counted(sources_of(query, packets)[0], size, slide, by)
    else:
        left, right = sources_of(query, packets)
        assert oop.results().num_rows == pairs(left, right, JOINS[query]) > 0


def pairs(left: list[dict], right: list[dict], seconds: int) -> int:
    """How many pairs of one tumbling window are request and reply, counted key by key."""
    requests = Counter(
        (int(row["ts"].timestamp()) // seconds, row["srcIP"], row["srcPort"], row["destIP"], row["destPort"])
        for row in left
    )
    replies = Counter(
        (int(row["ts"].timestamp()) // seconds, row["destIP"], row["destPort"], row["srcIP"], row["srcPort"])
        for row in right
    )
    return sum(count * replies[key] for key, count in requests.items())


def few(moments: list[int], reverse: bool) -> pa.Table:
    """Packets of two flows at these seconds."""
    flow = [("a", 1, "b", 2), ("b", 2, "a", 1)]
    rows = [(*flow[(second + reverse) % 2], 40, second * SECOND) for second in moments]
    columns = list(zip(*rows, strict=True)) or [()] * len(PACKETS)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, PACKETS, strict=True)], PACKETS)


@st.composite
def feeds(draw):
    """A query, the seconds of each link's packets, in order, and in which order links send how many of them."""
    query = draw(st.sampled_from(QUERIES))
    names = plan(query, "oop").sources
    moments = {name: sorted(draw(st.lists(st.integers(0, 150), max_size=12))) for name in names}
    return query, moments, draw(st.lists(st.tuples(st.sampled_from(names), st.integers(0, 5)), max_size=20))


@given(feeds())
@examples(0.1)
def test_f26_both_architectures_agree_however_links_take_turns(case):
    query, moments, turns = case
    found = []
    for kind in ("iop", "oop"):
        each, sent = plan(query, kind), dict.fromkeys(moments, 0)
        for name, count in [*turns, *((name, 12) for name in moments)]:
            now = moments[name][sent[name] : sent[name] + count]
            sent[name] += len(now)
            each.rows(name, few(now, reverse=name in REPLIES))
            if sent[name] < len(moments[name]):
                each.bound(name, moments[name][sent[name]] * SECOND)
        each.end()
        assert each.late == each.holding().total == 0
        found.append(multiset(each.results()))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("query", ["8-2", "8-4", "8-5"])
def test_f26_out_of_order_holds_no_more_than_in_order(query):
    """Figures 8-8, 8-10 and 8-11, small; rates are such that a group has several packets in a window."""
    rate = {"8-2": 50, "8-5": 3}.get(query, 10)
    # In order, the packets of a whole window are held: a stream must be longer than its windows to show more.
    span = 7 * MINUTE if query == "8-5" else SPAN
    held = {seconds: both(query, seconds, rate, span=span) for seconds in (0, 10, 40)}
    for seconds, (iop, oop) in held.items():
        assert oop.held <= iop.held, f"{seconds} s late: {oop.most} against {iop.most}"
    first, last = held[0], held[40]
    assert last[0].held - first[0].held > last[1].held - first[1].held, "in order grows faster with the skew"


@pytest.mark.slow
def test_f26_in_a_join_both_hold_about_the_same():
    """Figure 8-9: tuples that one architecture holds before the join, the other holds in it."""
    for seconds in (0, 20):
        iop, oop = both("8-3", seconds, rate=8, step=SECOND, span=MINUTE)
        assert 0.9 < oop.held / iop.held <= 1.2
        assert oop.most.by_operator["meld AB"] == 0


def test_f26_a_union_in_order_holds_what_the_silent_link_holds_up_and_the_other_holds_none():
    iop, oop = both("1-2", 40)
    assert iop.most.by_operator["merge links"] > 40 * 2 * 15
    assert oop.most.by_operator == {"meld links": 0, "window": 2}


def test_f26_a_source_out_of_order_is_sorted_within_the_slack():
    packets = links("8-1")["packets"]
    shuffled = packets.take(np.argsort(times(packets) + np.random.default_rng(7).integers(0, SECOND, packets.num_rows)))
    oop, iop, hasty = plan("8-1", "oop"), plan("8-1", "iop", slack="1 s"), plan("8-1", "iop", slack="10 ms")
    assert iop.operators == ("sort packets", "window")
    for each in (oop, iop, hasty):
        for start in range(0, shuffled.num_rows, 50):
            each.rows("packets", shuffled.slice(start, 50))
        each.end()
    assert multiset(iop.results()) == multiset(oop.results())
    assert iop.late == 0 < hasty.late, "less slack than disorder loses rows"


def test_f26_batches_are_taken_as_well_as_tables():
    packets = links("8-1")["packets"]
    oop = plan("8-1", "oop")
    for batch in packets.to_batches():
        oop.rows("packets", batch)
    oop.end()
    assert sum(oop.results().column("count").to_pylist()) == packets.num_rows
    assert oop.holding().total == 0


def test_f26_results_have_their_columns_before_there_are_any():
    assert plan("8-1", "oop").results().column_names == ["srcIP", "destIP", "window_start", "window_end", "count"]
    assert plan("8-3", "iop").results().column_names[: len(PACKETS)] == PACKETS.names


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan("9-9", "oop"), r"query='9-9' is not in the catalogue\. Write one of 1-1,"),
        (lambda: plan("8-1", "both"), r"kind='both' is not an architecture\. Write 'iop' or 'oop'"),
        (lambda: plan("5-4", "oop"), r"query='5-4' asks for more than unions, joins and sliding windows.*Write one of"),
        (lambda: plan("7-1", "oop"), r"query='7-1' asks for more than"),
        (lambda: plan("8-1", "oop").bound("packet", 0), r"source='packet' is not .* Did you mean 'packets'\?"),
    ],
)
def test_f26_what_is_no_plan_is_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
