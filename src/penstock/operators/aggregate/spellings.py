"""How aggregates are written: ``count()``, ``sum("amount")``, ``quantile("latency", 0.99)`` …

Every public function of this module is an aggregate, in Python and in SQL: `AGGREGATES` is the list of them. SQL does
without parameters that must be named: there `count(CASE WHEN large THEN x END)` is ``count("x", where="large")``.
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
    """How many rows, or how many values of a column; with `where`, of the rows for which that boolean column is true.

    >>> count()
    Count(column=None)
    >>> count(where="large")
    CountWhere(column=None, where='large')
    """
    return Count(column) if where is None else CountWhere(column, where)


def sum(column: str) -> Sum:
    """The sum of a column; a window whose sum does not fit the result's type stops the flow with a `FlowError`.

    >>> sum("amount")
    Sum(column='amount')
    """
    return Sum(column)


def min(column: str) -> Extreme:
    """The least value of a column.

    >>> min("price")
    Extreme(column='price', which='min')
    """
    return Extreme(column, "min")


def max(column: str) -> Extreme:
    """The greatest value of a column.

    >>> max("price")
    Extreme(column='price', which='max')
    """
    return Extreme(column, "max")


def mean(column: str) -> Mean:
    """The mean of a column.

    >>> mean("price")
    Mean(column='price')
    """
    return Mean(column)


def variance(column: str, of: Literal["sample", "population"] = "sample") -> Variance:
    """The variance of a column.

    >>> variance("price")
    Variance(column='price', root='variance', of='sample')
    """
    return Variance(column, "variance", of)


def stddev(column: str, of: Literal["sample", "population"] = "sample") -> Variance:
    """The standard deviation of a column.

    >>> stddev("price", of="population")
    Variance(column='price', root='deviation', of='population')
    """
    return Variance(column, "deviation", of)


def first(column: str) -> Edge:
    """The value of the earliest row.

    >>> first("price")
    Edge(column='price', which='first')
    """
    return Edge(column, "first")


def last(column: str) -> Edge:
    """The value of the latest row.

    >>> last("price")
    Edge(column='price', which='last')
    """
    return Edge(column, "last")


def count_distinct(column: str, *, where: str | None = None) -> CountDistinct:
    """How many different values, exactly; with `where`, in the rows for which that boolean column is true.

    However many of them count the values of one column, those are kept once.

    >>> count_distinct("user")
    CountDistinct(column='user')
    >>> count_distinct("user", where="large")
    CountDistinctWhere(column='user', where='large')
    """
    return CountDistinct(column) if where is None else CountDistinctWhere(column, where)


def approx_count_distinct(column: str, precision: int = 12) -> ApproxCountDistinct:
    """About how many different values; the standard error is ``1.04 / sqrt(2 ** precision)``.

    >>> approx_count_distinct("visitor").precision
    12
    """
    return ApproxCountDistinct(column, precision)


def quantile(column: str, share: float) -> Quantile:
    """The value below which `share` of the values lie, exactly.

    >>> quantile("latency", 0.99)
    Quantile(column='latency', share=0.99)
    """
    return Quantile(column, share)


def approx_quantile(column: str, share: float, size: int = 200) -> ApproxQuantile:
    """About the value below which `share` of the values lie; its rank is off by about ``2.3 / size ** 0.9``.

    >>> approx_quantile("latency", 0.99).share
    0.99
    """
    return ApproxQuantile(column, share, size)


def median(column: str) -> Quantile:
    """The middle value.

    >>> median("latency")
    Quantile(column='latency', share=0.5)
    """
    return Quantile(column, 0.5)


def mode(column: str) -> Mode:
    """The most frequent value.

    >>> mode("page")
    Mode(column='page')
    """
    return Mode(column)


def heavy_hitters(column: str, share: float) -> HeavyHitters:
    """The values that make up at least `share` of all that are not null, exactly that included, with their counts.

    >>> heavy_hitters("src", 0.05)
    HeavyHitters(column='src', share=0.05)
    """
    return HeavyHitters(column, share)


def collect_list(column: str) -> CollectList:
    """All values, in order of time.

    >>> collect_list("page")
    CollectList(column='page')
    """
    return CollectList(column)


def collect_set(column: str) -> CollectSet:
    """The different values, in order.

    >>> collect_set("page")
    CollectSet(column='page')
    """
    return CollectSet(column)


AGGREGATES: Mapping[str, Callable[..., Any]] = {
    name: make for name, make in list(globals().items()) if isfunction(make) and make.__module__ == __name__
}
"""Every aggregate by its name. Its first parameter is the column."""
