"""The rooms and who may enter which: imports point one way, and everything public says what it does."""

from __future__ import annotations

import ast
import graphlib
import inspect
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import planner
from penstock.core.errors import PenstockError
from penstock.core.methods import Method, Methods
from penstock.core.windows import Slides
from penstock.flow.flow import Flow, Query
from penstock.flow.report import EpochReport, OperatorReport, Report
from penstock.flow.stream import MemoryOutlet, Outlet, Outlets, Stream
from penstock.local.flow import LocalFlow
from penstock.local.query import LocalQuery
from penstock.operators import aggregate, lookup, multi_way, window_join
from penstock.planner.window_aggregate.costs import AggregateLoad, Sizes, predict

PACKAGE = Path(penstock.__file__).parent
TESTS = Path(__file__).parent
LAB = PACKAGE.parents[1] / "lab"

MAY_IMPORT = {
    "core": set(),
    "kernels": {"core"},
    "operators": {"core", "kernels"},
    "storage": {"core", "kernels"},
    "planner": {"core", "kernels", "operators"},
    "sql": {"core", "operators"},
    "flow": {"core", "kernels", "operators", "planner", "sql"},
    "expressions": {"core", "sql", "flow"},
    "runtime": {"core", "kernels", "planner", "storage", "flow", "expressions"},
    "local": {"core", "kernels", "storage", "sql", "flow", "expressions", "runtime"},
    "spark": {"core", "kernels", "storage", "flow", "expressions", "runtime"},
    "lab": {
        "core",
        "kernels",
        "operators",
        "planner",
        "storage",
        "sql",
        "flow",
        "workloads",
        "runtime",
        "local",
        "spark",
        "programs",
        "__init__",
    },
    "workloads": {"core", "kernels", "programs"},
    "programs": {
        "core",
        "kernels",
        "operators",
        "planner",
        "storage",
        "flow",
        "local",
        "spark",
        "__init__",
    },
    "__init__": {"core", "operators", "storage", "flow", "local", "spark"},
}
"""Room by room: what it may import besides itself. A room that is not there yet is listed all the same.

`programs` are the modules beside the rooms: cli and what it starts. `lab` and its `workloads` are not in the package:
no room imports them, and cli opens them by name."""

MAKE_SESSIONS = ("spark", "lab", "programs")
"""The host, and the programs that start a Spark of their own to show or measure it."""

MODULES = sorted([*PACKAGE.rglob("*.py"), *LAB.rglob("*.py")])


def room_of(path: Path) -> str:
    if path.is_relative_to(LAB):
        return lab_room(path.relative_to(LAB.parent).parts)
    return room_named(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))


def room_named(name: str) -> str:
    """The room a top-level name belongs to; a name that is no module is the package's own."""
    if (PACKAGE / name).is_dir():
        return name
    return "programs" if name != "__init__" and (PACKAGE / f"{name}.py").exists() else "__init__"


def lab_room(parts: Sequence[str]) -> str:
    """The room of a module beside the package, by the parts of its name."""
    return "workloads" if parts[1:2] == ("workloads",) else "lab"


@cache
def import_nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Every import of a file, those inside functions and under TYPE_CHECKING included."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path) -> list[str]:
    """Every module that a file imports."""
    names: list[str] = []
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the whole name"
            whole = node.module not in ("penstock", "lab")
            names += [node.module] if whole else [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def rooms_entered(path: Path) -> set[str]:
    names = [tuple(name.split(".")) for name in imports(path)]
    ours = {room_named(parts[1] if parts[1:] else "__init__") for parts in names if parts[0] == "penstock"}
    return (ours | {lab_room(parts) for parts in names if parts[0] == "lab"}) - {room_of(path)}


def named(path: Path) -> str:
    return str(path.relative_to(LAB.parent))


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_imports_point_one_way(path: Path):
    wrong = rooms_entered(path) - MAY_IMPORT[room_of(path)]
    assert not wrong, f"{room_of(path)} must not import {', '.join(sorted(wrong))}"


TYPES_ONLY = {("penstock.flow.stream", "penstock.flow.flow")}
"""What a module may name for types alone: a stream knows its flow, which makes streams."""


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of the package that a file names, wherever it does, but for itself."""
    named: set[str] = set()
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        else:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            named |= parts & {*known} or {node.module or ""}
    return named & {*known} - {module_of(path)}


def test_no_modules_import_each_other():
    """In circles, that is; imports inside functions count."""
    known = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    graph = {name: modules_imported(path, known) for name, path in known.items()}
    for module, other in TYPES_ONLY:
        graph[module].remove(other)
    graphlib.TopologicalSorter(graph).prepare()


MIRRORED = ("core", "kernels", "operators", "planner", "sql", "storage", "flow", "expressions", "runtime", "local")


def test_tests_stand_where_what_they_test_stands():
    folders = {path.parent for room in MIRRORED for path in (TESTS / room).rglob("test_*.py")}
    assert [folder for folder in sorted(folders) if not (PACKAGE / folder.relative_to(TESTS)).is_dir()] == []


class Family(NamedTuple):
    """A list of methods, what their parameters derive from, the back end of stages, and the methods with a cost."""

    methods: Methods[Any]
    kind: type
    costs: Collection[str]

    def parameters(self, method: Method[Any]) -> Any:
        return getattr(method.parameters, "back", method.parameters)


FAMILIES = {
    "window_join": Family(window_join.METHODS, window_join.JoinMethod, planner.window_join.COSTS),
    "aggregate": Family(
        aggregate.METHODS,
        aggregate.AggregateMethod,
        predict(Slides(60, 1), AggregateLoad(rows=1e5, partials=1e4, results=1e4), Sizes(56, 0, 32, 32)),
    ),
    "lookup": Family(lookup.METHODS, lookup.methods.BackMethod, planner.lookup.COSTS),
    "multi_way": Family(multi_way.METHODS, multi_way.MultiJoinMethod, ["msj"]),
}


def leaves(kind: type) -> set[type]:
    """The classes of the package that derive from one and have none below. Those with slots are made twice."""
    below = [each for each in kind.__subclasses__() if each.__module__.startswith("penstock.")]
    known = {getattr(sys.modules[each.__module__], each.__name__) for each in below}
    return {leaf for each in known for leaf in leaves(each)} or {kind}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_method_s_parameters_are_listed(name: str):
    family = FAMILIES[name]
    assert leaves(family.kind) == {type(family.parameters(method)) for method in family.methods.values()}


LISTED = [(name, method) for name, family in FAMILIES.items() for method in family.methods.values()]


@pytest.mark.parametrize(("name", "method"), LISTED, ids=lambda part: getattr(part, "name", part))
def test_every_method_says_what_it_is_and_what_it_costs(name: str, method: Method[Any]):
    family = FAMILIES[name]
    assert family.methods[method.name] is method
    assert method.title
    assert method.sentence[0].islower(), "it follows the title and a colon"
    assert not re.search(r"[.:]$|\. |: ", method.sentence), "one sentence, without a full stop"
    assert callable(method.logic)
    assert (method.name in family.costs) == (method.auto == "may pick")


@pytest.mark.parametrize("name", FAMILIES)
def test_what_auto_never_picks_is_a_baseline_or_other_parameters_of_what_it_picks(name: str):
    family = FAMILIES[name]
    picked = {type(family.parameters(method)) for method in family.methods.values() if method.auto == "may pick"}
    for method in family.methods.values():
        kind = type(family.parameters(method))
        assert (kind not in picked) == (".baselines." in kind.__module__), method.name


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_only_the_spark_host_and_its_programs_know_pyspark(path: Path):
    if room_of(path) not in MAKE_SESSIONS:
        assert not [name for name in imports(path) if name.split(".")[0] in ("pyspark", "py4j")]


def test_only_the_command_line_opens_the_lab():
    named = [path for path in PACKAGE.rglob("*.py") if re.search(r"""["']lab[."']""", path.read_text())]
    assert named == [PACKAGE / "cli.py"]


HOSTS = ("local", "spark", "runtime")

OPERATORS = sorted(
    node.name
    for path in (PACKAGE / "operators").rglob("*.py")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef) and {"Operator", "ByMethod"} & {ast.unparse(b).split("[")[0] for b in node.bases}
)


def test_operators_are_found():
    assert {"WindowJoin", "WindowAggregate", "LookupJoin", "MultiJoin", "Guard", "Distinct", "Sort", "DupElim"} <= {
        *OPERATORS
    }


@pytest.mark.parametrize("path", [p for p in MODULES if room_of(p) in HOSTS], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_host_names_an_operator(path: Path):
    """What a host needs to know of one is a question on `core.operator.Operator`."""
    tree = ast.parse(path.read_text())
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not words & {*OPERATORS}
    assert not [name for name in imports(path) if name.startswith(("penstock.operators", "penstock.planner.window"))]


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
