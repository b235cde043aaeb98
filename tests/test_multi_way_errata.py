"""Wrong forms of multi-way joins must fail: the errata of the spec, put back into the product, one after the other.

Each mutant comes with a check that compares with a definition: brute force, SQL, or the equations as they must be. The
product passes the check, the mutant does not.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from lab.multi_way_choice import choose
from lab.multi_way_unrolled import three_way_communication
from penstock.core.time import TIME_MIN
from penstock.core.within import band
from penstock.flow.multi_way import MultiWay
from penstock.operators.multi_way import Plan
from penstock.operators.multi_way.expansion import Expansion
from penstock.operators.multi_way.linear import LinearJoin
from penstock.operators.multi_way.msj import MSJoin
from penstock.operators.window_join.oa import OAJoin
from penstock.planner.multi_way import JoinLoad, Relation, costs, predict_join
from penstock.runtime import partials, steps
from penstock.storage import payload
from tests.operators.multi_way.cases import LinearRun, arrive, linear

PLAN = Plan.parse("(R S) T", ["R.a = S.a", "R.b = T.b"])


def load(seed: int) -> JoinLoad:
    rng = np.random.default_rng(seed)
    rows = {name: Relation(*(float(n) for n in rng.integers(1, 500, 3))) for name in "RST"}
    return JoinLoad(rows, {frozenset("RS"): 0.02, frozenset("RT"): 0.05, frozenset("ST"): 1.0})


# The cost model


def check_that_results_are_not_charged_as_a_store() -> None:
    """Late, results are fetched for, and stored nowhere: the 3-way model has no term for the root (§6-1)."""
    for seed in range(50):
        terms = three_way_communication(load(seed), "R", "S", "T", "late")
        joined = sum(size for edge, size in terms.items() if not edge.startswith("fetch"))
        assert predict_join(PLAN, load(seed), "").communication == pytest.approx(joined)


def with_the_root(plan: Plan, root: str) -> Any:
    return plan.nodes


def check_that_all_pairs_below_a_node_count() -> None:
    """Rows of a join of three by nested loops, whose first and last relation share a predicate, too (§6-3)."""
    rng = np.random.default_rng(1)
    some = {name: rng.integers(0, 4, (30, 2)) for name in "RST"}
    pairs = {frozenset(pair): 0 for pair in itertools.combinations("RST", 2)}
    counted = 0
    for r, s, t in itertools.product(*some.values()):
        counted += bool(r[0] == s[0] and s[1] == t[1] and r[1] == t[0])
    for one, other in itertools.combinations("RST", 2):
        column = {"RS": (0, 0), "ST": (1, 1), "RT": (1, 0)}[one + other]
        pairs[frozenset((one, other))] = sum(
            bool(a[column[0]] == b[column[1]]) for a, b in itertools.product(some[one], some[other])
        )
    selectivities = {pair: count / 900 for pair, count in pairs.items()}
    about = JoinLoad({name: Relation(30, 8, 8) for name in "RST"}, selectivities)
    assert about.card("RST") == pytest.approx(counted, rel=0.25)


def of_neighbours(self: JoinLoad, rels: Any) -> float:
    """f of pairs that follow each other only."""
    pairs = (self.selectivities.get(frozenset(pair), 1.0) for pair in itertools.pairwise(rels))
    return math.prod(pairs) * math.prod(self.relations[rel].rows for rel in rels)


def check_that_the_lightest_payload_is_fetched_first() -> None:
    """σ: no other order of stores moves fewer bytes, so that no other makes late look dearer than it is."""
    for seed in range(50):
        about = load(seed)
        found = predict_join(PLAN, about, "")
        every = [costs.reconstruction(about, order) for order in itertools.permutations("RST")]
        assert found.reconstruction == pytest.approx(min(every))
        early, late = predict_join(PLAN, about, "RST").bytes(), found.communication + min(every)
        assert choose(PLAN, about).name == ("late" if late < early else "early")


def heaviest_first(about: JoinLoad, carried: Any = ()) -> tuple[str, ...]:
    left = (rel for rel in about.relations if rel not in carried)
    return tuple(sorted(left, key=lambda rel: -about.relations[rel].payload))


# One operator


def check_that_every_two_rows_must_be_near() -> None:
    """0 and 8 are both within 5 of 4."""
    join = LinearRun(linear(3, band(before=5, after=5)))
    join.on(arrive(0, (1, 0), (1, 4)), arrive(1, (1, 8), ids=10), arrive(2, (1, 4), ids=20))
    join.end()
    assert join.results == Counter([(1, 10, 20)])


def near_the_arrival_only(right: Any) -> Any:
    def matches(self: Expansion, arrivals: Any, stores: Any, port: int, some: Any) -> Iterator[Any]:
        yield from right(self, arrivals, stores, port, some._replace(times={}))

    return matches


def check_that_every_result_comes_once() -> None:
    join = LinearRun(linear(3))
    rows = [arrive(port, (7, port), (8, port), ids=10 * port) for port in (1, 0, 2)]
    join.on(*rows, arrive(0, (7, 9), ids=5))
    join.end()
    assert join.results == Counter({(0, 10, 20): 1, (1, 11, 21): 1, (5, 10, 20): 1})


def stored_after_all_have_probed(patch: pytest.MonkeyPatch) -> None:
    """Rows of an epoch do not meet each other."""
    keep, advance = LinearJoin._keep, LinearJoin.advance
    waiting: list[Any] = []
    patch.setattr(LinearJoin, "_keep", lambda self, arrivals: waiting.append(arrivals))

    def flushed(self: LinearJoin, port: int, bound: int) -> Any:
        while bound > TIME_MIN and waiting:
            keep(self, waiting.pop(0))
        return advance(self, port, bound)

    patch.setattr(LinearJoin, "advance", flushed)


def probed_after_all_are_stored(patch: pytest.MonkeyPatch) -> None:
    """Each row of a result finds the others, and nobody tells that it was there before: no dedupe."""
    meet, advance = MSJoin._meet, LinearJoin.advance
    waiting: list[Any] = []

    def later(self: Any, arrivals: Any) -> Iterator[Any]:
        waiting.append(arrivals)
        return iter(())

    def flushed(self: Any, port: int, bound: int) -> Iterator[Any]:
        while bound > TIME_MIN and waiting:
            yield from meet(self, waiting.pop(0))
        yield from advance(self, port, bound)

    patch.setattr(MSJoin, "_meet", later)
    patch.setattr(LinearJoin, "advance", flushed)


# Trees of joins, in a flow


def check_a_tree(tmp_path: Any, when: str = "early", within: Any = None) -> None:
    """A join of three in two epochs, from files, equals DuckDB's."""
    rng = np.random.default_rng(6)
    some, flow, streams = {}, pk.LocalFlow(), {}
    for name, keys in {"r": "ab", "s": "a", "t": "b"}.items():
        columns: dict[str, Any] = {key: rng.integers(0, 4, 30) for key in keys}
        columns[f"text_{name}"] = [f"{name} {n}" for n in range(30)]
        some[name] = pa.table({**columns, "at": rng.integers(0, 30, 30)})
        folder = tmp_path / name
        folder.mkdir()
        for number in range(2):
            pq.write_table(some[name].slice(15 * number, 15), folder / f"{number}.parquet")
        streams[name] = flow.parquet(folder, time="at", name=name, max_files=1)
    on = ["r.a = s.a", "r.b = t.b"]
    joined = flow.join(**streams, on=on, plan="(r s) t", materialize=when, within=within)
    out = joined.select("text_r", "text_s", "text_t").to_memory()
    flow.run()
    apart = [f"abs({x}.at - {y}.at) <= 5" for x, y in ("rs", "rt", "st")] if within else []
    with duckdb.connect() as engine:
        for name, rows in some.items():
            engine.register(name, rows)
        asked = f"SELECT text_r, text_s, text_t FROM r, s, t WHERE {' AND '.join([*on, *apart])}"
        expected = Counter(engine.sql(asked).fetchall())
    assert expected
    assert Counter(zip(*(column.to_pylist() for column in out.table().columns), strict=True)) == expected


def near_the_pair_only(right: Any) -> Any:
    """The time of a pair, and not those of both its rows."""
    return lambda self, left, other: (right(self, left, other)[0], ())


def probes_before_partners_are_stored(patch: pytest.MonkeyPatch) -> None:
    """A join stores an epoch's rows after all of them have probed."""
    settle, advance = OAJoin._settle, OAJoin.advance
    waiting: list[Any] = []

    def later(self: OAJoin, *arrived: Any) -> Iterator[Any]:
        waiting.append((self, arrived))
        return iter(())

    def flushed(self: OAJoin, port: int, bound: int) -> Iterator[Any]:
        for join, arrived in waiting:
            yield from settle(join, *arrived)
        waiting.clear()
        yield from advance(self, port, bound)

    patch.setattr(OAJoin, "_settle", later)
    patch.setattr(OAJoin, "advance", flushed)


def drops_what_a_later_join_is_on(patch: pytest.MonkeyPatch) -> None:
    """Partial results are to lack a column of a later equality, as if it had been evaluated."""
    right = partials.narrowed

    def too_narrow(sinks: Any, kept: Any = None) -> Any:
        return right(sinks, {"join0": ["r0_text_r", "r0_at", "r1_at", "r1_text_s"]})

    patch.setattr("penstock.local.query.narrowed", too_narrow)


def fetched_from_the_first_row(right: Any) -> Any:
    """A row that has brought its payload, and so has no place, is taken for the first one of the first unit."""

    def fetched(rows: pa.Table, what: Any, size: int) -> Any:
        place = rows.schema.get_field_index(what.row)
        return right(rows.set_column(place, what.row, rows.column(what.row).fill_null(0)), what, size)

    return fetched


def check_that_rows_keep_what_they_have_brought(tmp_path: Any) -> None:
    """One row has left its text in a file, and one has brought it: a switch came in between."""
    pq.write_table(pa.table({"text": ["first", "second"]}), tmp_path / "0.parquet")
    files = payload.Files("parquet", str(tmp_path), pa.schema({"text": pa.string()}))
    home = payload.Home(str(tmp_path / "home"), "errata", "errata", "s", files)
    home.note(0, [(str(tmp_path / "0.parquet"), ())])
    rows = pa.table({"text": pa.array([None, "brought"]), "at": pa.array([1, None], pa.int64())})
    fetch = steps.Fetch((steps.Fetched("at", home, (("text", ("text",)),)),), ("text",))
    try:
        assert fetch.whole(rows).column("text").to_pylist() == ["second", "brought"]
    finally:
        payload.forget_decoded("errata")


class Mutant(NamedTuple):
    """What is put wrong, and the check that must see it."""

    put: Callable[[pytest.MonkeyPatch], None]
    check: Callable[[Any], None]


def setting(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Put something in place of an attribute, given what it was."""
    return lambda patch: patch.setattr(owner, name, make(getattr(owner, name)))


MUTANTS = {
    "the root is charged (§6-1)": Mutant(
        setting(costs, "_charged", lambda _: with_the_root), lambda _: check_that_results_are_not_charged_as_a_store()
    ),
    "neighbours only make the size of a join (§6-3)": Mutant(
        setting(JoinLoad, "card", lambda _: of_neighbours), lambda _: check_that_all_pairs_below_a_node_count()
    ),
    "the heaviest payload first": Mutant(
        setting(costs, "reconstruction_order", lambda _: heaviest_first),
        lambda _: check_that_the_lightest_payload_is_fetched_first(),
    ),
    "a band about the arrival only": Mutant(
        setting(Expansion, "_matches", near_the_arrival_only), lambda _: check_that_every_two_rows_must_be_near()
    ),
    "a band about the pair only, in a tree": Mutant(
        setting(MultiWay, "_near", near_the_pair_only),
        lambda folder: check_a_tree(folder, within=band(before=5, after=5)),
    ),
    "stored after the probes of an epoch": Mutant(
        stored_after_all_have_probed, lambda _: check_that_every_result_comes_once()
    ),
    "probes after all are stored, without dedupe": Mutant(
        probed_after_all_are_stored, lambda _: check_that_every_result_comes_once()
    ),
    "stored after the probes of an epoch, in a tree": Mutant(
        probes_before_partners_are_stored, lambda folder: check_a_tree(folder, "late")
    ),
    "payload that was brought is fetched from another row": Mutant(
        setting(steps, "_fetched", fetched_from_the_first_row), check_that_rows_keep_what_they_have_brought
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_product_passes_where_the_mutant_fails(name, tmp_path, monkeypatch):
    mutant = MUTANTS[name]
    folders = [tmp_path / part for part in ("right", "wrong")]
    for folder in folders:
        folder.mkdir()
    mutant.check(folders[0])
    mutant.put(monkeypatch)
    with pytest.raises(AssertionError):
        mutant.check(folders[1])


def test_a_partial_result_without_the_key_of_a_later_join_is_refused_rather_than_joined(tmp_path, monkeypatch):
    drops_what_a_later_join_is_on(monkeypatch)
    with pytest.raises(partials.NotKeptError, match="kept without r0_b"):
        check_a_tree(tmp_path)
