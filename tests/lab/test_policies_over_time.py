"""The picture of results over time by policy."""

from __future__ import annotations

import numpy as np

from lab import policies_over_time


def test_curves_rise_to_what_a_policy_gives_and_the_picture_has_them_all(tmp_path):
    found = {title: policies_over_time.counted(streams, 0.02) for title, streams in policies_over_time.STREAMS.items()}
    for series in found.values():
        assert list(series) == list(policies_over_time.policies())
        for arrivals, shares in series.values():
            assert arrivals[-1] == 40_000
            assert (np.diff(shares) >= 0).all()
            assert 0 < shares[-1] < 100
    apart = {name: shares[-1] for name, (_, shares) in found["half of the partitions never meet"].items()}
    assert apart["RRPJ"] > 2 * max(apart["RPJ"], apart["XJoin"], apart["random"])
    policies_over_time.draw(found, tmp_path / "policies.svg")
    drawn = (tmp_path / "policies.svg").read_text()
    assert all(name in drawn for name in policies_over_time.policies())
