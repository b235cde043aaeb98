"""Rows whose columns are copied when they are asked for: the same values as if each step had made a table."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest

from penstock.core.errors import FlowError
from penstock.expressions import evaluate
from penstock.expressions.view import View

COUNT = 20_000
WORDS = [None, "", "é", "Google", "channel-7", "https://www.nexmark.com/a/b/c?x=1&channel_id=9"]


def rows(seed: int, distinct: int = len(WORDS)) -> pa.Table:
    """A table in which texts and minutes repeat, with nulls at every level."""
    rng = random.Random(seed)
    words = [*WORDS, *(f"word {n}" for n in range(distinct - len(WORDS)))]
    event = [
        None if rng.random() < 0.1 else {"n": rng.choice([None, 1, 2, -3]), "url": rng.choice(words)}
        for _ in range(COUNT)
    ]
    start = dt.datetime(1969, 12, 31, 23, 57, tzinfo=dt.UTC)
    at = [None if rng.random() < 0.05 else start + dt.timedelta(seconds=rng.random() * 400) for _ in range(COUNT)]
    event_type = pa.struct({"n": pa.int32(), "url": pa.string()})
    columns = {
        "kind": pa.array(rng.choices([0, 1, 2, None], k=COUNT), pa.int32()),
        "event": pa.array(event, event_type),
        "at": pa.array(at, pa.timestamp("us", "UTC")),
        "word": pa.array(rng.choices(words, k=COUNT)),
    }
    return pa.table(columns)


def encoded(table: pa.Table) -> pa.Table:
    """The same with its texts encoded, as files give them."""
    event = table.column("event").combine_chunks()
    url = event.field("url").dictionary_encode()
    fields = [pa.field("n", pa.int32()), pa.field("url", url.type)]
    coded = pa.StructArray.from_arrays([event.field("n"), url], fields=fields, mask=event.is_null())
    table = table.set_column(1, "event", coded)
    return table.set_column(3, "word", table.column("word").dictionary_encode())


STEPS = [
    ("where", "kind = 2"),
    ("select", ["event.url AS url", "event.n AS n", "at", "word", "word AS again"]),
    ("where", "n IS NOT NULL AND n > -3"),
    ("select", ["*", "regexp_extract(url, '//([^/]*)/([^/]*)', 2) AS folder", "hour(at) * 100 + minute(at) AS hm"]),
    ("select", ["concat(lower(word), '/', coalesce(url, '')) AS both", "cast(at AS date) AS day", "hm", "folder"]),
    ("where", "folder <> '' OR hm > 0"),
]


def table_by_table(table: pa.Table) -> pa.Table:
    """Each step over few rows at a time, so that nothing is computed once for many."""
    parts = []
    for start in range(0, COUNT, 1000):
        part = table.slice(start, 1000)
        for kind, written in STEPS:
            part = evaluate.where(part, written) if kind == "where" else evaluate.select(part, written)
        parts.append(part)
    return pa.concat_tables(parts)


@pytest.mark.parametrize("encode", [False, True])
@pytest.mark.parametrize("distinct", [6, 3000, 15_000])
def test_steps_over_a_view_give_what_they_give_table_by_table(encode, distinct):
    table = rows(distinct, distinct)
    view = View.of(encoded(table) if encode else table, table.schema)
    for kind, written in STEPS:
        view = evaluate.held(view, written) if kind == "where" else evaluate.selected(view, written)
    found, expected = view.table(), table_by_table(table)
    assert found.schema.equals(expected.schema)
    assert found.combine_chunks().equals(expected.combine_chunks())


def test_texts_that_are_encoded_come_out_as_they_are_declared():
    table = rows(1)
    assert View.of(encoded(table), table.schema).table().equals(table)


def test_a_dictionary_that_is_declared_stays_one():
    table = rows(1)
    table = table.set_column(3, "word", table.column("word").dictionary_encode())
    found = evaluate.selected(View.of(table, table.schema), ["word"]).table()
    assert found.schema.field("word").type == table.schema.field("word").type


def test_what_is_wrong_with_one_of_many_equal_rows_is_told():
    table = pa.table({"word": ["1"] * 9_000 + ["x"] * 9_000})
    with pytest.raises(FlowError, match=r"cast\(trim\(word\) AS int\)"):
        evaluate.select(table, ["cast(trim(word) AS int) AS n"])


@pytest.mark.parametrize(
    ("condition", "native"),
    [
        ("kind = 2", True),
        ("(kind >= -1) AND word <> ''", True),
        ("event IS NULL", True),
        ("event.url IS NOT NULL AND event.n < 2", True),
        ("kind = 2147483648", False),
        ("kind = 2.0", False),
        ("word = 2", False),
        ("word < 'x'", False),
        ("kind = '2'", False),
        ("kind = 2 OR kind = 1", False),
        ("kind = 100S", False),
    ],
)
def test_only_comparisons_that_are_the_same_are_arrows(condition, native):
    table = rows(2).slice(0, 500)
    assert (evaluate._tested(table.schema, condition)[1].native is not None) == native
    if condition != "word = 2":
        by_duckdb = evaluate.select(table, ["*", f"coalesce({condition}, false) AS holds"])
        expected = by_duckdb.filter(by_duckdb.column("holds")).drop_columns(["holds"])
        assert evaluate.where(table, condition).equals(expected)


MINUTE = 60_000_000


@pytest.mark.parametrize(
    "minutes", [[0], [0, 1], [-1, 0], [-2, -1], [0, 2], [0, 7, 3], [0, None], [5, 6, None]], ids=str
)
def test_times_of_the_same_minute_are_alike(minutes):
    times = [None if m is None else m * MINUTE + at for m in minutes for at in (0, 1, MINUTE - 1)] * 2000
    rows = pa.table({"at": pa.array(times, pa.timestamp("us"))})
    firsts, which = View.of(rows).alike([], ["at"])
    found = [times[firsts[number]] for number in which]
    assert len(firsts) == len(minutes)
    assert [None if t is None else t // MINUTE for t in found] == [None if t is None else t // MINUTE for t in times]


def test_what_was_computed_for_few_rows_is_remembered_by_all_that_it_goes_by():
    def shown(text, minute):
        at = pa.array([minute * MINUTE + n for n in range(5000)], pa.timestamp("us"))
        rows = pa.table({"at": at, "text": pa.array([text] * 5000, pa.string())})
        asked = ["concat(text, cast(minute(at) AS string)) AS a", "concat(upper(text), '!') AS b"]
        made = evaluate.select(rows, asked)
        assert made.num_rows == 5000
        return {tuple(row.values()) for row in made.to_pylist()}

    for _ in range(2):
        for text in ("x", "y", None):
            for minute in (1, 2):
                expected = (None, None) if text is None else (f"{text}{minute}", f"{text.upper()}!")
                assert shown(text, minute) == {expected}
