"""Whether an experiment's shapes came out, with the measured numbers beside those of the thesis."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from lab.experiments import Experiment, Kind, Table, caption

Word = Literal["reproduced", "in part", "not"]
"""A verdict: all claims came out, some did, none did."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one check."""

    name: str
    says: str
    passed: bool
    measured: Mapping[str, float]
    thesis: Mapping[str, float]
    kind: Kind = "claim"

    @property
    def sentence(self) -> str:
        """What it says, and what it is if it is no claim."""
        return self.says if self.kind == "claim" else f"({self.kind}) {self.says}"

    @property
    def numbers(self) -> str:
        """The measured numbers, with the thesis' behind where it has one.

        >>> Outcome("pending", "≈2 M at 300/s.", True, {"300/s": 1_970_000.0}, {"300/s": 2e6}).numbers
        '300/s: 1,970,000 (thesis: 2,000,000)'
        """
        shown = [f"{name}: {show(value)}{self._thesis(name)}" for name, value in self.measured.items()]
        return ", ".join(shown)

    def _thesis(self, name: str) -> str:
        return f" (thesis: {show(self.thesis[name])})" if name in self.thesis else ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an experiment, and under which conditions it was run."""

    id: str
    title: str
    workload: str
    scale: float
    seeds: int
    outcomes: tuple[Outcome, ...]
    remark: str = ""

    @classmethod
    def on(cls, experiment: Experiment, table: Table, scale: float) -> Self:
        """Put every check to what was measured."""
        outcomes = []
        for check in experiment.expected:
            passed, measured = check.test(table)
            outcomes.append(Outcome(check.name, check.says, bool(passed), measured, check.thesis, check.kind))
        return cls(
            experiment.id, experiment.title, experiment.workload, scale, table.seeds, tuple(outcomes), experiment.remark
        )

    @property
    def word(self) -> Word:
        """The verdict, by the claims alone."""
        passed = [outcome.passed for outcome in self.outcomes if outcome.kind == "claim"]
        return "reproduced" if all(passed) else "in part" if any(passed) else "not"

    @property
    def conditions(self) -> str:
        """What it was run on, and at which size."""
        return f"{self.workload}; scale {self.size}"

    @property
    def size(self) -> str:
        """The part of the source's size, and how many seeds."""
        return f"1/{1 / self.scale:g}, {_seeds(self.seeds)}"

    def told(self, title: str, remark: str) -> Self:
        """The same outcomes, told otherwise."""
        return replace(self, title=title, remark=remark)

    def write(self, path: Path) -> None:
        """As JSON; a number that there is not is null."""
        record = {"verdict": self.word, **asdict(self)}
        path.write_text(json.dumps(_plain(record), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """From JSON."""
        record = json.loads(path.read_text(encoding="utf-8"))
        del record["verdict"]
        outcomes = [{**each, "measured": _numbers(each["measured"])} for each in record.pop("outcomes")]
        return cls(**record, outcomes=tuple(Outcome(**each) for each in outcomes))

    def __str__(self) -> str:
        lines = [f"{caption(self.id)}  {self.title}: {self.word} (scale {self.size})"]
        lines += [f"  {'yes' if each.passed else 'NO ':3} {each.sentence}  {each.numbers}" for each in self.outcomes]
        return "\n".join(lines if not self.remark else [*lines, f"      {self.remark}"])


def tell(words: Iterable[Word]) -> str:
    """How many figures came to which verdict.

    >>> tell(["reproduced", "not", "reproduced"])
    '2 reproduced, 0 in part, 1 not'
    """
    counts = Counter(words)
    return ", ".join(f"{counts[word]} {word}" for word in get_args(Word))


def show(value: float) -> str:
    """A number as people read it: three digits, or whole thousands apart.

    >>> show(1_970_000.4), show(0.0512), show(12.345), show(math.nan)
    ('1,970,000', '0.0512', '12.3', 'nothing')
    """
    if math.isnan(value):
        return "nothing"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _plain(value: Any) -> Any:
    """Without numbers that JSON cannot write."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(record: Mapping[str, float | None]) -> dict[str, float]:
    return {key: math.nan if value is None else value for key, value in record.items()}
