"""Operators on progress: they guard, sort and describe streams, and drop duplicates, by their bounds."""

from penstock.operators.progress.describe import Describe
from penstock.operators.progress.distinct import Distinct
from penstock.operators.progress.dup_elim import DupElim
from penstock.operators.progress.groups import group_type
from penstock.operators.progress.guard import Guard
from penstock.operators.progress.head import Head
from penstock.operators.progress.later import Later
from penstock.operators.progress.sort import Sort
from penstock.operators.progress.top import Top

__all__ = ["Describe", "Distinct", "DupElim", "Guard", "Head", "Later", "Sort", "Top", "group_type"]
