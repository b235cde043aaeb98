"""What the jobs of kill tests share: a quick session, places that are drawn, and a flow that tells of its epochs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from random import Random

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import penstock as pk
from penstock.spark.place import Place, Placement
from tests.spark.jvm import INTERPRETED, QUICK_JVM

_SETTINGS = INTERPRETED | {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}


def session(master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session that starts soon."""
    builder = SparkSession.builder.master(master).appName("penstock-job")
    return builder.config(map=_SETTINGS | dict(settings or {})).getOrCreate()


def draw_places(seed: int, places: Sequence[Place] = ("driver", "pieces", "tasks", "spark")) -> None:
    """Let each epoch run in one of some places, drawn."""
    draw = Random(seed)
    Placement.choose = lambda self, size: (self.at_most(draw.choice(places)), "drawn")  # type: ignore[method-assign]


def run_to_the_end(flow: pk.Flow, trigger: str | None = None) -> None:
    """Print ``ready`` when epochs begin, ``epoch n`` after each, and ``done`` at the end; stop the session.

    With a `trigger` there is no end: epochs go on, silent ones after those with rows.
    """
    log = logging.getLogger("penstock")
    log.setLevel("INFO")
    log.addHandler(_Tell())
    print("ready", flush=True)
    if trigger is not None:
        flow.start(trigger).await_end()
    flow.run()
    print("done", flush=True)
    flow.spark.stop()


class _Tell(logging.Handler):
    """Prints which epochs are committed."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage().partition(":")[0], flush=True)
