"""What stands in the place of a linear whose weights lie in another layout."""

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
        """The numbers that a step must read of its weights."""
