"""Late materialization by its cost model alone: the curves of Figs 4.9 to 4.12, at the inputs that the thesis gives.

Three relations, ``(R1 R2) R3``, keys of 0.05 KB and payload of 1 KB, 1,000 rows each unless a sweep says otherwise. The
thesis gives no selectivity between R2 and R3: they share no predicate, so it is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lab.feeding import Counted, totals
from lab.measures import Measure, Point
from lab.simulation import Watch
from penstock.operators.multi_way import Plan
from penstock.planner.multi_way import JoinCost, JoinLoad, Relation, predict_join

STORED = Measure("stored", "stored", "KB")
MOVED = Measure("moved", "moved by join and reconstruction", "KB")
RESULTS = Measure("results", "results", "tuples")

PLAN = Plan.parse("(R1 R2) R3", ["R1.a = R2.a", "R1.b = R3.b"])
KEYS, PAYLOAD, ROWS = 0.05, 1.0, 1000.0
"""KB, KB, and rows of each relation."""

STEP, STEPS = 1e-5, 241
"""The sweep of Figs 4.9 and 4.10, as inferred from its ends: f12 then really ends at 2.401e-3."""
_APART = 9e-6
"""f13 is so much above f12."""


@dataclass(frozen=True, slots=True)
class Modelled(Counted):
    """One point of a curve: what a mode costs at two selectivities, a payload in KB and a number of rows."""

    mode: Literal["early", "late"]
    f12: float = 1 / ROWS
    f13: float = 1 / ROWS
    rows: float = ROWS
    payload: float = PAYLOAD

    @property
    def stem(self) -> str:
        """The name of the class."""
        return "multi-modelled"

    @property
    def code(self) -> tuple[str, ...]:
        """The model, and this module."""
        return ("penstock.operators.multi_way", "penstock.planner.multi_way", type(self).__module__)

    @property
    def cost(self) -> JoinCost:
        """All costs, in KB."""
        relations = {name: Relation(self.rows, KEYS, self.payload) for name in PLAN.rels}
        rates = {frozenset(("R1", "R2")): self.f12, frozenset(("R1", "R3")): self.f13}
        return predict_join(PLAN, JoinLoad(relations, rates), PLAN.rels if self.mode == "early" else ())

    def point(self, scale: float, seed: int, watch: Watch) -> Point:
        """By the model, whatever the scale."""
        cost = self.cost
        results = self.f12 * self.f13 * self.rows**3
        return totals({STORED: cost.storage, MOVED: cost.bytes(), RESULTS: results})

    def __str__(self) -> str:
        return f"{self.mode}, f12 = {self.f12:g}, f13 = {self.f13:g}, {self.rows:g} rows, {self.payload:g} KB"


def products() -> tuple[float, ...]:
    """The x-axis of Figs 4.9 and 4.10: the product of both selectivities at every step.

    >>> len(products()), f"{products()[0]:.3g}", f"{products()[-1]:.4g}"
    (241, '1e-11', '5.786e-06')
    """
    return tuple((1e-6 + step * STEP) * (1e-6 + step * STEP + _APART) for step in range(STEPS))


def at_product(trial: Modelled, product: float) -> Modelled:
    """With the two selectivities that have this product on the sweep.

    >>> f"{at_product(Modelled('late'), products()[-1]).f12:.4g}"
    '0.002401'
    """
    f12 = (math.sqrt(_APART**2 + 4 * product) - _APART) / 2
    return Modelled(trial.mode, f12, f12 + _APART, trial.rows, trial.payload)


def at_rows(trial: Modelled, rows: float) -> Modelled:
    """With so many rows in each relation, each of which joins one row of the others."""
    return Modelled(trial.mode, 1 / rows, 1 / rows, rows, trial.payload)
