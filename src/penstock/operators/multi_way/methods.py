"""The list of a linear multi-way join's methods, and what each says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.core.methods import Methods


@dataclass(frozen=True, slots=True)
class MultiJoinMethod:
    """What every method of a linear multi-way join says of itself; its fields are its parameters."""

    two_only: ClassVar[bool] = False
    """Whether it joins two streams and no more."""

    def check(self, ports: int) -> None:
        """Raise an error unless the parameters suit so many streams."""


METHODS: Methods[MultiJoinMethod] = Methods(MultiJoinMethod, "msj")
"""Every method of a linear multi-way join."""

MultiJoinMethodLike = str | MultiJoinMethod
"""What ``method=`` may be: a name, or the parameters of a method."""


def read_method(method: MultiJoinMethodLike) -> MultiJoinMethodLike:
    """Read ``method=``: a name, in capitals or not, or the parameters of a method.

    >>> from penstock.operators.multi_way import METHODS
    >>> read_method("MJoin")
    'mjoin'
    """
    plain = method.lower().replace("-", "_") if isinstance(method, str) else ""
    if plain == "auto" or plain in METHODS:
        return plain
    METHODS.of(method)
    return method
