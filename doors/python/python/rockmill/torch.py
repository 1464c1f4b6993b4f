"""Views as modules of PyTorch."""

# Annotations are types here: torch makes the schema of the operator of them.
import itertools
import weakref
from typing import Any

import torch

from rockmill._errors import UsageError
from rockmill._view import View

_VIEWS: "weakref.WeakValueDictionary[int, View]" = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)

# A CUDA graph would look up in one version again and again, and check nothing. Torch before 2.9 has no such tag.
_TAGS: dict[str, Any] = {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}


@torch.library.custom_op("rockmill::lookup", mutates_args=("out", "status"), **_TAGS)
def lookup(view: int, ids: torch.Tensor, out: torch.Tensor, status: torch.Tensor) -> None:
    """Looks ids up in the view with a number; see :meth:`rockmill.View.lookup`."""
    found = _VIEWS.get(view)
    if found is None:
        raise UsageError("the view of the module is not there any more")
    if ids.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "an Embedding cannot be captured into a CUDA graph, which would never see a refresh: compile it in another mode "
            'than "reduce-overhead", or capture view.lookup'
        )
    found.check()
    if not ids.shape[0]:
        return
    # A value of another size is no vector of this dimension and type.
    found._lookup(ids, out, status, notes=True, is_exact=True)


@lookup.register_fake
def _(view: int, ids: torch.Tensor, out: torch.Tensor, status: torch.Tensor) -> None:
    """The shapes are those of the arguments."""


class Embedding(torch.nn.Module):
    """Rows of a view as vectors. It has no parameters, and passes no gradient.

    :param view: a view whose values are ``dim`` numbers of ``dtype``, little-endian, one behind another.
    :param dim: numbers of a vector.
    :param default: the vector of ids that are not found; zeros by default.

    A value of another size raises :class:`DataError`, on a GPU at the next call after the kernel.

    ``forward`` takes ids of shape ``[..]`` and returns vectors of shape ``[.., dim]`` on the same device. It works under
    ``torch.compile``, which leaves the lookup out of CUDA graphs; torch before 2.9 raises :class:`UsageError` in the mode
    ``reduce-overhead``. Other captures raise it as well. The module itself cannot be saved: a state dict of it is empty.
    """

    def __init__(
        self,
        view: View,
        dim: int,
        dtype: torch.dtype = torch.float32,
        *,
        default: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        if dim < 1:
            raise UsageError(f"dim= is {dim}; give the numbers of a vector")
        if default is not None and (default.dtype != dtype or tuple(default.shape) != (dim,)):
            raise UsageError(f"default= is {default.dtype} {tuple(default.shape)}; it needs shape [{dim}] of {dtype}")
        self.view = view
        self.dim = dim
        self.dtype = dtype
        device = torch.device(view.device)
        start = torch.zeros(dim, dtype=dtype) if default is None else default.detach()
        # No buffer: moving or casting the model changes nothing of what the values are.
        self._default = start.to(device).contiguous()
        self._register()

    def _register(self) -> None:
        self._number = next(_NUMBERS)
        _VIEWS[self._number] = self.view

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, perhaps in another process, looks up in its own view."""
        super().__setstate__(state)
        self._register()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Vectors of ids."""
        flat = ids.reshape(-1).contiguous()
        out = self._default.repeat(flat.shape[0], 1)
        status = torch.empty(flat.shape[0], dtype=torch.uint8, device=flat.device)
        torch.ops.rockmill.lookup(self._number, flat, out, status)
        return out.reshape(*ids.shape, self.dim)

    def extra_repr(self) -> str:
        """What a text of the module shows."""
        return f"{self.view!r}, dim={self.dim}, dtype={self.dtype}"


__all__ = ["Embedding", "lookup"]
