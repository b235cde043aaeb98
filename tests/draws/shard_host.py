"""Drives joins as the Spark host does, without Spark: its task code, its bounds, a real checkpoint, restarts.

A Spark epoch of a case takes half a second, most of it Spark's; here it takes milliseconds. What is left out is what
Spark does itself: hashing, the shuffle and the streaming query.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.progress import Policy, Seen, Track, follow
from penstock.core.routes import Keyed
from penstock.core.rows import TIME
from penstock.core.time import TIME_MAX, TIME_MIN, as_times
from penstock.flow.graph import OperatorNode
from penstock.kernels.hashing import hash_keys
from penstock.kernels.route import hash_range, shard_of
from penstock.runtime.entering import Entry
from penstock.runtime.shard import PortBounds
from penstock.spark.arrivals import Inlet
from penstock.spark.task import ShardTask, packed
from penstock.storage.versioned import Checkpoint, Ledger, next_ledger, state_from_json

NAME = "join"


class ShardHost:
    """One join on one checkpoint. Between epochs nothing stays but files; `late` are the ids of rows that came late."""

    def __init__(
        self,
        node: OperatorNode,
        policies: tuple[Policy, ...],
        folder: str,
        memory: int,
        spare: float | None = None,
    ) -> None:
        self._node = node
        self._spare = spare
        self._policies = policies
        self._checkpoint = Checkpoint(folder)
        self._memory = memory
        self.late: list[int] = []
        self.out: list[pa.RecordBatch] = []

    def epoch(self, sides: Sequence[pa.Table], shards: int, method: Any, rng: random.Random) -> None:
        """Run and commit an epoch with these rows."""
        ledger = self._checkpoint.latest()
        tracks = [ledger.tracks.get(str(port), Track()) for port in self._ports]
        entering, after = [], []
        sites = ledger.sites or shards
        for port, rows in enumerate(sides):
            kept, seen = self._in_time(rows, tracks[port])
            entering.append(self._entering(port, kept, sites))
            after.append(follow(tracks[port], self._policies[port], self._node.unit, seen, now=0))
        self._run(ledger, [track.bound for track in tracks], after, entering, shards, method, rng)

    def end(self, shards: int, method: Any, rng: random.Random) -> None:
        """End all streams."""
        ledger = self._checkpoint.latest()
        tracks = [replace(ledger.tracks.get(str(port), Track()), bound=TIME_MAX) for port in self._ports]
        none = [self._entering(port, self._node.inputs[port].columns.empty_table(), shards) for port in self._ports]
        self._run(ledger, [TIME_MAX for _ in self._ports], tracks, none, shards, method, rng)

    @property
    def _ports(self) -> range:
        return range(len(self._node.inputs))

    def _in_time(self, rows: pa.Table, track: Track) -> tuple[pa.Table, Seen]:
        times = as_times(rows.column("t"))
        in_time = pc.fill_null(pc.greater_equal(times, track.bound), False)
        self.late += rows.filter(pc.invert(in_time)).column("id").to_pylist()
        kept = rows.filter(in_time)
        marks = pc.max(as_times(rows.column("mark"))).as_py() if "mark" in rows.column_names else None
        top = pc.max(times).as_py()
        return kept, Seen(kept.num_rows, TIME_MIN if top is None else top, TIME_MIN if marks is None else marks)

    def _entering(self, port: int, rows: pa.Table, sites: int) -> pa.RecordBatch:
        """Rows as they leave the shuffle. A null key meets nothing: such a row goes anywhere if it is kept."""
        types = self._node.types[port]
        if not types.keys or not isinstance(self._node.config.route(port), Keyed):
            timed = rows.append_column(TIME, as_times(rows.column("t")))
            copies = pa.Table.from_batches(Entry.of(self._node, port, sites).enter(timed, "hash_keys"), types.inside)
            return next(iter(copies.combine_chunks().to_batches()), pa.RecordBatch.from_pylist([], types.inside))
        cast = rows.select(types.columns.names).cast(types.columns)
        keys = [cast.column(key).combine_chunks() for key in types.keys]
        times = as_times(cast.column("t"))
        null = np.zeros(len(cast), bool)
        for key in keys:
            null |= key.is_null().to_numpy(zero_copy_only=False)
        hashes = np.where(null, hash_keys([_one(times)]), hash_keys(keys))
        entered = types.enter(cast.append_column("__time", times), hashes)
        return entered if self._node.config.null_keys(port) == "spread" else entered.filter(pa.array(~null))

    def _run(
        self,
        ledger: Ledger,
        bounds: Sequence[int],
        after: Sequence[Track],
        entering: Sequence[pa.RecordBatch],
        shards: int,
        method: Any,
        rng: random.Random,
    ) -> None:
        epoch = ledger.epoch + 1
        attempt = f"{epoch:08d}-{rng.getrandbits(32):08x}"
        before = ledger.ports.get(NAME, tuple(TIME_MIN for _ in self._ports))
        ends = np.cumsum([0, *(len(types.inside) - 2 for types in self._node.types)]).tolist()
        task = ShardTask(
            operator=NAME,
            config=replace(self._node.config, method=method),
            types=self._node.types,
            inside=tuple(types.inside for types in self._node.types),
            inlets=tuple(Inlet(port, port, tuple(range(*ends[port : port + 2]))) for port in self._ports),
            ports=tuple(
                PortBounds(before[port], bounds[port], self._policies[port], self._node.unit) for port in self._ports
            ),
            states=tuple(packed(state) for state in ledger.states.get(NAME, ())),
            shards=shards,
            share=self._memory,
            checkpoint=self._checkpoint.uri,
            epoch=epoch,
            attempt=attempt,
            roll_call=True,
            spare=self._spare,
        )
        if epoch % 3 == 1:  # as in the driver, whose epochs take turns with those of tasks
            self.out += list(task.here(dict(enumerate(map(self._pieces, entering)))))
        else:
            for shard in range(shards):
                self.out += list(task(self._batches(entering, shard, shards, rng)))
        records = self._checkpoint.staged(attempt, NAME, shards)
        new = next_ledger(
            ledger,
            tracks={str(port): track for port, track in enumerate(after)},
            ports={NAME: tuple(bounds)},
            states={NAME: tuple(state_from_json(record["state"]) for record in records)},
            sites=ledger.sites or shards,
        )
        self._checkpoint.commit(new)
        self._checkpoint.forget(attempt, [NAME])
        # As long as a straggler may read the version before, its pages stay: those of the one before that go.
        self._checkpoint.drop(NAME, self._old - ledger.names(NAME) - new.names(NAME))
        self._old = ledger.names(NAME)

    _old: frozenset[str] | set[str] = frozenset()

    chunks: Sequence[int] = (1, 3, 1000)
    """How many rows a batch has."""

    def _pieces(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows of a port, in two batches if there are so many."""
        half = rows.num_rows // 2
        return [part for part in (rows.slice(0, half), rows.slice(half)) if part.num_rows]

    def _batches(
        self, entering: Sequence[pa.RecordBatch], shard: int, shards: int, rng: random.Random
    ) -> Iterator[pa.RecordBatch]:
        """A shard's part of the tagged union, in no order and in batches of any size; who it is comes first."""
        lanes = [field for types in self._node.types for field in list(types.inside)[2:]]
        names = ["tag", "hash", "time", *(f"lane{n}" for n in range(len(lanes)))]
        first = int(np.uint64(hash_range(shard, shards)[0]).view(np.int64))
        call = [pa.array([-1], pa.int8()), pa.array([first], pa.int64()), pa.nulls(1, pa.int64())]
        parts = [pa.table([*call, *(pa.nulls(1, lane.type) for lane in lanes)], names)]
        place = 0
        for port, rows in enumerate(entering):
            mine = rows.take(pa.array(np.flatnonzero(shard_of(rows.column(0).to_numpy(), shards) == shard)))
            ours = range(place, place + len(mine.columns) - 2)
            columns: list[Any] = [
                pa.array([port] * len(mine), pa.int8()),
                mine.column(0).view(pa.int64()),
                mine.column(1),
            ]
            columns += [
                mine.column(2 + n - place) if n in ours else pa.nulls(len(mine), lane.type)
                for n, lane in enumerate(lanes)
            ]
            parts.append(pa.table(columns, names))
            place = ours.stop
        rows = pa.concat_tables(parts[1:])
        order = rng.sample(range(len(rows)), len(rows)) if rng.random() < 0.5 else range(len(rows))
        rows = pa.concat_tables([parts[0], rows.take(pa.array(order, pa.int64()))]).combine_chunks()
        yield from rows.to_batches(max_chunksize=rng.choice(self.chunks))


def _one(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
