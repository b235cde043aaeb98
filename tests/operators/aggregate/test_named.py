"""Window aggregation feature by feature, with streams that can be checked by hand, and the printed errata that fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lab.update_counts import WindowCosts
from penstock.core.budget import Budget
from penstock.core.errors import ConfigError, WindowError
from penstock.core.meter import Tally
from penstock.core.operator import State
from penstock.core.rows import TIME, RowType
from penstock.core.time import TIME_MAX
from penstock.core.windows import PartitionedWindow, TupleWindow, landmark, session, slide_by_tuple, sliding
from penstock.kernels.hashing import hash_keys
from penstock.operators.aggregate import AdaptWid, Buffering
from penstock.operators.aggregate import spellings as pk
from penstock.operators.aggregate.aggregation import Given
from penstock.operators.aggregate.config import WindowAggregate
from penstock.operators.aggregate.paned import PanedAggregation
from penstock.operators.aggregate.partials import Source, write_folded
from penstock.operators.aggregate.wid import WidAggregation
from penstock.storage.files import FilePages
from tests.aggregates import COLUMNS, Advance, Arrive, Case, EpochEnd, Run, row, run

ROWS = RowType(COLUMNS, ("k",), "t")


def counting(window, *events, names=("rows.x",), **asked) -> Case:
    return Case(window, names, list(events), **asked)


def live(logic: WidAggregation) -> int:
    """Different partials of windows that are open."""
    for table in logic._tables:
        table.take(write_folded(table, [Source(table)]))
    return sum(page.rows for table in logic._tables for page in table.pages)


def test_f05_partitioning_differs_from_grouping():
    rows = [row(t, k=k, i=i) for t, (k, i) in enumerate([(1, 5), (1, 4), (2, 1), (2, 1), (1, 1), (1, 1)])]
    grouped = counting(TupleWindow(4, 2), Arrive(rows), names=("sum.i",))
    partitioned = counting(PartitionedWindow(4, 2, ("k",)), Arrive(rows), names=("sum.i",))
    assert run(grouped).results == grouped.expected()
    assert run(partitioned).results == partitioned.expected()
    assert run(grouped).results != run(partitioned).results
    assert (1, 0, 4, 11) in run(partitioned).results, "the four rows of 1, although two of 2 lie between them"
    assert (1, 0, 4, 9) in run(grouped).results


@pytest.mark.slow
def test_f05_arrivals_do_not_rewrite_the_panes_of_other_partitions():
    aggregation = Run(counting(PartitionedWindow(8, 2, ("k",))).config)
    aggregation.on(Arrive([row(n, k=n % 1_000) for n in range(3_000)]))
    written = 0
    put = aggregation.store.put

    def counted(rows, segment="main"):
        nonlocal written
        written += rows.num_rows
        return put(rows, segment)

    aggregation.store.put = counted
    for n in range(200):
        aggregation.on(Arrive([row(n, k=n)]))
    assert written < 2 * 200 * 10, "each pane and count is merged a logarithmic number of times"
    for _ in range(40):
        aggregation.on(Arrive([row(n, k=n % 1_000) for n in range(1_000)]))
    assert sum(page.rows for page in aggregation.logics[0].state().pages) < 12_000, "panes of closed windows are gone"


def test_f06_a_landmark_window_comes_out_for_every_slide_that_a_bound_completes():
    case = counting(landmark(10), Arrive([row(3)]), Advance(30), Arrive([row(35)]), Advance(40))
    assert sorted(run(case).results) == [(1, None, 10, 1), (1, None, 20, 1), (1, None, 30, 1), (1, None, 40, 2)]


@pytest.mark.parametrize("last", [10**6, 2**61])
def test_f06_at_the_end_slides_without_rows_are_passed_over(last):
    case = counting(landmark(10), Arrive([row(3), row(5, k=2)]), Arrive([row(last)]), Advance(TIME_MAX))
    end = last // 10 * 10 + 10
    assert sorted(run(case).results) == [(1, None, 10, 1), (1, None, end, 2), (2, None, 10, 1)]


def test_a_late_row_joins_two_sessions():
    case = counting(session(5), Arrive([row(0), row(10)]), Advance(4), Arrive([row(5)]), Advance(15), Advance(16))
    aggregation = Run(case.config)
    for event in case.events[:-1]:
        aggregation.on(event)
    assert not aggregation.out, "a row at 15 would still join"
    aggregation.on(case.events[-1])
    assert aggregation.results == Counter({(1, 0, 15, 3): 1})


def test_f09_a_bound_at_12_11_closes_window_10_and_none_after():
    minute = 60
    case = counting(sliding(10 * minute, minute), Arrive([row(10 * minute, k=7)]), method="wid")
    aggregation = Run(case.config)
    aggregation.on(case.events[0])
    aggregation.on(Advance(11 * minute))
    assert [out[1:3] for out in aggregation.results] == [(minute, 11 * minute)]
    assert live(aggregation.logics[0]) == 9, "t in [10, 20): nine of its ten windows are open"


class PrintedWid(WidAggregation):
    """Fig 6-4: only the window of the bound itself comes out."""

    def advance(self, port, bound):
        wid = self._windows.complete(bound)
        yield from self._results.close(wid, wid + 1, self._read, self._ends)


def test_f10_the_printed_aggregate_loses_windows_that_bounds_skip():
    case = counting(sliding(10, 5), Arrive([row(3), row(8), row(12)]), Advance(30), method="wid")
    assert run(case).results == case.expected()
    printed = PrintedWid(Given(case.config, (ROWS,), Run(case.config).store, Budget(1 << 20), State()))
    aggregation = Run(case.config)
    aggregation.logics = [printed]
    for event in case.events:
        aggregation.on(event)
    assert aggregation.results != case.expected()


def test_f10_state_is_open_windows_times_groups():
    rows = [row(t, k=k) for t in range(40) for k in range(3)]
    aggregation = Run(counting(sliding(12, 3), method="wid").config)
    for start in range(0, 120, 30):
        aggregation.on(Arrive(rows[start : start + 30]))
        aggregation.on(Advance(rows[min(start + 30, 119)]["t"]))
        aggregation.restart(1)
    open_windows = {w for r in rows for w in range(r["t"] // 3, (r["t"] + 12) // 3) if (w + 1) * 3 > 39}
    assert live(aggregation.logics[0]) == 3 * len(open_windows)


DISORDERED = [row(t, k=0) for t in (0, 7, 3, 12, 9, 20, 13, 31, 22, 40, 33, 34, 60)]


@pytest.mark.parametrize("late", ["consistent", "generous"])
def test_f11_buffering_is_exact_once_the_slack_covers_the_disorder(late):
    events = [Arrive(DISORDERED)]
    exact = counting(sliding(10, 5), *events, method=Buffering(9, late))
    assert run(exact).results == exact.expected()
    short = counting(sliding(10, 5), *events, method=Buffering(2, late))
    assert run(short).results != short.expected()


def test_f11_generous_slack_loses_less_than_consistent():
    lost = {}
    for late in ("consistent", "generous"):
        aggregation = Run(counting(sliding(10, 5), method=Buffering(1, late)).config)
        aggregation.on(Arrive(DISORDERED))
        lost[late] = aggregation.logics[0].lost
    assert 0 < lost["generous"] < lost["consistent"]


def test_f12_nine_by_six_has_three_panes_to_a_window_and_two_to_a_slide():
    panes = counting(sliding(9, 6)).config.panes
    assert (panes.size, panes.count, panes.step) == (3, 3, 2)


def ticking(method, ratio: int, epochs: int, groups: int = 2) -> tuple[Tally, Run]:
    """One row of each group at every step, a bound after each."""
    tally = Tally()
    aggregation = Run(counting(sliding(ratio, 1), method=method).config, meter=tally)
    for t in range(epochs):
        aggregation.on(Arrive([row(t, k=k) for k in range(groups)]))
        aggregation.on(Advance(t + 1))
    return tally, aggregation


def test_f12_merging_panes_touches_every_pane_of_a_window_once():
    tally, _ = ticking("paned", ratio=8, epochs=20)
    whole = 20 - 7
    assert tally.updates == 40, "each row once"
    assert tally.partials == 2 * (8 * whole + sum(range(1, 8))), "c·P·G for each full window (Eq 6.1)"


@pytest.mark.slow
def test_f12_two_stacks_touch_a_few_panes_however_many_a_window_has(monkeypatch):
    monkeypatch.setattr(PanedAggregation, "direct_rows", 0)
    per_slide = [ticking("paned", ratio, epochs=3 * ratio)[0].panes / (3 * ratio) for ratio in (4, 16, 64)]
    assert max(per_slide) < 4


def test_f13_sliding_by_subtraction_touches_the_panes_of_two_slides():
    tally, _ = ticking("differential", ratio=8, epochs=30)
    before = tally.panes
    later, _ = ticking("differential", ratio=8, epochs=31)
    assert later.panes - before == 2


def test_f13_what_cannot_be_subtracted_exactly_is_refused():
    with pytest.raises(ConfigError, match=r"sum.x of type double cannot do exactly. Write method='paned'"):
        Run(counting(sliding(8, 1), names=("sum.x",), method="differential").config)


@pytest.mark.parametrize(("groups", "best"), [(1, "paned"), (13, "paned"), (14, "wid"), (60, "wid")])
def test_f14_panes_are_advised_where_they_need_fewer_updates(groups, best):
    costs = WindowCosts(range=5, slide=1, rows=100, groups=groups)
    assert costs.cheapest(subtracts=False) == best
    assert costs.differential == 20 + 3 * groups
    assert costs.buffering == 40


def test_f14_the_advice_agrees_with_counted_updates():
    wid, _ = ticking("wid", ratio=8, epochs=40, groups=3)
    panes, _ = ticking("paned", ratio=8, epochs=40, groups=3)
    costs = WindowCosts(range=8, slide=1, rows=24, groups=3)
    assert (costs.paned < costs.wid) == (panes.updates + panes.partials < wid.updates)


def test_f15_the_turning_point_is_that_of_the_model():
    settings = AdaptWid(partial=16, row=64)
    at = settings.turning_point(window=600.0, slide=60)
    assert settings.lazy_bytes(at / 600, 600.0) == settings.eager_bytes(600.0, 60)
    late = replace(settings, behind=((2.0, 5.0),))
    assert late.turning_point(600.0, 60) == at + 10
    assert late.lazy_bytes((at + 10) / 600, 600.0) == settings.eager_bytes(600.0, 60)


@pytest.mark.slow
def test_f15_adapting_holds_less_than_eager_or_lazy_alone():
    rng = np.random.default_rng(3)
    keys = np.concatenate([np.repeat(np.arange(3), 400), np.repeat(np.arange(3, 60), 20), np.arange(60, 800)])
    times = rng.integers(0, 400, keys.size)
    order = np.argsort(times, kind="stable")
    most = {}
    for name, threshold in (("eager", -1.0), ("lazy", 1e9), ("adapt", None)):
        method = AdaptWid(partial=24, row=24, threshold=threshold)
        aggregation = Run(counting(sliding(100, 10), method=method).config, memory=1 << 24)
        most[name] = 0
        for some in np.array_split(order, 40):
            aggregation.on(Arrive([row(int(times[n]), k=int(keys[n])) for n in some]))
            aggregation.on(Advance(int(times[some[-1]])))
            most[name] = max(most[name], aggregation.logics[0].footprint)
    assert most["adapt"] < min(most["eager"], most["lazy"])


def oscillating() -> list:
    events = []
    for step in range(12):
        size = 12 if step % 4 == 1 else 1
        events += [Arrive([row(10 * step + n % 10, k=1) for n in range(size)]), Advance(10 * step + 5)]
    return events


def test_f15_a_group_may_turn_again_and_again():
    case = counting(sliding(20, 5), *oscillating(), method=AdaptWid(partial=8, row=8, threshold=6.0, relapse=0.8))
    case = replace(case, events=[e for e in case.events if not isinstance(e, Advance)])
    assert run(case).results == case.expected()
    grammatical, bound = [], 0
    for event in oscillating():
        if isinstance(event, Arrive):
            event = Arrive([{**r, "t": max(bound, r["t"])} for r in event.rows])
        else:
            bound = event.bound
        grammatical += [event, EpochEnd(1)]
    again = replace(case, events=grammatical)
    assert run(again).results == again.expected()


def bins(events, range_: int, purge: str) -> Counter:
    """Fig 6-7 row by row, counting: the corrected purge keeps the last expired bin, the printed one keeps none."""
    values, starts, out = {-(10**9): 0}, set(), Counter()
    for kind, at in events:
        if kind == "row":
            for edge in (at, at + range_):
                if edge not in values:
                    values[edge] = values[max(b for b in values if b <= edge)]
                if purge == "printed":
                    starts.add(edge)
            starts.add(at)
            for b in values:
                if at <= b < at + range_:
                    values[b] += 1
        else:
            for w in sorted(starts):
                if w < at:
                    out[w, values[w]] += 1
                    starts.discard(w)
            dead = [b for b in values if b < at]
            for b in dead if purge == "printed" else sorted(dead)[:-1]:
                if b > -(10**9) or purge == "fixed":
                    del values[b]
    return out


@pytest.mark.slow
def test_f07_the_printed_purge_of_bins_is_wrong_and_the_corrected_one_is_what_we_compute():
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(60):
        bound, events, mine = 0, [], []
        for _ in range(12):
            if rng.random() < 0.7:
                at = int(bound + rng.integers(0, 12))
                events.append(("row", at))
                mine.append(Arrive([row(at)]))
            else:
                bound += int(rng.integers(0, 6))
                events.append(("bound", bound))
                mine.append(Advance(bound))
        events.append(("bound", 10**6))
        case = counting(slide_by_tuple(5), *mine)
        truth = Counter({(end - 1, n): 1 for _, _, end, n in case.expected()})
        assert Counter({(end - 1, n): 1 for _, _, end, n in run(case).results}) == truth
        assert bins(events, 5, "fixed") == truth
        wrong += bins(events, 5, "printed") != truth
    assert wrong > 30


def test_results_are_never_below_the_bound_that_was_promised():
    for window in (sliding(9, 6, 1), landmark(4), session(3), slide_by_tuple(5)):
        aggregation = Run(counting(window).config)
        for t in range(0, 60, 3):
            promised = aggregation.logics[0].bounds().individual[0]
            before = len(aggregation.out)
            aggregation.on(Arrive([row(t), row(t + 7, k=2)]))
            aggregation.on(Advance(t + 1))
            ends = [out["window_end"] for rows in aggregation.out[before:] for out in rows.to_pylist()]
            assert all(end - 1 >= promised for end in ends)


def test_an_aggregate_of_an_aggregate_is_that_of_the_longer_window():
    rows = [row(t, i=t % 7) for t in range(0, 240, 7)]
    fine, coarse = (run(counting(sliding(size), Arrive(rows), names=("sum.i",))) for size in (10, 60))
    again = Run(counting(sliding(60), names=("sum.i",)).config)
    results = [out for batch in fine.out for out in batch.to_pylist()]
    again.on(Arrive([row(out["window_end"] - 1, i=out["sum.i"]) for out in results]))
    again.end()
    assert again.results == coarse.results


def test_sketches_stay_within_their_error():
    pytest.importorskip("datasketches")
    config = WindowAggregate(
        sliding(100, 50), (), (("d", pk.approx_count_distinct("i")), ("q", pk.approx_quantile("x", 0.5)))
    )
    aggregation = Run(config)
    for start in range(0, 200, 20):
        rows = [row(t, i=(t * 50 + n) % 3000, x=float(n)) for t in range(start, start + 20) for n in range(50)]
        aggregation.on(Arrive(rows))
        aggregation.on(Advance(start))
    aggregation.end()
    full = {out[:2]: out[2:] for out in aggregation.results}[50, 150]
    assert abs(full[0] - 3000) < 0.06 * 3000
    assert abs(full[1] - 25) <= 2


@pytest.mark.parametrize("values", [5, 300, 5_000])
def test_a_distinct_count_depends_on_the_values_only(values):
    pytest.importorskip("datasketches")
    config = WindowAggregate(sliding(100), (), (("d", pk.approx_count_distinct("i")),))
    found = set()
    for seed, cuts in ((0, 1), (1, 3), (2, 7)):
        aggregation = Run(config)
        order = np.random.default_rng(seed).permutation(values)
        for some in np.array_split(order, cuts):
            aggregation.on(Arrive([row(1, i=int(n)) for n in some]))
        aggregation.end()
        found.add(tuple(aggregation.results))
    assert len(found) == 1, "neither their order nor the epochs they came in"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: WindowAggregate(sliding(5), ("k",), ()), ConfigError, "needs at least one aggregate"),
        (lambda: WindowAggregate(sliding(5), ("k",), (("k", pk.count()),)), ConfigError, "two columns 'k'"),
        (lambda: WindowAggregate(sliding(5), (), (("n", pk.count()),), method="fast"), ConfigError, "method='fast'"),
        (lambda: WindowAggregate(landmark(5), (), (("n", pk.count()),), method="wid"), ConfigError, "landmark"),
        (
            lambda: WindowAggregate(PartitionedWindow(5, 1, ("g",)), ("k",), (("n", pk.count()),)),
            WindowError,
            "Add the columns to by=",
        ),
        (lambda: Run(WindowAggregate(sliding(5), ("kk",), (("n", pk.count()),))), ConfigError, "Did you mean 'k'"),
        (
            lambda: Run(WindowAggregate(sliding(5), ("k",), (("n", pk.sum("s")),))),
            ConfigError,
            "n: a sum takes numbers",
        ),
        (
            lambda: Run(WindowAggregate(TupleWindow(5, 1, "i"), ("k",), (("n", pk.count()),))),
            WindowError,
            "order='i' must be the stream's time",
        ),
    ],
)
def test_what_cannot_be_aggregated_says_so(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "memory"), [(50_000, 8 << 20), pytest.param(1_000_000, 128 << 20, marks=pytest.mark.deep)]
)
def test_a_million_groups_in_sixty_open_windows_fit_into_128_mb(tmp_path, groups, memory):
    kind = RowType(pa.schema({"k": pa.int64(), "t": pa.int64()}), ("k",), "t")
    config = WindowAggregate(sliding(60, 1), ("k",), (("n", pk.count()),))
    store, state, budget = FilePages(str(tmp_path)), State(), Budget(memory)
    rng, arrivals = np.random.default_rng(0), groups // 10
    latest = np.full(groups, -1_000)
    out = total = expected = 0
    for t in range(63):
        k = rng.integers(0, groups, arrivals)
        latest[k] = t
        expected += int((latest > t - 60).sum())
        table = pa.table({"k": k, "t": np.full(k.size, t)})
        logic = config.logic((kind,), store, budget, state)
        list(logic.advance(0, -1_000 if t <= 60 else t))
        rows = kind.enter(table.append_column(TIME, table["t"]), hash_keys([table["k"].combine_chunks()]))
        list(logic.rows(0, rows))
        for done in logic.advance(0, t + 1) if t >= 60 else ():
            out += done.rows.num_rows
            total += int(np.sum(done.rows.column("n").to_numpy()))
        state = logic.state()
    assert out == expected, "a result for every group that was there in the last sixty steps"
    assert total == arrivals * sum(min(t + 1, 60) for t in range(63))
    assert budget.peak <= memory


def test_f04_rows_numbered_by_their_source_may_come_in_disorder():
    rows = [row(n, k=n % 3, i=n) for n in (4, 1, 0, 3, 2, 7, 5, 6)]
    case = counting(
        TupleWindow(4, 2, order="t"), Arrive(rows[:3]), Advance(2), Arrive(rows[3:]), Advance(8), names=("sum.i",)
    )
    assert run(case).results == case.expected()


def test_zoned_timestamps_come_back_as_they_were():
    kind = pa.timestamp("us", "Europe/Berlin")
    columns = pa.schema({"k": pa.int64(), "t": kind})
    config = WindowAggregate(sliding("1 h"), ("k",), (("n", pk.count()),), unit="microseconds")
    rows = RowType(columns, ("k",), "t")
    assert config.output((rows,)).field("window_end").type == kind
    logic = config.logic((rows,), Run(counting(sliding(1)).config).store, Budget(1 << 20), State())
    table = pa.table({"k": [1], "t": pa.array([3_600_000_001], kind)})
    times = table["t"].cast(pa.timestamp("us", "UTC")).combine_chunks().view(pa.int64())
    list(logic.rows(0, rows.enter(table.append_column(TIME, times), hash_keys([table["k"].combine_chunks()]))))
    (out,) = logic.advance(0, TIME_MAX)
    assert out.rows.column("window_start").cast(pa.int64()).to_pylist() == [3_600_000_000]
