"""Window queries in SQL: Spark's, with window clauses in brackets; read into a typed description."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.core.errors import ConfigError
from penstock.sql.description import Call, Column, Join, JoinKind, Query, Several, Source

__all__ = ["Call", "Column", "Join", "JoinKind", "Query", "Several", "Source", "parse"]


def parse(sql: str, columns: Mapping[str, Collection[str]] | None = None) -> Query:
    """What a query says; `columns` are those of each stream that it may name.

    >>> query = parse("SELECT srcIP, count(*) FROM s [RANGE 10 minutes SLIDE 1 minute WATTR ts] GROUP BY srcIP")
    >>> print(query.window)
    sliding(range=10 min, slide=1 min)
    >>> query.groups, query.aggregates
    (('srcIP',), (Call(function='count', column=None, name='count', arguments=()),))
    """
    try:
        from penstock.sql.reading import read
    except ModuleNotFoundError as missing:
        raise ConfigError("Queries in SQL need one more package: pip install 'penstock[local]'.") from missing
    return read(sql, columns)
