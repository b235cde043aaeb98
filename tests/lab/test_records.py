"""Verdicts on record: the pages under docs/lab are those that the command writes, and tell of every figure."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from PIL import Image

from lab import records
from lab.catalog import EXPERIMENTS, HEADINGS
from lab.verdicts import Outcome, Verdict
from penstock.core.errors import FlowError

YES, NO = (Outcome(str(passed), f"It is {passed}.", passed, {"at 1": 2.0}, {"at 1": 3.0}) for passed in (True, False))
VERDICT = Verdict("window-8-8", "old title", "two links", 1 / 400, 5, (YES, NO, replace(NO, name="r", kind="reason")))


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_page_of_a_source_is_what_the_command_writes(heading):
    page = (records.PAGES / f"{records.NAMES[heading]}.md").read_text(encoding="utf-8")
    assert page == records.page(heading, records.recorded(heading)), "write it: penstock lab record"


ON_RECORD = [Verdict.read(path) for path in sorted(records.FOLDER.glob("*.json")) if path.stem in EXPERIMENTS]


@pytest.mark.parametrize("verdict", ON_RECORD, ids=lambda each: each.id)
def test_what_is_on_record_is_about_the_checks_of_today(verdict):
    assert records.is_of_today(verdict), f"run it again: penstock lab run {verdict.id}"


@pytest.mark.parametrize("verdict", ON_RECORD, ids=lambda each: each.id)
def test_where_a_claim_does_not_come_out_the_reader_is_told_why(verdict):
    assert verdict.word == "reproduced" or EXPERIMENTS[verdict.id].remark


def test_a_verdict_of_other_checks_is_not_told(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    VERDICT.write(tmp_path / "window-8-8.json")
    assert records.recorded("Window queries") == []


def test_a_page_has_a_line_and_a_part_for_each_figure():
    page = records.page("Window queries", [VERDICT.told("Tuples held", "Because.")])
    assert "Of 1 figures 0 reproduced, 1 in part, 0 not." in page
    assert "| [window-8-8](#fig-8-8) | Tuples held | in part | 1 of 2 | 1/400, 5 seeds |" in page
    assert "## Fig 8-8\n\n**In part**. Tuples held; two links; scale 1/400, 5 seeds.\n" in page
    assert "| yes | It is True. | at 1: 2 (thesis: 3) |\n| no | It is False. | at 1: 2 (thesis: 3) |" in page
    assert "| no | (reason) It is False. |" in page
    assert page.endswith("\nBecause.\n")
    assert "| window-8-9 | Q8-3, join of two unions: tuples held over the skew | not on record |" in page


def test_fewer_seeds_than_asked_for_are_told():
    short = replace(VERDICT, id="5.8", seeds=2)
    assert "| 1/400, 2 seeds of 5 |" in records.page("Exact window joins", [short])


def test_what_was_run_is_put_on_record(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path / "recorded")
    monkeypatch.setattr(records, "PAGES", tmp_path / "docs")
    outcomes = tuple(
        Outcome(check.name, check.says, bool(place), {}, {}, check.kind)
        for place, check in enumerate(EXPERIMENTS["window-8-8"].expected)
    )
    (tmp_path / "out" / "window-8-8").mkdir(parents=True)
    Image.effect_noise((1200, 800), 90).save(tmp_path / "out" / "window-8-8" / "plot.png")
    replace(VERDICT, outcomes=outcomes).write(tmp_path / "out" / "window-8-8" / "verdict.json")
    assert records.record(tmp_path / "out") == [tmp_path / "docs" / "window-queries.md"]
    (told,) = records.recorded("Window queries")
    assert (told.outcomes, told.title) == (outcomes, EXPERIMENTS["window-8-8"].title)
    page = (tmp_path / "docs" / "window-queries.md").read_text(encoding="utf-8")
    assert re.search(r"Q8-2.*in part", page)
    assert "![" not in page


def test_a_small_copy_of_the_picture_goes_beside_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path / "recorded")
    monkeypatch.setattr(records, "PAGES", tmp_path / "docs")
    outcomes = tuple(
        Outcome(check.name, check.says, True, {}, {}, check.kind) for check in EXPERIMENTS["progressive-4-1"].expected
    )
    folder = tmp_path / "out" / "progressive-4-1"
    folder.mkdir(parents=True)
    replace(VERDICT, id="progressive-4-1", outcomes=outcomes).write(folder / "verdict.json")
    Image.effect_noise((1200, 800), 90).save(folder / "plot.png")
    records.record(tmp_path / "out")
    copy = tmp_path / "docs" / "fig-progressive-4-1.png"
    assert 0 < copy.stat().st_size < 60_000 < (folder / "plot.png").stat().st_size
    title = EXPERIMENTS["progressive-4-1"].title
    page = (tmp_path / "docs" / "progressive-joins.md").read_text(encoding="utf-8")
    assert f"![{title}](fig-progressive-4-1.png)" in page


def test_every_picture_of_a_page_is_small_and_shown():
    for name in records.PICTURED:
        assert (records.PAGES / f"fig-{name}.png").stat().st_size < 60_000
        assert f"](fig-{name}.png)" in (records.PAGES / "progressive-joins.md").read_text(encoding="utf-8")


def test_nothing_to_put_on_record(tmp_path):
    with pytest.raises(FlowError, match="There are no results in"):
        records.record(tmp_path)
