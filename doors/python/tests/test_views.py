"""Views in host memory."""

from __future__ import annotations

import pickle
import signal
import struct
import threading
from pathlib import Path

import numpy
import pytest

import rockmill as rm
from conftest import write
from rocksdict import Options, Rdict

DIM = 4
ROW = 4 * DIM


def expected(ids: numpy.ndarray) -> numpy.ndarray:
    return (ids.astype(numpy.float32)[:, None] + numpy.arange(DIM, dtype=numpy.float32)).astype(numpy.float32)


def test_rows_of_ids_are_found(vectors: Path) -> None:
    with rm.view(vectors, device="cpu", value_bytes=ROW) as view:
        assert len(view) == 1000 and view.device == "cpu" and view.memory_bytes > 0
        ids = numpy.array([0, 1, 1998, 2000, 42, 42, -2], numpy.int64)
        rows, found = view.lookup(ids)
        assert found.tolist() == [True, False, True, False, True, True, False]
        assert rows.shape == (7, ROW) and rows.dtype == numpy.uint8
        assert numpy.array_equal(rows.view(numpy.float32)[found], expected(ids[found]))
        assert not rows[~found].any()


def test_the_folder_of_the_logs_is_needed_by_a_view_and_its_refresh(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    logs = tmp_path / "logs"
    options.set_wal_dir(str(logs))
    database = Rdict(str(tmp_path / "db"), options)
    database[struct.pack(">Q", 7)] = b"seven"
    with pytest.warns(rm.RockmillWarning, match="wal_dir"):
        view = rm.view(tmp_path / "db", device="cpu", value_bytes=5)
    with view:
        logs.rename(tmp_path / "elsewhere")
        with pytest.raises(rm.RefusedError, match="wal_dir"):
            view.refresh()
        with pytest.raises(rm.RefusedError, match="wal_dir"):
            rm.view(tmp_path / "db", device="cpu", value_bytes=5)
        _, found = view.lookup(numpy.array([7, 8], numpy.int64))
        assert found.tolist() == [True, False]
    (tmp_path / "elsewhere").rename(logs)
    database.close()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_ids_of_all_integers_are_the_same_keys(vectors: Path, dtype: str) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=ROW)
    ids = numpy.arange(0, 120, dtype=dtype)
    rows, found = view.lookup(ids)
    assert numpy.array_equal(found, ids % 2 == 0)
    assert numpy.array_equal(rows.view(numpy.float32)[found], expected(ids[found]))


@pytest.mark.parametrize("form", ["u8be", "u16be", "u16le", "u32be", "u32le", "u64be", "u64le", "i8be", "i16le", "i32be", "i64le", "i64be"])
def test_forms_of_keys_are_those_of_struct(tmp_path: Path, form: str) -> None:
    code = {8: "b", 16: "h", 32: "i", 64: "q"}[int(form[1:-2])]
    code = ("<" if form.endswith("le") else ">") + (code if form[0] == "i" else code.upper())
    low, high = (-100, 100) if form[0] == "i" else (0, 200)
    stored = [number for number in range(low, high + 1) if number % 3 == 0 and struct.calcsize(code) > 1 or number % 3 == 0 and -128 <= number < 256]
    stored = [number for number in stored if form != "i8be" or number < 128]
    write(tmp_path / "db", ((b"p:" + struct.pack(code, number), struct.pack("<q", number)) for number in stored))
    view = rm.view(tmp_path / "db", device="cpu", keys=(b"p:", form), value_bytes=8)
    # Those whose bytes are the same but for the sign or the width are not found.
    ids = numpy.array([*range(-300, 301), 2**31, 2**32, 2**32 + 3, -(2**32) + 3, 2**63 - 1, -(2**63)], numpy.int64)
    rows, found = view.lookup(ids)
    assert ids[found].tolist() == [number for number in range(-300, 301) if number in set(stored)]
    assert rows.view(numpy.int64)[found].ravel().tolist() == ids[found].tolist()
    assert not rows[~found].any()


def test_negative_ids_are_not_found_though_their_bytes_are_a_key(tmp_path: Path) -> None:
    write(tmp_path / "db", [(struct.pack(">Q", 2**64 - 1), b"largest!"), (struct.pack(">Q", 1), b"smallest")])
    view = rm.view(tmp_path / "db", device="cpu", value_bytes=8)
    default = numpy.frombuffer(b"nothing.", numpy.uint8)
    rows, found = view.lookup(numpy.array([-1, 1], numpy.int64), default=default)
    assert found.tolist() == [False, True]
    assert [row.tobytes() for row in rows] == [b"nothing.", b"smallest"]
    rows, found = view.lookup(numpy.array([2**64 - 1], numpy.uint64))
    assert found.tolist() == [True]


def test_rows_that_are_made_are_zero_where_no_value_is(tmp_path: Path) -> None:
    lens = [0, 1, 15, 16, 17, 31, 32]
    write(tmp_path / "db", ((struct.pack("<i", -number), b"v" * size) for number, size in enumerate(lens)))
    view = rm.view(tmp_path / "db", device="cpu", keys="i32le", value_bytes=32)
    ids = numpy.concatenate([numpy.arange(0, -9, -1), [2**32]])
    for _ in range(3):
        # Memory that was used before is not zero.
        numpy.full(len(ids) * 32, 0xEE, numpy.uint8)
        rows, found = view.lookup(ids)
        assert found.dtype == bool and found.tolist() == [True] * len(lens) + [False] * 3
        assert [row.tobytes() for row in rows] == [(b"v" * size).ljust(32, b"\0") for size in [*lens, 0, 0, 0]]


@pytest.mark.parametrize(("keys", "code"), [("u64be", ">Q"), ((b"n:", "i16le"), "<h")])
def test_rocksdb_is_asked_for_what_the_view_does_not_have(tmp_path: Path, keys, code: str) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(20)
    prefix = keys[0] if isinstance(keys, tuple) else b""
    database = Rdict(str(tmp_path / "db"), options)
    for number in range(40):
        database[prefix + struct.pack(code, number)] = b"b" * number
    database.flush()
    database.close()
    view = rm.view(tmp_path / "db", device="cpu", keys=keys, value_bytes=30)
    assert len(view) == 20
    ids = numpy.arange(-2, 42)
    status, sizes = numpy.empty(44, numpy.uint8), numpy.empty(44, numpy.uint32)
    rows, found = view.lookup(ids, status=status, sizes=sizes)
    assert found.tolist() == [0 <= number <= 30 for number in ids]
    assert status.tolist() == [0 if not 0 <= number < 40 else 1 if number <= 30 else 3 for number in ids]
    assert sizes.tolist() == [number if 0 <= number < 40 else 0 for number in ids]
    assert [row.tobytes() for row in rows[2:33]] == [(b"b" * number).ljust(30, b"\0") for number in range(31)]
    assert not rows[33:].any()


def test_keys_may_be_bytes(db: Path) -> None:
    view = rm.view(db, device="cpu", keys="bytes", value_bytes=16)
    keys = numpy.frombuffer(b"user:0007user:9999user:zzzz", numpy.uint8).reshape(3, 9)
    rows, found = view.lookup(keys)
    assert found.tolist() == [True, True, False]
    assert [row.tobytes().rstrip(b"\0") for row in rows] == [b"value 7", b"not flushed", b""]
    assert view.get([b"user:0007", b"nobody", b"zebra"]) == [b"value 7", None, b"\xff\x00"]


def test_out_status_and_default_are_used(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu")
    ids = numpy.array([2, 3], numpy.int64)
    out = numpy.full((2, DIM), 7, numpy.float32)
    status = numpy.empty(2, numpy.uint8)
    rows, found = view.lookup(ids, out=out, status=status)
    assert rows is out and status.tolist() == [1, 0] and found.tolist() == [True, False]
    assert out.tolist() == [[2, 3, 4, 5], [7, 7, 7, 7]]
    default = numpy.array([9, 9, 9, 9], numpy.float32)
    view.lookup(ids, out=out, default=default)
    assert out.tolist() == [[2, 3, 4, 5], [9, 9, 9, 9]]


def test_sizes_of_values_are_told(tmp_path: Path) -> None:
    write(tmp_path / "db", ((struct.pack(">Q", number), b"x" * number) for number in range(6)))
    view = rm.view(tmp_path / "db", device="cpu", value_bytes=3)
    sizes, status = numpy.empty(8, numpy.uint32), numpy.empty(8, numpy.uint8)
    rows, _ = view.lookup(numpy.arange(-1, 7), sizes=sizes, status=status)
    assert sizes.tolist() == [0, 0, 1, 2, 3, 4, 5, 0]
    assert status.tolist() == [0, 1, 1, 1, 1, 3, 3, 0]
    assert [row.tobytes() for row in rows[1:5]] == [b"\0\0\0", b"x\0\0", b"xx\0", b"xxx"]
    with pytest.raises(rm.UsageError, match="sizes= is int64"):
        view.lookup(numpy.arange(2), sizes=numpy.empty(2, numpy.int64))


def test_values_longer_than_a_row_raise_or_are_told(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=ROW - 1)
    ids = numpy.array([2, 3], numpy.int64)
    with pytest.raises(rm.DataError, match="another size than a row"):
        view.lookup(ids)
    status = numpy.empty(2, numpy.uint8)
    _, found = view.lookup(ids, status=status)
    assert status.tolist() == [3, 0] and not found.any()


def test_a_refresh_has_what_was_written(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=ROW)
    before = view.sequence
    assert view.refresh().keys == 0
    write(vectors, [(struct.pack(">Q", 3), struct.pack("<4f", 3, 4, 5, 6))])
    ids = numpy.array([3], numpy.int64)
    assert not view.lookup(ids)[1].any()
    refreshed = view.refresh()
    assert refreshed.sequence == view.sequence > before
    assert refreshed.keys >= 1
    assert view.lookup(ids)[1].all()
    assert view.age < 60


def test_no_ids_are_no_rows(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=ROW)
    rows, found = view.lookup(numpy.empty(0, numpy.int64))
    assert rows.shape == (0, ROW) and found.shape == (0,)


def test_a_view_in_host_memory_can_be_pickled(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu", keys="u64be", value_bytes=ROW)
    again = pickle.loads(pickle.dumps(view))
    ids = numpy.arange(10)
    assert numpy.array_equal(view.lookup(ids)[0], again.lookup(ids)[0])


IDS = numpy.arange(4, dtype=numpy.int64)


@pytest.mark.parametrize(
    ("ids", "arguments", "sentence"),
    [
        ([1, 2], {}, "make an array of them"),
        (7, {}, "ids are a int"),
        (IDS.astype(numpy.float64), {}, "ids are float64"),
        (IDS.astype(bool), {}, "ids are bool"),
        (IDS.reshape(2, 2), {}, "ids have shape (2, 2)"),
        (numpy.int64(3), {}, "ids"),
        (numpy.arange(8)[::2], {}, "ids is not contiguous"),
        (IDS, {"out": numpy.zeros((3, ROW), numpy.uint8)}, "out= has (3,) rows"),
        (IDS, {"out": numpy.zeros((ROW, 4), numpy.uint8).T}, "out= is not contiguous"),
        (IDS, {"out": [0]}, "out= is a list"),
        (IDS, {"out": numpy.frombuffer(bytes(4 * ROW), numpy.uint8).reshape(4, ROW)}, "out= is read-only"),
        (IDS, {"out": numpy.full((4, 2), None)}, "out= has objects of Python"),
        (IDS, {"status": numpy.frombuffer(bytes(4), numpy.uint8)}, "status= is read-only"),
        (IDS, {"status": numpy.zeros(3, numpy.uint8)}, "status= is uint8 (3,)"),
        (IDS, {"status": numpy.zeros(4, numpy.int8)}, "status= is int8"),
        (IDS, {"default": numpy.zeros(3, numpy.uint8)}, "default= has 3 bytes"),
    ],
)
def test_wrong_arrays_are_named(vectors: Path, ids, arguments, sentence: str) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=ROW)
    with pytest.raises(rm.UsageError) as raised:
        view.lookup(ids, **arguments)
    assert sentence in str(raised.value)


def test_rows_without_a_size_are_named(vectors: Path) -> None:
    with pytest.raises(rm.UsageError, match="value_bytes="):
        rm.view(vectors, device="cpu").lookup(IDS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"keys": "u63be"}, "keys= is 'u63be'"),
        ({"keys": (b"p", "bytes")}, "keys="),
        ({"keys": (bytes(51), "u64be")}, "the prefix has 51 bytes"),
        ({"device": "tpu"}, "device= is 'tpu'"),
        ({"device": -1}, "device= is -1"),
        ({"value_bytes": 0}, "value_bytes= is 0"),
        ({"family": "ordrs"}, "there is no column family"),
        ({"merge_operators": ["nothing"]}, "merge_operators="),
    ],
)
def test_wrong_arguments_of_a_view_are_named(vectors: Path, arguments, sentence: str) -> None:
    with pytest.raises(rm.UsageError) as raised:
        rm.view(vectors, **{"device": "cpu", **arguments})
    assert sentence in str(raised.value)


def test_a_closed_view_says_so(vectors: Path) -> None:
    view = rm.view(vectors, device="cpu", value_bytes=ROW)
    view.close()
    view.close()
    for use in (lambda: view.lookup(IDS), view.refresh, lambda: len(view), lambda: view.get([b"a"])):
        with pytest.raises(rm.UsageError, match="the view is closed"):
            use()
    assert "closed" in repr(view)


def test_control_c_ends_a_lookup_that_asks_rocksdb(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(1)
    database = Rdict(str(tmp_path / "db"), options)
    for number in range(1000):
        database[struct.pack(">Q", number)] = b"blob"
    database.flush()
    database.close()
    view = rm.view(tmp_path / "db", device="cpu", value_bytes=4)
    rows, found = view.lookup(numpy.arange(1000))
    assert found.all() and rows.tobytes() == b"blob" * 1000
    # Python looks at the signal when some of the keys were asked for.
    ids = numpy.arange(1_000_000) % 1000
    begins = threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,))
    begins.start()
    with pytest.raises(KeyboardInterrupt):
        view.lookup(ids)
    begins.join()


def test_a_view_that_is_closed_by_its_block_is_checked_before(vectors: Path) -> None:
    with rm.view(vectors, device="cpu", value_bytes=ROW) as view:
        view.lookup(IDS)
    assert "closed" in repr(view)
    with pytest.raises(ZeroDivisionError), rm.view(vectors, device="cpu") as view:
        _ = 1 // 0
    assert "closed" in repr(view)
