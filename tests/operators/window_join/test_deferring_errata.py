"""Wrong forms of EWJ, AH-EWJ and RPWJ must fail: errata 1 to 11 of the source as printed, and our own rules broken.

Every mutant comes with the smallest stream that shows it, and with what it does to the results; the real operator
passes on the same stream. We keep births and stays where the source keeps block numbers and timestamps, so an erratum
is put into words of ours where it cannot be copied. Erratum 7, a train that stalls, is in test_ah_ewj; errata 8 and 9
show in memory and not in results and stand at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import pytest

from penstock.core.rows import hashes_of, times_of
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.within import Band, band
from penstock.kernels.sort import page_order
from penstock.operators.window_join import AhEwj, AHEWJoin, Ewj, Rpwj, RPWJoin
from penstock.operators.window_join.debts import Collector
from penstock.operators.window_join.deferring import DeferringJoin
from penstock.operators.window_join.segments import SegmentedJoin
from penstock.operators.window_join.way_out import WayOut
from penstock.operators.window_join.window import Window, owed
from tests import streams
from tests.streams import (
    LEFT,
    RIGHT,
    Arrive,
    Case,
    EpochEnd,
    Event,
    Idle,
    Run,
    advance,
    left,
    right,
    run,
)

NEAR = band(5, 5)


def case(method, *events: Event, within: Band = NEAR, how: str = "inner") -> Case:
    return Case(within, how, list(events), method=method)


def lefts(*times: int, k: int = 1) -> Arrive:
    """Left rows that arrive at once; a row's id is its time."""
    return Arrive(LEFT, [{"k": k, "t": t, "id": t} for t in times])


def rights(*times: int, k: int = 1) -> Arrive:
    """Right rows that arrive at once."""
    return Arrive(RIGHT, [{"k": k, "t": t, "id": t} for t in times])


def ewj(memory: int, recent: float = 1.0, frequent: float = 0.0, page: int = 1) -> Ewj:
    """Rows count 1; what is neither recent nor frequent is for blocks that leave."""
    rest = round(1 - recent - frequent, 6)
    parts = {"recent": recent, "frequent": frequent, "invalidation": rest}
    return Ewj(memory=memory, page=page, row=1, chunk=1, probe=1.0, gain=0, refresh=1, **parts)


def ah_ewj(memory: int, recent: float = 1.0, frequent: float = 0.0, page: int = 1, least: float = 0.0) -> AhEwj:
    rest = round(1 - recent - frequent, 6)
    parts = {"recent": recent, "frequent": frequent, "invalidation": rest, "least": least}
    return AhEwj(
        memory=memory, page=page, row=1, chunk=1, partitions=1, probe=1.0, gain=0, flush=1, train=1, refresh=1, **parts
    )


def rpwj(memory: int, page: int = 1, high_mark: int = 100) -> Rpwj:
    return Rpwj(memory=memory, page=page, row=1, chunk=1, partitions=1, flush=1.0, slide=1, high_mark=high_mark)


# Errata of the source


def frequent_blocks_are_joined_again(patch):
    """Erratum 1: "∉ freq or ∉ E" is nearly always true. Here: that a block was in memory is not remembered."""
    real = Window.load

    def load(self, block, slab, tick):
        real(self, block, slab, tick)
        self.stays.later[block.number].pop()

    patch.setattr(Window, "load", load)


def one_birth_per_block(patch):
    """Erratum 2, 000-12: one minBN for a block whose rows come one by one."""
    real = Window.add

    def add(self, slab):
        first = self.__dict__.setdefault("first_births", {})
        births = zip(slab.numbers.tolist(), slab.births.tolist(), strict=True)
        slab.births = np.array([first.setdefault(number, birth) for number, birth in births])
        real(self, slab)

    patch.setattr(Window, "add", add)


def nobody_joins_what_is_refilled(patch):
    """Erratum 3, 000-11."""
    patch.setattr(SegmentedJoin, "_join_refill", lambda self, port, blocks, theirs: iter(()))


def settled_by_the_first_block(patch):
    """Erratum 4: minBN ← null inside the loop over the blocks on disk."""
    real = SegmentedJoin._probed

    def probed(self, port, blocks, slab):
        real(self, port, blocks, slab)
        me = self.windows[1 - port]
        me.settle(me.fresh(), self._tick)

    patch.setattr(SegmentedJoin, "_probed", probed)


def becoming_frequent_outside_probes_goes_unnoticed(patch):
    """Erratum 5: Alg 6 l.20 makes a block frequent as it leaves the recent memory, and ignores that it stays."""
    real = AHEWJoin._make_frequent_room

    def make_room(self, port, block):
        made = real(self, port, block)
        if self.windows[port].resident[block.number]:
            self.windows[port].stays.first[block.number] = self._tick + 1
        return made

    patch.setattr(AHEWJoin, "_make_frequent_room", make_room)


def a_plain_list_of_the_replaced(patch):
    """Erratum 5 mended with E: a block that was frequent is skipped by all, also by those who come after its stay."""
    real = Window.evict
    patch.setattr(Window, "evict", lambda self, b, tick: real(self, b, tick + 10**6 * (b.role == "frequent")))


def waiting_rows_are_met(patch):
    """Erratum 6: a full block joins all of "W_mem", the other stream's unfilled block included."""
    real = DeferringJoin._bear_into

    def in_order(slab):
        return slab.take(page_order(hashes_of(slab.batch), times_of(slab.batch)))

    def bear_into(self, port, arrivals, *, apart=False):
        for waiting in map(in_order, self._unborn[1 - port].slabs):
            mine = in_order(arrivals)
            yield from self._pairing.meet(port, mine.batch, mine.met, waiting.batch, waiting.met)
        yield from real(self, port, arrivals, apart=apart)

    patch.setattr(DeferringJoin, "_bear_into", bear_into)


def waiting_rows_are_not_met_on_the_way_out(patch):
    """Erratum 6, 000-27: the unfilled block left out, and no join on expiry."""
    patch.setattr(WayOut, "_meet_unborn", lambda self, window, theirs, here, edge: iter(()))


def open_blocks_are_settled_for_good(patch):
    """Erratum 10: Alg 7 l.27 calls the unfilled block stale; what it takes afterwards never gets its joins."""
    real = Window.settle
    patch.setattr(Window, "settle", lambda self, blocks, tick: real(self, blocks, tick + 10**6))


def the_last_run_is_joined_again(patch):
    """Erratum 11: lastDD with < leaves out the last run that was joined."""
    real = Window.settle
    patch.setattr(Window, "settle", lambda self, blocks, tick: real(self, list(blocks)[:-1], tick))


# Rules of ours


def evict_at_the_tick(patch):
    """Those who were born at this tick have met the block."""
    real = Window.evict
    patch.setattr(Window, "evict", lambda self, block, tick: real(self, block, tick - 1))


def debts_to_rows_that_are_gone(patch):
    """No floor in `owed`."""

    def owed_(self, me, mine, other, theirs, until):
        times = times_of(theirs.batch)
        return lambda i, j: owed(me, mine, i, other, theirs, j) & ((times[j] < until) | (until == TIME_MAX))

    patch.setattr(Collector, "owed", owed_)


def debts_between_disks_to_rows_that_are_gone(patch):
    """No floor in `owed_by_either`."""

    def either(self, left_, mine, right_, theirs):
        return lambda i, j: owed(left_, mine, i, right_, theirs, j) | owed(right_, theirs, j, left_, mine, i)

    patch.setattr(Collector, "owed_by_either", either)


def rows_keep_the_name_of_a_block_that_left(patch):
    """When it comes back before they are swept, being few in their slab, they are there twice."""
    real = Window._leave

    def leave(self, block, tick):
        names = [slab.numbers.copy() for slab in self.slabs]
        real(self, block, tick)
        for slab, kept in zip(self.slabs, names, strict=True):
            slab.numbers[:] = kept

    patch.setattr(Window, "_leave", leave)


def both_ports_forget_their_stays(patch):
    """A port that settles needs the other's stays no more; the other still needs its own."""
    real = DeferringJoin.settle

    def settle(self, port):
        yield from real(self, port)
        self.windows[port].stays.forget(self._tick)

    patch.setattr(DeferringJoin, "settle", settle)


def a_task_forgets_all_stays(patch):
    """Only when all tasks have been run are there no debts."""
    real = RPWJoin.run_task

    def run_task(self, task):
        yield from real(self, task)
        for window in self.windows:
            window.stays.forget(self._tick)

    patch.setattr(RPWJoin, "run_task", run_task)


def forgetting(**debts):
    """The state does not say everything of a page's debts."""

    def mutate(patch):
        real = Window.described

        def described(self, block, since):
            page = real(self, block, since)
            return replace(page, debts=replace(page.debts, **debts))

        patch.setattr(Window, "described", described)

    return mutate


def rows_that_are_over_join_the_open_block(patch):
    """Below its floor, they are taken for rows that have left."""
    patch.setattr(DeferringJoin, "_bear", lambda self, port, slab: self._bear_into(port, slab))


def floors_are_not_heeded(patch):
    """A host that remembers less than the shard went by: what its blocks' floors say is over is taken for alive."""
    real = DeferringJoin._take_up

    def take_up(self, state):
        real(self, state)
        self._dead = [TIME_MIN, TIME_MIN]

    patch.setattr(DeferringJoin, "_take_up", take_up)


def strangers_are_not_settled(patch):
    """Fresh blocks that find no room in memory after a change of shards are called settled and owe nothing."""

    def settle(self):
        for window, blocks in zip(self.windows, self._displaced, strict=True):
            window.settle(blocks, self._tick)
        self._displaced = [[], []]
        return iter(())

    patch.setattr(DeferringJoin, "_settle_displaced", settle)


def rows_of_nobody_are_owed_joins(patch):
    """Rows of a block that left, not swept yet, are met once more by a stranger."""
    real = Window.__init__

    def init(self, *args):
        real(self, *args)
        self.stays.first[0] = 0

    patch.setattr(Window, "__init__", init)


def compaction_touches_pages_with_debts(patch):
    real = streams.compact
    patch.setattr(
        streams, "compact", lambda pages, store, budget: real([replace(p, debts=None) for p in pages], store, budget)
    )


class Mutant(NamedTuple):
    """A broken rule, the stream that shows it, and what becomes of a pair there."""

    mutate: Callable[[pytest.MonkeyPatch], None]
    case: Case
    pairs: Literal["lost", "doubled"]


MUTANTS = {
    "erratum 1: frequent blocks are not skipped (EWJ)": Mutant(
        frequent_blocks_are_joined_again,
        case(ewj(10, recent=0.4, frequent=0.3), lefts(1, 2, 3), rights(1, 2, 3), EpochEnd(1)),
        "doubled",
    ),
    "erratum 2, 000-12: one minBN per block (EWJ)": Mutant(
        one_birth_per_block,
        case(ewj(8, recent=0.5, page=3), right(t=0, k=1), left(t=10, k=1), lefts(11, 12, k=1), right(t=5, k=1)),
        "lost",
    ),
    "erratum 3, 000-11: no join on refill (EWJ)": Mutant(
        nobody_joins_what_is_refilled,
        case(ewj(8, recent=0.5), right(t=0, k=2), rights(6, 7), right(t=8, k=2), left(t=6, k=1), advance(left=6)),
        "lost",
    ),
    "erratum 3: no join on refill (AH-EWJ)": Mutant(
        nobody_joins_what_is_refilled,
        case(
            ah_ewj(8, recent=0.5, least=0.5),
            lefts(0, 0, k=2),
            left(t=1, k=1),
            lefts(1, 1, 1, 1, k=2),
            right(t=1, k=1),
            advance(right=6),
        ),
        "lost",
    ),
    "erratum 4: settled before the whole disk was read (EWJ)": Mutant(
        settled_by_the_first_block,
        case(ewj(2), left(t=0, k=1), left(t=1, k=1), left(t=2, k=1), right(t=3, k=1)),
        "lost",
    ),
    "erratum 5: frequent blocks change outside probes (AH-EWJ)": Mutant(
        becoming_frequent_outside_probes_goes_unnoticed,
        case(
            ah_ewj(8, recent=0.5, frequent=0.5, least=0.5), lefts(0, 1, 2), left(t=3, k=1), right(t=0, k=1), EpochEnd(1)
        ),
        "doubled",
    ),
    "erratum 5: a plain E-list (AH-EWJ)": Mutant(
        a_plain_list_of_the_replaced,
        case(
            ah_ewj(7, recent=0.4, frequent=0.3),
            right(t=3, k=1),
            right(t=4, k=2),
            EpochEnd(1),
            left(t=3, k=2),
            left(t=4, k=1),
        ),
        "lost",
    ),
    "erratum 6: the other's unfilled block is joined (AH-EWJ)": Mutant(
        waiting_rows_are_met,
        case(ah_ewj(2, page=2), left(t=0, k=1), right(t=0, k=1), Idle()),
        "doubled",
    ),
    "erratum 6, 000-27: the other's unfilled block is not joined on expiry (AH-EWJ)": Mutant(
        waiting_rows_are_not_met_on_the_way_out,
        case(ah_ewj(2, page=2), right(t=0, k=1), Idle(), left(t=0, k=1), advance(left=6)),
        "lost",
    ),
    "erratum 10: the unfilled block is called stale (EWJ)": Mutant(
        open_blocks_are_settled_for_good,
        case(
            ewj(4, page=3),
            right(t=0, k=1),
            right(t=1, k=2),
            right(t=2, k=2),
            left(t=0, k=2),
            Idle(),
            left(t=1, k=1),
        ),
        "lost",
    ),
    "erratum 11: < for lastDD (RPWJ)": Mutant(
        the_last_run_is_joined_again,
        case(rpwj(2), right(t=0, k=1), lefts(0, 1)),
        "doubled",
    ),
    "evicted at the tick of the last birth (EWJ)": Mutant(
        evict_at_the_tick,
        case(ewj(2, page=3), right(t=0, k=1), Idle(), left(t=0, k=1), right(t=1, k=1)),
        "doubled",
    ),
    "evicted at the tick of the last birth (RPWJ)": Mutant(
        evict_at_the_tick,
        case(rpwj(2), right(t=0, k=1), left(t=0, k=1), left(t=1, k=1)),
        "doubled",
    ),
    "no floor where debts are paid (EWJ)": Mutant(
        debts_to_rows_that_are_gone,
        case(
            ewj(12, recent=0.5, frequent=0.5, page=3),
            right(t=0, k=1),
            rights(8, 9),
            right(t=7, k=1),
            left(t=0, k=1),
            advance(left=9),
        ),
        "doubled",
    ),
    "no floor where debts are paid (RPWJ)": Mutant(
        debts_to_rows_that_are_gone,
        case(rpwj(2, page=2, high_mark=0), left(t=1, k=1), left(t=6, k=1), right(t=2, k=1), advance(right=7)),
        "doubled",
    ),
    "no floor between disks (RPWJ)": Mutant(
        debts_between_disks_to_rows_that_are_gone,
        case(
            rpwj(2, page=2, high_mark=0),
            lefts(1, 6),
            right(t=2, k=1),
            advance(right=7),
            right(t=7, k=2),
            lefts(7, 8),
        ),
        "doubled",
    ),
    "rows keep the name of a block that left (EWJ)": Mutant(
        rows_keep_the_name_of_a_block_that_left,
        case(
            replace(ewj(20, recent=0.5, frequent=0.4), chunk=8),
            rights(0, 1, 2, 3, 4, 5),
            rights(6),
            lefts(3, 4, 5, 6),
            lefts(2, 3),
        ),
        "doubled",
    ),
    "stays forgotten too early (EWJ)": Mutant(
        both_ports_forget_their_stays,
        case(ewj(5, recent=0.4, frequent=0.3, page=3), left(t=0, k=1), right(t=2, k=1), left(t=5, k=1), Idle()),
        "doubled",
    ),
    "stays forgotten after a task (RPWJ)": Mutant(
        a_task_forgets_all_stays,
        case(rpwj(2), right(t=0, k=1), left(t=0, k=1), left(t=1, k=1)),
        "doubled",
    ),
    "births not kept with a fresh page (RPWJ)": Mutant(
        forgetting(births=None),
        case(replace(rpwj(2, page=3), flush=0.5), right(t=0, k=1), left(t=0, k=1), left(t=1, k=1), EpochEnd(1)),
        "doubled",
    ),
    "stays not kept in the state (EWJ)": Mutant(
        forgetting(stays=()),
        case(ewj(8), right(t=0, k=1), left(t=0, k=1), EpochEnd(1)),
        "doubled",
    ),
    "a row that is over put into the open block (EWJ)": Mutant(
        rows_that_are_over_join_the_open_block,
        case(ewj(20, page=4), lefts(0, 9), advance(right=8), left(t=1, k=1), how="left"),
        "lost",
    ),
    **{
        f"a row below the floor of an open block after a host forgot a bound ({name})": Mutant(
            floors_are_not_heeded,
            case(
                method,
                lefts(-60, -51),
                right(t=-53, k=1),
                Idle(work=False),
                advance(left=-81),
                advance(right=-53),
                Idle(work=False),
                EpochEnd(1, lag=True),
                lefts(-63, -62),
                within=band(0, 0),
                how="left",
            ),
            "lost",
        )
        for name, method in {"EWJ": ewj(20, page=4), "RPWJ": rpwj(20, page=4), "AH-EWJ": ah_ewj(20, page=4)}.items()
    },
    "a pair of a row below the floor of an open block that goes to disk with it (RPWJ)": Mutant(
        floors_are_not_heeded,
        case(
            replace(rpwj(6, page=4), flush=0.1),
            lefts(11, 0),
            right(t=0, k=1),
            advance(left=-20),
            advance(right=8),
            Idle(work=False),
            EpochEnd(1, lag=True),
            right(t=13, k=1),
            lefts(5, 1, -5, 7, 8),
            within=band(3, 3),
        ),
        "lost",
    ),
    "strangers not settled after a change of shards (EWJ)": Mutant(
        strangers_are_not_settled,
        case(
            ewj(4),
            left(t=0, k=0),
            left(t=1, k=1),
            left(t=4, k=0),
            right(t=-1, k=2),
            EpochEnd(2),
            Arrive(RIGHT, [{"k": 0, "t": 0, "id": 0}, {"k": 1, "t": 0, "id": 1}]),
            EpochEnd(1),
        ),
        "lost",
    ),
    "rows of nobody met by a stranger (RPWJ)": Mutant(
        rows_of_nobody_are_owed_joins,
        case(
            replace(rpwj(20), partitions=2),
            right(t=0, k=1),
            left(t=0, k=1),
            EpochEnd(1, method=replace(rpwj(20), partitions=3)),
        ),
        "doubled",
    ),
    "compaction of pages with debts (EWJ)": Mutant(
        compaction_touches_pages_with_debts,
        case(ewj(4), left(t=0, k=1), EpochEnd(1), right(t=0, k=1), EpochEnd(1)),
        "lost",
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_rule_is_found_by_its_example(mutant, monkeypatch):
    expected = mutant.case.expected()
    assert run(mutant.case).results == expected
    mutant.mutate(monkeypatch)
    results = run(mutant.case).results
    assert expected - results if mutant.pairs == "lost" else results - expected


# What results do not show


def test_evicting_a_stale_block_would_lose_it(monkeypatch):
    """Erratum 8: Alg 6 l.17 looks among stale blocks, which are not on disk yet; ours refuses to let one go."""
    stream = case(ah_ewj(4, recent=0.5, frequent=0.25), lefts(0, 1, 2, 3), right(t=0, k=1))
    assert run(stream).results == stream.expected()
    flushed, stale = AHEWJoin._flushed, AHEWJoin._stale
    monkeypatch.setattr(AHEWJoin, "_victim", lambda self, port: (stale(self, port) or flushed(self, port))[0])
    with pytest.raises(AssertionError, match="would be lost"):
        run(stream)


def printed_supply(self, port):
    """Erratum 9: eq 5.1 with the size of the other stream, and a sum that is always at least 0."""
    much = self.arrivals[port] >= (1 + self._gain) * self.arrivals[1 - port]
    return much and self.recent_bytes(1 - port) > self.least_size


def test_by_eq_5_1_as_printed_a_stream_gives_what_it_must_keep(monkeypatch):
    """Erratum 9: left came more often, but has 1 row of the 2 it may keep; right has 3 and takes it all the same."""

    def left_keeps() -> int:
        join = Run(case(ah_ewj(8, recent=0.5, least=0.5)).config)
        (logic,) = join.logics
        join.on(rights(0, 1, 2))
        join.on(left(t=0, k=1))
        logic.arrivals = [9.0, 3.0]
        join.on(right(t=3, k=1))
        return logic.recent_bytes(LEFT)

    assert left_keeps() == 1
    monkeypatch.setattr(AHEWJoin, "_can_supply", printed_supply)
    assert left_keeps() == 0
