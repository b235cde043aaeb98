"""A stream looked up in a table larger than memory, the same rows through every engine: ``penstock bench lookup``.

The job: rows with a key, 100,000 per micro-batch, an inner join with a table of 10 million rows of 120 bytes, every key
once, into a sink that drops the rows. Keys are uniform (Zipf 0), half skewed (0.5) or follow Zipf's law (1); which of
them are hot has nothing to do with where they lie. ``penstock`` has memory for a tenth, or a hundredth, of the table.

- ``penstock``: ``.lookup(table, on="key")``, the table in penstock's own pages, the stream's files read by Arrow;
- ``dataframe``: the same with a streaming DataFrame that Spark scans;
- ``penstock-cinlj``: the same with ``method="cinlj"``, a cache before the pages;
- ``spark-static``: Spark's stream–static join of the Parquet files, by a shuffle of both: Spark's plan for every left
  join, and for every source of which it does not know how little it brings;
- ``spark-static-broadcast``: the same with the micro-batch broadcast to the table, as Spark plans inner joins of small
  files;
- ``duckdb``, ``postgres``: each micro-batch to the driver, joined there by the database, which has an index on the key.

What is timed is said in window_join.py. Names with ``@``: another skew than 1, another memory than a tenth. Beside the
rates: how many rows the cache answered for, beside what a cache of the same size could that held, before each
micro-batch, the keys most frequent so far; and what a miss costs, in hits, from the work of tasks under two skews.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import window_join as base
from penstock.flow.report import Report
from penstock.kernels.hashing import hash_keys
from sliding_window import summarise

BATCH_ROWS = 100_000
BATCHES, QUICK_BATCHES = 20, 8
TABLE_ROWS, QUICK_TABLE_ROWS = 10_000_000, 5_000_000
ROW_BYTES = 120
NOTE = 100
"""Letters of a row's text; two numbers and where the text ends take the rest."""
SKEWS = (1.0, 0.5, 0.0)
MEMORIES = (0.1, 0.01)
QUICK_PATIENCE = 25.0


@dataclass(frozen=True, slots=True)
class Job:
    """A skew, and the memory as a part of the table."""

    skew: float = 1.0
    memory: float = 0.1

    @property
    def name(self) -> str:
        """As it stands after the engine's name."""
        skew = "" if self.skew == 1 else f"@zipf{self.skew:g}"
        return skew + ("" if self.memory == MEMORIES[0] else f"@{self.memory:.0%}")


@dataclass(frozen=True, slots=True)
class Data:
    """The table and the streams on disk."""

    directory: Path
    table_rows: int
    batches: int
    patience: float = 60.0
    """Seconds that a run of Spark's may take; its rate is then that of the micro-batches it finished."""

    def stream(self, skew: float) -> base.Workload:
        """The stream of one skew."""
        return base.Workload(self.directory / f"zipf{skew:g}", BATCH_ROWS, self.batches, 0)

    @property
    def nbytes(self) -> int:
        """What the table's rows take."""
        return self.table_rows * ROW_BYTES


def main(quick: bool) -> dict[str, object]:
    """Run every engine, print the table and, as the last line, the JSON that is also returned."""
    results: dict[str, base.Result] = {}
    with tempfile.TemporaryDirectory(prefix="lookup-", ignore_cleanup_errors=True) as directory:
        rows, batches = (QUICK_TABLE_ROWS, QUICK_BATCHES) if quick else (TABLE_ROWS, BATCHES)
        data = generate(Path(directory), rows, batches)
        data = replace(data, patience=QUICK_PATIENCE) if quick else data
        print(f"a table of {rows:,} rows × {ROW_BYTES} B; {batches} micro-batches of {BATCH_ROWS:,} rows per skew")
        for name, engine, job in jobs(quick):
            keep(results, name + job.name, engine(data, job))
        keep_server(results, data)
    summary = summarise(results)
    print_table(results, summary["ratio"])
    for line in cache_lines():
        print(line)
    whole: dict[str, object] = {"bench": "lookup", **summary}
    print(json.dumps(whole))
    return whole


@dataclass(frozen=True, slots=True)
class Cached:
    """What a cache did in warm epochs: rows it answered for and not, what it held, what it could have; tasks' work."""

    hits: int
    misses: int
    rows: int
    ideal: float
    seconds: float


Engine = Callable[[Data, Job], base.Result]
CACHE: dict[Job, Cached] = {}


def jobs(quick: bool) -> list[tuple[str, Engine, Job]]:
    """Which engine does what, in this order; what comes first comes again, when the JVM is as warm as for the rest."""
    memories = MEMORIES[:1] if quick else MEMORIES
    asked: list[tuple[str, Engine, Job]] = [("penstock", penstock, Job(s, m)) for m in memories for s in SKEWS]
    asked += [("dataframe", dataframe, Job())]
    asked += [("penstock-cinlj", cached, Job(s, m)) for m in memories for s in (SKEWS[::2] if quick else SKEWS)]
    for skew in (1.0, 0.0):
        asked.append(("spark-static", spark_static, Job(skew)))
        asked.append(("spark-static-broadcast", spark_broadcast, Job(skew)))
    asked += [("duckdb", by_duckdb, Job()), *([] if quick else [("duckdb", by_duckdb, Job(0.0))])]
    return [*asked, *((name, engine, job) for name, engine, job in asked if name == "penstock")]


def keep(results: dict[str, base.Result], name: str, result: base.Result) -> None:
    if result.rows_out != result.rows_expected:
        raise base.WrongResultError.of(name, result)
    print(f"  {name}: {result.rows_per_second:,.0f} rows/s", file=sys.stderr)
    results[name] = max(results.get(name, result), result, key=lambda one: one.rows_per_second)


def keep_server(results: dict[str, base.Result], data: Data) -> None:
    """PostgreSQL, where it is installed."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.postgres import PostgresMissingError, server

    try:
        with server() as url:
            load_postgres((pq.read_table(path) for path in sorted((data.directory / "table").glob("*.parquet"))), url)
            keep(results, "postgres", by_postgres(data, Job(), url))
    except (PostgresMissingError, ImportError) as missing:
        print(f"  postgres: left out. {missing}", file=sys.stderr)


def generate(directory: Path, table_rows: int, batches: int) -> Data:
    """The table as Parquet, as pages and in DuckDB, and a stream for each skew."""
    data = Data(directory, table_rows, batches)
    rng = np.random.default_rng(5)
    keys = rng.permutation(table_rows).astype(np.int64)
    write_table(data, keys, rng)
    ranks = rng.permutation(table_rows).astype(np.int64)
    for skew in SKEWS:
        weights = np.arange(1, table_rows + 1) ** -skew
        edges = np.cumsum(weights) / weights.sum()
        folder = directory / f"zipf{skew:g}" / "parquet"
        folder.mkdir(parents=True)
        for batch in range(batches):
            drawn = ranks[np.minimum(edges.searchsorted(rng.random(BATCH_ROWS)), table_rows - 1)]
            times = (np.sort(rng.integers(0, 60_000, BATCH_ROWS)) + batch * 60_000 + base.START_MS) * 1000
            columns = {"key": drawn, "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))}
            pq.write_table(pa.table({**columns, "n": np.arange(BATCH_ROWS)}), folder / f"{batch:05d}.parquet")
    return data


def write_table(data: Data, keys: np.ndarray, rng: np.random.Generator) -> None:
    folder = data.directory / "table"
    folder.mkdir(parents=True)
    for place, start in enumerate(range(0, keys.size, 500_000)):
        part = keys[start : start + 500_000]
        pq.write_table(master_rows(part, rng), folder / f"{place:05d}.parquet", compression="none")
    database = duckdb.connect(str(data.directory / "table.duckdb"))
    database.execute(f"CREATE TABLE master AS SELECT * FROM '{folder}/*.parquet'")
    database.execute("CREATE UNIQUE INDEX by_key ON master (key)")
    database.close()


def master_rows(keys: np.ndarray, rng: np.random.Generator) -> pa.Table:
    """A row of 120 bytes for each key."""
    letters = rng.integers(97, 123, keys.size * NOTE, np.uint8)
    ends = np.arange(0, letters.size + 1, NOTE, np.int32)
    notes = pa.Array.from_buffers(pa.string(), keys.size, [None, pa.py_buffer(ends), pa.py_buffer(letters)])
    return pa.table({"key": keys, "since": keys % 3650, "note": notes})


def dataframe(data: Data, job: Job) -> base.Result:
    """Over a streaming DataFrame."""
    return penstock(data, job, files=False)


def penstock(data: Data, job: Job, method: str = "auto", files: bool = True) -> base.Result:
    import penstock as pk

    spark = base.session({})
    pages = data.directory / "pages"
    if not pages.exists():
        pk.write_page_table(spark.read.parquet(str(data.directory / "table")), str(pages), keys="key")
    workload = data.stream(job.skew)
    with tempfile.TemporaryDirectory(dir=data.directory, ignore_cleanup_errors=True) as checkpoint:
        flow = pk.Flow(spark, checkpoint=checkpoint, memory=int(data.nbytes * job.memory))
        told = {"time": "ts", "progress": pk.bounded_delay("1 s")}
        folder = str(workload.directory / "parquet")
        rows = (
            flow.parquet(folder, max_files=1, **told)
            if files
            else flow.source(stream(spark, workload), scan="spark", **told)
        )
        rows.lookup(pk.PageTable(str(pages)), on="key", method=method).to_format("noop")
        query = flow.run(end=False)
        report = query.progress()
        if method == "cinlj":
            CACHE[job] = cache_of(workload, report)
        return base.timed(workload, query.streaming_query, report.rows_out, workload.rows)


def cached(data: Data, job: Job) -> base.Result:
    """With a cache, whether the planner thinks that it pays or not."""
    return penstock(data, job, "cinlj")


def cache_of(workload: base.Workload, report: Report) -> Cached:
    lookups = [next(iter(e.operators.values())) for e in report.epochs if sum(e.rows_in.values())]
    warm = lookups[len(lookups) // 2 :]
    hits, misses = (sum(epoch.counts[name] for epoch in warm) for name in ("hits", "misses"))
    ideal = ideal_share(workload, [epoch.counts["cached"] for epoch in lookups])
    seconds = sum(epoch.phases["work"] + epoch.phases["settle"] for epoch in warm)
    return Cached(hits, misses, warm[-1].counts["cached"], ideal, seconds)


def cache_lines() -> list[str]:
    """What the caches did, for people."""
    lines = [
        f"penstock-cinlj{job.name}: {it.hits / (it.hits + it.misses):.1%} of the rows answered by {it.rows:,} cached, "
        f"ideal {it.ideal:.1%}"
        for job, it in CACHE.items()
    ]
    some, other = CACHE[Job(SKEWS[0])], CACHE[Job(SKEWS[-1])]
    work = np.array([[some.hits, some.misses], [other.hits, other.misses]], float)
    hit, miss = np.linalg.solve(work, [some.seconds, other.seconds])
    return [
        *lines,
        f"of a task's time a hit takes {hit * 1e6:.2f} µs, a miss {miss * 1e6:.2f} µs: {miss / hit:.1f} hits",
    ]


def ideal_share(workload: base.Workload, cached: list[int]) -> float:
    """The share of the later half's rows whose key is among the most frequent so far, as many as were cached."""
    files = sorted((workload.directory / "parquet").glob("*.parquet"))
    hits = rows = 0
    counts = np.zeros(0, np.int64)
    known = np.zeros(0, np.int64)
    for place, path in enumerate(files):
        keys = pq.read_table(path, columns=["key"]).column("key").to_numpy()
        if place >= len(files) // 2:
            best = known[np.argsort(-counts, kind="stable")[: cached[place - 1]]]
            hits += int(np.isin(keys, best).sum())
            rows += keys.size
        fresh, times = np.unique(keys, return_counts=True)
        known, places = np.unique(np.concatenate([known, fresh]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, times])).astype(np.int64)
    return hits / max(1, rows)


def stream(spark: base.SparkSession, workload: base.Workload) -> DataFrame:
    source = spark.readStream.schema("key bigint, ts timestamp, n bigint").option("maxFilesPerTrigger", 1)
    return source.parquet(str(workload.directory / "parquet"))


def spark_static(data: Data, job: Job) -> base.Result:
    """With both sides shuffled."""
    spark = base.session({"spark.sql.autoBroadcastJoinThreshold": "-1"})
    return native(data, job, stream(spark, data.stream(job.skew)).join(static(spark, data), "key"))


def spark_broadcast(data: Data, job: Job) -> base.Result:
    """With the small side, which is the micro-batch, broadcast."""
    spark = base.session({})
    return native(data, job, F.broadcast(stream(spark, data.stream(job.skew))).join(static(spark, data), "key"))


def static(spark: base.SparkSession, data: Data) -> DataFrame:
    return spark.read.parquet(str(data.directory / "table"))


def native(data: Data, job: Job, results: DataFrame) -> base.Result:
    workload = data.stream(job.skew)
    with tempfile.TemporaryDirectory(dir=data.directory, ignore_cleanup_errors=True) as checkpoint:
        writer = results.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(data.patience)
        query.stop()
        done = [batch for batch in query.recentProgress if batch.numInputRows]
        rows_out = sum(batch.sink.numOutputRows for batch in done)
        return base.timed(workload, query, rows_out, len(done) * BATCH_ROWS)


def by_duckdb(data: Data, job: Job) -> base.Result:
    """Each micro-batch to the driver, and joined by DuckDB there, with the flow's memory."""
    database = duckdb.connect(str(data.directory / "table.duckdb"), read_only=True)
    database.execute(f"SET memory_limit = '{int(data.nbytes * job.memory) // 10**6} MB'")

    def joined(batch: pa.Table) -> pa.Table:
        return database.sql("SELECT * FROM batch JOIN master USING (key)").to_arrow_table()

    result = on_the_driver(data, job, joined)
    database.close()
    return result


def by_postgres(data: Data, job: Job, url: str) -> base.Result:
    """Each micro-batch to the driver; its distinct keys in one request, the rows joined there."""
    from penstock.storage.tables import SqlTable

    table = SqlTable(url, "master", ("key",)).open()

    def joined(batch: pa.Table) -> pa.Table:
        keys = pc.unique(batch.column("key"))
        found = pa.Table.from_batches([table.get(hash_keys([keys]), [keys])]).drop_columns(["__hash"])
        return batch.join(found, "key", join_type="inner")

    return on_the_driver(data, job, joined)


def on_the_driver(data: Data, job: Job, joined: Callable[[pa.Table], pa.Table]) -> base.Result:
    """A micro-batch at a time: its rows here, joined here, and the results to the same sink as everyone's."""
    workload = data.stream(job.skew)
    out = 0

    def epoch(rows: DataFrame, number: int) -> None:
        nonlocal out
        results = joined(rows.toArrow())
        out += results.num_rows
        rows.sparkSession.createDataFrame(results).write.format("noop").mode("append").save()

    with tempfile.TemporaryDirectory(dir=data.directory, ignore_cleanup_errors=True) as checkpoint:
        query = base.finish(stream(base.session({}), workload).writeStream.foreachBatch(epoch), checkpoint)
        return base.timed(workload, query, out, workload.rows)


def load_postgres(tables: Iterable[pa.Table], url: str) -> None:
    """Rows into a table `master` with an index on their key."""
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for rows in tables:
            cursor.adbc_ingest("master", rows, mode="create_append")
        cursor.execute("CREATE UNIQUE INDEX by_key ON master (key)")
        cursor.execute("ANALYZE master")


def print_table(results: Mapping[str, base.Result], ratio: Mapping[str, float]) -> None:
    rows = [("engine @ skew @ memory", "rows/s", "warm batch, s", "penstock ÷ it")]
    for name, result in results.items():
        batch = "–" if result.batch_seconds is None else f"{result.batch_seconds:.2f}"
        rows.append((name, f"{result.rows_per_second:,.0f}", batch, f"{ratio[name]:.2f}" if name in ratio else ""))
    base.print_plain(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
