"""Operators that only experiments use: in-order processing with slack, unions with group-wise progress, pages."""

from penstock.lab.operators.bsort import BSort
from penstock.lab.operators.describing import Describing
from penstock.lab.operators.meld import Meld, News
from penstock.lab.operators.merge import Merge
from penstock.lab.operators.paging import Paging
from penstock.lab.operators.rules import Computed, Projection, select

__all__ = ["BSort", "Computed", "Describing", "Meld", "Merge", "News", "Paging", "Projection", "select"]
