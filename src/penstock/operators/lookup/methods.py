"""The methods of lookup joins: a back end each, and the front stage that may precede any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from penstock.core.errors import ConfigError
from penstock.core.master import MasterTable
from penstock.core.methods import Method, Methods
from penstock.operators.lookup.admission import Policy


@dataclass(frozen=True, slots=True)
class BackMethod:
    """What every back end declares; its fields are its parameters."""

    reads: ClassVar[Literal["all", "keys", "partitions", "round"]] = "partitions"
    """What it reads of the table: all of it, the rows of keys, the partition of a key, or partitions in turn."""

    @property
    def defers(self) -> bool:
        """Whether rows may wait over epochs."""
        return self.reads in ("partitions", "round")

    def is_like(self, other: BackMethod) -> bool:
        """Whether both are parameters of the same method."""
        return type(self) is type(other)


@dataclass(frozen=True, slots=True)
class Front:
    """The parameters of the front stage: its fraction of the memory, or a number of rows, and the admission policy.

    >>> Front(share=0.2).policy
    'strict'
    """

    share: float = 0.15
    policy: Policy = "strict"
    slots: int | None = None
    threshold: int = 10
    adaptive: bool = True
    every: int = 10
    halve: int | None = None
    """Number of offers after which frequencies are halved, by policy `decay`; by default the number of slots."""
    span: int | None = None
    """Number of misses over which missed keys are counted, before a back end that answers at once; by default 4 times
    the slots."""


@dataclass(frozen=True, slots=True)
class Stages:
    """A back end, perhaps behind a front stage: ``Stages(HybridJoin(), Front(share=0.15))`` is CHYBRIDJOIN.

    >>> from penstock.operators.lookup import Inlj
    >>> Stages(Inlj()).defers
    False
    """

    back: BackMethod
    front: Front | None = None

    @property
    def defers(self) -> bool:
        """Whether rows may wait over epochs."""
        return self.back.defers

    def check(self, table: MasterTable) -> None:
        """Raise an error for a table in which this method would find, or cache, only some of the rows of a key.

        INLJ requests all rows of a key wherever they are, and a broadcast has all rows; the others have only the
        partitions that they read.
        """
        if not self.back.defers or table.clustered:
            return
        keys, name = ", ".join(table.keys), METHODS.name_of(self)
        remedy = (
            f"Write method='cinlj' or 'meshjoin', or freshness='snapshot', which copies the table into pages; Parquet "
            f"files can also be sorted by {keys}, so that equal keys lie together."
        )
        if self.back.reads == "partitions":
            raise ConfigError(
                f"method={name!r} reads the one partition that holds a key, but this table does not record which "
                f"partition holds which {keys}, or spreads rows of one {keys} over several. {remedy}"
            )
        if self.front is not None and not table.unique:
            raise ConfigError(
                f"method={name!r} caches all rows of a frequent {keys}, but this table has them in several partitions, "
                f"and a read returns only some of them. {remedy}"
            )


class LookupMethods(Methods[Stages]):
    """Methods by name; a back end behind a front stage has its name with a ``c`` in front, whether listed or not.

    >>> from penstock.operators.lookup import HybridJoin
    >>> METHODS.name_of(Stages(HybridJoin(), Front()))
    'chybridjoin'
    """

    def of(self, method: str | Stages) -> Method[Stages]:
        """The method of a name or of stages; for stages that are not listed, that of the back end."""
        if isinstance(method, Stages) and method.front is not None:
            back = self.of(replace(method, front=None))
            return self.get(f"c{back.name}", back)
        return super().of(method)

    def name_of(self, method: str | Stages) -> str:
        """What to call a method in reports."""
        if isinstance(method, Stages) and method.front is not None:
            return f"c{self.name_of(replace(method, front=None))}"
        return super().name_of(method)

    def _alike(self, listed: Stages, given: Stages) -> bool:
        return listed.front is None and listed.back.is_like(given.back)


METHODS = LookupMethods(Stages, "cinlj")
"""Every method of a lookup join."""

LookupMethodLike = str | Stages
"""What ``method=`` may be: a name, or stages."""
