"""A model made ready for fixed steps: what every lane shares."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from ..kernels import Kernels
from ..model.attention import Shape


@dataclass(frozen=True)
class Prepared:
    """A model made ready for fixed steps, once; its weights are shared by every lane."""

    model: PreTrainedModel
    shape: Shape
    kernels: Kernels
    """What its steps run on."""
    vocab_size: int
    dtype: torch.dtype
    device: torch.device
    int8: bool = False
    """Whether the weights of its linears have 8 bits; `dtype` is that of everything else."""
