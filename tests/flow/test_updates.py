"""Updates of open windows go to sinks; what would count them as rows is refused while the flow is built."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import penstock as pk
from penstock.core.errors import ConfigError, SqlError

ROWS = [pa.table({"k": [1], "t": [t], "n": [1]}) for t in range(5)]
NAMES = pa.table({"k": [1], "name": ["one"]})


@pytest.fixture
def flow():
    return pk.LocalFlow()


@pytest.fixture
def rows(flow):
    return flow.source(ROWS, time="t", progress=pk.ordered(), name="rows")


@pytest.fixture(params=["update", pk.early(1)], ids=["update", "early"])
def updates(request, rows):
    return rows.window(range=10).by("k").agg(n=pk.count(), emit=request.param, name="tens")


def refused(harm="would take each of them for a row of its own"):
    return pytest.raises(ConfigError, match=rf"tens has emit=.* {re.escape(harm)}\. Write emit='final', or keep final")


def test_a_second_aggregation_would_count_every_update_and_is_refused(updates):
    with refused():
        updates.window(range=20).agg(n=pk.sum("n"))


def test_the_message_says_what_to_write_instead(rows):
    updates = rows.window(range=10).agg(n=pk.count(), emit=pk.early(2), name="tens")
    with pytest.raises(ConfigError) as error:
        updates.window(range=20).agg(n=pk.sum("n"), name="twenties")
    assert str(error.value) == (
        "tens has emit=pk.early('2'): it sends updates of each window before the final result, and twenties would take "
        "each of them for a row of its own. Write emit='final', or keep final results only: "
        ".where(\"emitted = 'final'\"). To see updates as well, write tens to a sink of its own."
    )


def test_updates_stay_updates_behind_a_select_a_where_a_union_and_a_lookup(flow, rows, updates):
    final = rows.window(range=10).by("k").agg(n=pk.count()).select("*", "'final' AS emitted")
    for stream in (
        updates.select("k", "n"),
        updates.where("n > 1"),
        updates.where("emitted = 'update' OR emitted = 'final'"),
        updates.select("*").union(final),
        final.union(updates),
    ):
        with refused():
            stream.window(range=20).agg(n=pk.count())
    with refused("lets rows wait (method=, max_age=, shed=), so an update could leave it after the final result"):
        updates.lookup(NAMES, on="k").lookup(NAMES, on="k", suffix="_again", max_age=10)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_join_of_updates_is_refused_on_either_side(rows, updates, how):
    with refused():
        updates.join(rows, on="k", within=pk.band(5, 5), how=how)
    with refused():
        rows.join(updates, on="k", within=pk.band(5, 5), how=how)


def test_a_query_over_updates_is_refused_where_it_names_them(flow, rows):
    updates = flow.sql("SELECT k, window_end, count(*) AS n FROM rows [RANGE 10 WATTR t] GROUP BY k", emit="update")
    with pytest.raises(SqlError, match=r"has emit='update': it sends updates of each window"):
        flow.sql("SELECT sum(n) AS n FROM u [RANGE 20]", u=updates)


def test_a_lookup_answers_updates_one_by_one_unless_rows_may_wait(flow, updates):
    out = updates.lookup(NAMES, on="k").to_memory()
    assert updates.lookup(NAMES, on="k", suffix="_at_once", max_age=0)
    for waiting in ({"max_age": 10}, {"shed": "considering"}, {"method": "meshjoin"}):
        with refused("lets rows wait (method=, max_age=, shed=), so an update could leave it after the final result"):
            updates.lookup(NAMES, on="k", **waiting)
    flow.run()
    found = [(row["n"], row["emitted"], row["name"]) for row in out.table().to_pylist()]
    assert found[-1] == (5, "final", "one")
    assert len(found) > 1


@pytest.mark.parametrize("condition", ["emitted = 'final'", " `emitted` == 'final' "])
def test_final_results_alone_may_be_aggregated_again(flow, updates, condition):
    again = updates.where(condition).window(range=20).agg(n=pk.sum("n")).to_memory()
    seen = updates.to_memory()
    flow.run()
    assert again.table().column("n").to_pylist() == [5]
    assert seen.table().num_rows > 1


def test_a_column_that_is_only_called_emitted_does_not_tell_which_results_are_final(updates):
    renamed = updates.select("window_end", "n", "'final' AS emitted").where("emitted = 'final'")
    with refused():
        renamed.window(range=20).agg(n=pk.sum("n"))


def test_having_may_keep_final_results_alone(flow, rows):
    finals = rows.window(range=10).agg(n=pk.count(), emit="update", having="emitted = 'final'")
    again = finals.window(range=20).agg(n=pk.sum("n")).to_memory()
    flow.run()
    assert again.table().column("n").to_pylist() == [5]


def test_final_windows_aggregate_as_before(flow, rows):
    again = rows.window(range=10).agg(n=pk.count()).window(range=20).agg(n=pk.sum("n")).to_memory()
    flow.run()
    assert again.table().column("n").to_pylist() == [5]
