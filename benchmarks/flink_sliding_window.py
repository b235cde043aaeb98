"""The sliding-window benchmark's query in Flink SQL; runs in the peers' environment (``make bench-peers``).

Reads ``<directory>/*.csv`` (key, milliseconds, value; no header; one file per source task, in arrival order) and prints
one line of JSON: ``{"rows_out": …, "seconds": …}``. The source never ends, as a stream does not: at the end of a
bounded one Flink would close every window there is, however few rows it has. Windows are counted as they close, and
once all that the watermark completes are there the job is stopped; ``seconds`` runs from the job's submission until
then, or until ``--patience`` is over. The job runs twice in one JVM, and the second run counts.
"""

import argparse
import json
import time
from pathlib import Path
from threading import Timer

from py4j.protocol import Py4JJavaError
from pyflink.table import TableEnvironment

from flink_window_join import environment

SOURCE = """
CREATE TABLE arriving (
  key BIGINT, ts_ms BIGINT, `value` DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'source.monitor-interval' = '10 min')
"""
WINDOWS = """
CREATE TEMPORARY VIEW windows AS
SELECT window_start, window_end, key, {asked}
FROM TABLE(HOP(TABLE arriving, DESCRIPTOR(ts), INTERVAL '{slide}' SECOND(5), INTERVAL '{range}' SECOND(5)))
GROUP BY window_start, window_end, key
"""
ASKED = {
    "count-mean": ("COUNT(*) AS n, AVG(`value`) AS mean", "SUM(n), SUM(mean)"),
    "median": ("PERCENTILE(`value`, 0.5) AS mid", "SUM(mid)"),
}
COUNTS = "SELECT COUNT(*), {used} FROM windows GROUP BY window_start, window_end"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--range", type=int, required=True, help="seconds")
    parser.add_argument("--slide", type=int, required=True, help="seconds")
    parser.add_argument("--delay", type=int, required=True, help="seconds")
    parser.add_argument("--ask", choices=list(ASKED), required=True)
    parser.add_argument("--rows", type=int, required=True, help="after so many results the job is done")
    parser.add_argument("--patience", type=float, required=True, help="after so many seconds it is stopped")
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument("--managed-memory", required=True, help="what RocksDB may hold, as Flink writes sizes")
    args = parser.parse_args()
    asked, used = ASKED[args.ask]
    tables = environment("rocksdb", args.parallelism, args.managed_memory)
    tables.execute_sql(SOURCE.format(path=args.directory, delay=args.delay))
    tables.execute_sql(WINDOWS.format(asked=asked, slide=args.slide, range=args.range))
    run(tables, used, args.rows, args.patience)
    rows_out, seconds = run(tables, used, args.rows, args.patience)
    print(json.dumps({"rows_out": rows_out, "seconds": seconds}))


def run(tables: TableEnvironment, used: str, rows: int, patience: float) -> tuple[int, float]:
    """How many results came out, and in what time."""
    result = tables.execute_sql(COUNTS.format(used=used))
    job, begun, seen = result.get_job_client(), time.perf_counter(), 0
    watch = Timer(patience, job.cancel)
    watch.start()
    try:
        with result.collect() as counts:
            for row in counts:
                seen += row[0]
                if seen >= rows:
                    break
            seconds = time.perf_counter() - begun
    except Py4JJavaError:
        seconds = time.perf_counter() - begun
        if seconds < patience:
            raise
    watch.cancel()
    return seen, seconds


if __name__ == "__main__":
    main()
