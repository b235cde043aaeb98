"""What ``penstock lab list | run | report | record | check`` does."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import records, small
from lab.catalog import HEADINGS, find
from lab.experiments import Experiment
from lab.progress import watching
from lab.report import report
from lab.run import Lab
from lab.verdicts import tell


def show(options: argparse.Namespace) -> int:
    """Print which experiments there are."""
    for heading, experiments in HEADINGS.items():
        print(heading)
        width = max(len(experiment.id) for experiment in experiments)
        for experiment in experiments:
            print(f"  {experiment.id.ljust(width)}  {experiment.title}")
    return 0


def run(options: argparse.Namespace) -> int:
    """Run some; the exit code is 1 if one was not reproduced, or in part only."""
    experiments = _named(options.ids)
    lab = Lab(options.out, options.scale, options.seeds)
    words = []
    with watching(lab.missing(experiments)) as watcher:
        for verdict in lab.run(experiments, watcher):
            print(verdict, flush=True)
            words.append(verdict.word)
    print(f"{tell(words)}; results are in {options.out}")
    return 0 if set(words) == {"reproduced"} else 1


def put_together(options: argparse.Namespace) -> int:
    """Put all results into one page."""
    print(report(options.out))
    return 0


def keep(options: argparse.Namespace) -> int:
    """Put the verdicts of a results folder on record, and write the pages about them anew."""
    for path in records.record(options.out):
        print(path)
    return 0


def check(options: argparse.Namespace) -> int:
    """Run some in small and compare with what was recorded; the exit code is 1 if a check came out otherwise."""
    flipped = False
    experiments = [small.small(each) for each in _named(options.ids or ["all"]) if each.id not in small.MEASURED]
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        with watching(lab.missing(experiments)) as watcher:
            for verdict in lab.run(experiments, watcher):
                flips = small.flips(verdict)
                print(f"{verdict.id}: {', '.join(flips) or 'as recorded'}", flush=True)
                flipped = flipped or bool(flips)
                if options.update:
                    small.record([verdict])
    return 1 if flipped and not options.update else 0


def _named(ids: Sequence[str]) -> list[Experiment]:
    """The experiments that are meant, each once."""
    return list({found.id: found for name in ids for found in find(name)}.values())


COMMANDS = {"list": show, "run": run, "report": put_together, "record": keep, "check": check}
"""By the word behind ``penstock lab``."""
