"""Lookups in process: what a flow does with them over many epochs."""

from __future__ import annotations

import datetime as dt
import gc
import re
import sqlite3
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.errors import ConfigError
from penstock.core.kept import kept_by
from penstock.kernels.zipf import ranks_at
from penstock.operators.lookup import HybridJoin, Stages
from penstock.storage.tables.arrow import ArrowTable, OpenArrowTable

pytestmark = pytest.mark.usefixtures("nothing_kept")

CUSTOMERS = pa.table({"k": list(range(500)), "name": [f"customer {n}" for n in range(500)]})


def orders(epochs: int, rows: int = 200) -> list[pa.Table]:
    made = np.random.default_rng(3)
    return [
        pa.table({"k": np.minimum(made.zipf(1.5, rows), 600), "t": np.arange(rows) + n * rows}) for n in range(epochs)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "cinlj", "chybridjoin", "cmeshjoin", "partitioned", "broadcast"])
def test_memory_is_the_same_after_many_epochs(method):
    epochs = orders(30)
    flow = pk.LocalFlow(memory="200 kB", shards=2)
    out = flow.source(epochs, time="t", progress=pk.ordered()).lookup(CUSTOMERS, on="k", method=method).to_memory()
    query = flow.run()
    known = pa.concat_tables(epochs).join(CUSTOMERS, "k", join_type="inner")
    assert out.table().num_rows == known.num_rows
    held = [operator.peak_memory for epoch in query.progress().epochs for operator in epoch.operators.values()]
    assert max(held) <= 100_000
    (places,) = query._places.values()
    assert [place.budget.held for place in places] == [place.store.held for place in places]


@pytest.mark.parametrize("method", ["auto", "cinlj", "chybridjoin", "meshjoin", "partitioned"])
def test_a_lookup_takes_no_more_of_the_memory_than_it_asked_for(method):
    epochs = orders(20)
    flow = pk.LocalFlow(memory="20 MB", shards=2)
    source = flow.source(epochs, time="t", progress=pk.ordered())
    out = source.lookup(CUSTOMERS, on="k", method=method, memory="200 kB", name="who").to_memory()
    query = flow.run()
    assert out.table().num_rows == pa.concat_tables(epochs).join(CUSTOMERS, "k", join_type="inner").num_rows
    peaks = [epoch.operators["who"].peak_memory for epoch in query.progress().epochs]
    assert 0 < max(peaks) <= 100_000
    (places,) = query._places.values()
    assert [place.budget.held for place in places] == [0, 0], "its pages are files"


def test_lookups_share_the_memory_of_the_flow_whatever_they_ask_for():
    flow = pk.LocalFlow(memory="200 kB")
    source = flow.source(orders(5), time="t", progress=pk.ordered())
    out = source.lookup(CUSTOMERS, on="k", method="cinlj", memory="1 GB", name="who").to_memory()
    query = flow.run()
    assert max(epoch.operators["who"].peak_memory for epoch in query.progress().epochs) <= 200_000
    assert out.table().num_rows > 0


@pytest.mark.parametrize("asked", [None, "100 kB"])
def test_of_lookups_in_a_row_each_gives_back_what_it_held_and_nothing_else(asked):
    again = CUSTOMERS.rename_columns(["k", "other"])
    flow = pk.LocalFlow(memory="400 kB")
    source = flow.source(orders(8), time="t", progress=pk.ordered())
    first = source.lookup(CUSTOMERS, on="k", method="chybridjoin", max_age=500)
    first.lookup(again, on="k", method="cinlj", memory=asked).to_memory()
    query = flow._query()
    feeds = {node: iter(node.data.tables) for node in query._course.sources}
    for _ in range(8):
        query.epoch({node: next(feed) for node, feed in feeds.items()})
        ((shared,), (second,)) = query._places.values()
        assert shared.budget.held == shared.store.held
        assert second.budget.held == (0 if asked else shared.store.held)


def test_a_lookup_that_asks_for_too_little_is_told_how_much_is_needed():
    flow = pk.LocalFlow(shards=2)
    with pytest.raises(ConfigError, match=r"memory=1500 over 2 shards is too small .* memory=2000"):
        flow.source(orders(1), time="t").lookup(CUSTOMERS, on="k", memory=1500)


@dataclass(frozen=True)
class SlowTable:
    """A table whose partitions take their time."""

    table: ArrowTable
    seconds: float
    store = "sql"
    versioned = False

    @property
    def columns(self):
        return self.table.columns

    @property
    def keys(self):
        return self.table.keys

    def open(self, version=None):
        opened = OpenArrowTable(self.table.rows, self.table.keys, self.table.partition_rows)
        scan = opened.scan
        opened.scan = lambda partition: (time.sleep(self.seconds), scan(partition))[1]
        return opened


def overloaded(epochs: list[pa.Table], shed: pk.Shedding) -> tuple[pk.LocalFlow, object]:
    """One read of twenty rows takes 2 ms; two hundred rows come in each epoch."""
    flow = pk.LocalFlow(memory="4 MB", shards=2)
    source = flow.source(epochs, time="t", progress=pk.ordered())
    table = SlowTable(ArrowTable(CUSTOMERS, ("k",), partition_rows=20), seconds=0.002)
    method = Stages(HybridJoin(slots=60))
    out = source.lookup(table, on="k", method=method, freshness="latest", shed=shed, name="who").to_memory()
    return flow, out


def even(epochs: int, rows: int = 200) -> list[pa.Table]:
    made = np.random.default_rng(5)
    return [pa.table({"k": made.integers(0, 500, rows), "t": np.arange(rows) + n * rows}) for n in range(epochs)]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["considering", "keep"])
def test_with_a_trigger_rows_are_put_aside_where_told_and_all_come_out_once(tmp_path, policy):
    epochs = even(8)
    flow, out = overloaded(epochs, pk.Shedding(policy, to=str(tmp_path / "aside")))
    query = flow.start(trigger="5 ms")
    counts = [epoch.operators["who"].counts for epoch in query.progress().epochs]
    assert max(count["shed"] for count in counts) > 0
    assert (counts[-1]["shed"], counts[-1]["queued"]) == (0, 0)
    assert sum(count["put_aside"] for count in counts) == sum(count["replayed"] for count in counts) > 0
    (place, *_) = next(iter(query._places.values()))
    assert place.store._others, "pages were written in the other folder"
    query.epoch({}, end=True)
    assert sorted(out.table().column("k").to_pylist()) == sorted(pa.concat_tables(epochs).column("k").to_pylist())
    del query, place
    gc.collect()
    assert not [path for path in (tmp_path / "aside").rglob("*") if path.is_file()]


def test_a_flow_that_runs_to_its_end_has_all_the_time_and_puts_nothing_aside(tmp_path):
    flow, out = overloaded(even(4), pk.Shedding("considering", to=str(tmp_path / "aside")))
    query = flow.run()
    assert all(epoch.operators["who"].counts["put_aside"] == 0 for epoch in query.progress().epochs)
    assert out.table().num_rows == 800


@pytest.mark.parametrize("place", ["/proc/nope", "ftp://x/y"])
def test_a_place_where_nothing_can_be_put_aside_is_refused_at_the_start(place):
    flow, out = overloaded(even(1), pk.Shedding("considering", to=place))
    with pytest.raises(ConfigError, match=rf"^to='{place}' cannot be written to: .* Write a folder that"):
        flow.start(trigger="5 ms")
    assert out.table().num_rows == 0


@pytest.mark.parametrize("method", ["cinlj", "broadcast"])
def test_what_stays_of_a_table_between_epochs_is_paid_for(tmp_path, method):
    pq.write_table(CUSTOMERS, tmp_path / "customers.parquet", row_group_size=50)
    epochs = orders(10)
    flow = pk.LocalFlow(memory="200 kB", shards=2)
    source = flow.source(epochs, time="t", progress=pk.ordered())
    out = source.lookup(str(tmp_path), on="k", method=method, freshness="latest").to_memory()
    query = flow.run()
    assert out.table().num_rows == pa.concat_tables(epochs).join(CUSTOMERS, "k", join_type="inner").num_rows
    (places,) = query._places.values()
    kept = [kept_by(place.budget) for place in places]
    assert 0 < sum(kept) <= 50_000
    beside = [place.budget.held - place.store.held for place in places]
    assert beside == kept


def test_explain_says_how_a_lookup_runs_and_why():
    flow = pk.LocalFlow(memory="1 MB")
    flow.source(orders(3), time="t").lookup(CUSTOMERS, on="k", name="who").to_memory()
    text = flow.run().explain()
    assert "who: inner lookup on k in an Arrow table of 500 rows, snapshot" in text
    assert "method broadcast" in text
    assert "0 rows wait" in text


def test_explain_says_what_a_cache_would_answer_for_the_skew_that_was_seen():
    made = np.random.default_rng(3)
    ranks = [ranks_at(made.random(4000), 5000, 1.0) for _ in range(4)]
    epochs = [pa.table({"k": keys, "t": np.full(keys.size, n)}) for n, keys in enumerate(ranks)]
    table = pa.table({"k": np.arange(5000), "v": np.arange(5000)})
    flow = pk.LocalFlow(memory="200 kB")
    flow.source(epochs, time="t").lookup(table, on="k", name="who").to_memory()
    before = flow._query().explain()
    assert "because a lookup takes" in before
    assert "keys assumed to be even until measured" in before
    assert "a cache of 2,500 rows would answer 50 % of them\n" in before
    after = flow.run().explain()
    found = re.search(r"keys follow Zipf (\S+): a cache of 2,500 rows would answer (\S+) % of them", after)
    assert float(found[1]) == pytest.approx(1.0, abs=0.2)
    assert 75 < float(found[2]) < 95, "an ideal cache answers 92 %"


def test_progress_says_how_many_rows_wait_and_how_old_the_oldest_is():
    """Rows arrive, and wait, in each of two shards; the oldest of all shards counts, behind the bound of the source."""
    rows = [
        pa.table({"k": list(range(8)), "t": [30, 31, 32, 33, 34, 35, 36, 37]}),
        pa.table({"k": [0, 1, 2, 3], "t": [50] * 4}),
    ]
    flow = pk.LocalFlow(shards=2)
    source = flow.source(rows, time="t", progress=pk.ordered())
    source.lookup(CUSTOMERS, on="k", method="hybridjoin", name="who").to_memory()
    query = flow.run(end=False)
    waits = query.progress().epochs[-1].operators["who"].waits
    assert (waits.rows, waits.oldest, waits.bound, waits.age) == (12, 30, 50, 20)
    assert "who: 12 rows wait, the oldest 20 behind the bound, bounds" in str(query.progress())
    assert query.explain().count("; 12 rows wait, the oldest 20 behind the bound") == 1


def test_when_the_stream_has_ended_nothing_waits():
    flow = pk.LocalFlow()
    source = flow.source(orders(2), time="t", progress=pk.ordered())
    source.lookup(CUSTOMERS, on="k", method="hybridjoin", name="who").to_memory()
    query = flow.run()
    assert [epoch.operators["who"].waits.rows for epoch in query.progress().epochs][-1] == 0
    assert "wait" not in str(query.progress())


def test_the_age_of_rows_is_shown_in_the_unit_of_their_time():
    times = pa.array([0, 5_400_000_000], pa.timestamp("us"))
    flow = pk.LocalFlow()
    source = flow.source(pa.table({"k": [1, 2], "t": times}), time="t", progress=pk.ordered())
    source.lookup(CUSTOMERS, on="k", method="hybridjoin", name="who").to_memory()
    assert "2 rows wait, the oldest 1.5 h behind the bound" in str(flow.run(end=False).progress())


def test_a_table_keyed_by_other_columns_is_refused(tmp_path):
    folder = str(tmp_path / "table")
    pk.write_page_table(CUSTOMERS, folder, keys=["name"])
    flow = pk.LocalFlow()
    with pytest.raises(ConfigError, match="looks up by k, but the table is keyed by name"):
        flow.source(orders(1), time="t").lookup(pk.PageTable(folder), on="k")


def test_a_key_that_the_table_has_not_is_said_to_be_missing_there(tmp_path):
    orders = pk.LocalFlow().source(pa.table({"k": [1], "t": [1]}), time="t")
    names = pa.table({"kay": [1]})
    pq.write_table(names, tmp_path / "a.parquet")
    for table in (names, str(tmp_path)):
        with pytest.raises(ConfigError, match=r"^on='k' is not a column of this table\. .* on={'ours': 'theirs'}\.$"):
            orders.lookup(table, on="k")
        with pytest.raises(ConfigError, match=r"^on='key' is not a column of this table\. Did you mean 'kay'\?"):
            orders.lookup(table, on={"k": "key"})


def test_the_path_of_a_table_may_be_a_path_object(tmp_path):
    pq.write_table(CUSTOMERS, tmp_path / "a.parquet")
    flow = pk.LocalFlow()
    out = flow.source(pa.table({"k": [1, 900], "t": [1, 2]}), time="t").lookup(tmp_path, on="k").to_memory()
    flow.run()
    assert out.table().column("name").to_pylist() == ["customer 1"]


def test_a_row_sees_the_version_of_its_epoch_or_of_the_first(tmp_path):
    folder = str(tmp_path / "table")

    def changing():
        for n in (1, 2):
            yield pa.table({"k": [7], "t": [n]})
            pk.PageTable(folder).upsert(pa.table({"k": [7], "name": [f"after {n}"]}))

    seen = {}
    for freshness in ("snapshot", "latest"):
        pk.write_page_table(pa.table({"k": [7], "name": ["before"]}), folder, keys="k")
        flow = pk.LocalFlow()
        source = flow.source(changing(), time="t", progress=pk.ordered())
        out = source.lookup(pk.PageTable(folder), on="k", freshness=freshness).to_memory()
        flow.run()
        seen[freshness] = out.table().sort_by("t").column("name").to_pylist()
    assert seen["snapshot"] == ["before", "before"]
    assert seen["latest"] == ["before", "after 1"]


def by_auto(epochs, table, memory="8 MB", **more) -> tuple[int, list[str]]:
    """How many rows a lookup by ``method="auto"`` gives, and by which methods."""
    flow = pk.LocalFlow(memory=memory)
    found = flow.source(epochs, time="t").lookup(table, on="k", freshness="latest", **more).to_memory()
    query = flow.run()
    return found.table().num_rows, [epoch.operators["lookup0"].method for epoch in query.progress().epochs]


def wide(first: int, after: int) -> pa.Table:
    return pa.table({"k": range(first, after), "v": [f"{n:0100d}" for n in range(first, after)]})


def test_a_table_that_outgrows_the_memory_is_broadcast_no_more(tmp_path):
    pq.write_table(wide(0, 100), tmp_path / "0.parquet")

    def epochs():
        yield pa.table({"k": range(50), "t": range(50)})
        pq.write_table(wide(100, 60_000), tmp_path / "1.parquet", row_group_size=1000)
        yield pa.table({"k": range(1000, 1050), "t": range(50, 100)})

    assert by_auto(epochs(), pk.ParquetTable(str(tmp_path), "k")) == (100, ["broadcast", "inlj", "inlj"])


def test_so_is_one_that_cannot_tell_its_versions_apart(tmp_path):
    path = tmp_path / "shop.db"

    def insert(rows: pa.Table) -> None:
        with sqlite3.connect(path) as shop:
            shop.executemany("INSERT INTO items VALUES (?, ?)", zip(*rows.to_pydict().values(), strict=True))

    def epochs():
        yield pa.table({"k": range(50), "t": range(50)})
        insert(wide(100, 60_000))
        yield pa.table({"k": range(1000, 1050), "t": range(50, 100)})

    with sqlite3.connect(path) as shop:
        shop.execute("CREATE TABLE items (k INTEGER PRIMARY KEY, v TEXT)")
    insert(wide(0, 100))
    assert by_auto(epochs(), pk.SqlTable(f"sqlite:///{path}", "items", "k")) == (100, ["broadcast", "inlj", "inlj"])


def test_a_table_whose_keys_come_to_lie_apart_is_looked_up_by_another_method(tmp_path):
    pq.write_table(pa.table({"k": range(100), "v": range(100)}), tmp_path / "0.parquet")

    def epochs():
        yield pa.table({"k": range(50), "t": range(50)})
        pq.write_table(pa.table({"k": [7], "v": [1007]}), tmp_path / "1.parquet")
        yield pa.table({"k": range(50), "t": range(50, 100)})

    assert by_auto(epochs(), pk.ParquetTable(str(tmp_path), "k"), max_age=1000)[0] == 101


def test_a_table_is_as_large_as_its_values_not_as_its_encoding(tmp_path):
    rows = pa.table({"k": range(20_000), "city": ["x" * 200] * 20_000})
    pq.write_table(rows, tmp_path / "0.parquet", row_group_size=1000)
    stream = pa.table({"k": [n * 7 % 20_000 for n in range(5000)], "t": range(5000)})
    found, methods = by_auto(stream, pk.ParquetTable(str(tmp_path), "k"), memory="4 MB")
    assert found == 5000
    assert "broadcast" not in methods


KEYS = {
    "large binaries": pa.array([b"a", b"b", None], pa.large_binary()),
    "binaries of one size": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "unsigned numbers": pa.array([1, 2**63, None], pa.uint64()),
    "times": pa.array([1, 2, None], pa.time32("s")),
    "lists of one size": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int64(), 2)),
}


@pytest.mark.parametrize("method", ["auto", "cinlj", "chybridjoin", "meshjoin", "partitioned", "broadcast"])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_a_key_of_any_kind_finds_its_row(keys, method):
    flow = pk.LocalFlow(shards=2)
    rows = [pa.table({"k": keys.slice(n, 1), "t": [n]}) for n in range(3)]
    source = flow.source(rows, time="t", progress=pk.ordered())
    out = source.lookup(pa.table({"k": keys, "v": [10, 11, 12]}), on="k", method=method).to_memory()
    flow.run()
    assert sorted(zip(*(out.table().column(name).to_pylist() for name in ("t", "v")), strict=True)) == [
        (0, 10),
        (1, 11),
    ]


@pytest.mark.parametrize(
    "encoded",
    [{"stream": pa.int32()}, {"stream": pa.int8()}, {"table": pa.int32()}, {"table": pa.uint8()}]
    + [{"stream": kind, "table": pa.int32()} for kind in (pa.int8(), pa.int32(), pa.int64())]
    + [{"stream": kind, "table": kind} for kind in (pa.int8(), pa.int16(), pa.uint8())],
)
def test_a_dictionary_finds_plain_keys_and_dictionaries_and_its_nulls_nothing(encoded):
    plain = pa.array(["a", "b", None])
    dictionaries = {
        side: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], kind), plain) for side, kind in encoded.items()
    }
    keys = {"stream": plain, "table": plain, **dictionaries}
    flow = pk.LocalFlow()
    source = flow.source(pa.table({"k": keys["stream"], "t": [0, 1, 2]}), time="t")
    out = source.lookup(pa.table({"k": keys["table"], "v": [10, 11, 12]}), on="k").to_memory()
    flow.run()
    assert sorted(out.table().column("v").to_pylist()) == [10, 11]


NARROW = {"words": pa.dictionary(pa.int8(), pa.string()), "numbers": pa.dictionary(pa.int8(), pa.int64())}
"""As pandas encodes categories, of which each part of the data may have others."""


@pytest.mark.parametrize("kind", NARROW.values(), ids=NARROW)
@pytest.mark.parametrize("method", ["auto", "cinlj", "chybridjoin", "meshjoin", "partitioned", "broadcast"])
def test_parts_with_few_categories_each_may_have_many_together(method, kind):
    def part(first: int) -> pa.Array:
        categories = pa.array(range(first, first + 100)).cast(kind.value_type)
        return pa.DictionaryArray.from_arrays(pa.array(range(100), kind.index_type), categories)

    table = pa.concat_tables(pa.table({"k": part(n), "v": range(n, n + 100)}) for n in range(0, 300, 100))
    flow = pk.LocalFlow(shards=2)
    rows = [pa.table({"k": part(n), "t": range(n, n + 100)}) for n in range(100, 500, 100)]
    out = flow.source(rows, time="t", progress=pk.ordered()).lookup(table, on="k", method=method).to_memory()
    flow.run()
    assert sorted(out.table().column("v").to_pylist()) == list(range(100, 300))


@pytest.mark.parametrize("where", ["stream", "table"])
def test_a_column_of_nothing_comes_out_as_it_went_in(where):
    tables = {"stream": pa.table({"k": [1], "t": [0]}), "table": pa.table({"k": [1], "v": [2]})}
    tables[where] = tables[where].append_column("note", pa.nulls(1))
    flow = pk.LocalFlow()
    out = flow.source(tables["stream"], time="t").lookup(tables["table"], on="k").to_memory()
    flow.run()
    assert out.table().select(["k", "v", "note"]).to_pylist() == [{"k": 1, "v": 2, "note": None}]


@pytest.mark.slow
def test_lookups_in_several_tables_keep_no_more_of_them_than_one_does(tmp_path):
    stream = pa.table({"k": np.random.default_rng(7).integers(0, 20_000, 3000), "t": range(3000)})
    flow = pk.LocalFlow(memory="600 kB")
    halves = [stream.slice(0, 1500), stream.slice(1500)]
    rows = flow.source(halves, time="t", progress=pk.ordered())
    for name in ("a", "b", "c"):
        table = pa.table({"k": range(20_000), name: [f"{n:030d}" for n in range(20_000)]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=1000)
        source = pk.ParquetTable(str(tmp_path / f"{name}.parquet"), ("k",))
        rows = rows.lookup(source, on="k", method="cinlj", freshness="latest")
    out = rows.to_memory()
    query = flow.run()
    assert out.table().num_rows == 3000
    place = next(iter(query._places.values()))[0]
    assert 0 < kept_by(place.budget) <= 150_000


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["1 MB", "400 kB"])
def test_what_is_cached_gives_way_to_a_wide_row(tmp_path, memory):
    texts = [f"{n}" * (20_000 if n % 50 == 0 else 10) for n in range(300)]
    lists = [[n] * (5000 if n % 60 == 0 else 1) for n in range(300)]
    pq.write_table(pa.table({"k": range(300), "v": texts, "l": lists}), tmp_path / "wide.parquet", row_group_size=20)
    stream = pa.table({"k": np.random.default_rng(0).integers(0, 320, 800), "t": range(800)})
    halves = [stream.slice(0, 400), stream.slice(400)]
    flow = pk.LocalFlow(memory=memory)
    source = flow.source(halves, time="t", progress=pk.ordered())
    table = pk.ParquetTable(str(tmp_path), ("k",))
    out = source.lookup(table, on="k", how="left", method="cinlj", freshness="latest").to_memory()
    flow.run()
    assert out.table().num_rows == 800
    rows = zip(out.table()["k"].to_pylist(), out.table()["v"].to_pylist(), strict=True)
    assert all(v == (texts[k] if k < 300 else None) for k, v in rows)


@pytest.mark.slow
@pytest.mark.parametrize("shed", ["considering", "keep"])
def test_rows_are_put_aside_in_the_memory_that_the_lookup_takes_without(tmp_path, shed):
    made = np.random.default_rng(1)
    pages = str(tmp_path / "pages")
    pk.write_page_table(pa.table({"k": np.arange(50_000), "pad": ["x" * 100] * 50_000}), pages, keys="k")
    epochs = [pa.table({"k": made.integers(0, 50_000, 10_000), "t": np.arange(10_000) + n * 10_000}) for n in range(3)]
    flow = pk.LocalFlow(memory="2 MB")
    source = flow.source(epochs, time="t", progress=pk.ordered())
    out = source.lookup(pk.PageTable(pages), on="k", method="cinlj", shed=shed).to_memory()
    flow.start(trigger="5 ms")
    assert sorted(out.table()["t"].to_pylist()) == list(range(30_000))


@pytest.mark.parametrize("method", ["auto", "inlj", "meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin", "ssij"])
@pytest.mark.parametrize("options", [{}, {"max_age": 150}, {"shed": "considering"}], ids=["plain", "age", "shed"])
def test_a_stream_that_has_lost_its_time_can_be_looked_up_again_by_every_method(method, options):
    epochs = orders(3)
    regions = pa.table({"k": list(range(0, 500, 2)), "region": [f"region {n}" for n in range(0, 500, 2)]})
    flow = pk.LocalFlow(shards=2)
    named = flow.source(epochs, time="t", progress=pk.bounded_delay(5)).select("k").lookup(CUSTOMERS, on="k")
    out = named.lookup(regions, on="k", method=method, **options).to_memory()
    flow.run()
    keys = sorted(k for rows in epochs for k in rows["k"].to_pylist() if k < 500 and k % 2 == 0)
    assert sorted(out.table()["k"].to_pylist()) == keys
    assert out.table()["region"].to_pylist() == [f"region {k}" for k in out.table()["k"].to_pylist()]


def test_no_age_at_all_means_that_no_row_waits():
    epochs = orders(3)
    for age in (0, "0 s"):
        flow = pk.LocalFlow()
        source = flow.source(epochs, time="t", progress=pk.ordered())
        out = source.lookup(CUSTOMERS, on="k", how="left", freshness="latest", max_age=age).to_memory()
        query = flow._query()
        for number, table in enumerate(epochs):
            query.epoch(dict.fromkeys(query._course.sources, table))
            assert out.table().num_rows == 200 * (number + 1)


MOMENTS = [dt.datetime(2024, 1, 1, 12), dt.datetime(9999, 12, 31), None]


@pytest.mark.parametrize(
    ("own", "key", "values"),
    [
        (pa.string(), pa.large_string(), ["a", "ä" * 20, None]),
        (pa.large_string(), pa.string(), ["a", "ä" * 20, None]),
        (pa.string_view(), pa.large_string(), ["a", "ä" * 20, None]),
        (pa.string(), pa.string_view(), ["a", "ä" * 20, None]),
        (pa.binary(2), pa.large_binary(), [b"ab", b"\0\0", None]),
        (pa.timestamp("s"), pa.timestamp("us"), MOMENTS),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), MOMENTS),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), MOMENTS),
        (pa.uint32(), pa.int64(), [1, 2**32 - 1, None]),
        (pa.int32(), pa.float64(), [1, 2**31 - 1, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["auto", "hybridjoin"])
def test_keys_are_looked_up_in_a_table_that_spells_the_same_values_otherwise(own, key, values, method):
    flow = pk.LocalFlow(shards=2)
    source = flow.source(pa.table({"k": pa.array(values, own), "t": range(3)}), time="t", name="s")
    table = pa.table({"k": pa.array(values, key), "n": range(3)})
    found = source.lookup(table, on="k", method=method).to_memory()
    other = flow.source(pa.table({"k": pa.array(values, key), "u": range(3)}), time="u", name="o")
    pairs = source.join(other, on="k", within=pk.band(9, 9)).to_memory()
    flow.run()
    assert sorted(zip(*(found.table()[name].to_pylist() for name in "tn"), strict=True)) == [(0, 0), (1, 1)]
    assert sorted(zip(*(pairs.table()[name].to_pylist() for name in "tu"), strict=True)) == [(0, 0), (1, 1)]


def test_a_moment_too_far_away_to_be_compared_stops_the_flow_and_says_so():
    flow = pk.LocalFlow()
    source = flow.source(pa.table({"k": pa.array([2**60], pa.timestamp("s")), "t": [0]}), time="t")
    source.lookup(pa.table({"k": pa.array([0], pa.timestamp("us"))}), on="k", name="dates").to_memory()
    with pytest.raises(pk.FlowError, match=r"A key of dates cannot be compared: .* out of bounds timestamp"):
        flow.run()


@pytest.mark.parametrize("method", ["hybridjoin", "cmeshjoin"])
def test_what_is_advised_for_a_database_helps_there(tmp_path, method):
    with sqlite3.connect(tmp_path / "names.db") as database:
        database.execute("CREATE TABLE names (k REAL, n INTEGER)")
        database.execute("INSERT INTO names VALUES (1.5, 1), (2.5, 2)")
    table = pk.SqlTable(f"sqlite:///{tmp_path}/names.db", "names", keys=("k",))
    source = pk.LocalFlow().source(pa.table({"k": [1.5, 3.5], "t": [0, 1]}), time="t")
    with pytest.raises(ConfigError, match=r"Write method='cinlj' or 'meshjoin', or freshness='snapshot', which copies"):
        source.lookup(table, on="k", freshness="latest", method=method)
    for advised in ({"method": "cinlj"}, {"method": "meshjoin"}, {"method": method, "freshness": "snapshot"}):
        flow = pk.LocalFlow()
        source = flow.source(pa.table({"k": [1.5, 3.5], "t": [0, 1]}), time="t")
        out = source.lookup(table, on="k", **({"freshness": "latest"} | advised)).to_memory()
        flow.run()
        assert out.table()["n"].to_pylist() == [1]
