"""F28: packets, groups of the sizes of Table 6-2, and skewed links."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pk
from lab.workloads.netflow import PACKETS, REVERSED, DataSet, GroupSizes, Packets, SkewedLinks
from penstock.core.errors import ConfigError

SECOND = 1_000_000
TABLE_6_2 = {1: (39, 51, 10), 2: (66, 28, 6), 3: (77, 19, 4), 4: (82, 15, 3), 5: (87, 11, 2)}
"""Of the groups, how many in a hundred are small, medium, large."""


def times(packets: pa.Table) -> np.ndarray:
    return packets.column("ts").to_numpy().view(np.int64)


def kinds(sources: pa.ChunkedArray) -> tuple[float, float, float]:
    """The percentages of groups of one record, of about 15, of about 300."""
    sizes = pc.value_counts(sources).field("counts").to_numpy()
    return tuple(100 * np.mean((sizes >= low) & (sizes <= high)) for low, high in ((1, 1), (2, 100), (101, 500)))


# Groups


@pytest.mark.parametrize("number", TABLE_6_2)
def test_f28_groups_are_of_the_kinds_of_table_6_2_over_the_data_set(number):
    packets = DataSet(number, records=100_000, seed=7).table()
    assert packets.schema == PACKETS
    assert kinds(packets.column("srcIP")) == pytest.approx(TABLE_6_2[number], abs=2.5)


@pytest.mark.parametrize("number", TABLE_6_2)
def test_f28_groups_are_of_the_kinds_of_table_6_2_in_every_window(number):
    packets = DataSet(number, records=60_000, rate=20_000, window="1 s", seed=7).table()
    windows = times(packets) // SECOND
    assert Counter(windows.tolist()) == {0: 20_000, 1: 20_000, 2: 20_000}
    for window in range(3):
        sources = packets.column("srcIP").filter(pa.array(windows == window))
        assert kinds(sources) == pytest.approx(TABLE_6_2[number], abs=2.5)


@pytest.mark.parametrize(("number", "share"), [(1, 1), (2, 3), (3, 5), (4, 7), (5, 9)])
def test_f28_small_groups_have_their_share_of_the_records_exactly(number, share):
    sizes = DataSet(number).sizes.draw(100_000, seed=7)
    assert sizes.sum() == 100_000
    assert sizes[sizes == 1].sum() == pytest.approx(1000 * share, abs=2)
    assert sizes[(sizes > 1) & (sizes < 150)].sum() == pytest.approx(20_000, abs=150)


def test_f28_medium_groups_have_about_15_records_and_large_ones_about_300():
    sizes = GroupSizes(small=0.05).draw(300_000, seed=7)
    assert sizes[(sizes > 1) & (sizes < 100)].mean() == pytest.approx(15, abs=0.3)
    assert sizes[sizes > 100].mean() == pytest.approx(300, abs=8)


def test_f28_a_group_is_spread_over_the_whole_data_set():
    packets = DataSet(1, records=50_000, seed=7).table()
    counts = pc.value_counts(packets.column("srcIP"))
    busiest = counts.field("values")[int(np.argmax(counts.field("counts").to_numpy()))]
    moments = times(packets)[pc.equal(packets.column("srcIP"), busiest).to_numpy()]
    assert moments.mean() == pytest.approx(times(packets)[-1] / 2, rel=0.2)
    assert (np.diff(times(packets)) >= 0).all()


# Packets


def test_f28_packets_come_by_time_at_their_rate():
    packets = Packets(rate=4000, span="30 s", seed=7).table()
    assert packets.num_rows == pytest.approx(120_000, rel=0.02)
    assert (np.diff(times(packets)) >= 0).all()
    assert packets.schema == PACKETS
    assert pc.min(packets.column("len")).as_py() == 40
    assert pc.max(packets.column("len")).as_py() == 1500


def test_f28_any_part_can_be_made_without_what_is_before_it():
    link = Packets(rate=4000, span="30 s", seed=7)
    assert pa.concat_tables(link.slices(70_000, 70_100)) == link.table().slice(70_000, 100)


def flows(packets: pa.Table, columns) -> set[tuple]:
    return set(zip(*(packets.column(name).to_pylist() for name in columns), strict=True))


def test_f28_two_links_see_the_same_flows_in_opposite_directions():
    there, back = (Packets(rate=2000, span="10 s", flows=500, reverse=r, seed=s).table() for r, s in ((0, 1), (1, 2)))
    assert len(flows(there, REVERSED) & flows(back, REVERSED.values())) > 450
    assert len(flows(there, REVERSED) & flows(back, REVERSED)) < 5


def test_f28_requests_and_replies_join_on_the_reversed_4_tuple():
    flow = pk.LocalFlow()
    main1, main2, _ = SkewedLinks(rate=200, span="5 s", flows=50, seed=7).generate()
    there = flow.source(main1.rows, time="ts", name="main1")
    back = flow.source(main2.rows, time="ts", name="main2")
    rows = there.join(back, on=REVERSED, within=pk.windows("1 s", "1 s")).to_memory()
    flow.run()
    assert rows.table().num_rows > 1000


def test_f28_the_first_two_hosts_are_those_of_the_catalogue():
    sources = DataSet(1, records=10_000).table().column("srcIP").to_pylist()
    assert {"202.101.0.0", "202.101.0.1"} <= set(sources)


# Links


@pytest.mark.parametrize("late", [0, 1, 9])
def test_f28_two_links_are_in_step_and_a_nearly_silent_one_is_late(late):
    main1, main2, control = SkewedLinks(span="20 s", late=f"{late} s", seed=7).generate()
    for link in (main1, main2):
        assert link.rows.num_rows == pytest.approx(80_000, rel=0.02)
        assert (link.arrival == times(link.rows)).all()
    assert 5 < control.rows.num_rows < 50
    assert (control.arrival - times(control.rows) == late * SECOND).all()
    for link in (main1, main2, control):
        assert (np.diff(link.arrival) >= 0).all(), "each is in order by itself"


def test_the_same_fields_give_the_same_packets_and_another_seed_others():
    assert Packets(rate=500, span="2 s", seed=7).table() == Packets(rate=500, span="2 s", seed=7).table()
    assert Packets(rate=500, span="2 s", seed=7).table() != Packets(rate=500, span="2 s", seed=8).table()
    assert DataSet(2, records=1000, seed=7).table() == DataSet(2, records=1000, seed=7).table()
    assert DataSet(2, records=1000, seed=7).table() != DataSet(2, records=1000, seed=8).table()
    links = SkewedLinks(rate=100, span="2 s", seed=7)
    assert links.generate().main1.rows == links.generate().main1.rows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataSet(6), r"^number=6 must be from 1 to 5, for DS1 to DS5\.$"),
        (lambda: DataSet(1, records=0), r"^records=0 must be at least 1, and rate=4000 greater than 0\.$"),
        (lambda: DataSet(1, window="0 s"), r"^window='0 s' must be longer than 0: window='1 s'\.$"),
        (
            lambda: GroupSizes(small=0.9),
            r"^small=0\.9 and medium=0\.2 must not be negative, nor add up to more than 1\.$",
        ),
        (lambda: Packets(rate=0), r"^rate=0 brings no rows"),
        (lambda: Packets(rate=1, hosts=0), r"^hosts=0 must be from 1 to 1048576, the addresses there are\.$"),
        (lambda: Packets(rate=1, flows=0), r"^flows=0 must be at least 1: every packet belongs to a flow\.$"),
        (
            lambda: SkewedLinks(late="-1 s"),
            r"^late='-1 s' must not be negative: it is how far the control link is behind\.$",
        ),
        (
            lambda: SkewedLinks(rate=5, control_rate=9),
            r"^control_rate=9 must be greater than 0 and less than rate=5: the control link is the slow one\.$",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
