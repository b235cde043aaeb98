"""BiStream: each stream is stored on one side, and meets all units of the other (F30)."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from penstock.core.errors import ConfigError
from penstock.core.within import band
from penstock.operators.multi_way.baselines.bistream import BiStream
from tests.operators.multi_way.cases import LinearCase, LinearRun, arrive, linear
from tests.streams import EpochEnd, table


@pytest.mark.parametrize("units", [1, 2, 5])
def test_f30_any_number_of_units_gives_what_a_hash_join_gives(units):
    rng = np.random.default_rng(units)
    events = []
    for place in range(8):
        keys, times = rng.integers(0, 6, 9).tolist(), rng.integers(0, 40, 9).tolist()
        events.append(arrive(place % 2, *zip(keys, times, strict=True), ids=100 * place))
        if place % 3 == 2:
            events.append(EpochEnd(int(rng.integers(1, 3)), BiStream(int(rng.integers(1, 4)))))
    case = LinearCase(linear(2, band(8, 3), BiStream(units)), events)
    with duckdb.connect() as db:
        for port, name in enumerate("lr"):
            db.register(name, table(case.rows(port)))
        by_sql = db.execute("SELECT l.id, r.id FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 8 AND l.t + 3")
        expected = by_sql.fetchall()
    results = case.run().results
    assert sorted(results.elements()) == sorted(expected)
    assert expected


def test_a_row_is_stored_by_one_unit_of_its_side_and_sent_to_all_of_the_other():
    join = LinearRun(linear(2, method=BiStream(units=3)))
    join.on(arrive(0, *[(1, 0)] * 6))
    (logic,) = join.logics
    left, right = logic._units
    assert [[page.rows for page in unit.pages(0)] for unit in left] == [[2], [2], [2]], "a hot key spreads"
    assert not any(unit.pages(port) for unit in right for port in (0, 1))
    join.on(arrive(1, (1, 0), (2, 0)))
    assert not any(unit.pages(1) for unit in left)
    assert join.counts()["messages"] == 6 * (1 + 3) + 2 * (1 + 3)
    assert join.counts()["probes"] == 6 * 3 + 2 * 3
    assert join.results.total() == 6


def test_units_are_counted_from_one():
    with pytest.raises(ConfigError, match="units=0 must be 1 or more"):
        BiStream(units=0)
