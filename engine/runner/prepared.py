"""A model prepared for fixed steps, which all lanes share, and what its caches take."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from ..kernels.torch import Kernels
from ..layers.attention import Shape, caches


@dataclass(frozen=True)
class Prepared:
    """A model prepared for fixed steps."""

    model: PreTrainedModel
    shape: Shape
    kernels: Kernels  # what its steps run on
    vocab_size: int
    dtype: torch.dtype
    device: torch.device


def sequence_bytes(prepared: Prepared, length: int, width: int) -> int:
    """Bytes of the cache of one sequence of `length` tokens whose widest step has `width` rows."""
    made = caches(prepared.shape, length, width + 1, prepared.dtype, torch.device("meta"))
    return sum(side.nbytes for layer in made for side in layer)
