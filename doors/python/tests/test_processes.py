"""Objects in other processes, and when Python ends."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pyarrow
import pytest

import rockmill as rm
from conftest import ORDERS, write
from test_tables import SCHEMA, orders


def threads_of_statements() -> int:
    names = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((thread / "comm").read_text())
    return sum(name in ("rockmill-sql\n", "rockmill-plan\n") for name in names)


def wait_for_their_end() -> None:
    """Waits until the threads of the last statement have ended: a child that is forked before cannot use Rockmill."""
    ends = time.monotonic() + 60
    while threads_of_statements() > 0:
        assert time.monotonic() < ends
        # The traceback of a failed test may keep an iterator.
        gc.collect()
        time.sleep(0.01)


def in_child(work) -> None:
    """Runs it in a forked child, which has to end well and in time."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0, child.exitcode


def test_a_database_and_a_table_open_again_in_a_forked_child(db: Path) -> None:
    database, table = rm.open(db), orders(db)
    assert pyarrow.table(table).num_rows == ORDERS
    before = database.sql("select count(*) as n from \"default\"")
    assert before.to_arrow()["n"].to_pylist() == [302]
    write(db, [(b"later", b"1")])

    def work() -> None:
        assert database.sql("select count(*) as n from \"default\"").to_arrow()["n"].to_pylist() == [303]
        assert len(list(database.items("orders"))) == ORDERS
        assert pyarrow.table(table).num_rows == ORDERS
        with pytest.raises(rm.UsageError, match="belongs to the process that was forked"):
            before.to_arrow()

    wait_for_their_end()
    in_child(work)
    assert before.to_arrow()["n"].to_pylist() == [302]


def test_what_the_process_before_has_opened_ends_in_a_forked_child(db: Path) -> None:
    opened = [rm.open(db)]
    opened.append(opened[0].sql("select * from orders"))
    opened.append(opened[1].batches())
    assert len(next(opened[2])) > 0

    def work() -> None:
        while opened:
            opened.pop()

    in_child(work)


def test_a_table_of_datafusion_says_that_it_belongs_to_the_process_before(db: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_table("orders", orders(db))
    held = [context]
    count = "select count(*) as n from orders"
    assert context.sql(count).to_pylist() == [{"n": ORDERS}]

    def work() -> None:
        with pytest.raises(Exception, match="belongs to the process that was forked"):
            context.sql(count).to_pylist()
        held.clear()

    in_child(work)
    assert context.sql(count).to_pylist() == [{"n": ORDERS}]


def test_a_view_in_host_memory_opens_again_in_a_forked_child(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=16)

    def work() -> None:
        assert view.lookup(numpy.arange(4))[1].tolist() == [True, False, True, False]
        view.refresh()

    wait_for_their_end()
    in_child(work)
    assert view.lookup(numpy.arange(4))[1].tolist() == [True, False, True, False]


def test_a_forked_child_has_the_memory_that_views_have_given_back(db: Path, vectors: Path) -> None:
    views = [rm.view(vectors, device="cpu", value_bytes=16) for _ in range(4)]
    database = rm.open(db)
    assert database.sql("select 1 as one").to_arrow()["one"].to_pylist() == [1]
    del views

    def work() -> None:
        for _ in range(10):
            assert database.sql("select count(*) as n from orders").to_arrow()["n"].to_pylist() == [ORDERS]

    wait_for_their_end()
    for _ in range(4):
        in_child(work)


def test_threads_end_with_the_statements_that_need_them(db: Path) -> None:
    """A forked child would wait for those that wait at the fork."""
    database = rm.open(db)
    rows = database.sql("select * from generate_series(1, 10000000) g(v)").batches()
    assert len(next(rows)) > 0
    assert threads_of_statements() > 0

    def work() -> None:
        with pytest.raises(rm.UsageError, match="cannot use Rockmill: start processes by spawn"):
            database.sql("select 1")

    in_child(work)
    for _ in rows:
        pass
    wait_for_their_end()
    in_child(lambda: answers(database))
    # A statement that is not read to its end.
    rows = database.sql("select * from generate_series(1, 10000000) g(v)").batches()
    assert len(next(rows)) > 0
    del rows
    wait_for_their_end()
    in_child(lambda: answers(database))


def answers(database: rm.Database) -> None:
    assert database.sql("select 1 as one").to_arrow()["one"].to_pylist() == [1]


def test_a_child_can_use_rockmill_once_no_table_of_datafusion_needs_its_threads(db: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    database, table, context = rm.open(db), orders(db), datafusion.SessionContext()
    answers(database)
    wait_for_their_end()
    provider = table.__datafusion_table_provider__(context)

    def refused() -> None:
        with pytest.raises(rm.UsageError, match="or of a table of DataFusion, ran in the process when it was forked"):
            database.sql("select 1")

    in_child(refused)
    del provider
    context.register_table("orders", table)
    assert context.sql("select count(*) as n from orders").to_pylist() == [{"n": ORDERS}]
    in_child(refused)
    context.deregister_table("orders")
    gc.collect()
    wait_for_their_end()
    in_child(lambda: answers(database))


def test_a_database_and_a_table_can_be_pickled(db: Path) -> None:
    database = pickle.loads(pickle.dumps(rm.open(db, device="cpu", memory="100MiB", threads=1)))
    assert database.sql("select count(*) as n from orders").to_arrow()["n"].to_pylist() == [ORDERS]
    table = pickle.loads(pickle.dumps(orders(db)))
    assert table.columns == SCHEMA.names
    assert pyarrow.table(table).num_rows == ORDERS


def test_python_ends_with_everything_open(db: Path) -> None:
    script = """
import sys, numpy
import rockmill as rm
db = rm.open(sys.argv[1])
result = db.sql("select * from orders")
batches = result.batches()
next(batches)
items = db.items()
next(items)
view = rm.view(sys.argv[1], "orders", device="cpu", keys="u32be", value_bytes=64)
view.lookup(numpy.arange(4))
"""
    done = subprocess.run([sys.executable, "-c", script, str(db)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_modules_of_other_libraries_are_loaded_only_when_they_are_asked_for(db: Path) -> None:
    script = """
import sys
import rockmill as rm
rm.open(sys.argv[1]).sql("select 1").batches()
print(sorted({"numpy", "pyarrow", "pandas", "polars", "torch", "datafusion"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script, str(db)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


TYPED = Path(__file__).parent / "typed.py"


def test_stubs_and_code_agree() -> None:
    folder = Path(rm.__file__).resolve().parent
    config = ["--config-file", str(Path(__file__).parent.parent / "pyproject.toml"), "--cache-dir", os.devnull]
    # What pip has installed is found without the variable, and refused in it.
    env = dict(os.environ) if folder.parent.name == "site-packages" else {**os.environ, "MYPYPATH": str(folder.parent)}
    for arguments in (["-p", "rockmill"], ["--python-version", "3.11", str(TYPED)]):
        checked = subprocess.run(
            [sys.executable, "-m", "mypy", *config, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pyright_finds_the_types(tmp_path: Path) -> None:
    pyright = os.environ.get("ROCKMILL_PYRIGHT")
    if not pyright:
        pytest.skip("there is no pyright: npm could not install it")
    shutil.copytree(Path(rm.__file__).parent, tmp_path / "rockmill", ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(TYPED, tmp_path)
    # Without torch, pyright takes the package's modules of that name for it.
    has_torch = importlib.util.find_spec("torch") is not None
    modules = [path.name for path in (tmp_path / "rockmill").glob("*.py*") if has_torch or path.stem not in ("torch", "pyg")]
    settings = {
        "include": [TYPED.name, *(f"rockmill/{name}" for name in modules)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
        # Libraries that a machine may not have.
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checked = subprocess.run(
        [pyright, "--pythonpath", sys.executable, "-p", str(tmp_path), "--outputjson"], capture_output=True, text=True, check=False
    )
    report = json.loads(checked.stdout)
    errors = [(found["file"], found["range"]["start"]["line"] + 1, found["message"]) for found in report["generalDiagnostics"]]
    assert errors == [] and report["summary"]["filesAnalyzed"] > 10, report["summary"]
