"""`penstock demo`: a streaming join on local Spark, watched while it runs, then checked against DuckDB."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.budget import show_bytes
from penstock.core.errors import FlowError
from penstock.flow.report import Report
from penstock.orders import ORDERS, OrdersAndPayments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.flow.flow import Flow, Query

ORDERS_PER_SECOND = 15_000
"""Orders generated per second of the demo."""
SPEED = 120
"""Seconds of event time that pass in one second of the demo: half a minute of it is an hour."""
SLICES_PER_SECOND = 2
"""Files per second and stream."""
FILES_PER_EPOCH = 4
"""Files that an epoch takes from each stream at most."""
MEMORY = "64 MB"
CORES = 2

_PAYMENTS = "order_id BIGINT, method STRING, paid DOUBLE, ts TIMESTAMP"

_WELCOME = """\
penstock demo: which orders are paid within ten minutes?

Two streams of files are being written while you watch: orders, and payments for them, {speed} times faster than
life. Rows come out of order, in bursts, and a few of them minutes late. Each order is joined with the payments
made at most ten minutes before or after it; one that is never paid comes out alone. All of it within {memory}.

    orders = flow.parquet("in/orders", time="ts", …)
    payments = flow.source(spark.readStream.….parquet("in/payments"), time="ts", …)
    paid = orders.join(payments, on="order_id", within=pk.band(before="10 min", after="10 min"), how="left")
"""

_LEGEND = """\
epochs: micro-batches done   rows in: taken from both streams   results: orders, paid or given up on
late: rows older than their stream's bound, kept aside   state: rows still waiting for a partner, in page files
bound: no row older than this is waited for any more; state below it is let go
"""

_SOME_RESULTS = """
WITH counted AS (SELECT *, count(*) OVER (PARTITION BY order_id) AS payments FROM {results}),
told AS (
    SELECT CASE
        WHEN method IS NULL THEN 'not paid within 10 min'
        WHEN payments > 1 THEN 'paid twice'
        WHEN ts_right < ts THEN 'paid before, by its clock'
        ELSE 'paid'
    END AS what, * EXCLUDE payments FROM counted
)
FROM told QUALIFY row_number() OVER (PARTITION BY what ORDER BY order_id, ts_right) <= 2
ORDER BY what, order_id, ts_right
"""

_SOME_LATE = """
SELECT late_source, late_reason, order_id, ts, shop, amount, method, paid
FROM {late} QUALIFY row_number() OVER (PARTITION BY late_source ORDER BY ts) <= 2 ORDER BY late_source, ts
"""

_CHECK = """
CREATE VIEW orders AS SELECT order_id, shop, amount, epoch_us(ts) AS ts FROM '{folder}/in/orders/*.parquet'
    EXCEPT ALL SELECT order_id, shop, amount, epoch_us(ts) FROM {late} WHERE late_source = 'orders';
CREATE VIEW payments AS SELECT order_id, method, paid, epoch_us(ts) AS ts FROM '{folder}/in/payments/*.parquet'
    EXCEPT ALL SELECT order_id, method, paid, epoch_us(ts) FROM {late} WHERE late_source = 'payments';
CREATE TABLE expected AS
    SELECT o.order_id, o.shop, o.amount, o.ts, p.method, p.paid, p.ts AS ts_right
    FROM orders AS o LEFT JOIN payments AS p
    ON p.order_id = o.order_id AND p.ts BETWEEN o.ts - 600000000 AND o.ts + 600000000;
CREATE TABLE found AS
    SELECT order_id, shop, amount, epoch_us(ts) AS ts, method, paid, epoch_us(ts_right) AS ts_right
    FROM {results};
"""


def run(seconds: float = 25, keep: bool = False) -> int:
    """Run the demo for about `seconds` of streaming; 0 if its output is exactly what it must be, else 1."""
    _need_duckdb()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        return _Demo(folder, seconds).run()
    finally:
        if keep:
            print(f"\nKept: {folder} (in, results, late, checkpoint, spark.log)")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Demo:
    """One demo in its folder: ``in`` (the streams), ``results``, ``late``, ``checkpoint``, ``spark.log``."""

    folder: Path
    seconds: float
    begun: float = field(default_factory=clock.perf_counter)

    def run(self) -> int:
        print(_WELCOME.format(speed=SPEED, memory=MEMORY))
        print("Starting Spark …", flush=True)
        with _spark(self.folder / "spark.log") as spark:
            flow = self._flow(spark)
            query = self._live(flow)
            print("\nprint(query.explain()):\n")
            print(query.explain())
            print(
                "\nThe streams are over. flow.run() ends them, so that orders without a payment come out …", flush=True
            )
            ended = flow.run()
        self._show_samples(query.progress(), ended.progress())
        return self._check()

    def _flow(self, spark: SparkSession) -> Flow:
        import penstock as pk

        flow = pk.Flow(spark, checkpoint=str(self.folder / "checkpoint"), memory=MEMORY)
        orders = flow.parquet(
            self._made("orders"),
            time="ts",
            schema=ORDERS,
            progress=pk.bounded_delay("30 s"),
            max_files=FILES_PER_EPOCH,
            name="orders",
        )
        payments = flow.source(
            self._stream(spark, self._made("payments")),
            time="ts",
            progress=pk.bounded_delay("30 s", idle="10 s"),
            name="payments",
        )
        paid = orders.join(payments, on="order_id", within=pk.band(before="10 min", after="10 min"), how="left")
        paid.to_parquet(str(self.folder / "results"))
        paid.late.to_parquet(str(self.folder / "late"))
        return flow

    def _stream(self, spark: SparkSession, folder: Path) -> DataFrame:
        """Files as a streaming DataFrame, like any that a user has; Arrow reads those, too."""
        files = spark.readStream.schema(_PAYMENTS).option("maxFilesPerTrigger", FILES_PER_EPOCH)
        return files.parquet(str(folder))

    def _made(self, name: str) -> Path:
        """The folder of a stream, which has no file yet."""
        folder = self.folder / "in" / name
        folder.mkdir(parents=True)
        return folder

    def _live(self, flow: Flow) -> Query:
        """Let the flow run while the streams are written, until it has taken them whole."""
        print(_LEGEND)
        writer = _Writer(self.folder / "in", self.seconds)
        query = flow.start(trigger="1 s")
        try:
            print("The first epoch takes a while: Spark compiles the job and starts its Python workers …\n", flush=True)
            while not query.progress().epochs:
                _wait(query)
            writer.start()
            with _progress_line() as show:
                while not writer.consumed_by(query.progress()):
                    _wait(query)
                    show(query.progress(), writer)
                show(query.progress(), writer)
        finally:
            writer.stop()
            query.stop()
        return query

    def _show_samples(self, live: Report, end: Report) -> None:
        import duckdb

        print(f"{live.rows_out:,} results came while the streams ran, {end.rows_out:,} at their end.\n")
        _print_table("Some results", duckdb.sql(_SOME_RESULTS.format(results=self._parquet("results"))))
        _print_table("Some late rows, from paid.late", duckdb.sql(_SOME_LATE.format(late=self._parquet("late"))))

    def _check(self) -> int:
        """Compare with DuckDB's join over all that was written, less the late rows: as multisets, both ways."""
        import duckdb

        print("DuckDB joins the same files, less the late rows …", flush=True)
        names = {name: self._parquet(name) for name in ("results", "late")}
        with duckdb.connect() as tables:
            tables.execute(_CHECK.format(folder=self.folder, **names))
            missing, surplus, rows = (
                tables.sql(f"SELECT count(*) FROM ({query})").fetchall()[0][0]
                for query in (
                    "FROM expected EXCEPT ALL FROM found",
                    "FROM found EXCEPT ALL FROM expected",
                    "FROM found",
                )
            )
        took = clock.perf_counter() - self.begun
        if missing or surplus:
            print(f"NOT exact: {missing:,} rows are missing and {surplus:,} too many, of {rows:,}.")
            return 1
        print(f"exact: {rows:,} rows equal ({took:.0f} s in all)")
        return 0

    def _parquet(self, name: str) -> str:
        return f"read_parquet('{self.folder / name}/epoch=*/*.parquet', hive_partitioning = false)"


class _Writer(threading.Thread):
    """Writes the two streams at the demo's pace, in the background."""

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(daemon=True)
        span = max(60, round(seconds * SPEED))
        self._streams = OrdersAndPayments(orders=max(1, round(seconds * ORDERS_PER_SECOND)), span=f"{span} s", seed=7)
        self._folder = folder
        self._halt = threading.Event()
        self._failure: BaseException | None = None
        self.rows = 0
        self.done = False

    def run(self) -> None:
        try:
            begun = clock.monotonic()
            for place, rows in enumerate(self._streams.write(self._folder, every=f"{SPEED // SLICES_PER_SECOND} s")):
                self.rows += rows
                if self._halt.wait(max(0.0, begun + (place + 1) / SLICES_PER_SECOND - clock.monotonic())):
                    return
            self.done = True
        except BaseException as failure:
            self._failure = failure

    def consumed_by(self, report: Report) -> bool:
        """Whether everything was written and taken."""
        if self._failure is not None:
            raise self._failure
        return self.done and report.rows_in >= self.rows

    def stop(self) -> None:
        """Write no more."""
        self._halt.set()
        if self.is_alive():
            self.join()


@contextmanager
def _spark(log: Path) -> Iterator[SparkSession]:
    """A local Spark that writes what it has to say into `log`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{CORES}]").appName("penstock demo")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": str(log.parent / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _stderr_into(log):
            spark = builder.getOrCreate()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own talks to the JVM, whatever is going on
    except Exception as failure:
        said = log.read_text(errors="replace").splitlines()[-5:]
        raise FlowError("\n".join(["Spark did not start. `penstock doctor` may say why.", *said])) from failure
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Let processes started in this block, Spark's JVM and its workers, write their stderr to a file for good."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("wb") as target:
        os.dup2(target.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _wait(query: Query, seconds: float = 0.25) -> None:
    """Let a running query run on. Sleep here rather than in the JVM, where Ctrl-C would break the connection."""
    clock.sleep(seconds)
    if query.await_end(timeout=0.001):
        raise FlowError("The query stopped before it had read its streams.")


_Show = Callable[[Report, _Writer], None]
"""Shows how far the demo is."""


@contextmanager
def _progress_line() -> Iterator[_Show]:
    """A line that is kept up to date on a terminal, and printed every few seconds elsewhere."""
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        yield _plain_line()
        return
    console = Console()
    if not console.is_terminal:
        yield _plain_line()
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda report, writer: live.update(Text(_progress(report, writer, "\n"), style="cyan"))


def _plain_line(every: float = 4) -> _Show:
    """Print a line if the last one is `every` seconds old, or the streams are over."""
    shown = clock.monotonic() - every + 1

    def show(report: Report, writer: _Writer) -> None:
        nonlocal shown
        if report.rows_in and (clock.monotonic() - shown >= every or writer.consumed_by(report)):
            shown = clock.monotonic()
            print(_progress(report, writer, " | "), flush=True)

    return show


def _progress(report: Report, writer: _Writer, separator: str) -> str:
    """How far a query is, in a line or two."""
    operators = [op for epoch in report.epochs[-1:] for op in epoch.operators.values()]
    state = f"{sum(op.state_rows for op in operators):,} rows, {show_bytes(sum(op.state_bytes for op in operators))}"
    bounds = report.epochs[-1].bounds if report.epochs else {}
    return separator.join(
        [
            f"epochs {report.totals.epochs}, rows in {report.rows_in:,} of {writer.rows:,} written, "
            f"results {report.rows_out:,}, late {report.late:,}",
            f"state {state}",
            "bounds " + ", ".join(f"{name} {_time_of_day(bound)}" for name, bound in bounds.items()),
        ]
    )


def _time_of_day(bound: str) -> str:
    return bound.partition(" ")[2][:8] if bound[:1].isdigit() else bound


def _print_table(title: str, relation: Any) -> None:
    columns: Sequence[str] = relation.columns
    cells = [[_cell(value) for value in row] for row in relation.fetchall()]
    print(f"{title}:\n")
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, ["-" * width for width in widths], *cells):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:%H:%M:%S}" if hasattr(value, "hour") else str(value)


def _need_duckdb() -> None:
    try:
        import duckdb  # noqa: F401
    except ImportError as missing:
        raise FlowError(
            "The demo checks its output with DuckDB, which is not installed. "
            "It comes with the extra 'cli': pip install 'penstock[cli]', or pip install '.[cli]' in a checkout."
        ) from missing
