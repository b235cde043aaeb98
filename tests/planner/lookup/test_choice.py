"""Which method a lookup join runs by, what is said of it, and how it follows what is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.core.errors import ConfigError
from penstock.core.master import TableSize
from penstock.kernels.zipf import ranks_at
from penstock.operators.lookup import METHODS
from penstock.planner import (
    STORES,
    LookupChoice,
    LookupLoad,
    LookupPilot,
    LookupPreference,
    ReadCosts,
    choose_lookup,
    explain_lookup,
    keys_asked,
    predict_lookup,
)
from penstock.planner.lookup.costs import COSTS
from penstock.planner.lookup.skew import Skew

BIG = TableSize(rows=10_000_000, nbytes=1_200_000_000)
SMALL = TableSize(rows=50_000, nbytes=6_000_000)
LOAD = LookupLoad(1e5, 100.0, BIG, memory=128_000_000, partitions=1200)
SEEKS = ReadCosts(request=0.0, key=1e-2, bandwidth=100e6, seek=8e-3)


def chosen(load, reads, current=None):
    return choose_lookup(load, reads, current).method


def test_a_table_that_fits_a_part_of_the_memory_is_held_whole():
    load = replace(LOAD, table=SMALL, partitions=6)
    choice = choose_lookup(load, STORES["pages"])
    assert choice.method == "broadcast"
    assert choice.reason.startswith("the table of about 6.0 MB fits the memory of one task (128.0 MB)")


def test_a_table_that_does_not_is_not():
    others = {other.method: other for other in choose_lookup(LOAD, STORES["pages"]).alternatives}
    assert others["broadcast"].cost is None
    assert "does not fit" in others["broadcast"].why


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
def test_mapped_pages_need_no_cache(exponent):
    assert chosen(replace(LOAD, exponent=exponent), STORES["pages"]) == "inlj"


def test_a_database_behind_a_socket_is_worth_a_cache_if_keys_are_skewed():
    skewed = choose_lookup(replace(LOAD, exponent=1.0), STORES["sql"])
    assert skewed.method == "cinlj"
    assert "a cache answers" in skewed.reason
    even = choose_lookup(LOAD, STORES["sql"])
    assert even.method == "inlj"
    assert "so even that a cache would answer only 4 % of the rows" in even.reason


def test_rows_that_may_wait_share_reads_where_reads_are_dear():
    choice = choose_lookup(replace(LOAD, max_age=60.0), SEEKS)
    assert choice.method == "hybridjoin"
    assert "share a read" in choice.reason


def test_rows_that_may_not_wait_do_not():
    choice = choose_lookup(LOAD, SEEKS)
    assert choice.method in ("inlj", "cinlj")
    waiting = [other for other in choice.alternatives if "no max_age= allows it" in other.why]
    assert {other.method for other in waiting} == {
        "hybridjoin",
        "chybridjoin",
        "meshjoin",
        "cmeshjoin",
        "partitioned",
    }


def test_without_index_and_order_the_table_is_read_round_and_round():
    load = replace(LOAD, rows_per_second=5e3, max_age=60.0, clustered=False, indexed=False)
    assert chosen(load, STORES["parquet"]) == "meshjoin"
    assert chosen(replace(load, max_age=None), STORES["parquet"]) == "inlj"
    barred = {other.method: other.why for other in choose_lookup(load, STORES["parquet"]).alternatives}
    assert "which partition holds a key" in barred["hybridjoin"]


def test_only_some_rows_of_a_key_are_not_cached():
    load = replace(LOAD, max_age=60.0, clustered=False, unique=False, indexed=False)
    barred = {other.method: other.why for other in choose_lookup(load, STORES["parquet"]).alternatives}
    assert "only some rows of a key" in barred["cmeshjoin"]


def test_partitions_are_kept_where_frequent_keys_lie_together():
    load = replace(LOAD, max_age=60.0, local=True, exponent=0.9)
    choice = choose_lookup(load, SEEKS)
    assert choice.method == "partitioned"
    assert "frequent keys lie together" in choice.reason


def test_a_method_that_runs_goes_on_unless_a_change_pays():
    load = replace(LOAD, exponent=1.0)
    assert chosen(load, STORES["sql"]) == "cinlj"
    kept = choose_lookup(load, STORES["sql"], current="inlj")
    assert kept.method == "inlj"
    assert kept.reason == "INLJ runs already, and CINLJ is not faster by enough to switch"
    assert chosen(load, STORES["sql"].scaled(4), current="inlj") == "cinlj"
    assert chosen(load, STORES["pages"], current="cinlj") == "inlj"


def test_a_method_that_is_no_longer_possible_is_left():
    assert chosen(LOAD, STORES["pages"], current="broadcast") == "inlj"
    assert chosen(LOAD, SEEKS, current="hybridjoin") in ("inlj", "cinlj")


def test_a_task_caches_its_own_part_of_the_keys():
    load = replace(LOAD, exponent=0.8)
    alone, one_of_four = (predict_lookup(replace(load, shards=n), STORES["sql"])["cinlj"] for n in (1, 4))
    assert one_of_four.hit_share > alone.hit_share + 0.1


def test_costs_follow_rates_and_age():
    load = replace(LOAD, max_age=60.0)
    brief = replace(load, max_age=0.01)
    assert predict_lookup(brief, SEEKS)["hybridjoin"].seconds > 2 * predict_lookup(load, SEEKS)["hybridjoin"].seconds
    assert predict_lookup(brief, SEEKS)["hybridjoin"].waits < predict_lookup(load, SEEKS)["hybridjoin"].waits


def test_the_choice_is_told_with_what_each_method_would_take():
    load = replace(LOAD, exponent=1.0)
    keys = keys_asked(load, STORES["sql"], "cinlj", measured=0.774)
    lines = explain_lookup(choose_lookup(load, STORES["sql"]), keys)
    assert lines[0] == "method cinlj (CINLJ: answers frequent keys from a cache and looks up the others)"
    assert lines[1].startswith("because a lookup takes 8.0 µs, and a cache answers 80 % of the rows")
    cached = f"{load.cached(0.5):,}"
    assert lines[2] == f"keys follow Zipf 1.00: a cache of {cached} rows would answer 80 % of them (measured: 77 %)"
    assert lines[3].split() == ["predicted", "rows/s", "µs/row", "from", "memory", "reads/row", "waits"]
    assert len(lines) == 4 + len(COSTS)
    assert explain_lookup(LookupChoice("inlj", "so it is"), keys)[2:] == (lines[2],)
    assert METHODS["partitioned"].line.startswith("The partitioned join: ")


def counted(rows, exponent, cached=0, reads=1):
    """What a logic would have counted."""
    skew = Skew(BIG.rows, exponent)
    hits = round(rows * skew.share(cached)) if cached else 0
    asked = round(skew.distinct(rows - hits, cached))
    counts = {"reads": reads, "looked_up": asked, "bytes_read": 120 * asked, "waiting": 0}
    return counts | ({"hits": hits, "misses": rows - hits, "cached": cached, "evictions": 0} if cached else {})


def test_a_pilot_finds_that_look_ups_are_dear_and_caches():
    pilot = LookupPilot(replace(LOAD, exponent=0.0), STORES["pages"])
    assert pilot.decide().method == "inlj"
    for _ in range(4):
        pilot.saw(100_000, 1.0, 100_000 * 10e-6, counted(100_000, 1.0))
        pilot.decide()
    assert pilot.load.exponent == pytest.approx(1.0, abs=0.05)
    assert pilot.slower > 10
    assert pilot.choice.method == "cinlj"


def test_a_pilot_finds_that_they_are_not_and_drops_the_cache():
    pilot = LookupPilot(replace(LOAD, exponent=1.0), STORES["sql"], current="cinlj")
    assert pilot.decide().method == "cinlj"
    counts = counted(100_000, 1.0, cached=400_000)
    for _ in range(6):
        pilot.saw(100_000, 1.0, 100_000 * 1.2e-6, counts)
        pilot.decide()
    assert pilot.hit_share == pytest.approx(0.8, abs=0.02)
    assert pilot.choice.method == "inlj"


def test_a_pilot_measures_rates_by_task_and_skew_by_a_sample():
    pilot = LookupPilot(replace(LOAD, shards=2), STORES["pages"])
    keys = np.unique(ranks_at(np.random.default_rng(1).random(50_000), BIG.rows, 0.9), return_counts=True)[1]
    pilot.saw(400_000, 2.0, 0.2, counted(400_000, 0.9), keys=keys)
    assert pilot.load.rows_per_second == 100_000
    assert pilot.load.epoch_seconds == 2.0
    assert pilot.load.exponent == pytest.approx(0.9, abs=0.03)


def test_before_rows_are_seen_a_pilot_says_that_the_skew_is_assumed_and_then_what_it_is():
    pilot = LookupPilot(LOAD, STORES["pages"])
    assert str(pilot.keys).startswith("keys assumed to be even until measured: a cache of ")
    assert pilot.choice is None, "asking decides nothing"
    pilot.saw(100_000, 1.0, 0.1, counted(100_000, 1.0))
    assert str(pilot.keys).startswith("keys follow Zipf 1.0")
    assert pilot.keys.expected == pytest.approx(predict_lookup(pilot.load, pilot.reads)["cinlj"].hit_share)


def test_the_skew_stays_assumed_while_nothing_that_came_tells_it():
    pilot = LookupPilot(LOAD, STORES["pages"], current="meshjoin")
    pilot.saw(100_000, 1.0, 0.1, {"reads": 5, "looked_up": 0, "finished": 100_000})
    assert not pilot.keys.seen


def test_what_a_cache_answered_is_told_as_long_as_there_is_one():
    assert keys_asked(LOAD, STORES["sql"], "cinlj", measured=0.5).measured == 0.5
    assert keys_asked(LOAD, STORES["sql"], "inlj", measured=0.5).measured is None


def test_the_cache_of_all_tasks_is_told():
    one = keys_asked(LOAD, STORES["sql"], "chybridjoin")
    two = keys_asked(replace(LOAD, shards=2), STORES["sql"], "chybridjoin")
    assert two.cached == 2 * one.cached


def test_a_pilot_learns_nothing_of_an_empty_epoch_and_follows_what_was_planned():
    pilot = LookupPilot(LOAD, STORES["pages"])
    pilot.saw(0, 1.0, 0.1, {})
    assert pilot.load == LOAD
    pilot.follow("cinlj")
    assert "runs already" in LookupPilot(replace(LOAD, exponent=1.0), STORES["sql"], "inlj").decide().reason


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: replace(LOAD, memory=0), "memory=0"),
        (lambda: replace(LOAD, max_age=-1.0), "max_age=-1.0"),
        (lambda: LookupPreference(prompt=0.5), "prompt=0.5"),
        (lambda: LookupPreference(stay=1.0), "stay=1.0"),
    ],
)
def test_what_cannot_be_planned_with_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
