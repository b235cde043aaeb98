"""What the pages under docs/ show runs, and gives what they say; what they link to is there."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path

import pytest

DOCS = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_examples_run(page: Path):
    blocks = re.findall(r"```python\n(>>> .*?)```", page.read_text(), flags=re.DOTALL)
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_pictures_and_pages_that_are_linked_are_there(page: Path):
    linked = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [name for name in linked if not (page.parent / name).exists()] == []


def test_every_kind_of_window_has_its_picture():
    folder = DOCS[0].parent / "windows"
    script = runpy.run_path(str(folder / "draw.py"))
    assert {picture.name for picture in script["PICTURES"]} == {path.stem for path in folder.glob("*.png")}
    assert all(script["results"](picture) for picture in script["PICTURES"])
