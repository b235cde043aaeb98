"""Random window joins on real Spark equal DuckDB's: 6 flows of 12 joins in CI, more by --draw-cases.

test_file_draws.py has more, whose sources are files.
tests/draws/test_joins.py runs hundreds of such cases through the same task code without Spark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from tests.draws.joins import JoinRun, as_source, difference, draw_runs
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark

JOINS = 12
"""Joins of one flow."""

PAYLOADS = ["row", "auto", "segments", "source", "source"]
"""Where payload of a source may be."""

OUTLET = 6
"""One of so many flows shows its late rows, which costs as much as the joins; the others count them."""


def side_by_side(runs: Sequence[JoinRun], epoch: int | None) -> pa.Table:
    """The rows of all joins in one table, as one source has them; none of them for the epoch None."""
    tables = []
    for number, run in enumerate(runs):
        for side in (0, 1):
            rows = as_source([] if epoch is None else run.case.epochs[epoch][side], run.case, side)
            clock = {name: f"{name}_{run.case.clock}" for name in ("t", "mark")}
            rows = rows.rename_columns([clock.get(name, name) for name in rows.column_names])
            for name, value in (("join", number), ("side", side)):
                rows = rows.append_column(name, pa.array([value] * len(rows), pa.int32()))
            tables.append(rows)
    return pa.concat_tables(tables, promote_options="default")


def ran(
    spark, runs: Sequence[JoinRun], folder: Path, outlet: bool, homes: Random
) -> list[tuple[Counter[Any], Counter[int] | int]]:
    """What comes out of each join of one flow, and which rows were late; with no late outlet, how many.

    Where payload of a source is, is drawn at each start; all of them scan the same files.
    """
    feed = Feed(folder / "rows", side_by_side(runs, None).schema)
    pairs: defaultdict[int, Counter[Any]] = defaultdict(Counter)
    late: defaultdict[int, Counter[int]] = defaultdict(Counter)
    counts: Counter[int] = Counter()
    for place, count in enumerate(runs[0].epochs):
        for epoch in range(feed.count, feed.count + count):
            feed.add(side_by_side(runs, epoch))
        memory = max(2_000_000, 2 * runs[0].memory)
        flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory=memory, shards=runs[0].shards[place])
        rows = feed.stream(spark)
        first, *others = [_join(flow, rows, number, run, place, homes) for number, run in enumerate(runs)]
        united = first.union(*others)
        out, late_rows = united.to_memory(), united.late.to_memory() if outlet else None
        query = flow.run(end=feed.count == len(runs[0].case.epochs))
        for number, *pair in zip(*(column.to_pylist() for column in out.table().columns), strict=True):
            pairs[number][tuple(pair)] += 1
        if late_rows is not None:
            found = late_rows.table()
            for source, row in zip(found["late_source"].to_pylist(), found["id"].to_pylist(), strict=True):
                late[int(source[1:])][row] += 1
        for report in query.progress().epochs:
            for source, number_late in (*report.late.items(), *report.no_time.items()):
                counts[int(source[1:])] += number_late
    return [(pairs[number], late[number] if outlet else counts[number]) for number in range(len(runs))]


def _join(flow: pk.Flow, rows, number: int, run: JoinRun, place: int, homes: Random) -> pk.Stream:
    """One of the joins: the number it has, and the ids of both sides."""
    case, sides = run.case, []
    for side, name in enumerate(("l", "r")):
        columns = as_source([], case, side).column_names
        clock = {name: f"{name}_{case.clock} AS {name}" for name in ("t", "mark")}
        ours = rows.where(f"join = {number} AND side = {side}").selectExpr(*(clock.get(c, c) for c in columns))
        told = {"time": "t", "progress": case.policies[side], "payload": homes.choice(PAYLOADS)}
        sides.append(flow.source(ours, name=f"{name}{number}", **told))
    on = {f"k_{ours}": f"k_{theirs}" for ours, theirs in case.keys}
    joined = sides[0].join(sides[1], on=on, within=case.within, how=case.how, method=case.methods[place])
    other = "id_right" if "id_right" in joined.columns.names else "CAST(NULL AS BIGINT)"
    return joined.select(f"{number} AS number", "id", f"{other} AS id_right")


def test_random_joins_on_spark_equal_those_of_duckdb(spark, tmp_path, draws):
    failures = []
    for flow, seed in enumerate(draws(6)):
        runs = draw_runs(seed, JOINS)
        came = ran(spark, runs, tmp_path / str(flow), flow % OUTLET == 0, Random(f"homes {seed}"))
        for number, (run, found) in enumerate(zip(runs, came, strict=True)):
            said = difference(run, *found)
            if said:
                failures.append(f"--draw={seed}, join {number}: {said}\n{run}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
