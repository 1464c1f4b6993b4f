"""Views: column families in device memory or host memory, in which keys are looked up."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Union

from rockmill._errors import DataError, NotReadError, UsageError
from rockmill._rockmill import RawView
from rockmill._sizes import in_bytes

Keys = Union[str, tuple[bytes, str]]

_INTEGER = re.compile(r"([ui])(8|16|32|64)(be|le)")
_INTEGERS = {f"{sign}int{bits}": (bits // 8, not sign) for sign in ("", "u") for bits in (8, 16, 32, 64)}
_FOUND, _ASK, _TOO_SMALL = 1, 2, 3


@dataclasses.dataclass(frozen=True)
class _KeyForm:
    """How ids become keys."""

    width: int
    """Bytes of an id; 0 if keys are rows of bytes."""
    is_signed: bool
    is_big: bool
    prefix: bytes

    @classmethod
    def of(cls, keys: Keys) -> _KeyForm:
        prefix, form = keys if isinstance(keys, tuple) else (b"", keys)
        found = _INTEGER.fullmatch(form) if isinstance(form, str) else None
        if found and isinstance(prefix, bytes):
            return cls(int(found[2]) // 8, found[1] == "i", found[3] == "be", prefix)
        if form == "bytes" and not prefix:
            return cls(0, False, True, b"")
        raise UsageError(f'keys= is {keys!r}; give "u64be", "i64le", .., (b"prefix", "u64be"), or "bytes"')


@dataclasses.dataclass(frozen=True)
class Refreshed:
    """What a refresh has done."""

    sequence: int
    """The view has what was written up to this sequence number."""
    loaded: str
    """What was loaded."""
    keys: int
    """Keys that were loaded."""
    bytes: int
    """Memory of their records."""


class _Library:
    """Arrays of numpy, CuPy or torch."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self.module = module

    @classmethod
    def of(cls, array: Any) -> _Library:
        name = type(array).__module__.partition(".")[0]
        if name in ("torch", "cupy", "numpy"):
            return cls(name, sys.modules[name])
        if hasattr(array, "__cuda_array_interface__") or hasattr(array, "__dlpack__"):
            return cls("other", None)
        if isinstance(array, list | tuple | range):
            raise UsageError("ids are a Python sequence; make an array of them, such as numpy.asarray(ids)")
        raise UsageError(f"ids are a {type(array).__name__}; give an array of numpy, torch or CuPy, or one with DLPack")


@functools.lru_cache(maxsize=64)
def _name(dtype: Any) -> str:
    """Libraries take microseconds to write it."""
    return str(dtype).removeprefix("torch.")


def _dtype(array: Any) -> str:
    """A type such as ``int64``."""
    return _name(array.dtype)


def _address(array: Any) -> int:
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    if hasattr(array, "__cuda_array_interface__"):
        return int(array.__cuda_array_interface__["data"][0])
    return int(array.ctypes.data)


def _is_contiguous(array: Any) -> bool:
    if hasattr(array, "is_contiguous"):
        return bool(array.is_contiguous())
    return bool(array.flags.c_contiguous)


def _bytes_of(array: Any) -> int:
    """Bytes of an array's items."""
    size = array.itemsize if hasattr(array, "itemsize") else array.element_size()
    count = 1
    for length in array.shape:
        count *= int(length)
    return count * int(size)


class View:
    """A column family at one version, in the memory of a GPU or of the host. :func:`view` makes it.

    Lookups may be called from several threads. After a fork, or after unpickling, a view in host memory is loaded again at
    its first use, and then has the newest version; one in device memory raises :class:`UsageError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        family: str = "default",
        *,
        device: int | str = 0,
        keys: Keys = "u64be",
        value_bytes: int | None = None,
        memory: int | str | None = None,
        wal_dir: str | os.PathLike[str] | None = None,
        merge_operators: Sequence[str] = (),
    ) -> None:
        if isinstance(merge_operators, str):
            raise UsageError("merge_operators= is a text; give a list of texts")
        text = str(device).removeprefix("cuda:")
        if isinstance(device, bool) or not (text == "cpu" or text.isdecimal() and len(text) < 4):
            raise UsageError(f'device= is {device!r}; give the number of a GPU, or "cpu"')
        if value_bytes is not None and not 0 < value_bytes < 1 << 31:
            raise UsageError(f"value_bytes= is {value_bytes}; give the bytes of a row")
        self._form = _KeyForm.of(keys)
        self._number = None if text == "cpu" else int(text)
        self._value_bytes = value_bytes
        self._keys = keys
        self._arguments = (
            os.fspath(path),
            family,
            self._number,
            in_bytes("memory", memory),
            None if wal_dir is None else os.fspath(wal_dir),
            list(merge_operators),
            dataclasses.astuple(self._form),
        )
        self._is_closed = False
        self._open()
        # Behind what waits for the kernels when a view goes.
        self._queued: list[tuple[Callable[[], bool], Any]] = []
        self._queuing = threading.Lock()

    def _open(self) -> None:
        self._raw = RawView(*self._arguments)
        self._process = os.getpid()
        self._loaded_at = time.monotonic()
        if self._number is not None:
            self._refuse_partial()

    def _refuse_partial(self) -> None:
        _, _, unknown, ranges, _ = self._raw.contents()
        if unknown or ranges:
            raise NotReadError(
                f"{self._arguments[0]}: only RocksDB can answer for {unknown} keys and {ranges} ranges of keys of column "
                f'family {self._arguments[1]}, such as those with merge operands: use a view with device="cpu", which asks it'
            )

    def _opened(self) -> RawView:
        if self._is_closed:
            raise UsageError("the view is closed")
        if self._process != os.getpid() and self._number is None:
            self._open()
        elif self._process != os.getpid():
            # It raises, before anything asks the GPU.
            self._raw.contents()
        return self._raw

    @property
    def device(self) -> str:
        """``"cpu"``, or such as ``"cuda:0"``."""
        return "cpu" if self._number is None else f"cuda:{self._number}"

    @property
    def sequence(self) -> int:
        """The view has what was written up to this sequence number."""
        return int(self._opened().contents()[0])

    @property
    def age(self) -> float:
        """Seconds since the view was loaded or refreshed."""
        return time.monotonic() - self._loaded_at

    @property
    def memory_bytes(self) -> int:
        """Memory that the view takes."""
        return int(self._opened().contents()[4])

    def __len__(self) -> int:
        """Number of keys; without those for which RocksDB is asked."""
        return int(self._opened().contents()[1])

    def __repr__(self) -> str:
        if self._is_closed:
            return "<rockmill.View, closed>"
        return f"<rockmill.View of {self._arguments[1]!r} in {self._arguments[0]!r} on {self.device}: {len(self)} keys>"

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of keys of any length; ``None`` for keys that are not there. RocksDB is asked for what the view does not
        tell. It waits, and is meant for a few keys.

        :raises UsageError: if the keys are no list of ``bytes``.
        """
        if isinstance(keys, bytes | str) or not all(isinstance(key, bytes) for key in keys):
            raise UsageError("keys are a list of bytes")
        return self._opened().get(list(keys))

    def lookup(
        self,
        ids: Any,
        *,
        out: Any = None,
        status: Any = None,
        sizes: Any = None,
        default: Any = None,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """Looks up the values of many keys, each into a row of its own.

        In device memory it only queues kernels on a stream: torch's or CuPy's current one, or ``stream``. It waits for
        nothing. In host memory it is done when it returns.

        :param ids: shape ``[n]`` of integers for the forms of ``keys=`` that are integers; shape ``[n, key_bytes]`` of
            uint8 for ``keys="bytes"``. They lie on the view's device and are contiguous. Integers that the form does not
            have, such as negative ones for ``u64be``, are not found.
        :param out: shape ``[n, ..]``, contiguous, of any type: rows for the values. Bytes behind a value stay as they are.
            Without it, rows of ``value_bytes`` zeros are made, of uint8.
        :param status: shape ``[n]`` of uint8: 0 not found, 1 found, 2 RocksDB has to be asked, 3 the value is longer than a
            row. A caller who passes it looks for 2 and 3 itself; else they raise, in device memory at the next call
            of the view after the kernel.
        :param sizes: shape ``[n]`` of int32 or uint32 for the bytes of each value, also of one that is longer than a row; 0
            where none is found.
        :param default: a row for keys that are not found; else their rows stay as they are.
        :param stream: a stream of torch or CuPy, or its address.
        :returns: the rows, and shape ``[n]`` of bool: whether each key is found.
        :raises UsageError: for arrays of another type, shape, device or layout.
        :raises DataError: if a value is longer than a row.
        """
        if status is None:
            self.check()
        return self._lookup(ids, out, status, sizes, default, stream, notes=status is None)

    def _lookup(
        self,
        ids: Any,
        out: Any,
        status: Any,
        sizes: Any = None,
        default: Any = None,
        stream: Any = None,
        *,
        notes: bool,
        is_exact: bool = False,
    ) -> tuple[Any, Any]:
        """The same. Keys without an answer raise if ``notes``, and so do values of another size than a row if ``is_exact``."""
        raw = self._opened()
        library = self._library(ids, stream)
        ids = library.ids
        n = int(ids.shape[0]) if len(ids.shape) else -1
        has_rows = self._form.width == 0
        if len(ids.shape) != (2 if has_rows else 1):
            shape = "[n, key_bytes]" if has_rows else "[n]"
            raise UsageError(f"ids have shape {tuple(ids.shape)}; keys={self._keys!r} needs shape {shape}")
        self._require("ids", ids, library)
        dtype = _dtype(ids)
        if has_rows and dtype != "uint8":
            raise UsageError(f'ids are {dtype}; keys="bytes" needs uint8')
        if not has_rows and dtype not in _INTEGERS:
            raise UsageError(f"ids are {dtype}; keys={self._keys!r} needs integers")
        id_bytes, is_signed = (int(ids.shape[1]), False) if has_rows else _INTEGERS[dtype]
        with library.on(self._number, stream):
            is_made = out is None
            if is_made:
                if self._value_bytes is None:
                    raise UsageError("rows have no size: open the view with value_bytes=, or give out=")
                out, row_bytes = library.empty((n, self._value_bytes), "uint8"), self._value_bytes
            else:
                self._require("out", out, library, is_written=True)
                if len(out.shape) < 1 or int(out.shape[0]) != n:
                    raise UsageError(f"out= has {tuple(out.shape)[:1]} rows; it needs one for each of {n} ids")
                row_bytes = _bytes_of(out) // n if n else 0
            if default is not None:
                self._require("default", default, library)
                if _dtype(default) != _dtype(out):
                    raise UsageError(f"default= is {_dtype(default)}; rows are {_dtype(out)}")
                if n and _bytes_of(default) != row_bytes:
                    raise UsageError(f"default= has {_bytes_of(default)} bytes; a row has {row_bytes}")
            for what, array, types in [("status", status, ("uint8",)), ("sizes", sizes, ("int32", "uint32"))]:
                if array is None:
                    continue
                self._require(what, array, library, is_written=True)
                if _dtype(array) not in types or tuple(array.shape) != (n,):
                    needed = f"it needs shape [{n}] of {types[0]}"
                    raise UsageError(f"{what}= is {_dtype(array)} {tuple(array.shape)}; {needed}")
            found = library.empty((n,), "bool")
            if n == 0:
                return out, found
            if status is None and self._number is None:
                # It tells for which keys RocksDB is asked.
                status = library.empty((n,), "uint8")
            memory = {
                "ids": _address(ids),
                "id_bytes": id_bytes,
                "is_signed": is_signed,
                "len": n,
                "rows": _address(out),
                "row_bytes": row_bytes,
                "statuses": 0 if status is None else _address(status),
                "found": _address(found),
                "sizes": 0 if sizes is None else _address(sizes),
                "default": 0 if default is None else _address(default),
                "clears": is_made,
                "is_exact": is_exact,
                "notes": notes and self._number is not None,
            }
            worst = raw.lookup(memory, library.stream(stream))
            if library.is_shared:
                self._keep(library)
        if notes and worst > _FOUND:
            raise self._no_answer(worst)
        return out, found

    def _keep(self, library: Any) -> None:
        """Keeps ids until the lookup is done, and drops those of earlier calls that are. A graph has those of its caller."""
        is_done = library.mark()
        if is_done is None:
            return
        with self._queuing:
            self._queued = [queued for queued in self._queued if not queued[0]()]
            self._queued.append((is_done, library.ids))

    def _library(self, ids: Any, stream: Any) -> Any:
        library = _Library.of(ids)
        if self._number is None:
            if library.name == "torch":
                return _Torch(library.module, ids)
            if library.name != "numpy":
                raise UsageError("the view is in host memory: give ids as an array of numpy, or a tensor of torch there")
            return _Host(ids)
        if library.name == "numpy":
            raise UsageError(f"ids lie in host memory; the view is on {self.device}")
        if library.name == "torch":
            return _Torch(library.module, ids)
        if library.name == "cupy":
            return _CuPy(library.module, ids)
        return _any_on_device(ids, self._number, stream)

    def _require(self, what: str, array: Any, library: Any, *, is_written: bool = False) -> None:
        """Refuses what kernels cannot work with."""
        label = what if what == "ids" else f"{what}="
        if not library.is_one(array):
            raise UsageError(f"{label} is a {type(array).__name__}; give an array of {library.name}, as ids are")
        place = library.device_of(array)
        if place != self._number:
            place = "host memory" if place is None else f"cuda:{place}" if isinstance(place, int) else place
            raise UsageError(f"{label} lies on {place}; the view is on {self.device}")
        if not _is_contiguous(array):
            raise UsageError(f"{label} is not contiguous; make a copy that is")
        if getattr(array.dtype, "hasobject", False):
            raise UsageError(f"{label} has objects of Python; give an array of numbers")
        if is_written and not getattr(getattr(array, "flags", None), "writeable", True):
            raise UsageError(f"{label} is read-only; give an array that may be written to")

    def _no_answer(self, worst: int) -> Exception:
        if worst == _ASK:
            return NotReadError("only RocksDB can answer for a key that was looked up: pass status=, which tells which one")
        return DataError(
            "the value of a key has another size than a row: give rows that fit, or pass status=, which tells which one"
        )

    def check(self, *, wait: bool = False) -> None:
        """Raises if a lookup on a GPU has met a key without an answer, and had no ``status=``. The view remembers one such key
        for all streams, and not of which lookup it was.

        :param wait: waits for the lookups that are queued; without it, those that are not done may raise later.
        """
        if self._number is None:
            return
        worst = self._opened().take_unanswered(wait)
        if worst:
            raise self._no_answer(worst)

    def refresh(self) -> Refreshed:
        """Brings the view to what the database is now. Lookups meanwhile find the version before.

        :raises RefusedError: if there is too little memory; the view stays as it was.
        :raises NotReadError: on a GPU, if only RocksDB can answer for some keys now. The view has the new version, in which
            these have status 2.
        """
        raw = self._opened()
        refreshed = Refreshed(*raw.refresh())
        self._loaded_at = time.monotonic()
        if self._number is not None:
            self._refuse_partial()
        return refreshed

    def close(self) -> None:
        """Gives the memory back, once kernels that use it are done."""
        self._is_closed = True
        self._raw.close()
        # Without the lock, which a thread of the process before may hold in a forked child.
        self._queued = []

    def __enter__(self) -> View:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Closes the view. Without another exception, a key that had no answer raises."""
        try:
            if kind is None and not self._is_closed:
                self.check(wait=True)
        finally:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._number is not None:
            raise UsageError("a view in device memory cannot be pickled: open it in the other process")
        path, family, _, memory, wal_dir, operators, _ = self._arguments
        keywords = {
            "device": "cpu",
            "keys": self._keys,
            "value_bytes": self._value_bytes,
            "memory": memory,
            "wal_dir": wal_dir,
            "merge_operators": operators,
        }
        return _restored, (path, family, keywords)


def _restored(path: str, family: str, keywords: dict[str, Any]) -> View:
    return View(path, family, **keywords)


def view(
    path: str | os.PathLike[str],
    family: str = "default",
    *,
    device: int | str = 0,
    keys: Keys = "u64be",
    value_bytes: int | None = None,
    memory: int | str | None = None,
    wal_dir: str | os.PathLike[str] | None = None,
    merge_operators: Sequence[str] = (),
) -> View:
    """Loads a column family of the database in a folder into memory. Another process may have the database open.

    :param device: the number of a GPU, or ``"cpu"`` for host memory.
    :param keys: how ids become keys: ``"u64be"``, ``"i64le"``, ``"u32be"`` ..; with a prefix of at most 50 bytes
        ``(b"user:", "u64be")``; or ``"bytes"`` for keys as they are.
    :param value_bytes: bytes of the rows that lookups without ``out=`` make.
    :param memory: most device memory of the view, in bytes or as ``"40GiB"``; by default four fifths of what is free.
    :raises UsageError: if there is no such database or column family.
    :raises DataError: if its files are damaged.
    :raises NotReadError: on a GPU, if only RocksDB can answer for some keys.
    :raises RefusedError: if there is too little memory, or the device cannot be used.
    """
    return View(
        path,
        family,
        device=device,
        keys=keys,
        value_bytes=value_bytes,
        memory=memory,
        wal_dir=wal_dir,
        merge_operators=merge_operators,
    )


from rockmill._arrays import _any_on_device, _CuPy, _Host, _Torch  # noqa: E402
