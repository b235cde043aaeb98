"""The parameters of the policies that RRPJ is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.checks import is_whole
from penstock.core.errors import ConfigError
from penstock.operators.window_join.progressive.baselines.policies import (
    ArrivalRate,
    ByChance,
    CellShare,
    Everything,
    Largest,
    LargestPair,
    LastSeen,
    Nothing,
)
from penstock.operators.window_join.progressive.parameters import Progressive
from penstock.operators.window_join.progressive.policies import Policy


@dataclass(frozen=True, slots=True)
class Random(Progressive):
    """Any partition leaves, by a generator with a `seed`."""

    seed: int = 0

    def __post_init__(self) -> None:
        Progressive.__post_init__(self)
        if not is_whole(self.seed) or self.seed < 0:
            raise ConfigError(f"seed={self.seed!r} must be a whole number of at least 0.")

    def policy(self) -> Policy:
        """By chance."""
        return ByChance(self.partitions, self.seed)


@dataclass(frozen=True, slots=True)
class XJoin(Progressive):
    """XJoin: the largest partition leaves."""

    def policy(self) -> Policy:
        """By size."""
        return Largest(self.partitions)


@dataclass(frozen=True, slots=True)
class Hmj(Progressive):
    """HMJ: a partition leaves on both sides together."""

    def policy(self) -> Policy:
        """By the size of pairs."""
        return LargestPair(self.partitions)


@dataclass(frozen=True, slots=True)
class Rpj(Progressive):
    """RPJ: what the opposite stream is least likely to ask for leaves; with `sigma` below 1, older arrivals fade."""

    sigma: float = 1.0

    def __post_init__(self) -> None:
        Progressive.__post_init__(self)
        self._check_fraction("sigma")

    def policy(self) -> Policy:
        """By arrivals."""
        return ArrivalRate(self.partitions, self.sigma)


@dataclass(frozen=True, slots=True)
class La(Progressive):
    """LA: as RPJ, with the last `history` arrivals of a stream for `1 - share` of what the next may be."""

    sigma: float = 1.0
    share: float = 0.5
    history: int = 100

    def __post_init__(self) -> None:
        Progressive.__post_init__(self)
        self._check_fraction("sigma")
        self._check_fraction("share")
        if not is_whole(self.history) or self.history < 1:
            raise ConfigError(f"history={self.history!r} must be a whole number of at least 1.")

    def policy(self) -> Policy:
        """By arrivals, the last ones above all."""
        return LastSeen(self.partitions, self.sigma, self.share, self.history)


@dataclass(frozen=True, slots=True)
class NeRpj(Progressive):
    """neRPJ: RPJ for joins by distance, by the rows of cells; results that come from other cells are not seen."""

    def policy(self) -> Policy:
        """By the share of the opposite cell."""
        return CellShare(self.partitions)


@dataclass(frozen=True, slots=True)
class Pmj(Progressive):
    """PMJ: rows are gathered until memory is full, joined, and all leave."""

    def policy(self) -> Policy:
        """All at once."""
        return Everything(self.partitions)


@dataclass(frozen=True, slots=True)
class Shj(Progressive):
    """SHJ: nothing leaves memory; a join that outgrows its task's budget fails."""

    def policy(self) -> Policy:
        """None at all."""
        return Nothing(self.partitions)
