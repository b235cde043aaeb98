"""How far the lab is, for someone who waits: bars if rich is there and the screen can show them, else lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lab.simulation import Watch

if TYPE_CHECKING:
    from rich.progress import Progress


class Watcher(Protocol):
    """Told of each simulation that begins."""

    def begin(self, label: str, span: float) -> Watch:
        """A simulation of `span` seconds begins; the answer is to be told how far it is."""
        ...


class Quiet:
    """Says nothing.

    >>> Quiet().begin("EWJ", 60)(30)
    """

    def begin(self, label: str, span: float) -> Watch:
        """Nothing to say."""
        return lambda moment: None


class Lines:
    """Says on stderr which of `total` simulations begins."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = 0

    def begin(self, label: str, span: float) -> Watch:
        """One line."""
        self._begun += 1
        print(f"[{self._begun}/{self._total}] {label}", file=sys.stderr, flush=True)
        return lambda moment: None


@contextmanager
def watching(total: int) -> Iterator[Watcher]:
    """Show how far `total` simulations are."""
    if not total:
        yield Quiet()
        return
    try:
        from rich.console import Console
    except ImportError:
        yield Lines(total)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(total)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Verdicts are printed while the bar is there: above it on a screen, but into a file if that is where they go.
    screen = sys.stdout.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, redirect_stdout=screen) as bars:
        yield _Bars(bars, total)


class _Bars:
    """A bar that has moved on by one when a simulation is done, and by a part while it runs."""

    def __init__(self, bars: Progress, total: int) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=total)
        self._begun = 0

    def begin(self, label: str, span: float) -> Watch:
        done = self._begun
        self._begun += 1
        return lambda moment: self._bars.update(self._task, description=label, completed=done + min(1.0, moment / span))
