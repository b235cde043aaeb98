"""Databases that master tables may live in: how each is asked for its columns, its rows, and the rows of many keys."""

from __future__ import annotations

from penstock.storage.tables.databases.pool import Source, ask, connected, shown
from penstock.storage.tables.databases.protocol import Column, Database, Parts, TableName, quoted, selected

__all__ = ["Column", "Database", "Parts", "Source", "TableName", "ask", "connected", "quoted", "selected", "shown"]
