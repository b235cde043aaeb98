"""The Python of Spark's workers, checked when a flow starts: Spark itself would fail only in the first epoch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.core.errors import FlowError
from penstock.flow.failures import in_a_line
from penstock.spark.failures import cause_of

_PROBE = "import sys, pyarrow, penstock; print(*sys.version_info[:2], sep='.')"
_PATIENCE = 120
"""Seconds for the probe of a machine that has its packages on a slow disk."""

_FOUND_GOOD: set[tuple[str, str]] = set()
"""Applications, and the programs that their workers ran penstock with."""


def use_this_python(spark: SparkSession) -> None:
    """Let workers run the driver's Python unless PYSPARK_PYTHON says otherwise: the system's may not have penstock."""
    if "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable


def check_workers(spark: SparkSession) -> None:
    """Raise unless the workers' Python is of this version and has penstock and pyarrow.

    Asked once per program and Spark application: on this machine directly, on a cluster by a job of one task.
    """
    context = spark.sparkContext
    program = context.pythonExec
    if not context.master.startswith("local"):
        _check_cluster(context, program)
    elif _path(program) != sys.executable:
        _check_program(program)


@lru_cache(maxsize=8)
def _check_program(program: str) -> None:
    try:
        said = subprocess.run([program, "-c", _PROBE], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.SubprocessError) as failure:
        raise _wrong(program, f"does not run ({in_a_line(str(failure))})") from failure
    if said.returncode:
        raise _wrong(program, f"does not import penstock ({in_a_line(said.stderr.strip().rpartition(chr(10))[2])})")
    if said.stdout.strip() != _version():
        raise _wrong(program, f"is Python {said.stdout.strip()}, but the driver's is {_version()}")


def _check_cluster(context: SparkContext, program: str) -> None:
    if (asked := (context.applicationId, program)) in _FOUND_GOOD:
        return
    try:
        context.parallelize([0], 1).map(_import_all).collect()
    except Exception as failure:
        raise _wrong(program, f"cannot run penstock on the workers ({cause_of(failure)})") from failure
    _FOUND_GOOD.add(asked)


def _import_all(_: Any) -> None:
    """Run by a worker, which imports this module, and so penstock, to find it."""
    import pyarrow  # noqa: F401


def _wrong(program: str, why: str) -> FlowError:
    return FlowError(
        f"The Python of Spark's workers, {program}, {why}. Every operator runs there. Set PYSPARK_PYTHON to a Python "
        f"{_version()} with penstock before Spark starts, or leave it unset to use the driver's, {sys.executable}."
    )


def _version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _path(program: str) -> str:
    return shutil.which(program) or program
