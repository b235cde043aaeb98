"""Aggregate functions as a user writes them, for `explain()`."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, is_dataclass


def written(function: object) -> str:
    """A call that makes such a function.

    >>> from penstock.operators.aggregate.functions import Count, CountWhere, Extreme, Variance
    >>> from penstock.operators.aggregate.holistic import Quantile
    >>> written(Count()), written(CountWhere(where="late")), written(Extreme("v", "max"))
    ('count()', "count(where='late')", "max('v')")
    >>> written(Quantile("v", 0.9)), written(Variance("v", "deviation", "sample"))
    ("quantile('v', 0.9)", "stddev('v')")
    """
    assert is_dataclass(function)
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(function).__name__.removesuffix("Where")).lower()
    given = []
    for field in fields(function):
        value = getattr(function, field.name)
        if field.name == "which":
            name = value
        elif field.name == "root":
            name = "stddev" if value == "deviation" else "variance"
        elif field.name == "where":
            given.append(f"where={value!r}")
        elif value != field.default and not (field.name == "of" and value == "sample") and not callable(value):
            given.append(f"{field.name}={value!r}" if field.default is not MISSING and given else repr(value))
    return f"{name}({', '.join(given)})"
