"""XJoin and RPJ against a plain hash join (F30)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lab.spilling_joins import Arrival, SpillingJoin
from penstock.core.errors import ConfigError


def arrivals(seed: int, count: int = 120, keys: int = 15) -> list[Arrival]:
    rng = np.random.default_rng(seed)
    return [Arrival(int(rng.integers(0, 2)), int(rng.zipf(1.5)) % keys, number) for number in range(count)]


def hash_join(rows: list[Arrival]) -> Counter[tuple[int, int]]:
    return Counter((a.number, b.number) for a in rows for b in rows if (a.side, b.side) == (0, 1) and a.key == b.key)


@pytest.mark.parametrize("policy", ["xjoin", "rpj"])
@pytest.mark.parametrize("room", [1, 7, 40, 1000])
def test_f30_joins_that_spill_give_what_a_hash_join_gives(policy, room):
    for seed in range(6):
        rows = arrivals(seed)
        join = SpillingJoin(room, buckets=5, policy=policy)
        assert Counter(join.over(rows)) == hash_join(rows)
        assert (join.spilled > 0) == (room < 120)
        assert (join.at_once == hash_join(rows).total()) == (room == 1000)


def test_f30_rpj_keeps_what_is_likely_to_join_and_has_more_results_at_once():
    """Right rows have few of the keys that left ones have: most buckets of the left wait in vain."""
    rng = np.random.default_rng(3)
    rows = [
        Arrival(side, int(rng.integers(0, 2) if side else rng.integers(0, 40)), number)
        for number, side in enumerate(rng.integers(0, 2, 600).tolist())
    ]
    xjoin, rpj = (SpillingJoin(60, buckets=40, policy=policy) for policy in ("xjoin", "rpj"))
    assert Counter(xjoin.over(rows)) == Counter(rpj.over(rows)) == hash_join(rows)
    assert rpj.at_once > xjoin.at_once


def test_nothing_fits_no_room():
    with pytest.raises(ConfigError, match="room=0 and buckets=8 hold nothing"):
        SpillingJoin(room=0)
