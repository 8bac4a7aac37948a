"""How much memory a model's weights take, and its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..model.linear import StepLinear

if TYPE_CHECKING:
    from ..target.prepared import Prepared


def held_bytes(model: nn.Module, beside: nn.Module) -> int:
    """Bytes of parameters, buffers and weights in another layout, as they lie in memory; none that `beside` holds
    too."""
    theirs = _storages(beside)
    return sum(size for where, size in _storages(model).items() if where not in theirs)


def token_bytes(prepared: Prepared) -> int:
    """Bytes of keys and values of one token, in every layer that keeps them. Layers with a window are counted in full;
    the state of linear layers does not grow, and is not counted."""
    shape = prepared.shape
    num_layers = shape.num_layers - (len(shape.linear.layers) if shape.linear else 0)
    return 2 * num_layers * shape.num_kv_heads * shape.head_dim * prepared.dtype.itemsize


def _storages(model: nn.Module) -> dict[int, int]:
    """Where each of them lies -> its bytes."""
    packed = [module.read() for module in model.modules() if isinstance(module, StepLinear)]
    return dict(map(_storage, (*model.parameters(), *model.buffers(), *packed)))


def _storage(tensor: Tensor) -> tuple[int, int]:
    if tensor.is_mkldnn:  # padded to whole blocks, and without a storage that can be asked
        return id(tensor), torch.ops.mkldnn._nbytes(tensor)
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()
