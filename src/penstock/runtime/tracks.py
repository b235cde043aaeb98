"""How far the sources of a flow are: what their rows showed, what the clock says, and the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.core.progress import Seen, Track, follow, wake
from penstock.core.time import TIME_MAX
from penstock.flow.graph import SourceNode

Tracks = Mapping[str, Track]
"""By the names of sources; one that is missing has shown nothing."""


def followed(sources: Sequence[SourceNode], tracks: Tracks, seen: Mapping[str, Seen], now: int) -> dict[str, Track]:
    """The tracks once an epoch's rows are in; without rows the clock alone moves them."""
    return {
        node.name: follow(tracks.get(node.name, Track()), node.progress, node.unit, seen.get(node.name, Seen()), now)
        for node in sources
    }


def woken(sources: Sequence[SourceNode], tracks: Tracks, now: int) -> dict[str, Track]:
    """Sources that have been silent for their `idle` time hold nobody back."""
    given = [tracks[node.name] for node in sources]
    after = wake(given, [node.progress for node in sources], [node.unit for node in sources], now)
    return {node.name: track for node, track in zip(sources, after, strict=True)}


def ended(sources: Sequence[SourceNode], tracks: Tracks) -> dict[str, Track]:
    """No row comes any more."""
    return {node.name: replace(tracks.get(node.name, Track()), bound=TIME_MAX) for node in sources}
