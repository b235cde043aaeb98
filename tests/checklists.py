"""Which tests are named after the features of a checklist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parent


def named_after(files: Iterable[str], feature: str) -> dict[str, list[str]]:
    """By id, the tests in some files, given as patterns, whose names have it: `feature` matches an id between `_`."""
    found: dict[str, list[str]] = defaultdict(list)
    for pattern in files:
        paths = sorted(TESTS.glob(pattern))
        assert paths, f"there is no {pattern} any more"
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    for name in re.findall(rf"(?<=_){feature}(?=_)", node.name):
                        found[name.upper()].append(f"{path.relative_to(TESTS)}::{node.name}")
    return found
