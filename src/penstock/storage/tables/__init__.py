"""Master tables that a stream can be looked up in: in memory, penstock's own pages, Parquet files, SQL databases."""

from __future__ import annotations

from penstock.storage.tables.arrow import ArrowTable
from penstock.storage.tables.build import PageBuild, build_page_table
from penstock.storage.tables.pages import PageTable
from penstock.storage.tables.parquet import ParquetTable
from penstock.storage.tables.sql import SqlTable

__all__ = ["ArrowTable", "PageBuild", "PageTable", "ParquetTable", "SqlTable", "build_page_table"]
