"""Queries in SQL as flows: what `penstock.sql.parse` reads, built from streams."""

from __future__ import annotations

from penstock.operators.aggregate import spellings
from penstock.operators.aggregate.config import AnyFunction
from penstock.sql import Call


def function_of(call: Call) -> AnyFunction:
    """The aggregate that a call in SQL asks for.

    >>> function_of(Call("quantile", "len", "slow", (0.99,)))
    Quantile(column='len', share=0.99)
    """
    given = () if call.column is None else (call.column,)
    function: AnyFunction = getattr(spellings, call.function)(*given, *call.arguments)
    return function
