"""An estimate of how many pairs the rows of both sides have, including those not yet emitted.

Rows of either side are counted by bucket of their hashes. Pairs of equal keys are in the same bucket, and of the pairs
of different keys one in as many as there are buckets is, by chance. So the sum S over the buckets of (rows of the one
side × rows of the other) exceeds the number of pairs P by (L·R − P) / B on average, for L and R rows and B buckets:

    P ≈ (B·S − L·R) / (B − 1)

It depends on the arrivals and not on what has met, hence on no policy, and holds for any skew; its standard error is
about √(sum of squared counts of the one side × of the other / B), 3 % if both sides are skewed alike. Whenever all rows
are known to have met, the actual number of results replaces the estimate, and later estimates are added to it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Hashes

_BUCKETS = 1024


class Expected:
    """Rows of both sides by bucket, and the pairs that have come out.

    >>> seen = Expected()
    >>> for port in (0, 1):
    ...     seen.arrive(port, np.arange(10, dtype=np.uint64))
    >>> seen.pairs += 4
    >>> seen.counts()
    {'expected': 10, 'owed': 6}
    """

    def __init__(self) -> None:
        self.rows: npt.NDArray[np.int64] = np.zeros((2, _BUCKETS), np.int64)
        self.pairs = 0
        """How many have come out."""
        self._offset = 0.0
        """What was once known to be missing in the estimate."""

    def arrive(self, port: int, hashes: Hashes) -> None:
        """Some more rows."""
        self.rows[port] += np.bincount((hashes % np.uint64(_BUCKETS)).astype(np.int64), minlength=_BUCKETS)

    def settle(self) -> None:
        """All rows have met: what has come out is all there is so far."""
        self._offset = self.pairs - self._estimated()

    @property
    def total(self) -> float:
        """About how many pairs the rows have in all."""
        return max(float(self.pairs), self._estimated() + self._offset)

    def counts(self) -> dict[str, int]:
        """For the report of an epoch: shards' add up."""
        total = round(self.total)
        return {"expected": total, "owed": total - self.pairs}

    def _estimated(self) -> float:
        left, right = self.rows.astype(np.float64)
        return float(_BUCKETS * (left @ right) - left.sum() * right.sum()) / (_BUCKETS - 1)

    def to_json(self) -> dict[str, Any]:
        """What the next epoch is to know."""
        packed = base64.b64encode(zlib.compress(self.rows.astype("<i8").tobytes(), 1)).decode()
        return {"rows": packed, "pairs": self.pairs, "offset": self._offset}

    def take_up(self, record: Mapping[str, Any]) -> None:
        """Go on from what an epoch before knew."""
        unpacked = np.frombuffer(zlib.decompress(base64.b64decode(record["rows"])), "<i8")
        self.rows = unpacked.reshape(2, _BUCKETS).astype(np.int64)
        self.pairs, self._offset = int(record["pairs"]), float(record["offset"])
