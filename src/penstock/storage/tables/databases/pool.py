"""Connections that are made where and when they are first needed, kept, and made again when they are broken."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from penstock.core.errors import PenstockError, TableError
from penstock.core.secrets import redacted
from penstock.storage.tables.databases.duck import DuckDb
from penstock.storage.tables.databases.postgres import Postgres
from penstock.storage.tables.databases.protocol import Database
from penstock.storage.tables.databases.sqlite import Sqlite

Source = str | Callable[[], Any]
"""The address of a database, or a function that connects to it, which is called in the processes that read."""

T = TypeVar("T")

_KNOWN = "postgresql://user@host/database, sqlite:///path/to/file.db or duckdb:///path/to/file.duckdb"


class _Held(threading.local):
    """The connections of a thread: drivers do not share them. A forked process makes its own."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, Source], Database] = {}
        self.borrowed: WeakValueDictionary[tuple[int, Source], Database] = WeakValueDictionary()


_HELD = _Held()


@atexit.register
def _close() -> None:
    """Drivers complain of connections that are left to the end of the interpreter."""
    for pid, source in list(_HELD.kept):
        if pid == os.getpid():
            _forget(source)


def connected(source: Source) -> Database:
    """The connection to a database, made if there is none."""
    which = os.getpid(), source
    held = _HELD.kept.get(which) or _HELD.borrowed.get(which)
    if held is None:
        held = _connect(source)
        if held.lasting:
            _HELD.kept[which] = held
        else:
            _HELD.borrowed[which] = held
    return held


def ask(source: Source, question: Callable[[Database], T]) -> T:
    """Ask a database, and once more on a new connection if the one that was there turns out broken."""
    database = connected(source)
    try:
        return question(database)
    except PenstockError:
        raise
    except Exception as error:
        cause = _harmless(source, error)
    if database.alive():
        raise _refused(source, cause) from cause
    _forget(source)
    try:
        return question(connected(source))
    except PenstockError:
        raise
    except Exception as error:
        cause = _harmless(source, error)
    raise _refused(source, cause) from cause


def shown(source: Source) -> str:
    """A database's address without the password.

    >>> shown("postgresql://me:secret@db/shop")
    'postgresql://me:***@db/shop'
    """
    if not isinstance(source, str):
        return getattr(source, "__qualname__", "a database")
    return redacted(source)


def _connect(source: Source) -> Database:
    try:
        return _at(source) if isinstance(source, str) else _of(source())
    except PenstockError:
        raise
    except ImportError as missing:
        raise _no_driver(missing) from missing
    except Exception as error:
        cause = _harmless(source, error)
    raise TableError(
        f"Cannot connect to {shown(source)}: {cause}. Check that it runs and can be reached from every worker; an "
        f"address looks like {_KNOWN}. In one, write % @ : / of a password as %25 %40 %3A %2F."
    ) from cause


def _at(url: str) -> Database:
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        return Postgres.at(url)
    if scheme in ("sqlite", "duckdb") and rest.startswith("/") and len(rest) > 1:
        return Sqlite.at(rest[1:]) if scheme == "sqlite" else DuckDb.at(rest[1:])
    raise TableError(f"{shown(url)!r} is not the address of a supported database. Write {_KNOWN}.")


def _of(connection: Any) -> Database:
    """The kind of database that a user's own connection is to."""
    module = type(connection).__module__.split(".")[0]
    kinds: dict[str, Callable[[Any], Database]] = {
        "sqlite3": Sqlite,
        "duckdb": DuckDb,
        "_duckdb": DuckDb,
        "adbc_driver_manager": Postgres,
    }
    if module not in kinds:
        raise TableError(
            f"A connection of {module} cannot be used. Return one of adbc_driver_postgresql.dbapi, sqlite3 or duckdb, "
            f"or write an address: {_KNOWN}."
        )
    return kinds[module](connection)


def _no_driver(missing: ImportError) -> TableError:
    extra = "duckdb" if "duckdb" in str(missing) else "postgres"
    return TableError(f"This database needs one more package: pip install 'penstock[{extra}]'.")


def _harmless(source: Source, error: Exception) -> Exception:
    """A driver's error; another in its place if it shows a password.

    Raise from it outside of the `except` block: within, Python chains the driver's error as well.
    """
    text = redacted(str(error), source if isinstance(source, str) else "")
    return error if text == str(error) else RuntimeError(f"{type(error).__name__}: {text}")


def _refused(source: Source, error: Exception) -> TableError:
    return TableError(f"{shown(source)} raised an error: {error}")


def _forget(source: Source) -> None:
    which = os.getpid(), source
    database = _HELD.kept.pop(which, None) or _HELD.borrowed.pop(which, None)
    if database is not None:
        try:
            database.close()
        except Exception:
            return
