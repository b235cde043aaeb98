"""The command line: ``penstock demo | doctor | bench | lab | vacuum``. What one needs is loaded when it is called."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from penstock.core.errors import CheckpointError, FlowError, PenstockError

_JAVA = 17
"""The oldest Java that Spark runs on."""
_JAVA_REMEDY = (
    "Install one: apt-get install openjdk-17-jre-headless, brew install openjdk@17, or conda install openjdk=17; "
    "or set JAVA_HOME to one that is there."
)
_LEAST_MEMORY = 10**9
_LEAST_DISK = 10**9


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 1 if it found something wrong, 2 if it could not be carried out."""
    options = _parser().parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\npenstock: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    from penstock import __version__

    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Joins and window queries over data streams within a memory budget, on Spark through PySpark.",
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="join two streams on local Spark and check the result; about a minute")
    demo.add_argument("--seconds", type=_seconds, default=25, metavar="N", help="how long the streams run (25)")
    demo.add_argument("--keep", action="store_true", help="keep the demo's folder and say where it is")

    doctor = commands.add_parser("doctor", help="check whether this machine has what penstock needs")
    doctor.add_argument("--quiet", action="store_true", help="print problems only")

    bench = commands.add_parser("bench", help="run a benchmark of a checkout")
    bench.add_argument("name", nargs="?", metavar="NAME", help="which one; by default, list their names")
    bench.add_argument("--quick", action="store_true", help="fewer rows, fewer rounds")

    lab = commands.add_parser("lab", help="repeat the published experiments that penstock builds on, simulated")
    actions = lab.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="list the experiments")
    run = actions.add_parser("run", help="run some; numbers, picture and verdict of each go to a folder")
    run.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help="a figure such as 3.4 or window-6-10, a chapter such as 3 or window-6, or all",
    )
    run.add_argument("--scale", type=_part, metavar="F", help="fraction of the original size, such as 0.05 or 1/20")
    run.add_argument("--seeds", type=int, metavar="N", help="how many pairs of traces to average over")
    report = actions.add_parser("report", help="collect all results in one page")
    record = actions.add_parser("record", help="record verdicts in the checkout and rewrite its pages about them")
    check = actions.add_parser("check", help="run some on a small scale and compare each check with its record")
    check.add_argument("ids", nargs="*", metavar="ID", help="which ones; by default, all")
    check.add_argument("--update", action="store_true", help="record the new outcomes")
    for action in (run, report, record):
        action.add_argument(
            "--out", type=Path, default=Path("lab-results"), metavar="DIR", help="the results folder (./lab-results)"
        )

    vacuum = commands.add_parser("vacuum", help="delete what a checkpoint no longer needs")
    vacuum.add_argument("checkpoint", metavar="CHECKPOINT", help="its folder; no flow may be running on it")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds") from None
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 3600")
    return seconds


def _part(text: str) -> float:
    above, _, below = text.partition("/")
    try:
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text} is neither a number nor a fraction such as 1/20") from None


def _demo(options: argparse.Namespace) -> int:
    from penstock.demo import run

    return run(options.seconds, options.keep)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: whether it passed, what was found, and what to do if it failed.

    >>> print(Finding(False, "Java", "Install one."))
    MISSING Java. Install one.
    """

    ok: bool
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"ok      {self.what}" if self.ok else f"MISSING {self.what}. {self.remedy}"


def examine() -> list[Finding]:
    """Check everything that penstock needs."""
    return [
        java(),
        python(),
        *packages(),
        memory(),
        disk(),
        writable(tempfile.gettempdir, "temporary files", "Set TMPDIR to a folder you may write to"),
        writable(os.getcwd, "the current folder", "Change to a folder you may write to"),
        worker(),
    ]


def java() -> Finding:
    """The Java that Spark will start: JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "the PATH"
    if program is None:
        return Finding(False, "Java: there is none in the PATH, and JAVA_HOME is not set", _JAVA_REMEDY)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as failure:
        return Finding(False, f"Java: {program}, from {where}, does not run ({failure})", _JAVA_REMEDY)
    version = java_version(said.stderr + said.stdout)
    if version is None:
        return Finding(False, f"Java: {program}, from {where}, does not tell its version", _JAVA_REMEDY)
    what = f"Java {version} ({program})"
    return Finding(version >= _JAVA, what, f"Spark needs {_JAVA} or newer. {_JAVA_REMEDY}")


def java_version(said: str) -> int | None:
    """The version in what ``java -version`` says; until 8 it was written 1.8.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return None if found is None else int(found[1])


def python() -> Finding:
    """This Python."""
    ok = sys.version_info >= (3, 11)
    return Finding(ok, f"Python {platform.python_version()} ({sys.executable})", "penstock needs 3.11 or newer.")


def packages() -> list[Finding]:
    """The packages that penstock says it depends on, in the versions it says."""
    try:
        wanted = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:
        return [Finding(False, "penstock is not installed", "In its checkout: pip install --editable .")]
    return [package(requirement) for requirement in wanted if ";" not in requirement]


def package(requirement: str) -> Finding:
    """One package, as in ``pandas<3,>=2.2``.

    >>> package("no-such-package>=1").ok
    False
    """
    name, limits = re.fullmatch(r"([\w.-]+)\s*(.*)", requirement).groups()  # type: ignore[union-attr]
    remedy = f"pip install '{requirement}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(False, f"{name}: not installed", remedy)
    return Finding(within_limits(version, limits), f"{name} {version}", remedy)


def within_limits(version: str, limits: str) -> bool:
    """Whether a version is as new, and as old, as asked for.

    >>> within_limits("2.3.3", ">=2.2,<3"), within_limits("3.0.1", ">=2.2,<3"), within_limits("10.0", ">=9.1")
    (True, False, True)
    """
    tests = {">=": lambda a, b: a >= b, "<": lambda a, b: a < b}
    return all(tests[sign](_numbers(version), _numbers(limit)) for sign, limit in re.findall(r"(>=|<)([\d.]+)", limits))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def memory() -> Finding:
    """Memory that is free to use; where the system does not say, all there is."""
    try:
        free = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        size = int(free[1]) * 1024 if free else 0
    except OSError:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _room(size, _LEAST_MEMORY, "memory", "Spark alone takes about 1 GB: end other programs.")


def disk() -> Finding:
    """Room for temporary files."""
    try:
        free = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError as failure:
        return Finding(False, f"disk: {failure}", "Set TMPDIR to a folder you may write to.")
    return _room(free, _LEAST_DISK, f"disk in {tempfile.gettempdir()}", "Delete something, or set TMPDIR to elsewhere.")


def _room(size: int, least: int, what: str, remedy: str) -> Finding:
    from penstock.core.budget import show_bytes

    return Finding(size >= least, f"{show_bytes(size)} of {what} free", remedy)


def writable(folder: Callable[[], str], what: str, remedy: str) -> Finding:
    """Whether files can be made in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder()):
            return Finding(True, f"write access for {what} ({folder()})")
    except OSError as failure:
        return Finding(False, f"write access for {what} ({failure})", f"{remedy}.")


def worker() -> Finding:
    """Whether the Python that Spark's workers take is of the same version as this one and can import penstock."""
    program = os.environ.get("PYSPARK_PYTHON", sys.executable)
    remedy = f"Install penstock there, or set PYSPARK_PYTHON={sys.executable}."
    asked = "import sys, penstock; print(*sys.version_info[:2], sep='.')"
    try:
        said = subprocess.run([program, "-c", asked], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError) as failure:
        return Finding(False, f"worker Python: {program} does not run ({failure})", remedy)
    if said.returncode:
        why = (said.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding(False, f"worker Python: {program} cannot import penstock ({why})", remedy)
    same = said.stdout.strip() == f"{sys.version_info[0]}.{sys.version_info[1]}"
    what = f"worker Python {said.stdout.strip()} imports penstock ({program})"
    return Finding(same, what, f"Spark needs the driver's version in its workers. {remedy}")


def _doctor(options: argparse.Namespace) -> int:
    findings = examine()
    for finding in findings:
        if not (options.quiet and finding.ok):
            print(finding)
    return 0 if all(finding.ok for finding in findings) else 1


def benchmarks() -> dict[str, Path]:
    """The benchmarks by name: the modules with a ``main(quick)`` beside this checkout or in the current folder."""
    paths = sorted(path for path in (_checkout("benchmarks") / "benchmarks").glob("*.py") if _takes_quick(path))
    return {path.stem.replace("_", "-"): path for path in paths}


def _checkout(folder: str) -> Path:
    """The checkout that has this folder: the one the package is in, else the current folder."""
    import penstock

    for root in (Path(penstock.__file__).parents[2], Path.cwd()):
        if any((root / folder).glob("*.py")):
            return root
    raise FlowError(
        f"There is no folder {folder}/ here: it is in penstock's repository, not in the installed package. "
        f"Call this in a checkout of it."
    )


def _takes_quick(path: Path) -> bool:
    mains = [part for part in _parsed(path).body if isinstance(part, ast.FunctionDef) and part.name == "main"]
    return any(argument.arg == "quick" for part in mains for argument in [*part.args.args, *part.args.kwonlyargs])


def _title(path: Path) -> str:
    return (ast.get_docstring(_parsed(path)) or "").partition("\n")[0]


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _bench(options: argparse.Namespace) -> int:
    known = benchmarks()
    name = (options.name or "").replace("_", "-")
    if name in known:
        _load(known[name]).main(quick=options.quick)
        return 0
    if options.name is not None:
        print(f"penstock: there is no benchmark {options.name!r}. There are:", file=sys.stderr)
    width = max(map(len, known), default=0)
    for label, path in known.items():
        print(f"{label.ljust(width)}  {_title(path)}")
    return 0 if options.name is None else 2


def _load(path: Path) -> Any:
    sys.path.insert(0, str(path.parent))  # benchmarks may import their neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FlowError(f"{path} cannot be loaded as a module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _lab(options: argparse.Namespace) -> int:
    """The only way into the lab, which is not part of the package."""
    sys.path.insert(0, str(_checkout("lab")))
    code: int = importlib.import_module("lab.commands").COMMANDS[options.action](options)
    return code


def _vacuum(options: argparse.Namespace) -> int:
    from penstock.core.budget import show_bytes
    from penstock.storage.versioned import Checkpoint

    if not _is_checkpoint(options.checkpoint):
        raise CheckpointError(
            f"{options.checkpoint} is not a penstock checkpoint: it has no flow.json. Nothing was touched. "
            f"Pass the folder that the flow was given as pk.Flow(…, checkpoint=…)."
        )
    checkpoint = Checkpoint(options.checkpoint)
    lease = checkpoint.take_lease(in_use=lambda: True)
    try:
        files, size = checkpoint.vacuum()
    finally:
        lease.release()
    print(f"{files} files, {show_bytes(size)} freed")
    return 0


def _is_checkpoint(uri: str) -> bool:
    """Whether there is a checkpoint; opening it would make one."""
    import pyarrow as pa
    from pyarrow import fs

    where = uri.replace("s3a://", "s3://", 1) if "://" in uri else os.path.abspath(uri)
    try:
        files, root = fs.FileSystem.from_uri(where)
        info = files.get_file_info(f"{root.rstrip('/')}/flow.json")
    except (pa.ArrowInvalid, OSError):
        return False
    return bool(info.type == fs.FileType.File)


_COMMANDS = {"demo": _demo, "doctor": _doctor, "bench": _bench, "lab": _lab, "vacuum": _vacuum}
