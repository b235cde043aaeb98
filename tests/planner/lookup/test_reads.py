"""What reads of a table take."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.planner.lookup.reads import ReadCosts


@pytest.mark.parametrize(("given", "words"), [((-1, 0, 1), "request=-1"), ((0, 0, 0), "bandwidth=0")])
def test_what_makes_no_sense_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        ReadCosts(*given)
