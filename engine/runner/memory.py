"""Memory of a model's weights and of its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..layers.attention import caches
from ..layers.linear import StepLinear

if TYPE_CHECKING:
    from .prepared import Prepared


def own_bytes(model: nn.Module, target: nn.Module) -> int:
    """Bytes of parameters, buffers and weights in another layout, without those shared with `target`."""
    theirs = _storages(target)
    return sum(size for where, size in _storages(model).items() if where not in theirs)


def sequence_bytes(prepared: Prepared, length: int, width: int) -> int:
    """Bytes of the cache of one sequence of `length` tokens whose widest step has `width` rows."""
    made = caches(prepared.shape, length, width + 1, prepared.dtype, torch.device("meta"))
    return sum(side.nbytes for layer in made for side in layer)


def token_bytes(prepared: Prepared) -> int:
    """Bytes of keys and values of one token, over all layers that keep them. Layers with a window are counted in full;
    the state of linear layers does not grow, and is not counted."""
    shape = prepared.shape
    num_layers = shape.num_layers - (len(shape.linear.layers) if shape.linear else 0)
    return 2 * num_layers * shape.num_kv_heads * shape.head_dim * prepared.dtype.itemsize


def _storages(model: nn.Module) -> dict[int, int]:
    """Address of each storage -> its bytes."""
    packed = [module.read() for module in model.modules() if isinstance(module, StepLinear)]
    return dict(map(_storage, (*model.parameters(), *model.buffers(), *packed)))


def _storage(tensor: Tensor) -> tuple[int, int]:
    if tensor.is_mkldnn:  # padded to whole blocks, and without a storage that can be asked
        return id(tensor), torch.ops.mkldnn._nbytes(tensor)
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()
