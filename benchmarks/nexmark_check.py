"""What Nexmark's queries give by their definitions, and how results are compared with it row by row."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from nexmark_queries import Query

VIEWS = """
    CREATE MACRO ts(t) AS make_timestamp(CAST(t AS BIGINT));
    CREATE MACRO tumble(t, seconds) AS t - t % (seconds * 1_000_000);
    CREATE VIEW person AS SELECT person.* EXCLUDE (dateTime), epoch_us(dateTime) AS us FROM {events}
        WHERE event_type = 0;
    CREATE VIEW auction AS SELECT auction.* EXCLUDE (dateTime, expires), epoch_us(auction.expires) AS expires_us,
        epoch_us(dateTime) AS us FROM {events} WHERE event_type = 1;
    CREATE VIEW bid AS SELECT bid.* EXCLUDE (dateTime), epoch_us(dateTime) AS us FROM {events} WHERE event_type = 2;
"""


class WrongRowsError(RuntimeError):
    """Results that are not what the query means."""

    @classmethod
    def of(cls, name: str, missing: pa.Table, unexpected: pa.Table) -> WrongRowsError:
        """The error for results that lack some rows and have others."""
        shown = [
            f"  {what}: {row}"
            for what, rows in (("missing", missing), ("unexpected", unexpected))
            for row in rows.slice(0, 3).to_pylist()
        ]
        return cls(
            f"{name} lacks {missing.num_rows:,} rows and has {unexpected.num_rows:,} that it should not have:\n"
            + "\n".join(shown)
        )


class Definition:
    """All events, and what queries over them mean."""

    def __init__(self, events: pa.Table | Path) -> None:
        self._engine = duckdb.connect()
        self._engine.execute("SET TimeZone = 'UTC'")
        if isinstance(events, Path):
            source = f"'{events}/*.parquet'"
        else:
            self._engine.register("events", events)
            source = "events"
        self._engine.execute(VIEWS.format(events=source))
        [(self._latest,)] = self._engine.execute(f"SELECT max(epoch_us(dateTime)) FROM {source}").fetchall()

    def rows(self, query: Query) -> pa.Table:
        """All its rows."""
        return self._engine.sql(f"SELECT * EXCLUDE (done) FROM ({query.means})").to_arrow_table()

    def counts(self, query: Query, delay_us: int) -> tuple[int, int]:
        """How many rows a bound completes that is `delay_us` before the latest event, and how many there are.

        The bound is in milliseconds, as Spark's watermarks are.
        """
        [(complete, every)] = self._engine.sql(
            f"SELECT count(*) FILTER ({self._completed(delay_us)}), count(*) FROM ({query.means})"
        ).fetchall()
        return int(complete), int(every)

    def check(self, query: Query, rows: pa.Table, by: str = "penstock") -> None:
        """Raise unless these are exactly its rows, in any order, under the same names."""
        missing, unexpected = self._compare(query, "TRUE", rows, by)
        if missing.num_rows or unexpected.num_rows:
            raise WrongRowsError.of(f"{query.name} by {by}", missing, unexpected)

    def check_part(self, query: Query, delay_us: int, rows: pa.Table, by: str) -> None:
        """The same for an engine that need not put out more than a bound completes, as in `counts`."""
        missing, _ = self._compare(query, self._completed(delay_us), rows, by)
        _, unexpected = self._compare(query, "TRUE", rows, by)
        if missing.num_rows or unexpected.num_rows:
            raise WrongRowsError.of(f"{query.name} by {by}", missing, unexpected)

    def _completed(self, delay_us: int) -> str:
        """Which rows a bound completes."""
        return f"coalesce(done <= ts({(self._latest - delay_us) // 1000 * 1000}), TRUE)"

    def _compare(self, query: Query, where: str, rows: pa.Table, by: str) -> tuple[pa.Table, pa.Table]:
        """Which of its rows are missing, and which rows are none of them."""
        rows_of_it = self._engine.sql(f"SELECT * EXCLUDE (done) FROM ({query.means}) WHERE {where}")
        expected, found = _plain(rows_of_it.to_arrow_table()), _plain(rows)
        if found.column_names != expected.column_names:
            raise WrongRowsError(f"{by} gives {query.name} as {found.column_names}, not {expected.column_names}.")
        found = found.cast(expected.schema)
        with self._engine.cursor() as engine:
            engine.register("expected", expected)
            engine.register("found", found)
            missing = engine.sql("FROM expected EXCEPT ALL FROM found").to_arrow_table()
            unexpected = engine.sql("FROM found EXCEPT ALL FROM expected").to_arrow_table()
        return missing, unexpected


def _plain(rows: pa.Table) -> pa.Table:
    """The same rows with times as microseconds, whatever zone and unit they are in."""
    columns = [
        pc.cast(column, pa.timestamp("us", column.type.tz)).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.column_names)
