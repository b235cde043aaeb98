"""What joins of several streams move on real Spark: bytes by edge, the figures in small, and a run over many epochs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pk
from lab import multi_way_spark as measured
from lab import multi_way_stream as stream
from lab.multi_way_runs import PLANS
from lab.multi_way_spark import FETCH_BYTES, FETCH_ROWS, FETCH_SECONDS, JOIN_BYTES, JOIN_ROWS, MEASURES, SHUFFLED, STATE
from lab.shuffle_counts import Counting, last_stage, stage_writes, task_writes
from lab.workloads.tpch import KB, Tpch, widths
from lab.workloads.visits import ON, PLAN, Visits
from penstock.planner.payload import HomePilot
from penstock.runtime import shard
from penstock.spark.frames import EpochFrames
from penstock.storage.versioned import Checkpoint, Ledger

pytestmark = [pytest.mark.spark, pytest.mark.own_place]

ROWS = {"li": 12_000, "o": 14_000, "s": 9_000}
"""Of each stream another number, so that tasks are told apart by it."""
EDGES = {("join0", 0): "li", ("join0", 1): "o", ("join1", 0): "li o", ("join1", 1): "s"}
TEXT = 256
PLACE = 8
"""Bytes that say where a row is in its source."""


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """Each lineitem, with a text more, has its order and its supplier."""
    data = Tpch(scale=0.01, payload=(("li", TEXT),), suppliers=ROWS["s"])
    some = {name: measured.as_stream(data.table(name).slice(0, rows)) for name, rows in ROWS.items()}
    ordered = some["li"].drop_columns(["t"]).join(some["o"].drop_columns(["t"]), "orderkey", right_suffix="_o")
    assert ordered.num_rows == ROWS["li"]
    return {**some, "li o": ordered}


@pytest.fixture(scope="module")
def files(tables: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    for name in ROWS:
        measured.add(folder / name, 0, tables[name])
    return folder


def joined(spark: Any, files: Path, folder: Path, mode: str, place: Any) -> Counting:
    """The 3-way join over one epoch, by way of `place`."""
    plan, counting = PLANS["3-way"], Counting(folder / "counts")
    flow = pk.Flow(spark, checkpoint=str(folder / "checkpoint"), memory="64 MB", shards=2)
    streams = {name: flow.parquet(files / name, time="t", name=name) for name in plan.rels}
    on = [str(each) for each in plan.predicates]
    flow.join(**streams, on=on, plan=str(plan), materialize=mode).to_format("noop")
    with counting.watching(place):
        assert flow.run(end=False).progress().rows_out == ROWS["li"]
    return counting


def arrow_width(rows: pa.Table) -> float:
    """Bytes of a row of an edge in Arrow, in the mean: its hash, its time and its other columns."""
    columns = tuple(name for name in rows.column_names if name != "t")
    texts = sum(pa.types.is_string(rows.schema.field(name).type) for name in columns)
    return 16 + float(widths(rows, columns).mean()) + 4 * texts


def unsafe_width(rows: pa.Table, columns: int) -> float:
    """Bytes of a row in Spark's own layout, in the mean: its size, bits for nulls, a word per column, padded texts."""
    texts = [column for field, column in zip(rows.schema, rows.columns, strict=True) if pa.types.is_string(field.type)]
    padded = sum(float(np.ceil(pc.binary_length(text).to_numpy() / 8).mean()) * 8 for text in texts)
    return 4 + 8 * -(-columns // 64) + 8 * columns + padded


@pytest.mark.parametrize("mode", ["early", "late"])
def test_f24_in_tasks_an_edge_moves_its_rows_times_their_width_in_arrow(spark, tmp_path, files, tables, mode):
    last = last_stage(spark)
    counts = {
        (c.operator, c.port): c for c in joined(spark, files, tmp_path, mode, "tasks").counts() if c.kind == "edge"
    }
    # The results of the first join bring the key once, as one column shows it (F28), and two times: one is theirs.
    more = {"li o": 8} if mode == "early" else {}
    width = {name: arrow_width(rows) + more.get(name, 0) for name, rows in tables.items()}
    if mode == "late":
        # Hash and time, what joins a row to others, and where it is.
        width = {
            "li": 16 + 16 + PLACE,
            "o": 16 + 8 + PLACE,
            "s": 16 + 8 + PLACE,
            "li o": 16 + 2 * 8 + 2 * 8 + 2 * PLACE,
        }
    assert counts.keys() == EDGES.keys()
    for edge, name in EDGES.items():
        assert counts[edge].rows == ROWS.get(name, ROWS["li"])
        assert counts[edge].bytes == pytest.approx(counts[edge].rows * width[name], rel=0.05), name
    writes = [each for each in stage_writes(spark, last) if each.bytes]
    for operator, stage in zip(("join0", "join1"), writes, strict=True):
        moved = sum(count.bytes for (into, _), count in counts.items() if into == operator)
        assert stage.bytes == pytest.approx(moved, rel=0.05)


def test_f24_spark_s_own_shuffle_of_an_edge_moves_its_rows_times_their_width(
    spark, tmp_path, files, tables, monkeypatch
):
    columns, shards = {}, EpochFrames._shards

    def noted(self, node, arriving, *more):
        columns[node.name] = len(arriving.columns)
        return shards(self, node, arriving, *more)

    monkeypatch.setattr(EpochFrames, "_shards", noted)
    last = last_stage(spark)
    joined(spark, files, tmp_path, "early", "spark")
    stages = [each.stage for each in stage_writes(spark, last) if each.bytes]
    for operator, stage in zip(("join0", "join1"), stages, strict=True):
        wrote = [each for each in task_writes(spark, stage) if each.records > 2]
        sides = ("li", "o") if operator == "join0" else ("s", "li o")
        counts = {name: ROWS.get(name, ROWS["li"]) for name in sides}
        assert sum(each.records for each in wrote) == sum(counts.values())
        told = sum(rows * unsafe_width(tables[name], columns[operator]) for name, rows in counts.items())
        assert sum(each.bytes for each in wrote) == pytest.approx(told, rel=0.05)


def test_f27_f39_a_figure_s_runs_give_all_results_and_count_what_moves(spark, tmp_path, monkeypatch):
    """Both modes of the 4-way join in small: results, bytes, messages; seconds are never asserted."""
    monkeypatch.setattr(measured, "SIZES", (30_000, 60_000))
    scale = 0.0005
    measured.write(tmp_path, Tpch(scale, (("li", 3 * KB),)), scale)
    early, late = (measured.run(spark, tmp_path, "4-way", mode, 2, scale).paths for mode in ("early", "late"))
    lines = 3000
    for paths in (early, late):
        assert {measure.name for measure in MEASURES} <= paths.keys()
        assert paths[SHUFFLED.name][-1] == pytest.approx(paths[JOIN_BYTES.name][-1], rel=0.05)
        assert (np.diff(paths[SHUFFLED.name]) > 0).all()
    # All four streams and both partial results, whichever mode.
    assert early[JOIN_ROWS.name][-1] == late[JOIN_ROWS.name][-1]
    assert early[FETCH_ROWS.name][-1] == early[FETCH_BYTES.name][-1] == early[FETCH_SECONDS.name][-1] == 0
    assert late[FETCH_ROWS.name][-1] == pytest.approx(4 * lines / 1000)
    assert late[FETCH_BYTES.name][-1] >= lines * 3 * KB / 1e6
    assert late[JOIN_BYTES.name][-1] < early[JOIN_BYTES.name][-1] / 10
    assert late[STATE.name][-1] < early[STATE.name][-1] / 10


def test_f18_a_switch_in_mid_stream_changes_no_result_and_the_bytes_of_the_next_epoch(spark, tmp_path, monkeypatch):
    """Late, early, late, early … at random epochs: the payload of each epoch's rows travels with them or does not."""
    late = Random(18).sample([True, False] * 3, 6)
    visits, counting = Visits(2, rate=30, people=200, places=60, text=400), Counting(tmp_path / "counts", spark)
    for number, tables in enumerate(visits.epochs(20)):
        for name, rows in tables.items():
            measured.add(tmp_path / name, number, rows)
    # As many epochs are over as shuffles were looked at after; the end of the streams is the last one.
    monkeypatch.setattr(HomePilot, "late", property(lambda _: [*late, True, True][len(counting.shuffled)]))
    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="64 MB", shards=2)
    streams = {name: flow.parquet(tmp_path / name, time="t", name=name, max_files=1) for name in "vup"}
    out = flow.join(**streams, on=list(ON), plan=PLAN, materialize="auto").to_memory()
    with counting.watching():
        report = flow.run().progress()
    assert [len(epoch.left_behind) for epoch in report.epochs[:6]] == [3 * each for each in late]
    with duckdb.connect() as engine:
        for name, rows in visits.streams().items():
            engine.register(name, rows)
        asked = f"SELECT visit, remark, profile, description FROM v, u, p WHERE {' AND '.join(ON)}"
        expected = Counter(engine.sql(asked).fetchall())
    found = out.table().select(["visit", "remark", "profile", "description"])
    assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
    edges = [count for count in counting.counts() if count.kind == "edge" and count.port == 0 and count.epoch < 6]
    widths = {(count.operator, count.epoch): count.bytes / count.rows for count in edges if count.operator == "join0"}
    assert all((width < 100) == late[epoch] and (width > 400) != late[epoch] for (_, epoch), width in widths.items())


@pytest.mark.parametrize(
    ("hours", "minutes"), [(2.0, 20.0), pytest.param(48.0, 20.0, marks=pytest.mark.deep)], ids=["short", "long"]
)
def test_f34_arrivals_in_no_order_give_what_sql_gives_epoch_after_epoch(spark, tmp_path, hours, minutes):
    visits = Visits(hours, rate=30, people=300, places=60, text=200)
    folder = tmp_path / "out"
    point = stream.run(spark, tmp_path, visits, "late", lambda rows: rows.to_parquet(str(folder)), minutes)
    with duckdb.connect() as engine:
        for name, rows in visits.streams().items():
            engine.register(name, rows)
        asked = "SELECT visit, remark, profile, description FROM"
        expected = engine.sql(f"{asked} v, u, p WHERE {' AND '.join(ON)}").fetchall()
        found = engine.sql(f"{asked} '{folder}/epoch=*/*.parquet'").fetchall()
    assert Counter(found) == Counter(expected)
    held, moved = point.paths[stream.STATE.name], point.paths[stream.TRAFFIC.name]
    assert point.times.size == round(60 * hours / minutes)
    assert (np.diff(held) > 0).all(), "full history only grows"
    # No more than keys, times and places are held and moved: rows of 200 B and more are not.
    rows = sum(table.num_rows for table in visits.streams().values())
    assert 1e6 * held[-1] < 100 * (rows + len(expected) + visits.hours * 60 * visits.rate)
    assert (moved > 0).all()
    assert {measure.name for measure in (stream.LOOK_UP, stream.FETCH, stream.RESULTS)} <= point.paths.keys()


QUIET, BUSY = 1, 60
"""Places by which a visit is described: each makes one result."""
PHASES = [QUIET] * 2 + [BUSY] * 2 + [QUIET] * 9 + [BUSY] * 2
"""Of each epoch, how many results a visit becomes."""
STOPPED = 6
"""Epochs before the flow stops, and starts again."""


def phase(epoch: int, each: int) -> dict[str, pa.Table]:
    """Visits of one epoch that meet only rows of the same epoch, with texts that cannot be compressed."""
    rng = np.random.default_rng(epoch)

    def text(count: int, size: int) -> pa.Array:
        return pa.array([rng.bytes(size // 2).hex() for _ in range(count)])

    rows, places = 120, 4
    ids, where = 1000 * epoch + np.arange(rows), 10 * epoch + np.arange(rows) % places
    described = np.repeat(10 * epoch + np.arange(places), each)
    streams = {
        "v": {"person": ids, "place": where, "visit": ids, "remark": text(rows, 160)},
        "u": {"person": ids, "profile": text(rows, 160)},
        "p": {"place": described, "n": np.arange(described.size)},
    }
    return {
        name: pa.table({**columns, "t": pa.array(range(len(next(iter(columns.values())))), pa.int64())})
        for name, columns in streams.items()
    }


def test_f18_measured_results_alone_make_a_join_early_and_late_again_across_a_restart(spark, tmp_path, monkeypatch):
    """Late as long as visits become one result each, early while they become sixty: nobody asks for it."""
    ledgers, commit = [], Checkpoint.commit

    def noted(self: Checkpoint, ledger: Ledger) -> None:
        ledgers.append(ledger)
        commit(self, ledger)

    monkeypatch.setattr(Checkpoint, "commit", noted)
    # Small pages are merged from time to time, switch or not.
    monkeypatch.setattr(shard, "compact", lambda pages, store, budget: pages)
    epochs = [phase(epoch, each) for epoch, each in enumerate(PHASES)]
    found, left, said = [], [], []
    for begin, end in ((0, STOPPED), (STOPPED, len(PHASES))):
        for number in range(begin, end):
            for name, rows in epochs[number].items():
                measured.add(tmp_path / name, number, rows)
        flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="256 MB", shards=1)
        streams = {name: flow.parquet(tmp_path / name, time="t", name=name, max_files=1) for name in "vup"}
        joined = flow.join(**streams, on=list(ON), plan=PLAN, name="visits")
        out = joined.select("visit", "remark", "profile", "n").to_memory()
        query = flow.run(end=end == len(PHASES))
        left += [epoch.left_behind for epoch in query.progress().epochs if sum(epoch.rows_in.values())]
        said.append((query.progress().switches, str(query.explain())))
        found.append(out.table())
    # The first busy epoch tells; the way back takes until the mean has come down, and the dwell is over.
    late = [{"v", "u"} <= {*each} for each in left]
    assert late == [True] * 3 + [False] * 6 + [True] * 5 + [False]
    assert said[0][0] == {"u": [3], "v": [3]}
    assert said[1][0] == {"u": [9, 14], "v": [9, 14]}
    assert "v is early: payload of v travels with the rows" in said[0][1]
    assert "changed 1 times" in said[0][1]
    assert "changed 3 times" in said[1][1]
    with duckdb.connect() as engine:
        for name in "vup":
            engine.register(name, pa.concat_tables([epoch[name] for epoch in epochs]))
        asked = f"SELECT visit, remark, profile, n FROM v, u, p WHERE {' AND '.join(ON)}"
        expected = Counter(engine.sql(asked).fetchall())
    rows = pa.concat_tables(found)
    assert Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == expected
    for before, after in pairwise(ledgers[: len(PHASES)]):
        for operator in after.states:
            assert before.names(operator) < after.names(operator), "pages only come, whatever rows carry"
