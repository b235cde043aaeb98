"""Spark's SQL as of version 4."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.spark import Spark


class Spark4(Spark):  # type: ignore[misc]
    """Spark's SQL in which a quote within quotes is written twice.

    >>> import sqlglot
    >>> sqlglot.parse_one("'it''s'", read=Spark4).name
    "it's"
    """

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        """Reads two quotes as one."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
