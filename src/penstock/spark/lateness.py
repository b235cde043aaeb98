"""Whether rows are late, decided once for each row as it is read, and the rows of the late outlet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.core.progress import Seen, Track
from penstock.core.rows import HASH, TIME
from penstock.core.time import FARTHEST, TIME_MAX, TIME_MIN
from penstock.core.windows import Sessions, Slides
from penstock.flow.graph import MISSED, OperatorNode, SourceNode, keeps_time
from penstock.runtime.tracks import Tracks
from penstock.spark.layout import IN_TIME, LATE, LATENESS, NO_TIME, OUT_OF_RANGE, TAG, Branch
from penstock.spark.source_rows import MARK, SOURCE, SourceRows
from penstock.spark.types import long, nulls, time_from_long

REASON = f"CASE {LATENESS} WHEN {LATE} THEN 'late' WHEN {OUT_OF_RANGE} THEN 'out-of-range' ELSE 'no-time' END"
"""Why a row is late, as SQL."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What an epoch has of one source: its rows in time, and how many were late or without a time."""

    seen: Seen
    late: int
    no_time: int
    turned_away: int = 0
    """Rows that are late only by what was said of their group."""


def judged(rows: DataFrame, sources: SourceRows, tracks: Tracks) -> DataFrame:
    """Rows of sources with their lateness, by the bounds that they had when the epoch began.

    Rows first, then bounds: those of this epoch say nothing of its rows.

    Bounds are looked up in an array and not compared with literals, because Spark writes literals into the code it
    generates: every epoch would compile its own and start cold.
    """
    bounds = [tracks.get(source.name, Track()).bound for source in sources.sources]
    ends = [FARTHEST[source.unit] for source in sources.sources]
    bound, farthest = (f"element_at(array({', '.join(map(long, each))}), {SOURCE} + 1)" for each in (bounds, ends))
    return rows.withColumn(
        LATENESS,
        sf.expr(
            f"CASE WHEN {TIME} IS NULL THEN {NO_TIME} "
            f"WHEN {TIME} >= {farthest} OR {TIME} <= -{farthest} THEN {OUT_OF_RANGE} "
            f"WHEN {TIME} >= {bound} THEN {IN_TIME} ELSE {LATE} END"
        ),
    )


def in_time(branches: Sequence[Branch], rows: DataFrame) -> DataFrame:
    """The rows of some branches that are not late, and have a key if they need one."""
    tags = ", ".join(str(branch.tag) for branch in branches)
    keyed = f" AND {HASH} IS NOT NULL" if branches[0].operator is not None else ""
    return rows.where(f"{TAG} IN ({tags}) AND {LATENESS} = {IN_TIME}{keyed}").drop(LATENESS)


def ends(sources: SourceRows) -> list[Column]:
    """What to note of a source while its rows pass: how many there are, and how far they go.

    It is known from that how many are in time unless some are late, and it costs less than to count them.
    """
    mark = [f"max({MARK}) AS mark"] if sources.marked else []
    asked = ["count(1) AS rows", f"count({TIME}) AS timed", f"min({TIME}) AS first", f"max({TIME}) AS last", *mark]
    return list(map(sf.expr, asked))


def counted_by_ends(source: SourceNode, tracks: Tracks, noted: Mapping[str, Any]) -> Counted | None:
    """What a source showed by what was noted of it; None if rows are late, or have times that cannot be used."""
    if not noted.get("rows"):
        return Counted(Seen(), late=0, no_time=0)
    mark = noted.get("mark")
    mark = TIME_MIN if mark is None else int(mark)
    timed, none = int(noted["timed"]), int(noted["rows"]) - int(noted["timed"])
    if not timed:
        return Counted(Seen(0, TIME_MIN, mark), late=0, no_time=none)
    first, last, farthest = int(noted["first"]), int(noted["last"]), FARTHEST[source.unit]
    if first < tracks.get(source.name, Track()).bound or first <= -farthest or last >= farthest:
        return None
    return Counted(Seen(timed, last, mark), late=0, no_time=none)


def counters(sources: SourceRows) -> list[Column]:
    """What to count of each source while its rows pass: those in time, late, without time, and how far they go."""
    counts: list[Column] = []
    for place in range(len(sources.sources)):
        ours = f"{SOURCE} = {place}"
        asked = [
            f"count_if({ours} AND {LATENESS} = {IN_TIME}) AS rows{place}",
            f"count_if({ours} AND {LATENESS} = {LATE}) AS late{place}",
            f"count_if({ours} AND {LATENESS} > {LATE}) AS no_time{place}",
            f"max(CASE WHEN {ours} AND {LATENESS} <= {LATE} THEN {TIME} END) AS max_time{place}",
        ]
        if sources.marked:
            asked.append(f"max(CASE WHEN {ours} THEN {MARK} END) AS mark{place}")
        counts += map(sf.expr, asked)
    return counts


def counted(sources: Sequence[SourceNode], counts: Mapping[str, Any]) -> dict[str, Counted]:
    """What the counters say of each source."""

    def of(name: str, place: int, otherwise: int) -> int:
        value = counts.get(f"{name}{place}")
        return otherwise if value is None else int(value)

    return {
        source.name: Counted(
            Seen(of("rows", place, 0), of("max_time", place, TIME_MIN), of("mark", place, TIME_MIN)),
            late=of("late", place, 0),
            no_time=of("no_time", place, 0),
        )
        for place, source in enumerate(sources)
    }


def missed(node: OperatorNode, source: SourceNode, kind: st.DataType) -> list[Column]:
    """Where the first window that each row of a source missed starts and the last ends; `kind` is their type."""
    windows = node.config.windows_by_time if keeps_time(node.inputs[0], source) else None
    if windows is None:
        return [nulls(kind, name) for name in MISSED]
    found = (f"CASE WHEN {LATENESS} = {LATE} THEN {edge} END" for edge in edges(windows))
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
