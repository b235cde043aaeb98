"""What a lookup join is asked to do: look the rows of a stream up in a master table that is larger than memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa

from penstock.core.budget import Budget
from penstock.core.checks import check_suffix
from penstock.core.durations import Duration, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.master import TableSource
from penstock.core.meter import Meter
from penstock.core.operator import Logic, State
from penstock.core.pages import PageStore
from penstock.core.progress import Bounds
from penstock.core.rows import RESERVED, RowType, first_twice
from penstock.core.time import Time
from penstock.operators.lookup.backlog import SHED_SEGMENT
from penstock.operators.lookup.front import PRESENT
from penstock.operators.lookup.methods import LookupMethod, Stages, read_stages
from penstock.operators.lookup.shedding import Shedding

LookupHow = Literal["inner", "left"]


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Join each row of a stream with the rows of `table` that have its key.

    A pair comes out once iff all its keys are equal; null equals nothing. With ``how="left"`` rows that find nothing
    come out alone. Rows come out in any order. What a row sees is the version of the table that is current when it is
    answered. Columns: those of the stream, then those of the table but for shared keys, with `suffix` where a name is
    taken. A row may wait for others that need the same part of the table, up to `max_age` of event time.

    A host that cannot read the table as often as arrivals need it says so by `quota`. What is left waits for later
    epochs, or is put aside as `shed` says; `max_age` holds for all of it and goes before the quota.
    """

    table: TableSource
    on: tuple[tuple[str, str], ...]
    how: LookupHow = "inner"
    method: LookupMethod = "auto"
    suffix: str = "_right"
    max_age: Duration | None = None
    unit: TimeUnit = "ticks"
    version: str | None = None
    """The version of the table to read, the newest if not given."""
    quota: int | None = None
    """How many times the table may be read in an epoch, as often as needed if not given; what is left then waits."""
    shed: Shedding = field(default_factory=Shedding)

    def __post_init__(self) -> None:
        if not self.on:
            raise ConfigError("on=[] names no key. Write on='customer_id', or a list of columns.")
        if self.how not in get_args(LookupHow):
            raise ConfigError(
                f"how={self.how!r} is not a kind of lookup. Write 'inner', or 'left' to keep rows that find nothing."
            )
        if in_order_of(self.table.keys, self.on) != self.on:
            raise ConfigError(f"on={self.on} must name the table's keys in their order, {', '.join(self.table.keys)}.")
        check_names(self.table.columns.names)
        check_suffix(self.suffix)
        read_stages(self.method)
        if self.quota is not None and self.quota < 0:
            raise ConfigError(f"quota={self.quota} is no number of reads. Write 0 or more.")
        if self.max_age is not None:
            self.max_age.on(self.unit, "max_age")

    @property
    def stages(self) -> Stages:
        """The back end, and the front stage before it if there is one."""
        return read_stages(self.method)

    @property
    def table_keys(self) -> tuple[str, ...]:
        """The table's key columns, in the order of the stream's."""
        return tuple(theirs for _, theirs in self.on)

    @property
    def defers(self) -> bool:
        """Whether rows may wait over epochs."""
        return self.stages.defers or self.quota is not None or self.shed.on

    @property
    def elsewhere(self) -> dict[str, str]:
        """The folders of segments of pages that are not to be kept with the others."""
        return {} if self.shed.to is None else {SHED_SEGMENT: self.shed.to}

    def output_columns(self, stream: RowType) -> tuple[tuple[bool, str], ...]:
        """Where each column of the results comes from: whether from the stream, and its name there."""
        shared = {ours for ours, theirs in self.on if ours == theirs}
        ours = [(True, name) for name in stream.columns.names]
        return (*ours, *((False, name) for name in self.table.columns.names if name not in shared))

    def output(self, inputs: tuple[RowType, ...]) -> pa.Schema:
        """The columns of the results."""
        (stream,) = inputs
        held = set(stream.columns.names)
        fields: dict[str, pa.DataType] = {}
        for ours, name in self.output_columns(stream):
            shown = name if ours or name not in held else name + self.suffix
            if shown in fields:
                raise ConfigError(
                    f"The table's column {name!r} would be called {shown!r}, which is taken. "
                    f"Rename it, or write another suffix=."
                )
            columns = stream.columns if ours else self.table.columns
            fields[shown] = columns.field(name).type
        return pa.schema(fields)

    def bounds(self, bound: Time) -> Bounds:
        """What can still come out of a join in which no row waits."""
        return Bounds((bound, bound), (bound, bound))

    def bound(self, bounds: Bounds) -> Time:
        """The bound on the event time of the results."""
        return bounds.individual[0]

    def logic(
        self,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> Logic:
        """The algorithm that `method` names."""
        from penstock.operators.lookup.logic import LookupLogic

        return LookupLogic(self, inputs[0], store, budget, state, meter)


def in_order_of(keys: tuple[str, ...], on: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """`on` in the order of the table's keys, of which it must be all: hashes of keys depend on their order.

    >>> in_order_of(("a", "b"), (("x", "b"), ("y", "a")))
    (('y', 'a'), ('x', 'b'))
    """
    theirs = [name for _, name in on]
    if sorted(theirs) != sorted(keys):
        raise ConfigError(
            f"on={[ours for ours, _ in on]} looks up by {', '.join(theirs)}, but the table is keyed by "
            f"{', '.join(keys)}. Look up by all of its keys, or key it by the columns of on=."
        )
    return tuple(sorted(on, key=lambda pair: keys.index(pair[1])))


def check_names(names: list[str]) -> None:
    """Refuse names of a table's columns that are not theirs alone."""
    for name in names:
        if name in (*RESERVED, PRESENT):
            raise ConfigError(
                f"The table's column {name!r} has a name that penstock uses inside. Rename it in the table."
            )
    twice = first_twice(names)
    if twice is not None:
        raise ConfigError(
            f"The table has {names.count(twice)} columns {twice!r}, and results could not tell them apart. "
            f"Rename all but one in the table."
        )
