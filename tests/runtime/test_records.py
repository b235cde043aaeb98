"""What shards say of their work, staged and read back."""

from __future__ import annotations

import json

from penstock.core.budget import Budget
from penstock.core.meter import Tally
from penstock.core.waits import Waits
from penstock.runtime.records import ShardRecord, added_up
from penstock.runtime.shard import Arrived


def test_a_record_comes_back_from_a_checkpoint_as_it_was():
    record = ShardRecord(
        rows_by_port=[3, 4],
        bytes_by_port=[30, 40],
        payload_by_port=[0, 8],
        rows_out=2,
        seconds={"work": 0.25},
        peak=99,
        counts={"reads": 1},
        waits=Waits(3, oldest=5, bound=9, unit="days"),
        deferred=1,
        lifted=(7, 2),
        bytes_in=10,
    )
    assert ShardRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert record.rows_in == 7


def test_a_logic_that_counts_nothing_and_lets_nothing_wait_says_so():
    record = ShardRecord.of(object(), Tally(), Budget(10), Arrived([1], [8], [0], ((),)), rows_out=0, seconds={})  # type: ignore[arg-type]
    assert record.counts == {}
    assert record.waits is None


def test_counts_of_shards_add_up_even_where_one_has_none():
    assert added_up([{"hits": 2}, {}, {"hits": 1, "reads": 0}]) == {"hits": 3, "reads": 0}
