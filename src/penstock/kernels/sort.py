"""Sort rows the way pages keep them: by hash, then time."""

from __future__ import annotations

import numpy as np

from penstock.core.rows import Hashes, Indices
from penstock.core.time import Times


def page_order(hashes: Hashes, times: Times) -> Indices:
    """The indices that sort rows by hash, then time.

    >>> page_order(np.array([2, 1, 2], np.uint64), np.array([5, 9, 4])).tolist()
    [1, 2, 0]
    """
    return np.lexsort((times, hashes))
