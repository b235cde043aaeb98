"""Operators of progress: they guard, unite, order and describe streams by what these promise (spec 2.1, 2.2, 2.10)."""

from penstock.operators.progress.bsort import BSort
from penstock.operators.progress.describe import Describe, Describing
from penstock.operators.progress.distinct import Distinct
from penstock.operators.progress.dup_elim import DupElim
from penstock.operators.progress.groups import group_batch, group_type
from penstock.operators.progress.guard import Guard
from penstock.operators.progress.meld import Meld, News
from penstock.operators.progress.merge import Merge
from penstock.operators.progress.paging import Paging
from penstock.operators.progress.rules import Computed, Projection, select
from penstock.operators.progress.sort import Sort

__all__ = [
    "BSort",
    "Computed",
    "Describe",
    "Describing",
    "Distinct",
    "DupElim",
    "Guard",
    "Meld",
    "Merge",
    "News",
    "Paging",
    "Projection",
    "Sort",
    "group_batch",
    "group_type",
    "select",
]
