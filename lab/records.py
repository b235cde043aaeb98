"""Verdicts on record, and the pages about them: one per source, written by ``penstock lab record``, never by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.catalog import EXPERIMENTS, HEADINGS
from lab.experiments import Experiment, caption
from lab.plots import small_copy
from lab.verdicts import Verdict, tell
from penstock.core.errors import FlowError

FOLDER = Path(__file__).parent / "recorded"
"""A file for each figure."""
PAGES = Path(__file__).parents[1] / "docs" / "lab"

NAMES = {
    "Exact window joins": "window-joins",
    "Window queries": "window-queries",
    "Lookup joins": "lookup-joins",
    "Multi-way joins": "multi-way-joins",
    "Progressive joins": "progressive-joins",
}
"""What the page of a source is called."""

PICTURED = frozenset(
    f"progressive-{number}"
    for number in ("4-1", "4-2", "4-3", "4-6", "4-7", "t4-3", "5-4", "6-1", "6-2", "6-3", "6-4", "6-7")
)
"""Whose pictures the pages show: those that tell most."""

_HEAD = """\
# {heading}: what the lab reproduces

`penstock lab run ID` repeats a figure of the source in a checkout; `penstock lab record` writes this page from the
results. {told}.

A verdict goes by the source's claims: *reproduced* if all of them came out, *in part* if some did, *not* if none did.
Checks marked *anchor* are numbers that a constant was calibrated on, *reason* a test of our own explanation; neither
counts. A scale of 1/200 is a two-hundredth of the source's size; the numbers are scaled back. "1 seed of 5" is a run
with fewer pairs of traces than the experiment is defined with.

| figure | | verdict | claims that came out | run at |
|---|---|---|---|---|
"""


def record(out: Path) -> list[Path]:
    """Put what is in the results folder `out` on record, with small pictures; the pages that are written then."""
    found = [out / name / "verdict.json" for name in EXPERIMENTS if (out / name / "verdict.json").exists()]
    if not found:
        raise FlowError(f"There are no results in {out}. Run some first: penstock lab run 3.4 --out {out}.")
    FOLDER.mkdir(exist_ok=True)
    for path in found:
        Verdict.read(path).write(FOLDER / f"{path.parent.name}.json")
        drawn = path.with_name("plot.png")
        if path.parent.name in PICTURED and drawn.exists():
            small_copy(drawn, _picture(path.parent.name))
    return write_pages()


def recorded(heading: str) -> list[Verdict]:
    """The verdicts on record of a source, in its order; those of other checks than today's are not."""
    paths = [FOLDER / f"{experiment.id}.json" for experiment in HEADINGS[heading]]
    return [_as_now(verdict) for path in paths if path.exists() and is_of_today(verdict := Verdict.read(path))]


def is_of_today(verdict: Verdict) -> bool:
    """Whether a verdict is about the checks that its experiment has now."""
    now = [(check.name, check.says, check.kind) for check in EXPERIMENTS[verdict.id].expected]
    return [(each.name, each.says, each.kind) for each in verdict.outcomes] == now


def write_pages() -> list[Path]:
    """Write the page of every source that has verdicts on record."""
    PAGES.mkdir(parents=True, exist_ok=True)
    pages = []
    for heading, name in NAMES.items():
        if verdicts := recorded(heading):
            pages.append(PAGES / f"{name}.md")
            pages[-1].write_text(page(heading, verdicts), encoding="utf-8")
    return pages


def page(heading: str, verdicts: Sequence[Verdict]) -> str:
    """The page of a source."""
    head = _HEAD.format(heading=heading, told=f"Of {len(verdicts)} figures {tell(each.word for each in verdicts)}")
    told = {verdict.id: verdict for verdict in verdicts}
    lines = [_line(told[each.id]) if each.id in told else _missing(each) for each in HEADINGS[heading]]
    return head + "\n".join(lines) + "\n" + "".join(f"\n{part}\n" for each in verdicts for part in _figure(each))


def _line(verdict: Verdict) -> str:
    claims = [outcome for outcome in verdict.outcomes if outcome.kind == "claim"]
    came = f"{sum(claim.passed for claim in claims)} of {len(claims)}"
    link = f"[{verdict.id}](#{_anchor(verdict)})"
    asked = EXPERIMENTS[verdict.id].seeds
    size = verdict.size if verdict.seeds >= asked else f"{verdict.size} of {asked}"
    return f"| {link} | {_cell(verdict.title)} | {verdict.word} | {came} | {size} |"


def _missing(experiment: Experiment) -> str:
    run = f"`penstock lab run {experiment.id}`, `penstock lab record`"
    return f"| {experiment.id} | {_cell(experiment.title)} | not on record | {run} | |"


def _figure(verdict: Verdict) -> Iterator[str]:
    yield f"## {_heading(verdict)}"
    yield f"**{verdict.word.capitalize()}**. {verdict.title}; {verdict.conditions}."
    rows = [
        f"| {'yes' if each.passed else 'no'} | {_cell(each.sentence)} | {_cell(each.numbers)} |"
        for each in verdict.outcomes
    ]
    yield "\n".join(["| | the source | measured |", "|---|---|---|", *rows])
    if verdict.id in PICTURED and _picture(verdict.id).exists():
        yield f"![{verdict.title}]({_picture(verdict.id).name})"
    if verdict.remark:
        yield verdict.remark


def _picture(name: str) -> Path:
    """Where the small picture of a figure is."""
    return PAGES / f"fig-{name}.png"


def _heading(verdict: Verdict) -> str:
    return caption(verdict.id).rpartition(", ")[2]


def _anchor(verdict: Verdict) -> str:
    """What a heading is called in links: without dots, in lower case."""
    return _heading(verdict).lower().replace(".", "").replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _as_now(verdict: Verdict) -> Verdict:
    """With the title and the remark that the experiment has today: they are about the results, not of them."""
    experiment = EXPERIMENTS[verdict.id]
    return verdict.told(experiment.title, experiment.remark)
