"""How much of the final result is out: estimated from what has come, against the truth, and exact once all have met."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.budget import Budget
from penstock.core.operator import State
from penstock.core.pages import clip_page
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import hash_range
from penstock.operators.window_join import Rrpj
from penstock.operators.window_join.progressive.baselines.parameters import XJoin
from penstock.operators.window_join.progressive.expected import Expected
from tests.operators.window_join.progressive.test_engine import join
from tests.streams import left, right

ROWS, EPOCHS = 4000, 10

KEYS = {
    "uniform": lambda rng, side: rng.integers(0, 1500, ROWS),
    "skewed alike": lambda rng, side: np.minimum(rng.zipf(1.3, ROWS), 2000),
    "skewed the other way": lambda rng, side: np.abs(side * 300 - np.minimum(rng.zipf(1.3, ROWS), 300)),
    "few keys": lambda rng, side: rng.integers(0, 5, ROWS),
}


def sides(kind: str, seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [KEYS[kind](rng, side) for side in (0, 1)]


def pairs(one: np.ndarray, other: np.ndarray) -> int:
    keys, counts = np.unique(one, return_counts=True)
    found = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    return sum(found.get(key, 0) for key in other.tolist())


@pytest.mark.parametrize("kind", KEYS)
def test_the_estimate_is_near_the_truth_whatever_the_skew(kind):
    """Within 10 %, three of its standard errors where both sides are skewed alike; what is rare in one gets more."""
    seen, keys = Expected(), sides(kind)
    for port in (0, 1):
        seen.arrive(port, hash_keys([pa.array(keys[port])]))
    truth = pairs(*keys)
    squares = np.prod([np.sqrt((np.unique(some, return_counts=True)[1] ** 2).sum()) for some in keys])
    assert seen.total == pytest.approx(truth, abs=max(0.1 * truth, 3 * squares / 32))


@pytest.mark.parametrize("kind", ["uniform", "skewed alike"])
@pytest.mark.parametrize("method", [Rrpj(memory=600, row=1), Rrpj(memory=600, row=1, by="row"), XJoin(600, 1)])
def test_progress_tells_about_which_part_of_the_results_is_out(kind, method):
    keys = sides(kind)
    flow = pk.LocalFlow(memory="64 MB", shards=2)
    streams = [
        flow.source([table(some) for some in np.array_split(keys[side], EPOCHS)], time="t", name="lr"[side])
        for side in (0, 1)
    ]
    streams[0].join(streams[1], on="k", method=method, name="ever").foreach_epoch(lambda rows, epoch: None)
    query = flow.run()
    epochs, out = query.progress().epochs, 0
    for number, epoch in enumerate(epochs[:-1]):
        out += epoch.rows_out
        truth = pairs(*(np.concatenate(np.array_split(some, EPOCHS)[: number + 1]) for some in keys))
        assert epoch.operators["ever"].share_out == pytest.approx(out / truth, abs=0.1)
    assert epochs[-2].operators["ever"].share_out < 0.9, "some were put off"
    assert query.progress().shares_out == {"ever": 1.0}
    assert query.progress().rows_out == pairs(*keys)


def table(keys: np.ndarray) -> pa.Table:
    return pa.table({"k": keys.astype(np.int64), "t": np.arange(keys.size)})


def test_explain_and_progress_say_so_in_words():
    keys = sides("skewed alike")
    flow = pk.LocalFlow(memory="64 MB")
    streams = [flow.source(table(some), time="t", name=name) for some, name in zip(keys, "lr", strict=True)]
    streams[0].join(streams[1], on="k", method=Rrpj(memory=600, row=1), name="ever").to_memory()
    query = flow.run(end=False)
    share = f"about {100 * query.progress().shares_out['ever']:.0f} %"
    assert f"ever: {share} of the results of its rows so far are out" in str(query.progress())
    assert f"{share} of the" in str(query.explain())


def test_a_silent_epoch_in_which_all_meet_makes_it_exact_and_what_comes_later_is_added():
    keys = [np.array_split(some, 2) for some in sides("skewed alike")]
    flow = pk.LocalFlow(memory="64 MB")
    nothing = table(np.zeros(0, np.int64))
    streams = [
        flow.source([table(some[0]), nothing, table(some[1])], time="t", name=name)
        for some, name in zip(keys, "lr", strict=True)
    ]
    streams[0].join(streams[1], on="k", method=Rrpj(memory=600, row=1), name="ever").to_memory()
    first, silent, third = (epoch.operators["ever"] for epoch in flow.run(end=False).progress().epochs)
    assert first.share_out < 1
    assert silent.share_out == 1.0
    assert silent.counts["expected"] == pairs(keys[0][0], keys[1][0])
    whole = pairs(*(np.concatenate(some) for some in keys))
    assert third.counts["expected"] == pytest.approx(whole, rel=0.1)


def test_a_method_that_puts_nothing_off_has_all_of_it_out():
    keys = sides("uniform")
    flow = pk.LocalFlow()
    streams = [flow.source(table(some), time="t", name=name) for some, name in zip(keys, "lr", strict=True)]
    streams[0].join(streams[1], on="k", method="oa", name="ever").to_memory()
    assert flow.run(end=False).progress().shares_out == {"ever": 1.0}


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_joins_that_give_rows_and_not_pairs_tell_nothing(how):
    at_work = join(Rrpj(memory=2, row=1, partitions=1), how)
    at_work.on(left(t=1, k=1), right(t=2, k=1))
    assert "owed" not in at_work.logics[0].counts()


def test_what_was_counted_survives_a_restart_and_another_number_of_shards():
    at_work = join(Rrpj(memory=8, row=1, partitions=2))
    at_work.on(*(side(t=n, k=n % 4) for n in range(40) for side in (left, right)))
    counts, state = at_work.logics[0].counts(), at_work.logics[0].state()
    assert counts["owed"] > 0
    config, types = at_work.config, at_work.types
    again = State(state.pages, json.loads(json.dumps(state.meta)))
    found = config.logic(types, at_work.store, Budget(1 << 20), again).counts()
    assert (found["expected"], found["owed"]) == (counts["expected"], counts["owed"])
    parts = [
        State(tuple(page for each in state.pages if (page := clip_page(at_work.store, each, *hash_range(n, 3)))))
        for n in range(3)
    ]
    found = [config.logic(types, at_work.store, Budget(1 << 20), part).counts() for part in parts]
    assert sum(each["expected"] for each in found) == pytest.approx(counts["expected"], rel=0.05)
    assert sum(each["owed"] for each in found) == pytest.approx(counts["owed"], rel=0.1)


def test_explain_says_when_streams_drift():
    """Each tenth of both streams has three keys of its own."""
    rng = np.random.default_rng(3)
    tenth = np.repeat(np.arange(20) % 10, 300)
    keys = [tenth * 3 + rng.integers(0, 3, tenth.size) for _ in range(2)]
    steady = [rng.integers(0, 500, tenth.size) for _ in range(2)]
    said = []
    for some in (keys, steady):
        flow = pk.LocalFlow(memory="64 MB")
        sources = [
            flow.source([table(part) for part in np.array_split(side, 20)], time="t", name=name)
            for side, name in zip(some, "lr", strict=True)
        ]
        sources[0].join(sources[1], on="k", method=Rrpj(memory=600, row=1)).to_memory()
        said.append("the streams drift: in 1 shard" in str(flow.run(end=False).explain()))
    assert said == [True, False]
