"""000-03: PQRS fills its quadrants by p, q, r, s at every level, over ranges of any size, and comes by time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.workloads.pqrs import Pqrs
from penstock import ConfigError

UNEVEN = Pqrs(p=0.5, q=0.1, r=0.15, s=0.25)


def shares(points, times, keys):
    """What part of the points lies in each quadrant of a rectangle, and how many lie in it at all."""
    middle_time, middle_key = times.start + (len(times) + 1) // 2, keys.start + (len(keys) + 1) // 2
    inside = (
        (points.times >= times.start)
        & (points.times < times.stop)
        & (points.keys >= keys.start)
        & (points.keys < keys.stop)
    )
    quadrant = 2 * (points.times >= middle_time) + (points.keys >= middle_key)
    return np.bincount(quadrant[inside], minlength=4) / inside.sum()


ranges = st.builds(lambda start, size: range(start, start + size), st.integers(-(10**9), 10**9), st.integers(1, 10**9))


@given(st.integers(0, 200), ranges, ranges, st.integers(0, 2**40))
def test_000_03_points_lie_in_their_ranges_and_come_by_time(count, times, keys, seed):
    points = Pqrs().points(count, times=times, keys=keys, seed=seed)
    assert points.times.size == points.keys.size == count
    assert (np.diff(points.times) >= 0).all()
    assert all(time in times for time in points.times.tolist())
    assert all(key in keys for key in points.keys.tolist())


@pytest.mark.parametrize(("times", "keys"), [(range(4096), range(4096)), (range(100, 3700), range(7, 10_000_008))])
@pytest.mark.parametrize("shape", [Pqrs(), UNEVEN], ids=["usual", "uneven"])
def test_000_03_the_quadrants_have_their_shares_at_every_level(shape, times, keys):
    points = shape.points(400_000, times=times, keys=keys, seed=11)
    for _ in range(3):
        np.testing.assert_allclose(shares(points, times, keys), [shape.p, shape.q, shape.r, shape.s], atol=0.012)
        times, keys = times[: (len(times) + 1) // 2], keys[: (len(keys) + 1) // 2]


def test_000_03_a_range_of_one_value_leaves_the_other_its_marginal():
    points = UNEVEN.points(100_000, times=range(5, 6), keys=range(1024), seed=11)
    assert set(points.times.tolist()) == {5}
    assert abs((points.keys < 512).mean() - (UNEVEN.p + UNEVEN.r)) < 0.01
    points = UNEVEN.points(100_000, times=range(1024), keys=range(1), seed=11)
    assert abs((points.times < 512).mean() - (UNEVEN.p + UNEVEN.q)) < 0.01


def test_000_03_even_shares_are_uniform():
    points = Pqrs(p=0.25, q=0.25, r=0.25, s=0.25).points(160_000, times=range(4), keys=range(4), seed=11)
    counts = np.bincount(points.times * 4 + points.keys, minlength=16)
    assert abs(counts - 10_000).max() < 500


def test_000_03_no_time_or_key_is_left_out():
    points = Pqrs().points(5000, times=range(3, 10), keys=range(5), seed=11)
    assert set(zip(points.times.tolist(), points.keys.tolist(), strict=True)) == {
        (time, key) for time in range(3, 10) for key in range(5)
    }


def test_the_same_seed_gives_the_same_points_and_another_seed_others():
    def draw(seed):
        return Pqrs().points(1000, times=range(10**6), keys=range(10**6), seed=seed)

    one, again, other = draw(1), draw(1), draw(2)
    assert (one.times == again.times).all()
    assert (one.keys == again.keys).all()
    assert (one.keys != other.keys).any()


@pytest.mark.parametrize("wrong", [{"p": 0.5}, {"p": -0.1, "q": 0.7}])
def test_shares_that_are_none_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"are not the shares of a whole\. Write four that sum to 1, none below 0"):
        Pqrs(**wrong)


def test_points_need_a_place():
    with pytest.raises(ConfigError, match=r"times=range\(0, 0\) × keys=range\(0, 5\) has no place for 3 points"):
        Pqrs().points(3, times=range(0), keys=range(5), seed=0)
    assert Pqrs().points(0, times=range(0), keys=range(0), seed=0).times.size == 0
