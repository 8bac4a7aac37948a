"""Triton's attention over the static cache, in Triton's interpreter: softmax over what a row sees, and nothing else."""

import pytest
import torch
from torch import Tensor

from engine.kernels.cuda.attention import attend
from engine.kernels.cuda.qkv_rope_cache import place
from engine.layers.layers import GatedAttention, fused_attention
from engine.layers.step import StepState
from tests.helpers import gpu_kernels  # noqa: F401
from tests.helpers.native_kernels import random
from tests.helpers.tiny import fresh

SHAPES = (  # heads, kv heads, dim, columns, first position, rows, window
    (4, 1, 64, 300, 250, 5, None, torch.bfloat16),
    (2, 2, 80, 150, 100, 3, 40, torch.bfloat16),
    (3, 1, 96, 130, 0, 4, None, torch.float16),
    (8, 2, 128, 200, 120, 2, None, torch.bfloat16),
    (4, 1, 256, 128, 90, 5, 33, torch.bfloat16),
    (16, 1, 64, 130, 128, 2, 1, torch.float16),
    (5, 1, 16, 200, 100, 2, None, torch.bfloat16),
)


def hide(keys: Tensor, values: Tensor, at: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
    """The cache with NaN wherever no row looks."""
    first, last = int(at[0]), int(at[-1])
    hidden = [side.clone() for side in (keys, values)]
    for side in hidden:
        side[:, :, last + 1 :] = torch.nan
        side[:, :, : 0 if window is None else max(0, first + 1 - window)] = torch.nan
    return hidden[0], hidden[1]


def expected(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    window: int | None,
    sinks: Tensor,
    causal: bool = True,
    from_row: bool = True,
) -> Tensor:
    columns = torch.arange(keys.shape[2])
    seen = columns <= (at if causal else at[-1:])[:, None]
    if window is not None:
        seen = seen & (columns > (at if from_row else at[:1])[:, None] - window)
    seen = seen.expand(len(at), -1)
    keys, values = (side.double().repeat_interleave(query.shape[1] // keys.shape[1], 1) for side in (keys, values))
    scores = (query.double().transpose(0, 1) @ keys[0].mT * query.shape[2] ** -0.5).masked_fill(~seen, -torch.inf)
    column = sinks.double()[:, None, None].expand(*scores.shape[:2], 1)
    out = torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ values[0]
    return out.transpose(0, 1).flatten(1)


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "length", "first", "rows", "window", "dtype"), SHAPES)
def test_it_is_softmax_over_what_a_row_sees(heads, kv_heads, dim, length, first, rows, window, dtype):
    """Heads that share keys, odd dimensions, windows of one column on, a cache's ends; NaN wherever no row looks."""
    query = random(rows, heads, dim, seed=1, dtype=dtype)
    keys, values = (random(1, kv_heads, length, dim, seed=i, dtype=dtype) for i in (2, 3))
    at = torch.arange(first, first + rows)
    without_sinks = attend(query, *hide(keys, values, at, window), at, window, dim**-0.5)
    sinks = random(heads, seed=4, dtype=dtype)
    with_sinks = attend(query, *hide(keys, values, at, window), at, window, dim**-0.5, sinks=sinks)
    for its_rows, scores in ((without_sinks, torch.full((heads,), -torch.inf)), (with_sinks, sinks)):
        right = expected(query, keys, values, at, window, scores)
        assert (its_rows.double() - right).abs().max() <= 4 * torch.finfo(dtype).eps * right.abs().max()
    by_head = query.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(attend(by_head, keys, values, at, window, dim**-0.5), without_sinks)


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize(("causal", "from_row"), [(False, True), (True, False), (False, False)])
def test_a_block_of_a_head_sees_what_its_mask_says(causal, from_row, window):
    """Rows whose windows begin or end in different splits and tiles of the cache; NaN wherever no row looks."""
    query = random(5, 8, 16, seed=1, dtype=torch.bfloat16)
    keys, values = (random(1, 2, 200, 16, seed=i, dtype=torch.bfloat16) for i in (2, 3))
    at, no_sinks = torch.arange(126, 131), torch.full((8,), -torch.inf)
    ours = attend(query, *hide(keys, values, at, window), at, window, 0.25, causal=causal, from_row=from_row)
    right = expected(query, keys, values, at, window, no_sinks, causal, from_row)
    assert (ours.double() - right).abs().max() <= 4 * torch.finfo(torch.bfloat16).eps * right.abs().max()


@pytest.mark.parametrize(
    ("name", "turned"), [("llama", 16), ("qwen3", 16), ("gemma3", 16), ("qwen3_5", 6), ("qwen3_5", 16)]
)
def test_placing_is_what_the_fused_attention_does(name, turned):
    """Queries, keys and values of the layers that these kernels replace: without norms, with norms of 16 bits, with
    Gemma's, with gates, of heads that are turned in part."""
    layers = fresh(name, torch.bfloat16).model.layers
    fused = fused_attention(next(layer.self_attn for layer in layers if hasattr(layer, "self_attn")), True)
    fused.layer_idx = 0
    heads, dim, rows, length = fused.num_heads, fused.head_dim, 3, 40
    kv_heads = fused.num_turned - heads
    fused.o_proj = torch.nn.Identity()
    x = random(1, rows, fused.qkv.in_features, seed=1)
    angles = torch.rand(rows, turned, generator=torch.Generator().manual_seed(2)) * 6
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    at = torch.arange(17, 17 + rows)
    caches = [[torch.full((1, kv_heads, length, dim), 7.0, dtype=torch.bfloat16) for _ in range(2)] for _ in range(2)]
    hidden = torch.where(torch.arange(length) <= at[:, None], 0.0, -torch.inf).bfloat16()
    if fused.sliding_window is not None:
        hidden.masked_fill_(torch.arange(length) <= at[:, None] - fused.sliding_window, -torch.inf)
    state = StepState(at, [tuple(caches[0])], {fused.sliding_window: hidden.repeat(heads // kv_heads, 1)})
    with torch.inference_mode():
        right = fused(x, cos[None, :, None], sin[None, :, None], state)[0]
        qkv = fused.qkv(x)[0]
    scales = None if fused.scales is None else fused.scales.float()
    query = place(qkv, cos, sin, scales, fused.eps, *caches[1], at, heads)
    assert torch.equal(caches[1][1], caches[0][1])
    if scales is None:
        assert torch.equal(caches[1][0], caches[0][0])
    # sums of another order: some values of the norm are rounded to the other side, by as much as their last place or
    # that of a term
    else:
        ours, theirs = caches[1][0].float(), caches[0][0].float()
        assert (ours - theirs).abs().max() <= 2**-6 * theirs[:, :, at].abs().max()
        assert (ours != theirs).float().mean() < 0.02
    gated = qkv if isinstance(fused, GatedAttention) else None
    sums = attend(query, *caches[1], at, fused.sliding_window, fused.scaling, gated=gated)
    assert (sums.float() - right.float()).abs().max() <= 2**-5 * right.float().abs().max()
