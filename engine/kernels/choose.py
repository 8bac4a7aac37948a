"""Which kernels a device gets. The one place that knows all of them."""

from __future__ import annotations

import torch

from . import Kernels
from .cpu.kernels import CpuKernels
from .cuda.kernels import CudaKernels
from .torch import TorchKernels


def choose(device: torch.device, dtype: torch.dtype | None = None) -> Kernels:
    """The fastest kernels that run on that device, for a model of that dtype (None: for what does not depend on a
    model)."""
    if device.type == "cuda" or CudaKernels.are_interpreted(device, dtype):
        return CudaKernels(device, dtype)
    return CpuKernels(device) if device.type == "cpu" else TorchKernels(device)
