"""Random lookups in every store equal DuckDB's joins: 200 in CI, thousands by --draw-cases."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from penstock.core.errors import ConfigError, PenstockError
from tests.draws.lookups import LookupCase, Store, difference, draw_lookup

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_kept")]


def ran(case: LookupCase, folder: Path) -> list[Any]:
    """Pairs of values that come out."""
    store = Store(case, folder)
    flow = pk.LocalFlow(memory=case.memory, shards=case.shards)
    rows = flow.source(store.epochs(), time="t", progress=pk.ordered())
    out = rows.lookup(
        store.table, on=f"k_{case.kind}", how=case.how, freshness=case.freshness, method=case.method
    ).to_memory()
    flow.run()
    table = out.table()
    return list(zip(table.column("v").to_pylist(), table.column("w").to_pylist(), strict=True))


def test_random_lookups_equal_joins_of_duckdb(tmp_path, monkeypatch, draws):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    failures, refused, count = [], Counter(), 0
    for count, seed in enumerate(draws(200), start=1):
        case = draw_lookup(seed)
        folder = tmp_path / str(count)
        folder.mkdir()
        try:
            found = ran(case, folder)
        except ConfigError as error:
            refused[f"{case.store} {case.kind} {case.method} {case.freshness}: {error}"] += 1
            continue
        except PenstockError as error:
            failures.append(f"--draw={seed}: {type(error).__name__}: {error}\n{case}")
            continue
        wrong = difference(case, found)
        if wrong:
            failures.append(f"--draw={seed}: {wrong}\n{case}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
    assert refused.total() <= count // 4, f"Too many were refused: {refused.most_common(20)}"
