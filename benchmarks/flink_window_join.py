"""The window-join benchmark's interval join in Flink SQL; runs in the peers' environment (``make bench-peers``).

Reads ``<directory>/orders/*.csv`` and ``<directory>/payments/*.csv`` (key, milliseconds, value; no header) and prints
one line of JSON: ``{"rows_out": …, "seconds": …}``. Each file is one source task's input, in arrival order: a task that
read two would see time jump back and drop rows as late. The job runs twice in one JVM. The first run, untimed, counts
the output per ten minutes of event time and warms the JVM; the second hands every row to the blackhole sink, and
``seconds`` is its run time as Flink reports it: the start of the mini cluster, which each run does anew, is not in it.
"""

import argparse
import json
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = """
CREATE TABLE {name} (
  order_id BIGINT, ts_ms BIGINT, {value} DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
JOINED = """
CREATE TEMPORARY VIEW joined AS
SELECT o.order_id, o.ts, o.amount, CAST(p.ts AS TIMESTAMP_LTZ(3)) AS paid_at, p.paid
FROM orders o JOIN payments p
ON o.order_id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL '10' MINUTE AND o.ts + INTERVAL '10' MINUTE
"""
BLACKHOLE = """
CREATE TABLE sink (order_id BIGINT, ts TIMESTAMP_LTZ(3), amount DOUBLE, paid_at TIMESTAMP_LTZ(3), paid DOUBLE)
WITH ('connector' = 'blackhole')
"""
COUNTS = """
SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE joined, DESCRIPTOR(ts), INTERVAL '10' MINUTE)) GROUP BY window_start, window_end
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--backend", choices=["rocksdb", "hashmap"], required=True)
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument(
        "--managed-memory", required=True, help="what the RocksDB backend may hold, as Flink writes sizes"
    )
    args = parser.parse_args()
    tables = environment(args.backend, args.parallelism, args.managed_memory)
    tables.execute_sql(SOURCE.format(name="orders", value="amount", path=args.directory / "orders"))
    tables.execute_sql(SOURCE.format(name="payments", value="paid", path=args.directory / "payments"))
    tables.execute_sql(JOINED)
    tables.execute_sql(BLACKHOLE)
    print(json.dumps({"rows_out": rows_out(tables), "seconds": job_seconds(tables)}))


def environment(backend: str, parallelism: int, managed_memory: str) -> TableEnvironment:
    conf = Configuration()
    conf.set_string("state.backend.type", backend)
    conf.set_string("taskmanager.memory.managed.size", managed_memory)
    conf.set_string("taskmanager.numberOfTaskSlots", str(parallelism))
    conf.set_string("parallelism.default", str(parallelism))
    conf.set_string("pipeline.object-reuse", "true")
    conf.set_string("table.local-time-zone", "UTC")
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    )


def rows_out(tables: TableEnvironment) -> int:
    with tables.execute_sql(COUNTS).collect() as counts:
        return sum(row[0] for row in counts)


def job_seconds(tables: TableEnvironment) -> float:
    job = tables.execute_sql("INSERT INTO sink SELECT * FROM joined").get_job_client()
    return float(job.get_job_execution_result().result().get_net_runtime()) / 1000


if __name__ == "__main__":
    main()
