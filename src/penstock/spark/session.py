"""What penstock needs of a Spark session besides DataFrames: temporary settings, and the file system of a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


@contextmanager
def settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session, for a while."""
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


class Meant(NamedTuple):
    """The settings of a session that decide what expressions mean there."""

    zone: str = "UTC"
    ansi: bool = True

    @classmethod
    def of(cls, session: SparkSession) -> Meant:
        """Those of a session."""
        ansi = str(session.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        return cls(str(session.conf.get("spark.sql.session.timeZone")), ansi)


def file_system(session: SparkSession, path: str) -> Any:
    """Hadoop's file system of a path, as Spark itself would find it."""
    place = session._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(session._jsc.hadoopConfiguration())


def exists(session: SparkSession, path: str) -> bool:
    """Whether there is a file or folder."""
    return bool(file_system(session, path).exists(session._jvm.org.apache.hadoop.fs.Path(path)))


def names_in(session: SparkSession, path: str) -> list[str]:
    """The names in a folder, on whatever file system it is; none if it is not there."""
    if not exists(session, path):
        return []
    files = file_system(session, path).listStatus(session._jvm.org.apache.hadoop.fs.Path(path))
    return [file.getPath().getName() for file in files]


def create_file(session: SparkSession, path: str, content: bytes) -> bool:
    """Make a file, unless there is one already; whether it was made. As atomic as Hadoop's file system of the path."""
    place = session._jvm.org.apache.hadoop.fs.Path(path)
    try:
        sink = file_system(session, path).create(place, False)
        sink.write(content)
        sink.close()  # Object stores compare only now.
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName().endswith("FileAlreadyExistsException"):
            return False
        raise
    return True
