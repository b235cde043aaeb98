"""F23: consumers see the punctuations that they can use, each once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operators import Describing
from penstock.core.errors import ConfigError
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.operators.progress import Describe
from tests.streams import examples

SECOND = 1_000_000


def seen(config: Describe, bounds: list[int]) -> list[int]:
    describing = Describing(config)
    return [said for bound in bounds if (said := describing.advance(bound)) is not None]


def test_f23_a_consumer_of_slide_5_s_sees_only_5_s_boundaries():
    bounds = [n * SECOND // 3 for n in range(60)]
    assert seen(Describe(("5 s",), unit="microseconds"), bounds) == [0, 5 * SECOND, 10 * SECOND, 15 * SECOND]


def test_f23_boundaries_that_bounds_skip_are_not_made_up_for():
    assert seen(Describe((5,)), [4, 22]) == [0, 20]


def test_f23_several_consumers_see_the_boundaries_of_all():
    assert seen(Describe((4, 6)), list(range(14))) == [0, 4, 6, 8, 12]


def test_f23_boundaries_are_counted_from_the_origin():
    assert seen(Describe((5,), origin=2), [-4, 1, 2, 6, 7]) == [-8, -3, 2, 7]


@given(st.lists(st.integers(-50, 50)).map(sorted), st.lists(st.integers(1, 9), min_size=1, max_size=3))
@examples(0.1)
def test_f23_what_is_handed_on_is_sound_late_by_less_than_a_slide_and_never_twice(bounds, slides):
    describing = Describing(Describe(tuple(slides)))
    before = TIME_MIN
    for bound in bounds:
        said = describing.advance(bound)
        assert bound - min(slides) < describing.said <= bound
        assert said is None or (said > before and any(said % slide == 0 for slide in slides))
        before = describing.said


def test_the_ends_of_time_are_boundaries():
    assert seen(Describe((5,)), [TIME_MIN, TIME_MAX]) == [TIME_MAX]


@pytest.mark.parametrize(
    ("slides", "message"),
    [
        ((), r"^slides=\(\) is empty\. Write the slide of each consumer's windows\.$"),
        ((0,), r"^slides=0 must be positive: by how much a consumer's windows move\.$"),
    ],
)
def test_slides_that_are_none_are_refused(slides, message):
    with pytest.raises(ConfigError, match=message):
        Describe(slides)
