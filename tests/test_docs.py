"""What the pages under docs/ show runs, and gives what they say; what they link to is there."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path

import pytest

from penstock.operators import aggregate, lookup, multi_way, window_join

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


def test_the_map_of_cells_is_what_its_script_draws():
    folder = DOCS[0].parent / "spatial"
    script = runpy.run_path(str(folder / "draw.py"))
    assert (folder / "cells.svg").read_text() == script["drawn"]()
    assert len(script["pairs"]()) == 4


METHOD_TABLES = {
    "window-joins.md": window_join.METHODS,
    "windows.md": aggregate.METHODS,
    "lookup.md": lookup.METHODS,
    "multi-way.md": multi_way.METHODS,
}


@pytest.mark.parametrize("page", METHOD_TABLES)
def test_every_method_is_in_the_tables_of_its_page_and_no_other(page: str):
    """Names stand in code style in the first cell of tables that begin with 'method'."""
    text = (DOCS[0].parent / page).read_text()
    tables = re.findall(r"^\| `?method=?`? \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()]
    names = [name.strip('"') for cell in cells for name in re.findall(r"`(\"?[a-z_-]+\"?)`", cell)]
    assert sorted({*names} - {"auto"}) == sorted(METHOD_TABLES[page])
