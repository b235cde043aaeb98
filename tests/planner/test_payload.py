"""Where payload is kept: by cost, with hysteresis, and as the user says."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from random import Random

import pytest

from penstock.planner.payload import HomePilot, cheapest_to_carry


def test_wide_rows_of_which_few_become_results_leave_payload_behind():
    pilot = HomePilot("auto", width=3000)
    pilot.learn(rows=1000, partials=0, results=100)
    assert pilot.late


@pytest.mark.parametrize(("joins", "late"), [(0, False), (1, True)])
def test_before_anything_is_known_payload_stays_where_it_would_be_sent_on(joins, late):
    assert HomePilot("auto", width=40, joins=joins).late == late


def test_payload_that_does_not_fit_the_driver_takes_longer_to_bring():
    small, large = (HomePilot("auto", width=1000, columns=10, room=room) for room in (64e6, 256e6))
    assert small.costs(100_000, 0, 100_000)["row"] > large.costs(100_000, 0, 100_000)["row"]
    beside = 40e6
    assert small.costs(30_000, 0, 30_000, beside)["row"] > small.costs(30_000, 0, 30_000)["row"]
    small.learn(30_000, 0, 900_000)
    assert not small.late
    assert small.brings == 30_000 * 1000


def test_payload_travels_where_tasks_have_too_little_memory_to_fetch_it():
    pilot = HomePilot("auto", width=3000, room=1e6)
    pilot.learn(rows=1000, partials=0, results=100)
    assert not pilot.late
    assert "too little memory" in pilot.says()
    assert HomePilot("source", width=3000, room=1e6).late


def test_many_columns_take_longer_to_find():
    few, many = (HomePilot("auto", width=115, columns=columns).costs(100, 0, 100) for columns in (1, 13))
    assert few["source"] < many["source"]
    assert few["row"] == many["row"]


@pytest.mark.parametrize(("joins", "results"), [(0, 0), (1, 20_000)])
def test_the_first_epoch_is_gone_by_at_once(joins, results):
    pilot = HomePilot("auto", width=40, joins=joins)
    before = pilot.late
    pilot.learn(rows=1000, partials=0, results=results)
    assert pilot.late != before


def test_narrow_rows_with_many_results_bring_theirs():
    pilot = HomePilot("auto", width=100)
    for _ in range(10):
        pilot.learn(rows=1000, partials=0, results=20_000)
    assert not pilot.late


@pytest.mark.parametrize(("asked", "late"), [("row", False), ("source", True)])
def test_what_the_user_says_goes_first(asked, late):
    pilot = HomePilot(asked, width=3000 if asked == "row" else 1)
    pilot.learn(1000, 0, 0 if asked == "row" else 10**6)
    assert pilot.late == late
    assert f"as payload={asked!r} says" in pilot.says()


def test_f18_it_changes_for_a_clear_gain_only_and_not_again_soon():
    pilot = HomePilot("auto", width=100)
    began = pilot.late
    changed = []
    for epoch in range(40):
        results = 0 if (epoch // 20) % 2 else 100_000
        pilot.learn(rows=1000, partials=0, results=results)
        changed.append(pilot.late)
    moves = [epoch for epoch, (one, other) in enumerate(zip([began, *changed], changed, strict=False)) if one != other]
    assert pilot.changes == len(moves) == 1 + began
    assert changed[19] is False
    assert changed[39] is True
    assert all(later - sooner >= 5 for sooner, later in pairwise(moves))


def test_partial_results_make_bringing_dearer():
    pilot = HomePilot("auto", width=500)
    alone, often = pilot.costs(100, 0, 10), pilot.costs(100, 1000, 10)
    assert often["row"] > alone["row"]
    assert often["source"] == alone["source"]


def test_silent_epochs_teach_nothing():
    pilot = HomePilot("auto", width=500)
    for _ in range(9):
        pilot.learn(0, 0, 0)
    assert "nothing was measured yet" in pilot.says()


def test_payload_travels_while_windows_fill_and_rows_come_into_more_results_each_epoch() -> None:
    pilot = HomePilot("auto", width=20)
    for epoch in range(7):
        pilot.learn(rows=100_000, partials=0, results=40_000 * epoch)
        assert not pilot.late


def test_f18_what_was_learned_goes_on_after_a_restart_at_any_epoch():
    """The dwell counts on, too: the restarted pilot changes its mind in the same epochs."""
    results = [100, 100, 90_000, 90_000, *[0] * 16, 90_000, 0, 0]
    whole = HomePilot("auto", width=100, room=1e9)
    expected = []
    for some in results:
        whole.learn(1000, 0, some, width=100 + some % 7)
        expected.append((whole.late, whole.changes))
    assert len({late for late, _ in expected}) == 2
    assert whole.changes == 3
    for cut in range(1, len(results)):
        before, after = (HomePilot("auto", width=100, room=1e9) for _ in range(2))
        for some in results[:cut]:
            before.learn(1000, 0, some, width=100 + some % 7)
        after.resume(json.loads(json.dumps(before.as_dict())))
        found = []
        for some in results[cut:]:
            after.learn(1000, 0, some, width=100 + some % 7)
            found.append((after.late, after.changes))
        assert found == expected[cut:], cut


def test_room_that_was_learned_holds_for_the_same_memory_only():
    before = HomePilot("auto", width=100, room=1e9)
    before.room = 3e6
    for room, then in ((1e9, 3e6), (2e9, 2e9)):
        after = HomePilot("auto", width=100, room=room)
        after.resume(json.loads(json.dumps(before.as_dict())))
        assert after.room == then


def test_f09_the_width_of_payload_is_measured_epoch_by_epoch_and_decides():
    pilot = HomePilot("auto", width=500, room=1e9)
    for _ in range(6):
        pilot.learn(1000, 0, 6000, width=500)
    assert pilot.late
    for _ in range(12):
        pilot.learn(1000, 0, 6000, width=30)
    assert pilot.latest == 30
    assert pilot.width == pytest.approx(30, rel=0.3)
    assert not pilot.late
    for _ in range(8):
        pilot.learn(1000, 0, 6000, width=900)
    assert pilot.late
    assert pilot.changes == 2


def drawn(random: Random, room: float) -> dict[str, HomePilot]:
    """Pilots of some sources that have seen one epoch."""
    pilots = {f"s{n}": HomePilot("auto", random.choice([20, 100, 400, 3000]), room=room) for n in range(5)}
    for pilot in pilots.values():
        rows = random.choice([100, 3000, 30_000])
        pilot.learn(rows, rows * random.choice([0, 1, 4]), round(rows * random.choice([0.1, 1, 5, 40])))
    return pilots


def together(pilots: dict[str, HomePilot], carried: frozenset[str]) -> float:
    """Seconds for an epoch in which the payload of some sources travels: the definition."""
    brought = {name: pilots[name].load()[0] for name in carried}
    return sum(
        pilot.bringing(sum(brought.values()) - brought[name]) if name in carried else pilot.load()[1]
        for name, pilot in pilots.items()
    )


def test_f19_what_each_source_chooses_is_the_cheapest_of_all_hybrids_where_there_is_room():
    """Costs add up: the best for each is the best for all, and no dearer than early or late for all."""
    random, mixed = Random(19), 0
    for _ in range(300):
        pilots = drawn(random, room=1e12)
        alone = frozenset(name for name, pilot in pilots.items() if pilot.bringing(0.0) <= pilot.load()[1])
        every = [frozenset(some) for size in range(6) for some in combinations(pilots, size)]
        best = min(together(pilots, some) for some in every)
        assert together(pilots, alone) == pytest.approx(best, rel=1e-12)
        assert together(pilots, cheapest_to_carry(pilots)) == pytest.approx(best, rel=1e-8)
        # Those that run may lack a tenth of it: so much must be gained by a change.
        running = frozenset(name for name, pilot in pilots.items() if not pilot.late)
        assert together(pilots, running) <= best / 0.9 + 1e-12
        mixed += 0 < len(alone) < 5
    assert mixed > 100


def test_f19_where_sources_share_too_little_room_every_set_is_tried():
    random, alone_was_worse = Random(20), 0
    for _ in range(200):
        pilots = drawn(random, room=20e6)
        every = [frozenset(some) for size in range(6) for some in combinations(pilots, size)]
        best = min(together(pilots, some) for some in every)
        assert together(pilots, cheapest_to_carry(pilots)) == pytest.approx(best, rel=1e-8)
        alone = frozenset(name for name, pilot in pilots.items() if pilot.bringing(0.0) <= pilot.load()[1])
        alone_was_worse += together(pilots, alone) > 1.001 * best
    assert alone_was_worse >= 5
