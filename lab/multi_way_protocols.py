"""Every interleaving of two rows that should meet: how often each protocol finds the pair (spec multi-way §2.8).

Four things happen: A, the lineitem is stored; B, it probes the orders' store; C, the order is stored; D, it probes the
lineitems' store. B finds the order if C came before, D finds the lineitem if A did. A protocol is what it lets happen
before what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

STEPS = "ABCD"


@dataclass(frozen=True, slots=True)
class Ordering:
    """A protocol: which of two steps is always first, as ``AB`` for A before B, and whether a pair leaves once only."""

    name: str
    first: tuple[str, ...]
    dedupe: bool = False


ORDERINGS = (
    Ordering("concurrent, one FIFO dispatcher, lineitem first", ("AD", "BC")),
    Ordering("concurrent, one FIFO dispatcher, order first", ("DA", "CB")),
    Ordering("concurrent, several dispatchers or no FIFO", ()),
    Ordering("only lineitems chained, FIFO, lineitem first", ("AB", "AD")),
    Ordering("only lineitems chained, FIFO, order first", ("AB", "DA")),
    Ordering("both chained, any order", ("AB", "CD")),
    Ordering("both chained, any order, each pair once", ("AB", "CD"), dedupe=True),
)
"""The rows of the table; the last is what penstock does."""


class Tally(NamedTuple):
    """In how many interleavings the pair is found not at all, once, or twice."""

    missed: int
    once: int
    twice: int

    @property
    def all(self) -> int:
        """How many interleavings there are."""
        return sum(self)


def interleavings(ordering: Ordering) -> Iterator[str]:
    """Every order of the four steps that a protocol allows.

    >>> [*interleavings(Ordering("", ("DA", "AB")))]
    ['CDAB', 'DABC', 'DACB', 'DCAB']
    """
    for steps in permutations(STEPS):
        if all(steps.index(pair[0]) < steps.index(pair[1]) for pair in ordering.first):
            yield "".join(steps)


def found(steps: str) -> int:
    """How often the pair is found.

    >>> [found(steps) for steps in ("BCDA", "ACBD", "ABCD")]
    [0, 2, 1]
    """
    return (steps.index("C") < steps.index("B")) + (steps.index("A") < steps.index("D"))


def tally(ordering: Ordering) -> Tally:
    """A row of the table.

    >>> tally(ORDERINGS[3]), tally(ORDERINGS[-1])
    (Tally(missed=0, once=3, twice=5), Tally(missed=0, once=6, twice=0))
    """
    times = [min(1, found(steps)) if ordering.dedupe else found(steps) for steps in interleavings(ordering)]
    return Tally(*(times.count(each) for each in (0, 1, 2)))
