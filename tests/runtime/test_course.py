"""A flow from epoch to epoch: bounds, methods, versions of tables, quotas, and what is learned."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

import penstock as pk
from penstock.core.operator import State
from penstock.core.pages import Page
from penstock.core.progress import Seen, Track
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.flow.graph import OperatorNode
from penstock.local.files import detached_here
from penstock.runtime.course import Course
from penstock.runtime.records import ShardRecord
from penstock.runtime.tracks import ended, followed, woken
from penstock.storage.versioned import Ledger, Plan

ROWS = pa.table({"k": [1, 2], "t": [0, 5]})
TABLE = pa.table({"k": list(range(100)), "v": list(range(100))})


def course_of(make, ledger: Ledger | None = None) -> tuple[Course, OperatorNode]:
    flow = pk.LocalFlow()
    a, b = (flow.source(ROWS, time="t", name=name, progress=pk.ordered()) for name in "ab")
    make(a, b).to_memory()
    course = Course(flow._sinks, 10**6, 2, ledger or Ledger(), lambda node: node.config.master.table)
    return course, course.operators[-1]


def joined(method: str = "auto"):
    return lambda a, b: a.join(b, on="k", within=pk.band(before=2, after=3), method=method, name="pairs")


def looked_up(**given):
    return lambda a, b: a.union(b).lookup(TABLE, on="k", name="who", **given)


def plan(**given) -> Plan:
    return Plan(0, 0, 1, {}, **given)


def tracks(a: int, b: int) -> dict[str, Track]:
    return {"a": Track(bound=a), "b": Track(bound=b)}


def record(**given) -> ShardRecord:
    nothing = {"rows_by_port": [0, 0], "rows_out": 0, "seconds": {"work": 0.5}, "peak": 0}
    return ShardRecord(**{**nothing, **given})


def page(port: int, time: int) -> Page:
    return Page("p", port, 0, 1, 16, time, time, 0, 0)


def test_the_bound_of_a_stream_follows_from_those_of_its_sources():
    course, join = course_of(joined())
    assert course.after(join, plan(), tracks(10, 20)) == (10, 20)
    assert course.bound(join, plan(), tracks(10, 20)) == 10, "a left row at 10 may still come"
    assert course.bound(join, plan(), tracks(20, 10)) == 7, "a right row at 10 meets left rows from 7 on"


def test_rows_that_wait_hold_the_bound_of_a_lookup_back_until_the_streams_end():
    held = Ledger(ports={"who": (40,)}, states={"who": (State((page(0, 25), page(1, 3))), State((page(0, 30),)))})
    course, lookup = course_of(looked_up(method="hybridjoin"), held)
    versions = {"who": "v"}
    assert course.bound(lookup, plan(versions=versions), tracks(90, 90)) == 25, "pages of other kinds hold no rows back"
    at_the_end = ended(course.sources, tracks(90, 90))
    assert course.bound(lookup, plan(versions=versions, end=True), at_the_end) == TIME_MAX


def test_a_lookup_in_which_nothing_may_wait_passes_bounds_on():
    course, lookup = course_of(looked_up(method="inlj"))
    assert course.bound(lookup, plan(versions={"who": "v"}), tracks(90, 80)) == 80


def test_an_operator_runs_by_the_planned_method_and_in_the_planned_version_of_its_table():
    course, join = course_of(joined())
    assert course.config(join, plan(methods={"pairs": "rpwj"})).method_name == "rpwj"
    course, lookup = course_of(looked_up())
    config = course.config(lookup, plan(methods={"who": "inlj"}, versions={"who": "seven"}, quotas={"who": 3}))
    assert (config.method_name, config.version, config.quota) == ("inlj", "seven", 3)


def test_only_what_was_left_open_has_a_pilot_and_a_rerun_goes_by_its_plan():
    assert course_of(joined("ewj"))[0].pilots == {}
    course, _ = course_of(joined())
    assert course.methods() == {"pairs": "oa"}
    course.follow({"pairs": "ewj", "another": "oa"})
    assert course.pilots["pairs"]._current == "ewj"


def test_a_snapshot_keeps_its_version_and_the_newest_is_looked_for():
    known = Ledger(versions={"who": "of the first start"})
    assert course_of(looked_up(), known)[0].versions() == {"who": "of the first start"}
    newest = course_of(looked_up(freshness="latest"), known)[0].versions()
    assert newest != {"who": "of the first start"}


def test_an_operator_has_what_it_asks_for_of_the_flows_memory():
    assert course_of(joined())[0].share == 500_000
    course, lookup = course_of(looked_up(memory="100 kB"))
    assert course.share_of(lookup) == 50_000


def test_a_lookup_that_sheds_load_gets_a_quota_once_its_pace_is_known():
    course, lookup = course_of(looked_up(shed="considering", method="hybridjoin"))
    assert course.quotas(trigger=2.0) == {}
    seen = record(rows_by_port=[10], counts={"reads": 8}, seconds={"work": 1.0})
    course.report(lookup, plan(versions={"who": "v"}), tracks(5, 5), [seen], [State()])
    assert course.quotas(trigger=2.0) == {"who": 11}
    assert course.quotas(trigger=2.0, in_turn=2) == {"who": 5}
    assert course.quotas(trigger=None) == {}


def test_a_report_adds_up_shards_and_the_pilot_learns_from_it():
    before = Ledger(ports={"pairs": (0, 0)})
    course, join = course_of(joined(), before)
    shards = [record(rows_by_port=[30, 10], rows_out=4, peak=7), record(rows_by_port=[20, 20], rows_out=1, peak=9)]
    report = course.report(join, plan(methods={"pairs": "oa"}), tracks(10, 10), shards, [State((page(0, 3),))] * 2)
    assert (report.rows_in, report.rows_out, report.peak_memory, report.method) == (80, 5, 9, "oa")
    assert (report.state_rows, report.pages, report.phases) == (2, 2, {"work": 1.0})
    assert course.pilots["pairs"]._measured.load is not None


def test_what_an_epoch_leaves_has_the_bounds_that_it_ran_with_and_those_that_its_rows_showed():
    course, _ = course_of(joined())
    states = {"pairs": (State(),)}
    left = course.left(plan(methods={"pairs": "oa"}, end=False), tracks(3, 4), tracks(8, 9), states)
    assert (left.epoch, left.ports, left.methods, left.ended) == (0, {"pairs": (3, 4)}, {"pairs": "oa"}, False)
    assert [left.tracks[name].bound for name in "ab"] == [8, 9]


def test_tracks_follow_rows_and_a_silent_source_holds_nobody_back():
    course, _ = course_of(joined())
    a, b = course.sources
    sources = [replace(a, progress=pk.ordered(idle="20 us")), b]
    after = followed(sources, {}, {"a": Seen(2, 7), "b": Seen(1, 90)}, now=0)
    assert [after[name].bound for name in "ab"] == [7, 90]
    assert woken(sources, after, now=10)["a"].bound == 7
    assert woken(sources, after, now=60)["a"].bound == 90
    assert followed(sources, after, {}, now=60)["b"].heard == 0, "no row came"
    assert {track.bound for track in ended(sources, {}).values()} == {TIME_MAX}
    assert course.before(course.operators[0]) == (TIME_MIN, TIME_MIN)


class TestUnitsThatAreKept:
    """Payload that rows in state may be in."""

    def course(self, tmp_path, within: object) -> Course:
        flow = pk.LocalFlow()
        rows = ROWS.append_column("note", pa.array(["x", "y"]))
        a, b = (flow.source(rows, time="t", name=name, payload="segments") for name in "ab")
        a.join(b, on="k", within=within, name="pairs").to_memory()
        sinks = detached_here(flow._sinks, str(tmp_path), {})
        return Course(sinks, 10**6, 2, Ledger(), lambda node: node.config.master.table)

    def left(self, course: Course, first: int, latest: int, *pages: Page) -> list[int]:
        """The first numbers of what source a keeps, after an epoch of whose rows `latest` is the latest time."""
        late, state = plan(late={"a": (first, 1)}), {"pairs": (State(pages),)}
        course.ledger = course.left(late, tracks(0, 0), tracks(0, 0), state, {"a": (latest, 100)})
        return [each.first for each in course.ledger.kept["a"]]

    def test_go_with_the_last_row_that_may_be_in_them(self, tmp_path):
        course = self.course(tmp_path, pk.band(before=2, after=3))
        assert self.left(course, 0, 44, page(0, 20)) == [0]
        assert self.left(course, 1, 50, page(0, 47), page(1, 60)) == [0, 1], "results may be 3 steps later than rows"
        assert course.payload_bytes == {"a": 200}
        assert self.left(course, 2, 60, page(0, 48), page(1, 60)) == [1, 2]
        assert self.left(course, 3, 70) == [], "nothing is in state"
        assert course.ledger.units == {"a": 4}

    def test_stay_without_a_window(self, tmp_path):
        course = self.course(tmp_path, pk.always())
        assert self.left(course, 0, 44, page(0, 90)) == [0]

    def test_are_told_apart_in_few_ranges(self, tmp_path):
        course = self.course(tmp_path, pk.always())
        for number in range(600):
            self.left(course, number, number, page(0, 0))
        kept = course.ledger.kept["a"]
        assert len(kept) <= 257
        assert all(course.ledger.needs("a", number) for number in range(600))
        assert sum(each.nbytes for each in kept) == 60_000
