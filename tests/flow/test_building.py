"""Bad input is refused while the flow is built: the argument, the value, why, and what to write instead."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.core.errors import BandError, ConfigError, DurationError, PenstockError, WindowError
from penstock.flow.keys import common_key, table_key
from penstock.spark.flow import _config

ROWS = pa.table({"order_id": [1], "t": [0], "amount": [5], "name": ["x"]})
STAMPED = pa.table({"order_id": [1], "ts": pa.array([0], pa.timestamp("us"))})
NEAR = pk.band(5, 5)
CUSTOMERS = pa.table({"order_id": [1], "customer": ["Ada"]})


@pytest.fixture
def flow():
    return pk.LocalFlow()


@pytest.fixture
def orders(flow):
    return flow.source(ROWS, time="t", name="orders")


@pytest.fixture
def paid(flow):
    return flow.source(ROWS, time="t", name="paid")


# Sources


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": "tt"}, r"time='tt' is not a column of this stream\. Did you mean 't'\?"),
        ({"time": "when"}, r"time='when' is not a column .* Its columns are: order_id, t, amount, name\."),
        ({"time": "name"}, r"time='name' is of type string; .* Select to_timestamp\(name\) as a column first"),
        ({"time": "t", "progress": "30 s"}, r"progress='30 s' is not a policy\. Write pk\.bounded_delay\('30 s'\)"),
        (
            {"time": "t", "progress": pk.bounded_delay("30 s")},
            r"delay=30 s is real time, but the time column is an int",
        ),
        ({"time": "t", "progress": pk.bounded_delay(-1)}, r"bounded_delay\(delay=-1\) is negative\. Write how late"),
        ({"time": "t", "progress": pk.bounded_tuples(-1)}, r"bounded_tuples\(count=-1\) is negative"),
        ({"time": "t", "progress": pk.timer("1 s")}, r"timer\(slack=1 s\) compares event time with the clock"),
        ({"time": "t", "progress": pk.punctuated("amout")}, r"punctuated='amout' .* Did you mean 'amount'\?"),
        (
            {"time": "t", "progress": pk.punctuated("name")},
            r"punctuated\('name'\) is string, .* 't' is int64\. Cast it",
        ),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(flow, arguments, message):
    with pytest.raises(ConfigError, match=message):
        flow.source(ROWS, **arguments)


def test_idle_without_a_unit_is_refused_before_anything_runs(flow):
    with pytest.raises(ConfigError, match=r"idle=10 has no unit"):
        flow.source(ROWS, time="t", progress=pk.ordered(idle=10))


def test_two_sources_of_one_name_are_refused(flow, orders):
    with pytest.raises(ConfigError, match=r"name='orders' is already the name of another source\. Choose another one"):
        flow.source(ROWS, time="t", name="orders")


@pytest.mark.parametrize("name", ["__time", "__hash", "__tag", "__mark", "__late", "__source"])
def test_columns_with_the_names_that_penstock_uses_inside_are_refused(flow, name):
    with pytest.raises(ConfigError, match=name):
        flow.source(pa.table({"t": [1], name: [2]}), time="t")


@pytest.mark.parametrize("memory", ["lots", 0, "-5 MB"])
def test_memory_must_be_a_size(memory):
    with pytest.raises(ConfigError, match=f"memory={memory!r} is not an amount of memory. Write a size like '512 MB'"):
        pk.LocalFlow(memory=memory)


# Joins


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "order"}, r"on='order' is not a column of this stream\. Did you mean 'order_id'\?"),
        ({"on": {"order_id": "zzz"}}, r"on='zzz' is not a column of this stream\. Its columns are"),
        ({"on": []}, r"on=\[\] names no key\. Write on='order_id', or a list of columns"),
        ({"on": 3}, r"on=3 names no columns\. Write on='order_id', a list of columns, on={'ours': 'theirs'}"),
        ({"on": [("order_id", "order_id")]}, r"on=\[\('order_id', 'order_id'\)\] names no columns"),
        ({"on": "t"}, r"on='t' is the time column, which within= compares\. Leave it out of on=\.$"),
        (
            {"within": "10 min"},
            r"within='10 min' is not a time condition. Write pk\.band\(before='10 min', after='10 min'\)",
        ),
        ({"within": "ever"}, r"within='ever' is not a time condition.* leave it out to join the full history"),
        (
            {"method": "rrpj"},
            r"method='rrpj' keeps rows forever, but within=band.* lets them expire. Leave within= out",
        ),
        ({"how": "sideways"}, r"how='sideways' is not a kind of window join\. Write one of inner, left, right, full"),
        ({"how": "cross"}, r"how='cross' is not a kind of window join"),
        ({"how": "left", "where": "l.t < r.t"}, r"where= is for inner joins, but how='left'\. Filter one side before"),
        (
            {"method": "magic"},
            r"method='magic' is not one of auto, oa, ewj, ah_ewj, rpwj, opob, .* Write one of these",
        ),
        ({"how": "semi", "time": "right"}, r"time='right' needs a right row, but how='semi' gives left rows only"),
        ({"how": "full", "time": "left"}, r"unmatched rows of how='full'\. Write one of latest, earliest\.$"),
        ({"how": "left", "time": "right"}, r"time='right' would be null for unmatched rows of how='left'\. Write"),
        ({"time": "middle"}, r"time='middle'"),
        ({"suffix": 5}, r"suffix=5 must be a string: what to append to a name that is taken, like '_right'"),
        ({"suffix": ""}, r"The right column 't' would be called 't', which is taken\. Rename it with \.select"),
        ({"within": pk.band("5 s", "5 s")}, r"before=5 s is real time, but the time column is an integer"),
        ({"within": pk.band(0, 1, ends="()")}, r"can match nothing: both ends are open and nothing lies between them"),
        ({"where": "l.nope = 1"}, r"l\.nope = 1"),
        ({"name": "a/b"}, r"name='a/b' becomes a folder: use letters, digits, '-' and '_'"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(orders, paid, arguments, message):
    with pytest.raises(ConfigError, match=message):
        orders.join(paid, **{"on": "order_id", "within": NEAR, **arguments})


def test_a_negative_range_is_refused_where_it_is_written():
    with pytest.raises(BandError, match=r"windows\(left=-3\) is negative"):
        pk.windows(left=-3, right=2)
    with pytest.raises(BandError, match="can match nothing: it ends 5 min before it starts"):
        pk.band(before="5 min", after="-10 min")
    with pytest.raises(BandError, match="has no length"):
        pk.tumbling("0 s")


def test_times_that_count_differently_cannot_be_compared(flow, orders):
    stamped = flow.source(STAMPED, time="ts", name="stamped")
    with pytest.raises(ConfigError, match=r"The left time counts ticks, the right one microseconds: .* Bring both to"):
        orders.join(stamped, on="order_id", within=NEAR)


def test_a_number_is_no_length_on_a_timestamp(flow):
    a, b = (flow.source(STAMPED, time="ts", name=name) for name in "ab")
    with pytest.raises(DurationError, match=r"has no unit. The time column counts microseconds: write '5 s'"):
        a.join(b, on="order_id", within=NEAR)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32()])
def test_rows_are_not_numbered_by_a_time_of_day(flow, kind):
    stream = flow.source(pa.table({"at": pa.array([1, 2], kind)}), time="at")
    with pytest.raises(WindowError, match=r"order='at' is of type .*, but rows are numbered by whole numbers"):
        stream.window(pk.rows(1000, order="at")).agg(n=pk.count())
    stream.window(pk.rows(1000, order="at", partition="at")).by("at").agg(n=pk.count())


def test_an_operator_that_cannot_be_built_does_not_take_its_name(orders, paid):
    fixed = pa.table({"order_id": [1], "label": ["a"]})
    failing = [
        lambda: orders.join(paid, on="order_id", within=NEAR, where="l.amout > 1", name="x"),
        lambda: orders.join(paid, on="order_id", within=NEAR, suffix="", name="x"),
        lambda: orders.lookup(object(), on="order_id", name="x"),
        lambda: orders.lookup(fixed, on="order_id", memory="lots", name="x"),
        lambda: orders.window(range=5).by("order_id").agg(order_id=pk.count(), name="x"),
    ]
    for build in failing:
        with pytest.raises(PenstockError):
            build()
    assert orders.lookup(fixed, on="order_id", name="x")._node.name == "x"
    with pytest.raises(ConfigError, match="name='x' is already the name of another operator"):
        orders.join(paid, on="order_id", within=NEAR, name="x")


def test_an_operator_that_cannot_be_built_does_not_shift_the_names_of_later_ones(orders, paid):
    """An operator's state is found again by its name."""
    with pytest.raises(PenstockError):
        orders.join(paid, on="order_id", within=NEAR, where="l.amout > 1")
    assert orders.join(paid, on="order_id", within=NEAR)._node.name == "join0"


def test_two_joins_of_one_name_are_refused(orders, paid):
    orders.join(paid, on="order_id", within=NEAR, name="pay")
    with pytest.raises(ConfigError, match="name='pay' is already the name of another operator"):
        orders.join(paid, on="order_id", within=NEAR, name="pay")


def test_a_join_that_lost_its_event_time_can_be_written_but_not_joined_again(orders, paid):
    lost = orders.select("order_id", "amount").join(paid.select("order_id", "name"), on="order_id", within=NEAR)
    with pytest.raises(ConfigError, match=r"The left stream has lost its event time: .* Keep the time column in the"):
        lost.join(paid, on="order_id", within=NEAR)


# Keys


def field(kind: pa.DataType) -> pa.Field:
    return pa.field("k", kind)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (
            lambda rows: rows.select("order_id", "t AS u").lookup(CUSTOMERS, on="order_id"),
            r"its time column was not .*",
        ),
        (lambda rows: counted(rows).lookup(CUSTOMERS, on="order_id"), r"the time of a window's result .* or before"),
        (lambda rows: rows.window(pk.rows(3)).by("order_id").agg(n=pk.count()), r"windows that count rows have an ord"),
    ],
)
@pytest.mark.parametrize("use", ["sort", "window", "join"])
def test_a_stream_without_time_says_how_it_was_lost(orders, paid, make, cause, use):
    uses = {
        "sort": lambda stream: stream.sort(),
        "window": lambda stream: stream.window(range=5).agg(n=pk.count()),
        "join": lambda stream: stream.join(paid, on="order_id", within=pk.band(before=1, after=1)),
    }
    with pytest.raises(ConfigError, match=rf"has lost its event time: {cause}"):
        uses[use](make(orders))


def counted(rows: pk.Stream) -> pk.Stream:
    return rows.window(range=5).by("order_id").agg(n=pk.count())


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.decimal128(38, 0), pa.decimal128(38, 10)),
        (pa.int64(), pa.uint64()),
        (pa.uint64(), pa.float64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("ns")),
    ],
    ids=str,
)
def test_keys_whose_comparison_would_lose_values_are_refused(kinds):
    with pytest.raises(
        ConfigError, match=r"on='k': the left key is .*, and no common type holds every value of both\. C"
    ):
        common_key(*map(field, kinds))


WORDS = pa.dictionary(pa.int32(), pa.string())
BERLIN = pa.timestamp("s", "Europe/Berlin")
ALIKE = [
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.binary(), pa.large_binary(), pa.large_binary()),
    (pa.binary(2), pa.binary(), pa.binary()),
    (pa.uint8(), pa.uint64(), pa.uint64()),
    (pa.uint32(), pa.int64(), pa.int64()),
    (pa.uint32(), pa.int32(), pa.int64()),
    (pa.int16(), pa.float32(), pa.float32()),
    (pa.int32(), pa.float32(), pa.float64()),
    (pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ms")),
    (pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "Europe/Berlin")),
    (pa.null(), pa.int64(), pa.int64()),
]
"""Keys of different types, and the type in which every value of both can be compared."""


@pytest.mark.parametrize(("one", "other", "expected"), ALIKE, ids=str)
def test_keys_of_different_types_are_compared_in_one_that_has_all_values(one, other, expected):
    assert common_key(field(one), field(other)) == expected
    assert common_key(field(other), field(one)) == expected


@pytest.mark.parametrize(
    ("own", "key"),
    [
        (pa.large_string(), pa.string()),
        (pa.string(), pa.large_string()),
        (pa.timestamp("s", "UTC"), BERLIN),
        (BERLIN, pa.timestamp("us", "UTC")),
        (pa.uint32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.null(), WORDS),
        (pa.large_string(), WORDS),
        (WORDS, pa.dictionary(pa.int64(), pa.large_string())),
    ],
    ids=str,
)
def test_a_stream_is_looked_up_as_what_the_table_has(own, key):
    assert table_key(field(own), field(key)) == key


@pytest.mark.parametrize(
    ("own", "key", "instead"),
    [
        (pa.int64(), pa.int32(), r"Cast the table's key to int64, or the stream's to its type: \.select\("),
        (pa.int64(), pa.uint32(), r"Cast the table's key to int64\.$"),
        (pa.timestamp("us"), pa.timestamp("s"), r"Cast the table's key to timestamp\[us\]\.$"),
        (pa.string(), pa.null(), r"Cast the table's key to string\.$"),
    ],
    ids=str,
)
def test_a_stream_whose_keys_the_table_cannot_have_is_refused(own, key, instead):
    with pytest.raises(
        ConfigError, match=rf"the table's key 'k' is .* cannot hold every key of the stream\. {instead}"
    ):
        table_key(field(own), field(key))


def test_a_map_is_no_key():
    with pytest.raises(ConfigError, match=r"on='k' is of type map<.*>, which cannot be compared\. Join on one of its"):
        common_key(field(pa.map_(pa.string(), pa.int64())), field(pa.map_(pa.string(), pa.int64())))


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.map_(pa.string(), pa.int64())), pa.struct({"m": pa.map_(pa.string(), pa.int64())})], ids=str
)
def test_a_map_inside_a_key_is_no_key_either(kind):
    with pytest.raises(ConfigError, match="cannot be compared"):
        common_key(field(kind), field(kind))


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        (pa.string_view(), "string"),
        (pa.binary_view(), "binary"),
        (pa.list_(pa.string_view()), "string"),
        (pa.dictionary(pa.int32(), pa.string_view()), "string"),
        (pa.list_view(pa.int64()), "list<item: int64>"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "string"),
        (pa.uuid(), r"fixed_size_binary\[16\]"),
    ],
    ids=str,
)
def test_a_key_that_arrow_cannot_take_or_compare_is_refused_with_the_type_to_cast_it_to(kind, instead):
    with pytest.raises(
        ConfigError, match=rf"on='k' is a key of type .*, which Arrow cannot .*\. Cast it to {instead} in the source"
    ):
        common_key(field(kind), field(kind))


FEW_WORDS = pa.dictionary(pa.int8(), pa.string())
NUMBERS = pa.dictionary(pa.int32(), pa.int64())


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (WORDS, pa.string(), pa.string()),
        (pa.string(), WORDS, WORDS),
        (pa.string(), FEW_WORDS, pa.string()),
        (WORDS, WORDS, pa.string()),
        (NUMBERS, NUMBERS, pa.int64()),
        (pa.int64(), NUMBERS, pa.int64()),
        (pa.int32(), NUMBERS, pa.int64()),
    ],
    ids=str,
)
def test_a_dictionary_is_compared_as_what_it_stands_for(left, right, expected):
    assert common_key(field(left), field(right)) == expected


@pytest.mark.parametrize(
    ("own", "key", "expected"),
    [
        (WORDS, FEW_WORDS, pa.string()),
        (FEW_WORDS, FEW_WORDS, pa.string()),
        (pa.large_string(), FEW_WORDS, pa.string()),
        (NUMBERS, NUMBERS, pa.int64()),
        (pa.int32(), NUMBERS, pa.int64()),
    ],
    ids=str,
)
def test_keys_that_a_dictionary_may_have_no_room_for_are_looked_up_as_what_it_stands_for(own, key, expected):
    assert table_key(field(own), field(key)) == expected


def test_dictionaries_of_other_values_are_refused():
    with pytest.raises(ConfigError, match="no common type holds every value of both"):
        common_key(field(WORDS), field(NUMBERS))


# The rest


def test_unions_need_the_same_columns_and_the_same_time(flow, orders):
    other = flow.source(ROWS.drop_columns(["name"]), time="t", name="other")
    with pytest.raises(
        ConfigError, match=r"union: stream 1 has columns order_id int64, t int64, amount int64, the first"
    ):
        orders.union(other)


def test_unions_need_the_same_unit(flow):
    columns = {"a": [1], "b": pa.array([0], pa.timestamp("us"))}
    one = flow.source(pa.table(columns), time="a", name="one")
    two = flow.source(pa.table(columns), time="b", name="two")
    with pytest.raises(ConfigError, match="union: stream 1 counts microseconds, the first ticks"):
        one.union(two)


def test_a_selection_of_nothing_or_of_the_unknown_is_refused(orders):
    with pytest.raises(
        ConfigError, match=r"select\(\) names no column\. Write \.select\('\*', 'amount \* 2 AS twice'\)"
    ):
        orders.select()
    with pytest.raises(ConfigError, match=r"'amuont \* 2' cannot be computed: .*amuont"):
        orders.select("amuont * 2")
    with pytest.raises(ConfigError, match=r"'amuont > 2' cannot be computed: .*amuont"):
        orders.where("amuont > 2")


def test_two_sinks_of_one_path_are_refused(orders, tmp_path):
    orders.to_parquet(str(tmp_path / "out"))
    with pytest.raises(ConfigError, match=r"is already the folder of another sink\. Use another one"):
        orders.to_parquet(str(tmp_path / "out") + "/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_age": -5}, r"max_age=-5 is negative\. Write how long rows may wait, as in '10 s', or 0"),
        ({"max_age": "-5 s"}, r"max_age='-5 s' is negative"),
        (
            {"max_age": 0, "method": "hybridjoin"},
            r"max_age=0 says that no row may wait, but method=.* Write how long, as",
        ),
        ({"max_age": "0 s", "method": "meshjoin"}, r"max_age=0 says that no row may wait, but method=.* method='auto'"),
        ({"max_age": 0, "shed": "considering"}, r"but shed='considering' lets rows wait.* or shed='none'"),
        ({"shed": None}, r"shed=None is not a way to shed load\. Write shed='considering', .* or pk\.Shedding\("),
        ({"shed": True}, r"shed=True is not a way to shed load"),
        ({"shed": pk.Shedding("keep", to=5)}, r"to=5 is not a folder for shed rows\. Write its path or URI"),
        ({"on": None}, r"on=None names no columns\. Write on='order_id', a list .*, on={'ours': 'theirs'}"),
        ({"method": ["inlj"]}, r"method=\['inlj'\] is not one of auto, broadcast, inlj"),
        ({"name": 5}, r"name=5 must be a string\. Write a name in quotes"),
        ({"suffix": 5}, r"suffix=5 must be a string: what to append to a name that is taken, like '_right'"),
        (
            {"table": "ftp://x/y"},
            r"'ftp://x/y' is not in a file system that pyarrow supports .* Write a path, or a URI",
        ),
    ],
)
def test_a_lookup_that_makes_no_sense_is_refused(orders, arguments, message):
    with pytest.raises(ConfigError, match=message):
        orders.lookup(**{"table": ROWS, "on": "order_id", **arguments})


@pytest.mark.parametrize("method", ["ssij", "hybridjoin", "chybridjoin", "partitioned", "partition-based", "cmeshjoin"])
def test_a_method_that_cannot_read_the_table_as_it_is_is_refused_while_the_lookup_is_built(orders, tmp_path, method):
    for number in range(2):
        pq.write_table(pa.table({"order_id": [1, 2], "v": [number, number]}), tmp_path / f"{number}.parquet")
    table = pk.ParquetTable(str(tmp_path), "order_id", partition_rows=1)
    with pytest.raises(
        ConfigError, match=rf"^method='{method}' .* Write method='cinlj' or 'meshjoin', or freshness='snapshot', "
    ):
        orders.lookup(table, on="order_id", freshness="latest", method=method)
    assert orders.lookup(table, on="order_id", freshness="latest", method="meshjoin")
    assert orders.lookup(table, on="order_id", method=method), "a snapshot is in pages"


@pytest.mark.parametrize("aggregate", ["sum", 3, pk.sum])
def test_what_is_no_aggregate_is_refused_with_one(orders, aggregate):
    with pytest.raises(ConfigError, match=r"total=.* is not an aggregate\. .* total=pk\.sum\('amount'\)"):
        orders.window(range=10).agg(total=aggregate)


def test_epochs_do_not_begin_before_one_another(flow, orders):
    paid = orders.to_memory()
    with pytest.raises(ConfigError, match=r"trigger='-1 s' is negative\. Write how often an epoch starts, as in '1 s'"):
        paid.start("-1 s")


@pytest.mark.parametrize("name", ["__hash", "__time", "__tag", "__mark", "__present"])
def test_a_table_with_a_column_that_is_called_as_one_inside_is_refused(orders, name):
    with pytest.raises(
        ConfigError, match=rf"The table's column '{name}' has a name that penstock reserves\. Rename it in the table"
    ):
        orders.lookup(pa.table({"order_id": [1], name: [1]}), on="order_id")


def test_a_table_with_two_columns_of_one_name_is_refused(orders):
    table = pa.table([[1], [2], [3]], names=["order_id", "v", "v"])
    with pytest.raises(ConfigError, match=r"The table has 2 columns 'v', .* Rename all but one in the table"):
        orders.lookup(table, on="order_id")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"foo": 5},
            r"foo= is not an option of a page table\. Write one of by, partition, partition_rows, page, columns",
        ),
        ({"keys": 5}, r"keys=5 names no column\. Write keys='id', or a list of columns"),
        ({"keys": []}, r"keys=\[\] names no column"),
    ],
)
def test_a_page_table_that_makes_no_sense_is_refused(tmp_path, arguments, message):
    with pytest.raises(ConfigError, match=message):
        pk.write_page_table(ROWS, str(tmp_path / "table"), **{"keys": "order_id", **arguments})


def test_duplicates_by_what_is_no_column_are_refused(orders):
    with pytest.raises(ConfigError, match=r"on=5 names no column\. Write on='id', or leave it out"):
        orders.distinct(on=5)


def test_a_lookup_in_pages_is_planned_by_key_without_a_cache_before_anything_is_measured(tmp_path):
    from penstock.planner import LookupPilot

    rows = pa.table({"k": range(2000), "name": ["x" * 90] * 2000})
    table = pk.write_page_table(rows, str(tmp_path / "table"), keys="k")
    flow = pk.LocalFlow()
    stream = flow.source(pa.table({"k": [1], "t": [1]}), time="t").lookup(table, on="k")
    node = stream._node
    pilot = LookupPilot.of(node.config, node.types[0], table.open(), "pages", share=100_000, slots=1)
    assert pilot.decide().method == "inlj"


def test_a_checkpoint_of_the_first_version_knows_a_band_however_it_is_written_and_shown(orders, paid):
    joined = orders.join(paid, on="order_id", within=pk.band(before=5, after=5))
    assert _config(joined._node)["within"] == "band(5, 5, ends='[]')"
    assert str(joined._node.config.within) == "band(before=5, after=5, ends='[]')"


def test_an_aggregate_that_cannot_be_subtracted_is_refused_by_the_differential_method_while_it_is_built(orders):
    with pytest.raises(ConfigError, match=r"^method='differential' subtracts what leaves a window, which n of type"):
        orders.window(range=10).agg(n=pk.max("amount"), method="differential")


@pytest.mark.parametrize("column", ["name", "price"])
def test_rows_are_numbered_by_whole_numbers_only(flow, column):
    rows = flow.source(ROWS.append_column("price", pa.array([1.5])), time="t", name="priced")
    with pytest.raises(
        ConfigError, match=rf"^row_num='{column}' is of type .* whole numbers\. Select cast\({column} AS"
    ):
        rows.window(pk.slide_by_tuple(5, row_num=column)).agg(n=pk.count())


def test_a_checkpoint_from_before_keys_could_be_apart_still_fits_a_join_that_merges_them(orders, paid):
    assert "keys" not in _config(orders.join(paid, on="order_id", within=NEAR, how="full")._node)
    sql = "FROM orders [RANGE 5 WATTR t] FULL JOIN paid [RANGE 5 WATTR t] ON orders.order_id = paid.order_id"
    assert _config(orders._flow.sql(f"SELECT * {sql}")._node)["keys"] == "apart"


# Arguments of the wrong type


@pytest.mark.parametrize("partition", [5, ("order_id", 5), [None]])
def test_rows_are_partitioned_by_columns(partition):
    with pytest.raises(ConfigError, match=r"^partition=.* must be a tuple of column names\. Write partition=\("):
        pk.rows(5, partition=partition)


@pytest.mark.parametrize("count", [1.5, True, "a", None])
def test_a_row_is_late_by_a_whole_number_of_rows(flow, count):
    with pytest.raises(ConfigError, match=r"^bounded_tuples\(count=.*\) is not a number of rows\. Write how many rows"):
        flow.source(ROWS, time="t", progress=pk.bounded_tuples(count))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": 5}, "column=5"),
        ({"column": None}, "column=None"),
        ({"column": ["t"]}, r"column=\['t'\]"),
        ({"column": "t", "by": 5}, "by=5"),
        ({"column": "t", "by": ["order_id", 5]}, "by=5"),
        ({"column": "t", "by": "order_id", "overall": 5}, "overall=5"),
    ],
)
def test_punctuations_are_columns(arguments, message):
    with pytest.raises(ConfigError, match=rf"^{message} is not the name of a column\. Write the name in quotes"):
        pk.punctuated(**arguments)


@pytest.mark.parametrize("path", ["", " ", 5, None])
def test_parquet_needs_a_folder(orders, path):
    with pytest.raises(ConfigError, match=r"^to_parquet\(.*\) names no folder\. Write where the files go, as in 'out/"):
        orders.to_parquet(path)


def test_a_folder_may_be_a_path(orders, tmp_path):
    assert str(orders.to_parquet(tmp_path / "out").sink) == f"parquet {tmp_path / 'out'}"


def test_what_takes_epochs_is_a_function(orders):
    with pytest.raises(ConfigError, match=r"^foreach_epoch\(5\) cannot be called\. Pass a function of an epoch's rows"):
        orders.foreach_epoch(5)


@pytest.mark.parametrize("rows", ["a", 1.5, True, -1])
def test_the_console_shows_a_whole_number_of_rows(orders, rows):
    with pytest.raises(ConfigError, match=r"^to_console\(.*\) is not a number of rows\. Write how many to print"):
        orders.to_console(rows)
