"""Random lookups in every store equal DuckDB's joins: 100 in CI, thousands by --draw-cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from penstock.core.errors import PenstockError
from tests.draws.lookups import LookupCase, Store, difference, draw_lookup

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_kept")]


def ran(case: LookupCase, folder: Path, postgres: str | None) -> list[Any]:
    """Pairs of values that come out."""
    store = Store(case, folder, postgres)
    flow = pk.LocalFlow(memory=case.setting.memory, shards=case.setting.shards)
    rows = flow.source(store.epochs(), time="t", progress=pk.ordered())
    found = rows.lookup(
        store.table,
        on=f"k_{case.kind}",
        how=case.how,
        freshness=case.freshness,
        max_age=case.max_age,
        method=store.method,
    )
    out = found.to_memory()
    flow.run()
    table = out.table()
    return list(zip(table.column("v").to_pylist(), table.column("w").to_pylist(), strict=True))


def test_random_lookups_equal_joins_of_duckdb(tmp_path, monkeypatch, draws, postgres_if_there):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    failures = []
    for number, seed in enumerate(draws(100)):
        case = draw_lookup(seed)
        if case.store == "postgresql" and postgres_if_there is None:
            continue
        try:
            wrong = difference(case, ran(case, tmp_path / str(number), postgres_if_there))
        except PenstockError as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            failures.append(f"--draw={seed}: {wrong}\n{case}")
    assert not failures, f"{len(failures)} cases are wrong:\n" + "\n".join(failures)
