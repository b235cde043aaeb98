"""When the rows of a join of several streams get their payload: what is written, and what it asks of sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, get_args

from penstock.core.errors import ConfigError
from penstock.core.files import Payload
from penstock.flow.graph import SourceNode, sources_of
from penstock.flow.plans import Materialize

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

_IN: dict[Payload, str] = {"row": "the row", "source": "the source", "segments": "segments"}


def asked_by_stream(
    streams: Iterable[str], materialize: Materialize | Mapping[str, Materialize]
) -> Mapping[str, Materialize]:
    """What is asked of each stream that something is asked of."""
    return materialize if isinstance(materialize, Mapping) else dict.fromkeys(streams, materialize)


def asked_homes(
    streams: Mapping[str, Stream],
    materialize: Materialize | Mapping[str, Materialize],
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
        if when not in get_args(Materialize):
            raise ConfigError(f"materialize={when!r} must be one of {', '.join(get_args(Materialize))}.")
        if when == "auto":
            continue
        for source in sources_of(streams[alias]._node):
            home = _home(source, when)
            other = known.get(source, homes.get(source, home))
            if other != home:
                raise ConfigError(
                    f"materialize={when!r} of {alias}: another join, or another stream of this one, wants the payload "
                    f"of source {source.name!r} to be in {_IN[other]}. Write the same for both."
                )
            homes[source] = home
    return homes


def _home(source: SourceNode, when: Materialize) -> Payload:
    """Where payload of a source is that comes early or late; what cannot be read again is put into segments."""
    if when == "early":
        return "row"
    return "source" if source.files and source.payload != "segments" else "segments"
