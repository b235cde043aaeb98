"""Options of the JVMs that tests start, and an archive of the classes of Spark that they load.

    python -m tests.spark.jvm

makes the archive where there is none. It halves what the start of a JVM takes, and `make test` starts some forty.
Without it tests are slower, and nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for minutes: what compiles code for hours of work would take a core of its own."""

if ARCHIVE.exists():
    # An archive of another Java is not used, and nothing is said about it.
    QUICK_JVM += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings that let Spark run queries without compiling them: most queries of tests run once, over a few rows."""


def archive() -> None:
    """Run a small flow with all kinds of sources, and keep the classes that it loaded."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import penstock as pk

    made = ARCHIVE.with_suffix(".new")
    made.unlink(missing_ok=True)
    options = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "OFF").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        rows = pa.table({"k": [1, 2, 2], "t": [1, 2, 3]})
        Path(folder, "rows").mkdir()
        pq.write_table(rows, f"{folder}/rows/0.parquet")
        for place in ("files", "frames"):
            flow = pk.Flow(spark, checkpoint=f"{folder}/{place}", memory="64 MB")
            if place == "files":
                source = flow.parquet(f"{folder}/rows", time="t", progress=pk.ordered())
            else:
                stream = spark.readStream.schema("k long, t long").parquet(f"{folder}/rows")
                source = flow.source(stream, time="t", progress=pk.ordered(), scan="spark")
            source.where("k > 0").to_parquet(f"{folder}/out-{place}")
            source.lookup(spark.createDataFrame(pa.table({"k": [2]})), on="k").to_memory()
            flow.run()
        spark.createDataFrame(rows).groupBy("k").count().mapInArrow(lambda it: it, "k long, count long").toArrow()
    spark.stop()
    SparkContext._gateway.shutdown()  # type: ignore[union-attr]
    SparkContext._gateway.proc.stdin.close()  # type: ignore[union-attr]
    SparkContext._gateway.proc.wait()  # type: ignore[union-attr]
    made.rename(ARCHIVE)


if __name__ == "__main__" and not ARCHIVE.exists():
    archive()
