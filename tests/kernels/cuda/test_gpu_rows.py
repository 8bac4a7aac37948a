"""Triton's kernels of rows, in Triton's interpreter: linears for few rows, norms, the choice of tokens."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.core.sampling.noise import gumbel_rows, keys_of
from engine.exactness.operators import same_bits
from engine.kernels.cuda import sample
from engine.kernels.cuda.linear import Added, GpuLinear, reason_against
from engine.kernels.cuda.rmsnorm import add_normed, normed
from engine.kernels.cuda.runtime import MOST_ROWS
from engine.kernels.cuda.sample import pick_rows
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
    """A residual added too early, a norm over other rows, or a factor that misses a part or the bias's turn."""
    linear = gpu_linear(shape, dtype)
    n, k = shape[:2]
    x, residual = random(5, k, dtype=dtype), random(5, n, dtype=dtype, seed=1)
    scale = 1 + 0.1 * random(n, seed=2).float()
    added = linear.add_to(x, residual, scale)
    if dtype is torch.float16:  # which the interpreter rounds as a GPU does
        assert same_bits(added.rows, linear(x) + residual)
        assert same_bits(added.scaled, (added.rows.float() * scale).to(dtype))
    step = ROUNDING[dtype] * exact(linear, x).abs()  # of the product, which is rounded before it is added
    expected = exact(linear, x) + residual.double()
    assert ((added.rows.double() - expected).abs() <= step + ROUNDING[dtype] * expected.abs() + 2e-6).all()
    assert_near(added.scaled, added.rows.double() * scale)
    sums = added.rows.double().square().sum(-1)
    torch.testing.assert_close(added.squares[:5].double().sum(-1), sums, rtol=1e-5, atol=0)


@each_shape
def test_normed_is_the_linear_of_normed_rows(shape: tuple) -> None:
    """A mean over the wrong number, the factor after the bias or the activation, or parts beyond those there are."""
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


# Norms


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("dim", [64, 640, 1000])
def test_both_are_what_torch_gives(dim, dtype):
    """A norm over the row alone, be its length a power of two or not; the sum rounded before it is normed again."""
    x, y = (random(3, dim, seed=i, dtype=dtype) for i in (1, 2))
    after, before = (1 + random(dim, seed=i, dtype=torch.float32) / 4 for i in (3, 4))
    assert_near(normed(x, before, EPS), torch.rms_norm(x.double(), (dim,), None, EPS) * before.double())
    total, out = add_normed(x, y, after, before, EPS)
    added = normed(y, after, EPS)
    assert torch.equal(total, x + added)
    assert torch.equal(out, normed(total, before, EPS))


# The choice of a token

NUM_ROWS = 7


def scores_of(rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float) -> Tensor:
    return rows.float() if temperature == 0 else rows.float() / temperature + gumbel_rows(tokens, keys)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("vocab", "dtype"), [(5, torch.bfloat16), (2048, torch.float32), (5000, torch.bfloat16)])
def test_kernels_choose_what_torch_chooses(vocab: int, temperature: float, dtype: torch.dtype) -> None:
    """Other noise than the engine's, a lost block of the vocabulary, or a margin that is not to the second best."""
    generator = torch.Generator().manual_seed(vocab)
    rows = (3 * torch.randn(NUM_ROWS, vocab, generator=generator)).to(dtype)
    tokens, keys = torch.arange(vocab, dtype=torch.int32) * 3 + 1, keys_of(12345, torch.arange(NUM_ROWS) * 1000)
    chosen, margins = pick_rows(rows, tokens, keys, temperature)
    first, second = scores_of(rows, tokens, keys, temperature).topk(2, dim=-1).values.T
    assert chosen.tolist() == scores_of(rows, tokens, keys, temperature).argmax(-1).tolist()
    torch.testing.assert_close(margins, first - second, rtol=1e-4, atol=1e-4)


def test_of_equals_the_first_is_chosen_and_of_what_is_no_number_none() -> None:
    """Greedy ties of bfloat16 rows go to the lowest id on every device; NaN logits would become a random token."""
    rows = torch.zeros(3, 5000, dtype=torch.bfloat16)
    rows[0, [4100, 17, 2048]] = 1
    rows[1, [4999, 4998]] = 1
    rows[2, 3000] = torch.nan
    chosen, margins = pick_rows(rows, torch.arange(5000, dtype=torch.int32), torch.zeros(3, 2, dtype=torch.int32), 0.0)
    assert chosen.tolist() == [17, 4998, -1] and margins[:2].tolist() == [0, 0]


def test_small_uniforms_keep_their_noise() -> None:
    """Noise of the rarest tokens, whose uniforms are next to 0 or 1, cut off by log(1 - u): every sample is biased."""
    tokens = torch.arange(400_000, dtype=torch.int32)
    keys = keys_of(3, torch.arange(1))
    noise = gumbel_rows(tokens, keys)[0]
    for extreme in (noise.argmax(), noise.argmin()):
        one = tokens[extreme : extreme + 1]
        rows = torch.tensor([[0.0]])
        pair = torch.cat([one, one])
        chosen, margin = pick_rows(torch.tensor([[0.0, -1000.0]]), pair, keys, 1.0)
        assert chosen.tolist() == [0] and abs(float(margin) - 1000) < 1e-2
        values, seconds, places = torch.empty(1, 1), torch.empty(1, 1), torch.empty(1, 1, dtype=torch.int32)
        given = rows, one, keys, None, None, values, seconds, places
        sample._best_of_blocks[(1, 1)](*given, 1, 1, 1.0, GREEDY=False, BLOCK=16)
        torch.testing.assert_close(values[0], noise[extreme : extreme + 1], rtol=1e-5, atol=1e-5)
