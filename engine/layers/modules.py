"""Modules of a model and their replacements."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class StepLinear(nn.Module, ABC):
    """A drop-in for nn.Linear at inference, whose weights have another layout. bias: [out] or None, as nn.Linear has
    it. weight: [out, in] without values, for modules that convert their input to its dtype."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.weight = torch.empty_like(linear.weight, device="meta", requires_grad=False)

    @abstractmethod
    def read(self) -> Tensor:
        """How many numbers of its weights a step must read."""


def replace_modules(model: nn.Module, replaced: Callable[[Any], nn.Module | None]) -> None:
    """Replace every module below `model` for which `replaced` returns one, in place. Modules inside a replaced one are
    passed to `replaced` too, but stay where they were."""
    below = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    for parent, name, child in below:
        if (new := replaced(child)) is not None:
            setattr(parent, name, new)
