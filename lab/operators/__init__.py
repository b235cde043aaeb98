"""Operators that only experiments use: in-order processing with slack, unions with group-wise progress, pages."""

from lab.operators.bsort import BSort
from lab.operators.describing import Describing
from lab.operators.meld import Meld, News
from lab.operators.merge import Merge
from lab.operators.paging import Paging
from lab.operators.rules import Computed, Projection, select

__all__ = ["BSort", "Computed", "Describing", "Meld", "Merge", "News", "Paging", "Projection", "select"]
