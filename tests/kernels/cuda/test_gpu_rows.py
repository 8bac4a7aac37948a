"""Triton's norms of rows, interpreted: what torch gives but for rounding, and a row's bits its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels.cuda.rmsnorm import add_normed, normed
from tests.helpers import gpu_kernels  # noqa: F401

EPS = 1e-6
DTYPES = (torch.bfloat16, torch.float16)
DIMS = (64, 640, 1000)


def random(*size: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact(x: Tensor, scale: Tensor) -> Tensor:
    return torch.rms_norm(x.double(), x.shape[-1:], None, EPS) * scale.double()


def close(found: Tensor, expected: Tensor) -> None:
    """One rounding of the dtype apart at most."""
    assert bool(
        ((found.double() - expected).abs() <= 1.01 * torch.finfo(found.dtype).eps * expected.abs() + 1e-6).all()
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_both_are_what_torch_gives(dim, dtype):
    """A norm over the row alone, be its length a power of two or not; the sum rounded before it is normed again."""
    x, y = (random(3, dim, seed=i, dtype=dtype) for i in (1, 2))
    after, before = (1 + random(dim, seed=i) / 4 for i in (3, 4))
    close(normed(x, before, EPS), exact(x, before))
    total, out = add_normed(x, y, after, before, EPS)
    added = normed(y, after, EPS)
    assert torch.equal(total, x + added)
    assert torch.equal(out, normed(total, before, EPS))


def test_a_rows_bits_are_its_own():
    """The number of rows, the place and the neighbours change nothing, be they NaN."""
    x, y = (random(16, 640, seed=i, dtype=torch.bfloat16) for i in (1, 2))
    after, before = (random(640, seed=i) for i in (3, 4))
    alone = normed(x, before, EPS), *add_normed(x, y, after, before, EPS)
    for num, first in ((1, 5), (2, 15), (5, 3), (16, 9)):
        rows = torch.arange(first, first + num) % 16
        some, others = x[rows], y[rows]
        if num > 2:
            some[0] = others[1] = torch.nan
        found = normed(some, before, EPS), *add_normed(some, others, after, before, EPS)
        untouched = slice(2 if num > 2 else 0, None)
        assert all(
            torch.equal(mine[untouched], every[rows][untouched]) for mine, every in zip(found, alone, strict=True)
        )


def test_nan_and_zeros():
    """A row of zeros stays one; NaN stays NaN."""
    x = torch.zeros(2, 64, dtype=torch.bfloat16)
    x[1, 3] = torch.nan
    out = normed(x, torch.ones(64), EPS)
    assert torch.equal(out[0], x[0]) and bool(out[1].isnan().all())
