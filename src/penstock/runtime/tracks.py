"""The progress of a flow's sources: by their rows, by the clock, and at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.core.progress import Seen, Track, follow, wake
from penstock.core.time import TIME_MAX
from penstock.flow.graph import SourceNode

Tracks = Mapping[str, Track]
"""By source name; nothing has been seen of a source that is missing."""


def followed(sources: Sequence[SourceNode], tracks: Tracks, seen: Mapping[str, Seen], now: int) -> dict[str, Track]:
    """The tracks after an epoch's rows; without rows, only the clock moves them."""
    return {
        node.name: follow(tracks.get(node.name, Track()), node.progress, node.unit, seen.get(node.name, Seen()), now)
        for node in sources
    }


def woken(sources: Sequence[SourceNode], tracks: Tracks, now: int) -> dict[str, Track]:
    """The tracks, with sources that have been silent for their `idle` time no longer holding others back."""
    given = [tracks[node.name] for node in sources]
    after = wake(given, [node.progress for node in sources], [node.unit for node in sources], now)
    return {node.name: track for node, track in zip(sources, after, strict=True)}


def ended(sources: Sequence[SourceNode], tracks: Tracks) -> dict[str, Track]:
    """The tracks at the end of all sources."""
    return {node.name: replace(tracks.get(node.name, Track()), bound=TIME_MAX) for node in sources}
