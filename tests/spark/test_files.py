"""Sources of files on Spark: the same rows wherever an epoch runs, across restarts, and what bad files get."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.errors import ConfigError, FlowError, SourceError
from penstock.kernels.xxhash import xxhash64
from penstock.spark.assembly import Assembly
from penstock.spark.frames import EpochFrames
from penstock.spark.place import Placement
from penstock.spark.session import settings
from penstock.spark.tasks import EpochTasks
from tests.kernels.test_xxhash import KINDS
from tests.spark.conftest import multiset

pytestmark = [pytest.mark.spark, pytest.mark.own_place]

PLACES = ("driver", "pieces", "tasks", "spark")


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], str]], None]:
    """Say where each epoch runs."""

    def say(place: Callable[[], str]) -> None:
        monkeypatch.setattr(Placement, "choose", lambda self, nbytes: (self.at_most(place()), "said"))

    return say


def write(folder: Path, number: int, rows: pa.Table) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:03d}.parquet"
    pq.write_table(rows, path, row_group_size=97)
    os.utime(path, (1_600_000_000 + number,) * 2)
    return path


def events(epoch: int, rows: int = 300, seed: int = 3) -> pa.Table:
    """Disordered rows, some late, some without a time or key, of a nested type."""
    rng = np.random.default_rng(seed * 1000 + epoch)
    times = epoch * 100 + rng.integers(-60, 100, rows)
    ids = epoch * rows + np.arange(rows)
    return pa.table(
        {
            "t": pa.array(times, mask=rng.random(rows) < 0.02),
            "k": pa.array(rng.integers(0, 9, rows).astype(str), mask=rng.random(rows) < 0.1),
            "bid": pa.array([{"price": int(p), "url": f"u{p}"} for p in rng.integers(0, 50, rows)]),
            "id": ids,
            "unused": ["x" * 20] * rows,
        }
    )


def build(flow: Any, folder: Path, outs: dict[str, Any]) -> None:
    """Joins, windows, a lookup, distinct rows, a union and late rows over two sources of files."""
    left, right = (
        flow.parquet(folder / name, time="t", progress=pk.bounded_delay(40), name=name, max_files=1)
        for name in ("left", "right")
    )
    priced = left.where("bid.price > 5").select("t", "k", "id", "bid.price AS price")
    joined = priced.join(right.select("t", "k", "id"), on="k", within=pk.band(before=20, after=20), how="full")
    windows = left.window(range=50, slide=10).by("k").agg(n=pk.count(), most=pk.max("id"))
    again = windows.where("n > 1").window(range=100, slide=100).agg(total=pk.sum("n"))
    names = pa.table({"k": ["1", "2", "3"], "name": ["a", "b", "c"]})
    outs["joined"] = joined.select("id", "id_right", "price").to_memory()
    outs["windows"] = windows.to_memory()
    outs["again"] = again.to_memory()
    outs["named"] = priced.lookup(names, on="k", how="left").select("id", "name").to_memory()
    outs["first"] = left.distinct(on="k", within=30).select("k", "id").to_memory()
    outs["both"] = left.union(right).where("id % 3 = 0").select("id", "bid.url AS url").to_memory()
    outs["late"] = windows.late.to_memory()


def found(outs: dict[str, Any]) -> dict[str, Counter[Any]]:
    return {name: multiset(out.table()) for name, out in outs.items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[Any]]:
    """What the same flow gives in process."""
    folder = tmp_path_factory.mktemp("files")
    for epoch in range(6):
        write(folder / "left", epoch, events(epoch))
        write(folder / "right", epoch, events(epoch, 120, seed=4))
    flow, outs = pk.LocalFlow(), {}
    build(flow, folder, outs)
    flow.run()
    return found(outs)


@pytest.mark.parametrize(
    "places", ["driver", "anywhere", *(pytest.param(place, marks=pytest.mark.deep) for place in ("tasks", "spark"))]
)
def test_files_give_what_they_give_in_process_wherever_an_epoch_runs_and_across_a_restart(
    spark, tmp_path, at, expected, places
):
    random = Random(5)
    at(lambda: random.choice(PLACES) if places == "anywhere" else places)
    total: dict[str, Counter[Any]] = {}
    for start, (first, last) in enumerate([(0, 3), (3, 6)]):
        for epoch in range(first, last):
            write(tmp_path / "left", epoch, events(epoch))
            write(tmp_path / "right", epoch, events(epoch, 120, seed=4))
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB", shards=2 + start)
        outs: dict[str, Any] = {}
        build(flow, tmp_path, outs)
        query = flow.run(end=last == 6)
        for name, rows in found(outs).items():
            total[name] = total.get(name, Counter()) + rows
    assert total == expected
    assert sum(expected["late"].values()) > 20
    if places != "anywhere":
        assert {"driver": "in the driver", "tasks": "read its files", "spark": "from Spark"}[places] in str(
            query.explain()
        )


def test_spark_hashes_as_the_kernel_does(spark):
    rng = Random(3)
    values = {
        "boolean": [True, False],
        "tinyint": [-128, 7],
        "smallint": [-(2**15), 9],
        "int": [2**31 - 1, -1],
        "bigint": [2**63 - 1, -(2**63)],
        "float": [0.1, -0.0, float("nan"), float("-inf")],
        "double": [0.1, -0.0, float("nan"), float("inf")],
        "string": [
            "",
            "é",
            "Spark",
            "x" * 31,
            "y" * 32,
            "z" * 67,
            "".join(chr(rng.randrange(1, 2000)) for _ in range(99)),
        ],
        "binary": [b"", b"\x00\xff" * 40],
    }
    for name, some in values.items():
        kind, _ = KINDS[name]
        array = pa.array([None, *some], kind)
        rows = spark.createDataFrame(pa.table({"n": range(len(array)), "v": array}))
        said = rows.selectExpr("n", "xxhash64(v, n) AS h").orderBy("n").toArrow().column("h").to_pylist()
        assert xxhash64([array, pa.array(range(len(array)))]).view(np.int64).tolist() == said, name


def test_spark_hashes_times_and_decimals_as_the_kernel_does(spark):
    query = """SELECT CAST(v AS DECIMAL(38, 4)) AS wide, CAST(v AS DECIMAL(18, 3)) AS narrow, DATE'2024-02-29' AS day,
        timestamp_micros(CAST(v AS BIGINT)) AS at, named_struct('a', v, 'b', CAST(NULL AS INT)) AS both
        FROM VALUES (0.5D), (-123456.789D), (32767.0D), (-32768.0D), (1e14D) AS rows(v)"""
    rows = spark.sql(query)
    said = rows.selectExpr("*", *(f"xxhash64({name}) AS h_{name}" for name in rows.columns)).toArrow()
    for name in rows.columns:
        column = said.column(name).combine_chunks()
        column = column.cast(pa.timestamp("us", "UTC")) if name == "at" else column
        assert xxhash64([column]).view(np.int64).tolist() == said.column(f"h_{name}").to_pylist(), name


def counting(spark, folder: Path, tmp_path: Path, kind: str = "parquet", **options: Any) -> tuple[pk.Flow, Any]:
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    source = getattr(flow, kind)(folder, time="t", **options)
    return flow, source.select("t", "id").to_memory()


PLAIN = pa.table({"t": [1, 2, 3], "id": [10, 20, 30]})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["arrow", "csv", "json"])
def test_other_formats_give_the_same_rows(spark, tmp_path, at, kind, place):
    at(lambda: place)
    folder = tmp_path / "in"
    folder.mkdir()
    if kind == "arrow":
        with pa.ipc.new_file(folder / "a.arrow", PLAIN.schema) as file:
            file.write_table(PLAIN)
        with pa.ipc.new_stream(folder / "b.arrows", PLAIN.schema) as file:
            file.write_table(PLAIN)
    elif kind == "csv":
        for name in "ab":
            pa.csv.write_csv(PLAIN, folder / f"{name}.csv")
    else:
        for name in "ab":
            (folder / f"{name}.json").write_text("".join(f'{{"id": {n}0, "t": {n}, "more": [1]}}\n' for n in (1, 2, 3)))
    (folder / "_SUCCESS").touch()
    (folder / "empty").touch()
    flow, out = counting(spark, folder, tmp_path, kind, schema=PLAIN.schema)
    flow.run()
    assert multiset(out.table()) == multiset(pa.concat_tables([PLAIN, PLAIN]))


@pytest.mark.parametrize("place", PLACES)
def test_a_file_may_lack_columns_have_more_in_another_order_and_narrower_types(spark, tmp_path, at, place):
    at(lambda: place)
    write(tmp_path / "in", 0, pa.table({"t": [1], "id": pa.array([10], pa.int64())}))
    write(
        tmp_path / "in", 1, pa.table({"more": ["x"], "id": pa.array([20], pa.int16()), "t": pa.array([2], pa.int32())})
    )
    write(tmp_path / "in", 2, pa.table({"t": [3]}))
    flow, out = counting(spark, tmp_path / "in", tmp_path)
    flow.run()
    assert multiset(out.table()) == Counter({(1, 10): 1, (2, 20): 1, (3, None): 1})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(b"no Parquet at all"), "001.parquet cannot be read as parquet: "),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "001.parquet cannot be read as parquet: "),
        (
            lambda path: pq.write_table(pa.table({"t": [2], "id": ["text"]}), path),
            "Column 'id' of .*001.parquet is string, but the source has it as int64. Write the file in that type",
        ),
    ],
    ids=["other", "torn", "type"],
)
def test_a_bad_file_is_named_and_once_it_is_mended_the_epoch_is_repeated(spark, tmp_path, at, place, spoil, said):
    at(lambda: place)
    write(tmp_path / "in", 0, pa.table({"t": [1], "id": [10]}))
    bad = write(tmp_path / "in", 1, pa.table({"t": [2], "id": [20]}))
    good = bad.read_bytes()
    spoil(bad)
    flow, _ = counting(spark, tmp_path / "in", tmp_path, schema=PLAIN.schema)
    with pytest.raises(FlowError, match=said) as error:
        flow.run()
    assert len(str(error.value)) < 700
    bad.write_bytes(good)
    flow, out = counting(spark, tmp_path / "in", tmp_path, schema=PLAIN.schema)
    flow.run()
    assert multiset(out.table()) == Counter({(1, 10): 1, (2, 20): 1})


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("driver", (Assembly, "portions")),
        ("tasks", (EpochTasks, "_count")),
        ("tasks", (Assembly, "portions")),
        ("spark", (EpochFrames, "_portions")),
    ],
    ids=lambda each: each if isinstance(each, str) else each[1],
)
def test_a_file_that_is_replaced_between_two_steps_of_an_epoch_loses_no_row(
    spark, tmp_path, at, monkeypatch, place, step
):
    """Read by the row groups that it had, the new file would lose those that it has besides."""
    at(lambda: place)
    path = write(tmp_path / "in", 0, events(0))
    of, name = step
    original = getattr(of, name)

    def then_replaced(*args: Any) -> Any:
        done = original(*args)
        pq.write_table(events(0, rows=700), tmp_path / "new", row_group_size=97)
        os.replace(tmp_path / "new", path)
        return done

    def run() -> pa.Table:
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/c", memory="16 MB")
        out = flow.parquet(tmp_path / "in", time="t").distinct(on="id").select("id").to_memory()
        flow.run()
        return out.table()

    with monkeypatch.context() as patch:
        patch.setattr(of, name, then_replaced)
        with pytest.raises(SourceError, match=r"000\.parquet has changed while an epoch read it"):
            run()
    times = events(0, rows=700).column("t")
    assert run().num_rows == 700 - times.null_count


def test_a_file_that_is_gone_is_named_and_an_empty_one_in_its_place_has_no_rows(spark, tmp_path, at):
    at(lambda: "driver")
    write(tmp_path / "in", 0, pa.table({"t": [1], "id": [10]}))
    bad = write(tmp_path / "in", 1, pa.table({"t": [2], "id": [20]}))
    bad.write_bytes(b"bad")
    flow, _ = counting(spark, tmp_path / "in", tmp_path, schema=PLAIN.schema)
    with pytest.raises(SourceError):
        flow.run()
    bad.unlink()
    flow, _ = counting(spark, tmp_path / "in", tmp_path, schema=PLAIN.schema)
    with pytest.raises(SourceError, match=r"001.parquet, which is gone"):
        flow.run()
    bad.touch()
    flow, out = counting(spark, tmp_path / "in", tmp_path, schema=PLAIN.schema)
    flow.run()
    assert multiset(out.table()) == Counter({(1, 10): 1})


def test_what_only_spark_can_compute_runs_in_spark_and_says_why(spark, tmp_path):
    write(tmp_path / "in", 0, pa.table({"t": [1, 2], "s": ["a b", "c"]}))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    out = flow.parquet(tmp_path / "in", time="t").select("t", "soundex(s) AS code").to_memory()
    query = flow.run()
    assert multiset(out.table()) == Counter({(1, "A100"): 1, (2, "C000"): 1})
    assert "in tasks that get their rows from Spark: 'soundex(s) AS code' cannot be computed" in str(query.explain())


@pytest.mark.parametrize("place", PLACES)
def test_columns_that_are_never_null_reach_every_sink(spark, tmp_path, at, place):
    at(lambda: place)
    write(tmp_path / "in", 0, PLAIN)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    rows = flow.parquet(tmp_path / "in", time="t").select("t", "7 AS seven", "'x' AS text")
    out = rows.to_memory()
    rows.to_parquet(f"{tmp_path}/out")
    rows.to_format("json", path=f"{tmp_path}/json")
    flow.run()
    expected = Counter({(t, 7, "x"): 1 for t in (1, 2, 3)})
    assert multiset(out.table()) == expected
    assert multiset(spark.read.parquet(f"{tmp_path}/out").select("t", "seven", "text").toArrow()) == expected
    assert spark.read.json(f"{tmp_path}/json").count() == 3


ZONED = pa.table({"t": [1], "z": pa.array([1_593_570_600_000_000], pa.timestamp("us", "UTC"))})
"""Half past two in the night of 2020-07-01 in UTC, which is the evening before in New York."""


@pytest.mark.parametrize(
    ("expression", "there"),
    [
        ("hour(z)", 22),
        ("CAST(z AS STRING)", "2020-06-30 22:30:00"),
        ("dayofmonth(z)", 30),
        ("z >= TIMESTAMP '2020-07-01 00:00:00'", False),
    ],
)
def test_expressions_go_by_the_time_zone_of_the_session(spark, tmp_path, expression, there):
    write(tmp_path / "in", 0, ZONED)
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
        source = flow.parquet(tmp_path / "in", time="t")
        out, kept = source.select("t", f"{expression} AS v").to_memory(), source.where("hour(z) = 22").to_memory()
        query = flow.run()
    assert out.table().column("v").to_pylist() == [there]
    assert kept.table().num_rows == 1
    assert "depends on the session's time zone, America/New_York" in str(query.explain())


def test_what_does_not_depend_on_the_zone_runs_where_the_driver_is_in_any_zone(spark, tmp_path):
    write(tmp_path / "in", 0, ZONED)
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
        late = flow.parquet(tmp_path / "in", time="t").where("t * 2 > 1 AND z > TIMESTAMP '2020-07-01 02:00:00Z'")
        out = late.select("t", "z + INTERVAL 10 SECONDS AS v", "date '2020-01-31' + 1 AS d").to_memory()
        assert "ran in the driver" in str(flow.run().explain())
    assert out.table().column("v").cast(pa.int64()).to_pylist() == [1_593_570_610_000_000]


TRICKY = pa.table({"t": [1, 2], "s": ["7", "x"], "i": pa.array([1, 2**31 - 1], pa.int32()), "l": [[4, 5], [4]]})
"""A row that every expression has a value for, and one that none has a value for in ANSI mode."""

BY_MODE = {"CAST(s AS INT)": [7, None], "i + 1": [2, -(2**31)], "5 / (t - 2)": [-5.0, None], "l[1]": [5, None]}
"""Expressions, and what they are in ANSI mode and without, or without it only."""


@pytest.mark.parametrize("place", PLACES)
def test_what_goes_by_ansi_mode_is_null_or_wraps_around_without_it_wherever_the_flow_may_run(
    spark, tmp_path, at, place
):
    at(lambda: place)
    write(tmp_path / "in", 0, TRICKY)
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/c", memory="16 MB")
        rows = flow.parquet(tmp_path / "in", time="t")
        out = rows.select("t", *(f"{text} AS c{n}" for n, text in enumerate(BY_MODE))).to_memory()
        shown = str(flow.run().explain())
    found = out.table().sort_by("t").drop_columns(["t"])
    assert found.to_pydict() == {f"c{n}": values for n, values in enumerate(BY_MODE.values())}
    assert "ran in tasks that get their rows from Spark" in shown


def test_what_is_left_to_spark_because_ansi_mode_is_off_is_told(spark, tmp_path):
    write(tmp_path / "in", 0, TRICKY)
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/c", memory="16 MB")
        out = flow.parquet(tmp_path / "in", time="t").where("i + 1 > 0").select("t").to_memory()
        shown = str(flow.run().explain())
    assert out.table().to_pydict() == {"t": [1]}
    assert "'i + 1 > 0' may depend on spark.sql.ansi.enabled, which is false, but Python computes in ANSI mode" in shown


@pytest.mark.parametrize("place", PLACES)
def test_what_has_a_value_in_ansi_mode_has_it_wherever_the_flow_runs(spark, tmp_path, at, place):
    at(lambda: place)
    write(tmp_path / "in", 0, TRICKY.slice(0, 1))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/c", memory="16 MB")
    rows = flow.parquet(tmp_path / "in", time="t")
    out = rows.select(*(f"{text} AS c{n}" for n, text in enumerate(BY_MODE))).to_memory()
    flow.run()
    assert out.table().to_pydict() == {f"c{n}": values[:1] for n, values in enumerate(BY_MODE.values())}


@pytest.mark.parametrize(
    ("place", "expression"),
    [
        pytest.param(place, expression, marks=() if (number - other) % 3 == 0 else pytest.mark.deep)
        for number, place in enumerate(PLACES)
        for other, expression in enumerate(BY_MODE)
    ],
)
def test_what_has_no_value_in_ansi_mode_is_an_error_wherever_the_flow_runs(spark, tmp_path, at, place, expression):
    at(lambda: place)
    write(tmp_path / "in", 0, TRICKY)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/c", memory="16 MB")
    out = flow.parquet(tmp_path / "in", time="t").select(f"{expression} AS v").to_memory()
    with pytest.raises(FlowError):
        flow.run()
    assert out.table().num_rows == 0


def test_what_does_not_go_by_ansi_mode_runs_where_the_driver_is_in_either(spark, tmp_path):
    write(tmp_path / "in", 0, TRICKY)
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):
        flow = pk.Flow(spark, checkpoint=f"{tmp_path}/c", memory="16 MB")
        rows = flow.parquet(tmp_path / "in", time="t").where("t % 2 = 1 AND s LIKE '7%'")
        out = rows.select("t", "upper(s) AS s", "t / 2 AS half", "try_cast(s AS INT) AS n").to_memory()
        assert "ran in the driver" in str(flow.run().explain())
    assert out.table().to_pylist() == [{"t": 1, "s": "7", "half": 0.5, "n": 7}]


@pytest.mark.parametrize("place", PLACES)
def test_relative_paths_are_those_of_the_driver_though_it_went_to_another_folder(
    spark, tmp_path, monkeypatch, at, place
):
    at(lambda: place)
    monkeypatch.chdir(tmp_path)
    write(Path("i?n"), 0, PLAIN)
    flow = pk.Flow(spark, checkpoint="checkpoint", memory="16 MB")
    rows = flow.parquet("i?n", time="t", schema=PLAIN.schema)
    out = rows.to_memory()
    rows.to_parquet("out")
    flow.run()
    assert multiset(out.table()) == multiset(PLAIN)
    assert pq.read_table(tmp_path / "out").num_rows == 3
    assert (tmp_path / "checkpoint" / "ledger").is_dir()
    assert (tmp_path / "checkpoint" / "spark").is_dir()


def test_sinks_and_checkpoints_inside_the_folder_that_is_read_are_refused(spark, tmp_path):
    write(tmp_path / "in", 0, PLAIN)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    flow.parquet(tmp_path / "in", time="t").to_parquet(f"{tmp_path}/in/out")
    with pytest.raises(ConfigError, match=r"to which parquet .*/in/out of the same flow writes"):
        flow.run()
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/in/checkpoint", memory="16 MB")
    flow.parquet(tmp_path / "in", time="t").to_memory()
    with pytest.raises(ConfigError, match=r"it would read the flow's state"):
        flow.run()
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["000.parquet"]
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/in/_checkpoint", memory="16 MB")
    out = flow.parquet(tmp_path / "in", time="t").to_memory()
    flow.run()
    assert out.table().num_rows == 3


def test_an_operator_with_less_memory_than_the_flow_runs_where_the_driver_is(spark, tmp_path):
    write(tmp_path / "in", 0, PLAIN)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="64 MB")
    names = pa.table({"id": [10], "name": ["a"]})
    out = flow.parquet(tmp_path / "in", time="t").lookup(names, on="id", how="left", memory="2 MB").to_memory()
    query = flow.run()
    assert out.table().num_rows == 3
    assert "ran in the driver" in str(query.explain())


def test_files_and_a_dataframe_in_one_flow(spark, tmp_path):
    write(tmp_path / "in", 0, pa.table({"t": [1, 2], "k": [1, 2]}))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    files = flow.parquet(tmp_path / "in", time="t")
    frame = flow.source(spark.createDataFrame([(2, 1), (9, 2)], "t long, k long"), time="t", name="frame")
    out = files.join(frame, on="k", within=pk.band(before=5, after=5)).to_memory()
    query = flow.run()
    assert out.table().select(["t", "t_right"]).to_pylist() == [{"t": 1, "t_right": 2}]
    assert "ran in the driver" in str(query.explain())


@pytest.mark.parametrize("several", ["two uses", "two scans"])
def test_files_beside_a_dataframe_that_spark_scans_in_several_places(spark, tmp_path, several):
    """Spark tells scans apart by their places in the query; those of files are found whatever the others are."""
    for number in range(2):
        for place, name in enumerate(("frame", "other", "files")):
            write(tmp_path / name, number, pa.table({"t": [number], "id": [10 * place + number]}))

    def stream(name: str) -> Any:
        schema = spark.read.parquet(str(tmp_path / name)).schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))

    flow = pk.Flow(spark, checkpoint=str(tmp_path / "checkpoint"), memory="32 MB")
    rows = stream("frame")
    given = [rows, rows.select("*")] if several == "two uses" else [rows.union(stream("other"))]
    streams = [flow.source(each, time="t", name=f"a{number}") for number, each in enumerate(given)]
    streams.append(flow.parquet(tmp_path / "files", time="t", name="files", max_files=1))
    outs = [each.to_memory() for each in streams]
    flow.run()
    found = [sorted(out.table().column("id").to_pylist()) for out in outs]
    assert found == ([[0, 1], [0, 1], [20, 21]] if several == "two uses" else [[0, 1, 10, 11], [20, 21]])


def test_another_filter_or_sink_of_files_may_be_added_at_a_restart(spark, tmp_path):
    write(tmp_path / "in", 0, pa.table({"t": [1, 2], "id": [1, 2]}))
    flow, _ = counting(spark, tmp_path / "in", tmp_path)
    flow.run(end=False)
    write(tmp_path / "in", 1, pa.table({"t": [3], "id": [3]}))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    source = flow.parquet(tmp_path / "in", time="t")
    outs = source.to_memory(), source.where("id > 5").to_memory()
    flow.run()
    assert [out.table().num_rows for out in outs] == [1, 0]


@pytest.mark.parametrize("sink", ["parquet", "foreach", "format"])
def test_an_epoch_that_does_not_fit_where_the_driver_is_runs_in_tasks_and_sinks_get_its_rows_once(
    spark, tmp_path, sink
):
    rng = np.random.default_rng(1)
    rows = 400_000
    for epoch in range(2):
        times = epoch * 1000 + rng.integers(0, 1000, rows)
        write_large(tmp_path / "in", epoch, pa.table({"t": times, "k": rng.integers(0, 10**6, rows), "v": times * 2}))
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    source = flow.parquet(tmp_path / "in", time="t", progress=pk.bounded_delay(1000), max_files=1)
    distinct = source.distinct(on="k", within=100)
    calls: list[tuple[int, int]] = []
    if sink == "foreach":
        distinct.foreach_epoch(lambda frame, epoch: calls.append((epoch, frame.count())))
        source.where("k < 100").foreach_epoch(lambda frame, epoch: calls.append((epoch, frame.count())))
    elif sink == "parquet":
        distinct.to_parquet(f"{tmp_path}/out")
    else:
        distinct.to_format("json", path=f"{tmp_path}/out")
    query = flow.run()
    places = [report.place for report in query.progress().epochs]
    assert places[0].startswith("in tasks that read its files: it needs more than the memory of one task")
    assert places[1].startswith("in tasks that read its files: ")
    assert len(calls) == (6 if sink == "foreach" else 0)
    if sink == "parquet":
        read = spark.read.parquet(f"{tmp_path}/out")
        assert read.count() == query.progress().rows_out
        assert read.select("t", "k", "v").distinct().count() > 700_000


def write_large(folder: Path, number: int, rows: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / f"{number:03d}.parquet")
    os.utime(folder / f"{number:03d}.parquet", (1_600_000_000 + number,) * 2)


def refused() -> Iterator[tuple[Callable[[Any, Path], Any], str]]:
    yield lambda flow, at: flow.parquet(at / "nowhere", time="t"), "does not exist. Write a folder of parquet files"
    yield lambda flow, at: flow.parquet(at / "empty", time="t"), "has no file yet to infer its columns from"
    yield lambda flow, at: flow.parquet(at / "in", time="x"), "x"
    yield lambda flow, at: flow.parquet(at / "in", time="t", max_files=0), "max_files=0 must be a whole number"
    yield lambda flow, at: flow.parquet(at / "in", time="t", max_bytes=True), "max_bytes=True must be a whole number"
    yield lambda flow, at: flow.parquet(7, time="t"), "path=7 is neither a path nor a URI"
    yield lambda flow, at: flow.parquet(at / "in", time="t", schema="t INT"), "schema='t INT' is not a pyarrow.Schema"
    yield lambda flow, at: flow.json(at / "in", time="t"), "cannot be read as json"
    yield (
        lambda flow, at: flow.parquet(at / "in", time="t", schema=pa.schema({"t": pa.time64("us")})),
        "Column 't' is of type time64",
    )


@pytest.mark.parametrize(("ask", "said"), list(refused()))
@pytest.mark.parametrize("host", ["spark", "process"])
def test_what_cannot_be_read_is_refused_while_the_flow_is_built(request, tmp_path, host, ask, said):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "in", 0, PLAIN)
    if host == "spark":
        flow = pk.Flow(request.getfixturevalue("spark"), checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    else:
        flow = pk.LocalFlow()
    with pytest.raises(ConfigError, match=said):
        ask(flow, tmp_path)


def test_only_the_columns_that_are_needed_are_read(spark, tmp_path, monkeypatch, at):
    from penstock.storage import payload

    at(lambda: "driver")
    write(tmp_path / "in", 0, events(0))
    asked = []

    def watched(files, path, columns, *more, **options):
        asked.append(columns)
        return read(files, path, columns, *more, **options)

    read = payload.read_file
    monkeypatch.setattr(payload, "read_file", watched)
    flow = pk.Flow(spark, checkpoint=f"{tmp_path}/checkpoint", memory="16 MB")
    out = flow.parquet(tmp_path / "in", time="t").where("bid.price > 40").window(range=50, slide=50).agg(n=pk.count())
    out.to_memory()
    flow.run()
    assert {(field.name, str(field.type)) for field in asked[0]} == {("t", "int64"), ("bid", "struct<price: int64>")}
