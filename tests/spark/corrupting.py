"""Random damage to the files of a real checkpoint, and how to tell whether it was noticed without starting Spark."""

from __future__ import annotations

import random
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import PenstockError
from penstock.storage.files import FilePages
from penstock.storage.versioned import Checkpoint

KINDS = ("flip", "truncate", "delete", "swap", "number", "older file", "older folder")


@dataclass(frozen=True)
class Damage:
    """One change to a checkpoint, drawn by its seed."""

    seed: int

    def apply(self, checkpoint: Path, older: Path) -> str:
        """Do it, and say what was done; `older` is a copy of the same checkpoint from some epochs before."""
        draw = random.Random(self.seed)
        kind = KINDS[self.seed % len(KINDS)]
        files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".crc")
        if kind == "number":
            files = [path for path in files if re.search(rb"\d", path.read_bytes()) and path.suffix != ".arrow"]
        if kind == "swap":
            files = [path for path in files if len(_siblings(path)) > 1]
        if kind == "older file":
            files = [path for path in files if (older / path.relative_to(checkpoint)).exists()]
        path = draw.choice(files)
        how: dict[str, Callable[[], Any]] = {
            "flip": lambda: _flip(path, draw),
            "truncate": lambda: path.write_bytes(path.read_bytes()[: draw.randrange(max(1, path.stat().st_size))]),
            "delete": path.unlink,
            "swap": lambda: _swap(path, draw.choice([other for other in _siblings(path) if other != path])),
            "number": lambda: _change_a_number(path, draw),
            "older file": lambda: shutil.copy(older / path.relative_to(checkpoint), path),
            "older folder": lambda: None,
        }
        if kind == "older folder":
            path = checkpoint / draw.choice(["spark", "ledger", "plan", "state", "spark/offsets", "spark/sources"])
            shutil.rmtree(path)
            shutil.copytree(older / path.relative_to(checkpoint), path)
        how[kind]()
        return f"seed {self.seed}: {kind} of {path.relative_to(checkpoint)}"


def refused(checkpoint: Path, flow: dict[str, Any]) -> PenstockError | None:
    """The error that a start, or the first epoch after it, meets; None if it meets none."""
    try:
        opened = Checkpoint(str(checkpoint))
        opened.claim(flow)
        ledger = opened.latest()
        opened.check(ledger)
        opened.vacuum()
        for operator in ledger.states:
            for name in ledger.names(operator):
                FilePages(opened.pages(operator)).get(name)
    except PenstockError as error:
        return error
    return None


def what_counts(checkpoint: Path) -> dict[str, Any]:
    """Everything that the next epochs go by: if this is as it was, so is what comes out."""
    opened = Checkpoint(str(checkpoint))
    ledger = opened.latest()
    offsets = checkpoint / "spark" / "offsets"
    return {
        "ledger": ledger,
        "planned": opened.planned(ledger.epoch + 1),
        "batch": opened.spark.batch(ledger.epoch),
        "newest": max(int(path.name) for path in offsets.iterdir() if path.name.isdecimal()),
    }


def spark_refuses(checkpoint: Path) -> bool:
    """Whether Spark finds by Hadoop's own checksums that a file of its logs was changed."""
    for path in (checkpoint / "spark").rglob("*"):
        sums = path.with_name(f".{path.name}.crc")
        if path.is_file() and path.suffix != ".crc" and sums.exists():
            content, noted = path.read_bytes(), sums.read_bytes()
            chunks = [content[at : at + 512] for at in range(0, len(content), 512)]
            if noted[8:] != b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks):
                return True
    return False


def _siblings(path: Path) -> list[Path]:
    return sorted(p for p in path.parent.iterdir() if p.is_file() and p.suffix == path.suffix and p.name[0] != ".")


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _change_a_number(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    found = draw.choice(list(re.finditer(rb"\d+", content)))
    number = str(max(0, int(found[0]) + draw.choice([-100, -60, -1, 1, 60, 100]))).encode()
    number = number if number != found[0] else b"7" + number
    path.write_bytes(content[: found.start()] + number + content[found.end() :])
