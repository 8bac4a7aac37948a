"""A tensor's bits."""

from __future__ import annotations

import torch


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32)
