"""Joins of several streams on real Spark equal DuckDB's, across restarts on other shards: more by --draw-cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import StateError
from penstock.storage.records import Records
from tests.draws.multi_way import SCHEMA, MultiWayCase, draw_homes, draw_multi_way, ids_of, mixed_up, results
from tests.spark.conftest import Feed, multiset

pytestmark = pytest.mark.spark

JOINS = 3
"""Joins of one flow, each with streams of its own."""

EPOCHS = 2


def ran(spark, cases: Sequence[MultiWayCase], folder: Path, frames: bool, seed: str) -> list[pa.Table]:
    """What comes out of each join of one flow, which starts anew for each epoch on another number of shards.

    Where payload is, is drawn for each stream and each start.
    """
    drawn = Random(f"homes {seed}")
    apart = [drawn.random() < 0.2 for _ in cases]
    feeds = [{alias: Feed(folder / f"{alias}{n}", SCHEMA) for alias in case.aliases} for n, case in enumerate(cases)]
    out: list[list[pa.Table]] = [[] for _ in cases]
    for epoch in range(EPOCHS):
        for case, feed in zip(cases, feeds, strict=True):
            for alias in case.aliases:
                feed[alias].add(case.epochs[epoch][alias])
        flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory="32 MB", shards=1 + epoch)
        found = []
        for n, (case, feed) in enumerate(zip(cases, feeds, strict=True)):
            streams, homes = {}, draw_homes(drawn, case, files=True, apart=apart[n])
            for alias in case.aliases:
                told = {"time": "t", "progress": case.policy, "name": f"{alias}{n}", "payload": homes["payload"][alias]}
                rows = feed[alias]
                streams[alias] = (
                    flow.source(rows.stream(spark), **told)
                    if frames
                    else flow.parquet(rows.folder, schema=SCHEMA, max_files=1, **told)
                )
            asked = {"on": case.on, "within": case.within, "plan": case.plan, "method": case.method, "time": case.time}
            asked["materialize"] = homes["materialize"]
            joined = flow.join(**streams, **asked, key=case.key, name=f"j{n}")
            found.append(joined.to_memory())
        flow.run(end=epoch == EPOCHS - 1)
        for some, rows in zip(out, found, strict=True):
            some.append(rows.table())
    return [pa.concat_tables(some) for some in out]


def test_random_joins_of_several_streams_on_spark_equal_those_of_duckdb(spark, tmp_path, draws):
    failures, count = [], 0
    for flow, seed in enumerate(draws(3)):
        cases = [draw_multi_way(f"{seed}/{n}", EPOCHS) for n in range(JOINS)]
        found = ran(spark, cases, tmp_path / str(flow), flow % 3 == 0, seed)
        for number, (case, rows) in enumerate(zip(cases, found, strict=True)):
            expected, there, mixed = results(case), ids_of(case, rows), mixed_up(case, rows)
            count += expected.total()
            if there != expected or mixed:
                missing, more = expected - there, there - expected
                said = f"missing {missing}, too many {more}, mixed up {mixed}"
                failures.append(f"--draw={seed}, join {number}: {said}\n{case}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
    assert count > 50, "joins without results say little"


ON = ["li.ok = o.ok", "li.sk = s.sk"]


def star(spark, folder: Path, plan: str = "auto", checkpoint: str = "checkpoint") -> tuple[pk.Flow, pk.MemoryOutlet]:
    """A join of files by a plan."""
    flow = pk.Flow(spark, checkpoint=f"{folder}/{checkpoint}", memory="32 MB")
    streams = {alias: flow.parquet(folder / alias, time="t", name=alias) for alias in ("li", "o", "s")}
    asked = {"on": ON, "plan": plan, "key": {"o": "ok", "s": "sk"}, "materialize": "early"}
    return flow, flow.join(**streams, **asked, name="star").to_memory()


def test_a_plan_is_chosen_at_the_first_start_and_kept_whatever_comes_later(spark, tmp_path):
    """Orders are wide at first, so that shops are joined first. Later shops are, and are many."""
    rng = np.random.default_rng(7)

    def rows(count: int, width: int, **columns: Any) -> pa.Table:
        texts = pa.array(rng.integers(0, 10**9, count)).cast(pa.string())
        wide = pa.array([text.as_py().zfill(width) for text in texts])
        return pa.table({**columns, "note": wide, "t": pa.array(range(count), pa.int64())})

    def lines() -> pa.Table:
        return rows(200, 5, ok=rng.integers(0, 60, 200), sk=rng.integers(0, 200, 200))

    epochs = {
        "li": [lines(), lines()],
        "o": [rows(40, 300, ok=np.arange(40)), rows(20, 300, ok=np.arange(40, 60))],
        "s": [rows(10, 5, sk=np.arange(10)), rows(190, 900, sk=np.arange(10, 200))],
    }
    feeds = {alias: Feed(tmp_path / alias, tables[0].schema) for alias, tables in epochs.items()}
    found = []
    for epoch in range(2):
        for alias, feed in feeds.items():
            feed.add(epochs[alias][epoch])
        flow, out = star(spark, tmp_path)
        said = str(flow.run(end=epoch == 1).explain())
        assert "plan (li s) o: " in said
        found.append(out.table())
    assert "plan (li s) o: chosen at the first start" in said
    sent = {name: f"{count:,}" for name, count in {"li": 400, "s": 200, "o": 60}.items()}
    for edge, count in (("li → s", sent["li"]), ("s → li", sent["s"]), ("o → li s", sent["o"])):
        assert re.search(rf"{edge}\s+{count}\s+[\d.]+ k?B\s+{count}\s+[\d.]+ k?B\n", said), "counts survive restarts"

    other, elsewhere = star(spark, tmp_path, checkpoint="another")
    assert "plan (li o) s: " in str(other.run().explain()), "new flows choose by what is there now"
    whole = pa.concat_tables(found)
    names = ["ok", "sk", "li_note", "o_note", "s_note"]
    assert multiset(whole.select(names)) == multiset(elsewhere.table().select(names))
    assert whole.num_rows > 100

    with pytest.raises(pk.CheckpointError, match=r"plans\.star: was \(li s\) o, is now \(li o\) s"):
        star(spark, tmp_path, "(li o) s")[0].run()


def test_a_checkpoint_from_before_plans_were_chosen_goes_on_in_the_order_of_its_streams(spark, tmp_path):
    shops = pa.table({"sk": [1], "note": ["a"], "t": [0]})
    orders = pa.table({"ok": range(50), "note": ["b" * 500] * 50, "t": range(50)})
    lines = pa.table({"ok": range(50), "sk": [1] * 50, "note": ["c"] * 50, "t": range(50)})
    for alias, rows in (("li", lines), ("o", orders), ("s", shops)):
        Feed(tmp_path / alias, rows.schema).add(rows)
    star(spark, tmp_path, "(li o) s")[0].run(end=False)
    records = Records(f"{tmp_path}/checkpoint")
    records.write("flow.json", {name: each for name, each in records.read("flow.json").items() if name != "plans"})
    flow, _ = star(spark, tmp_path)
    assert "plan (li o) s: in the order of the streams" in str(flow.run().explain())


def shown(spark, folder: Path, *columns: str) -> pk.MemoryOutlet:
    """Some columns of a join of files, by a plan and from a checkpoint that are always the same."""
    flow = pk.Flow(spark, checkpoint=f"{folder}/checkpoint", memory="32 MB")
    streams = {alias: flow.parquet(folder / alias, time="t", name=alias, max_files=1) for alias in ("li", "o", "s")}
    joined = flow.join(**streams, on=ON, plan="(li o) s", name="star", materialize={"li": "late", "s": "early"})
    return joined.select(*columns).to_memory()


class Fed:
    """Lines, orders and shops in two epochs: at the first, lines have orders and no shop."""

    def __init__(self, folder: Path) -> None:
        rows = {
            "li": [pa.table({"ok": [n, n], "sk": [n, 1], "note": ["c" * 90] * 2, "t": [n, n]}) for n in (1, 2)],
            "o": [pa.table({"ok": [n], "note": [f"b{n}"], "t": [n]}) for n in (1, 2)],
            "s": [pa.table({"sk": [3 - n], "note": [f"a{n}"], "t": [n]}) for n in (1, 2)],
        }
        self.feeds = [(Feed(folder / name, some[0].schema), iter(some)) for name, some in rows.items()]

    def add(self) -> None:
        """One more epoch."""
        for feed, rows in self.feeds:
            feed.add(next(rows))


def test_f28_a_restart_that_asks_for_a_column_that_partial_results_lack_is_refused(spark, tmp_path):
    fed = Fed(tmp_path)
    fed.add()
    shown(spark, tmp_path, "s_note").run(end=False)
    kept = Records(f"{tmp_path}/checkpoint").read("partials.json")["columns"]
    assert {name: sorted(columns) for name, columns in kept.items()} == {"star-li-o": ["r0_sk", "r0_t", "r1_t"]}
    fed.add()
    with pytest.raises(pk.CheckpointError, match="partial results without note: no sink asked for it"):
        shown(spark, tmp_path, "s_note", "o_note").run()
    out = shown(spark, tmp_path, "s_note")
    out.run()
    assert multiset(out.table()) == multiset(pa.table({"s_note": ["a2", "a2", "a1", "a2"]}))


def test_f28_a_record_of_columns_that_is_gone_is_named(spark, tmp_path):
    fed = Fed(tmp_path)
    fed.add()
    shown(spark, tmp_path, "s_note").run(end=False)
    record = tmp_path / "checkpoint" / "partials.json"
    content = record.read_bytes()
    record.unlink()
    fed.add()
    with pytest.raises(StateError, match=r"partials\.json is missing"):
        shown(spark, tmp_path, "s_note").run()
    record.write_bytes(content)
    out = shown(spark, tmp_path, "s_note")
    out.run()
    assert multiset(out.table()) == multiset(pa.table({"s_note": ["a2", "a2", "a1", "a2"]}))


def test_f28_state_from_before_columns_were_left_out_goes_on_with_all_of_them(spark, tmp_path, monkeypatch):
    fed = Fed(tmp_path)
    fed.add()
    with monkeypatch.context() as patch:
        patch.setattr("penstock.spark.flow.narrowed_on_spark", lambda sinks, _: list(sinks))
        shown(spark, tmp_path, "s_note").run(end=False)
    fed.add()
    out = shown(spark, tmp_path, "s_note", "o_note", "ok")
    out.run()
    expected = {"s_note": ["a2", "a2", "a1", "a2"], "o_note": ["b1", "b1", "b2", "b2"], "ok": [1, 1, 2, 2]}
    assert multiset(out.table()) == multiset(pa.table(expected))
