"""Descriptions of sinks; hosts write to them once per epoch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from penstock.core.errors import ConfigError
from penstock.flow.graph import Node, OperatorNode, guards_of, operators_of

Emits = Literal["results", "late"]
"""Which outlet of a stream a sink takes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink:
    """One sink: the stream it takes, and which outlet of it."""

    node: Node
    emits: Emits = "results"

    @property
    def delivery(self) -> str:
        """What happens when an epoch is repeated after a failure."""
        return "at least once"

    @property
    def folder(self) -> str | None:
        """The folder that it writes to, a path or URI, if it writes to one."""
        return None


def operators_needed(sinks: Sequence[Sink]) -> list[OperatorNode]:
    """The operators whose results some sink takes, inputs first.

    An operator of which only late rows are taken need not run, except for the guards that find them.
    """
    needed = operators_of(*(sink.node for sink in sinks if sink.emits == "results"))
    guards = guards_of(*(sink.node for sink in sinks if sink.emits == "late"))
    return [*(guard for guard in guards if guard not in needed), *needed]


_EPOCH = re.compile(r"epoch=\d+")


@dataclass(frozen=True, eq=False, kw_only=True)
class ParquetSink(Sink):
    """A folder ``epoch=n`` of Parquet files per epoch, staged and renamed: exactly once."""

    path: str

    @property
    def delivery(self) -> str:
        """A rerun replaces the epoch's folder."""
        return "exactly once"

    @property
    def folder(self) -> str:
        """Where the folders of epochs are."""
        return self.path

    def refuse_results(self, names: Iterable[str]) -> None:
        """Refuse a folder with results if the flow is new: it would replace only some of them."""
        found = next(filter(_EPOCH.fullmatch, names), None)
        if found is not None:
            raise ConfigError(
                f"to_parquet({self.path!r}): the folder already has results of another flow, such as {found}. This "
                f"flow starts at epoch 0: it would replace some of them and leave the others. Write to another folder, "
                f"or delete this one first."
            )

    def __str__(self) -> str:
        return f"parquet {self.path}"


@dataclass(frozen=True, eq=False, kw_only=True)
class FormatSink(Sink):
    """Any of Spark's batch writers, in append mode."""

    name: str
    options: dict[str, str]
    partition_by: tuple[str, ...] = ()
    """The partition columns, whose values become folders."""

    @property
    def folder(self) -> str | None:
        """The writer's path, if it has one."""
        return next((value for name, value in self.options.items() if name.lower() == "path"), None)

    def __str__(self) -> str:
        by = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"format {self.name}{by}"


@dataclass(frozen=True, eq=False, kw_only=True)
class MemorySink(Sink):
    """Tables held by the program that runs the flow, one per epoch."""

    epochs: dict[int, pa.Table] = field(default_factory=dict)

    @property
    def delivery(self) -> str:
        """A rerun replaces the epoch's table."""
        return "exactly once"

    def __str__(self) -> str:
        return "memory"


@dataclass(frozen=True, eq=False, kw_only=True)
class ConsoleSink(Sink):
    """The first rows of each epoch, printed."""

    rows: int

    def __str__(self) -> str:
        return "console"


@dataclass(frozen=True, eq=False, kw_only=True)
class ForeachSink(Sink):
    """A user's function, called with the epoch's rows and its number."""

    function: Callable[[Any, int], None]

    @property
    def delivery(self) -> str:
        """The function gets the epoch's number; a repeated epoch has the same rows and number."""
        return "once per epoch number"

    def __str__(self) -> str:
        return f"foreach_epoch {getattr(self.function, '__name__', 'function')}"
