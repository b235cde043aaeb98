"""The front stage: one class before every back end, who gets in and who leaves, thresholds, drift, whole groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.operators.lookup import Front, HybridJoin, Inlj, MeshJoin, PartitionBased, Partitioned, Ssij, Stages
from penstock.operators.lookup import front as front_module
from penstock.operators.lookup.admission import Threshold, strict
from penstock.operators.lookup.front import FrontStage
from penstock.operators.lookup.logic import LookupLogic
from penstock.storage.tables.arrow import ArrowTable, OpenArrowTable
from tests.operators.lookup.cases import Case, Shard, backs, cases, fronts, numbered, run, skewed
from tests.oracle.cache import Reference
from tests.streams import examples

BACKS = [Inlj(batch=20), MeshJoin(slots=60), HybridJoin(slots=60)]


@pytest.mark.parametrize("back", BACKS, ids=lambda back: type(back).__name__)
@pytest.mark.parametrize("copies", [1, 3])
def test_f07_f29_one_front_stage_goes_before_three_back_ends(back, copies):
    """F07, F29: a hit is a whole answer, all rows of the key."""
    front = Front(slots=30, threshold=1)
    join = Shard(numbered(300, 50, copies), Stages(back, front), "left")
    for some in np.split(skewed(2000, 400), 20):
        join.rows(some.tolist())
    assert type(join.logic.front) is FrontStage
    assert join.end().results == join.expected
    assert join.logic.front.stats.hits > 200
    assert join.logic.front.rows <= 30


@examples(0.3)
@given(cases(st.builds(Stages, back=backs(MeshJoin, HybridJoin), front=fronts())))
def test_f08_f09_rows_that_get_in_and_leave_neither_lose_nor_double_results(case: Case):
    """F08, F09."""
    assert run(case).results == case.expected()


# F10: the temporary buffer of CINLJ


def test_f10_frequent_keys_are_cached_within_two_spans():
    """Five keys are half of the stream; a span is 100 misses, the threshold 2."""
    rng = np.random.default_rng(1)
    keys = np.where(rng.random(200) < 0.5, rng.integers(0, 5, 200), rng.integers(5, 5000, 200))
    join = Shard(numbered(5000, 100), Stages(Inlj(batch=1), Front(slots=20, threshold=2, adaptive=False, span=100)))
    for key in keys.tolist():
        join.rows([key])
    assert 100 < join.logic.front.stats.misses < 200
    assert set(range(5)) <= cached(join)


def test_f10_a_key_is_forgotten_with_its_span():
    """Seen once in each of two spans of four misses: not twice in one."""

    def twice(between: int) -> set[int]:
        stages = Stages(Inlj(batch=1), Front(slots=20, threshold=2, adaptive=False, span=4))
        join = Shard(numbered(5000, 100), stages)
        for key in [7, *range(100, 100 + between), 7]:
            join.rows([key])
        return cached(join)

    assert twice(between=2) == {7}
    assert twice(between=3) == set()


def cached(join: Shard) -> set[int]:
    return set(join.logic.front.keys.column("k").to_pylist())


# F11: who gets in, who leaves


def offered(policy, slots, offers, halve=None, batch=1) -> Shard:
    """A cache that was offered (key, frequency) pairs, so many at a time; a frequency of None is a hit."""
    front = Front(slots=slots, policy=policy, threshold=1, adaptive=False, halve=halve)
    join = Shard(HUNDRED, Stages(Inlj(), front))
    rows = join.logic.desk.table.scan(0)
    place = {key: n for n, key in enumerate(rows.column("k").to_pylist())}
    for at in range(0, len(offers), batch):
        some = offers[at : at + batch]
        if some[0][1] is None:
            join.rows([some[0][0]])
            continue
        these = rows.take([place[key] for key, _ in some])
        counts = np.array([frequency for _, frequency in some])
        join.logic.front.offer(these, these.column(0).to_numpy(), counts)
    assert join.logic.desk.stats.looked_up == 0
    return join


HUNDRED = numbered(100)


def frequencies(join: Shard) -> dict[int, float]:
    where, freq, _ = join.logic.front._entries()
    keys = [block.rows.column("k")[int(block.first[entry])].as_py() for block, live in where for entry in live]
    return dict(zip(keys, freq.tolist(), strict=True))


@pytest.mark.parametrize(
    ("policy", "held"),
    [
        # 4 is not above 2's 3, 5 replaces 2, 6 is not above any.
        ("strict", {1: 5, 3: 4, 5: 6}),
        # 4 replaces 2, 5 replaces 4, 6 replaces 3.
        ("paper", {1: 5, 5: 6, 6: 1}),
        # Halved before 3 gets in: 1 has 2.5 and 2 has 1.5, so 4 replaces 2. Then 5 replaces 4, and all are halved.
        ("decay", {1: 1.25, 3: 2, 5: 3}),
    ],
)
def test_f11_a_trace_by_hand(policy, held):
    """F11: three slots; `decay` halves with every third offer."""
    trace = [(1, 5), (2, 3), (3, 4), (4, 2), (5, 6), (6, 1)]
    reference = Reference(policy, 3, halve=3)
    for key, frequency in trace:
        reference.offer(key, frequency)
    assert frequencies(offered(policy, 3, trace, halve=3)) == held == reference.held


@examples(0.3)
@given(
    st.sampled_from(["strict", "paper", "decay"]),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 12), st.none() | st.integers(1, 6)), max_size=30),
    st.sampled_from([None, 1, 4]),
)
def test_f11_one_by_one_the_victim_is_always_the_least_frequent(policy, slots, events, halve):
    """F11. A fraction that differs from event to event leaves no ties."""
    reference = Reference(policy, slots, halve)
    happened = []
    for n, (key, frequency) in enumerate(events):
        if frequency is not None:
            happened.append((key, frequency + n / 97))
            reference.offer(*happened[-1])
        elif key in reference.held:
            happened.append((key, None))
            reference.hit(key)
    join = offered(policy, slots, happened, halve)
    assert frequencies(join) == pytest.approx(reference.held)
    assert join.logic.front.stats.evictions == len(reference.evicted)


@examples(0.3)
@given(st.sampled_from(["strict", "paper"]), st.integers(1, 6), st.permutations(range(12)), st.integers(1, 12))
def test_f11_many_at_once_stay_as_if_they_came_one_by_one(policy, slots, keys, batch):
    offers = [(key, 1 + key) for key in keys]
    reference = Reference(policy, slots)
    for offer in offers:
        reference.offer(*offer)
    join = offered(policy, slots, offers, batch=batch)
    assert frequencies(join) == reference.held
    if policy == "paper":
        assert join.logic.front.stats.evictions == len(reference.evicted)


def test_a_policy_that_evicts_others_than_the_least_frequent_is_found(monkeypatch):
    monkeypatch.setattr(front_module, "RULES", {"strict": lambda held, *others: strict(-held, *others)})
    assert frequencies(offered("strict", 1, [(1, 5), (2, 3)])) != {1: 5}


# F12: the threshold


def test_f12_the_threshold_falls_until_the_cache_is_full_and_then_stays():
    front = Front(slots=100, threshold=10, every=1)
    join = Shard(numbered(2000, 50), Stages(HybridJoin(slots=400), front))
    values, fills = [], []

    def iterated(evictions, *, shedding=False, real=join.logic.front.iterated):
        real(evictions, shedding=shedding)
        values.append(join.logic.front.threshold.value)
        fills.append(join.logic.front.rows / 100)

    join.logic.front.iterated = iterated
    join.rows(skewed(10_000, 2000))
    full = next(n for n, fill in enumerate(fills) if fill >= 0.95)
    assert values[0] == 9
    assert values[:full] == sorted(values[:full], reverse=True)
    assert len(values) > full + 50
    assert max(values[full + 1 :]) - min(values[full + 1 :]) <= 1


def test_f12_the_threshold_rises_while_the_cache_churns():
    threshold = Threshold(2, every=4)
    for _ in range(4):
        threshold.look(fill=1.0, evictions=6, slots=100, shedding=False)
    assert threshold.value == 3
    for _ in range(4):
        threshold.look(fill=1.0, evictions=5, slots=100, shedding=False)
    assert threshold.value == 3, "5 % is not too much"
    for _ in range(4):
        threshold.look(fill=1.0, evictions=50, slots=100, shedding=True)
    assert threshold.value == 3, "nor is any rate while rows are shed"


def test_f12_a_cache_that_churns_raises_its_threshold():
    front = Front(slots=20, threshold=1, every=1, policy="paper")
    join = Shard(numbered(2000, 200), Stages(HybridJoin(slots=400), front))
    join.rows(np.random.default_rng(1).integers(0, 2000, 5000))
    assert join.logic.front.threshold.value > 1


# F13: drift


@cache
def hit_shares(policy: str) -> list[float]:
    """By 1000 rows; after 10,000 the frequent keys are others."""
    front = Front(slots=100, threshold=2, policy=policy, adaptive=False)
    join = Shard(numbered(4000, 50), Stages(HybridJoin(slots=300), front))
    keys = skewed(20_000, 2000, 1.1)
    keys[10_000:] += 2000
    shares = []
    for some in np.split(keys, 20):
        before = join.logic.front.stats.hits
        join.rows(some.tolist())
        shares.append((join.logic.front.stats.hits - before) / 1000)
    return shares


@pytest.mark.slow
def test_f13_decay_regains_its_hit_share_when_other_keys_become_frequent():
    shares = hit_shares("decay")
    steady = np.mean(shares[5:10])
    assert shares[10] < 0.9 * steady
    assert min(shares[14:]) >= 0.9 * steady, "within 4000 rows"
    assert steady > 0.4


@pytest.mark.slow
def test_what_was_frequent_once_stays_by_policy_strict():
    shares = hit_shares("strict")
    assert np.mean(shares[14:]) < np.mean(hit_shares("decay")[14:])


# F23: memory


@pytest.mark.slow
@pytest.mark.parametrize(
    "back",
    [Inlj(), MeshJoin(), HybridJoin(), Partitioned(), Ssij(), PartitionBased()],
    ids=lambda back: type(back).__name__,
)
def test_f23_what_is_held_is_charged_and_within_the_memory_at_every_step(monkeypatch, back):
    memory, seen = 60_000, []
    join = Shard(numbered(2000, 50), Stages(back, Front(share=0.2, threshold=1)), memory=memory)
    logic = join.logic

    def step(self, position, real=LookupLogic._step):
        for out in real(self, position):
            look()
            yield out
        look()

    def look():
        segments = getattr(logic.back, "segments", None) or getattr(getattr(logic.back, "blocks", None), "segments", ())
        held = sum(batch.nbytes for batch in logic.waiting._batches)
        held += sum(block.rows.nbytes for block in logic.front._blocks)
        held += sum(segments.sizes) if len(segments) else 0
        assert held <= join.budget.held <= memory
        seen.append(held)

    monkeypatch.setattr(LookupLogic, "_step", step)
    for some in np.split(skewed(3000, 2500), 5):
        join.rows(some.tolist())
    assert join.end().results == join.expected
    assert max(seen) > 5000


# F29: tables that are not unique


def test_f29_a_group_larger_than_the_cache_is_not_cached():
    join = Shard(numbered(5, copies=4), Stages(Inlj(batch=1), Front(slots=3, threshold=1, adaptive=False)))
    join.rows([1, 1, 1])
    assert join.logic.front.rows == 0
    assert join.results == join.expected


@dataclass(frozen=True)
class Scattered(ArrowTable):
    """Rows of a key are anywhere: every partition has some."""

    def open(self, version=None):
        opened = OpenArrowTable(self.rows, self.keys, self.partition_rows)
        opened.clustered = False
        opened.scan = lambda p: opened._rows.take(pa.array(np.arange(p, opened.size.rows, opened.partitions)))
        return opened


SCATTERED = Scattered(numbered(20, copies=3).rows, ("k",), 20)


@pytest.mark.parametrize("back", [Inlj(batch=5), MeshJoin(slots=9)], ids=lambda back: type(back).__name__)
def test_f29_groups_in_several_partitions_are_found_by_those_who_read_all_or_ask_by_key(back):
    front = Front(slots=12, threshold=1) if isinstance(back, Inlj) else None
    join = Shard(SCATTERED, Stages(back, front)).rows(range(25)).rows(range(25)).end()
    assert join.results == join.expected


def test_f29_caching_parts_of_a_group_is_refused():
    with pytest.raises(ConfigError) as refused:
        Shard(SCATTERED, "cmeshjoin")
    assert str(refused.value) == (
        "method='cmeshjoin' caches all rows of a frequent k, but this table has them in several partitions, and a read "
        "returns only some of them. Write method='cinlj' or 'meshjoin', or freshness='snapshot', which copies the "
        "table into pages; Parquet files can also be sorted by k, so that equal keys lie together."
    )


@pytest.mark.parametrize("method", ["hybridjoin", "chybridjoin", "partitioned", "ssij", "partition-based"])
def test_methods_that_read_the_one_partition_of_a_key_refuse_a_table_that_has_them_in_several(method):
    with pytest.raises(ConfigError) as refused:
        Shard(SCATTERED, method)
    assert str(refused.value) == (
        f"method={method!r} reads the one partition that holds a key, but this table does not record which partition "
        "holds which k, or spreads rows of one k over several. Write method='cinlj' or 'meshjoin', or "
        "freshness='snapshot', which copies the table into pages; Parquet files can also be sorted by k, so that equal "
        "keys lie together."
    )


def test_parts_of_groups_in_the_cache_would_be_found(monkeypatch):
    """The check dropped: a hit on a part of a group is not the whole answer."""
    monkeypatch.setattr(Stages, "check", lambda self, table: None)
    join = Shard(SCATTERED, Stages(MeshJoin(slots=9), Front(slots=12, threshold=1)))
    for _ in range(5):
        join.rows(range(20))
    assert join.end().results != join.expected


@pytest.mark.slow
def test_merging_the_blocks_of_a_cache_takes_little_beside_it():
    memory, wide = 4_000_000, 1000
    rows = pa.table({"k": np.arange(10_000), "v": [f"{n:08d}" + "x" * wide for n in range(10_000)]})
    method = Stages(Inlj(batch=100), Front(share=0.5, policy="decay", threshold=1))
    join = Shard(ArrowTable(rows, ("k",)), method, memory=memory)
    rng = np.random.default_rng(2)
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        for some in np.split(rng.integers(0, 4000, 12_000), 60):
            join.rows(some.tolist())
            join.out = [batch.select(["k"]) for batch in join.out[-1:]]
        assert join.logic.front.rows > 1500
        assert len(join.logic.front._blocks) <= 16
        assert pool.max_memory() <= memory
    finally:
        pa.set_memory_pool(default)
    assert join.budget.peak <= memory


@pytest.mark.parametrize("back", [MeshJoin(slots=10), HybridJoin(slots=10)], ids=lambda back: type(back).__name__)
@pytest.mark.parametrize("front", [None, Front(slots=5, threshold=1)], ids=["alone", "cached"])
def test_a_cache_takes_no_room_that_a_partition_needs(back, front):
    """There is room for the partition and the rows that meet it, not for a count of each of its rows."""
    table = numbered(2000)
    memory = table.open().scan(0).nbytes + 20_000
    join = Shard(table, Stages(back, front), memory=memory)
    for some in np.split(skewed(100, 2500), 10):
        join.rows(some.tolist())
    assert join.end().results == join.expected
