"""A model prepared for fixed steps: what all lanes share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from ..kernels.torch import Kernels
from ..layers.attention import Shape


@dataclass(frozen=True)
class Prepared:
    """A model prepared for fixed steps."""

    model: PreTrainedModel
    shape: Shape
    kernels: Kernels  # what its steps run on
    vocab_size: int
    dtype: torch.dtype
    device: torch.device
