"""The Triton kernels of a linear layer's step, in the interpreter: torch's numbers, bits that do not hang on the width,
and a whole target on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.exactness.operators import same_bits
from engine.kernels.cuda import delta
from engine.kernels.cuda.decoder import GpuDecoder, reason_against_decoder
from engine.kernels.cuda.delta import fits, mix_step
from engine.kernels.cuda.install import put_kernels, take_out_kernels
from engine.kernels.cuda.linear import GpuLinear
from engine.model.decoder import HybridDecoder
from engine.model.delta_places import Places, Rows
from engine.model.delta_rule import DeltaLayer, fix_linear_layers
from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from engine.target.target import StaticTarget
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.linear_models import equal, fresh, memory
from tests.helpers.tiny import LENGTH, TORCH, random_ids

VOCAB = 96
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
}
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
"""A rounding or two of what torch gives."""
NUM_STATES = 27


@cache
def layer_of(dtype: torch.dtype = torch.bfloat16, name: str = "qwen3_5", **more: Any) -> DeltaLayer:
    model = fresh(name, dtype, **{**SMALL, **more})
    fix_linear_layers(model)
    return next(module for module in model.modules() if isinstance(module, DeltaLayer))


def rows_of(layer: DeltaLayer, num: int, seed: int = 0) -> Rows:
    s, generator = layer.shape, torch.Generator().manual_seed(seed)
    sizes = (s.conv_dim, s.num_value_heads * s.value_dim, s.num_value_heads, s.num_value_heads)
    rows = (torch.randn(num, size, generator=generator).to(layer.dt_bias.dtype) for size in sizes)
    return tuple(rows)  # type: ignore[return-value]


def rings_of(layer: DeltaLayer, num_states: int = NUM_STATES) -> tuple[Tensor, Tensor]:
    """Full of what must have no influence."""
    states, inputs = layer.shape.ring_sizes(num_states)
    return torch.full(states, torch.nan), torch.full(inputs, torch.nan, dtype=layer.dt_bias.dtype)


Mix = Callable[[DeltaLayer, Rows, Places, Tensor, Tensor], Tensor]


@torch.inference_mode()
def run(mix: Mix, layer: DeltaLayer, rows: Rows, widths: list[int], rings: tuple[Tensor, Tensor]) -> Tensor:
    """Steps of those widths from the empty sequence on -> all their rows."""
    found, start = [], 0
    for width in widths:
        places = Places.of(torch.arange(start, start + width), layer.shape, len(rings[0]), False)
        part: Rows = tuple(x[start : start + width] for x in rows)  # type: ignore[assignment]
        found.append(mix(layer, part, places, *rings))
        start += width
    return torch.cat(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "key_heads"),
    [("qwen3_5", torch.float32, 1), ("qwen3_next", torch.bfloat16, 2), ("qwen3_5", torch.float16, 1)],
)
def test_steps_give_what_torch_gives(name, dtype, key_heads, monkeypatch):
    """Another recurrence, a rounding left out or made too much, a neighbour's head, block or slot: rings that wrap,
    several blocks or several key heads."""
    monkeypatch.setattr(delta, "BLOCK", 8 * key_heads)
    layer = layer_of(dtype, name, linear_num_key_heads=key_heads, linear_num_value_heads=2 * key_heads)
    rows, widths = rows_of(layer, 11), [1, 2, 5, 3]
    ours, theirs = rings_of(layer, 6), rings_of(layer, 6)
    found, expected = run(mix_step, layer, rows, widths, ours), run(DeltaLayer.mix, layer, rows, widths, theirs)
    torch.testing.assert_close(found, expected, atol=CLOSE[dtype], rtol=CLOSE[dtype])
    if (
        dtype != torch.float32
    ):  # sums in another order seldom round to another number; a rounding at another place does everywhere
        assert float((found != expected).float().mean()) < 0.02
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, atol=1e-5, rtol=1e-5, equal_nan=True)
    assert expected.std() > 0.1


@pytest.mark.slow
def test_a_tokens_bits_do_not_depend_on_the_width():
    """Lanes that draft and lanes that do not would part. More rows than a tile, as the comparison with the stock model
    has them, are parts of the same bits."""
    layer = layer_of(linear_num_value_heads=1)
    rows, num = rows_of(layer, 17), 17
    reference = rings_of(layer)
    expected = run(mix_step, layer, rows, [1] * num, reference)
    assert not torch.isnan(expected).any()
    for widths in ([2, 15], [8, 9], [16, 1], [17]):
        rings = rings_of(layer)
        assert same_bits(run(mix_step, layer, rows, widths, rings), expected)
        assert equal(list(rings), list(reference))


def test_a_token_is_not_touched_by_what_comes_after_it():
    """Padding, or a draft that is rejected: NaN in it must stay behind the pointer."""
    layer = layer_of()
    rows, kept = rows_of(layer, 9), 5
    parts = (torch.cat([x[:kept], torch.full_like(x[kept:], torch.nan)]) for x in rows)
    spoilt: Rows = tuple(parts)  # type: ignore[assignment]
    ours, theirs = rings_of(layer), rings_of(layer)
    assert same_bits(run(mix_step, layer, spoilt, [9], ours)[:kept], run(mix_step, layer, rows, [9], theirs)[:kept])
    assert same_bits(ours[0][: kept + 1], theirs[0][: kept + 1]) and same_bits(ours[1][:kept], theirs[1][:kept])


def test_rows_may_be_columns_of_wider_tensors():
    """One linear for all four projections gives them side by side."""
    layer = layer_of()
    rows = rows_of(layer, 5)
    sizes = [x.shape[1] for x in rows]
    wide: Rows = tuple(torch.cat(rows, 1).split(sizes, 1))  # type: ignore[assignment]
    assert not wide[0].is_contiguous()
    assert same_bits(
        run(mix_step, layer, wide, [4, 1], rings_of(layer)), run(mix_step, layer, rows, [4, 1], rings_of(layer))
    )


class Doubled(nn.Module):
    """Not what its class says."""


def spoil(layer: DeltaLayer, what: str) -> torch.dtype:
    if what == "activation":
        layer.activation = nn.GELU()
    elif what == "norm of another class":
        layer.norm = Doubled()
    elif what == "norm with another forward":
        layer.norm.forward = lambda x, z: x
    elif what == "weight of another dtype":
        layer.norm.weight.data = layer.norm.weight.data.float()
    return torch.float16 if what == "rows of another dtype" else torch.bfloat16


@pytest.mark.parametrize(
    "what",
    [
        "activation",
        "norm of another class",
        "norm with another forward",
        "weight of another dtype",
        "rows of another dtype",
    ],
)
def test_a_layer_that_computes_otherwise_is_left_to_torch(what):
    """The kernels would ignore it."""
    layer = layer_of.__wrapped__()
    assert fits(layer, torch.bfloat16)
    assert not fits(layer, spoil(layer, what))


def test_dimensions_that_are_no_powers_of_two_are_left_to_torch():
    """A block of registers cannot have them; and a decoder would run its linear layers as if it could."""
    assert not fits(layer_of(linear_key_head_dim=24), torch.bfloat16)
    for more, says in (({"linear_key_head_dim": 24}, "layer 0 runs no kernels"), ({}, None)):
        prepared = prepare(fresh("qwen3_5", torch.bfloat16, **{**SMALL, **more}), TORCH)
        decoder = prepared.model.get_decoder()
        put_kernels(prepared.model)
        assert (says or "None") in str(reason_against_decoder(decoder))
        assert type(prepared.model.get_decoder()) is (GpuDecoder if says is None else HybridDecoder)


# Whole targets


@cache
def model(kernels: bool = True) -> Prepared:
    made = prepare(fresh("qwen3_5", torch.bfloat16, **SMALL), TRITON if kernels else TORCH)
    assert (made.kernels is TRITON) == kernels and type(made.model.get_decoder()) is (
        GpuDecoder if kernels else HybridDecoder
    )
    return made


@cache
@torch.inference_mode()
def stock(dtype: torch.dtype, num: int) -> Tensor:
    return (
        fresh("qwen3_5", dtype, **SMALL)(input_ids=torch.tensor([random_ids(num, VOCAB)]), use_cache=False)
        .logits[0]
        .float()
    )


def logits_of(prepared: Prepared, ids: list[int], num_prefill: int, width: int) -> Tensor:
    target = StaticTarget(prepared, LENGTH, (width,))
    target.extend(ids[:num_prefill], 0)
    return torch.cat([target.extend(ids[i : i + width], width)[0].clone() for i in range(num_prefill, len(ids), width)])


@pytest.mark.slow
def test_a_target_on_the_kernels_is_the_same_model():
    """Another model than transformers' or than torch's path runs, or a row whose bits hang on the width of its step."""
    ids = random_ids(21 + 8, VOCAB)
    by_torch, ours, others = (
        logits_of(model(False), ids, 21, 8),
        logits_of(model(), ids, 21, 8),
        logits_of(model(), ids[:-5], 21, 1),
    )
    assert same_bits(ours[:3], others)
    assert float((ours.float() - by_torch.float()).abs().mean()) < 0.02 * float(by_torch.float().std())
    decoder = model().model.get_decoder()
    decoder.merge()
    try:
        merged = logits_of(model(), ids[:-7], 21, 1)
    finally:
        decoder.merge(False)
    torch.testing.assert_close(merged, ours[:1], rtol=2e-2, atol=5e-2)
    exact, rounded = (stock(dtype, len(ids))[21:] for dtype in (torch.float32, torch.bfloat16))
    assert float((ours.float() - exact).abs().mean()) < 2 * float((rounded - exact).abs().mean())


@pytest.mark.slow
def test_kernels_can_be_taken_out_again():
    """Where a kernel fails at the last moment torch's have to go on, with the weights as they were."""
    ids = random_ids(20, VOCAB)
    prepared = prepare(fresh("qwen3_5", torch.bfloat16, **SMALL), TRITON)
    take_out_kernels(prepared.model)
    assert type(prepared.model.get_decoder()) is HybridDecoder
    assert not any(
        isinstance(module, GpuLinear) or getattr(module, "mix_step", None) for module in prepared.model.modules()
    )
    assert same_bits(logits_of(replace(prepared, kernels=TORCH), ids, 4, 8), logits_of(model(False), ids, 4, 8))


@pytest.mark.slow
def test_a_rollback_leaves_the_bits_of_decoding_token_by_token():
    """A rejected token has changed the state; whatever is left of it makes later tokens others."""
    width, ids = 4, random_ids(40, VOCAB, 1)
    ours, theirs = (StaticTarget(model(), LENGTH, (width,)) for _ in range(2))
    for target in (ours, theirs):
        target.extend(ids[:5], 0)
    done = 5
    for kept, rejected in ((2, 2), (1, 3)):
        rows = ours.extend([*ids[done : done + kept], *random_ids(rejected, VOCAB, done)], kept, width=width)[0].clone()
        ours.rollback(done + kept)
        others = torch.cat([theirs.extend([token], 1, width=width)[0].clone() for token in ids[done : done + kept]])
        done += kept
        assert same_bits(rows, others) and equal(memory(ours), memory(theirs))
