"""The rooms and who may enter which: imports point one way, and everything public says what it does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.core.errors import PenstockError
from penstock.flow.flow import Flow, Query
from penstock.flow.report import EpochReport, OperatorReport, Report
from penstock.flow.stream import MemoryOutlet, Outlet, Outlets, Stream
from penstock.local.flow import LocalFlow, LocalQuery

PACKAGE = Path(penstock.__file__).parent

MAY_IMPORT = {
    "core": set(),
    "kernels": {"core"},
    "operators": {"core", "kernels"},
    "storage": {"core", "kernels"},
    "planner": {"core", "kernels", "operators"},
    "sql": {"core", "operators"},
    "flow": {"core", "kernels", "operators", "planner", "sql"},
    "workloads": {"core", "kernels"},
    "local": {"core", "kernels", "operators", "planner", "storage", "sql", "flow"},
    "spark": {"core", "kernels", "operators", "planner", "storage", "flow"},
    "lab": {
        "core",
        "kernels",
        "operators",
        "planner",
        "storage",
        "sql",
        "flow",
        "workloads",
        "local",
        "spark",
        "__init__",
    },
    "programs": {
        "core",
        "kernels",
        "operators",
        "planner",
        "storage",
        "flow",
        "workloads",
        "local",
        "spark",
        "lab",
        "__init__",
    },
    "__init__": {"core", "operators", "storage", "flow", "local", "spark"},
}
"""Room by room: what it may import besides itself. A room that is not there yet is listed all the same.

`programs` are the modules beside the rooms: cli and what it starts."""

MAKE_SESSIONS = ("spark", "lab", "programs")
"""The host, and the programs that start a Spark of their own to show or measure it."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return room_named(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))


def room_named(name: str) -> str:
    """The room a top-level name belongs to; a name that is no module is the package's own."""
    if (PACKAGE / name).is_dir():
        return name
    return "programs" if name != "__init__" and (PACKAGE / f"{name}.py").exists() else "__init__"


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, those inside functions and under TYPE_CHECKING included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the whole name"
            yield from ([f"penstock.{a.name}" for a in node.names] if node.module == "penstock" else [node.module])


def rooms_entered(path: Path) -> set[str]:
    ours = [name.partition(".")[2] for name in imports(path) if name.split(".")[0] == "penstock"]
    return {room_named(name.split(".")[0] or "__init__") for name in ours} - {room_of(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path):
    wrong = rooms_entered(path) - MAY_IMPORT[room_of(path)]
    assert not wrong, f"{room_of(path)} must not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_spark_host_and_its_programs_know_pyspark(path: Path):
    if room_of(path) not in MAKE_SESSIONS:
        assert not [name for name in imports(path) if name.split(".")[0] in ("pyspark", "py4j")]


def test_no_room_is_called_after_nothing_in_particular():
    vague = {"utils", "util", "helpers", "common", "manager", "misc", "base2"}
    assert not [path for path in MODULES if vague & {*path.parts, path.stem}]


def test_importing_penstock_loads_neither_spark_nor_duckdb():
    import subprocess
    import sys

    loaded = "import sys, penstock; print([m for m in ('pyspark', 'duckdb', 'sqlglot', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


EXPORTED = [name for name in penstock.__all__ if name != "Flow"]
"""`Flow` is Spark's; its file is read instead, so that this test needs no JVM."""


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_has_a_docstring(name: str):
    assert inspect.getdoc(getattr(penstock, name))


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, PenstockError)


@pytest.mark.parametrize("name", [name for name in EXPORTED if not is_error(getattr(penstock, name))])
def test_every_exported_function_and_class_shows_a_runnable_example(name: str):
    assert ">>> " in inspect.getdoc(getattr(penstock, name))


def test_the_spark_flow_shows_how_it_is_used():
    text = (PACKAGE / "spark" / "flow.py").read_text()
    flow = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "SparkFlow")
    lines = ast.get_docstring(flow).splitlines()
    assert [line for line in lines if line.startswith(("    ", ">>> "))], "an example, or an indented block of code"
    methods = [n for n in flow.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    assert [m.name for m in methods if ast.get_docstring(m) is None] == []


USED_BY_PEOPLE = [
    Flow, LocalFlow, Query, LocalQuery, Stream, Outlets, Outlet, MemoryOutlet, Report, EpochReport, OperatorReport,
]  # fmt: skip


@pytest.mark.parametrize("kind", USED_BY_PEOPLE, ids=lambda kind: kind.__name__)
def test_every_public_method_has_a_docstring(kind: type):
    assert inspect.getdoc(kind)
    for name, value in vars(kind).items():
        if not name.startswith("_") and (callable(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{kind.__name__}.{name}"
