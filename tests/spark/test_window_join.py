"""Window joins on Spark equal their definition: any epoch cut, any number of shards, restarts, every kind of join."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.operators.window_join import JoinMethodLike
from tests.oracle import window_join as oracle
from tests.spark.conftest import Feed
from tests.streams import COLUMNS, HOWS, ah_ewjs, ewjs, keys, near, pairs_of, rpwjs, table, withins

pytestmark = pytest.mark.spark

ROWS = st.builds(lambda k, t: {"k": k, "t": t}, k=keys, t=st.integers(-10, 14))


@dataclass(frozen=True)
class StreamCase:
    """Two streams cut into epochs, a delay that makes some rows late, and a restart on other shards."""

    within: Any
    how: str
    epochs: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]
    delay: int
    cut: int
    shards: tuple[int, int]
    methods: tuple[JoinMethodLike, JoinMethodLike]


def rows(*pairs: tuple[int | None, int], first: int) -> list[dict[str, Any]]:
    """Rows (key, time); ids count from `first`."""
    return [{"k": k, "t": t, "id": first + n} for n, (k, t) in enumerate(pairs)]


PASSED_BY = StreamCase(
    within=pk.band(before=-1, after=16, ends="()"),
    how="full",
    epochs=[
        (
            rows((1, 13), (2, 12), first=0),
            rows(
                (120, -7),
                (547, 0),
                (44, 3),
                (None, 3),
                (2, -1),
                (491, -2),
                (1, 3),
                (1, 6),
                (1, 2),
                (537, 1),
                (0, 11),
                (660, -8),
                first=2,
            ),
        ),
        (
            rows((182, -6), (1, -7), (364, 3), (311, 6), (3, -2), first=14),
            rows(
                (None, 2),
                (1, 8),
                (2, 15),
                (142, 14),
                (182, -6),
                (3, 12),
                (1, 4),
                (5, 11),
                (1, 0),
                (1, 2),
                (1, 8),
                first=19,
            ),
        ),
        (
            rows((5, 5), first=30),
            rows(
                (1, 17),
                (2, 4),
                (22, 7),
                (1, 5),
                (283, 13),
                (3, 14),
                (385, 18),
                (17, 2),
                (1, 8),
                (1, 19),
                (999, 7),
                (612, 0),
                first=31,
            ),
        ),
        (
            rows(
                (2, 5),
                (2, 11),
                (None, -1),
                (1, 6),
                (4, 2),
                (2, 21),
                (625, 15),
                (1, 0),
                (5, 1),
                (0, 17),
                (None, 17),
                (1, 10),
                first=43,
            ),
            rows((244, 20), (None, 17), (870, 10), (5, 13), (2, 11), (5, 20), (4, 10), first=55),
        ),
    ],
    delay=10,
    cut=2,
    shards=(3, 3),
    methods=(
        "rpwj",
        pk.Ewj(
            memory=4, page=2, row=1, chunk=7, recent=1.0, frequent=0.0, invalidation=0.0, probe=0.5, gain=0, refresh=1
        ),
    ),
)
"""Right rows 25 and 28 come when the left bound has passed them and right rows have left their window."""


METHODS = st.one_of(st.sampled_from(["auto", "oa", "ewj", "ah_ewj", "rpwj"]), ewjs(), ah_ewjs(), rpwjs())


@st.composite
def stream_cases(draw: st.DrawFn) -> StreamCase:
    count = draw(st.integers(2, 4))
    drift = draw(st.integers(0, 8))
    number = iter(range(10_000))
    epochs = []
    for epoch in range(count):
        sides = []
        for _ in range(2):
            rows = draw(st.lists(ROWS, max_size=12))
            sides.append([{"k": r["k"], "t": r["t"] + epoch * drift, "id": next(number)} for r in rows])
        epochs.append(tuple(sides))
    return StreamCase(
        within=draw(withins),
        how=draw(st.sampled_from(HOWS)),
        epochs=epochs,
        delay=draw(st.integers(0, 30)),
        cut=draw(st.integers(1, count - 1)),
        shards=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        methods=(draw(METHODS), draw(METHODS)),
    )


def in_time(case: StreamCase, side: int) -> tuple[list[dict[str, Any]], set[int]]:
    """By the definition of `bounded_delay`: rows not below the largest time of earlier epochs less the delay."""
    top, kept, late = None, [], set()
    for epoch in case.epochs:
        bound = None if top is None else top - case.delay
        for row in epoch[side]:
            if bound is not None and row["t"] < bound:
                late.add(row["id"])
            else:
                kept.append(row)
        times = [row["t"] for row in epoch[side]]
        top = max([*times, *([] if top is None else [top])], default=None)
    return kept, late


def start(spark, feeds, case, folder, shards, method):
    flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory="64 MB", shards=shards)
    left, right = (
        flow.source(feed.stream(spark), time="t", progress=pk.bounded_delay(case.delay), name=name)
        for feed, name in zip(feeds, ("left", "right"), strict=True)
    )
    joined = left.join(right, on="k", within=case.within, how=case.how, method=method)
    return flow, joined.to_memory(), joined.late.to_memory()


@settings(
    max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(case=stream_cases())
@example(case=PASSED_BY)
def test_a_stream_join_equals_its_definition_across_a_restart_on_other_shards_by_another_method(
    spark, case: StreamCase
):
    with tempfile.TemporaryDirectory() as folder:
        feeds = [Feed(Path(folder) / name, COLUMNS) for name in ("left", "right")]
        results, late = [], []
        parts = case.epochs[: case.cut], case.epochs[case.cut :]
        for part, shards, method in zip(parts, case.shards, case.methods, strict=True):
            for epoch in part:
                for feed, rows in zip(feeds, epoch, strict=True):
                    feed.add(table(rows))
            flow, out, out_late = start(spark, feeds, case, folder, shards, method)
            flow.run(end=feeds[0].count == len(case.epochs))
            results += out.table().to_batches()
            late += out_late.table().column("id").to_pylist()
        (left, left_late), (right, right_late) = in_time(case, 0), in_time(case, 1)
        assert pairs_of(results) == oracle.window_join(left, right, near(case.within), case.how)
        assert Counter(late) == Counter(left_late | right_late)


@pytest.mark.parametrize("method", ["ewj", "rpwj"])
def test_a_row_that_comes_when_the_other_stream_has_passed_it_is_not_lost(spark, tmp_path, method):
    """The left row 3 comes when the right bound is at -53 and the left stream has let row 1 go."""
    left, right = (Feed(tmp_path / name, COLUMNS) for name in ("left", "right"))
    for feed, epochs in ((left, [((1, -60), (1, -51)), ((1, -63),)]), (right, [((1, -53),), ()])):
        for number, pairs in enumerate(epochs):
            feed.add(table(rows(*pairs, first=1 + 2 * number)))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="64 MB", shards=1)
    late = flow.source(left.stream(spark), time="t", progress=pk.bounded_delay(30), name="left")
    early = flow.source(right.stream(spark), time="t", progress=pk.ordered(), name="right")
    out = late.join(early, on="k", within=pk.band(before=0, after=0), how="left", method=method).to_memory()
    flow.run()
    assert sorted(out.table().column("id").to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize(("method", "closed_by"), [("oa", 2), ("ewj", 4)])
def test_windows_over_the_later_time_of_pairs_close_by_the_joint_bound(spark, tmp_path, method, closed_by):
    """Q7-1 (F18): a left and a right row each minute, ±2 minutes; the window of minute 1 needs both bounds at 2."""
    left, right = (Feed(tmp_path / name, COLUMNS) for name in ("left", "right"))
    for minute in range(6):
        for feed in (left, right):
            feed.add(table(rows((1, minute), first=minute)))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="64 MB", shards=1)
    a, b = (
        flow.source(feed.stream(spark), time="t", progress=pk.ordered(), name=name)
        for feed, name in ((left, "left"), (right, "right"))
    )
    pairs = a.join(b, on="k", within=pk.band(before=2, after=2), time="latest", method=method)
    out = pairs.window(range=1).by("k").agg(n=pk.count()).to_memory()
    flow.run(end=False)
    shown = {epoch: rows.column("window_start").to_pylist() for epoch, rows in out.sink.epochs.items() if rows.num_rows}
    assert next(epoch for epoch, starts in shown.items() if 1 in starts) == closed_by
