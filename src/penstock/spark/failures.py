"""Why an epoch failed on Spark, in one short error: the sink or source, and the cause below Spark's wrapping."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from penstock.core import errors
from penstock.core.errors import FlowError, PenstockError, SinkError, SourceError
from penstock.flow.failures import in_a_line, is_full, named
from penstock.flow.graph import SourceNode
from penstock.spark.inputs import folders_read
from penstock.spark.session import exists

_AGAIN = "The epoch was not committed. Remove the cause and start the flow again: the epoch is repeated."
_REPAIR = (
    "The epoch was not committed. Repair the file in place, or put an empty one there to go on without its rows, and "
    "start the flow again: the epoch is repeated."
)
_NO_ROOM = "The disk is full. Free some space and start the flow again: the epoch is repeated."

_JVM_GONE = "its JVM does not answer. It was killed or crashed; its log may say why, often for want of memory"
_WORKER_GONE = "a Python worker was killed or crashed; the system's log may say why, often for want of memory"

_STATE = "the state in the checkpoint"

_DEEPEST = 30
"""Causes to follow at most: Java allows a chain that ends in itself."""

_TRACEBACK = "Traceback (most recent call last):"
_OURS = re.compile(r"^penstock\.core\.errors\.(\w+): (.+)", re.MULTILINE)
_PAGES = re.compile(r'File ".*penstock.storage')
_READING = re.compile(r"FAILED_READ_FILE|MALFORMED_RECORD_IN_PARSING|PYTHON_(STREAMING_)?DATA_SOURCE|FileScanRDD")
_FILE = re.compile(r"(?:while reading file|Path:|File:) *(\S+)")
_PIPE = ("Broken pipe", "Connection reset")
_WORKER_EXITED = "Python worker exited unexpectedly"
_CODE = re.compile(r"\[[A-Z0-9_.]+\]")
"""What Spark's own messages begin with."""
_DATA = re.compile(r"SQLSTATE: (22|P0001)")
"""Errors in the values of rows, and those that the user's own expressions raise."""


@dataclass(frozen=True, slots=True)
class _Throwable:
    """One error of a chain: the name of its class, and its message."""

    kind: str
    message: str

    def __str__(self) -> str:
        """A line for people: the end of a Python worker's traceback, if the message has one, or what Java says."""
        if _TRACEBACK in self.message:
            told = [line for line in self.message.partition(_TRACEBACK)[2].splitlines() if line.strip()]
            # The line after the indented ones; what follows is Spark's.
            ends = [line for before, line in pairwise(told) if before[0].isspace() and not line[0].isspace()]
            return in_a_line(ends[-1] if ends else self.message)
        said = in_a_line(self.message)
        return said if _CODE.match(said) else f"{self.kind}: {said}"


def in_sink(failure: BaseException, epoch: int, sink: object, sources: Sequence[SourceNode]) -> PenstockError:
    """An error that came up while a sink took an epoch's rows, which Spark reads and computes only then."""
    told = _told(failure, epoch, sources, f"sink {sink}")
    if told is not None:
        return told
    chain = _chain(failure)
    if any(_DATA.search(part.message) or part.kind == "PythonException" for part in chain):
        # The user's own expressions and functions, in a source's DataFrame or in select() and where().
        return FlowError.in_epoch(epoch, f"the rows of {_names(sources)} for sink {sink}", _cause(chain), _AGAIN)
    return SinkError.in_epoch(epoch, f"sink {sink}", _cause(chain), _AGAIN)


def in_function(failure: BaseException, epoch: int, sink: object) -> SinkError:
    """An error that the user's function for an epoch's rows raised."""
    chain = _chain(failure)
    cause = named(failure) if _java(failure) is None else _cause(chain)
    return SinkError.in_epoch(epoch, f"sink {sink}", cause, _NO_ROOM if is_full(cause) else _AGAIN)


def in_epoch(failure: BaseException, epoch: int, sources: Sequence[SourceNode]) -> PenstockError:
    """An error that came up anywhere else in an epoch, or in Spark before it gave the epoch to penstock."""
    told = _told(failure, epoch, sources, _STATE) or _without_folder(epoch, sources)
    return told or FlowError.in_epoch(epoch, "Spark", _cause(_chain(failure)), _AGAIN)


def cause_of(failure: BaseException) -> str:
    """The cause of any error of Spark's, in a line."""
    return _cause(_chain(failure))


def _told(failure: BaseException, epoch: int, sources: Sequence[SourceNode], where: str) -> PenstockError | None:
    """What any part of an epoch may fail of: what penstock says itself, sources, a full disk."""
    if isinstance(failure, PenstockError):
        return failure
    chain = _chain(failure)
    text = "\n".join(part.message for part in chain)
    for family, message in _OURS.findall(text):
        kind = getattr(errors, family, None)
        if isinstance(kind, type) and issubclass(kind, PenstockError):
            return kind(message.strip())
    if _WORKER_EXITED in text:
        return FlowError.in_epoch(epoch, "Spark", _WORKER_GONE, _AGAIN)
    if _is_lost_jvm(failure):
        return FlowError.in_epoch(epoch, "Spark", _JVM_GONE, _AGAIN)
    if is_full(text):
        in_state = _PAGES.search(text) or _PAGES.search("".join(traceback.format_tb(failure.__traceback__)))
        return FlowError.in_epoch(epoch, _STATE if in_state else where, _cause(chain), _NO_ROOM)
    if _READING.search(text):
        remedy = _AGAIN if _file(text) is None else _REPAIR
        return SourceError.in_epoch(epoch, _reader(text, sources), _with_file(chain, text), remedy)
    return None


def _without_folder(epoch: int, sources: Sequence[SourceNode]) -> SourceError | None:
    """A folder that a source streams files from is gone, which Spark tells by whatever it stumbles over first."""
    try:
        for node in sources:
            for folder in folders_read(node.data):
                if not exists(node.data.sparkSession, folder):
                    return SourceError.no_folder(epoch, node.name, folder)
    except Exception:  # Spark, or the store, does not answer: then that is what the epoch failed of
        return None
    return None


def _chain(failure: BaseException) -> list[_Throwable]:
    """An error and what caused it, outermost first."""
    java = _java(failure)
    if java is None:
        return [_Throwable(type(failure).__name__, str(failure))]
    chain: list[_Throwable] = []
    while java is not None and len(chain) < _DEEPEST:
        message = java.getMessage() or ""
        if message in _PIPE and any("api.python" in frame.getClassName() for frame in java.getStackTrace()):
            message = _WORKER_EXITED
        chain.append(_Throwable(java.getClass().getSimpleName(), message))
        java = java.getCause()
    return chain


def _is_lost_jvm(failure: BaseException) -> bool:
    """Whether a call of the JVM found nobody there."""
    if not isinstance(failure, ConnectionError | Py4JNetworkError):
        return False
    calls = traceback.extract_tb(failure.__traceback__)
    return isinstance(failure, Py4JNetworkError) or any("py4j" in call.filename for call in calls)


def _java(failure: BaseException) -> Any:
    """The Java side of an error; PySpark keeps it under one name or the other."""
    return getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)


def _cause(chain: Sequence[_Throwable]) -> str:
    """The innermost error that says something to a user; that of a Python worker, if there is one."""
    workers = [part for part in chain if _TRACEBACK in part.message]
    said = [part for part in chain if part.message.strip() and part.kind != "ClassNotFoundException"]
    return str((workers or said or chain)[-1])


def _with_file(chain: Sequence[_Throwable], text: str) -> str:
    cause, path = _cause(chain), _file(text)
    return cause if path is None or path.name in cause else f"{path}: {cause}"


def _file(text: str) -> PurePosixPath | None:
    """The file that could not be read, if the text names it, without a scheme."""
    found = _FILE.search(text)
    return PurePosixPath(re.sub(r"^\w+:/*", "/", found[1].rstrip("."))) if found else None


def _reader(text: str, sources: Sequence[SourceNode]) -> str:
    """The source that reads the file which the text names; all of them if that is not known."""
    path = _file(text)
    if path is not None and len(sources) > 1:
        folder = str(path.parent)
        frames = {node: getattr(node.data, "given", node.data) for node in sources}
        ours = {node: data for node, data in frames.items() if isinstance(data, DataFrame)}
        sources = [node for node, data in ours.items() if folder in data._jdf.queryExecution().toString()] or sources
    return _names(sources)


def _names(sources: Sequence[SourceNode]) -> str:
    names = ", ".join(repr(node.name) for node in sources)
    return f"source {names}" if len(sources) == 1 else f"one of the sources {names}"
