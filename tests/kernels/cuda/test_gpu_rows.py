"""Triton's norms and its choice of tokens against torch on the same rows, in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from engine.core.sampling.noise import gumbel_rows, keys_of
from engine.kernels.cuda import sample
from engine.kernels.cuda.rmsnorm import add_normed, normed
from engine.kernels.cuda.sample import pick_rows
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.native_kernels import random

EPS = 1e-6
DTYPES = (torch.bfloat16, torch.float16)
DIMS = (64, 640, 1000)


def exact(x: Tensor, scale: Tensor) -> Tensor:
    return torch.rms_norm(x.double(), x.shape[-1:], None, EPS) * scale.double()


def close(rows: Tensor, expected: Tensor) -> None:
    """One rounding of the dtype apart at most."""
    assert bool(((rows.double() - expected).abs() <= 1.01 * torch.finfo(rows.dtype).eps * expected.abs() + 1e-6).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_both_are_what_torch_gives(dim, dtype):
    """A norm over the row alone, be its length a power of two or not; the sum rounded before it is normed again."""
    x, y = (random(3, dim, seed=i, dtype=dtype) for i in (1, 2))
    after, before = (1 + random(dim, seed=i, dtype=torch.float32) / 4 for i in (3, 4))
    close(normed(x, before, EPS), exact(x, before))
    total, out = add_normed(x, y, after, before, EPS)
    added = normed(y, after, EPS)
    assert torch.equal(total, x + added)
    assert torch.equal(out, normed(total, before, EPS))


# The choice of a token

NUM_ROWS = 7


def scores_of(rows: torch.Tensor, tokens: torch.Tensor, keys: torch.Tensor, temperature: float) -> torch.Tensor:
    return rows.float() if temperature == 0 else rows.float() / temperature + gumbel_rows(tokens, keys)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("vocab", "dtype"), [(5, torch.bfloat16), (2048, torch.float32), (5000, torch.bfloat16)])
def test_kernels_choose_what_torch_chooses(vocab: int, temperature: float, dtype: torch.dtype) -> None:
    """Other noise than the engine's, a lost block of the vocabulary, or a margin that is not the distance to the second
    best."""
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
    """Noise of the rarest tokens, whose uniforms are next to 0 or 1, cut off by log(1 - u): it would bias every
    sample."""
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
        sample._best_of_blocks[(1, 1)](rows, one, keys, values, seconds, places, 1, 1, 1.0, GREEDY=False, BLOCK=16)
        torch.testing.assert_close(values[0], noise[extreme : extreme + 1], rtol=1e-5, atol=1e-5)
