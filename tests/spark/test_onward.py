"""What a shard leaves of its share to what is done with its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock.runtime.steps import Fetch, Select, Step
from penstock.spark.onward import Onward

ASIDE = pa.schema({"aside": pa.int64()})


@dataclass(frozen=True)
class Shard:
    share: int
    set_aside: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"aside": [self.set_aside]}, schema=ASIDE)


@dataclass(frozen=True)
class Take:
    steps: tuple[Step, ...]
    declared: str = "aside long"

    def take(self, results: Iterator[pa.Table], share: int) -> Iterator[pa.RecordBatch]:
        for result in results:
            yield from result.append_column("share", pa.array([share])).to_batches()


@pytest.mark.parametrize(
    ("steps", "aside"), [((Fetch((), ("aside",)),), 1_000), ((Select(("aside",)),), 0), ((), 0)], ids=str
)
def test_a_shard_sets_a_part_of_its_share_aside_where_payload_is_fetched_for_its_results(steps, aside):
    [batch] = Onward(Shard(6_000), ASIDE, Take(steps))(iter(()))
    assert batch.to_pylist() == [{"aside": aside, "share": 6_000}]
