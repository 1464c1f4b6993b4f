"""Databases for tests, which rocksdict writes: RocksDB of another version, in the same process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from rocksdict import AccessType, DbClosedError, Options, Rdict

ORDERS = 1000

# A shell that starts the tests in the background has them ignore it, and some tests raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each test that is skipped adds a line to the list of skipped tests."""
    listed = os.environ.get("ROCKMILL_SKIPS")
    for report in terminalreporter.stats.get("skipped", []) if listed else []:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        with open(listed, "a", encoding="utf-8") as skips:
            skips.write(f"{report.nodeid}: {str(why).removeprefix('Skipped: ')}\n")


def write(path: Path, pairs: Iterable[tuple[bytes, bytes]], family: str = "default", *, flush: bool = True) -> None:
    """Puts pairs into a column family, and closes the database."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    names = {"default", family, *(Rdict.list_cf(str(path)) if path.exists() else ())}
    database = Rdict(str(path), options, column_families=dict.fromkeys(names, options))
    table = database if family == "default" else database.get_column_family(family)
    for key, value in pairs:
        table[key] = value
    if flush:
        table.flush()
    if not flush:
        # As when a process is killed: closing would flush.
        database.flush_wal(True)
        os._exit(0)
    del table
    database.close()


def order(number: int) -> tuple[bytes, bytes]:
    """Key and value of an order: its number; its amount, and its customer's name."""
    return struct.pack(">I", number), struct.pack("<q", number * 10) + f"customer {number % 7}".encode()


NOT_FLUSHED = """
import pathlib, sys
from conftest import write
write(pathlib.Path(sys.argv[1]), [(b"user:9999", b"not flushed"), (b"zebra", b"\\xff\\x00")], flush=False)
"""


@pytest.fixture(scope="session")
def first_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("first") / "db"
    write(path, ((f"user:{number:04}".encode(), f"value {number}".encode()) for number in range(300)))
    write(path, (order(number) for number in range(ORDERS)), "orders")
    # In a process that ends without closing the database.
    subprocess.run([sys.executable, "-c", NOT_FLUSHED, str(path)], cwd=Path(__file__).parent, check=True)
    return path


@pytest.fixture
def db(first_db: Path, tmp_path: Path) -> Path:
    """A closed database: users in the default column family, some of which are only in the log, and orders."""
    path = tmp_path / "db"
    shutil.copytree(first_db, path)
    return path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A closed database of vectors: four numbers of 32 bits for each even number below 2,000, as a big-endian key."""
    path = tmp_path / "vectors"
    pairs = ((struct.pack(">Q", number), struct.pack("<4f", *[number + part for part in range(4)])) for number in range(0, 2000, 2))
    write(path, pairs)
    return path


@pytest.fixture
def hold() -> Iterable[Callable[[Path], Rdict]]:
    """Opens a database by rocksdict in this process, until the test ends."""
    held = []

    def open_here(path: Path) -> Rdict:
        names = Rdict.list_cf(str(path))
        options = Options(raw_mode=True)
        held.append(Rdict(str(path), options, column_families=dict.fromkeys(names, options), access_type=AccessType.read_write()))
        return held[-1]

    yield open_here
    for database in held:
        with contextlib.suppress(DbClosedError):
            database.close()
