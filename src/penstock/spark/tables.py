"""Master tables on Spark: any batch DataFrame, which a job writes into penstock's own pages at the first start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.core.errors import ConfigError, FlowError
from penstock.core.master import MasterTable, TableSource
from penstock.flow.graph import LookupNode
from penstock.spark.types import arrow_columns
from penstock.storage.tables.reading import settled


@dataclass(frozen=True)
class FrameTable:
    """A DataFrame that rows are to be looked up in."""

    frame: DataFrame
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.frame.isStreaming:
            raise ConfigError("The table is a stream. Join two streams with .join(…, within=…).")
        for name in self.keys:
            if name not in self.frame.columns:
                raise ConfigError.unknown_column("on", name, self.frame.columns)

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        return arrow_columns(self.frame.schema)

    def open(self, version: str | None = None) -> MasterTable:
        """Not before it is in pages."""
        raise FlowError("A DataFrame is looked up in once it is in pages: start the flow first.")

    def __str__(self) -> str:
        return "a DataFrame, in pages"


def settled_on_spark(node: LookupNode, folder: str) -> TableSource:
    """The table to read from now on: a DataFrame in pages under `folder`, written there if it is not yet."""
    table: Any = node.config.table
    return settled(table, node.freshness, folder)
