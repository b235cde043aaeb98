"""The driver of a join of three streams is killed between epochs: no result is lost, and none comes out twice."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from lab.multi_way_spark import add
from lab.workloads.visits import ON, Visits
from tests.spark.drivers.killing import run_killed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

VISITS = Visits(hours=4, rate=5, people=100, places=30, text=100)
WAYS = ("late", "early", "late", "auto")
"""How rows get their payload, after one kill after the other."""


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.deep)])
def test_f26_a_kill_between_epochs_loses_and_doubles_nothing(kills, tmp_path):
    for number, tables in enumerate(VISITS.epochs(minutes=240 / (5 + 3 * kills))):
        for name, rows in tables.items():
            add(tmp_path / name, number, rows)
    run_killed(
        tmp_path,
        "multi_way_job",
        kills,
        every=3,
        arguments=lambda kill: [
            *("--shards", str(1 + kill % 3), "--places", str(kill)),
            *("--materialize", WAYS[kill % len(WAYS)]),
        ],
    )
    with duckdb.connect() as engine:
        for name, rows in VISITS.streams().items():
            engine.register(name, rows)
        asked = "SELECT visit, remark, profile, description FROM"
        expected = Counter(engine.sql(f"{asked} v, u, p WHERE {' AND '.join(ON)}").fetchall())
        found = Counter(engine.sql(f"{asked} '{tmp_path}/out/epoch=*/*.parquet'").fetchall())
    assert found == expected
    assert expected
