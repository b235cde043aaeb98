"""Joins of several streams: what they may be asked, what their results are called, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.flow.graph import operators_of

LINES = pa.table(
    {"oid": [1, 1, 2, 3, None], "part": [7, 8, 7, 7, 7], "price": [10, 20, 30, 40, 50], "t": [0, 1, 2, 3, 4]}
)
ORDERS = pa.table({"oid": [1, 2, 4], "limit": [15, 99, 0], "note": ["a", "b", "c"], "t": [5, 6, 7]})
PARTS = pa.table({"part": [7, 8], "note": ["x", "y"], "t": [8, 9]})
ON = ["li.oid = o.oid", "li.part = p.part"]


@pytest.fixture
def flow() -> pk.LocalFlow:
    return pk.LocalFlow()


@pytest.fixture
def streams(flow) -> dict[str, pk.Stream]:
    tables = {"li": LINES, "o": ORDERS, "p": PARTS}
    return {alias: flow.source(table, time="t", name=alias) for alias, table in tables.items()}


def rows(flow, stream, *columns: str) -> list[tuple]:
    out = stream.to_memory()
    flow.run()
    table = out.table().select(list(columns)) if columns else out.table()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_streams_are_joined_on_all_equalities_and_a_null_key_meets_nobody(flow, streams):
    joined = flow.join(**streams, on=ON)
    assert rows(flow, joined, "oid", "part", "price") == [(1, 7, 10), (1, 8, 20), (2, 7, 30)]


def test_a_name_that_several_streams_have_is_led_by_the_alias_unless_they_are_joined_by_it(flow, streams):
    joined = flow.join(**streams, on=ON)
    assert joined.columns.names == [
        *("oid", "part", "price", "li_t"),
        *("limit", "o_note", "o_t"),
        *("p_note", "p_t"),
    ]


def test_names_that_would_meet_are_refused(flow):
    a = flow.source(pa.table({"k": [1], "x": [1], "b_x": [1], "t": [1]}), time="t", name="a")
    b = flow.source(pa.table({"k": [1], "x": [1], "t2": [1]}), time="t2", name="b")
    with pytest.raises(pk.ConfigError, match=r"b\.x, a\.b_x would be called 'b_x'\. Rename one of them"):
        flow.join(a=a, b=b, on="a.k = b.k")


def test_conditions_between_streams_are_asked_of_the_results_and_those_on_one_before(flow, streams):
    joined = flow.join(**streams, on=[*ON, "li.price < o.limit", "p.note <> 'y'", "o.note IN ('a', 'li.b', 'b')"])
    assert rows(flow, joined, "oid", "price") == [(1, 10), (2, 30)]


@pytest.mark.parametrize("plan", ["auto", "(li o) p", "(li p) o", "o (li p)"])
def test_every_plan_gives_the_same_rows_and_columns(flow, streams, plan):
    joined = flow.join(**streams, on=ON, plan=plan)
    assert joined.columns.names == flow.join(**streams, on=ON).columns.names
    assert rows(flow, joined, "oid", "price") == [(1, 10), (1, 20), (2, 30)]


def test_within_a_band_every_two_rows_of_a_result_are_near_each_other(flow):
    """A chain of three: a–b and b–c are near, but a and c are not."""
    a, b, c = (
        flow.source(pa.table({"k": [1], "t": [t]}), time="t", name=name) for name, t in (("a", 0), ("b", 10), ("c", 20))
    )
    on, near = ["a.k = b.k", "b.k = c.k"], pk.band(before=10, after=10)
    assert rows(flow, flow.join(a=a, b=b, c=c, on=on, within=near)) == []


def test_the_stream_named_first_is_the_left_one_of_a_band_in_every_plan():
    for plan in ("(a b) c", "(b c) a", "c (b a)"):
        flow = pk.LocalFlow()
        a, b, c = (
            flow.source(pa.table({"k": [1, 1], "t": times}), time="t", name=name)
            for name, times in (("a", [0, 7]), ("b", [5, 3]), ("c", [9, 8]))
        )
        after = flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.k = c.k"], within=pk.band(before=0, after=6), plan=plan)
        assert rows(flow, after, "a_t", "b_t", "c_t") == [], plan
        flow = pk.LocalFlow()
        a, b, c = (
            flow.source(pa.table({"k": [1, 1], "t": times}), time="t", name=name)
            for name, times in (("a", [0, 7]), ("b", [5, 3]), ("c", [9, 8]))
        )
        wider = flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.k = c.k"], within=pk.band(before=0, after=8), plan=plan)
        assert rows(flow, wider, "a_t", "b_t", "c_t") == [(0, 3, 8), (0, 5, 8)], plan


@pytest.mark.parametrize(("time", "ends"), [("latest", [10, 20]), ("earliest", [0, 10]), ("b", [10, 10])])
def test_a_window_after_the_join_goes_by_the_time_that_is_asked_for(time, ends):
    flow = pk.LocalFlow()
    a = flow.source(pa.table({"k": [1, 2], "t": [-5, 5]}), time="t", name="a")
    b = flow.source(pa.table({"k": [1, 2], "t": [5, 3]}), time="t", name="b")
    c = flow.source(pa.table({"k": [1, 2], "t": [2, 15]}), time="t", name="c")
    joined = flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.k = c.k"], time=time)
    counts = joined.window(range=10).by("k").agg(n=pk.count())
    assert rows(flow, counts, "k", "window_end") == list(zip([1, 2], ends, strict=True))


def test_a_column_may_equal_several_of_different_types(flow):
    a = flow.source(pa.table({"k": pa.array([1, 2], pa.int8()), "t": [1, 1]}), time="t", name="a")
    b = flow.source(pa.table({"k": pa.array([1, 2], pa.int32()), "t": [1, 1]}), time="t", name="b")
    c = flow.source(pa.table({"k": pa.array([2, 3], pa.int64()), "t": [1, 1]}), time="t", name="c")
    joined = flow.join(a=a, b=b, c=c, on=["a.k = c.k", "b.k = c.k", "a.k = b.k"], plan="(a b) c")
    assert rows(flow, joined, "k") == [(2,)]


def test_a_column_that_a_later_equality_widens_still_meets_its_partner_in_an_earlier_one(flow):
    a = flow.source(pa.table({"k": pa.array([1, 2], pa.int8()), "t": [1, 1]}), time="t", name="a")
    b = flow.source(pa.table({"k": pa.array([1, 2], pa.int8()), "j": [5, 5], "t": [1, 1]}), time="t", name="b")
    c = flow.source(pa.table({"k": pa.array([2, 3], pa.int64()), "j": [5, 5], "t": [1, 1]}), time="t", name="c")
    joined = flow.join(a=a, b=b, c=c, on=["a.k = b.k", "a.k = c.k", "b.j = c.j"], plan="a (b c)")
    assert rows(flow, joined, "k") == [(2,)]


def test_streams_with_one_key_are_joined_by_one_operator_and_others_by_a_tree(flow, streams):
    a, b, c = (flow.source(pa.table({"k": [1], "t": [1]}), time="t", name=name) for name in "abc")
    one = flow.join(a=a, b=b, c=c, on=["a.k = b.k", "b.k = c.k"])
    assert [type(node.config).__name__ for node in operators_of(one._node)] == ["MultiJoin"]
    tree = flow.join(**streams, on=ON)
    assert [type(node.config).__name__ for node in operators_of(tree._node)] == ["WindowJoin", "WindowJoin"]


def test_results_by_the_time_of_one_stream_can_be_joined_again(flow, streams):
    first = flow.join(li=streams["li"], o=streams["o"], on="li.oid = o.oid", time="li")
    again = flow.join(first=first, p=streams["p"], on="first.part = p.part")
    assert rows(flow, again, "price", "p_note") == [(10, "x"), (20, "y"), (30, "x")]


def test_a_method_is_for_streams_with_one_key(flow, streams):
    with pytest.raises(pk.ConfigError, match=r"method='msj' joins all streams in one operator.*Leave method= out"):
        flow.join(**streams, on=ON, method="msj")


def test_joins_are_named_after_the_streams_they_join(flow, streams):
    joined = flow.join(**streams, on=ON, name="star")
    assert [node.name for node in operators_of(joined._node)] == ["star-li-o", "star"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"on": []}, r"on=\[\] joins nothing"),
        ({"on": ["li.oid = o.oid"]}, r"No predicate of on= connects 'li', 'o' with 'p'"),
        ({"on": ["li.oid = o.oid", "li.part < p.part"]}, r"No predicate of on= connects 'li', 'o' with 'p'"),
        ({"on": [*ON, "li.x = q.x"]}, r"names 'q', which is not a relation of this join"),
        ({"on": [*ON, "li.odi = o.oid"]}, r"oid"),
        ({"on": [*ON, "li.t = o.t"]}, r"compares the time of li, which within= does"),
        ({"on": [*ON, "li.part = p.note"]}, r"li\.part.*int64.*p\.note.*string"),
        ({"on": [*ON, 3]}, r"on=3 cannot be read as a condition"),
        ({"on": [*ON, "1 = 1"]}, r"on='1 = 1' names no column of a stream\. Leave it out"),
        (
            {"on": [*ON, "li.price + price = 2"]},
            r"which stream is 'price' of\? Write li\.price or o\.price or p\.price",
        ),
        ({"on": [*ON, "q.x = 1"]}, r"names 'q', which is not a relation of this join"),
        ({"on": [*ON, "li.price <"]}, r"cannot be read as a condition"),
        ({"on": ON, "plan": "(li q) p"}, r"names 'q', which is not a relation"),
        (
            {"on": ON, "plan": "(o p) li"},
            r"no predicate of on= names both\. Write plan=.*, or add a predicate that joins them to on=",
        ),
        ({"on": ON, "within": 5}, r"within=5 is not a time condition"),
        ({"on": ON, "time": "q"}, r"time='q' is not a time of the results\. Write 'latest', 'earliest', or one of li"),
    ],
)
def test_what_cannot_be_joined_is_refused_while_the_flow_is_built(flow, streams, asked, says):
    with pytest.raises(pk.ConfigError, match=says):
        flow.join(**streams, **asked)


def test_a_join_needs_two_streams_of_this_flow(flow, streams):
    with pytest.raises(pk.ConfigError, match="A join takes two or more streams"):
        flow.join(li=streams["li"], on="li.oid = o.oid")
    with pytest.raises(pk.ConfigError, match="o=… is a Table, not a stream of this flow"):
        flow.join(li=streams["li"], o=LINES, on="li.oid = o.oid")


def test_streams_of_different_clocks_are_refused(flow, streams):
    stamped = flow.source(pa.table({"oid": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts", name="stamped")
    with pytest.raises(pk.ConfigError, match="The time of li counts ticks, that of s microseconds"):
        flow.join(li=streams["li"], s=stamped, on="li.oid = s.oid")


def test_equalities_may_stand_together_in_brackets_and_backticks(flow, streams):
    joined = flow.join(**streams, on="(li.oid = o.oid) AND (`li`.`part` = (p.part) AND li.price > 10)")
    assert rows(flow, joined, "oid", "price") == [(1, 20), (2, 30)]


def test_what_stands_in_texts_comments_and_structs_is_no_column_of_a_stream():
    flow = pk.LocalFlow()
    a = pa.table({"k": [1], "s": ["b.y"], "st": [{"b": {"y": 1}, "y": 100}], "t": [0]})
    b = pa.table({"k": [1], "y": [5], "t": [0]})
    streams = {"a": flow.source(a, time="t", name="a"), "b": flow.source(b, time="t", name="b")}
    asked = ['a.s = "b.y"', "a.s = 'b.y'", "a.st.b.y = 1", "b.y = 5 /* a.q = 3 */", "a.st.b.y = 100"]
    found = [flow.join(**streams, on=["a.k = b.k", condition]).to_memory() for condition in asked]
    flow.run()
    assert [out.table().num_rows for out in found] == [1, 1, 1, 1, 0]


def test_times_with_and_without_a_zone_are_refused(flow):
    a, b = (
        flow.source(pa.table({"k": [1], "t": pa.array([0], pa.timestamp("us", zone))}), time="t", name=f"z{zone}")
        for zone in ("UTC", None)
    )
    with pytest.raises(
        pk.ConfigError, match="The time of a is a timestamp with a time zone, the time of b is one without"
    ):
        flow.join(a=a, b=b, on="a.k = b.k")
    with pytest.raises(
        pk.ConfigError, match="time of the left stream is a timestamp with a time zone, the time of the right one"
    ):
        a.join(b, on="k", within=pk.always())


class TestSql:
    def test_a_query_joins_any_number_of_streams(self, flow, streams):
        found = flow.sql(
            "SELECT li.price, o.note, p.note AS part_note FROM li, o, p "
            "WHERE li.oid = o.oid AND li.part = p.part AND li.price < o.limit",
            **streams,
        )
        assert rows(flow, found, "price", "note", "part_note") == [(10, "a", "x"), (30, "b", "x")]

    def test_joins_may_be_written_out_and_streams_be_called_otherwise(self, flow, streams):
        found = flow.sql(
            "SELECT lines.price FROM li AS lines JOIN o ON lines.oid = o.oid JOIN p ON lines.part = p.part "
            "WHERE p.note = 'y'",
            **streams,
        )
        assert rows(flow, found) == [(20,)]

    def test_all_streams_have_the_same_window(self, flow, streams):
        near = flow.sql(
            "SELECT li.price FROM li [RANGE 6], o [RANGE 6], p [RANGE 6] WHERE li.oid = o.oid AND li.part = p.part",
            **streams,
        )
        assert rows(flow, near) == [(30,)]

    def test_a_window_over_the_join_goes_by_the_time_of_one_stream(self, flow, streams):
        counts = flow.sql(
            "SELECT p.part, window_end, count(*) [RANGE 4 WATTR li.t] AS n FROM li, o, p "
            "WHERE li.oid = o.oid AND li.part = p.part GROUP BY p.part",
            **streams,
        )
        assert rows(flow, counts) == [(7, 4, 2), (8, 4, 1)]

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("SELECT * FROM li, o, p WHERE li.oid = o.oid", r"No predicate of on= connects"),
            ("SELECT * FROM li, o, li WHERE li.oid = o.oid", r"Two streams are called li"),
            ("SELECT * FROM li LEFT JOIN o ON li.oid = o.oid JOIN p ON li.part = p.part", r"LEFT JOIN takes two"),
            (
                "SELECT * FROM li [RANGE 3], o, p WHERE li.oid = o.oid AND li.part = p.part",
                r"all have the same wind",
            ),
            ("SELECT li.prize FROM li, o, p WHERE li.oid = o.oid AND li.part = p.part", r"price"),
        ],
    )
    def test_what_cannot_be_joined_is_refused(self, flow, streams, query, says):
        with pytest.raises(pk.ConfigError, match=says):
            flow.sql(query, **streams)


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (5, r"on=5 is not a list of conditions\. Write on=\['a\.k = b\.k', …\]"),
        (pk.near("x", distance=1), r"is not a list of conditions\. .*pk\.near and pk\.intersects join two streams"),
        ({"li.oid": "o.oid"}, r"is a mapping, .* Write conditions: on=\['li\.oid = o\.oid'\]\."),
    ],
    ids=["number", "near", "mapping"],
)
def test_what_is_not_a_condition_is_refused(flow, streams, on, said):
    with pytest.raises(pk.PenstockError, match=said):
        flow.join(li=streams["li"], o=streams["o"], on=on)


def test_a_key_that_cannot_be_compared_is_told_of_as_a_key(flow, streams):
    maps = pa.table({"oid": [1], "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "t": [0]})
    with pytest.raises(pk.ConfigError, match=r"key=\{'m': …\} names 'm', which is of type map"):
        flow.join(li=streams["li"], m=flow.source(maps, time="t"), on="li.oid = m.oid", key={"m": "m"})


@pytest.mark.parametrize(("payload", "when"), [("row", "late"), ("segments", "early")])
def test_materialize_and_payload_may_not_contradict_each_other(flow, streams, payload, when):
    other = flow.source(pa.table({"oid": [1], "t": [0]}), time="t", name="other", payload=payload)
    with pytest.raises(pk.ConfigError, match=f"materialize='{when}' of x contradicts payload='{payload}' of source"):
        flow.join(li=streams["li"], x=other, on="li.oid = x.oid", materialize={"x": when})


def test_a_name_that_no_folder_can_have_is_refused(flow, streams):
    with pytest.raises(pk.ConfigError, match="becomes a folder: use letters, digits, '-' and '_', 100 of them at most"):
        flow.join(li=streams["li"], o=streams["o"], on="li.oid = o.oid", name="n" * 101)
