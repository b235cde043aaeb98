"""No error shows a password."""

from __future__ import annotations

import traceback

import pytest

from penstock.core.errors import ConfigError, TableError
from penstock.core.secrets import redacted
from penstock.storage.tables import SqlTable
from penstock.storage.tables.databases import ask, connected

ADDRESSES = [
    "postgresql://me:hun%ter2@127.0.0.1:1/shop",
    "postgresql://me:hun@ter2@127.0.0.1:1/shop",
    "postgresql://me:hun/ter2@127.0.0.1:1/shop",
    "postgresql://me:hun%40ter2@127.0.0.1:1/shop",
    "postgresql://me@127.0.0.1:1/shop?password=hun%ter2",
    "postgresql://me@127.0.0.1:1/shop?password=hunter2%zz",
    "mysql://me:hunter2@db/shop",
]


def everything_shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error.__cause__) + repr(error.__context__)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_connection_that_fails_shows_no_part_of_the_password(address):
    with pytest.raises(TableError) as caught:
        connected(address)
    text = everything_shown(caught.value)
    assert "hun" not in text
    assert "ter2" not in text
    assert "***" in text


def test_the_table_does_not_show_it_either():
    table = SqlTable("postgresql://me:hun%ter2@127.0.0.1:1/shop", "customers", keys=("id",))
    assert "hun" not in repr(table) + str(table)
    with pytest.raises(TableError) as caught:
        _ = table.columns
    assert "hun" not in everything_shown(caught.value)


def test_a_driver_that_fails_later_shows_no_password(tmp_path):
    address = f"duckdb:///{tmp_path}/x.duckdb?password=hunter2"

    def fail(_: object) -> None:
        raise ValueError("no such user: me:hunter2")

    import duckdb

    duckdb.connect(f"{tmp_path}/x.duckdb?password=hunter2").close()
    with pytest.raises(TableError) as caught:
        ask(address, fail)
    assert str(caught.value).endswith("raised an error: ValueError: no such user: me:***")
    assert "hunter2" not in everything_shown(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/a", "s3://key:***@bucket/a"),
        ("no address: at 10:30 me@home", "no address: at 10:30 me@home"),
        ("sqlite:///a:b/c.db", "sqlite:///a:b/c.db"),
        ("host=db password='a b' user=me", "host=db password=*** user=me"),
    ],
)
def test_passwords_are_taken_out_of_texts(text, shown):
    assert redacted(text) == shown
    assert str(ConfigError(text)) == shown
