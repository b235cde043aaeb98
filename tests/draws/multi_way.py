"""Joins of several streams at random: predicates × plans × nearness in time × epochs, and what they give by DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

import penstock as pk
from penstock.core.progress import Policy
from penstock.core.within import Band, Tumbling
from penstock.flow.materialize import asked_by_stream
from penstock.operators.multi_way import Node, Predicate, trees
from penstock.operators.multi_way.plan import predicates_of

COLUMNS = {"a": pa.int64(), "b": pa.int32(), "c": pa.string()}
"""Columns that streams may be joined by; numbers with numbers, texts with texts."""

SCHEMA = pa.schema({"id": pa.int64(), "t": pa.int64(), **COLUMNS, "pay": pa.string()})


@dataclass(frozen=True)
class MultiWayCase:
    """One join: its predicates, its plan, how near rows must be, and the rows of each epoch by alias."""

    on: tuple[str, ...]
    plan: str
    method: str
    within: Band | Tumbling | None
    time: str
    epochs: tuple[Mapping[str, pa.Table], ...]
    policy: Policy | None
    key: Mapping[str, tuple[str, ...]] | None = None

    @property
    def aliases(self) -> list[str]:
        """The streams."""
        return list(self.epochs[0])

    def rows(self, alias: str) -> pa.Table:
        """All rows of a stream."""
        return pa.concat_tables(epoch[alias] for epoch in self.epochs)


def draw_multi_way(seed: str, epochs: int | None = None) -> MultiWayCase:
    """The case of a seed: equal seeds give equal cases."""
    rng = random.Random(seed)
    aliases = ["li", "o", "s", "c", "n", "r"][: rng.choice([2, 3, 3, 3, 4, 4, 5, 6])]
    rng.shuffle(aliases)
    one_key = rng.random() < 0.4
    keys_of = _one_key(rng, aliases) if one_key else [{}]
    on = [
        _predicate(rng, alias, rng.choice(aliases[:place]), key)
        for key in keys_of
        for place, alias in enumerate(aliases)
        if place
    ]
    while rng.random() < 0.3:
        on.append(_predicate(rng, *rng.sample(aliases, 2), keys_of[0]))
    within = rng.choice([None, None, _band(rng), _band(rng), pk.tumbling(rng.randint(1, 30))])
    plans = [str(tree) for tree in trees(aliases, predicates_of(on)) if isinstance(tree, Node)]
    linear, method = " ".join(rng.sample(aliases, len(aliases))), "auto"
    if one_key and rng.random() < 0.6:
        plans, method = [], rng.choice(["auto", "auto", "msj", "mjoin", "amjoin"])
        if len(aliases) == 2:
            method = rng.choice(["msj", "mjoin", "amjoin", "bistream"])
    # Few distinct keys make many results: the more streams, the more keys. Of six streams rows are few instead.
    six = len(aliases) == 6
    count = 9 if six else rng.choice([3, 12, 30])
    keys = rng.randint(3, 6) if six else rng.randint(2, 4) * len(aliases)
    skewed = rng.random() < 0.3
    ids = iter(range(10**9))

    def row(epoch: int) -> dict[str, Any]:
        key = lambda: None if rng.random() < 0.1 else 0 if skewed and rng.random() < 0.3 else rng.randrange(keys)  # noqa: E731
        c = key()
        return {
            "id": next(ids),
            "t": epoch * 10 + rng.randint(0, 15),
            "a": key(),
            "b": key(),
            "c": None if c is None else f"k{c}",
            "pay": rng.choice([None, "", "x" * rng.randint(1, 40)]),
        }

    number = epochs or rng.randint(1, 4)
    return MultiWayCase(
        tuple(on),
        rng.choice(["auto", *plans]) if plans else linear,
        method,
        within,
        rng.choice(["latest", "earliest", *aliases]),
        tuple(
            {
                alias: pa.Table.from_pylist([row(epoch) for _ in range(rng.randint(0, count))], SCHEMA)
                for alias in aliases
            }
            for epoch in range(number)
        ),
        rng.choice([None, pk.bounded_delay(15)]),
        _keys(rng, aliases),
    )


def results(case: MultiWayCase) -> Counter[tuple[int, ...]]:
    """The ids of the rows of each result, by the definition of the join, as DuckDB reads it."""
    db = duckdb.connect(config={"threads": 1})
    for alias in case.aliases:
        db.register(alias, case.rows(alias))
    conditions = [str(Predicate.parse(text)) for text in case.on]
    for place, left in enumerate(case.aliases):
        conditions += [_near(case.within, left, right) for right in case.aliases[place + 1 :]]
    shown = ", ".join(f"{alias}.id" for alias in case.aliases)
    return Counter(
        db.execute(f"SELECT {shown} FROM {', '.join(case.aliases)} WHERE {' AND '.join(conditions)}").fetchall()
    )


def ids_of(case: MultiWayCase, rows: pa.Table) -> Counter[tuple[int, ...]]:
    """The ids of the rows of each result."""
    return Counter(zip(*(rows.column(f"{alias}_id").to_pylist() for alias in case.aliases), strict=True))


def mixed_up(case: MultiWayCase, rows: pa.Table) -> list[str]:
    """The streams whose payload in some result is not that of the row with this id."""
    wrong = []
    for alias in case.aliases:
        given = case.rows(alias)
        known = dict(zip(given.column("id").to_pylist(), given.column("pay").to_pylist(), strict=True))
        found = zip(rows.column(f"{alias}_id").to_pylist(), rows.column(f"{alias}_pay").to_pylist(), strict=True)
        wrong += [] if all(known[number] == pay for number, pay in found) else [alias]
    return wrong


Homes = dict[str, Any]
"""What `flow.join` and its sources are asked for: `materialize`, and by alias `payload`."""


def draw_homes(rng: random.Random, case: MultiWayCase, files: bool, apart: bool = False) -> Homes:
    """Where payload of each stream is, by what is asked of its source or of the join; most may change at a restart.

    `apart`, results follow an epoch later. A source is asked for nothing that the join is not.
    """
    when = rng.choice(["auto", "auto", "auto", "late", "early", {rng.choice(case.aliases): "late"}])
    asked = asked_by_stream(case.aliases, pk.late(decoupled=True) if apart else when)
    late = ["segments", "segments", *(["source"] * 3 if files else [])]
    homes = {"auto": [*late, "row", "auto"], "late": [*late, "auto"], "early": ["row", "auto"]}
    drawn = {alias: rng.choice(homes[asked.get(alias, "auto")]) for alias in case.aliases}
    return {"materialize": pk.late(decoupled=True) if apart else when, "payload": drawn}


def _one_key(rng: random.Random, aliases: list[str]) -> list[dict[str, str]]:
    """One column, or two, of each stream that are equal in all of them."""
    numbers = {alias: rng.choice("ab") for alias in aliases}
    return rng.choice([[numbers], [numbers], [dict.fromkeys(aliases, "c"), numbers]])


def _predicate(rng: random.Random, left: str, right: str, key: Mapping[str, str]) -> str:
    """An equality of two streams, by their columns of a key if there is one."""
    if key:
        return f"{left}.{key[left]} = {right}.{key[right]}"
    if rng.random() < 0.25:
        return f"{left}.c = {right}.c"
    return f"{left}.{rng.choice('ab')} = {right}.{rng.choice('ab')}"


def _keys(rng: random.Random, aliases: list[str]) -> dict[str, tuple[str, ...]] | None:
    """What is said to tell rows apart, true or not: results must not depend on it."""
    some = [alias for alias in aliases if rng.random() < 0.5]
    return {alias: tuple(rng.sample(["id", *COLUMNS], rng.randint(1, 2))) for alias in some} or None


def _band(rng: random.Random) -> Band:
    before, after = rng.randint(0, 12), rng.randint(2, 12)
    if rng.random() < 0.2:
        before, after = -rng.randint(0, 4), rng.randint(6, 20)
    return pk.band(before=before, after=after, ends=rng.choice(["[]", "[]", "()", "[)", "(]"]))


def _near(within: Band | Tumbling | None, left: str, right: str) -> str:
    if within is None:
        return "TRUE"
    if isinstance(within, Tumbling):
        first, second = (f"floor({side}.t / {within.size.amount}.0)" for side in (left, right))
        return f"{first} = {second}"
    lower, upper = ">" if within.ends[0] == "(" else ">=", "<" if within.ends[1] == ")" else "<="
    gap = f"{right}.t - {left}.t"
    return f"{gap} {lower} {-within.before.amount} AND {gap} {upper} {within.after.amount}"
