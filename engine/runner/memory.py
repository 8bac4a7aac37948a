"""Memory of a model's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..layers.attention import caches

if TYPE_CHECKING:
    from .prepared import Prepared


def sequence_bytes(prepared: Prepared, length: int, width: int) -> int:
    """Bytes of the cache of one sequence of `length` tokens whose widest step has `width` rows."""
    made = caches(prepared.shape, length, width + 1, prepared.dtype, torch.device("meta"))
    return sum(side.nbytes for layer in made for side in layer)
