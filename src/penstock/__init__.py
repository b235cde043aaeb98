"""penstock: joins and window queries over data streams within a memory budget, on Spark through PySpark.

>>> import pyarrow as pa
>>> import penstock as pk
>>> flow = pk.LocalFlow(memory="64 MB")
>>> orders = flow.source(pa.table({"id": [1, 2], "t": [0, 5]}), time="t", name="orders")
>>> paid = flow.source(pa.table({"id": [1], "t": [3]}), time="t", name="paid")
>>> rows = orders.join(paid, on="id", within=pk.band(before=0, after=10)).to_memory()
>>> _ = flow.run()
>>> rows.table().to_pylist()
[{'id': 1, 't': 0, 't_right': 3}]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.errors import (
    BandError,
    BudgetError,
    CheckpointError,
    ConfigError,
    DurationError,
    FlowError,
    LeaseError,
    PenstockError,
    PlanError,
    PunctuationError,
    SinkError,
    SourceError,
    SqlError,
    StateError,
    TableError,
    TimeError,
    WindowError,
)
from penstock.core.progress import blocks, bounded_delay, bounded_tuples, ordered, punctuated, timer
from penstock.core.windows import landmark, rows, session, slide_by_tuple, sliding
from penstock.core.within import always, band, tumbling, windows
from penstock.flow.materialize import late
from penstock.local.flow import LocalFlow
from penstock.operators.aggregate import Buffering
from penstock.operators.aggregate.config import early
from penstock.operators.aggregate.functions import UserDefined
from penstock.operators.aggregate.spellings import (
    approx_count_distinct,
    approx_quantile,
    collect_list,
    collect_set,
    count,
    count_distinct,
    first,
    heavy_hitters,
    last,
    max,
    mean,
    median,
    min,
    mode,
    quantile,
    stddev,
    sum,
    variance,
)
from penstock.operators.lookup.shedding import Shedding
from penstock.operators.window_join import AhEwj, Ewj, Rpwj, Rrpj
from penstock.operators.window_join.near import near
from penstock.operators.window_join.spatial import contains, dwithin, intersects
from penstock.storage.tables import PageTable, ParquetTable, SqlTable

if TYPE_CHECKING:
    from penstock.spark.flow import SparkFlow as Flow
    from penstock.spark.tables import write_page_table

__version__ = "0.1.0"
__all__ = [
    "AhEwj",
    "BandError",
    "BudgetError",
    "Buffering",
    "CheckpointError",
    "ConfigError",
    "DurationError",
    "Ewj",
    "Flow",
    "FlowError",
    "LeaseError",
    "LocalFlow",
    "PageTable",
    "ParquetTable",
    "PenstockError",
    "PlanError",
    "PunctuationError",
    "Rpwj",
    "Rrpj",
    "Shedding",
    "SinkError",
    "SourceError",
    "SqlError",
    "SqlTable",
    "StateError",
    "TableError",
    "TimeError",
    "UserDefined",
    "WindowError",
    "always",
    "approx_count_distinct",
    "approx_quantile",
    "band",
    "blocks",
    "bounded_delay",
    "bounded_tuples",
    "collect_list",
    "collect_set",
    "contains",
    "count",
    "count_distinct",
    "dwithin",
    "early",
    "first",
    "heavy_hitters",
    "intersects",
    "landmark",
    "last",
    "late",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "near",
    "ordered",
    "punctuated",
    "quantile",
    "rows",
    "session",
    "slide_by_tuple",
    "sliding",
    "stddev",
    "sum",
    "timer",
    "tumbling",
    "variance",
    "windows",
    "write_page_table",
]


def __dir__() -> list[str]:
    """The public names, those that need Spark among them, and nothing else."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """What needs Spark is loaded when first asked for, so that local flows need no Spark."""
    if name == "Flow":
        from penstock.spark.flow import SparkFlow

        return SparkFlow
    if name == "write_page_table":
        from penstock.spark.tables import write_page_table

        return write_page_table
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
