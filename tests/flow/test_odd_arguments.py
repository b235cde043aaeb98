"""Whatever is written into a flow, only a PenstockError comes out, or a TypeError for a wrong call."""

from __future__ import annotations

import datetime as dt
import warnings
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.core.errors import PenstockError
from tests.streams import examples

ROWS = pa.table({"k": [1, 2], "t": [0, 5], "x": [1.0, None], "s": ["a", "b"], "xs": [[1], []], "b": [b"a", None]})
NAMES = pa.table({"k": [1], "name": ["one"]})

TEXTS = [
    "",
    " ",
    "*",
    "**",
    "(",
    ")",
    "((",
    "'",
    '"',
    "`",
    "--",
    "/*",
    ";",
    "\0",
    "\ud800",
    "a" * 5000,
    "(" * 3000 + ")" * 3000,
    "1/0",
    "1 % 0",
    "x / 0",
    "k[99]",
    "xs[-1]",
    "NOT",
    "NULL",
    "k AS",
    "AS k",
    "k k k",
    "k,t",
    "CAST(s AS INT)",
    "9" * 400,
    "1e999",
    "-1e999",
    "{}",
    "{{k}}",
    "$1",
    "?",
    ":k",
    "@k",
    "%",
    "%s",
    "k.k.k.k",
    "l.k",
    "r.*",
    "*.*",
    "count(*)",
    "sum(x)",
    "explode(xs)",
    "explode(explode(xs))",
    "rand()",
    "row_number() OVER ()",
    "INTERVAL",
    "INTERVAL 'x' y",
    "DATE 'nope'",
    "TIMESTAMP '9999999-01-01'",
    "CASE",
    "CASE WHEN",
    "x IN ()",
    "x BETWEEN",
    "LAMBDA",
    "x -> x",
    "transform(xs, x -> y)",
    "SELECT",
    "VALUES (1)",
    "FROM k",
    "k = (SELECT 1)",
    "1; 2",
    "SET a = 1",
    "DROP TABLE k",
    "10 min",
    "-10 min",
    "0 s",
    "1.5.5 s",
    "1 year",
    "٣ min",
    "²",
    "² s",
    "1e3 s",
    "inf s",
    "nan",
    "∞",
    "9" * 30 + " d",
    "99999999999999999999",
    "+",
    "-",
    "+-1",
    "1 s 2",
    "interval",
    "interval 1",
    "key",
    "k ",
    " k",
    "K",
    "true",
    "x > 0 AND",
    "x LIKE '\\'",
    "regexp_like(s, '(')",
    "to_timestamp(s)",
    "s::int",
    "s COLLATE x",
    "k & t | x",
    "~s",
    "||",
    "s || ",
    "struct(k)",
    "named_struct('a')",
    "map(k)",
]
NUMBERS = [
    0,
    -1,
    1,
    2,
    2**31,
    2**62,
    2**63,
    -(2**63),
    2**64,
    10**30,
    0.5,
    -0.5,
    0.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    True,
]
OTHERS = [
    None,
    b"",
    b"10 min",
    [],
    [[]],
    ["k"],
    [None],
    ["k", ["t"]],
    (),
    ("k", "k"),
    {},
    {"k": "k"},
    {"k": None},
    {None: "k"},
    {"k": ["t"]},
    object(),
    int,
    dt.timedelta(0),
    dt.timedelta.max,
    dt.timedelta(seconds=-1),
    dt.date(2024, 1, 1),
    ROWS,
    pa.int64(),
    Ellipsis,
    set(),
    {"k"},
    1j,
    range(3),
    lambda: None,
]
odd = st.one_of(
    st.sampled_from([*TEXTS, *NUMBERS, *OTHERS]),
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.binary(max_size=4),
)

CALLS: dict[str, Any] = {
    "select": lambda s, o, a, b: s.select(a, b),
    "select one": lambda s, o, a, b: s.select(a),
    "where": lambda s, o, a, b: s.where(a),
    "join on": lambda s, o, a, b: s.join(o, on=a, within=pk.band(1, 1), suffix=b),
    "join within": lambda s, o, a, b: s.join(o, on="k", within=a),
    "join band": lambda s, o, a, b: s.join(o, on="k", within=pk.band(before=a, after=b)),
    "join windows": lambda s, o, a, b: s.join(o, on="k", within=pk.windows(left=a, right=b)),
    "join tumbling": lambda s, o, a, b: s.join(o, on="k", within=pk.tumbling(a)),
    "join how": lambda s, o, a, b: s.join(o, on="k", within=pk.band(1, 1), how=a, time=b),
    "join where": lambda s, o, a, b: s.join(o, on="k", within=pk.band(1, 1), where=a, name=b),
    "join method": lambda s, o, a, b: s.join(o, on="k", within=pk.band(1, 1), method=a, name=b),
    "join other": lambda s, o, a, b: s.join(a, on="k", within=pk.band(1, 1)),
    "lookup on": lambda s, o, a, b: s.lookup(NAMES, on=a, how=b),
    "lookup table": lambda s, o, a, b: s.lookup(a, on="k", freshness=b),
    "lookup limits": lambda s, o, a, b: s.lookup(NAMES, on="k", memory=a, max_age=b),
    "lookup ways": lambda s, o, a, b: s.lookup(NAMES, on="k", shed=a, method=b),
    "union": lambda s, o, a, b: s.union(a, b),
    "window": lambda s, o, a, b: s.window(a).agg(n=pk.count()),
    "sliding": lambda s, o, a, b: s.window(range=a, slide=b).agg(n=pk.count()),
    "origin": lambda s, o, a, b: s.window(range=5, origin=a).agg(n=pk.count()),
    "session": lambda s, o, a, b: s.window(pk.session(a)).agg(n=pk.count()),
    "landmark": lambda s, o, a, b: s.window(pk.landmark(a)).agg(n=pk.count()),
    "rows": lambda s, o, a, b: s.window(pk.rows(a, b)).agg(n=pk.count()),
    "rows by": lambda s, o, a, b: s.window(pk.rows(3, partition=a, order=b)).by("k").agg(n=pk.count()),
    "by tuple": lambda s, o, a, b: s.window(pk.slide_by_tuple(a, every=b, by="rank")).agg(n=pk.count()),
    "by": lambda s, o, a, b: s.window(range=5).by(a, b).agg(n=pk.count()),
    "agg": lambda s, o, a, b: s.window(range=5).agg(n=a),
    "agg of": lambda s, o, a, b: s.window(range=5).agg(n=pk.sum(a), m=pk.quantile("x", b)),
    "agg ways": lambda s, o, a, b: s.window(range=5).agg(n=pk.count(), emit=a, method=b),
    "agg names": lambda s, o, a, b: s.window(range=5).agg(n=pk.count(), start=a, end=b),
    "having": lambda s, o, a, b: s.window(range=5).agg(n=pk.count(), having=a, name=b),
    "early": lambda s, o, a, b: s.window(range=5).agg(n=pk.count(), emit=pk.early(a)),
    "sql": lambda s, o, a, b: s._flow.sql(a),
    "sql select": lambda s, o, a, b: s._flow.sql(f"SELECT {a} FROM s WHERE {b}"),
    "sql window": lambda s, o, a, b: s._flow.sql(f"SELECT count(*) AS n FROM s [RANGE {a} SLIDE {b} WATTR t]"),
    "source": lambda s, o, a, b: s._flow.source(ROWS, time=a, name=b),
    "progress": lambda s, o, a, b: s._flow.source(ROWS, time="t", progress=a),
    "source data": lambda s, o, a, b: s._flow.source(a, time="t"),
    "delay": lambda s, o, a, b: s._flow.source(ROWS, time="t", progress=pk.bounded_delay(a, idle=b)),
    "tuples": lambda s, o, a, b: s._flow.source(ROWS, time="t", progress=pk.bounded_tuples(a)),
    "punctuated": lambda s, o, a, b: s._flow.source(ROWS, time="t", progress=pk.punctuated(a)),
    "timer": lambda s, o, a, b: s._flow.source(ROWS, time="t", progress=pk.timer(a)),
    "flow": lambda s, o, a, b: pk.LocalFlow(memory=a, shards=b),
}


def attempt(call: str, a: Any, b: Any) -> None:
    """Build a part of a flow: it works, or is refused as it should be."""
    flow = pk.LocalFlow()
    left, right = (flow.source(ROWS, time="t", name=name) for name in "so")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            CALLS[call](left, right, a, b)
        except (PenstockError, TypeError):
            return


@pytest.mark.parametrize("call", sorted(CALLS))
@given(odd, odd)
@examples(0.2)
def test_odd_arguments_are_refused_as_such(call, a, b):
    attempt(call, a, b)


@pytest.mark.parametrize("call", ["select one", "where", "join where", "having", "sql", "sliding", "join band"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:20]))
def test_odd_texts_are_refused_as_such(call, text):
    attempt(call, text, "1")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda flow, s: pk.LocalFlow(shards="2"), r"^shards='2' must be a whole number of at least 1\.$"),
        (
            lambda flow, s: flow.source(ROWS, time=None),
            r"^time=None is not a column of this stream\. Its columns are: ",
        ),
        (
            lambda flow, s: s.window(range=5).by(["k"]),
            r"^by\(\['k'\]\) is not the name of a column\. Write \.by\('shop'",
        ),
        (
            lambda flow, s: s.window(range=5).agg(n=pk.sum(5)),
            r"^n=5 is not a column of this stream\. Its columns are: ",
        ),
        (
            lambda flow, s: flow.source(ROWS, time="t", progress=pk.punctuated(5)),
            r"^column=5 is not the name of a column",
        ),
    ],
)
def test_what_is_no_column_is_refused_with_the_columns_there_are(call, message):
    flow = pk.LocalFlow()
    with pytest.raises(PenstockError, match=message):
        call(flow, flow.source(ROWS, time="t", name="s"))


@pytest.mark.parametrize("timeout", ["x", "1 s", float("nan"), -1, True, [1]], ids=repr)
@pytest.mark.parametrize("wait", ["stop", "await_end"])
def test_what_is_no_time_to_wait_is_refused(wait, timeout):
    flow = pk.LocalFlow()
    flow.source(ROWS, time="t").to_memory()
    query = flow.run()
    with pytest.raises(PenstockError, match=r"is not a length of time\. Write how many seconds to wait at most"):
        getattr(query, wait)(timeout)
    for seconds in (0, 1.5, None):
        assert getattr(query, wait)(seconds)
