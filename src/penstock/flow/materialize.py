"""When the rows of a multi-way join get their payload: ``materialize=``, and what it means for the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from penstock.core.errors import ConfigError
from penstock.core.files import Payload
from penstock.flow.graph import SourceNode, sources_of
from penstock.flow.plans import Materialize

if TYPE_CHECKING:
    from penstock.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Late:
    """Results get their payload late: in their own epoch or, `decoupled` from the join, in the next one."""

    decoupled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.decoupled, bool):
            raise ConfigError(f"late(decoupled={self.decoupled!r}) must be True or False.")


def late(*, decoupled: bool = False) -> Late:
    """Let the results of ``flow.join`` get their payload late; `decoupled`, one epoch after the join.

    The join then finishes an epoch as soon as it knows which rows match. ``materialize=pk.late()`` is
    ``materialize="late"``.

    >>> import penstock as pk, pyarrow as pa
    >>> flow = pk.LocalFlow()
    >>> a, b = (flow.source(pa.table({"k": [1], "t": [0], "note": [n]}), time="t") for n in "ab")
    >>> rows = flow.join(a=a, b=b, on="a.k = b.k", materialize=pk.late(decoupled=True)).to_memory()
    >>> epochs = flow.run().progress().epochs
    >>> rows.table().select(["a_note", "b_note"]).to_pylist(), [epoch.rows_out for epoch in epochs]
    ([{'a_note': 'a', 'b_note': 'b'}], [0, 1])
    """
    return Late(decoupled)


_CONTRARY = {("late", "row"), ("early", "source"), ("early", "segments")}
"""Combinations of materialize= and payload= that contradict each other for one source."""

_IN: dict[Payload, str] = {"row": "the row", "source": "the source", "segments": "segments"}


def asked_by_stream(
    streams: Iterable[str], materialize: Materialize | Late | Mapping[str, Materialize]
) -> Mapping[str, Materialize]:
    """``materialize=`` by stream, for the streams that it names."""
    written = "late" if isinstance(materialize, Late) else materialize
    return written if isinstance(written, Mapping) else dict.fromkeys(streams, written)


def asked_homes(
    streams: Mapping[str, Stream],
    materialize: Materialize | Late | Mapping[str, Materialize],
    known: Mapping[SourceNode, Payload],
) -> dict[SourceNode, Payload]:
    """Where payload of the sources of some streams is to be; `known` is what other joins have asked for."""
    given = asked_by_stream(streams, materialize)
    homes: dict[SourceNode, Payload] = {}
    for alias, when in given.items():
        if alias not in streams:
            raise ConfigError(
                f"materialize={{{alias!r}: …}} names no stream of this join. Its streams are: {', '.join(streams)}."
            )
        if isinstance(when, Late):
            raise ConfigError(
                f"materialize={{{alias!r}: {when}}}: late(…) applies to the whole join. Write materialize="
                f"pk.late(decoupled=True), or {{{alias!r}: 'late'}} for one stream."
            )
        if when not in get_args(Materialize):
            raise ConfigError(f"materialize={when!r} must be one of {', '.join(get_args(Materialize))}.")
        if when == "auto":
            continue
        for source in sources_of(streams[alias]._node):
            if (when, source.payload) in _CONTRARY:
                raise ConfigError(
                    f"materialize={when!r} of {alias} contradicts payload={source.payload!r} of source "
                    f"{source.name!r}. Leave one of the two out."
                )
            home = _home(source, when)
            other = known.get(source, homes.get(source, home))
            if other != home:
                raise ConfigError(
                    f"materialize={when!r} of {alias}: another join, or another stream of this one, keeps the payload "
                    f"of source {source.name!r} in {_IN[other]}. Write the same for both."
                )
            homes[source] = home
    return homes


def _home(source: SourceNode, when: Materialize) -> Payload:
    """Where payload of a source is that comes early or late; what cannot be read again is put into segments."""
    if when == "early":
        return "row"
    return "source" if source.files and source.payload != "segments" else "segments"
