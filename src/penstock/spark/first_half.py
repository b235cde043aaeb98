"""The first half of aggregations, computed by Spark before the shuffle: what is native, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.core.prelude import Prelude, PreludeLane
from penstock.core.progress import Punctuated, Seen
from penstock.core.rows import HASH, TIME
from penstock.core.time import TIME_MIN, Time
from penstock.flow.graph import OperatorNode
from penstock.spark.arrivals import Inlet
from penstock.spark.assembly import Assembly
from penstock.spark.experience import HERE
from penstock.spark.few import Cap, at_most, if_few
from penstock.spark.lateness import Counted, in_time
from penstock.spark.layout import IN_TIME, LATE, LATENESS, NO_TIME, OUT_OF_RANGE, TAG, TAG_TYPE
from penstock.spark.native_aggregate import TOP, in_sql, partials, partials_and_counts
from penstock.spark.session import settings
from penstock.spark.types import col, column_name, nulls, renamed, run, time_from_long, union
from penstock.storage.versioned import Plan

_VIEW = "__penstock_rows"
"""The epoch's rows, in queries."""


class FirstHalf:
    """What Spark computes from an epoch's rows before operators see them: partials by pane, kept here if few."""

    def __init__(self, flow: Assembly, plan: Plan) -> None:
        self._flow = flow
        self._course = flow.course
        self.preludes = self._preludes(plan)
        """What is made natively in this epoch, for which operators."""
        self.few: dict[OperatorNode, dict[int, pa.Table]] = {}
        """Partials that are here, by port."""
        self._frames: dict[OperatorNode, list[DataFrame]] = {}
        """Partials that are with Spark, a table for each lane."""
        self._many: set[OperatorNode] = set()
        """Operators that took few rows in the last epoch, but not in this one."""

    def partitions(self, session: SparkSession) -> AbstractContextManager[None]:
        """Aggregate natively into as many partitions as there are tasks to take them, not Spark's two hundred."""
        if not self.preludes:
            return nullcontext()
        return settings(session, {"spark.sql.shuffle.partitions": str(self._course.tasks)})

    def teller(self) -> OperatorNode | None:
        """The one operator of a flow that sees all rows of its one source and takes few partials of them.

        What is to be counted of the source is then counted with them: an observation of the rows costs half as much
        again as the aggregation.
        """
        course = self._course
        if len(course.operators) != 1 or len(course.sources) != 1:
            return None
        (node,) = course.operators
        if node not in self.preludes or not self._took_few(node):
            return None
        into, (source,) = self._flow.layout.into(node), course.sources
        (lane, *more) = self.preludes[node].lanes
        looks_at = {*lane.groups, *(part.function.column for part in lane.parts)}
        plain = len(into) == 1 and not into[0].edge.filtered and not isinstance(source.progress, Punctuated)
        return node if plain and not more and into[0].node.time not in looks_at else None

    def told(self, node: OperatorNode, rows: DataFrame) -> Counted | None:
        """The partials of the one operator, and what they tell of its source; None if there are more than last time."""
        (branch,), prelude = self._flow.layout.into(node), self.preludes[node]
        (lane,) = prelude.lanes
        inputs = {name: column_name(place) for name, place in zip(branch.shipped, branch.places, strict=True)}
        rows.createOrReplaceTempView(_VIEW)
        made = partials_and_counts(prelude, lane, _VIEW, inputs, f"{TAG} = {branch.tag}")
        cap = self._cap(lane, more=(LATENESS, TOP))
        table = self._if_few(node, rows.sparkSession.sql(cap.of_query(made)))
        if table is None:
            return None
        self.few[node] = {1: table.filter(pc.equal(table[LATENESS], IN_TIME)).drop_columns([LATENESS, TOP])}
        return _counted(table, lane)

    def lanes(self, node: OperatorNode) -> Sequence[PreludeLane]:
        """The tables of partials that an operator takes instead of rows; none if it takes rows."""
        return self.preludes[node].lanes if node in self.preludes else ()

    def look_ahead(self, rows: DataFrame, keep: Callable[[DataFrame], DataFrame]) -> None:
        """See all of the epoch's rows before windows close, so that its own rows may close them.

        Where Spark aggregates rows by pane itself, the partials are what is kept, here if they are few; else the rows.
        """
        for node in self.preludes:
            lanes = self._lanes(node, rows)
            few = self._collected(node, lanes)
            if few is not None:
                self.few[node] = few
            else:
                self._frames[node] = [keep(lane) for lane in lanes]
        for lane in (lane for lanes in self._frames.values() for lane in lanes):
            run(lane)
        if not self.preludes:
            run(rows)

    def arriving(self, node: OperatorNode, rows: DataFrame, bound: Time) -> tuple[DataFrame, list[Inlet]] | None:
        """The partials that tasks of an operator take, and by which inlets; None if they are here, or it takes rows.

        Those that are here go to tasks all the same if its results may not be few once its input is bound so.
        """
        if node in self.few and not self._fits_here(node, bound):
            del self.few[node]
            self._frames[node] = self._lanes(node, rows)
        return self._inlets(self._frames[node]) if node in self._frames else None

    def _preludes(self, plan: Plan) -> dict[OperatorNode, Prelude]:
        """Of rows that come straight from sources, where Spark can and it pays."""
        preludes = {}
        for node in self._course.operators:
            prelude = self._course.config(node, plan).prelude(node.types)
            direct = all(branch.from_source for branch in self._flow.layout.into(node))
            gains = self._flow.experience.gains(node, plan.epoch)
            if prelude is not None and direct and gains and in_sql(prelude):
                preludes[node] = prelude
        return preludes

    def _collected(self, node: OperatorNode, lanes: Sequence[DataFrame]) -> dict[int, pa.Table] | None:
        """The partials of all lanes by port, if they are few."""
        if node in self._many or not self._took_few(node):
            return None
        few = {}
        for port, (made, lane) in enumerate(zip(lanes, self.preludes[node].lanes, strict=True), start=1):
            table = self._if_few(node, self._cap(lane).of(made))
            if table is None:
                return None
            few[port] = table
        return few

    def _cap(self, lane: PreludeLane, more: Sequence[str] = ()) -> Cap:
        return at_most(self._course.share // HERE, lane.schema, self._flow.experience.few, more)

    def _if_few(self, node: OperatorNode, capped: DataFrame) -> pa.Table | None:
        """Partials, fetched here; None if it turns out that there are more than memory here is for."""
        table = if_few(capped)
        if table is None:
            self._many.add(node)
        return table

    def _took_few(self, node: OperatorNode) -> bool:
        return self._flow.experience.took_few(node, self._course.share)

    def _fits_here(self, node: OperatorNode, bound: Time) -> bool:
        """Whether the results of this epoch are sure to be few, too: however few its rows, they may close windows."""
        course = self._course
        state = (page.nbytes for part in course.held(node) for page in part.pages)
        arrived = (table.nbytes for table in self.few[node].values())
        copies = self.preludes[node].copies(course.before(node)[0], bound)
        return bool((sum(state) + sum(arrived)) * copies <= course.share // HERE)

    def _lanes(self, node: OperatorNode, rows: DataFrame) -> list[DataFrame]:
        """What Spark makes of the rows of an aggregation by itself: partials by pane, a table for each lane."""
        parts = []
        for branch in self._flow.layout.into(node):
            named = [
                renamed(column_name(place), name) for name, place in zip(branch.shipped, branch.places, strict=True)
            ]
            if branch.node.time is not None:
                kind = self._flow.schemas.types_of(branch.node)[branch.node.time]
                named.append(time_from_long(col(TIME), kind).alias(branch.node.time))
            parts.append(in_time([branch], rows).select(col(TIME), *named))
        arriving = union(parts)
        prelude = self.preludes[node]
        return [partials(prelude, lane, arriving) for lane in prelude.lanes]

    def _inlets(self, tables: Sequence[DataFrame]) -> tuple[DataFrame, list[Inlet]]:
        """Partials as the operator takes them: lane n enters by port 1 + n; lanes stand side by side in the columns."""
        widths = [len(table.columns) - 2 for table in tables]
        parts: list[DataFrame] = []
        inlets: list[Inlet] = []
        for place, table in enumerate(tables):
            before = sum(widths[:place])
            columns = [sf.lit(place).cast(TAG_TYPE).alias(TAG), col(HASH), col(TIME)]
            for other, kept in enumerate(tables):
                for field in kept.schema.fields[2:]:
                    shown = column_name(len(columns) - 3)
                    ours = other == place
                    columns.append(renamed(field.name, shown) if ours else nulls(field.dataType, shown))
            parts.append(table.select(*columns))
            inlets.append(Inlet(place, 1 + place, tuple(range(before, before + widths[place]))))
        return union(parts), inlets


def _counted(table: pa.Table, lane: PreludeLane) -> Counted:
    """What partials say of the rows that they were made of."""
    counts = table.column(lane.schema.field(lane.parts[0].first).name)
    lateness = table.column(LATENESS)
    rows, late, *timeless = (
        int(pc.sum(counts.filter(pc.equal(lateness, why))).as_py() or 0)
        for why in (IN_TIME, LATE, OUT_OF_RANGE, NO_TIME)
    )
    top = pc.max(table.column(TOP)).as_py()
    return Counted(Seen(rows, TIME_MIN if top is None else int(top)), late, sum(timeless))
