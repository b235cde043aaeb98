"""Measured points on disk: a run is simulated once, however many figures show it and however often they are drawn.

A point is a CSV of (measure, time, value), time being empty for what is one number per run. Its name has a digest of
all that the numbers depend on: the setup, the scale, the seed and the code that simulates.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from lab.measures import Point, Trial
from lab.simulation import Watch


class Points:
    """The points in `folder`.

    >>> import tempfile
    >>> points = Points(Path(tempfile.mkdtemp()))
    >>> from lab.setups import Setup, Workload
    >>> from penstock.operators.window_join.methods import Ewj
    >>> method = Ewj(memory=40 << 20, page=4096, row=128, chunk=1 << 20)
    >>> setup = Setup(Workload(rate=200, span=60, warm_up=10), window=20, method=method)
    >>> points.known(setup, scale=0.1, seed=0)
    False
    >>> sorted(points.take(setup, scale=0.1, seed=0).paths)
    ['buffered', 'outputs', 'processed']
    >>> points.known(setup, scale=0.1, seed=0)
    True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def known(self, setup: Trial, scale: float, seed: int) -> bool:
        """Whether the point is there."""
        return self._path(setup, scale, seed).exists()

    def take(self, setup: Trial, scale: float, seed: int, watch: Watch = lambda _: None) -> Point:
        """The point, simulated if it is not there."""
        path = self._path(setup, scale, seed)
        if not path.exists():
            _write(path, setup.point(scale, seed, watch))
        return _read(path)

    def _path(self, setup: Trial, scale: float, seed: int) -> Path:
        digest = hashlib.sha256(f"{setup!r} {scale!r} {seed} {_code(setup.code)}".encode()).hexdigest()[:16]
        return self.folder / f"{setup.stem}-seed{seed}-{digest}.csv"


@cache
def _code(parts: tuple[str, ...]) -> str:
    """A digest of the code that a point depends on: numbers of other code are other numbers."""
    files = [path for part in parts for path in _sources(part)]
    return hashlib.sha256("".join(_meaning(path) for path in files).encode()).hexdigest()


def _meaning(path: Path) -> str:
    """A module without its comments and docstrings, which change no number."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
    return ast.dump(tree)


def _is_text(part: ast.stmt) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)


def _sources(name: str) -> Iterator[Path]:
    """The files of a module or a package."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"There is no module {name}, which the lab's numbers depend on.", name=name)
    path = Path(spec.origin)
    yield from sorted(path.parent.rglob("*.py")) if spec.submodule_search_locations else [path]


def _write(path: Path, point: Point) -> None:
    """Written aside and renamed, so that a run that is broken off leaves no half of a point."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    with aside.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["measure", "time", "value"])
        rows.writerows([name, "", repr(value)] for name, value in point.totals.items())
        for name, values in point.paths.items():
            rows.writerows([name, repr(float(t)), repr(float(v))] for t, v in zip(point.times, values, strict=True))
    aside.replace(path)


def _read(path: Path) -> Point:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    totals = {row["measure"]: float(row["value"]) for row in rows if not row["time"]}
    paths: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["time"]:
            paths.setdefault(row["measure"], []).append((float(row["time"]), float(row["value"])))
    times = np.array([time for time, _ in next(iter(paths.values()), [])])
    return Point(totals, times, {name: np.array([value for _, value in some]) for name, some in paths.items()})
