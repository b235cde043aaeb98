"""All experiments there are, and how a user names one."""

from __future__ import annotations

import re
from difflib import get_close_matches

from lab import (
    cell_figures,
    chapter3,
    chapter5,
    chapter6,
    early_figures,
    lookup_figures,
    multi_way_figures,
    multi_way_measured,
    multi_way_stream,
    progressive_figures,
    window6,
    window7,
    window8,
)
from lab.experiments import Experiment
from penstock.core.errors import ConfigError

HEADINGS = {
    "Exact window joins": (*chapter3.EXPERIMENTS, *chapter5.EXPERIMENTS),
    "Window queries": (*window6.EXPERIMENTS, *window7.EXPERIMENTS, *window8.EXPERIMENTS),
    "Lookup joins": (*chapter6.EXPERIMENTS, *lookup_figures.EXPERIMENTS),
    "Multi-way joins": (
        *multi_way_figures.EXPERIMENTS,
        *multi_way_measured.EXPERIMENTS,
        *multi_way_stream.EXPERIMENTS,
    ),
    "Progressive joins": (
        *progressive_figures.EXPERIMENTS,
        *cell_figures.EXPERIMENTS,
        *early_figures.EXPERIMENTS,
    ),
}
"""By source, in its order."""

EXPERIMENTS = {each.id: each for some in HEADINGS.values() for each in some}
"""By id."""

_PART = re.compile(r"[a-g](-\w+)?$")
"""What an id has behind the figure's number: a letter, perhaps a variant."""


def find(name: str) -> tuple[Experiment, ...]:
    """The experiment with this id; or those of a chapter, of all of a source but the first, or all.

    >>> [each.id for each in find("fig-3.6a")], len(find("5")) < len(find("all"))
    (['3.6a'], True)
    >>> find("3.6")[0].id, find("window-6")[0].id
    ('3.6a', 'window-6-8')
    >>> [each.id for each in find("lookup-9")][0]
    'lookup-9a'
    """
    plain = name.strip().lower().removeprefix("figure").removeprefix("fig").lstrip("-. ")
    if plain == "all":
        return tuple(EXPERIMENTS.values())
    if plain in EXPERIMENTS:
        return (EXPERIMENTS[plain],)
    found = tuple(each for each in EXPERIMENTS.values() if plain in _names(each))
    if not found:
        raise _unknown(name, plain)
    return found


def _names(experiment: Experiment) -> tuple[str, ...]:
    """What it is found by besides its own id: its chapter, the figure it is a part of, its source."""
    return experiment.chapter, _PART.sub("", experiment.id), experiment.id.partition("-")[0]


def _unknown(name: str, plain: str) -> ConfigError:
    close = get_close_matches(plain, EXPERIMENTS, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]}?" if close else "'penstock lab list' shows what there is."
    return ConfigError(f"There is no experiment {name!r}. {hint} A chapter such as 3, or all, will do as well.")
