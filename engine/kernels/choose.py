"""Chooses a device's kernels: the one place that knows all of them."""

import torch

from .cpu.kernels import CpuKernels
from .cuda.kernels import CudaKernels
from .torch import Kernels


def choose(device: torch.device, dtype: torch.dtype | None = None) -> Kernels:
    """The fastest kernels that run on that device, for a model of that dtype (None: for what does not depend on a
    model)."""
    if device.type == "cuda":
        return CudaKernels(device, dtype)
    return CpuKernels(device) if device.type == "cpu" else Kernels(device)
