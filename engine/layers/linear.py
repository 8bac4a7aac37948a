"""The replacement of a linear whose weights have another layout."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class StepLinear(nn.Module, ABC):
    """A drop-in for nn.Linear at inference. bias: [out] or None, as nn.Linear has it. weight: [out, in] without values,
    for modules that convert their input to its dtype."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.weight = torch.empty_like(linear.weight, device="meta", requires_grad=False)

    @abstractmethod
    def read(self) -> Tensor:
        """How many numbers of its weights a step must read."""
