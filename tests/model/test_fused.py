"""Fused layers: the same model in fewer operations; what is not known to be the same stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen2Config, Qwen2ForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from engine.errors import UnsupportedModel
from engine.model.decoder import FusedDecoder
from engine.model.layers import FusedMLP, FusedNorm, fuse_layers, fused_mlp, fused_norm
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.dispatch import Counted
from tests.helpers.tiny import BASE, DTYPES, LENGTH, NAMES, build, fresh, prepared, random_ids, stock


def norm_of(kind: Any, dim: int, seed: int, dtype: torch.dtype, eps: float = 1e-6, mean: float = 0.0) -> Any:
    made = kind(dim, eps=eps)
    generator = torch.Generator().manual_seed(seed)
    nn.init.normal_(made.weight, mean, 2.0, generator=generator)
    return made.to(dtype).requires_grad_(False)


def rows_of(num: int, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Random rows [1, num, dim] of very different sizes, one value in each far larger than the others, as hidden states
    have."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(1, num, dim, generator=generator) * torch.logspace(-3, 3, num)[None, :, None]
    rows[..., seed % dim] *= 50
    return rows.to(dtype)


@given(
    st.sampled_from([LlamaRMSNorm, Gemma3RMSNorm]),
    st.integers(2, 300),
    st.integers(0, 99),
    st.sampled_from(DTYPES),
    st.sampled_from([1e-5, 1e-6]),
    st.sampled_from([0.0, 1.0, 100.0]),
)
def test_a_fused_norm_is_as_near_to_the_truth_as_the_stock_one(kind, dim, seed, dtype, eps, mean):
    """A layer norm's mean that is not quite 0 would shift rows with large values; and where weights are large, one more
    than a weight is nearly the weight, and a hundred norms of the wrong kind are another model."""
    norm = norm_of(kind, dim, seed, dtype, eps, mean)
    fused, rows = fused_norm(norm, True), rows_of(7, dim, seed, dtype)
    assert isinstance(fused, FusedNorm)
    x, weight = rows.double(), norm.weight.double()
    truth = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * (weight if kind is LlamaRMSNorm else 1 + weight)
    size = truth.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(
        fused.scale.double(), weight if kind is LlamaRMSNorm else 1 + weight, atol=1e-5, rtol=1e-6
    )
    ours, theirs = (((y.double() - truth).abs() / size).max() for y in (fused(rows), norm(rows)))
    assert ours <= 2 * theirs + 16 * torch.finfo(torch.float32).eps
    assert fused(rows).dtype == dtype


@given(st.integers(2, 200), st.integers(1, 16), st.integers(0, 99), st.sampled_from(DTYPES))
def test_a_fused_norms_rows_are_a_function_of_themselves(dim, num, seed, dtype):
    """A row's bits would depend on how many others are in the step, and widths would no longer be one class."""
    fused, rows = fused_norm(norm_of(LlamaRMSNorm, dim, seed, dtype), True), rows_of(num, dim, seed, dtype)
    assert fused is not None
    assert torch.equal(fused(rows), torch.cat([fused(rows[:, i : i + 1]) for i in range(num)], 1))


class HalfRMSNorm(LlamaRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) * 0.5


class ShiftedRMSNorm(LlamaRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states - hidden_states.mean(-1, keepdim=True))


class SwappedMLP(LlamaMLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [HalfRMSNorm, ShiftedRMSNorm])
def test_a_norm_that_does_something_else_is_left_alone(kind, dtype):
    """Its name ends like theirs: another model would be raced than the one named."""
    assert fused_norm(norm_of(kind, 64, 1, dtype), True) is None
    wrong_eps = norm_of(LlamaRMSNorm, 64, 1, dtype)
    wrong_eps.eps, wrong_eps.variance_epsilon = 1e-6, "1e-6"
    assert fused_norm(wrong_eps, True) is None


def test_an_mlp_that_does_something_else_is_left_alone():
    """Gate and up, the other way round, have the same children."""
    config = fresh("llama").config
    model = nn.ModuleDict(
        {
            "same": LlamaMLP(config),
            "swapped": SwappedMLP(config),
            "hooked": LlamaMLP(config),
            "patched": LlamaMLP(config),
            "quantized": LlamaMLP(config),
        }
    ).eval()
    model["hooked"].register_forward_hook(lambda module, args, out: out + 1)
    model["patched"].forward = lambda x: x
    model["quantized"].gate_proj.forward = lambda x: x
    assert fuse_layers(model, True) == 1
    assert [name for name, child in model.items() if isinstance(child, FusedMLP)] == ["same"]
    assert fused_mlp(nn.Linear(2, 2)) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_promised_architectures_are_fused(name):
    """Every step would cost nearly twice as much, and nobody would see why."""
    target = StaticTarget(prepared(name), LENGTH, (1,))
    assert isinstance(prepared(name).model.get_decoder(), FusedDecoder)
    with torch.inference_mode(), Counted() as ours:
        target._steps[1]()
    with torch.inference_mode(), Counted() as theirs:
        stock(name)(input_ids=torch.tensor([[1]]), use_cache=False)
    assert ours.num < 0.7 * theirs.num


@pytest.mark.parametrize("name", NAMES)
def test_a_prefill_does_not_compute_logits(name):
    """The head is the largest linear of a small model, and a prompt's rows would all go through it."""
    model = prepare(fresh(name))
    head = model.model.get_output_embeddings()
    head.forward = lambda x: pytest.fail("the head ran")
    StaticTarget(model, LENGTH, (1,)).extend(random_ids(9, 200), 0)


def test_biases_are_fused_too():
    """Qwen 2 has them in three of four projections: one left out, or added to another's columns."""
    config = Qwen2Config(**{**BASE, "vocab_size": 256})
    model = build(Qwen2ForCausalLM, config)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, generator=torch.Generator().manual_seed(3))
    ids = random_ids(24, 256)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    target = StaticTarget(prepare(model), LENGTH, (8,))
    assert isinstance(target.prepared.model.get_decoder(), FusedDecoder)
    rows = torch.cat([target.extend(ids[i : i + 8], 8)[0].clone() for i in range(0, 24, 8)])
    torch.testing.assert_close(rows, logits, atol=1e-4, rtol=1e-4)


def test_a_cap_on_the_logits_is_kept():
    """The head's short way would leave it out."""
    made = build(Gemma3ForCausalLM, Gemma3TextConfig(**{**BASE, "vocab_size": 256, "final_logit_softcapping": 0.5}))
    target = StaticTarget(prepare(made), LENGTH, (1,))
    assert float(target.extend([1], 1)[0].abs().max()) <= 0.5


@pytest.mark.parametrize("name", NAMES)
def test_a_prepared_model_says_that_it_runs_steps_only(name):
    """`generate` on it would run without a mask, and write nonsense."""
    with pytest.raises(UnsupportedModel, match="steps only"):
        prepared(name).model(input_ids=torch.tensor([[1, 2]]))
    with pytest.raises(UnsupportedModel, match="steps only"):
        prepared(name).model(input_ids=torch.tensor([[1, 2]]), position_ids=torch.tensor([[0, 1]]), use_cache=True)


def test_no_weight_is_held_twice():
    """A model that just fits its device would not, while its layers are fused."""
    config = Qwen2Config(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
    )
    mlp = Qwen2ForCausalLM(config).eval().requires_grad_(False).model.layers[0].mlp
    before = (mlp.gate_proj.weight.clone(), mlp.up_proj.weight.clone())
    fused = fused_mlp(mlp)
    assert {part.weight.untyped_storage().data_ptr() for part in (mlp.gate_proj, mlp.up_proj, fused.gate_up)} == {
        fused.gate_up.weight.data_ptr()
    }
    assert all(
        torch.equal(part.weight, weight) for part, weight in zip((mlp.gate_proj, mlp.up_proj), before, strict=True)
    )
