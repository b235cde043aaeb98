"""How aggregates are written: ``count()``, ``sum("amount")``, ``quantile("latency", 0.99)`` …"""

from __future__ import annotations

from typing import Literal

from penstock.operators.aggregate.functions import Count, Edge, Extreme, Mean, Sum, Variance


def count(column: str | None = None) -> Count:
    """How many rows, or how many values of a column.

    >>> count()
    Count(column=None)
    """
    return Count(column)


def sum(column: str) -> Sum:
    """The sum of a column.

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
