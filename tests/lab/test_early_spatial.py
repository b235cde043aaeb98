"""The early spatial joins (R1–R4): equal to brute force on the simulated disk, and the source's shapes in small."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.box_matching import covers, intersects, meeting
from lab.early_runs import BUILD, COMPARED, IO, JOIN, LEVELS, RESPONSE, Early, Shape
from lab.early_spatial import JOINS, LEFT, RIGHT, Room, Sbnl, Sibnl, Streams
from lab.page_buffer import IO_SECONDS, PageBuffer, PageCounts
from lab.paged_rtree import PagedTree
from lab.workloads.boxes import Cells, Clusters, Lines
from penstock.core.errors import ConfigError

SMALL, MEDIUM = 1 / 64, 1 / 16
ROOM = Room(frames=20, records=8)


def boxes(count: int, seed: int, largest: float = 0.1) -> np.ndarray:
    """On a grid of 64, so that many touch."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 64, (count, 2)) / 64
    return np.hstack([low, low + rng.integers(0, round(largest * 64) + 1, (count, 2)) / 64])


def brute(left, right) -> list[tuple[int, int]]:
    return sorted(zip(*(some.tolist() for some in np.nonzero(intersects(left[:, None], right[None]))), strict=True))


def pairs(joined) -> list[tuple[int, int]]:
    return sorted(zip(joined.left.tolist(), joined.right.tolist(), strict=True))


def spent(run: Early, measure, scale: float = SMALL, seed: int = 0) -> float:
    return run.point(scale, seed, lambda _: None).totals[measure.name]


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize(("left", "right"), [(300, 300), (301, 90), (0, 40), (40, 0), (7, 1), (160, 160)])
def test_r1_each_join_equals_brute_force_without_duplicates_and_counts_pages(name, left, right):
    streams = Streams.steady(boxes(left, 1), boxes(right, 2))
    joined = JOINS[name](ROOM).run(streams)
    assert pairs(joined) == brute(*streams.boxes)
    counts, last = joined.counts, joined.last
    assert counts.total == last.build + last.join
    assert counts.clock.disk == pytest.approx(counts.total * IO_SECONDS)
    if left >= 300 and right >= 90:
        assert counts.reads > 0
        assert counts.writes > 0


def test_r1_pairs_meet_as_their_boxes_say():
    left, right = boxes(400, 3), boxes(300, 4, largest=0.5)
    assert list(zip(*(some.tolist() for some in meeting(left, right)), strict=True)) == brute(left, right)


def test_r1_the_buffer_is_lru_and_writes_what_was_changed():
    buffer = PageBuffer(2, PageCounts())
    for page in ("a", "b", "a", "c"):  # b leaves
        buffer.read(page)
    assert buffer.counts.reads == 3
    buffer.read("a")
    assert buffer.counts.reads == 3
    buffer.write("a")
    buffer.read("c")
    buffer.read("d")  # a leaves, and is written
    assert (buffer.counts.reads, buffer.counts.writes) == (4, 1)
    with pytest.raises(ConfigError, match="frames=0 leaves no frame"):
        PageBuffer(0, PageCounts())
    with pytest.raises(ConfigError, match="frames=2 leaves no page for a block"):
        Room(2).blocks(1)


def test_r1_nodes_that_fit_into_the_buffer_are_never_read():
    """All reads and writes of the library's tree go through the buffer: a large one moves nothing, a small one much."""
    moved = []
    for frames in (1000, 4):
        tree = PagedTree("tree", PageBuffer(frames, PageCounts()), 8)
        for number, box in enumerate(boxes(500, 5)):
            tree.insert(number, box)
        moved.append(tree.buffer.counts.total)
    assert moved[0] == 1  # the empty root
    assert moved[1] > 500


def test_r2_sbnl_moves_fewer_pages_than_static_and_sibnl_compares_fewer():
    static, sbnl, sibnl = (Early(name) for name in ("static", "SBNL", "SIBNL"))
    assert spent(sbnl, IO) < 0.7 * spent(static, IO)
    assert spent(sibnl, COMPARED) < 0.9 * spent(sbnl, COMPARED)
    room, rows = Room(16, 26), round(100_000 * SMALL)
    assert spent(sbnl, COMPARED) == room.pages(rows) ** 2


def test_r2_sibnl_wins_clustered_and_loses_shuffled():
    clustered, shuffled = (
        spent(Early("SIBNL", order=order), RESPONSE, MEDIUM) / spent(Early("SBNL", order=order), RESPONSE, MEDIUM)
        for order in ("clustered", "shuffled")
    )
    assert clustered < 0.95
    assert 1 < shuffled < 1.5


def test_r2_fully_dynamic_reads_for_every_record_and_blocks_read_once():
    fully, block, static = (
        Early(name).point(MEDIUM, 0, lambda _: None) for name in ("fully dynamic", "block dynamic", "static")
    )
    assert fully.totals[JOIN.name] > 2 * block.totals[JOIN.name]
    assert block.totals[BUILD.name] == pytest.approx(static.totals[BUILD.name], rel=0.25)
    for one, least in ((fully, 20), (block, 60)):
        assert (one.paths[RESPONSE.name] < static.paths[RESPONSE.name])[: least + 1].all()


def test_r3_the_tree_of_summaries_has_one_level_less():
    full, summary = (Shape(kind, False).point(SMALL, 0, lambda _: None).totals[LEVELS.name] for kind in (False, True))
    assert (full, summary) == (3, 2)


@pytest.mark.parametrize(
    "setting", [{"rows": 200_000}, {"rows": 400_000}, {"country": "Greece"}, {"country": "Germany"}], ids=str
)
def test_r3_in_small_sbnl_and_sibnl_take_less_than_static(setting):
    """At the source's full size this holds for the synthetic sets, but not for the two countries."""
    scale = 1 / 100 if "rows" in setting else 1 / 8
    static = spent(Early("static", **setting), RESPONSE, scale)
    for name in ("SBNL", "SIBNL"):
        assert spent(Early(name, **setting), RESPONSE, scale) < static


@pytest.mark.parametrize("pages", [2, 3, 5])
def test_r4_a_summary_may_cover_several_pages(pages):
    streams = Streams.steady(*Clusters(4, largest=0.02).draw(600, seed=2))
    assert pairs(Sibnl(ROOM, pages=pages).run(streams)) == brute(*streams.boxes)


@pytest.mark.parametrize("make", [Sbnl, lambda room, keep: Sibnl(room, keep, pages=2)], ids=["SBNL", "SIBNL"])
@pytest.mark.parametrize("keep", [0.0, 150.0, 400.0, math.inf])
def test_r4_expired_pages_are_not_joined(make, keep):
    """By definition two pages are joined when the later of their blocks is complete, if the earlier is not too old."""
    streams = Streams.steady(boxes(500, 6), boxes(430, 7))
    join = make(ROOM, keep)
    found = pairs(join.run(streams))
    size, block = ROOM.records, join.block
    expected = []
    for mine, theirs in brute(*streams.boxes):
        places, counts = (mine, theirs), [len(some) for some in streams.boxes]
        done, page = (
            [streams.moments[side][min((places[side] // unit + 1) * unit, counts[side]) - 1] for side in (LEFT, RIGHT)]
            for unit in (block, size)
        )
        earlier = RIGHT if done[LEFT] > done[RIGHT] else LEFT
        if page[earlier] >= max(done) - keep:
            expected.append((mine, theirs))
    assert found == expected
    assert (len(found) < len(brute(*streams.boxes))) == (keep < math.inf)


@pytest.mark.parametrize("rejected", ["joining trees", "marking records"])
def test_r4_the_rejected_variants_are_slower_than_block_dynamic(rejected):
    assert spent(Early(rejected), RESPONSE) > 1.1 * spent(Early("block dynamic"), RESPONSE)


def test_nothing_is_done_before_it_arrives():
    waited = Early("SBNL", wait=2.0).point(SMALL, 0, lambda _: None)
    at_once = Early("SBNL").point(SMALL, 0, lambda _: None)
    rows = round(100_000 * SMALL)
    assert waited.totals[RESPONSE.name] > 1.8 * rows > at_once.totals[RESPONSE.name]
    assert waited.totals[IO.name] == pytest.approx(at_once.totals[IO.name], rel=0.1)


def test_clusters_share_a_quarter():
    left, right = Clusters(1).draw(50_000, seed=4)
    (a,), (b,) = covers(left, 50_000), covers(right, 50_000)
    width, height = (min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (0, 1))
    assert width * height == pytest.approx(0.2 * 0.2 / 4, rel=0.1)
    shuffled = Clusters(5, "shuffled").draw(1000, seed=4)[0]
    areas = np.prod(np.subtract(*np.hsplit(covers(shuffled, 100), 2)[::-1]), axis=1)
    assert areas.min() > 0.1


def test_workloads_are_checked():
    with pytest.raises(ConfigError, match="apart=2 is not a fraction"):
        Cells(apart=2)
    with pytest.raises(ConfigError, match="over=3 cells is no rectangle"):
        Cells(over=3)
    assert [len(some) for some in Lines(100, 50).draw(1.0, seed=1)] == [100, 50]
