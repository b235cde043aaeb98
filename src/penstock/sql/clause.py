"""The window clause: ``[RANGE 10 minutes SLIDE 1 minute WATTR ts]``, read from text and made a window.

| part | says |
|---|---|
| RANGE | how long a window is: a length of time, a number of rows, or ALL |
| SLIDE | how far apart windows are: a length of time or a number of rows; left out, as far as they are long |
| WATTR (or WA) | the windowing attribute; row-num counts arrivals |
| PA | the columns that partition the stream before it is windowed |
| RATTR, SATTR | where they differ: the attribute of the range, and that of the slide, row-num or rank(…) |

Parts come in any order, with commas between them or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from penstock.core.durations import Duration
from penstock.core.errors import ConfigError, SqlError
from penstock.core.windows import Landmark, PartitionedWindow, SlideByTuple, Sliding, TupleWindow, Window
from penstock.core.within import Band, Tumbling, tumbling, windows

PARTS = ("RANGE", "SLIDE", "WATTR", "WA", "PA", "RATTR", "SATTR")
"""The words that a part of a window clause starts with."""

_SPELLED = {"WA": "WATTR"}
_WORD = re.compile(r"row[-_]num|rank\s*\(\s*[\w.]+\s*\)|`[^`]+`|[^\W\d][\w.]*|\d+(?:\.\d+)?|,|\S", re.IGNORECASE)
_ROWS = re.compile(r"(\d+) (?:row|rows|tuple|tuples)", re.IGNORECASE)
_RANK = re.compile(r"rank\s*\(\s*([\w.]+)\s*\)", re.IGNORECASE)
_EXAMPLE = "[RANGE 10 minutes SLIDE 1 minute WATTR ts]"


class Word(NamedTuple):
    """A word of the clause and where it stands in the query."""

    text: str
    start: int

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Clause:
    """A window clause as written: its parts, each by its words, and where in `sql` it stands, brackets included."""

    sql: str
    start: int
    stop: int
    parts: tuple[tuple[str, tuple[Word, ...]], ...]

    def has(self, part: str) -> bool:
        """Whether a part is there."""
        return part in dict(self.parts)

    def text(self, part: str) -> str:
        """What a part says, its words a space apart; empty if it is not there."""
        return " ".join(word.text for word in dict(self.parts).get(part, ()))

    def rows(self, part: str) -> int | None:
        """How many rows a part says, if it counts rows."""
        counted = _ROWS.fullmatch(self.text(part))
        return int(counted[1]) if counted else None

    def duration(self, part: str) -> Duration:
        """How long a part says, in time."""
        try:
            return Duration.of(self.text(part), part)
        except ConfigError as error:
            raise self.wrong(part, f"{error} Or write rows, as in {part} 10 rows.") from error

    def wrong(self, part: str | None, message: str) -> SqlError:
        """An error that points at a part, or at the whole clause."""
        words = dict(self.parts).get(part or "", ())
        if not words:
            return SqlError.at(self.sql, self.start, self.stop, message)
        return SqlError.at(self.sql, words[0].start, words[-1].stop, message)


class Meaning(NamedTuple):
    """What a clause means for an aggregate: the window, its attribute (None is the stream's time), its partitions."""

    window: Window
    time: str | None
    partition: tuple[str, ...]


def read_clause(sql: str, start: int, stop: int) -> Clause:
    """The clause in ``sql[start:stop]``, which starts with '[' and ends with ']'.

    >>> clause = read_clause("[RANGE 1000 rows, SLIDE 10 rows, PA srcIP, WATTR row-num]", 0, 57)
    >>> clause.rows("RANGE"), clause.text("PA"), clause.text("WATTR")
    (1000, 'srcIP', 'row-num')
    """
    parts: dict[str, list[Word]] = {}
    part = ""
    for found in _WORD.finditer(sql, start + 1, stop - 1):
        word = Word(found[0], found.start())
        if word.text.upper() in PARTS:
            part = _SPELLED.get(word.text.upper(), word.text.upper())
            if part in parts:
                raise SqlError.at(sql, word.start, word.stop, f"{part} appears twice. Leave one of them out.")
            parts[part] = []
        elif word.text != ",":
            parts[part].append(word)
    for name, words in parts.items():
        if not words:
            raise SqlError.at(sql, start, stop, f"{name} has no value. Write a clause like {_EXAMPLE}.")
        _refuse_rest(sql, name, words)
    return Clause(sql, start, stop, tuple((name, tuple(words)) for name, words in parts.items()))


def aggregate_window(clause: Clause) -> Meaning:
    """The window that a clause asks for after an aggregate, or after the only source.

    >>> print(aggregate_window(read_clause("[RANGE ALL SLIDE 1 minute WATTR ts]", 0, 35)).window)
    landmark(slide=1 min)
    """
    if not clause.has("RANGE"):
        raise clause.wrong(None, f"A window needs a RANGE. Write a clause like {_EXAMPLE}, or RANGE ALL.")
    time = _attribute(clause)
    partition = tuple(word.text.strip("`") for word in dict(clause.parts).get("PA", ()))
    try:
        return Meaning(_window(clause, time, partition), None if _by_arrival(clause) else time, partition)
    except SqlError:
        raise
    except ConfigError as error:
        raise clause.wrong(None, str(error)) from error


def join_window(left: Clause, right: Clause) -> Band | Tumbling:
    """How near in time two streams must be that have these clauses; a row can be met for its own stream's RANGE.

    >>> texts = "[RANGE 3 minutes WATTR ts]", "[RANGE 2 minutes WATTR ts]"
    >>> print(join_window(*(read_clause(text, 0, len(text)) for text in texts)))
    band(before=2 min, after=3 min, ends='[]')
    """
    for clause in (left, right):
        _check_join_clause(clause)
    ranges = left.duration("RANGE"), right.duration("RANGE")
    if not left.has("SLIDE") and not right.has("SLIDE"):
        return windows(*ranges)
    for clause, length in zip((left, right), ranges, strict=True):
        if not clause.has("SLIDE") or clause.duration("SLIDE") != length:
            raise clause.wrong(
                "SLIDE",
                f"In a join, windows either slide with every row or tumble. Leave SLIDE out of both clauses, or write "
                f"SLIDE {clause.text('RANGE')} in both.",
            )
    if ranges[0] != ranges[1]:
        raise right.wrong(
            "RANGE",
            f"Tumbling windows of a join are the same for both streams, but the other's are {left.text('RANGE')}. "
            f"Write RANGE {left.text('RANGE')} here, or leave SLIDE out of both clauses.",
        )
    return tumbling(ranges[0])


def _window(clause: Clause, time: str | None, partition: tuple[str, ...]) -> Window:
    rows = clause.rows("RANGE")
    if rows is not None:
        return _row_window(clause, rows, time, partition)
    if clause.rows("SLIDE") is not None or clause.has("SATTR"):
        return _slide_by_tuple(clause, time)
    if clause.text("RANGE").upper() == "ALL":
        if not clause.has("SLIDE"):
            raise clause.wrong("RANGE", "RANGE ALL is one window that never ends. Write SLIDE, when to see it so far.")
        return Landmark(clause.duration("SLIDE"))
    length = clause.duration("RANGE")
    return Sliding(length, clause.duration("SLIDE") if clause.has("SLIDE") else length)


def _row_window(clause: Clause, rows: int, time: str | None, partition: tuple[str, ...]) -> Window:
    slide = clause.rows("SLIDE") if clause.has("SLIDE") else rows
    if slide is None:
        raise clause.wrong("SLIDE", f"RANGE counts rows, so SLIDE must, too. Write SLIDE {max(1, rows // 10)} rows.")
    order = None if _by_arrival(clause) else time
    return PartitionedWindow(rows, slide, partition, order) if partition else TupleWindow(rows, slide, order)


def _slide_by_tuple(clause: Clause, time: str | None) -> SlideByTuple:
    every = clause.rows("SLIDE")
    if every is None or clause.text("RANGE").upper() == "ALL":
        raise clause.wrong(
            "SLIDE" if every is None else "RANGE",
            "A window slides by rows over a length of time. Write RANGE 5 minutes RATTR ts SLIDE 1 row SATTR row-num.",
        )
    by = clause.text("SATTR") or "row-num"
    rank = _RANK.fullmatch(by)
    if rank is not None:
        if time is not None and rank[1] != time:
            raise clause.wrong("SATTR", f"Rows are ranked by the attribute of the range. Write SATTR rank({time}).")
        return SlideByTuple(clause.duration("RANGE"), every, "rank")
    column = None if _is_row_num(by) else by
    if every == 1 and column is None:
        return SlideByTuple(clause.duration("RANGE"))
    return SlideByTuple(clause.duration("RANGE"), every, "row-num", column)


def _attribute(clause: Clause) -> str | None:
    """The attribute that windows are over: WATTR, or RATTR where the slide has another."""
    if clause.has("WATTR") and clause.has("RATTR"):
        raise clause.wrong("RATTR", "WATTR is the attribute of both range and slide. Write it, or RATTR and SATTR.")
    named = clause.text("WATTR") or clause.text("RATTR")
    return named.strip("`") or None


def _by_arrival(clause: Clause) -> bool:
    """Whether windows are over row numbers, which a stream's rows get as they arrive."""
    by_rows = clause.rows("RANGE") is not None
    attribute = clause.text("WATTR") or clause.text("RATTR")
    if _is_row_num(attribute) and not by_rows:
        raise clause.wrong("RANGE", "WATTR row-num counts rows. Write RANGE 1000 rows, or another WATTR.")
    return by_rows and (not attribute or _is_row_num(attribute))


def _is_row_num(attribute: str) -> bool:
    return attribute.lower() in ("row-num", "row_num")


def _check_join_clause(clause: Clause) -> None:
    for part in ("PA", "RATTR", "SATTR"):
        if clause.has(part):
            raise clause.wrong(part, f"{part} has no meaning in a join. Write [RANGE 2 minutes WATTR ts].")
    if not clause.has("RANGE") or clause.rows("RANGE") is not None or clause.text("RANGE").upper() == "ALL":
        raise clause.wrong("RANGE", "A join needs to know how long a row can be met. Write RANGE 2 minutes.")


def _refuse_rest(sql: str, name: str, words: list[Word]) -> None:
    """Refuse what can belong to no part: after an attribute, and after a length or a number of rows."""
    if name == "PA":
        return
    lengths = name in ("RANGE", "SLIDE")
    for before, word in pairwise(words):
        if not lengths or (before.text[0].isalpha() and not word.text[0].isdecimal()):
            raise SqlError.at(
                sql,
                word.start,
                word.stop,
                f"{word.text} is not part of a window clause. Parts start with {', '.join(PARTS)}: write {_EXAMPLE}.",
            )
