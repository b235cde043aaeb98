"""Checks that all input files of an epoch exist: Spark silently continues without missing ones."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from penstock.core.errors import SourceError
from penstock.flow.graph import SourceNode
from penstock.spark.arrow_frames import ArrowFrame
from penstock.spark.file_stream import FileStream
from penstock.spark.parquet_frames import PlacedFrame
from penstock.spark.segments import SegmentStream
from penstock.spark.session import exists
from penstock.spark.types import each_of
from penstock.storage.files import is_within, local_path
from penstock.storage.spark_log import SparkLog

_AT_ONCE = 16
"""Files of a remote store that are asked for at a time."""

_IGNORE = "spark.sql.files.ignoreMissingFiles"

_PATTERN = re.compile(r"/[^/]*[*?{\[].*")
"""The part of a path that may match several."""


def check_inputs(spark: SparkSession, sources: Sequence[SourceNode], log: SparkLog, epoch: int, again: bool) -> None:
    """Raise if a file that `epoch` needs is gone, unless the session or the source asks to ignore that.

    Spark lists the files of an epoch before penstock sees it, so what is there now was there then. Files on a remote
    store cost a request each: they are looked for only if the epoch is run `again`, after there was time to delete one.
    """
    if not (again or log.local):
        return
    paths = {uri: local_path(uri) for uri in log.files(epoch)}
    gone = [path for path in paths.values() if path is not None and not os.path.isfile(path)]
    if again:
        remote = [unquote(uri) for uri, path in paths.items() if path is None]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            there = pool.map(lambda uri: exists(spark, uri), remote)
            gone += [uri for uri, found in zip(remote, there, strict=True) if not found]
    if gone:
        careless = [folder for node in sources for folder, ignores in folders_read(node.data).items() if ignores]
        gone = [path for path in gone if not any(is_within(path, folder) for folder in careless)]
    if gone and spark.conf.get(_IGNORE, "false") != "true":
        raise SourceError.missing(epoch, gone)


def folders_read(data: DataFrame | FileStream | SegmentStream | PlacedFrame) -> dict[str, bool]:
    """The folders from which a source streams files, and whether it ignores files that are gone."""
    if isinstance(data, SegmentStream | PlacedFrame):
        return folders_read(data.given)
    if isinstance(data, ArrowFrame):
        return folders_read(data.stream)
    if isinstance(data, FileStream):
        # The commits of a Delta table may be cleaned up; whoever reads them tells if they are still needed.
        return {data.files.path: data.files.format == "delta"}
    found = {}
    for relation in each_of(data._jdf.queryExecution().analyzed().collectLeaves()):
        if relation.getClass().getSimpleName() == "StreamingRelation":
            options = relation.dataSource().options()
            given = {name: options.get(name) for name in ("path", "ignoreMissingFiles")}
            told = {name: option.get() for name, option in given.items() if option.isDefined()}
            if "path" in told:
                found[_PATTERN.sub("", told["path"])] = told.get("ignoreMissingFiles") == "true"
    return found
