"""For gpu_variants.py: what stands between two linears of a layer, one launch each, where a library's kernels do the
linears."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.cuda.delta import silu
from engine.kernels.cuda.runtime import rounded, stored


@triton.jit
def _added_normed(x, y, scale, total, out, eps, DIM: tl.constexpr, PADDED: tl.constexpr):
    place = tl.arange(0, PADDED)
    inside = place < DIM
    row = tl.program_id(0).to(tl.int64) * DIM
    values = tl.load(x + row + place, mask=inside, other=0.0).to(tl.float32) + tl.load(
        y + row + place, mask=inside, other=0.0
    ).to(tl.float32)
    summed = rounded(values, total)
    tl.store(total + row + place, stored(summed, total), mask=inside)
    normed = summed * tl.rsqrt(tl.sum(summed * summed, 0) / DIM + eps) * tl.load(scale + place, mask=inside, other=0.0)
    tl.store(out + row + place, stored(normed, out), mask=inside)


@triton.jit
def _gated(gate_up, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < SIZE
    gate = tl.load(gate_up + row * (2 * SIZE) + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * (2 * SIZE) + SIZE + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + place, stored(rounded(silu(gate), out) * up, out), mask=inside)


def added_normed(x: Tensor, y: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, y [m, d] of 16 bits, scale [d] float32 -> x + y, and its norm times scale."""
    total, out, dim = torch.empty_like(x), torch.empty_like(x), x.shape[1]
    padded = triton.next_power_of_2(dim)
    _added_normed[(len(x),)](
        x, y, scale, total, out, eps, DIM=dim, PADDED=padded, num_warps=min(16, max(1, padded // 256))
    )
    return total, out


def gated(gate_up: Tensor) -> Tensor:
    """[m, 2 d], a gate and a value side by side -> silu(gate) * value [m, d]."""
    num, size = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty(num, size)
    _gated[(num, triton.cdiv(size, 1024))](gate_up, out, SIZE=size, BLOCK=1024, num_warps=4)
    return out
