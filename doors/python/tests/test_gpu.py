"""Views in device memory. They need a GPU and torch; tests with CuPy and PyG also need these."""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy
import pytest

import rockmill as rm
from conftest import write

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

DIM = 4
ROW = 4 * DIM


@pytest.fixture
def view(vectors: Path) -> rm.View:
    return rm.view(vectors, device=0, value_bytes=ROW)


def expected(ids: torch.Tensor) -> torch.Tensor:
    numbers = ids.to(torch.float32)[..., None] + torch.arange(DIM, dtype=torch.float32, device=ids.device)
    return torch.where((ids % 2 == 0)[..., None] & (ids >= 0)[..., None] & (ids < 2000)[..., None], numbers, 0)


def test_rows_of_tensors_are_found(view: rm.View) -> None:
    ids = torch.tensor([0, 1, 1998, 2000, 42, 42, -2], device="cuda")
    rows, found = view.lookup(ids)
    assert rows.device == ids.device and rows.dtype == torch.uint8 and rows.shape == (7, ROW)
    assert found.tolist() == [True, False, True, False, True, True, False]
    assert torch.equal(rows.view(torch.float32), expected(ids))
    view.check(wait=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64"])
def test_ids_of_all_integers_are_the_same_keys(view: rm.View, dtype: str) -> None:
    ids = torch.arange(120, device="cuda").to(getattr(torch, dtype))
    rows, found = view.lookup(ids)
    assert torch.equal(rows.view(torch.float32), expected(torch.arange(120, device="cuda")))
    assert found.tolist() == [number % 2 == 0 for number in range(120)]


@pytest.mark.parametrize("form", ["u8be", "u16be", "u16le", "u32be", "u32le", "u64be", "u64le", "i8be", "i16le", "i32be", "i64le", "i64be"])
def test_forms_of_keys_are_those_of_struct(tmp_path: Path, form: str) -> None:
    code = {8: "b", 16: "h", 32: "i", 64: "q"}[int(form[1:-2])]
    code = ("<" if form.endswith("le") else ">") + (code if form[0] == "i" else code.upper())
    low, high = (-100, 100) if form[0] == "i" else (0, 200)
    stored = [number for number in range(low, high + 1) if number % 3 == 0]
    write(tmp_path / "db", ((b"p:" + struct.pack(code, number), struct.pack("<q", number)) for number in stored))
    view = rm.view(tmp_path / "db", device=0, keys=(b"p:", form), value_bytes=8)
    ids = torch.tensor([*range(-300, 301), 2**31, 2**32, 2**32 + 3, -(2**32) + 3, 2**63 - 1, -(2**63)], device="cuda")
    rows, found = view.lookup(ids)
    assert ids[found].tolist() == stored
    assert rows.view(torch.int64)[found].ravel().tolist() == stored
    assert not rows[~found].any()


def test_the_current_stream_orders_a_lookup(view: rm.View) -> None:
    stream = torch.cuda.Stream()
    late = torch.zeros(1000, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(torch.arange(1000, device="cuda"))
        rows, _ = view.lookup(late)
    stream.synchronize()
    assert torch.equal(rows.view(torch.float32), expected(torch.arange(1000, device="cuda")))
    rows, _ = view.lookup(torch.arange(10, device="cuda"), stream=stream.cuda_stream)
    stream.synchronize()
    assert torch.equal(rows.view(torch.float32), expected(torch.arange(10, device="cuda")))


def test_out_status_and_default_are_used(view: rm.View) -> None:
    ids = torch.tensor([2, 3, -1], device="cuda")
    out = torch.full((3, DIM), 7.0, device="cuda")
    status = torch.empty(3, dtype=torch.uint8, device="cuda")
    rows, found = view.lookup(ids, out=out, status=status)
    assert rows is out and status.tolist() == [1, 0, 0] and found.tolist() == [True, False, False]
    assert out.tolist() == [[2, 3, 4, 5], [7] * 4, [7] * 4]
    view.lookup(ids, out=out, default=torch.full((DIM,), 9.0, device="cuda"))
    assert out.tolist() == [[2, 3, 4, 5], [9] * 4, [9] * 4]


def test_values_longer_than_a_row_raise_later(vectors: Path) -> None:
    view = rm.view(vectors, device=0, value_bytes=ROW - 1)
    ids = torch.tensor([2, 3], device="cuda")
    view.lookup(ids)
    with pytest.raises(rm.DataError, match="another size than a row"):
        view.check(wait=True)
    view.check(wait=True)
    view.lookup(ids)
    torch.cuda.synchronize()
    with pytest.raises(rm.DataError, match="another size than a row"):
        view.lookup(ids)


def test_a_lookup_can_be_captured_into_a_graph(view: rm.View) -> None:
    ids = torch.arange(100, device="cuda")
    out, status = torch.zeros(100, ROW, dtype=torch.uint8, device="cuda"), torch.empty(100, dtype=torch.uint8, device="cuda")
    view.lookup(ids, out=out, status=status)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        view.lookup(ids, out=out, status=status)
    ids.add_(100)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out[::2].view(torch.float32), expected(ids)[::2])


def test_an_embedding_is_never_part_of_a_graph(vectors: Path, view: rm.View) -> None:
    embedding = rm.torch.Embedding(view, DIM)
    ids = torch.tensor([2], device="cuda")
    with pytest.raises(rm.UsageError, match="cannot be captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        embedding(ids)
    if not hasattr(torch.Tag, "cudagraph_unsafe"):
        return
    run = torch.compile(embedding, mode="reduce-overhead")
    for number in range(5):
        write(vectors, [(struct.pack(">Q", 2), struct.pack("<4f", *[number] * 4))])
        view.refresh()
        assert run(ids).tolist() == [[number] * 4]


def test_the_operator_of_torch_passes_its_checks(view: rm.View) -> None:
    embedding = rm.torch.Embedding(view, DIM)
    ids, out = torch.arange(6, device="cuda"), torch.zeros(6, DIM, device="cuda")
    status = torch.empty(6, dtype=torch.uint8, device="cuda")
    torch.library.opcheck(torch.ops.rockmill.lookup.default, (embedding._number, ids, out, status))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_embedding_has_the_vectors(view: rm.View, compiled: bool) -> None:
    default = torch.tensor([1.0, 2, 3, 4])
    embedding = rm.torch.Embedding(view, DIM, default=default)
    model = torch.nn.Sequential(embedding, torch.nn.Linear(DIM, 3).cuda())
    run = torch.compile(model, fullgraph=True) if compiled else model
    for shape in [(5,), (2, 3), ()]:
        ids = torch.randint(0, 2000, shape, device="cuda")
        vectors = torch.where((ids % 2 == 0)[..., None], expected(ids), default.cuda())
        assert torch.equal(embedding(ids), vectors)
        torch.testing.assert_close(run(ids), model[1](vectors))
    assert embedding.state_dict() == {}


def test_casting_a_model_changes_no_vector_and_values_of_another_size_raise(view: rm.View) -> None:
    ids = torch.arange(0, 20, 2, device="cuda")
    for cast in (torch.nn.Module.half, torch.nn.Module.double):
        model = cast(torch.nn.Sequential(rm.torch.Embedding(view, DIM)))
        assert torch.equal(model(ids), expected(ids))
    shorter = rm.torch.Embedding(view, 2 * DIM)
    shorter(ids)
    with pytest.raises(rm.DataError, match="another size than a row"):
        view.check(wait=True)


def test_an_embedding_on_the_host_is_the_same(vectors: Path) -> None:
    embedding = rm.torch.Embedding(rm.view(vectors, device="cpu"), DIM, torch.float32)
    ids = torch.arange(100)
    assert torch.equal(embedding(ids), expected(ids))
    half = rm.torch.Embedding(rm.view(vectors, device="cpu"), 2 * DIM, torch.bfloat16)
    assert half(ids).dtype == torch.bfloat16
    with pytest.raises(rm.DataError, match="another size than a row"):
        rm.torch.Embedding(rm.view(vectors, device="cpu"), DIM, torch.bfloat16)(ids)


def test_lookups_on_two_streams_go_on_while_the_view_is_refreshed(vectors: Path, view: rm.View) -> None:
    done = threading.Event()
    trouble: list[BaseException] = []

    def look() -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                ids = torch.arange(0, 2000, 2, device="cuda")
                right = expected(ids)
                while not done.is_set():
                    rows, found = view.lookup(ids)
                    stream.synchronize()
                    assert found.all() and torch.equal(rows.view(torch.float32), right)
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        write(vectors, [(struct.pack(">Q", 10_001 + 2 * number), struct.pack("<4f", *[number] * 4))])
        view.refresh()
    done.set()
    for thread in threads:
        thread.join()
    assert not trouble, trouble
    rows, found = view.lookup(torch.arange(10_001, 10_041, 2, device="cuda"))
    assert found.all() and rows.view(torch.float32)[:, 0].tolist() == list(range(20))


def test_arrays_of_cupy_and_others_serve(view: rm.View) -> None:
    cupy = pytest.importorskip("cupy")
    ids = cupy.arange(-3, 100)
    rows, found = view.lookup(ids)
    assert isinstance(rows, cupy.ndarray)
    right = expected(torch.arange(-3, 100))
    assert numpy.array_equal(rows.view(cupy.float32).get(), right.numpy())
    assert found.get().tolist() == [number >= 0 and number % 2 == 0 for number in range(-3, 100)]
    with cupy.cuda.Stream() as stream:
        rows, _ = view.lookup(ids)
        stream.synchronize()
        assert numpy.array_equal(rows.view(cupy.float32).get(), right.numpy())

    class Other:
        """An array of a library that is not known, such as Numba's."""

        __cuda_array_interface__ = ids.__cuda_array_interface__

    rows, _ = view.lookup(Other())
    assert numpy.array_equal(rows.view(cupy.float32).get(), right.numpy())


def test_a_lookup_waits_for_the_stream_that_an_array_names(view: rm.View, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only torch is there, which itself does not wait.
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    stream = torch.cuda.Stream()
    late = torch.zeros(1000, dtype=torch.int64, device="cuda")
    made = torch.arange(1000, device="cuda")

    class Other:
        """An array that a stream of its library still fills."""

        def __init__(self, stream: int) -> None:
            self.__cuda_array_interface__ = {**late.__cuda_array_interface__, "version": 3, "stream": stream}

    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(made)
    rows, _ = view.lookup(Other(stream.cuda_stream))
    assert torch.equal(rows.view(torch.float32), expected(made))
    rows, _ = view.lookup(Other(1))
    assert torch.equal(rows.view(torch.float32), expected(made))


def test_ids_of_other_libraries_are_kept_until_their_lookup_is_done(view: rm.View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    own = torch.arange(1000, device="cuda")

    class Other:
        """An array whose memory its library frees with it."""

        def __init__(self) -> None:
            self.__cuda_array_interface__ = own.__cuda_array_interface__

    ids = Other()
    is_there = weakref.ref(ids)
    torch.cuda._sleep(50_000_000)
    view.lookup(ids)
    del ids
    assert is_there() is not None
    torch.cuda.synchronize()
    view.lookup(Other())
    assert is_there() is None
    view.close()
    assert not view._queued


def test_a_store_of_features_serves_pyg(view: rm.View) -> None:
    pytest.importorskip("torch_geometric")
    store = rm.pyg.FeatureStore({"paper": rm.torch.Embedding(view, DIM)}, sizes={"paper": 2000})
    assert store.get_tensor_size(group_name="paper", attr_name="x", index=None) == (2000, DIM)
    features = store.get_tensor(group_name="paper", attr_name="x", index=torch.tensor([4, 6]))
    assert torch.equal(features.cpu(), expected(torch.tensor([4, 6])))
    assert store.get_tensor(group_name="paper", attr_name="x", index=None).shape == (2000, DIM)
    with pytest.raises(rm.UsageError, match="only read"):
        store.put_tensor(features, group_name="paper", attr_name="x", index=None)


@pytest.mark.parametrize(
    ("ids", "arguments", "sentence"),
    [
        (lambda: torch.arange(4), {}, "ids lies on host memory"),
        (lambda: numpy.arange(4), {}, "ids lie in host memory"),
        (lambda: torch.arange(4.0, device="cuda"), {}, "ids are float32"),
        (lambda: torch.arange(8, device="cuda")[::2], {}, "ids is not contiguous"),
        (lambda: torch.arange(4, device="cuda"), {"out": torch.zeros(4, ROW)}, "out= lies on host memory"),
        (lambda: torch.arange(4, device="cuda"), {"out": numpy.zeros((4, ROW))}, "out= is a ndarray"),
        (lambda: torch.arange(4, device="cuda"), {"stream": "now"}, "stream= is a str"),
    ],
)
def test_wrong_arrays_are_named(view: rm.View, ids, arguments, sentence: str) -> None:
    with pytest.raises(rm.UsageError) as raised:
        view.lookup(ids(), **arguments)
    assert sentence in str(raised.value)


def test_a_view_is_closed_while_kernels_use_it(view: rm.View) -> None:
    ids = torch.arange(1000, device="cuda")
    torch.cuda._sleep(100_000_000)
    rows, _ = view.lookup(ids)
    view.close()
    assert torch.equal(rows.view(torch.float32), expected(ids))
    with pytest.raises(rm.UsageError, match="closed"):
        view.lookup(ids)


def test_a_forked_child_and_a_pickle_are_refused(view: rm.View) -> None:
    import pickle

    with pytest.raises(rm.UsageError, match="cannot be pickled"):
        pickle.dumps(view)
    child = os.fork()
    if child == 0:
        try:
            view.refresh()
        except rm.UsageError as error:
            os._exit(0 if "belongs to the process that was forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_python_ends_with_a_view_in_use(vectors: Path) -> None:
    script = """
import sys, torch
import rockmill as rm
view = rm.view(sys.argv[1], device=0, value_bytes=16)
torch.cuda._sleep(100_000_000)
rows = view.lookup(torch.arange(1000, device="cuda"))
"""
    done = subprocess.run([sys.executable, "-c", script, str(vectors)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_too_little_memory_is_refused(vectors: Path) -> None:
    with pytest.raises(rm.RefusedError):
        rm.view(vectors, device=0, memory=4096)


def test_a_database_as_fbgemm_makes_them_is_read(tmp_path: Path) -> None:
    """Its tables have the id as eight bytes of the machine's order, and a row of numbers."""
    rows = numpy.random.default_rng(7).random((500, 64), dtype=numpy.float32)
    write(tmp_path / "db", ((struct.pack("<q", number), rows[number].tobytes()) for number in range(500)))
    embedding = rm.torch.Embedding(rm.view(tmp_path / "db", device=0, keys="i64le"), 64)
    assert torch.equal(embedding(torch.arange(500, device="cuda")).cpu(), torch.from_numpy(rows))


def test_times_of_lookups_are_printed(tmp_path: Path) -> None:
    """Times are told and not judged."""
    count, size = 1 << 20, 256
    value = bytes(range(256))
    write(tmp_path / "db", ((struct.pack(">Q", number), value) for number in range(count)))
    view = rm.view(tmp_path / "db", device=0, value_bytes=size)
    for n in (32, 262_144):
        ids = torch.randint(0, count, (n,), device="cuda")
        out = torch.empty(n, size, dtype=torch.uint8, device="cuda")
        status = torch.empty(n, dtype=torch.uint8, device="cuda")
        for name, arguments in [("", {}), (" out= status=", {"out": out, "status": status})]:
            waits, begins = [], []
            for _ in range(200):
                torch.cuda.synchronize()
                began = time.perf_counter()
                view.lookup(ids, **arguments)
                begins.append(time.perf_counter() - began)
                torch.cuda.synchronize()
                waits.append(time.perf_counter() - began)
            call, whole = (statistics.median(times) * 1e6 for times in (begins, waits))
            print(f"lookup of {n} keys of {size} bytes{name}: call {call:.1f} us, done {whole:.1f} us, {n / whole:.1f} M/s")
        assert torch.equal(view.lookup(ids)[0][0].cpu(), torch.tensor(list(value), dtype=torch.uint8))
