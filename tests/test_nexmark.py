"""Nexmark in process: its events have the published proportions, and its queries give what DuckDB gives, row by row."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import penstock as pk

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from nexmark_check import Definition, WrongRowsError
from nexmark_events import LONGEST_AUCTION_US, SCHEMA, Events
from nexmark_queries import LEFT_OUT, QUERIES

DELAY_US = 4_000_000


@pytest.fixture(scope="module")
def events() -> Events:
    """Few events in many windows, and sessions that end."""
    return Events(epoch_rows=1000, epochs=5, pause_us=6_000_000)


@pytest.fixture(scope="module")
def epochs(events: Events) -> list[pa.Table]:
    return list(events.arriving())


@pytest.fixture(scope="module")
def definition(epochs: list[pa.Table]) -> Definition:
    return Definition(pa.concat_tables(epochs))


@pytest.fixture(scope="module")
def many() -> pa.Table:
    return pa.concat_tables(Events(epoch_rows=50_000, epochs=2).arriving())


class TestEvents:
    def one(self, sql: str, many: pa.Table) -> float:
        with duckdb.connect() as engine:
            engine.register("events", many)
            [(value,)] = engine.sql(sql).fetchall()
        return float(value)

    def test_of_fifty_one_is_a_person_three_are_auctions_and_the_others_bids(self, many: pa.Table):
        kinds = np.bincount(many["event_type"].to_numpy())
        assert kinds.tolist() == [2000, 6000, 92_000]

    @pytest.mark.parametrize(
        ("what", "share"),
        [
            ("bid.auction % 100 = 0", 0.5 + 0.5 / 100),
            ("bid.bidder % 100 = 1", 0.75 + 0.25 / 100),
            ("auction.seller % 100 = 0", 0.75 + 0.25 / 100),
            ("bid.channel IN ('Google', 'Facebook', 'Baidu', 'Apple')", 0.5),
            ("contains(bid.url, '&channel_id=')", 0.5 * 0.9),
            ("auction.category = 10", 0.2),
            ("person.state = 'OR'", 1 / 6),
        ],
    )
    def test_so_many_are_hot(self, many: pa.Table, what: str, share: float):
        table = what.partition("IN")[0].partition(".")[0].split("(")[-1]
        sql = f"SELECT avg(CAST({what} AS INT)) FROM events WHERE {table} IS NOT NULL"
        assert self.one(sql, many) == pytest.approx(share, rel=0.1)

    def test_ids_are_numbered_and_others_refer_to_those_near_them(self, many: pa.Table):
        assert self.one("SELECT count(DISTINCT person.id) FROM events", many) == 2000
        assert self.one("SELECT max(auction.id) - min(auction.id) FROM events", many) == 5999
        so_far = "SELECT *, max(auction.id) OVER (ORDER BY dateTime) AS last FROM events"
        assert self.one(f"SELECT max(bid.auction - last) FROM ({so_far})", many) == 10
        known = "bid.auction IN (SELECT auction.id FROM events)"
        assert self.one(f"SELECT avg(CAST({known} AS INT)) FROM events WHERE event_type = 2", many) > 0.99

    def test_an_event_has_about_its_published_size(self, many: pa.Table):
        for table, size in (("bid", 100 - 32), ("auction", 500 - 48), ("person", 200 - 8)):
            texts = [field.name for field in SCHEMA.field(table).type if pa.types.is_string(field.type)]
            texts = [text for text in texts if text not in ("channel", "url")]
            total = " + ".join(f"length({table}.{text})" for text in texts)
            assert self.one(f"SELECT avg({total}) FROM events", many) == pytest.approx(size, rel=0.03)

    def test_every_event_has_one_struct_and_the_structs_time(self, many: pa.Table):
        alone = "(person IS NOT NULL)::INT + (auction IS NOT NULL)::INT + (bid IS NOT NULL)::INT"
        assert self.one(f"SELECT count(*) FROM events WHERE {alone} <> 1", many) == 0
        own = "coalesce(person.dateTime, auction.dateTime, bid.dateTime)"
        assert self.one(f"SELECT count(*) FROM events WHERE dateTime <> {own}", many) == 0
        assert pc.count_distinct(many["dateTime"]).as_py() == many.num_rows

    def test_auctions_last_less_than_a_third_of_a_second(self, many: pa.Table):
        lasts = "SELECT max(epoch_us(auction.expires) - epoch_us(dateTime)) FROM events"
        assert 300_000 < self.one(lasts, many) <= LONGEST_AUCTION_US

    def test_the_same_seed_gives_the_same_events_and_another_seed_others(self):
        first, again, other = (
            pa.concat_tables(Events(epoch_rows=300, epochs=2, seed=seed).arriving()) for seed in (1, 1, 2)
        )
        assert first.equals(again)
        assert not first.equals(other)

    @pytest.mark.parametrize("disorder", [0, 50_000])
    def test_events_are_as_late_as_they_may_be_and_no_later(self, disorder: int):
        made = Events(epoch_rows=1000, epochs=3, disorder_us=disorder)
        times = pa.concat_tables(made.arriving())["dateTime"].cast(pa.int64()).to_numpy()
        behind = np.maximum.accumulate(times) - times
        assert behind.max() <= disorder
        assert np.sort(times).tolist() == list(range(times.min(), times.min() + 3000 * 100, 100))
        assert (np.count_nonzero(behind) > 200) == (disorder > 0)

    def test_disorder_crosses_epochs_of_the_same_size(self):
        first, second, third = Events(epoch_rows=1000, epochs=3, disorder_us=50_000).arriving()
        assert first.num_rows == second.num_rows == third.num_rows == 1000
        assert pc.max(first["dateTime"]).as_py() > pc.min(second["dateTime"]).as_py()

    def test_several_files_make_an_epoch_in_order_of_time_of_change(self, tmp_path: Path):
        made = Events(epoch_rows=101, epochs=2)
        made.write(tmp_path / "events", files_per_epoch=2)
        files = sorted((tmp_path / "events").iterdir(), key=lambda path: path.stat().st_mtime)
        assert [path.name for path in files] == ["0000.parquet", "0001.parquet", "0002.parquet", "0003.parquet"]
        read = pa.concat_tables(pq.read_table(path) for path in files)
        assert read.equals(pa.concat_tables(made.arriving()))


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_rows_of_its_definition(
    name: str, events: Events, epochs: list[pa.Table], definition: Definition
):
    flow = pk.LocalFlow(shards=2)
    source = flow.source(epochs, time="dateTime", progress=pk.bounded_delay("4 s"), name="events")
    out, late = QUERIES[name].build(flow, source).to_memory(), source.late.to_memory()
    flow.run()
    definition.check(QUERIES[name], out.table())
    assert out.table().num_rows > 0
    assert late.table().num_rows == 0


@pytest.mark.deep
def test_queries_give_the_rows_of_their_definitions_over_half_a_million_events():
    epochs = list(Events(epoch_rows=166_667, epochs=3, seed=5).arriving())
    definition = Definition(pa.concat_tables(epochs))
    for query in QUERIES.values():
        flow = pk.LocalFlow(shards=2)
        source = flow.source(epochs, time="dateTime", progress=pk.bounded_delay("4 s"), name="events")
        out = query.build(flow, source).to_memory()
        flow.run()
        definition.check(query, out.table())


@pytest.mark.parametrize("name", QUERIES)
def test_what_a_bound_completes_is_out_before_the_stream_ends(
    name: str, epochs: list[pa.Table], definition: Definition
):
    flow = pk.LocalFlow()
    source = flow.source(epochs, time="dateTime", progress=pk.bounded_delay("4 s"), name="events")
    out = QUERIES[name].build(flow, source).to_memory()
    flow.run(end=False)
    complete, every = definition.counts(QUERIES[name], DELAY_US)
    assert 0 < complete <= out.table().num_rows <= every


def test_every_query_is_there_or_said_to_be_left_out():
    assert sorted([*QUERIES, *LEFT_OUT], key=lambda name: int(name[1:])) == [f"q{n}" for n in range(24)]


class TestCheck:
    def test_a_row_too_few_and_one_too_many_are_told(self, definition: Definition):
        query = QUERIES["q2"]
        rows = definition.rows(query)
        wrong = pa.concat_tables([rows.slice(1), rows.slice(1, 1)])
        with pytest.raises(WrongRowsError, match=r"q2 by penstock lacks 1 rows and has 1 that it should not have"):
            definition.check(query, wrong)

    def test_other_columns_are_told(self, definition: Definition):
        rows = definition.rows(QUERIES["q2"]).rename_columns(["auction", "amount"])
        with pytest.raises(WrongRowsError, match=r"penstock gives q2 as \['auction', 'amount'\]"):
            definition.check(QUERIES["q2"], rows)


@pytest.fixture(scope="module")
def nexmark() -> ModuleType:
    """The benchmark itself, which needs Spark's package but no Spark."""
    return importlib.import_module("nexmark")


@pytest.fixture(scope="module")
def workload(nexmark: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Few events on disk."""
    return nexmark.generate(tmp_path_factory.mktemp("nexmark") / "events", Events(1000, 2), cold=1)


class TestPage:
    def test_it_shows_the_queries_as_they_are(self, nexmark: ModuleType):
        page = nexmark.PAGE.read_text()
        assert nexmark.with_part(page, "queries", nexmark.queries_shown()) == page, (
            "write it anew: python benchmarks/nexmark.py --only-page"
        )

    def test_figures_replace_those_that_were_there(self, nexmark: ModuleType):
        run = nexmark.Timed(6, 1, 1, 2.0, 2, (0.5, 0.25, 0.5), parts={"operators": 0.25}, jobs=3, stages=4)
        slow = nexmark.Timed(6, 1, 1, 2.0, 2, (1.0,))
        text = nexmark.figures({"penstock@q5": run, "spark-rocksdb@q5": slow}, ["q5"], {"flink-rocksdb": "not there"})
        page = nexmark.with_part("a\n<!-- figures -->\nold\n<!-- end of figures -->\nb", "figures", text)
        assert "old" not in page
        assert page.startswith("a\n<!-- figures -->\n")
        assert page.endswith("<!-- end of figures -->\nb")
        assert "| q5 | 0.50 | 4 | 2 | 2.00 |" in page
        assert "Geometric means of penstock ÷ engine: spark-rocksdb 2.00." in page
        assert "flink-rocksdb: not there." in page
        assert "| q5 | 0.25 | 3.0 | 4.0 |" in page
        assert "scan=" not in page

    def test_where_time_goes_is_shown_of_dataframes_as_well(self, nexmark: ModuleType):
        own, frame = (nexmark.Timed(6, 1, 1, 2.0, 2, parts={"operators": part}, jobs=1) for part in (0.25, 0.5))
        lines = nexmark.parts_shown({"penstock@q5": own, "dataframe@q5": frame}, ["q5", "q7"])
        assert [line for line in lines if line.startswith("| q")] == [
            "| query | operators | jobs | stages |",
            "| q5 | 0.25 | 1.0 | – |",
            "| query | operators | jobs | stages |",
            "| q5 | 0.50 | 1.0 | – |",
        ]

    def test_results_in_a_file_are_there_again(self, nexmark: ModuleType, tmp_path: Path):
        run = nexmark.Timed(6, 1, 1, 2.0, 2, (0.5, 0.25), parts={"operators": 0.25}, jobs=3)
        kept = nexmark.Kept(tmp_path / "results")
        assert kept == {}
        kept["penstock@q5"] = run
        kept["bytewax@q5"] = replace(run, finished=False)
        again = nexmark.Kept(tmp_path / "results")
        assert again == kept
        assert again["penstock@q5"].rows_per_second == run.rows_per_second

    def test_ratios_have_a_geometric_mean_for_each_engine(self, nexmark: ModuleType):
        rates = {"penstock@q5": 8, "penstock@q7": 9, "spark-memory@q5": 4, "spark-memory@q7": 1}
        runs = {name: nexmark.Timed(rate, 0, 0, 1.0, rate) for name, rate in rates.items()}
        runs["spark-memory@q7"] = replace(runs["spark-memory@q7"], finished=False)
        assert nexmark.summarise(runs) == {
            "bench": "nexmark",
            "rows_per_second": {**rates, "penstock": 8, "spark-memory": 2},
            "ratio": {"spark-memory@q5": 2.0, "spark-memory@q7": 9.0, "spark-memory": 4.24},
            "bounds": ["spark-memory@q7"],
        }


class TestLibraries:
    """Pathway and Bytewax as peers, with a script of ours in their place."""

    @pytest.fixture
    def run(
        self, nexmark: ModuleType, workload: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[str], tuple[dict[str, Any], dict[str, str]]]:
        """Query 2 by a script: the results, and why others are missing."""

        def run(code: str) -> tuple[dict[str, Any], dict[str, str]]:
            script = tmp_path / "peer.py"
            script.write_text(code)
            fake = replace(nexmark.LIBRARIES["bytewax"], script=str(script), python=Path(sys.executable))
            monkeypatch.setitem(nexmark.LIBRARIES, "bytewax", fake)
            results: dict[str, Any] = {}
            missing: dict[str, str] = {}
            nexmark.run_library("bytewax", workload, workload, ["q2"], results, missing)
            return results, missing

        return run

    def every(self, workload: Any) -> int:
        return int(workload.definition.counts(QUERIES["q2"], DELAY_US)[1])

    @pytest.mark.parametrize("name", ["pathway", "bytewax"])
    def test_each_has_every_query_or_says_why_not(self, nexmark: ModuleType, name: str):
        library = nexmark.LIBRARIES[name]
        code = ast.parse((Path(nexmark.__file__).parent / library.script).read_text())
        written = {part.name for part in code.body if isinstance(part, ast.FunctionDef)} & QUERIES.keys()
        [listed] = [
            {name.id for name in ast.walk(part) if isinstance(name, ast.Name)} & QUERIES.keys()
            for part in code.body
            if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == "QUERIES"
        ]
        assert written == listed == QUERIES.keys() - library.without.keys()
        assert all(library.without.values())

    def test_one_that_is_not_installed_is_left_out_and_named(
        self, nexmark: ModuleType, workload: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        nowhere = replace(nexmark.LIBRARIES["pathway"], python=tmp_path / "bin" / "python")
        monkeypatch.setitem(nexmark.LIBRARIES, "pathway", nowhere)
        own = nexmark.Timed(6, 1, 1, 2.0, 2, (0.5,), parts={"operators": 0.25}, jobs=3)
        results, missing = {"penstock@q5": own}, {}
        nexmark.run_library("pathway", workload, workload, ["q5", "q7"], results, missing)
        assert missing == {"pathway": "not installed: make bench-peers"}
        assert nexmark.summarise(results)["ratio"] == {}
        assert nexmark.table(results, ["q5"]) == [("query", "penstock, s", "penstock, rows/s"), ("q5", "0.50", "4")]
        assert "pathway: not installed: make bench-peers." in nexmark.figures(results, ["q5"], missing)

    def test_all_rows_by_the_seconds_it_reports_are_its_rate(
        self, nexmark: ModuleType, workload: Any, run: Callable[..., Any]
    ):
        results, missing = run(f"""print("hello"); print('{{"rows_out": {self.every(workload)}, "seconds": 0.5}}')""")
        assert missing == {}
        assert results["bytewax@q2"].rows_per_second == workload.events.rows / 0.5
        results["penstock@q2"] = nexmark.Timed(2000, 1, 1, 0.25, 1000)
        summary = nexmark.summarise(results)
        assert summary["ratio"] == {"bytewax@q2": 2.0, "bytewax": 2.0}
        assert summary["bounds"] == []

    def test_other_rows_than_those_of_the_definition_are_not_compared(self, workload: Any, run: Callable[..., Any]):
        every = self.every(workload)
        results, missing = run(f"""print('{{"rows_out": {every + 1}, "seconds": 0.5}}')""")
        assert results == {}
        assert missing == {"bytewax@q2": f"not comparable: {every + 1} rows over few events, not {every}"}

    def test_one_that_fails_is_left_out_with_its_last_words(self, run: Callable[..., Any]):
        results, missing = run("raise ValueError('no such column')")
        assert results == {}
        assert missing == {"bytewax@q2": "ValueError: no such column"}

    def test_one_that_takes_too_long_is_stopped_and_gives_a_bound(
        self, nexmark: ModuleType, workload: Any, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(nexmark, "PATIENCE", 0.2)
        results, missing = run("import time; time.sleep(60)")
        assert missing == {}
        assert results["bytewax@q2"].rows_per_second == pytest.approx(workload.events.rows / 0.2)
        assert nexmark.summarise(results)["bounds"] == ["bytewax@q2"]
        assert nexmark.shown_rate(results["bytewax@q2"]) == "<10,000"

    def test_a_short_run_asks_for_few_queries(self, nexmark: ModuleType):
        names = list(QUERIES)
        assert nexmark.library_names("pathway", names, False) == names
        assert nexmark.library_names("pathway", names, True) == list(nexmark.QUICK_LIBRARIES)
        assert set(nexmark.QUICK_LIBRARIES) <= set(nexmark.QUICK_QUERIES)

    def test_pathway_reads_the_same_events_in_the_same_order(self, workload: Any):
        parts = sorted(workload.minibatches().iterdir(), key=lambda path: path.stat().st_mtime)
        assert [path.stem for path in parts] == sorted(path.stem for path in workload.parquet.iterdir())
        rows = pa.concat_tables([pyarrow.csv.read_csv(path) for path in parts], promote_options="permissive")
        events = pa.concat_tables(pq.read_table(path) for path in sorted(workload.parquet.iterdir()))
        assert rows["us"].to_pylist() == events["dateTime"].cast(pa.int64()).to_pylist()
        assert rows["bid_price"].to_pylist() == pc.struct_field(events["bid"], "price").to_pylist()
        assert workload.minibatches() == parts[0].parent
