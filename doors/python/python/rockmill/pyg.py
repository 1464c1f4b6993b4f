"""Views as a store of features for PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch_geometric.data import FeatureStore as _FeatureStore  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch_geometric.data.feature_store import TensorAttr  # type: ignore[import-not-found, import-untyped, unused-ignore]

from rockmill._errors import UsageError
from rockmill.torch import Embedding


class FeatureStore(_FeatureStore):  # type: ignore[misc]
    """Features of nodes by their numbers, for loaders such as ``NeighborLoader((store, graph), ..)``.

    :param embeddings: a :class:`rockmill.torch.Embedding` for each type of nodes, whose keys are the numbers of nodes.
    :param sizes: how many nodes of each type there are; by default the keys of its view.
    :param attr: name of the features.
    """

    def __init__(self, embeddings: Mapping[Any, Embedding], *, sizes: Mapping[Any, int] | None = None, attr: str = "x") -> None:
        super().__init__()
        self._embeddings = dict(embeddings)
        self._attr = attr
        # PyG's base class takes attributes by another name.
        self._rows = {group: len(embedding.view) for group, embedding in self._embeddings.items()} | dict(sizes or {})

    def _embedding(self, attr: TensorAttr) -> Embedding | None:
        return self._embeddings.get(attr.group_name) if attr.attr_name == self._attr else None

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise UsageError("views are only read: write to the database, and call refresh")

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise UsageError("views are only read: delete in the database, and call refresh")

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor | None:
        embedding = self._embedding(attr)
        if embedding is None:
            return None
        rows = self._rows[attr.group_name]
        device = torch.device(embedding.view.device)
        if attr.index is None:
            ids = torch.arange(rows, device=device)
        elif isinstance(attr.index, slice):
            ids = torch.arange(*attr.index.indices(rows), device=device)
        else:
            ids = torch.as_tensor(attr.index, device=device)
            if ids.dtype == torch.bool:
                ids = ids.nonzero().reshape(-1)
        vectors: torch.Tensor = embedding(ids)
        return vectors

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        embedding = self._embedding(attr)
        return None if embedding is None else (self._rows[attr.group_name], embedding.dim)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The features of all types of nodes."""
        return [TensorAttr(group, self._attr) for group in self._embeddings]


__all__ = ["FeatureStore"]
