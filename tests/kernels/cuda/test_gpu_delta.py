"""The Triton kernels of a linear layer's step, in the interpreter: torch's numbers, and a whole target on them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from engine.exactness.operators import same_bits
from engine.kernels.cuda import delta
from engine.kernels.cuda.decoder import GpuDecoder, reason_against_decoder
from engine.kernels.cuda.delta import fits, mix_step
from engine.kernels.cuda.install import put_kernels, take_out_kernels
from engine.kernels.cuda.linear import GpuLinear
from engine.layers.decoder import HybridDecoder
from engine.layers.delta_places import Places, Rows
from engine.layers.delta_rule import DeltaLayer
from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.gpu_models import DELTA, SMALL, delta_layer, delta_rings, delta_rows, prepared
from tests.helpers.tiny import LENGTH, TORCH, fresh, random_ids

VOCAB = SMALL["vocab_size"]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}  # a rounding or two of what torch gives
Mix = Callable[[DeltaLayer, Rows, Places, Tensor, Tensor], Tensor]


@torch.inference_mode()
def run(mix: Mix, layer: DeltaLayer, rows: Rows, widths: list[int], rings: tuple[Tensor, Tensor]) -> Tensor:
    """Steps of those widths from the empty sequence on -> all their rows."""
    outputs, start = [], 0
    for width in widths:
        places = Places.of(torch.arange(start, start + width), layer.shape, len(rings[0]), False)
        part: Rows = tuple(x[start : start + width] for x in rows)  # type: ignore[assignment]
        outputs.append(mix(layer, part, places, *rings))
        start += width
    return torch.cat(outputs)


@pytest.mark.parametrize(
    ("name", "dtype", "key_heads"),
    [("qwen3_5", torch.float32, 1), ("qwen3_next", torch.bfloat16, 2), ("qwen3_5", torch.float16, 1)],
)
def test_steps_give_what_torch_gives(name, dtype, key_heads, monkeypatch):
    """Another recurrence, a rounding too few or many, a neighbour's head, block or slot; also where rings wrap."""
    monkeypatch.setattr(delta, "BLOCK", 8 * key_heads)
    layer = delta_layer(dtype, name, linear_num_key_heads=key_heads, linear_num_value_heads=2 * key_heads)
    rows, widths = delta_rows(layer, 11), [1, 2, 5, 3]
    rows = torch.cat(rows, 1).split([x.shape[1] for x in rows], 1)  # as one linear for all four projections gives them
    ours, theirs = delta_rings(layer, 6), delta_rings(layer, 6)
    outputs, expected = run(mix_step, layer, rows, widths, ours), run(DeltaLayer.mix, layer, rows, widths, theirs)
    torch.testing.assert_close(outputs, expected, atol=CLOSE[dtype], rtol=CLOSE[dtype])
    # sums in another order seldom round to another number; a rounding at another place does everywhere
    if dtype != torch.float32:
        assert float((outputs != expected).float().mean()) < 0.02
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, atol=1e-5, rtol=1e-5, equal_nan=True)
    assert expected.std() > 0.1


class Doubled(nn.Module):
    """Not what its class says."""


SPOILT = {
    "activation": lambda layer: setattr(layer, "activation", nn.GELU()),
    "norm of another class": lambda layer: setattr(layer, "norm", Doubled()),
    "norm with another forward": lambda layer: setattr(layer.norm, "forward", lambda x, z: x),
    "weight of another dtype": lambda layer: setattr(layer.norm.weight, "data", layer.norm.weight.data.float()),
    "none": lambda layer: None,
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_layer_that_computes_otherwise_is_left_to_torch(what):
    """The kernels would ignore it."""
    layer = delta_layer.__wrapped__()
    assert fits(layer, torch.bfloat16) and not fits(layer, torch.float16), "rows of another dtype"
    SPOILT[what](layer)
    assert fits(layer, torch.bfloat16) == (what == "none")


def test_dimensions_that_are_no_powers_of_two_are_left_to_torch():
    """A block of registers cannot have them; and a decoder would run its linear layers as if it could."""
    assert not fits(delta_layer(linear_key_head_dim=24), torch.bfloat16)
    for more, says in (({"linear_key_head_dim": 24}, "layer 0 runs no kernels"), ({}, None)):
        made = prepare(fresh("qwen3_5", torch.bfloat16, **{**SMALL, **more}), TORCH)
        decoder = made.model.get_decoder()
        put_kernels(made.model)
        assert (says or "None") in str(reason_against_decoder(decoder))
        assert type(made.model.get_decoder()) is (GpuDecoder if says is None else HybridDecoder)


# Whole targets


def logits_of(prepared: Prepared, ids: list[int], num_prefill: int, width: int) -> Tensor:
    target = StaticTarget(prepared, LENGTH, (width,))
    target.extend(ids[:num_prefill], 0)
    return torch.cat([target.extend(ids[i : i + width], width)[0].clone() for i in range(num_prefill, len(ids), width)])


def test_kernels_can_be_taken_out_again():
    """Where a kernel fails at the last moment torch's have to go on, with the weights as they were."""
    ids = random_ids(20, VOCAB)
    made = prepare(fresh("qwen3_5", torch.bfloat16, **SMALL), TRITON)
    take_out_kernels(made.model)
    assert type(made.model.get_decoder()) is HybridDecoder
    modules = list(made.model.modules())
    assert not any(isinstance(module, GpuLinear) or getattr(module, "mix_step", None) for module in modules)
    assert same_bits(logits_of(replace(made, kernels=TORCH), ids, 4, 8), logits_of(prepared(DELTA, False), ids, 4, 8))
