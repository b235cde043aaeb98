"""The parameters of joins without a window: how much memory rows may take, and which leave it first."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from penstock.core.checks import is_number, is_whole
from penstock.core.errors import ConfigError
from penstock.operators.window_join.methods import JoinMethod
from penstock.operators.window_join.progressive.cutting import Cutting
from penstock.operators.window_join.progressive.policies import DriftRate, Per, Policy, ResultRate, RowRate


@dataclass(frozen=True, slots=True)
class Progressive(JoinMethod):
    """Parameters of all methods: `memory` for the rows of both streams, in bytes (a quarter of the task's budget).

    `row` is the size of a row (its size in Arrow), `partitions` the number of partitions of the keys of each stream,
    `flush` the fraction of the memory that a flush frees. With `cut` ``"adaptive"``, keys are redistributed between
    epochs once the largest partition has 1.5 times the rows of the average one.
    """

    memory: int | None = None
    row: int | None = None
    partitions: int = 64
    flush: float = 0.1
    cut: Cutting = "fixed"

    defers: ClassVar[bool] = True
    windowless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("memory", "row"):
            value = getattr(self, name)
            if value is not None and (not is_whole(value) or value < 1):
                raise ConfigError(f"{name}={value!r} must be a number of bytes, 1 or more.")
        if not is_whole(self.partitions) or not 1 <= self.partitions <= _MOST_PARTITIONS:
            raise ConfigError(f"partitions={self.partitions!r} must be a whole number from 1 to {_MOST_PARTITIONS:,}.")
        self._check_fraction("flush")
        if self.cut not in get_args(Cutting):
            raise ConfigError(f"cut={self.cut!r} is not one of {', '.join(get_args(Cutting))}.")

    @abc.abstractmethod
    def policy(self) -> Policy:
        """The policy that decides which rows leave memory."""

    def _check_fraction(self, name: str) -> None:
        value = getattr(self, name)
        if not is_number(value) or not 0 <= value <= 1:
            raise ConfigError(f"{name}={value!r} must be a number from 0 to 1.")


_MOST_PARTITIONS = 1024


@dataclass(frozen=True, slots=True)
class Rrpj(Progressive):
    """RRPJ: the rows with the fewest results per row leave memory first.

    `sigma` below 1 is amortised RRPJ: counted results decay by this factor at each flush, so that rows that are
    productive now stay even if they were not before; 1 is RRPJ as published. ``"auto"`` is 1 while streams are steady
    and 0 while they drift, whichever predicts the results better. `per`: results are divided by the rows that
    ``"arrived"``, by those ``"resident"``, or by ``"nothing"`` (JGradient). `by` ``"row"`` is RRPJ-F: results are
    counted per row, which takes 8 bytes each and chooses better if a partition's rows differ; the youngest fraction
    `grace` of them leaves last.

    >>> Rrpj(sigma=0.5).partitions
    64
    >>> Rrpj(sigma=2)
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: sigma=2 must be a number from 0 to 1, or "auto".
    """

    sigma: float | Literal["auto"] = "auto"
    per: Per = "arrived"
    by: Literal["partition", "row"] = "partition"
    grace: float = 0.0

    def __post_init__(self) -> None:
        Progressive.__post_init__(self)
        if self.sigma != "auto" and (not is_number(self.sigma) or not 0 <= self.sigma <= 1):
            raise ConfigError(f'sigma={self.sigma!r} must be a number from 0 to 1, or "auto".')
        self._check_fraction("grace")
        for name, known in (("per", get_args(Per)), ("by", ("partition", "row"))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}={getattr(self, name)!r} is not one of {', '.join(known)}.")

    def policy(self) -> Policy:
        """By partition, or by row."""
        if self.by == "row":
            return RowRate(self.partitions, self.grace)
        if self.sigma == "auto":
            return DriftRate(self.partitions, self.per)
        return ResultRate(self.partitions, self.sigma, self.per)
