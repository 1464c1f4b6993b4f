"""The command's tools. Each runs the command in a process of its own.

``compact`` has to: this process may have the database open through another copy of RocksDB, which would not see a lock that
this one takes, and would lose its own when this one gives it back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Union

from rockmill._errors import DataError, Error, NotReadError, RefusedError, UsageError
from rockmill._sizes import mebibytes

Progress = Union[bool, Callable[[int, int], object], Any]
"""``True``, a bar of tqdm, or a function of the bytes that are done and all bytes."""


_CLASSES = {kind.exit_code: kind for kind in (DataError, UsageError, RefusedError, NotReadError)}
_INTERRUPTED = 128 + signal.SIGINT
_PROGRESS = "ROCKMILL_PROGRESS"
_MARK = "progress "


def _failure(code: int, said: str) -> BaseException:
    """The exception of a command that has ended with this code, and has said this last."""
    if code in (_INTERRUPTED, -signal.SIGINT):
        return KeyboardInterrupt()
    last = said.strip().removeprefix("rockmill: ")
    if code < 0:
        last = f"the process of the command was ended by signal {-code}; did the system end it for want of memory?"
    return _CLASSES.get(code, Error)(last or f"the command has ended with exit code {code}")


def _run(arguments: Sequence[str], progress: Progress = False) -> tuple[Any, str, int]:
    """The command's document, what it has said, and its exit code. Without a document, its failure is raised."""
    shown = _shown(progress)
    environment = dict(os.environ)
    if shown:
        environment[_PROGRESS] = "lines"
    folders = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    folders += filter(None, [environment.get("PYTHONPATH")])
    environment["PYTHONPATH"] = os.pathsep.join(folders)
    process = subprocess.Popen(
        [sys.executable, "-m", "rockmill", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        # Control-C at a terminal comes to this process, which passes it on once. A second signal would end the command
        # before it has removed what it was making.
        start_new_session=True,
    )
    said: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if not line.startswith(_MARK):
                said.append(line)
            elif shown:
                done, total = line.removeprefix(_MARK).split()
                news.append((int(done), int(total)))

    news: list[tuple[int, int]] = []
    printed: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        printed.append(process.stdout.read())

    threads = [threading.Thread(target=work, daemon=True) for work in (listen, read)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            # Callbacks run here, so that their exceptions come to the caller.
            threads[1].join(0.1)
            threads[0].join(0 if threads[1].is_alive() else None)
            while shown and news:
                shown(*news.pop(0))
        code = process.wait()
    except BaseException:
        # It removes what it was making.
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None and process.poll() is not None:
                pipe.close()
    text = "".join(said)
    try:
        return json.loads(printed[0]), text, code
    except (ValueError, IndexError):
        raise _failure(code, text) from None


def _shown(progress: Progress) -> Callable[[int, int], object] | None:
    """What is called with the bytes that are done, and all bytes."""
    if progress is False or progress is None:
        return None
    bar: Any = progress
    if progress is True:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("progress=True needs tqdm: pip install tqdm; or pass a function") from None
        bar = tqdm(unit="B", unit_scale=True)
    elif not hasattr(progress, "update"):
        if callable(progress):
            return progress
        raise UsageError("progress= is True, False, a bar of tqdm, or a function of the bytes that are done and all bytes")

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return show


def _made(kind: type, document: dict[str, Any]) -> Any:
    """A dataclass of a document's members. Members of newer versions are left out."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in document.items() if name in names})


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@dataclasses.dataclass(frozen=True)
class Decline:
    """Why compactions would be left to RocksDB."""

    reason: str
    """Code under which such jobs are counted."""
    what: str
    """What was found; for an option, its name and value."""
    change: str
    """What to change."""
    files: list[str] = dataclasses.field(default_factory=list)
    """Files in which it was found."""


@dataclasses.dataclass(frozen=True)
class DoctorFamily:
    """What :func:`doctor` says of a column family."""

    name: str
    files: int
    bytes: int
    accepted: bool
    """Whether all of its compactions would be accepted."""
    declines: list[Decline]


@dataclasses.dataclass(frozen=True)
class Hint:
    """An option that would serve better with another value."""

    option: str
    value: str
    why: str
    set: str | None = None
    """Value to set instead."""
    column_family: str | None = None
    """``None`` for an option of the database."""


@dataclasses.dataclass(frozen=True, repr=False)
class DoctorReport:
    """What :func:`doctor` says of a database."""

    accepted: bool
    """Whether all compactions of all column families would be accepted."""
    rocksdb_version: str
    """Version of the RocksDB that wrote the OPTIONS file."""
    options_file: str
    declines: list[Decline]
    """Reasons that apply to all column families."""
    column_families: list[DoctorFamily]
    hints: list[Hint]
    document: dict[str, Any] = dataclasses.field(repr=False)
    """All that ``rockmill doctor --json`` prints."""

    def __repr__(self) -> str:
        verdict = "all compactions would be accepted" if self.accepted else "some compactions would be left to RocksDB"
        lines = [f"{verdict} (RocksDB {self.rocksdb_version}, {self.options_file})"]
        lines += [f"  {decline.what}: {decline.change}" for decline in self.declines]
        for family in self.column_families:
            state = "accepted" if family.accepted else "left to RocksDB"
            lines.append(f"  {family.name}: {family.files} files, {_megabytes(family.bytes)}, {state}")
            lines += [f"    {decline.what}: {decline.change}" for decline in family.declines]
        lines += [f"  hint: {hint.option}={hint.value}: {hint.why}" for hint in self.hints]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class VerifiedFile:
    """What :func:`verify` says of a file."""

    file: str
    size: int
    entries: int | None
    """``None`` for a bad file, and one that could not be read whole."""
    blocks: int | None
    filter: str | None
    """Which part of the filter was checked."""
    error: str | None
    """``None`` for a good file."""
    not_checked: list[str]
    """Parts that were not checked, and why."""
    column_family: str | None = None
    level: int | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class VerifyReport:
    """What :func:`verify` says of a file or a database."""

    files: list[VerifiedFile]
    verdict: str
    """The last sentence of the command; empty if everything is sound."""

    @property
    def sound(self) -> bool:
        """Whether everything was checked, and nothing is bad."""
        return not any(file.error or file.not_checked for file in self.files)

    @property
    def bad(self) -> list[VerifiedFile]:
        """Files with an error."""
        return [file for file in self.files if file.error]

    def __repr__(self) -> str:
        size, entries = sum(file.size for file in self.files), sum(file.entries or 0 for file in self.files)
        state = "sound" if self.sound else self.verdict
        lines = [f"{len(self.files)} files, {_megabytes(size)}, {entries:,} entries: {state}"]
        for file in self.files:
            lines += [f"  {file.file}: {what}" for what in [file.error, *file.not_checked] if what]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class CompactedFamily:
    """What :func:`compact` has done with a column family."""

    name: str
    result: str
    """``compacted``, ``compacted-already``, ``empty``, ``no-such-keys``, ``left-alone``, ``failed`` or ``not-reached``."""
    bytes_before: int
    bytes_after: int
    wall_s: float
    jobs_done: int
    """Jobs that Rockmill did."""
    error: str | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class CompactReport:
    """What :func:`compact` has done."""

    device: str
    wall_s: float
    bytes_before: int
    bytes_after: int
    jobs_returned: int
    """Jobs that RocksDB did itself."""
    column_families: list[CompactedFamily]
    document: dict[str, Any]
    """All that ``rockmill compact --json`` prints."""

    def __repr__(self) -> str:
        sizes = f"{_megabytes(self.bytes_before)} to {_megabytes(self.bytes_after)}"
        lines = [f"{sizes} in {self.wall_s:.2f} s on {self.device}; RocksDB did {self.jobs_returned} jobs itself"]
        for family in self.column_families:
            sizes = f"{_megabytes(family.bytes_before)} to {_megabytes(family.bytes_after)}"
            lines.append(f"  {family.name}: {family.error or family.result}, {sizes}, {family.jobs_done} jobs by Rockmill")
        return "\n".join(lines)


def _operators(merge_operators: Sequence[str]) -> list[str]:
    if isinstance(merge_operators, str):
        raise UsageError("merge_operators= is a text; give a list of texts")
    return [f"--merge-operator={operator}" for operator in merge_operators]


def _path(path: str | os.PathLike[str]) -> str:
    """A path that the command does not take for an option."""
    text = os.fsdecode(path)
    return os.path.join(".", text) if text.startswith("-") else text


def doctor(path: str | os.PathLike[str], *, merge_operators: Sequence[str] = ()) -> DoctorReport:
    """Says whether the compactions of a database would be accepted, and what to change if not.

    The database may be open. Only OPTIONS, MANIFEST and properties of files are read.

    :raises UsageError: if there is no database.
    :raises DataError: if OPTIONS or MANIFEST are damaged.
    :raises RefusedError: if something cannot be read.
    """
    document, _, _ = _run(["doctor", _path(path), "--json", *_operators(merge_operators)])

    def declines(all_of_them: list[dict[str, Any]]) -> list[Decline]:
        return [_made(Decline, one) for one in all_of_them]

    families = [
        _made(DoctorFamily, family | {"declines": declines(family["declines"])}) for family in document["column_families"]
    ]
    made = {
        "declines": declines(document["declines"]),
        "column_families": families,
        "hints": [_made(Hint, hint) for hint in document["hints"]],
        "document": document,
    }
    report: DoctorReport = _made(DoctorReport, document | made)
    return report


def verify(path: str | os.PathLike[str], *, progress: Progress = False) -> VerifyReport:
    """Checks every block, key and count of an SST file, or of a database that no process changes.

    :param progress: ``True`` shows a bar of tqdm; it may also be such a bar, or a function that is called with the bytes
        that are done, and all bytes.
    :raises UsageError: if the path is a folder without a database.
    :raises RefusedError: if the path cannot be read.
    """
    rows, said, code = _run(["verify", _path(path), "--json"], progress)
    verdict = said.strip().splitlines()[-1].removeprefix("rockmill: ") if code and said.strip() else ""
    return VerifyReport([_made(VerifiedFile, row) for row in rows], verdict)


def compact(
    path: str | os.PathLike[str],
    *,
    families: Sequence[str] = (),
    device: str = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    force: bool = False,
    wal_dir: str | os.PathLike[str] | None = None,
    merge_operators: Sequence[str] = (),
    progress: Progress = False,
) -> CompactReport:
    """Compacts the column families of a database that nobody has open, in a process of its own.

    :param families: names of column families; all by default.
    :param device: where Rockmill computes: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:0"``.
    :param memory: most host memory, in bytes or as ``"4GiB"``.
    :param force: compacts again what is compacted already.
    :param progress: ``True`` shows a bar of tqdm; it may also be such a bar, or a function that is called with the bytes
        that are done, and all bytes.
    :raises UsageError: if there is no such database or column family.
    :raises RefusedError: if another process, or another library of this one, has the database open.
    :raises DataError: if the database is damaged, or needs an object that only its application has.
    """
    if isinstance(families, str):
        raise UsageError("families= is a text; give a list of names")
    arguments = ["compact", _path(path), "--json", f"--device={device}"]
    arguments += [f"--column-family={name}" for name in families]
    size = mebibytes("memory", memory, least=32)
    arguments += [] if size is None else [f"--memory-mib={size}"]
    arguments += [] if threads is None else [f"--threads={threads}"]
    arguments += ["--force"] if force else []
    arguments += [] if wal_dir is None else [f"--wal-dir={os.fsdecode(wal_dir)}"]
    document, said, code = _run(arguments + _operators(merge_operators), progress)
    if code:
        raise _failure(code, said.strip().splitlines()[-1] if said.strip() else "")
    made = {
        "column_families": [_made(CompactedFamily, family) for family in document["column_families"]],
        "document": document,
    }
    report: CompactReport = _made(CompactReport, document | made)
    return report
