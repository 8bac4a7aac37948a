"""Triton linears for few rows, in Triton's interpreter: the right numbers, and tiles that fit and are fast."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.exactness.operators import same_bits
from engine.kernels.cuda.linear import Added, GpuLinear, reason_against
from engine.kernels.cuda.runtime import MOST_ROWS
from tests.helpers.gpu_kernels import LINEARS, gpu_linear
from tests.helpers.native_kernels import random

EPS = 1e-6
# A whole last bit: the interpreter cuts to bfloat16 where a GPU rounds.
ROUNDING = {torch.bfloat16: 1.01 * 2.0**-7, torch.float16: 1.01 * 2.0**-10}
each_shape = pytest.mark.parametrize("shape", LINEARS, ids=str)


def exact(linear: GpuLinear, x: Tensor) -> Tensor:
    """In float64, never rounded."""
    products = F.linear(x.double(), linear.weight.double(), None if linear.bias is None else linear.bias.double())
    if linear.act is None:
        return products
    gate, up = products.chunk(2, -1)
    return (F.silu(gate) if linear.act == "silu" else F.gelu(gate, approximate="tanh")) * up


def assert_near(outputs: Tensor, expected: Tensor, roundings: int = 1) -> None:
    error = (outputs.double() - expected).abs()
    assert (error <= roundings * ROUNDING[outputs.dtype] * expected.abs() + 2e-6).all(), error.max()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@each_shape
def test_right_numbers(shape: tuple, dtype: torch.dtype) -> None:
    """A lost block of inputs or outputs, a bias added twice or not at all, gates taken for values."""
    linear = gpu_linear(shape, dtype)
    x = random(2, 3, shape[1], dtype=dtype)
    outputs = linear(x)
    assert outputs.shape == (2, 3, shape[0]) and outputs.dtype == dtype
    assert_near(outputs, exact(linear, x))


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("shape", [shape for shape in LINEARS if shape[2] is None], ids=str)
def test_added_and_normed(shape: tuple, dtype: torch.dtype) -> None:
    """A residual that is added before it may be, a norm over other rows than those that went on, or a factor that
    misses a part or the bias's turn."""
    linear = gpu_linear(shape, dtype)
    n, k = shape[:2]
    x, residual, scale = (
        random(5, k, dtype=dtype),
        random(5, n, dtype=dtype, seed=1),
        1 + 0.1 * random(n, seed=2).float(),
    )
    added = linear.add_to(x, residual, scale)
    if dtype is torch.float16:  # which the interpreter rounds as a GPU does
        assert same_bits(added.rows, linear(x) + residual) and same_bits(
            added.scaled, (added.rows.float() * scale).to(dtype)
        )
    step = ROUNDING[dtype] * exact(linear, x).abs()  # of the product, which is rounded before it is added
    expected = exact(linear, x) + residual.double()
    assert ((added.rows.double() - expected).abs() <= step + ROUNDING[dtype] * expected.abs() + 2e-6).all()
    assert_near(added.scaled, added.rows.double() * scale)
    sums = added.rows.double().square().sum(-1)
    torch.testing.assert_close(added.squares[:5].double().sum(-1), sums, rtol=1e-5, atol=0)


@each_shape
def test_normed_is_the_linear_of_normed_rows(shape: tuple) -> None:
    """A mean over the wrong number of inputs, the factor after the bias or the activation, or parts beyond those there
    are."""
    linear = gpu_linear(shape, torch.float16)
    k = shape[1]
    rows, scale = 3 * random(6, k, dtype=torch.float16), 1 + 0.1 * random(k, seed=2).float()
    squares = torch.full((MOST_ROWS, 3), torch.nan)
    squares[:6] = torch.stack([part.float().square().sum(-1) for part in rows.split(-(-k // 3), -1)], -1)
    scaled = (rows.float() * scale).to(rows)
    factor = (rows.double().square().mean(-1, keepdim=True) + EPS).rsqrt()
    assert_near(linear.normed(Added(rows, scaled, squares), EPS), exact(linear, scaled.double() * factor), 2)


def test_prefill_is_torchs() -> None:
    """More rows than a tile would be lost."""
    for shape in (LINEARS[1], LINEARS[5]):
        linear = gpu_linear(shape)
        assert_near(linear(random(MOST_ROWS + 1, shape[1])), exact(linear, random(MOST_ROWS + 1, shape[1])), 4)


@pytest.mark.parametrize("linear", [nn.Linear(64, 32), nn.Linear(56, 32).bfloat16()], ids=str)
def test_refuses_what_it_cannot_do(linear: nn.Linear) -> None:
    """float32 would be cut to TF32, and rows of other lengths are not aligned."""
    assert str(reason_against(linear)).startswith("a linear of 32 x ")
