"""A Delta table as a source on Spark: Spark follows its commits, and each epoch is a range of its versions.

An epoch has all versions after those of earlier epochs, up to the latest commit that Spark gave it. So every version is
read once, in order, whatever the order in which Spark found the commits, and Spark's log says which versions a repeated
epoch has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from penstock.core.errors import SourceError
from penstock.core.files import Files, InputFile
from penstock.spark.file_stream import FileStream
from penstock.storage.delta import CommitLog, commits_from, first_version, inputs_of, version_of
from penstock.storage.tables.delta import LOG


class DeltaStream(FileStream):
    """A Delta table, as Spark follows it."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        super().__init__(spark, files)
        self._reached: tuple[int, int] | None = None
        """The last epoch whose files were asked for, and the version up to which it goes."""

    def inputs(self, epoch: int, uris: Sequence[str], given: Callable[[], Sequence[str]]) -> list[InputFile]:
        """What an epoch reads, by the commits that Spark gave it, and those that it gave the epochs before."""
        if self._reached is not None and self._reached[0] == epoch - 1:
            reached: int | None = self._reached[1]
        else:
            reached = max(map(version_of, given()), default=None)
        if not uris:
            files, last = [], reached
        else:
            newest = max(map(version_of, uris))
            files, last = inputs_of(self.files, newest, reached), max(newest, -1 if reached is None else reached)
        self._reached = None if last is None else (epoch, last)
        return files

    @property
    def _folder(self) -> str:
        return f"{self.files.path.rstrip('/')}/{LOG}"

    def _which(self, given: Callable[[], Sequence[str]]) -> tuple[str, str]:
        return "pathGlobFilter", commits_from(self._first_commit(given()))

    def _first_commit(self, given: Sequence[str]) -> int:
        """The version from which Spark looks for commits: what is before it was read, or is in the first snapshot."""
        if not given:
            return first_version(self.files)
        reached, latest = max(map(version_of, given)), CommitLog(self.files.path).latest
        if latest < reached:
            raise SourceError(
                f"The latest version of Delta table {self.files.path} is {latest}, but the flow has read version "
                f"{reached}: it is another table. Restore the old one, or start with a new checkpoint folder."
            )
        return reached
