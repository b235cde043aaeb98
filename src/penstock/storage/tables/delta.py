"""What a Delta table is made of now: its folder has files of earlier versions too, and its log says which count."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from penstock.core.errors import ConfigError, TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
"""The folder that makes one a Delta table."""

_UNDERSTOOD = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of tables whose files are to be read as they are."""


def is_delta(files: fs.FileSystem, path: str) -> bool:
    """Whether a folder is a Delta table.

    >>> is_delta(fs.LocalFileSystem(), "/nowhere/at/all")
    False
    """
    return bool(files.get_file_info(f"{path}/{LOG}").type == fs.FileType.Directory)


class DeltaLog:
    """The latest version of the Delta table in a folder.

    >>> import tempfile
    >>> from deltalake import write_deltalake
    >>> folder = tempfile.mkdtemp()
    >>> for ids in ([1, 2], [3]):
    ...     write_deltalake(folder, pa.table({"id": ids}), mode="overwrite")
    >>> len(DeltaLog(folder).files), DeltaLog(folder).columns.names
    (1, ['id'])
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def files(self) -> frozenset[str]:
        """The files that make up the table, by their paths inside the folder."""
        table = self._table
        self._refuse(table)
        return frozenset(unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist())

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns of the table, also those that older files lack."""
        return pa.schema(self._table.schema().to_arrow())

    @cached_property
    def _table(self) -> DeltaTable:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ModuleNotFoundError as missing:
            raise ConfigError(
                f"{self._path} is a Delta table, which needs the package deltalake. Install penstock[delta]."
            ) from missing
        try:
            return DeltaTable(self._path)
        except TableNotFoundError as empty:
            raise TableError(
                f"{self._path}/{LOG} has no version of a table. Write one, or delete the folder."
            ) from empty

    def _refuse(self, table: DeltaTable) -> None:
        """Refuse what cannot be read off the files alone."""
        metadata = table.metadata()
        reasons = set(table.protocol().reader_features or ()) - _UNDERSTOOD
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            reasons.add("columnMapping")
        if metadata.partition_columns:
            reasons.add(f"columns in the names of folders ({', '.join(metadata.partition_columns)})")
        if reasons:
            raise TableError(
                f"{self._path} is a Delta table with {', '.join(sorted(reasons))}, whose files cannot be read as they "
                f"are. Look up in the batch DataFrame instead: spark.read.format('delta').load({self._path!r})."
            )
