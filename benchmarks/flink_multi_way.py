"""The multi-way benchmark's joins in Flink SQL; runs in the peers' environment (``make bench-peers``).

Reads ``<directory>/<stream>/*.csv`` (no header; ``columns.json`` there says which columns) and prints one line of JSON:
``{"rows_out": …, "seconds": …}``. The first run is over ``--few``, a smaller folder of the same kind: it warms the JVM,
and ``rows_out`` is how many rows it wrote. The second hands every row to the blackhole sink, and ``seconds`` is its run
time as Flink reports it. Joins are by the plan that the other engines have.

With ``--multi-join`` Flink uses its operator for several inputs, here for two at a time, because no key is common to
all streams. Where its plan has no such operator nothing runs: ``{"missing": why}``.
"""

import argparse
import json
import tempfile
from pathlib import Path

from pyflink.table import TableDescriptor, TableEnvironment

from flink_window_join import environment

SOURCE = "CREATE TABLE {name}{of} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"
"""``{of}`` tells the tables of few rows from those of all."""
JOINS = {
    "3way": """SELECT * FROM li{of} JOIN o{of} ON li_orderkey = o_orderkey JOIN s{of} ON li_suppkey = s_suppkey""",
    "4way": """SELECT * FROM (SELECT * FROM li{of} JOIN s{of} ON li_suppkey = s_suppkey)
        JOIN (SELECT * FROM o{of} JOIN c{of} ON o_custkey = c_custkey) ON li_orderkey = o_orderkey""",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--few", type=Path, required=True)
    parser.add_argument("--join", choices=JOINS, required=True)
    parser.add_argument("--orders", required=True, help="the folder of the orders: all, or few of them")
    parser.add_argument("--multi-join", action="store_true")
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument("--managed-memory", required=True, help="what RocksDB may hold, as Flink writes sizes")
    args = parser.parse_args()
    tables = environment("rocksdb", args.parallelism, args.managed_memory)
    for of, directory in (("", args.directory), ("_few", args.few)):
        columns = json.loads((directory / "columns.json").read_text())
        for name, folder in {"li": "li", "o": args.orders, "s": "s", "c": "c"}.items():
            source = SOURCE.format(name=name, of=of, columns=columns[folder], path=directory / folder)
            tables.execute_sql(source)
    query = JOINS[args.join]
    if args.multi_join:
        tables.get_config().set("table.optimizer.multi-join.enabled", "true")
        if "MultiJoin" not in tables.explain_sql(query.format(of="")):
            print(json.dumps({"missing": "this Flink has no plan with a MultiJoin"}))
            return
    print(json.dumps({"rows_out": rows_out(tables, query), "seconds": job_seconds(tables, query)}))


def rows_out(tables: TableEnvironment, query: str) -> int:
    """How many rows the join of few rows writes."""
    with tempfile.TemporaryDirectory() as folder:
        sink = TableDescriptor.for_connector("filesystem").format("csv").option("path", folder).build()
        tables.sql_query(query.format(of="_few")).execute_insert(sink).wait()
        return sum(file.read_bytes().count(b"\n") for file in Path(folder).rglob("*") if file.is_file())


def job_seconds(tables: TableEnvironment, query: str) -> float:
    sink = TableDescriptor.for_connector("blackhole").build()
    job = tables.sql_query(query.format(of="")).execute_insert(sink).get_job_client()
    return float(job.get_job_execution_result().result().get_net_runtime()) / 1000


if __name__ == "__main__":
    main()
