"""The extension module."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, final

import pandas
import polars
import pyarrow

__version__: str
version: str

def main(arguments: Sequence[str]) -> int:
    """Runs the command with these arguments, of which the first names the program, and returns its exit code."""

@final
class Database:
    """A database in a directory, which is only read. Another process may have it open."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        device: str,
        memory_mib: int | None,
        threads: int | None,
        spill_dir: str | os.PathLike[str] | None,
        mysql: str | os.PathLike[str] | None,
        wal_dir: str | os.PathLike[str] | None,
        merge_operators: list[str],
    ) -> Database: ...
    @property
    def families(self) -> list[str]:
        """Names of the column families."""
    @property
    def sequence(self) -> int:
        """Sequence number of the last write that a statement would see now."""
    @property
    def path(self) -> str | os.PathLike[str]:
        """Folder of the database, as it was named."""
    def sql(self, statements: str, *, force: bool = False) -> Result:
        """Runs SQL statements, and returns the rows of the last one."""
    def table(
        self, family: str = "default", *, key: str | None = None, value: str | None = None, schema: Any = None
    ) -> Table:
        """A column family as a table."""
    def items(
        self,
        family: str = "default",
        *,
        prefix: bytes | None = None,
        start: bytes | None = None,
        end: bytes | None = None,
    ) -> Items:
        """Keys and values of a column family, in the order of the keys' bytes."""

@final
class Result:
    """Rows of a statement."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
    def to_arrow(self) -> pyarrow.Table:
        """The rows as a table of pyarrow."""
    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a frame of pandas."""
    def to_polars(self) -> polars.DataFrame:
        """The rows as a frame of Polars."""
    def batches(self) -> BatchReader:
        """Iterates over the rows batch by batch."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class BatchReader(Iterator[Batch]):
    """Iterates over batches."""

    def __iter__(self) -> BatchReader: ...
    def __next__(self) -> Batch: ...

@final
class Batch:
    """Some rows of a result."""

    def to_arrow(self) -> pyarrow.RecordBatch:
        """The rows as a batch of pyarrow."""
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Table:
    """A column family as a table."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
    @property
    def family(self) -> str:
        """Name of the column family."""
    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, limit: int | None = None
    ) -> Result:
        """Rows of the table."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Items(Iterator[tuple[bytes, bytes]]):
    """Iterates over keys and values."""

    def __iter__(self) -> Items: ...
    def __next__(self) -> tuple[bytes, bytes]: ...

class _Memory(TypedDict):
    ids: int
    id_bytes: int
    is_signed: bool
    len: int
    rows: int
    row_bytes: int
    statuses: int
    found: int
    sizes: int
    default: int
    clears: bool
    is_exact: bool
    notes: bool

@final
class RawView:
    """A view, for :class:`rockmill.View`."""

    def __new__(
        cls,
        path: str,
        family: str,
        device: int | None,
        memory: int | None,
        wal_dir: str | None,
        merge_operators: list[str],
        form: tuple[int, bool, bool, bytes],
    ) -> RawView: ...
    def lookup(self, memory: _Memory | dict[str, int], stream: int) -> int: ...
    def take_unanswered(self, waits: bool) -> int: ...
    def get(self, keys: list[bytes]) -> list[bytes | None]: ...
    def refresh(self) -> tuple[int, str, int, int]: ...
    def contents(self) -> tuple[int, int, int, int, int]: ...
    def close(self) -> None: ...
