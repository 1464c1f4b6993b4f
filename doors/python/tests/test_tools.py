"""The command's tools, and the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

import rockmill as rm


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rockmill", *arguments], capture_output=True, text=True, check=False)


def test_the_command_is_in_the_package(db: Path) -> None:
    printed = command("sql", str(db), "select count(*) as n from orders", "--format", "csv")
    assert (printed.returncode, printed.stdout) == (0, "n\n1000\n")
    assert command("--version").stdout.startswith(f"rockmill {rm.__version__}")
    wrong = command("sql", str(db), "selct")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("rockmill: line 1, column 1:")


def test_the_doctor_says_whether_compactions_would_be_accepted(db: Path) -> None:
    report = rm.doctor(db)
    assert [family.name for family in report.column_families] == ["default", "orders"]
    assert report.accepted == all(family.accepted for family in report.column_families)
    assert report.rocksdb_version == report.document["rocksdb_version"]
    assert report.options_file in repr(report)
    for family in report.column_families:
        assert f"{family.name}: {family.files} files" in repr(report)
        assert all(decline.change for decline in family.declines)


def test_verify_counts_entries_and_names_bad_files(db: Path) -> None:
    report = rm.verify(db)
    assert report.sound and not report.bad
    assert "sound" in repr(report)
    assert sum(file.entries for file in report.files) == 1300
    bad = db / report.files[0].file
    content = bytearray(bad.read_bytes())
    content[3] ^= 1
    bad.write_bytes(content)
    report = rm.verify(db)
    assert not report.sound
    assert [file.file for file in report.bad] == [bad.name]
    assert report.bad[0].error in repr(report)
    assert "bad" in report.verdict


def test_compact_compacts_and_rocksdict_reads_what_is_left(db: Path) -> None:
    options = Options(raw_mode=True)
    done: list[tuple[int, int]] = []
    report = rm.compact(db, device="cpu", progress=lambda passed, total: done.append((passed, total)))
    assert [family.result for family in report.column_families] == ["compacted"] * 2
    assert report.bytes_after > 0 and "default: compacted" in repr(report)
    assert all(passed <= total for passed, total in done)
    database = Rdict(str(db), options, column_families={name: options for name in ("default", "orders")})
    assert database[b"user:9999"] == b"not flushed"
    assert len(list(database.get_column_family("orders").keys())) == 1000
    database.close()
    assert len(list(rm.open(db).items("orders"))) == 1000


OPENS = "import sys, rocksdict as r; o = r.Options(raw_mode=True); r.Rdict(sys.argv[1], o, column_families={'default': o, 'orders': o})"


def test_compact_refuses_a_database_that_this_process_has_open_and_leaves_its_lock(db: Path, hold) -> None:
    held = hold(db)
    for _ in range(2):
        with pytest.raises(rm.RefusedError, match="open"):
            rm.compact(db, device="cpu")
        # What reads it takes no lock either.
        rm.open(db).sql("select count(*) from orders").to_arrow()
        rm.doctor(db)
        rm.view(db, "orders", device="cpu", keys="u32be", value_bytes=64).close()
        other = subprocess.run([sys.executable, "-c", OPENS, str(db)], capture_output=True, text=True, check=False)
        assert other.returncode != 0 and "lock" in other.stderr.lower(), other.stderr
    held[b"still"] = b"open"
    held.close()
    assert subprocess.run([sys.executable, "-c", OPENS, str(db)], capture_output=True, check=False).returncode == 0
    rm.compact(db, device="cpu")


def test_no_file_named_lock_is_opened_by_this_process(db: Path) -> None:
    script = """
import sys
import rockmill as rm
db = rm.open(sys.argv[1])
db.sql("select count(*) from orders").to_arrow()
list(db.items())
rm.view(sys.argv[1], "orders", device="cpu", keys="u32be", value_bytes=64).refresh()
"""
    strace = subprocess.run(["sh", "-c", "command -v strace"], capture_output=True, check=False)
    if strace.returncode:
        pytest.skip("there is no strace")
    traced = subprocess.run(
        ["strace", "-f", "-e", "trace=open,openat,creat,fcntl", sys.executable, "-c", script, str(db)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert traced.returncode == 0, traced.stderr[-2000:]
    assert "CURRENT" in traced.stderr
    assert f'{db}/LOCK"' not in traced.stderr


@pytest.mark.parametrize("tool", [rm.doctor, rm.verify, rm.compact])
def test_tools_name_what_is_wrong(tool, tmp_path: Path) -> None:
    with pytest.raises(rm.UsageError, match="a database, it has no file CURRENT"):
        tool(tmp_path)
    with pytest.raises(rm.RefusedError, match="nowhere"):
        tool(tmp_path / "nowhere")


def test_wrong_arguments_of_compact_are_named(db: Path) -> None:
    with pytest.raises(rm.UsageError, match="there is no column family"):
        rm.compact(db, families=["ordrs"])
    with pytest.raises(rm.UsageError, match="give a list"):
        rm.compact(db, families="orders")
    with pytest.raises(rm.UsageError, match="at least 32 MiB"):
        rm.compact(db, memory=7)
    with pytest.raises(rm.UsageError, match="progress="):
        rm.verify(db, progress="much")


def test_an_exception_of_a_callback_comes_to_the_caller(db: Path) -> None:
    class Enough(Exception):
        pass

    def stop(*_: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        rm.verify(db, progress=stop)


def test_a_bar_like_those_of_tqdm_shows_the_progress(db: Path) -> None:
    class Bar:
        total, n = None, 0

        def update(self, more: int) -> None:
            self.n += more

    bar = Bar()
    report = rm.verify(db, progress=bar)
    assert 0 < bar.n <= bar.total == sum(file.size for file in report.files)


def test_control_c_ends_a_tool(db: Path) -> None:
    interrupt = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(50):
            rm.verify(db)
    interrupt.join()
    assert rm.verify(db).sound
