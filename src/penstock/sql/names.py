"""Names of columns in SQL: with backticks and without. The parser is loaded only once one is asked for."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """A column's name in Spark's SQL, in backticks if it would be read as something else without them.

    >>> quoted("price"), quoted("a-b"), quoted("true"), quoted("größe")
    ('price', '`a-b`', '`true`', '`größe`')
    """
    import sqlglot
    from sqlglot import exp

    try:
        read = sqlglot.parse_one(name, read="spark")
    except Exception:  # sqlglot raises whatever it meets
        read = None
    plain = isinstance(read, exp.Column) and read.sql(dialect="spark") == name == read.name and name.isascii()
    return name if plain else f"`{name.replace('`', '``')}`"


def unquoted(expression: str) -> str:
    """The name of a column that stands alone; any other expression as it is.

    >>> unquoted("`a-b`"), unquoted("price"), unquoted("`a` + `b`")
    ('a-b', 'price', '`a` + `b`')
    """
    inner = expression[1:-1].replace("``", "")
    alone = len(expression) > 2 and expression[0] == expression[-1] == "`" and "`" not in inner
    return expression[1:-1].replace("``", "`") if alone else expression
