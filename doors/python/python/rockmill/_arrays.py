"""Arrays of numpy, torch and CuPy, as lookups need them."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from rockmill._errors import UsageError


class _Arrays:
    """What the libraries have in common: their arrays know arithmetic and comparisons."""

    name = ""

    def __init__(self, module: Any, ids: Any) -> None:
        self.module = module
        self.ids = ids

    def _dtype(self, name: str) -> Any:
        return getattr(self.module, name)

    def on(self, number: int | None, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Where arrays are made."""
        return contextlib.nullcontext()

    def stream(self, stream: Any) -> int:
        """Address of a stream."""
        return 0

    def within(self, ids: Any, is_signed: bool, width: int, form: Any) -> Any:
        """Which ids the form has; ``None`` if it has all that their type has."""
        least, most = _range(form.is_signed, form.width)
        lowest, highest = _range(is_signed, width)
        valid = None
        if lowest < least:
            valid = ids >= least
        if highest > most:
            below = self._at_most(ids, most)
            valid = below if valid is None else valid & below
        return valid

    def _at_most(self, ids: Any, most: int) -> Any:
        return ids <= most

    def copied(self, array: Any) -> Any:
        return array.copy()

    def undo(self, out: Any, before: Any, default: Any, valid: Any) -> None:
        """Rows of ids that the form does not have are as if nothing had been found."""
        raise NotImplementedError

    def undo_sizes(self, sizes: Any, valid: Any) -> None:
        """The same for the bytes of their values."""
        sizes *= valid


def _range(is_signed: bool, width: int) -> tuple[int, int]:
    bits = 8 * width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


class _Host(_Arrays):
    """Arrays of numpy."""

    name = "numpy"

    def __init__(self, ids: Any) -> None:
        super().__init__(sys.modules["numpy"], ids)

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.module.ndarray)

    def device_of(self, array: Any) -> int | None:
        return None

    def zeros(self, shape: tuple[int, int]) -> Any:
        return self.module.zeros(shape, self.module.uint8)

    def empty_bytes(self, n: int) -> Any:
        return self.module.empty(n, self.module.uint8)

    def keys(self, ids: Any, form: Any, width: int, is_signed: bool) -> Any:
        order, kind = (">" if form.is_big else "<"), ("i" if form.is_signed else "u")
        made = ids.astype(self.module.dtype(f"{order}{kind}{form.width}"), casting="unsafe")
        return made.view(self.module.uint8).reshape(len(ids), form.width)

    def prefix(self, prefix: bytes) -> Any:
        return self.module.frombuffer(prefix, self.module.uint8)

    def prefixed(self, prefix: Any, keys: Any) -> Any:
        shape = (keys.shape[0], len(prefix))
        joined = self.module.concatenate([self.module.broadcast_to(prefix, shape), keys], axis=1)
        # Its order is that of its parts, which are not always in rows.
        return self.module.ascontiguousarray(joined)

    def undo(self, out: Any, before: Any, default: Any, valid: Any) -> None:
        out[~valid] = before[~valid] if default is None else default.reshape(out.shape[1:])


class _CuPy(_Host):
    """Arrays of CuPy."""

    name = "cupy"

    def __init__(self, module: Any, ids: Any) -> None:
        _Arrays.__init__(self, module, ids)

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

    def keys(self, ids: Any, form: Any, width: int, is_signed: bool) -> Any:
        made = ids.astype(f"{'i' if form.is_signed else 'u'}{form.width}")
        made = made.view(self.module.uint8).reshape(len(ids), form.width)
        return self.module.ascontiguousarray(made[:, ::-1]) if form.is_big else made

    def prefix(self, prefix: bytes) -> Any:
        made = self.module.asarray(list(prefix), self.module.uint8)
        # Lookups on other streams use it too.
        self.module.cuda.get_current_stream().synchronize()
        return made

    def undo(self, out: Any, before: Any, default: Any, valid: Any) -> None:
        kept = before if default is None else default.reshape(out.shape[1:])
        self.module.copyto(out, kept, where=(~valid).reshape(-1, *[1] * (out.ndim - 1)))

    def noted(self, flag: Any, statuses: Any) -> Any:
        flag = flag or _Flag(self.module.zeros(1, self.module.uint8), lambda worst: int(worst[0]), self.module.cuda.Event)
        self.module.maximum(flag.worst_status, statuses.max(), out=flag.worst_status)
        flag.queued()
        return flag


class _Torch(_Arrays):
    """Tensors of torch on a GPU."""

    name = "torch"

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.module.Tensor)

    def device_of(self, array: Any) -> int | None:
        return int(array.device.index or 0) if array.device.type == "cuda" else None

    def on(self, number: int | None, stream: Any) -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        stack.enter_context(self.module.cuda.device(number))
        stack.enter_context(self.module.no_grad())
        if stream is not None:
            made = stream
            if not isinstance(stream, self.module.cuda.Stream):
                made = self.module.cuda.ExternalStream(_stream(stream))
            stack.enter_context(self.module.cuda.stream(made))
        return stack

    def stream(self, stream: Any) -> int:
        return _stream(self.module.cuda.current_stream(self.ids.device) if stream is None else stream)

    def zeros(self, shape: tuple[int, int]) -> Any:
        return self.module.zeros(shape, dtype=self.module.uint8, device=self.ids.device)

    def empty_bytes(self, n: int) -> Any:
        return self.module.empty(n, dtype=self.module.uint8, device=self.ids.device)

    def _at_most(self, ids: Any, most: int) -> Any:
        if str(ids.dtype).startswith("torch.uint"):
            # torch compares few unsigned types. The highest bits tell the same.
            signed = ids.view(self._dtype(str(ids.dtype).removeprefix("torch.u")))
            return (signed >= 0) & (signed <= min(most, (1 << 8 * ids.element_size() - 1) - 1))
        return ids <= most

    def keys(self, ids: Any, form: Any, width: int, is_signed: bool) -> Any:
        torch = self.module
        if form.width != width:
            # Of the same bits, whether signed or not.
            ids = ids.to(torch.uint8 if form.width == 1 else self._dtype(f"int{8 * form.width}"))
        made = ids.view(torch.uint8).reshape(ids.shape[0], form.width)
        return made.flip(1) if form.is_big and form.width > 1 else made

    def prefix(self, prefix: bytes) -> Any:
        return self.module.tensor(list(prefix), dtype=self.module.uint8, device=self.ids.device)

    def prefixed(self, prefix: Any, keys: Any) -> Any:
        return self.module.cat([prefix.expand(keys.shape[0], -1), keys], dim=1).contiguous()

    def copied(self, array: Any) -> Any:
        return array.clone()

    def undo(self, out: Any, before: Any, default: Any, valid: Any) -> None:
        kept = before if default is None else default.reshape(out.shape[1:])
        mask = valid.reshape(-1, *[1] * (out.dim() - 1))
        out.copy_(self.module.where(mask, out, kept))

    def undo_sizes(self, sizes: Any, valid: Any) -> None:
        # torch multiplies few unsigned types.
        sizes.view(self.module.int32).mul_(valid)

    def noted(self, flag: Any, statuses: Any) -> Any:
        torch = self.module
        if flag is None:
            worst = torch.zeros(1, dtype=torch.uint8, device=statuses.device)
            flag = _Flag(worst, lambda worst: int(worst.item()), torch.cuda.Event)
        torch.maximum(flag.worst_status, statuses.amax(), out=flag.worst_status)
        flag.queued()
        return flag


class _Flag:
    """The worst status of the lookups on one stream, in device memory."""

    def __init__(self, worst_status: Any, read: Any, new_event: Any) -> None:
        self.worst_status = worst_status
        self._read = read
        self._new_event = new_event
        # Events behind the first lookup whose status is not read, and behind the last one.
        self._first: Any = None
        self._last: Any = None

    def queued(self) -> None:
        """A lookup is queued on the current stream."""
        if self._last is None or self._last is self._first:
            self._last = self._new_event()
        self._last.record()
        self._first = self._first or self._last

    @property
    def is_read(self) -> bool:
        """Whether the status of each lookup is known."""
        return self._first is None

    def worst(self, *, wait: bool) -> int:
        """The worst status of the lookups that are done. It waits for the others if asked to."""
        if self._first is None:
            return 0
        if wait:
            self._last.synchronize()
        elif not (self._first.query() if hasattr(self._first, "query") else self._first.done):
            return 0
        self._first = None if wait or self._last is self._first else self._last
        return int(self._read(self.worst_status))


def _stream(stream: Any) -> int:
    """The address of a stream of torch or CuPy, or of a number."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    for name in ("cuda_stream", "ptr"):
        if isinstance(getattr(stream, name, None), int):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise UsageError(f"stream= is a {type(stream).__name__}; give a stream of torch or CuPy, or its address")


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
        with library.on(number, stream):
            library.ids = cupy.from_dlpack(ids) if hasattr(ids, "__dlpack__") else cupy.asarray(ids)
        return library
    torch = sys.modules["torch"]
    library = _Torch(torch, None)
    with library.on(number, stream):
        library.ids = torch.from_dlpack(ids) if hasattr(ids, "__dlpack__") else torch.as_tensor(ids, device="cuda")
    return library
