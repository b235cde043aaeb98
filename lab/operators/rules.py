"""How punctuation passes the operators that keep no state: select, apply, project.

Select hands punctuation on: of rows that do not come, none is selected. Apply and project give rows other columns, and
punctuation must speak of these. What it said of a column that is gone cannot be said any more, so such a punctuation
goes no further: to leave out one of its columns would claim more than it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from lab.operators.punctuation import Constant, Pattern, Punctuation, Range
from penstock.core.errors import PunctuationError


def select(punctuation: Punctuation) -> Punctuation:
    """As it is, whatever the condition."""
    return punctuation


@dataclass(frozen=True, slots=True)
class Computed:
    """A column made from another one: ``function(column)``.

    `keeps` says what is known of the function. ``"order"``: it never falls, so that ranges without a start pass.
    ``"values"``: it gives different values for different ones, so that constants pass.

    >>> Computed("ts", lambda ts: ts // 60, keeps="order").pattern(Range(stop=150))
    Range(start=None, stop=2)
    """

    column: str
    function: Callable[[Any], Any]
    keeps: Literal["order", "values"]

    def pattern(self, pattern: Pattern) -> Pattern | None:
        """What a pattern of the column says of this one; None if nothing."""
        if self.keeps == "order" and isinstance(pattern, Range) and pattern.start is None:
            # Strict: later rows are at `stop` or above, so what is made of them is at what is made of it, or above.
            return Range(stop=self.function(pattern.stop))
        if self.keeps == "values" and isinstance(pattern, Constant):
            return Constant(self.function(pattern.value))
        return None


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that rows have after an apply or a project: each an input column by its name, or `Computed`.

    `on` is the column by which the output progresses.

    >>> from lab.operators.punctuation import below
    >>> minutes = Projection((("minute", Computed("ts", lambda ts: ts // 60, keeps="order")), ("ip", "ip")), "minute")
    >>> print(minutes.punctuation(Punctuation.of(ts=below(150), ip="a")))
    punctuation(ip='a', minute=[, 2))
    """

    columns: tuple[tuple[str, str | Computed], ...]
    on: str

    def __post_init__(self) -> None:
        if self.on not in dict(self.columns):
            raise PunctuationError(
                f"on={self.on!r} is not among the columns {', '.join(dict(self.columns))}: the output would not "
                f"progress, and no window after it would ever close. Keep the progressing column."
            )

    def punctuation(self, punctuation: Punctuation) -> Punctuation | None:
        """The same statement about the rows as they are now; None if it cannot be made."""
        patterns: dict[str, Pattern] = {}
        for column in punctuation.columns:
            passed = self._passed(column, punctuation[column])
            if passed is None:
                return None
            patterns[passed[0]] = passed[1]
        return Punctuation.of(**patterns)

    def _passed(self, column: str, pattern: Pattern) -> tuple[str, Pattern] | None:
        """The first output column that says what `column` did; the progressing one before all others."""
        for name, made in self._progressing_first():
            if made == column:
                return name, pattern
            if isinstance(made, Computed) and made.column == column and (seen := made.pattern(pattern)) is not None:
                return name, seen
        return None

    def _progressing_first(self) -> Iterable[tuple[str, str | Computed]]:
        return sorted(self.columns, key=lambda column: column[0] != self.on)
