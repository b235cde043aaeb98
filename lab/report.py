"""One page with everything a results folder has: verdicts, numbers beside the thesis', pictures inside the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from lab.catalog import EXPERIMENTS
from lab.experiments import caption
from lab.verdicts import Verdict, Word, tell
from penstock.core.errors import FlowError

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 3rem 0 0.3rem; font-size: 1.2rem; }
p.under { margin: 0 0 0.8rem; opacity: 0.7; font-size: 0.9rem; }
img { max-width: 100%; background: white; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; margin: 0.8rem 0; font-size: 0.92rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.7rem 0.3rem 0; border-bottom: 1px solid #8884; }
.yes { color: #11875d; font-weight: 600; }
.part { color: #a06a00; font-weight: 600; }
.no { color: #c4451c; font-weight: 600; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>penstock lab</title>
<style>{style}</style>
</head>
<body>
<h1>penstock lab</h1>
<p>Of {count} figures {words}. Each was run at a part of the thesis' size; counts, bytes and rates of
simulations are shown at full size. The numbers of the thesis are those that its text gives.</p>
<table>
<tr><th>Figure</th><th></th><th>Verdict</th><th>Checks</th></tr>
{summary}
</table>
{figures}
</body>
</html>
"""


def report(out: Path) -> Path:
    """Write ``report.html`` in the results folder `out`, from what was run there."""
    found = [out / name for name in EXPERIMENTS if (out / name / "verdict.json").exists()]
    if not found:
        raise FlowError(f"There are no results in {out}. Run some first: penstock lab run 3.4 --out {out}.")
    page = out / "report.html"
    page.write_text(_page([(folder, Verdict.read(folder / "verdict.json")) for folder in found]), encoding="utf-8")
    return page


def _page(results: Sequence[tuple[Path, Verdict]]) -> str:
    return _PAGE.format(
        style=_STYLE,
        words=tell(verdict.word for _, verdict in results),
        count=len(results),
        summary="\n".join(_line(verdict) for _, verdict in results),
        figures="\n".join(part for folder, verdict in results for part in _figure(folder, verdict)),
    )


def _line(verdict: Verdict) -> str:
    passed = sum(outcome.passed for outcome in verdict.outcomes)
    return (
        f'<tr><td><a href="#fig-{verdict.id}">{verdict.id}</a></td><td>{escape(verdict.title)}</td>'
        f"<td>{_coloured(_CLASSES[verdict.word], verdict.word)}</td><td>{passed} of {len(verdict.outcomes)}</td></tr>"
    )


def _figure(folder: Path, verdict: Verdict) -> Iterator[str]:
    picture = base64.b64encode((folder / "plot.png").read_bytes()).decode()
    yield f'<h2 id="fig-{verdict.id}">{caption(verdict.id)}: {escape(verdict.title)}</h2>'
    yield f'<p class="under">{escape(verdict.conditions)}</p>'
    yield f'<img alt="{escape(verdict.title)}" src="data:image/png;base64,{picture}">'
    yield "<table><tr><th></th><th>The thesis</th><th>Measured</th></tr>"
    for outcome in verdict.outcomes:
        word = "yes" if outcome.passed else "no"
        says, numbers = escape(outcome.sentence), escape(outcome.numbers)
        yield f"<tr><td>{_coloured(word, word)}</td><td>{says}</td><td>{numbers}</td></tr>"
    yield "</table>"
    if verdict.remark:
        yield f"<p>{escape(verdict.remark)}</p>"


_CLASSES: dict[Word, str] = {"reproduced": "yes", "in part": "part", "not": "no"}


def _coloured(kind: str, text: str) -> str:
    return f'<span class="{kind}">{text}</span>'
