"""The linear MSJ: its order follows what it measures, and what it probes against trees of stores (F25)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.operators.multi_way import Leaf, Node, trees
from penstock.operators.multi_way.baselines.mjoin import MJoin
from penstock.operators.multi_way.msj import MSJoin
from penstock.operators.multi_way.plan import leaves, predicates_of
from tests.operators.multi_way.cases import LinearCase, LinearRun, arrive, linear
from tests.streams import EpochEnd, batch

Arrivals = list[tuple[int, int]]
"""(port, key) of each row as it comes."""


def uniform(seed: int, ports: int, rows: int = 60, keys: int = 6) -> Arrivals:
    """Rows of all ports in any order."""
    rng = random.Random(seed)
    return [(rng.randrange(ports), rng.randrange(keys)) for _ in range(rows)]


def linear_probes(arrivals: Arrivals, ports: int, orders: dict[int, tuple[int, ...]]) -> int:
    """By the definition: an arrival probes a store, each match the next, and so on."""
    seen: Counter[tuple[int, int]] = Counter()
    probes = 0
    for port, key in arrivals:
        partials = 1
        for other in orders[port]:
            probes += partials
            partials *= seen[other, key]
        seen[port, key] += 1
    return probes


def tree_probes(arrivals: Arrivals, tree: Node) -> int:
    """By the definition: each row that enters a store, of a stream or of intermediate results, probes the sibling."""
    seen: Counter[tuple[frozenset, int]] = Counter()
    probes = 0

    def enter(path: list, key: int, rows: int) -> None:
        nonlocal probes
        (parent, node), *above = path
        sibling = parent.right if node == parent.left else parent.left
        seen[node.rels, key] += rows
        probes += rows
        if above:
            enter(above, key, rows * seen[sibling.rels, key])

    paths = {leaf.rel: path_of(tree, leaf) for leaf in leaves(tree)}
    for port, key in arrivals:
        enter(paths[str(port)], key, 1)
    return probes


def path_of(tree: Node | Leaf, leaf: Leaf) -> list[tuple[Node, Node | Leaf]]:
    """From a leaf to the root: (parent, child)."""
    if isinstance(tree, Leaf):
        return []
    child = tree.left if leaf.rel in tree.left.rels else tree.right
    return [*path_of(child, leaf), (tree, child)]


def order_of(tree: Node, port: int) -> tuple[int, ...]:
    """The order in which a linear operator does what the tree does: siblings from the leaf up."""
    order: list[int] = []
    for parent, child in path_of(tree, Leaf(str(port))):
        sibling = parent.right if child == parent.left else parent.left
        order += [int(leaf.rel) for leaf in leaves(sibling)]
    return tuple(order)


def on(ports: int) -> list[str]:
    return [f"{a}.k = {b}.k" for a in map(str, range(ports)) for b in map(str, range(ports)) if a < b]


def run(arrivals: Arrivals, ports: int, method="msj") -> LinearRun:
    join = LinearRun(linear(ports, method=method))
    join.on(*(arrive(port, (key, 0), ids=place) for place, (port, key) in enumerate(arrivals)))
    return join


@pytest.mark.parametrize("ports", [3, 4])
def test_f25_a_linear_operator_probes_at_least_as_often_as_each_tree_whose_order_it_follows(ports):
    """It finds anew what the tree has stored. Only an order of its own can make it probe less."""
    for tree in trees(list(map(str, range(ports))), predicates_of(on(ports))):
        for seed in range(4):
            arrivals = uniform(seed, ports)
            orders = {port: order_of(tree, port) for port in range(ports)}
            assert linear_probes(arrivals, ports, orders) >= tree_probes(arrivals, tree), str(tree)


@pytest.mark.parametrize("seed", range(3))
def test_f25_with_streams_alike_it_probes_more_often_than_every_tree(seed):
    arrivals = uniform(seed, 3, rows=150, keys=5)
    probes = run(arrivals, 3).counts()["probes"]
    assert probes > max(tree_probes(arrivals, tree) for tree in trees(["0", "1", "2"], predicates_of(on(3))))


@pytest.mark.parametrize("seed", range(4))
def test_f25_probes_are_counted_as_they_are_defined(seed, monkeypatch):
    rng = random.Random(seed)
    orders = {port: tuple(rng.sample([o for o in range(4) if o != port], 3)) for port in range(4)}
    monkeypatch.setattr(MSJoin, "order", lambda self, port: orders[port])
    arrivals = uniform(seed, 4)
    counts = run(arrivals, 4).counts()
    assert counts["arrivals"] == len(arrivals)
    assert counts["probes"] == linear_probes(arrivals, 4, orders)


def test_f25_the_order_is_the_best_for_what_is_stored():
    """Of store 1 a row matches 20 rows, of 2 one, of 3 none or five."""
    join = LinearRun(linear(4))
    keys = range(8)
    join.on(arrive(1, *((k, 0) for k in keys for _ in range(20))), arrive(2, *((k, 0) for k in keys)))
    join.on(arrive(3, *((k, 0) for k in keys if k % 4 == 0 for _ in range(5))))
    join.on(arrive(0, *((k, 0) for k in keys for _ in range(16))))
    (logic,) = join.logics
    assert logic.order(0) == (2, 3, 1)
    before = join.counts()["probes"]
    join.on(arrive(0, *((k, 0) for k in keys)))
    assert join.counts()["probes"] - before == 8 + 8 + 10, "8 rows, 8 partials with 2, 2 * 5 with 3"


def test_the_order_changes_when_the_stores_do_and_outlives_a_restart():
    join = LinearRun(linear(3))
    join.on(arrive(1, *[(1, 0)] * 5), arrive(2, (1, 0)), arrive(0, *[(1, 0)] * 16))
    assert join.logics[0].order(0) == (2, 1)
    join.on(EpochEnd(1))
    assert join.logics[0].order(0) == (2, 1)
    join.on(arrive(2, *[(1, 0)] * 50), *(arrive(0, *[(1, 0)] * 64) for _ in range(8)))
    assert join.logics[0].order(0) == (1, 2)


def test_few_arrivals_are_measured():
    join = LinearRun(linear(3))
    for _ in range(40):
        join.on(arrive(0, (1, 0), (2, 0)))
    join.on(arrive(1, *((k, 0) for k in range(1600))))
    assert join.counts()["samples"] == 80 // 16 + 32


def test_state_from_another_number_of_shards_brings_no_measurements_and_all_rows():
    case = LinearCase(
        linear(3), [arrive(0, (1, 0), (2, 0)), arrive(1, (1, 0), (2, 0)), EpochEnd(3), arrive(2, (1, 0), (2, 0))]
    )
    assert case.run().results == case.expected()


def test_probes_of_a_fixed_order_are_those_of_its_definition():
    """MJoin's arrivals probe a store once each, whatever they have found: fewer than a linear MSJ's partials."""
    arrivals = uniform(3, 3)
    order = (2, 0, 1)
    mjoin = run(arrivals, 3, MJoin(order)).counts()["probes"]
    orders = {port: tuple(other for other in order if other != port) for port in range(3)}
    assert len(arrivals) <= mjoin <= linear_probes(arrivals, 3, orders)


def test_rows_are_stored_as_they_came():
    join = LinearRun(linear(2))
    join.on(arrive(0, (3, 5), (1, 2)))
    (page,) = join.logics[0].state().pages
    rows = join.store.get(page.name)
    assert rows.sort_by("id").equals(batch([{"k": 3, "t": 5, "id": 0}, {"k": 1, "t": 2, "id": 1}]))
