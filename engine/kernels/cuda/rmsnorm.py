"""Norms of rows in Triton: one program per row, so a row's bits are its own. Float32 inside, rounded once on output."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .runtime import rounded, stored

VALUES_A_WARP = 256  # eight per thread: one load of 16 bytes
MOST_WARPS = 16


@triton.jit
def _root_mean_square(x, eps, DIM: tl.constexpr):
    return x * tl.rsqrt(tl.sum(x * x, 0) / DIM + eps)


@triton.jit
def _normed(x, scale, out, eps, DIM: tl.constexpr, PADDED: tl.constexpr):
    place = tl.arange(0, PADDED)
    inside = place < DIM
    row = tl.program_id(0).to(tl.int64) * DIM
    factors = tl.load(scale + place, mask=inside, other=0.0)
    values = tl.load(x + row + place, mask=inside, other=0.0).to(tl.float32)
    normed = _root_mean_square(values, eps, DIM) * factors
    tl.store(out + row + place, stored(normed, out), mask=inside)


@triton.jit
def _add_normed(x, y, after, before, total, out, eps, DIM: tl.constexpr, PADDED: tl.constexpr):
    place = tl.arange(0, PADDED)
    inside = place < DIM
    row = tl.program_id(0).to(tl.int64) * DIM
    first = tl.load(after + place, mask=inside, other=0.0)
    second = tl.load(before + place, mask=inside, other=0.0)
    added = tl.load(y + row + place, mask=inside, other=0.0).to(tl.float32)
    values = tl.load(x + row + place, mask=inside, other=0.0).to(tl.float32)
    added = rounded(_root_mean_square(added, eps, DIM) * first, y)
    summed = stored(values + added, total)
    tl.store(total + row + place, summed, mask=inside)
    normed = _root_mean_square(summed.to(tl.float32), eps, DIM) * second
    tl.store(out + row + place, stored(normed, out), mask=inside)


def warps_of(padded: int) -> int:
    """For a program over a row of that many values, a power of two."""
    return min(MOST_WARPS, max(1, padded // VALUES_A_WARP))


def normed(x: Tensor, scale: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """x [m, d] of 16 bits, scale [d] float32, both contiguous -> [m, d]: x / sqrt(mean(x ** 2) + eps) * scale, in `out`
    if given. Any m."""
    rows, dim = x.shape
    _check(x, (scale,))
    out = torch.empty_like(x) if out is None else out
    assert out.shape == x.shape and out.dtype == x.dtype and out.is_contiguous()
    padded = triton.next_power_of_2(dim)
    _normed[(rows,)](x, scale, out, eps, DIM=dim, PADDED=padded, num_warps=warps_of(padded))
    return out


def add_normed(x: Tensor, y: Tensor, after: Tensor, before: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, y [m, d] of 16 bits, after, before [d] float32, all contiguous -> (s = x + normed(y, after), normed(s,
    before)), in one launch. Any m."""
    rows, dim = x.shape
    _check(x, (after, before))
    assert y.shape == x.shape and y.dtype == x.dtype and y.is_contiguous()
    total, out = torch.empty_like(x), torch.empty_like(x)
    padded = triton.next_power_of_2(dim)
    _add_normed[(rows,)](x, y, after, before, total, out, eps, DIM=dim, PADDED=padded, num_warps=warps_of(padded))
    return total, out


def _check(x: Tensor, scales: tuple[Tensor, ...]) -> None:
    assert x.is_contiguous()
    assert all(
        scale.shape == x.shape[1:] and scale.dtype == torch.float32 and scale.is_contiguous() for scale in scales
    )
