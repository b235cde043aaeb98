"""Random lookups on real Spark equal DuckDB's joins: 17 flows of 12 lookups in CI, more by --draw-cases.

The flow starts anew in each epoch, and tables change meanwhile. tests/draws/test_lookups.py runs hundreds of such
cases in process.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from tests.draws.lookups import KINDS, LookupCase, Setting, Store, difference, draw_lookup
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

LOOKUPS = 12
"""Lookups of one flow."""


def drawn(seed: str) -> list[LookupCase]:
    """The lookups of one flow."""
    setting = Setting.draw(random.Random(seed), most=2)
    return [draw_lookup(f"{seed}/{number}", setting, tuple(KINDS)) for number in range(LOOKUPS)]


def side_by_side(stores: Sequence[Store], epoch: int) -> pa.Table:
    """The rows of all lookups in one table, as one source has them."""
    tables = []
    for number, store in enumerate(stores):
        rows = store.rows(epoch)
        tables.append(rows.append_column("lookup", pa.array([number] * len(rows), pa.int32())))
    return pa.concat_tables(tables, promote_options="default")


def ran(spark, cases: Sequence[LookupCase], folder: Path, postgres: str | None, frames: bool) -> dict[int, list[Any]]:
    """The pairs of values that come out of each lookup of one flow, whose source is a DataFrame or files."""
    # The names of folders are those of tables on the server, which all flows share.
    stores = [Store(case, folder / f"{folder.name}_{n}", postgres) for n, case in enumerate(cases)]
    tables = [
        spark.createDataFrame(store.table) if case.store == "frame" else store.table
        for case, store in zip(cases, stores, strict=True)
    ]
    feed = Feed(folder / "rows", side_by_side(stores, 0).schema)
    setting, found = cases[0].setting, defaultdict(list)
    for epoch in range(setting.epochs):
        feed.add(side_by_side(stores, epoch))
        for store in stores:
            store.become(epoch)
        flow = pk.Flow(
            spark, checkpoint=f"{folder}/checkpoint", memory=max(2_000_000, 2 * setting.memory), shards=setting.shards
        )
        rows, lookups = feed.stream(spark) if frames else None, []
        source = None if frames else flow.parquet(feed.folder, time="t", schema=feed.schema, max_files=1)
        for number, (case, store, table) in enumerate(zip(cases, stores, tables, strict=True)):
            key = f"k_{case.kind}"
            ours = (
                flow.source(
                    rows.where(f"lookup = {number}").select(key, "v", "t"),
                    time="t",
                    progress=pk.ordered(),
                    name=f"s{number}",
                )
                if source is None
                else source.where(f"lookup = {number}").select(key, "v", "t")
            )
            answers = ours.lookup(
                table,
                on=key,
                how=case.how,
                freshness=case.freshness,
                max_age=case.max_age,
                method=store.method,
            )
            lookups.append(answers.select(f"{number} AS number", "v", "w"))
        out = lookups[0].union(*lookups[1:]).to_memory()
        flow.run(end=epoch == setting.epochs - 1)
        for number, *pair in zip(*(column.to_pylist() for column in out.table().columns), strict=True):
            found[number].append(tuple(pair))
    return found


def test_random_lookups_on_spark_equal_joins_of_duckdb(spark, tmp_path, draws, postgres_if_there):
    failures = []
    for flow, seed in enumerate(draws(17)):
        cases = [case for case in drawn(seed) if case.store != "postgresql" or postgres_if_there]
        found = ran(spark, cases, tmp_path / str(flow), postgres_if_there, frames=flow % 4 == 0)
        for number, case in enumerate(cases):
            wrong = difference(case, found[number])
            if wrong:
                failures.append(f"--draw={seed}, lookup {number}: {wrong}\n{case}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
