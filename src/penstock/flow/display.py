"""How flows, streams and queries show themselves: in a line at a prompt, as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

State = Literal["running", "stopping", "stopped", "failed", "ended"]
"""`ended` is a query whose streams have ended: nothing more can come out."""


class Explanation(str):
    """The text of `explain()`. A prompt and a notebook show it as it reads; in a script, print it.

    >>> Explanation("On Spark: 64.0 MB")
    On Spark: 64.0 MB
    """

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return preformatted(self)


@dataclass(frozen=True, slots=True)
class Status:
    """What a query is doing, and the last epoch that it committed.

    >>> Status("running", epoch=4)
    running, last committed epoch: 4
    >>> Status("failed")
    failed, no epoch committed
    """

    state: State
    epoch: int | None = None

    def __repr__(self) -> str:
        return (
            f"{self.state}, no epoch committed"
            if self.epoch is None
            else (f"{self.state}, last committed epoch: {self.epoch}")
        )


def preformatted(text: str) -> str:
    """Text in HTML, line by line as it is.

    >>> preformatted("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in HTML.

    >>> table("Columns", ["name"], [["id"]])
    '<p>Columns</p><table><tr><th>name</th></tr><tr><td>id</td></tr></table>'
    """
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>"


def _row(cell: str, values: Sequence[object]) -> str:
    cells = (f"<{cell}>{escape(str(value))}</{cell}>" for value in values)
    return f"<tr>{''.join(cells)}</tr>"
