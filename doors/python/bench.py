"""Speeds of the package beside what its users have without it, in one run:

    PROGRAM=bench.py doors/python/test.sh FOLDER LIBRARY [PAIRS]

It makes a database of pairs with keys of 16 bytes and values of 100 bytes, and one of vectors for a GPU, if torch has one.
Rounds of both sides alternate, and medians are printed.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import polars
from rocksdict import AccessType, Options, Rdict, WriteBatch

import rockmill as rm

ROUNDS = 5
STATEMENT = "select count(*), sum(octet_length(value)) from \"default\" where key >= X'00'"


def made(path: Path, pairs: int, key: Callable[[int], bytes], value: Callable[[int], bytes]) -> None:
    """Writes a database, and compacts it."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(path), options)
    for first in range(0, pairs, 10_000):
        batch = WriteBatch(raw_mode=True)
        for number in range(first, min(first + 10_000, pairs)):
            batch.put(key(number), value(number))
        database.write(batch)
    database.flush()
    database.compact_range(None, None)
    database.close()


def seconds(*sides: Callable[[], object]) -> list[tuple[float, float]]:
    """Medians of the time of each side, and of its CPU time in all threads."""
    times: list[list[tuple[float, float]]] = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side, known in zip(sides, times, strict=True):
            began, used = time.perf_counter(), time.process_time()
            side()
            known.append((time.perf_counter() - began, time.process_time() - used))
    return [(statistics.median(part for part, _ in known), statistics.median(part for _, part in known)) for known in times]


def items(path: Path, pairs: int) -> None:
    database = rm.open(path)
    other = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    for side in (database.items(), other.items()):
        assert sum(1 for _ in side) == pairs
    # A loop of C, so that the iterators alone are measured.
    ours, theirs = seconds(lambda: deque(database.items(), 0), lambda: deque(other.items(), 0))
    other.close()
    for name, (wall, cpu) in (("items", ours), ("items of rocksdict", theirs)):
        print(f"{name}: {pairs / wall / 1e6:.2f} M pairs/s, {cpu / pairs * 1e9:.0f} ns of CPU a pair")


def statements(path: Path) -> None:
    command = [sys.executable, "-m", "rockmill", "sql", str(path)]

    def of_command(statement: str) -> tuple[float, float]:
        began, used = time.perf_counter(), os.times()
        subprocess.run([*command, statement], check=True, stdout=subprocess.DEVNULL)
        done = os.times()
        cpu = done.children_user + done.children_system - used.children_user - used.children_system
        return time.perf_counter() - began, cpu

    database = rm.open(path)
    rounds = []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        database.sql(STATEMENT).to_arrow()
        ours = time.perf_counter() - began, time.process_time() - used
        whole, start = of_command(STATEMENT), of_command("select 1")
        # Without the start of a process, which a statement of nothing has as well.
        rounds.append((*ours, whole[0] - start[0], whole[1] - start[1]))
    ours, cpu, theirs, their_cpu = (statistics.median(known) * 1e3 for known in zip(*rounds, strict=True))
    print(f"sql: {ours:.0f} ms, {cpu:.0f} ms of CPU; the command {theirs:.0f} ms, {their_cpu:.0f} ms of CPU")


def frames(path: Path) -> None:
    result = rm.open(path).sql('select key, octet_length(value) as bytes from "default" limit 1000000')

    def addresses(frame: polars.DataFrame) -> list[int]:
        return [part.to_arrow().buffers()[1].address for part in frame["bytes"].get_chunks()]

    began = time.perf_counter()
    batches = list(result.batches())
    read = time.perf_counter() - began
    frame = polars.concat([polars.DataFrame(batch) for batch in batches], rechunk=False)
    whole = time.perf_counter() - began
    before = [batch.to_arrow().column("bytes").buffers()[1].address for batch in batches]
    assert addresses(frame) == before
    print(f"frames: {len(frame)} rows to Polars in {whole:.2f} s, of which the scan takes {read:.2f} s; buffers have equal addresses")


def lookups(folder: Path) -> None:
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("lookups: there is no GPU with torch")
        return
    count, size, n = 1 << 20, 256, 262_144
    path = folder / "vectors"
    made(path, count, lambda number: struct.pack(">Q", number), lambda number: random.Random(number).randbytes(size))
    view = rm.view(path, device=0, value_bytes=size)
    ids = torch.randint(0, count, (n,), device="cuda")
    other = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())

    def ours() -> object:
        rows, _ = view.lookup(ids)
        torch.cuda.synchronize()
        return rows

    def theirs() -> object:
        values = other[[struct.pack(">Q", number) for number in ids.tolist()]]
        rows = torch.frombuffer(bytearray(b"".join(values)), dtype=torch.uint8).reshape(n, size).cuda()
        torch.cuda.synchronize()
        return rows

    assert torch.equal(ours(), theirs())
    (mine, _), (rest, _) = seconds(ours, theirs)
    print(f"lookups of {n} keys of {size} bytes: {mine * 1e6:.0f} us; rocksdict, bytes and .cuda() {rest * 1e3:.0f} ms")
    other.close()


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    print(f"{os.cpu_count()} cores; rockmill {rm.__version__}; {pairs} pairs of 16 and 100 bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs"
        filler = itertools.cycle(random.Random(7).randbytes(100) for _ in range(1000))
        made(path, pairs, lambda number: struct.pack(">QQ", number, number), lambda _: next(filler))
        items(path, pairs)
        statements(path)
        frames(path)
        lookups(Path(folder))


main()
