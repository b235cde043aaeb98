"""A PostgreSQL of our own: a new cluster in a temporary folder, reached by a Unix socket, gone afterwards."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

MISSING = "PostgreSQL is not installed: on Debian and Ubuntu, apt install postgresql"


class PostgresMissingError(RuntimeError):
    """PostgreSQL is not installed."""


@contextmanager
def server() -> Iterator[str]:
    """Start a server; the address of its database comes back."""
    folder = tempfile.mkdtemp(prefix="penstock-pg-")
    who = _not_root(folder)
    data = f"{folder}/data"
    settings = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    try:
        _run(
            who,
            "initdb",
            "--pgdata",
            data,
            "--username",
            "tester",
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
            "--no-sync",
        )
        _run(who, "pg_ctl", "--pgdata", data, "--log", f"{folder}/log", "--wait", "--options", settings, "start")
        try:
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            _run(who, "pg_ctl", "--pgdata", data, "--wait", "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(who: str | None, program: str, *arguments: str) -> None:
    command = [_program(program), *arguments]
    extra = {} if who is None else {"user": who, "group": pwd.getpwnam(who).pw_gid, "extra_groups": []}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", **extra)
    assert done.returncode == 0, done.stderr


def _program(name: str) -> str:
    """Debian keeps the server's programs out of the path."""
    found = shutil.which(name) or max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)
    if found is None:
        raise PostgresMissingError(MISSING)
    return found


def _not_root(folder: str) -> str | None:
    """PostgreSQL refuses to run as root: whom to run it as instead, if need be, who is given the folder."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    who = "postgres" if "postgres" in names else "nobody"
    shutil.chown(folder, who)
    return who
