"""When a running join changes what it carries: for a clear gain, and not again soon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Switching:
    """What runs `since` an epoch, by name, and what it takes to change it.

    Another takes over only if it costs less than ``1 - margin`` of what runs, and only when that has run for `dwell`
    epochs.

    >>> running = Switching("early", margin=0.1, dwell=5)
    >>> [running.after(epoch, {"early": 100, "late": 80}).current for epoch in (4, 5)]
    ['early', 'late']
    >>> running.after(9, {"early": 100, "late": 95}).current
    'early'
    """

    current: str
    since: int = 0
    margin: float = 0.1
    dwell: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise ConfigError(f"margin={self.margin} must be in [0, 1).")
        if self.dwell < 0:
            raise ConfigError(f"dwell={self.dwell} must be 0 epochs or more.")

    def after(self, epoch: int, costs: Mapping[str, float]) -> Self:
        """What runs from `epoch` on, where `costs` has what each would take; ties go to the first."""
        best = min(costs, key=lambda name: costs[name])
        if epoch - self.since < self.dwell or best == self.current:
            return self
        if self.current in costs and not costs[best] < (1 - self.margin) * costs[self.current]:
            return self
        return replace(self, current=best, since=epoch)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can write."""
        return {"current": self.current, "since": self.since, "margin": self.margin, "dwell": self.dwell}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """What `as_dict` gave.

        >>> Switching.from_dict(Switching("late", 7).as_dict())
        Switching(current='late', since=7, margin=0.1, dwell=5)
        """
        return cls(**saved)
