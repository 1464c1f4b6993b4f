"""RocksDB databases in Python: SQL, tables, views in memory for lookups, and the tools of the command ``rockmill``.

Databases are only read, except by :func:`compact`. Another process, or another library of this process, may have them
open::

    import rockmill as rm

    db = rm.open("./db")
    db.sql("select count(*) from orders").to_pandas()
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rockmill._errors import DataError, Error, NotReadError, RefusedError, RockmillWarning, UsageError
from rockmill._sizes import mebibytes
from rockmill._tools import (
    CompactedFamily,
    CompactReport,
    Decline,
    DoctorFamily,
    DoctorReport,
    Hint,
    VerifiedFile,
    VerifyReport,
    compact,
    doctor,
    verify,
)
from rockmill._view import View, view
from rockmill._rockmill import Batch, BatchReader, Database, Items, Result, Table, __version__

if TYPE_CHECKING:
    from rockmill import polars as polars, pyg as pyg, torch as torch

__all__ = [
    "Batch",
    "BatchReader",
    "CompactReport",
    "CompactedFamily",
    "DataError",
    "Database",
    "Decline",
    "DoctorFamily",
    "DoctorReport",
    "Error",
    "Hint",
    "Items",
    "NotReadError",
    "RefusedError",
    "Result",
    "RockmillWarning",
    "Table",
    "UsageError",
    "VerifiedFile",
    "VerifyReport",
    "View",
    "__version__",
    "compact",
    "doctor",
    "open",
    "verify",
    "view",
]

def open(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    mysql: str | os.PathLike[str] | None = None,
    wal_dir: str | os.PathLike[str] | None = None,
    merge_operators: Sequence[str] = (),
) -> Database:
    """Opens the database in a folder, which is only read.

    Another process may have it open, and so may another library of this process. ``tables.sql`` in the folder is run, if it
    exists: it defines tables.

    :param device: where rows are filtered and aggregated: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:0"``.
    :param memory: most host memory of statements, in bytes or as ``"4GiB"``, at least 64 MiB; by default half of what the
        machine and the cgroups leave to the process. What has no room is spilled.
    :param threads: by default all cores, but at most one for each 32 MiB of memory.
    :param spill_dir: folder for what has no room in memory; by default the system's for temporary files.
    :param mysql: file with ``SHOW CREATE TABLE`` of the tables of a MyRocks database.
    :param wal_dir: folder of the write-ahead logs, if it is not the database's own and OPTIONS do not tell it.
    :param merge_operators: as ``["uint64add"]`` or ``["family=stringappend:delimiter=|"]``.
    :raises UsageError: if there is no database.
    :raises DataError: if its files are damaged.
    :raises RefusedError: if they cannot be read.
    """
    size = mebibytes("memory", memory, least=64)
    if threads is not None and threads < 1:
        raise UsageError(f"threads= is {threads}; statements need at least 1")
    if isinstance(merge_operators, str):
        raise UsageError("merge_operators= is a text; give a list of texts")
    return Database(
        path,
        device,
        size,
        threads,
        spill_dir,
        mysql,
        wal_dir,
        list(merge_operators),
    )


def __getattr__(name: str) -> object:
    """Modules that need other libraries are loaded when they are asked for."""
    if name in ("polars", "pyg", "torch"):
        import importlib

        return importlib.import_module(f"rockmill.{name}")
    raise AttributeError(f"module 'rockmill' has no attribute {name!r}")
