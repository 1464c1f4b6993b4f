"""Views: column families in device memory or host memory, in which keys are looked up."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Union

from rockmill._errors import DataError, NotReadError, UsageError
from rockmill._rockmill import RawView
from rockmill._sizes import in_bytes

Keys = Union[str, tuple[bytes, str]]

_INTEGER = re.compile(r"([ui])(8|16|32|64)(be|le)")
_FOUND, _ASK, _TOO_SMALL = 1, 2, 3
_MAX_STREAMS = 64


@dataclasses.dataclass(frozen=True)
class _KeyForm:
    """How ids become keys."""

    prefix: bytes
    width: int
    """Bytes of an id; 0 if keys are rows of bytes."""
    is_signed: bool
    is_big: bool

    @classmethod
    def of(cls, keys: Keys) -> _KeyForm:
        prefix, form = keys if isinstance(keys, tuple) else (b"", keys)
        found = _INTEGER.fullmatch(form) if isinstance(form, str) else None
        if found and isinstance(prefix, bytes):
            return cls(prefix, int(found[2]) // 8, found[1] == "i", found[3] == "be")
        if form == "bytes" and not prefix:
            return cls(b"", 0, False, True)
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


def _dtype(array: Any) -> str:
    """A type such as ``int64``."""
    return str(array.dtype).removeprefix("torch.")


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
        )
        self._lock = threading.Lock()
        self._prefixes: dict[str, Any] = {}
        # By library and address of the stream.
        self._flags: dict[tuple[str, int], Any] = {}
        self._is_closed = False
        self._open()

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
            # The lock of the process that was forked may be held by a thread that is not here.
            self._lock = threading.Lock()
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
        raw = self._opened()
        if status is None:
            self.check()
        if self._number is None and _Library.of(ids).name == "torch":
            return self._lookup_cpu_tensors(ids, out, status, sizes, default)
        library = self._library(ids, stream)
        ids = library.ids
        n = int(ids.shape[0]) if len(ids.shape) else -1
        has_rows = self._form.width == 0
        if len(ids.shape) != (2 if has_rows else 1):
            shape = "[n, key_bytes]" if has_rows else "[n]"
            raise UsageError(f"ids have shape {tuple(ids.shape)}; keys={self._keys!r} needs shape {shape}")
        self._require("ids", ids, library)
        with library.on(self._number, stream):
            keys, key_bytes, valid = self._made_keys(ids, library)
            if out is None:
                if self._value_bytes is None:
                    raise UsageError("rows have no size: open the view with value_bytes=, or give out=")
                out = library.zeros((n, self._value_bytes))
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
            statuses = library.empty_bytes(n) if status is None else status
            for what, array, types in [("status", status, ("uint8",)), ("sizes", sizes, ("int32", "uint32"))]:
                if array is None:
                    continue
                self._require(what, array, library, is_written=True)
                if _dtype(array) not in types or tuple(array.shape) != (n,):
                    needed = f"it needs shape [{n}] of {types[0]}"
                    raise UsageError(f"{what}= is {_dtype(array)} {tuple(array.shape)}; {needed}")
            if n == 0:
                return out, statuses == _FOUND
            before = None
            if valid is not None:
                before = library.copied(out)
            memory = {
                "keys": _address(keys),
                "key_bytes": key_bytes,
                "len": n,
                "rows": _address(out),
                "row_bytes": row_bytes,
                "statuses": _address(statuses),
                "sizes": 0 if sizes is None else _address(sizes),
                "default": 0 if default is None else _address(default),
            }
            raw.lookup(memory, library.stream(stream))
            if valid is not None:
                # Other ids may have the same bytes as these, which the form does not have.
                library.undo(out, before, default, valid)
                statuses *= valid
                if sizes is not None:
                    library.undo_sizes(sizes, valid)
            found = statuses == _FOUND
            if status is None:
                self._note(statuses, library, stream)
            return out, found

    def _lookup_cpu_tensors(self, ids: Any, out: Any, status: Any, sizes: Any, default: Any) -> tuple[Any, Any]:
        """Tensors of torch in host memory share theirs with arrays of numpy."""
        torch = sys.modules["torch"]

        def shared(what: str, tensor: Any) -> Any:
            if tensor is None:
                return None
            if tensor.device.type != "cpu":
                raise UsageError(f"{what} lies on {tensor.device}; the view is in host memory")
            if not tensor.is_contiguous():
                raise UsageError(f"{what} is not contiguous; call .contiguous()")
            if tensor.numel() == 0:
                return tensor.detach().numpy()
            # numpy does not have all types of torch.
            whole = tensor.detach()
            if what in ("ids", "status=", "sizes="):
                return whole.numpy()
            rows = whole.reshape(whole.shape[0] if what == "out=" else 1, -1).view(torch.uint8).numpy()
            return rows if what == "out=" else rows[0]

        rows, found = self.lookup(
            shared("ids", ids),
            out=shared("out=", out),
            status=shared("status=", status),
            sizes=shared("sizes=", sizes),
            default=shared("default=", default),
        )
        return torch.from_numpy(rows) if out is None else out, torch.from_numpy(found)

    def _library(self, ids: Any, stream: Any) -> Any:
        library = _Library.of(ids)
        if self._number is None:
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
        number = library.device_of(array)
        if number != self._number:
            place = "host memory" if number is None else f"cuda:{number}"
            raise UsageError(f"{label} lies on {place}; the view is on {self.device}")
        if not _is_contiguous(array):
            raise UsageError(f"{label} is not contiguous; make a copy that is")
        if getattr(array.dtype, "hasobject", False):
            raise UsageError(f"{label} has objects of Python; give an array of numbers")
        if is_written and not getattr(getattr(array, "flags", None), "writeable", True):
            raise UsageError(f"{label} is read-only; give an array that may be written to")

    def _made_keys(self, ids: Any, library: Any) -> tuple[Any, int, Any]:
        """The bytes of keys, how many each has, and which ids the form has; ``None`` if all."""
        form = self._form
        if form.width == 0:
            if _dtype(ids) != "uint8":
                raise UsageError(f'ids are {_dtype(ids)}; keys="bytes" needs uint8')
            return ids, int(ids.shape[1]), None
        found = re.fullmatch(r"(u?)int(8|16|32|64)", _dtype(ids))
        if found is None:
            raise UsageError(f"ids are {_dtype(ids)}; keys={self._keys!r} needs integers")
        is_signed, width = found[1] == "", int(found[2]) // 8
        valid = library.within(ids, is_signed, width, form)
        made = library.keys(ids, form, width, is_signed)
        if form.prefix:
            prefix = self._prefixes.get(library.name)
            if prefix is None:
                prefix = self._prefixes[library.name] = library.prefix(form.prefix)
            made = library.prefixed(prefix, made)
        return made, len(form.prefix) + form.width, valid

    def _note(self, statuses: Any, library: Any, stream: Any) -> None:
        """Remembers whether a key has no answer. In host memory it raises at once."""
        if self._number is None:
            worst = int(statuses.max())
            if worst > _FOUND:
                raise self._no_answer(worst)
            return
        key = (library.name, library.stream(stream))
        with self._lock:
            if len(self._flags) >= _MAX_STREAMS:
                self._flags = {key: flag for key, flag in self._flags.items() if not flag.is_read}
            self._flags[key] = library.noted(self._flags.get(key), statuses)

    def _note_tensor(self, statuses: Any) -> None:
        """The same for an operator of torch."""
        if self._number is None:
            self._note(statuses.numpy(), None, None)
            return
        library = _Torch(sys.modules["torch"], statuses)
        with library.on(self._number, None):
            self._note(statuses, library, None)

    def _no_answer(self, worst: int) -> Exception:
        if worst == _ASK:
            return NotReadError("only RocksDB can answer for a key that was looked up: pass status=, which tells which one")
        return DataError(
            "the value of a key has another size than a row: give rows that fit, or pass status=, which tells which one"
        )

    def check(self, *, wait: bool = False) -> None:
        """Raises if a lookup on a GPU that is done has met a key without an answer, and had no ``status=``.

        :param wait: waits for the lookups that are queued.
        """
        if not self._flags:
            return
        with self._lock:
            found = {key: flag.worst(wait=wait) for key, flag in self._flags.items()}
            self._flags = {key: flag for key, flag in self._flags.items() if found[key] <= _FOUND}
        worst = max(found.values(), default=0)
        if worst > _FOUND:
            raise self._no_answer(worst)

    def refresh(self) -> Refreshed:
        """Brings the view to what the database is now. Lookups meanwhile find the version before.

        :raises RefusedError: if there is too little memory; the view stays as it was.
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

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._number is not None:
            raise UsageError("a view in device memory cannot be pickled: open it in the other process")
        path, family, _, memory, wal_dir, operators = self._arguments
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
    :param keys: how ids become keys: ``"u64be"``, ``"i64le"``, ``"u32be"`` ..; with a prefix ``(b"user:", "u64be")``; or
        ``"bytes"`` for keys as they are.
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
