"""All experiments there are, and how a user names one."""

from __future__ import annotations

from difflib import get_close_matches

from penstock.core.errors import ConfigError
from penstock.lab import chapter3, chapter5
from penstock.lab.experiments import Experiment

EXPERIMENTS = {each.id: each for each in (*chapter3.EXPERIMENTS, *chapter5.EXPERIMENTS)}
"""By id, in the order of the thesis."""


def find(name: str) -> tuple[Experiment, ...]:
    """The experiment with this id; or those of a chapter, or all.

    >>> [each.id for each in find("fig-3.6a")], len(find("5")) < len(find("all"))
    (['3.6a'], True)
    >>> find("3.6")[0].id
    '3.6a'
    """
    plain = name.strip().lower().removeprefix("figure").removeprefix("fig").lstrip("-. ")
    if plain == "all":
        return tuple(EXPERIMENTS.values())
    if plain in EXPERIMENTS:
        return (EXPERIMENTS[plain],)
    found = tuple(each for each in EXPERIMENTS.values() if each.chapter == plain or each.id.rstrip("abc") == plain)
    if not found:
        raise _unknown(name, plain)
    return found


def _unknown(name: str, plain: str) -> ConfigError:
    close = get_close_matches(plain, EXPERIMENTS, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]}?" if close else "'penstock lab list' shows what there is."
    return ConfigError(f"There is no experiment {name!r}. {hint} A chapter such as 3, or all, will do as well.")
