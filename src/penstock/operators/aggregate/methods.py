"""The methods of sliding windows, and what each of them declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.core.durations import TimeUnit
from penstock.core.methods import Methods


@dataclass(frozen=True, slots=True)
class AggregateMethod:
    """What every method declares; its fields are its parameters."""

    takes_rows: ClassVar[bool] = False
    """Whether it needs the rows themselves, so that a host must not feed it partials."""
    from_panes: ClassVar[bool] = False
    """Whether it needs panes; the others need windows, which can be made of panes."""
    updates: ClassVar[bool] = False
    """Whether it can show windows that are still open."""
    subtracts: ClassVar[bool] = False
    """Whether aggregates must be ones that can be undone exactly."""
    heeds_bounds: ClassVar[bool] = True
    """Whether bounds complete windows."""

    def check(self, unit: TimeUnit) -> None:
        """Raise an error unless the lengths of time among the parameters can be counted in `unit`."""


METHODS: Methods[AggregateMethod] = Methods(AggregateMethod, "paned")
"""Every method of aggregating sliding windows."""

AggregateMethodLike = str | AggregateMethod
"""What ``method=`` may be: a name, or the parameters of a method."""
