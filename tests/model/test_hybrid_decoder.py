"""Decoders of hybrids with linear attention as a loop over fused layers: the stock model, in fewer operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.model import decoder as fused_decoder
from engine.model.decoder import HybridDecoder
from engine.model.layers import GatedAttention
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.dispatch import Counted
from tests.helpers.linear_models import VOCAB, fresh
from tests.helpers.tiny import DTYPES, LENGTH, random_ids


def steps_of(model: Any, ids: list[int], width: int = 8) -> Tensor:
    target = StaticTarget(prepare(model), LENGTH, (width,))
    return torch.cat([target.extend(ids[i : i + width], width)[0].clone() for i in range(0, len(ids), width)])


def stock_logits(model: Any, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


@pytest.mark.parametrize(
    "more",
    [{}, {"attention_bias": True}, {"partial_rotary_factor": 1.0}, {"head_dim": 24, "num_key_value_heads": 4}],
    ids=str,
)
def test_gated_attention_is_the_stock_models(more):
    """A gate taken for a query, a bias left out, the unturned part of a head turned: another model than the one named,
    by more than rounding."""
    model, ids = (
        fresh("qwen3_5", layer_types=["full_attention"] * 2, num_hidden_layers=2, **more),
        random_ids(24, VOCAB),
    )
    logits = stock_logits(model, ids)
    rows = steps_of(model, ids)
    assert type(model.get_decoder()) is HybridDecoder and all(
        isinstance(layer.self_attn, GatedAttention) for layer in model.get_decoder().layers
    )
    torch.testing.assert_close(rows, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_hybrids_step_is_fewer_operations_than_around_transformers_decoder(dtype, monkeypatch):
    """Every step would start them one after the other, and nobody would see why it is slow; the same arithmetic but for
    rounding."""
    ids, found, layers = random_ids(24, VOCAB), [], ["linear_attention", *["full_attention"] * 3]
    for known in (fused_decoder.HYBRIDS, set()):
        monkeypatch.setattr(fused_decoder, "HYBRIDS", known)
        target = StaticTarget(prepare(fresh("qwen3_5", dtype, layer_types=layers)), LENGTH, (1, 8))
        assert (type(target.prepared.model.get_decoder()) is HybridDecoder) == bool(known)
        with torch.inference_mode(), Counted() as counted:
            target._steps[1]()
        found.append((counted.num, torch.cat([target.extend(ids[i : i + 8], 8)[0].float() for i in range(0, 24, 8)])))
    (ours, rows), (theirs, expected) = found
    assert ours < 0.8 * theirs, (ours, theirs)
    assert float((rows - expected).abs().mean()) <= (1e-5 if dtype == torch.float32 else 0.03) * float(expected.std())


def test_a_hybrid_that_somebody_changed_stays_as_it_is():
    """A gate of half the size would be lost with the module that has it."""
    model, ids = fresh("qwen3_5"), random_ids(16, VOCAB)
    model.model.layers[2].self_attn.register_forward_hook(lambda module, args, out: (out[0] * 0.5, out[1]))
    logits = stock_logits(model, ids)
    rows = steps_of(model, ids)
    assert type(model.get_decoder()).__name__ == "Qwen3_5TextModel"
    torch.testing.assert_close(rows, logits, atol=1e-3, rtol=1e-3)
