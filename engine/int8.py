"""CPU only: weights of 8 bits. Where kernels of our own run, every linear has them (`native/bytes.py`); what follows is for where they do not: large linears with
weights of 8 bits, multiplied by rows of 8 bits and summed as integers.

A sum of integers is the same in any order, so what such a linear gives for a row cannot depend on the row's place, on its neighbours or on how many
they are. Every row is rounded by a scale of its own, for the same reason. Only large linears gain: a small one is in the caches at any size, and
rounding its rows costs more than it saves (measured, docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from .errors import UnsupportedModel, UsageError
from .native.build import has

NAME = "int8"
"""As a choice of dtype: these weights where they pay, everything else in `compute_dtype`."""
LEAST_WEIGHTS = 2**22
"""A linear of fewer weights stays as it is. Time against packed bfloat16, weights not in the caches: 1.1 at 1.0 million, 0.85 at 2.6, 0.7 from 4.2 on."""
MOST_INPUTS = 2**16
"""A sum of so many products of 8 bits still fits 32."""
LIMIT = 0.3
"""By how much logits may move on average, as a share of their spread. Measured with the default model: 0.024 with all linears in kernels of our own; here 0.02 with its head
in int8, 0.06 with its MLPs too, 0.13 with all linears; logits that have nothing to do with the model's differ by 1.1."""
STEPS, ZERO, TINY = 127, 128, 1e-12
BLOCK_ROWS = 4096


class Int8Linear(nn.Module):
    """In the place of an nn.Linear at inference. Weights: one scale for each output, 255 steps about zero; rows: the same, rounded in each call."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        weight = linear.weight.detach()
        rounded, size = torch.empty_like(weight, dtype=torch.int8), torch.empty(len(weight))
        for start in range(0, len(weight), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            values = weight[block].float()
            size[block] = values.abs().amax(1).clamp_min_(TINY)
            rounded[block] = (values * (STEPS / size[block, None])).round_()
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.scale = size / STEPS**2  # of a weight's step times that of a row whose largest value is 1
        self.zero = torch.zeros(1, dtype=torch.long)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out], in x's dtype."""
        values = x.float().flatten(0, -2)
        size = values.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        rounded = (values * (STEPS / size)).add_(ZERO + 0.5).to(torch.uint8)  # cut off, so half a step more: the nearest
        out = torch.ops.onednn.qlinear_pointwise(rounded, 1.0, ZERO, self.packed, self.scale, self.zero, None, 1.0, 0, torch.float32, "none", [], "").mul_(size)
        if self.bias is not None:
            out += self.bias
        return out.to(x.dtype).view(*x.shape[:-1], self.out_features)


def sums_exactly() -> bool:
    """Whether this CPU build of torch multiplies bytes and sums all of it. Without the instructions for it (AVX512_VNNI and later) pairs of products are
    cut off at 16 bits."""
    try:
        weight = torch.full((64, 128), STEPS, dtype=torch.int8)
        packed, ones, zero = torch.ops.onednn.qlinear_prepack(weight, None), torch.ones(64), torch.zeros(1, dtype=torch.long)
        rows = torch.tensor([[255], [0]], dtype=torch.uint8).repeat(4, 128)
        out = torch.ops.onednn.qlinear_pointwise(rows, 1.0, ZERO, packed, ones, zero, None, 1.0, 0, torch.float32, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(out, ((rows.long() - ZERO) @ weight.t().long()).float())


def by_kernels() -> bool:
    """Whether kernels of our own multiply by weights of 8 bits here."""
    return has("photofinish_pack_bytes")


def check(device: torch.device, others: Iterable[str]) -> None:
    """Raises UsageError, naming the `others` dtypes, where int8 is not to be had."""
    if device.type != "cpu":
        raise UsageError(f"dtype 'int8' is for the CPU, not for {str(device)!r}; choose device cpu, or one of: {', '.join(others)}")
    if not by_kernels() and not sums_exactly():
        raise UsageError(
            f"dtype 'int8' needs a CPU that sums products of bytes exactly (x86 with AVX512_VNNI, or with AVX-512 and a C compiler), which this one does not; choose one of: {', '.join(others)}"
        )


def compute_dtype() -> str:
    """The dtype of everything that is not int8: bfloat16 where the CPU multiplies it, else float32."""
    return "bfloat16" if by_kernels() or torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"


def round_weights(module: nn.Module, least: int = LEAST_WEIGHTS) -> int:
    """Put an Int8Linear in the place of every nn.Linear of at least so many weights below `module`; returns how many. A tied embedding stays as it is.
    Raises UnsupportedModel where there is none: it would be int8 by name only."""
    num_rounded = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.in_features * child.out_features >= least and child.in_features <= MOST_INPUTS:
                setattr(parent, name, Int8Linear(child))
                num_rounded += 1
    if num_rounded == 0:
        raise UnsupportedModel(f"{type(module).__name__} has no linear layer of {least} weights or more, so int8 gains nothing; choose another dtype")
    return num_rounded
