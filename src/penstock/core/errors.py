"""Errors, by family. Every message says what was wrong, the value, why it matters, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Self

from penstock.core.secrets import redacted


class PenstockError(Exception):
    """Base class of all penstock errors. Messages never show the password in an address.

    >>> print(PenstockError("Cannot read s3://key:secret@bucket/rows"))
    Cannot read s3://key:***@bucket/rows
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(arg) if isinstance(arg, str) else arg for arg in args))


class ConfigError(PenstockError):
    """An invalid argument; raised while the flow is built, before anything runs."""

    @classmethod
    def unknown_column(cls, argument: str, column: object, columns: Iterable[str], of: str = "this stream") -> Self:
        """An argument names a column that its stream, or whatever it is a column `of`, does not have."""
        known = list(columns)
        close = get_close_matches(column, known, n=1) if isinstance(column, str) else ()
        hint = f"Did you mean {close[0]!r}?" if close else f"Its columns are: {', '.join(known)}."
        return cls(f"{argument}={column!r} is not a column of {of}. {hint}")

    @classmethod
    def not_a_column(cls, argument: str, value: object) -> Self:
        """An argument that takes the name of a column is something else."""
        return cls(f"{argument}={value!r} is not the name of a column. Write the name in quotes, like 'amount'.")

    @classmethod
    def unknown_key(cls, column: str, columns: Iterable[str]) -> Self:
        """`on=` names a column that the table of a lookup does not have."""
        missing = cls.unknown_column("on", column, columns, "this table")
        return cls(
            f"{missing} If the key has different names in the stream and the table, write on={{'ours': 'theirs'}}."
        )


class DurationError(ConfigError):
    """A duration that cannot be parsed, or does not fit the unit of the time column."""


class TimeError(ConfigError):
    """A column that cannot be event time."""


class BandError(ConfigError):
    """A band or window that can match nothing, or does not fit the time column."""


class PunctuationError(PenstockError):
    """A punctuation that is empty, names unknown columns, or is not of the kind that is needed."""


class WindowError(ConfigError):
    """A window that can hold nothing, never moves, or is not supported on this stream."""


class PlanError(ConfigError):
    """A multi-way join whose predicates or plan cannot be parsed, or leave out a relation."""

    @classmethod
    def not_a_predicate(cls, text: object) -> Self:
        """A predicate is not ``alias.column = alias.column``.

        >>> print(PlanError.not_a_predicate("li.orderkey"))
        on='li.orderkey' is not an equality of two columns. Write it like 'li.orderkey = o.orderkey'.
        """
        return cls(f"on={text!r} is not an equality of two columns. Write it like 'li.orderkey = o.orderkey'.")

    @classmethod
    def not_a_condition(cls, text: object) -> Self:
        """A condition cannot be read."""
        return cls(
            f"on={text!r} cannot be read as a condition. Write equalities like 'li.orderkey = o.orderkey', or "
            f"conditions like 'li.price < o.limit'."
        )

    @classmethod
    def names_no_stream(cls, text: object, column: str, aliases: Iterable[str]) -> Self:
        """A condition names a column without its stream, or an unknown stream.

        >>> print(PlanError.names_no_stream("x = 1", "x", ["a", "b"]))
        on='x = 1': which stream is 'x' of? Write a.x or b.x.
        """
        ways = " or ".join(f"{alias}.{column.rpartition('.')[2]}" for alias in aliases)
        return cls(f"on={text!r}: which stream is {column!r} of? Write {ways}.")

    @classmethod
    def about_nothing(cls, text: object) -> Self:
        """A condition names no column.

        >>> print(PlanError.about_nothing("1 = 1"))
        on='1 = 1' names no column of a stream. Leave it out, or write a condition like 'li.price < o.limit'.
        """
        return cls(
            f"on={text!r} names no column of a stream. Leave it out, or write a condition like 'li.price < o.limit'."
        )

    @classmethod
    def one_sided(cls, text: object, alias: str) -> Self:
        """Both columns of a predicate belong to the same relation."""
        return cls(
            f"on={str(text)!r} compares two columns of {alias!r} and joins it to nothing. "
            f"Name another relation on one side, or filter {alias!r} before the join."
        )

    @classmethod
    def unknown_alias(cls, argument: str, text: object, alias: str, aliases: Iterable[str]) -> Self:
        """A plan or predicate names a relation that the join does not have.

        >>> print(PlanError.unknown_alias("plan", "(li p) s", "p", ["li", "o", "s"]))
        plan='(li p) s' names 'p', which is not a relation of this join. Its relations are: li, o, s.
        """
        known = list(aliases)
        close = get_close_matches(alias, known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Its relations are: {', '.join(known)}."
        return cls(f"{argument}={str(text)!r} names {alias!r}, which is not a relation of this join. {hint}")

    @classmethod
    def alias_twice(cls, text: object, alias: str) -> Self:
        """A plan names a relation more than once."""
        return cls(
            f"plan={str(text)!r} names {alias!r} more than once. Name each relation once; to join a stream with "
            f"itself, give it to the join under two names."
        )

    @classmethod
    def alias_missing(cls, text: object, missing: Sequence[str], instead: str) -> Self:
        """A plan leaves relations out.

        >>> print(PlanError.alias_missing("li o", ["s"], "(li o) s"))
        plan='li o' leaves out 's'. Name every relation of the join, for example '(li o) s'.
        """
        left_out = ", ".join(map(repr, missing))
        return cls(
            f"plan={str(text)!r} leaves out {left_out}. Name every relation of the join, for example {instead!r}."
        )

    @classmethod
    def cross_product(cls, text: object, left: str, right: str, instead: str) -> Self:
        """The two sides of a node share no predicate.

        >>> print(PlanError.cross_product("(o s) li", "o", "s", "(li o) s"))  # doctest: +NORMALIZE_WHITESPACE
        plan='(o s) li' joins 'o' with 's', but no predicate of on= names both. Write plan='(li o) s', or add a
        predicate that joins them to on=, even if it follows from the others.
        """
        return cls(
            f"plan={str(text)!r} joins {left!r} with {right!r}, but no predicate of on= names both. Write "
            f"plan={instead!r}, or add a predicate that joins them to on=, even if it follows from the others."
        )

    @classmethod
    def unconnected(cls, group: Sequence[str], others: Sequence[str]) -> Self:
        """No plan joins all relations without a cross product."""
        return cls(
            f"No predicate of on= connects {', '.join(map(repr, group))} with {', '.join(map(repr, others))}. "
            f"Add one, such as '{group[0]}.key = {others[0]}.key', or run two joins."
        )

    @classmethod
    def unreadable(cls, text: object, why: str) -> Self:
        """The text of a plan breaks its grammar.

        >>> print(PlanError.unreadable("(li o s", "a parenthesis is not closed"))  # doctest: +NORMALIZE_WHITESPACE
        plan='(li o s' cannot be read: a parenthesis is not closed. Write names and parentheses, like '(li o) s' for
        two joins in turn or 'li o s' for one operator that joins all three.
        """
        return cls(
            f"plan={str(text)!r} cannot be read: {why}. Write names and parentheses, like '(li o) s' for two joins in "
            f"turn or 'li o s' for one operator that joins all three."
        )


class SqlError(ConfigError):
    """A query that cannot be parsed or is not supported; the message shows the position."""

    @classmethod
    def at(cls, sql: str, start: int, stop: int, message: str) -> Self:
        """A message about ``sql[start:stop]``, with the line it is in and carets below.

        >>> print(SqlError.at("SELECT a FROM b LIMIT 3", 16, 21, "LIMIT has no meaning here."))
        line 1, column 17: LIMIT has no meaning here.
          SELECT a FROM b LIMIT 3
                          ^^^^^
        """
        begin = sql.rfind("\n", 0, start) + 1
        end = sql.find("\n", start) if "\n" in sql[start:] else len(sql)
        carets = " " * (start - begin) + "^" * max(1, min(stop, end) - start)
        place = f"line {sql.count(chr(10), 0, start) + 1}, column {start - begin + 1}"
        return cls(f"{place}: {message}\n  {sql[begin:end]}\n  {carets}")


class BudgetError(PenstockError):
    """A request for more memory than the budget has left: the budget is never exceeded."""


class StateError(PenstockError):
    """A page or ledger that is missing or damaged; it is never replaced by empty state."""

    @classmethod
    def missing(cls, path: str) -> Self:
        """A file that the ledger names is gone."""
        return cls(
            f"State file {path} is missing, so the flow's state is incomplete and no epoch can run on it. "
            f"Restore the file from a backup of the checkpoint, or start the flow with a new checkpoint directory."
        )

    @classmethod
    def corrupt(cls, path: str, why: str) -> Self:
        """A file that the ledger names is not what was written."""
        return cls(
            f"State file {path} is not what was written: {why}. No epoch can run on it and nothing was changed. "
            f"Restore the file from a backup of the checkpoint, or start the flow with a new checkpoint directory."
        )


class TableError(StateError):
    """A master table that cannot be read, is damaged, or was changed by another writer."""

    @classmethod
    def missing(cls, path: str) -> Self:
        """A file of the table is gone."""
        return cls(
            f"Table file {path} is missing, and so are its rows. If its version was vacuumed, open a newer one; "
            f"otherwise restore the file from a backup of the table, or write the table again."
        )

    @classmethod
    def corrupt(cls, path: str, why: str) -> Self:
        """A file of the table is not what was written."""
        return cls(
            f"Table file {path} is not what was written: {why}. Nothing was read from it. "
            f"Restore the file from a backup of the table, or write the table again."
        )

    @classmethod
    def conflict(cls, uri: str, expected: str, found: str) -> Self:
        """Two writers started from the same version, and the other one committed first."""
        return cls(
            f"Table {uri} was at version {expected} when this change began and is at {found} now: another writer "
            f"changed it meanwhile, so this change was discarded. Read the table again and repeat the change."
        )


class CheckpointError(PenstockError):
    """A checkpoint of another flow, another version, or a flow that has ended; it is left untouched."""

    @classmethod
    def other_rows(cls, uri: str, epoch: int, name: str, noted: str, found: str | None) -> Self:
        """Spark would give an epoch other rows than those it had when it was planned or committed."""
        is_now = "is gone" if found is None else f"now has checksum {found}"
        return cls(
            f"Spark would give epoch {epoch} of checkpoint {uri} other rows than it had: {name} had checksum {noted} "
            f"then and {is_now}. Parts of the checkpoint are of different ages, or damaged, so rows would be lost or "
            f"counted twice; nothing was changed. Restore the whole folder from one backup, or start with a new "
            f"checkpoint folder."
        )

    @classmethod
    def damaged(cls, uri: str, name: str, why: str) -> Self:
        """One of Spark's files that the next epoch depends on is not what Spark wrote."""
        return cls(
            f"{name} of checkpoint {uri} is not what Spark wrote: {why}. Spark cannot resume from it, and nothing "
            f"was changed. Restore the whole folder from one backup, or start with a new checkpoint folder."
        )

    @classmethod
    def other_age(cls, uri: str, asked: int, committed: int) -> Self:
        """Spark asks for an epoch that is not the next one."""
        return cls(
            f"Spark asks for epoch {asked}, but {committed} is the last one committed in {uri}: its parts are of "
            f"different ages. Restore the whole folder from a backup, or start with a new one."
        )


class LeaseError(CheckpointError):
    """A checkpoint that another driver holds; this driver commits nothing to it."""

    @classmethod
    def held(cls, uri: str, holder: str, patience: float) -> Self:
        """A second start on the checkpoint of a running flow."""
        return cls(
            f"Checkpoint {uri} is in use: {holder} has it. Two drivers on one checkpoint would lose rows. "
            f"Stop the other one with query.stop(), or start with a new checkpoint folder. If it is dead, "
            f"start again: its lease lapses at once on its own machine, and elsewhere {patience:.0f} s after its last "
            f"sign of life."
        )

    @classmethod
    def lost(cls, uri: str, mine: str, holder: str) -> Self:
        """A driver that was presumed dead and has been replaced by another."""
        return cls(
            f"This driver, {mine}, has lost its lease on checkpoint {uri} to {holder}, which saw no sign of life from "
            f"it. This epoch was not committed, and the flow continues there. Stop this driver."
        )

    @classmethod
    def committed(cls, uri: str, epoch: int) -> Self:
        """Another driver was faster to commit an epoch."""
        return cls(
            f"Epoch {epoch} of checkpoint {uri} was committed by another driver meanwhile; this one committed nothing. "
            f"Run only one driver; if it is this one, start it again."
        )


class FlowError(PenstockError):
    """A flow that cannot run as written, or an epoch that failed."""

    @classmethod
    def in_epoch(cls, epoch: int, what: str, cause: str, remedy: str = "") -> Self:
        """An epoch that failed: where, and the cause in a line or two.

        >>> print(SinkError.in_epoch(3, "foreach_epoch save", "ValueError: no such table"))
        Epoch 3 failed in foreach_epoch save: ValueError: no such table.
        """
        said = f"Epoch {epoch} failed in {what}: {cause.rstrip().removesuffix('.')}."
        return cls(f"{said} {remedy}" if remedy else said)

    @classmethod
    def in_rows(cls, expression: str, cause: str) -> Self:
        """An expression that has no value for some row.

        >>> print(FlowError.in_rows("cast(name AS INT) AS n", "'x' cannot be read as INT."))
        'cast(name AS INT) AS n' has no value for some row: 'x' cannot be read as INT.
        """
        return cls(f"{expression!r} has no value for some row: {cause.rstrip().removesuffix('.')}.")

    @classmethod
    def too_large(cls, name: str, column: str, kind: object, where: str) -> Self:
        """A sum that the type of its column cannot hold; `where` says of which window.

        >>> print(FlowError.too_large("eur", "cents", "int64", "window_end=10"))  # doctest: +NORMALIZE_WHITESPACE
        eur: the sum of 'cents' at window_end=10 is too large for int64.
        Before the window write .select('*', 'cast(cents AS decimal(20, 0)) AS wide'), and sum 'wide'.
        """
        wider = "DOUBLE" if str(kind).startswith("decimal") else "decimal(20, 0)"
        return cls(
            f"{name}: the sum of {column!r} at {where} is too large for {kind}. "
            f"Before the window write .select('*', 'cast({column} AS {wider}) AS wide'), and sum 'wide'."
        )

    @classmethod
    def in_aggregate(cls, name: str, column: str, step: str, cause: str) -> Self:
        """A function of a user-defined aggregate that raised an error, or returned something invalid.

        >>> print(FlowError.in_aggregate("p90", "x", "lower_partials", "ZeroDivisionError: division by zero"))
        p90: lower_partials of the user-defined aggregate of 'x' failed: ZeroDivisionError: division by zero.
        """
        return cls(f"{name}: {step} of the user-defined aggregate of {column!r} failed: {cause.removesuffix('.')}.")


class SinkError(FlowError):
    """A sink that could not take an epoch's rows; the error it raised is chained."""


class SourceError(FlowError):
    """A source that could not be read; the error it raised is chained."""

    @classmethod
    def missing(cls, epoch: int, files: Sequence[str]) -> Self:
        """Input files that an epoch needs are gone.

        >>> print(SourceError.missing(7, ["in/3.json", "in/4.json"]))  # doctest: +NORMALIZE_WHITESPACE
        Epoch 7 needs input file in/3.json (and 1 more), which is gone. Spark would go on without its rows, so the epoch
        was not run. Put the file back under the same name and start the flow again: the epoch is repeated. To go on
        without its rows, put an empty file there.
        """
        more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
        return cls(
            f"Epoch {epoch} needs input file {files[0]}{more}, which is gone. Spark would go on without its rows, so "
            f"the epoch was not run. Put the file back under the same name and start the flow again: the epoch is "
            f"repeated. To go on without its rows, put an empty file there."
        )

    @classmethod
    def no_folder(cls, epoch: int, source: str, folder: str) -> Self:
        """The folder that a source reads is gone.

        >>> print(SourceError.no_folder(7, "orders", "in/orders"))  # doctest: +NORMALIZE_WHITESPACE
        Source 'orders' reads in/orders, which is gone, so epoch 7 could not run. Put the folder back, or make an empty
        one if no more files come, and start the flow again.
        """
        return cls(
            f"Source {source!r} reads {folder}, which is gone, so epoch {epoch} could not run. Put the folder back, or "
            f"make an empty one if no more files come, and start the flow again."
        )
