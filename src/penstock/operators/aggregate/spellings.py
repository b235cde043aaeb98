"""The aggregates that users write: ``count()``, ``sum("amount")``, ``quantile("latency", 0.99)`` …

Every public function of this module is an aggregate, in Python and in SQL; `AGGREGATES` lists them. SQL has no
keyword-only parameters: `count(CASE WHEN large THEN x END)` is ``count("x", where="large")`` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isfunction
from typing import Any, Literal

from penstock.operators.aggregate.functions import Count, CountWhere, Edge, Extreme, Mean, Sum, Variance
from penstock.operators.aggregate.holistic import (
    CollectList,
    CollectSet,
    CountDistinct,
    CountDistinctWhere,
    HeavyHitters,
    Mode,
    Quantile,
)
from penstock.operators.aggregate.sketches import ApproxCountDistinct, ApproxQuantile


def count(column: str | None = None, *, where: str | None = None) -> Count:
    """Number of rows, or of non-null values of a column; with `where`, only of rows where that column is true.

    >>> count()
    Count(column=None)
    >>> count(where="large")
    CountWhere(column=None, where='large')
    """
    return Count(column) if where is None else CountWhere(column, where)


def sum(column: str) -> Sum:
    """Sum of a column. A window whose sum does not fit the result's type stops the flow with a `FlowError`.

    >>> sum("amount")
    Sum(column='amount')
    """
    return Sum(column)


def min(column: str) -> Extreme:
    """Smallest value of a column.

    >>> min("price")
    Extreme(column='price', which='min')
    """
    return Extreme(column, "min")


def max(column: str) -> Extreme:
    """Greatest value of a column.

    >>> max("price")
    Extreme(column='price', which='max')
    """
    return Extreme(column, "max")


def mean(column: str) -> Mean:
    """Mean of a column.

    >>> mean("price")
    Mean(column='price')
    """
    return Mean(column)


def variance(column: str, of: Literal["sample", "population"] = "sample") -> Variance:
    """Variance of a column.

    >>> variance("price")
    Variance(column='price', root='variance', of='sample')
    """
    return Variance(column, "variance", of)


def stddev(column: str, of: Literal["sample", "population"] = "sample") -> Variance:
    """Standard deviation of a column.

    >>> stddev("price", of="population")
    Variance(column='price', root='deviation', of='population')
    """
    return Variance(column, "deviation", of)


def first(column: str) -> Edge:
    """Value of the earliest row.

    >>> first("price")
    Edge(column='price', which='first')
    """
    return Edge(column, "first")


def last(column: str) -> Edge:
    """Value of the latest row.

    >>> last("price")
    Edge(column='price', which='last')
    """
    return Edge(column, "last")


def count_distinct(column: str, *, where: str | None = None) -> CountDistinct:
    """Exact number of distinct values; with `where`, in the rows for which that boolean column is true.

    Several of them over one column share one set of values.

    >>> count_distinct("user")
    CountDistinct(column='user')
    >>> count_distinct("user", where="large")
    CountDistinctWhere(column='user', where='large')
    """
    return CountDistinct(column) if where is None else CountDistinctWhere(column, where)


def approx_count_distinct(column: str, precision: int = 12) -> ApproxCountDistinct:
    """Approximate number of distinct values; the standard error is ``1.04 / sqrt(2 ** precision)``.

    >>> approx_count_distinct("visitor").precision
    12
    """
    return ApproxCountDistinct(column, precision)


def quantile(column: str, share: float) -> Quantile:
    """Exact quantile: the value below which a fraction `share` of the values lie.

    >>> quantile("latency", 0.99)
    Quantile(column='latency', share=0.99)
    """
    return Quantile(column, share)


def approx_quantile(column: str, share: float, size: int = 200) -> ApproxQuantile:
    """Approximate quantile; its rank is off by about ``2.3 / size ** 0.9``.

    >>> approx_quantile("latency", 0.99).share
    0.99
    """
    return ApproxQuantile(column, share, size)


def median(column: str) -> Quantile:
    """Median: the quantile at 0.5.

    >>> median("latency")
    Quantile(column='latency', share=0.5)
    """
    return Quantile(column, 0.5)


def mode(column: str) -> Mode:
    """Most frequent value.

    >>> mode("page")
    Mode(column='page')
    """
    return Mode(column)


def heavy_hitters(column: str, share: float) -> HeavyHitters:
    """Values that make up at least a fraction `share` of all non-null values, with their counts.

    >>> heavy_hitters("src", 0.05)
    HeavyHitters(column='src', share=0.05)
    """
    return HeavyHitters(column, share)


def collect_list(column: str) -> CollectList:
    """List of all values, in order of time.

    >>> collect_list("page")
    CollectList(column='page')
    """
    return CollectList(column)


def collect_set(column: str) -> CollectSet:
    """List of the distinct values, in ascending order.

    >>> collect_set("page")
    CollectSet(column='page')
    """
    return CollectSet(column)


AGGREGATES: Mapping[str, Callable[..., Any]] = {
    name: make for name, make in list(globals().items()) if isfunction(make) and make.__module__ == __name__
}
"""Every aggregate by its name. Its first parameter is the column."""
