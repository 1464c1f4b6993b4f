"""Arrays of numpy, torch and CuPy, as lookups need them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from rockmill._errors import UsageError


class _Arrays:
    """What a library does with its arrays."""

    name = ""
    is_shared = False
    """Whether the memory of the ids is that of another library, which may free it without regard to the stream."""

    def __init__(self, module: Any, ids: Any) -> None:
        self.module = module
        self.ids = ids

    def is_one(self, array: Any) -> bool:
        raise NotImplementedError

    def device_of(self, array: Any) -> int | str | None:
        """The number of a GPU; ``None`` for host memory; the name of something else."""
        raise NotImplementedError

    def on(self, number: int | None, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Where arrays are made."""
        return contextlib.nullcontext()

    def stream(self, stream: Any) -> int:
        """Address of a stream."""
        return 0

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        raise NotImplementedError

    def mark(self) -> Callable[[], bool] | None:
        """A function that tells whether the current stream is done with its work so far; ``None`` while it is captured."""
        return None


class _Host(_Arrays):
    """Arrays of numpy."""

    name = "numpy"

    def __init__(self, ids: Any) -> None:
        super().__init__(sys.modules["numpy"], ids)

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.module.ndarray)

    def device_of(self, array: Any) -> int | None:
        return None

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.module.empty(shape, dtype)


class _CuPy(_Arrays):
    """Arrays of CuPy."""

    name = "cupy"

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.module.ndarray)

    def device_of(self, array: Any) -> int | None:
        return int(array.device.id)

    def on(self, number: int | None, stream: Any) -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        stack.enter_context(self.module.cuda.Device(number))
        if stream is not None:
            made = stream if hasattr(stream, "ptr") else self.module.cuda.ExternalStream(self.stream(stream))
            stack.enter_context(made)
        return stack

    def stream(self, stream: Any) -> int:
        return _stream(self.module.cuda.get_current_stream() if stream is None else stream)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.module.empty(shape, dtype)

    def mark(self) -> Callable[[], bool] | None:
        stream = self.module.cuda.get_current_stream()
        if stream.is_capturing():
            return None
        event = self.module.cuda.Event(disable_timing=True)
        event.record(stream)
        return lambda: bool(event.done)


class _Torch(_Arrays):
    """Tensors of torch."""

    name = "torch"

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.module.Tensor)

    def device_of(self, array: Any) -> int | str | None:
        device = array.device
        if device.type == "cuda":
            return int(device.index or 0)
        return None if device.type == "cpu" else str(device)

    def on(self, number: int | None, stream: Any) -> contextlib.AbstractContextManager[Any]:
        cuda = self.module.cuda
        if stream is None or number is None:
            # Tensors are made on the device of the ids, for its current stream.
            return contextlib.nullcontext()
        stack = contextlib.ExitStack()
        stack.enter_context(cuda.device(number))
        made = stream if isinstance(stream, cuda.Stream) else cuda.ExternalStream(_stream(stream))
        stack.enter_context(cuda.stream(made))
        return stack

    def stream(self, stream: Any) -> int:
        if self.ids.device.type == "cpu":
            return 0
        return _stream(self.module.cuda.current_stream(self.ids.device) if stream is None else stream)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.module.empty(shape, dtype=getattr(self.module, dtype), device=self.ids.device)

    def mark(self) -> Callable[[], bool] | None:
        cuda = self.module.cuda
        with cuda.device(self.ids.device):
            if cuda.is_current_stream_capturing():
                return None
            event = cuda.Event()
            event.record()
        return lambda: bool(event.query())


def _stream(stream: Any) -> int:
    """The address of a stream of torch or CuPy, or of a number."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    for name in ("cuda_stream", "ptr"):
        if isinstance(getattr(stream, name, None), int):
            return int(getattr(stream, name))
    ask = getattr(stream, "__cuda_stream__", None)
    if ask is not None:
        return int(ask()[1])
    raise UsageError(f"stream= is a {type(stream).__name__}; give a stream of torch or CuPy, or its address")


# CUDA's number for the legacy default stream, which torch has as an object alone.
_LEGACY_STREAM = 1


def _any_on_device(ids: Any, number: int | None, stream: Any) -> _Arrays:
    """Arrays of JAX, Numba and others, as those of CuPy or torch that share their memory. The stream of the lookup waits for
    the stream that makes them."""
    library: _Arrays
    if "cupy" in sys.modules or "torch" not in sys.modules:
        try:
            import cupy  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise UsageError("arrays of other libraries than torch need CuPy: pip install cupy-cuda13x") from None
        library = _CuPy(cupy, None)
        library.is_shared = True
        with library.on(number, stream):
            library.ids = cupy.from_dlpack(ids) if hasattr(ids, "__dlpack__") else cupy.asarray(ids)
        return library
    torch = sys.modules["torch"]
    library = _Torch(torch, None)
    library.is_shared = True
    with torch.cuda.device(number), library.on(number, stream):
        if hasattr(ids, "__dlpack__"):
            library.ids = torch.from_dlpack(ids)
        else:
            # torch does not wait for the stream that the interface names, as version 3 of it asks for.
            maker = ids.__cuda_array_interface__.get("stream")
            if maker is not None:
                legacy = torch.cuda.default_stream()
                made_on = legacy if maker == _LEGACY_STREAM else torch.cuda.ExternalStream(maker)
                torch.cuda.current_stream().wait_stream(made_on)
            library.ids = torch.as_tensor(ids, device="cuda")
    return library
