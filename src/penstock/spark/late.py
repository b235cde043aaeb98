"""The windows that late rows missed, as SQL: what `operators.aggregate.missed` computes in process."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.rows import TIME
from penstock.core.time import TIME_MAX, TIME_MIN
from penstock.core.windows import Sessions, Slides
from penstock.flow.graph import MISSED, AggregateNode, SourceNode, keeps_time
from penstock.operators.aggregate.missed import told_by_time
from penstock.spark.types import in_range, long, nulls, time_from_long


def missed(node: AggregateNode, source: SourceNode, kind: st.DataType) -> list[Column]:
    """Where the first window that each row of a source missed starts and the last ends; `kind` is their type."""
    windows = told_by_time(node.config) if keeps_time(node.input, source) else None
    if windows is None:
        return [nulls(kind, name) for name in MISSED]
    used = in_range(source.unit)
    found = (f"CASE WHEN {used} THEN {edge} END" for edge in edges(windows))
    return [_moment(edge, kind).alias(name) for name, edge in zip(MISSED, found, strict=True)]


def edges(windows: Slides | Sessions) -> tuple[str, str]:
    """The first moment of a row's first window and the end of its last, as SQL; null if there is none on the axis.

    >>> edges(Sessions(gap=5))
    ('__time', 'nullif(try_add(__time, 5L), 9223372036854775807L)')
    """
    if isinstance(windows, Sessions):
        return TIME, _later(long(windows.gap))
    # A row's first window ends at the first step after it, a range after it starts; the last one starts at the row at
    # the latest. All is relative to the row, so that nothing but the edges themselves can leave the axis.
    length, gap, step = windows.range, long(windows.slide - windows.range), windows.slide
    past = _past(windows.origin, step)
    start = f"nullif(try_add({TIME}, {gap} - {past}), {long(TIME_MIN)})"
    end = _later(f"{long(length)} - {_past(windows.origin - length, step)}")
    return f"CASE WHEN {past} >= {gap} THEN {start} END", f"CASE WHEN {past} >= {gap} THEN {end} END"


def _later(by: str) -> str:
    return f"nullif(try_add({TIME}, {by}), {long(TIME_MAX)})"


def _past(origin: int, slide: int) -> str:
    """How far a row is past the last step of `slide` from `origin`."""
    return f"pmod(pmod({TIME}, {long(slide)}) - {long(origin % slide)}, {long(slide)})"


def _moment(edge: str, kind: st.DataType) -> Column:
    """An edge as a value of the window axis; null if the type is too small for it."""
    if isinstance(kind, st.DateType):
        return time_from_long(sf.expr(f"try_cast({edge} AS INT)"), kind)
    if isinstance(kind, st.IntegralType):
        return sf.expr(f"try_cast({edge} AS {kind.simpleString()})")
    return time_from_long(sf.expr(edge), kind)
