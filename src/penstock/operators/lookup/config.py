"""The config of a lookup join: rows of a stream are looked up in a master table that may be larger than memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from penstock.core.checks import check_suffix
from penstock.core.durations import Duration, TimeUnit
from penstock.core.errors import ConfigError
from penstock.core.master import Freshness, Master, TableSource
from penstock.core.methods import ByMethod, Methods
from penstock.core.operator import NullKeys
from penstock.core.progress import Bounds
from penstock.core.rows import RESERVED, RowType, first_twice, show_keys
from penstock.core.time import Time
from penstock.operators.lookup.backlog import INBOX, SHED, SHED_SEGMENT
from penstock.operators.lookup.methods import METHODS, LookupMethodLike, Stages
from penstock.operators.lookup.shedding import Shedding
from penstock.operators.lookup.waiting import WAITING

LookupHow = Literal["inner", "left"]

PRESENT = "__present"
"""The column of cached rows that says whether the table has the key: missing keys are cached, too."""


@dataclass(frozen=True, slots=True)
class LookupJoin(ByMethod[Stages]):
    """Join each row of a stream with the rows of `table` that have its key.

    A pair is emitted once iff all its keys are equal; null equals nothing. With ``how="left"``, rows without a match
    are emitted with nulls. The order is arbitrary. A row sees the version of the table that is current when it is
    answered. Columns: those of the stream, then those of the table except shared keys, with `suffix` if a name is
    taken. A row may wait for others that need the same part of the table, up to `max_age` of event time.

    A host that cannot read the table as often as arrivals need sets a `quota`. The remaining rows wait for later
    epochs, or are put aside according to `shed`; `max_age` applies to all of them and takes precedence over the quota.
    """

    table: TableSource
    on: tuple[tuple[str, str], ...]
    how: LookupHow = "inner"
    method: LookupMethodLike = "auto"
    suffix: str = "_right"
    max_age: Duration | None = None
    unit: TimeUnit = "ticks"
    version: str | None = None
    """The version of the table to read, by default the newest."""
    quota: int | None = None
    """How many times the table may be read in an epoch, by default as often as needed; remaining rows wait."""
    shed: Shedding = field(default_factory=Shedding)
    freshness: Freshness = "snapshot"

    methods: ClassVar[Methods[Stages]] = METHODS

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
        METHODS.of(self.method)
        if self.quota is not None and self.quota < 0:
            raise ConfigError(f"quota={self.quota} must be a number of reads, 0 or more.")
        if self.max_age is not None:
            self.max_age.on(self.unit, "max_age")

    @property
    def stages(self) -> Stages:
        """The back end, and the front stage before it if there is one."""
        return self.parameters

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
        """The folders of segments of pages that are stored elsewhere."""
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

    def says(self, inputs: tuple[RowType, ...] = ()) -> str:
        """What it does, in words."""
        return f"{self.how} lookup on {show_keys(self.on)} in {self.table}, {self.freshness}"

    @property
    def passes_updates(self) -> bool:
        """True unless rows may wait: then an update could leave after the final result."""
        return self.max_age is None and not self.defers

    @property
    def does_to_updates(self) -> str:
        """What it would do to updates of windows if rows may wait."""
        return "lets rows wait (method=, max_age=, shed=), so an update could leave it after the final result"

    def null_keys(self, port: int) -> NullKeys:
        """A null key matches nothing, so a left join may put its rows on any shard, and an inner join drops them."""
        return "spread" if self.how == "left" else "drop"

    @property
    def piece(self) -> int:
        """Small pieces: much of a share is for the rows of the table."""
        return 16

    @property
    def keeps_between_epochs(self) -> bool:
        """True: indexes and rows of the table are kept."""
        return True

    @property
    def lists_pages(self) -> bool:
        """True: rows that were put aside may fill very many pages."""
        return True

    @property
    def held_kinds(self) -> frozenset[int]:
        """Pages of rows that wait for a read, wait to be let in, or were put aside."""
        return frozenset((WAITING, INBOX, SHED)) if self.defers else frozenset()

    @property
    def master(self) -> Master:
        """The table."""
        return Master(self.table, self.freshness)

    def reading(self, table: TableSource, version: str, quota: int | None) -> LookupJoin:
        """The same lookup in this version of a table, with this quota of reads."""
        return replace(self, table=table, version=version, quota=quota)

    @property
    def sheds(self) -> bool:
        """Whether `shed` allows it."""
        return self.shed.on

    @property
    def waits_for_bounds(self) -> bool:
        """Only if rows have a `max_age`, which bounds measure."""
        return self.max_age is not None

    @property
    def may_change(self) -> frozenset[str]:
        """Everything that only affects how rows are answered, and from what."""
        return frozenset({"method", "table", "max_age", "version", "quota", "shed", "freshness"})

    def tells(self, epochs: Sequence[Mapping[str, int]], waits: str) -> list[str]:
        """Hits and misses, and the waiting rows."""
        hits, misses, reads = (sum(counts.get(name, 0) for counts in epochs) for name in ("hits", "misses", "reads"))
        read = f"the table was read {reads:,} times; {waits}"
        if not hits + misses:
            return [f"no cache was used; {read}"]
        share = f"{100 * hits / (hits + misses):.1f} % of the rows"
        return [f"cache: {epochs[-1].get('cached', 0):,} rows of the table answered {share}; {read}"]

    def bounds(self, *ports: Time) -> Bounds:
        """Bounds of the results of a join in which no row waits."""
        return Bounds.at(ports[0])


def in_order_of(keys: tuple[str, ...], on: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """`on` in the order of the table's keys, all of which it must name: hashes of keys depend on their order.

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
    """Raise an error for reserved or duplicate names of a table's columns."""
    for name in names:
        if name in (*RESERVED, PRESENT):
            raise ConfigError(f"The table's column {name!r} has a name that penstock reserves. Rename it in the table.")
    twice = first_twice(names)
    if twice is not None:
        raise ConfigError(
            f"The table has {names.count(twice)} columns {twice!r}, and results could not tell them apart. "
            f"Rename all but one in the table."
        )
