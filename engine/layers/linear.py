"""The replacement of a linear whose weights have another layout."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class StepLinear(nn.Module, ABC):
    """A drop-in for nn.Linear at inference. `bias` [out] or None, as nn.Linear has it."""

    in_features: int
    out_features: int
    bias: Tensor | None

    @abstractmethod
    def read(self) -> Tensor:
        """How many numbers of its weights a step must read."""
