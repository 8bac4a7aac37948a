"""Fused layers: the same model in fewer operations; what is not known to be the same is left alone."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from engine.core.errors import UnsupportedModel
from engine.layers.layers import FusedMLP, FusedNorm, fuse_layers, fused_mlp, fused_norm
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers.tiny import DTYPES, LENGTH, NAMES, fresh, prepared, random_ids


def norm_of(kind: Any, dim: int, seed: int, dtype: torch.dtype, eps: float = 1e-6, mean: float = 0.0) -> Any:
    made = kind(dim, eps=eps)
    nn.init.normal_(made.weight, mean, 2.0, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_(False)


def rows_of(num: int, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Random rows [1, num, dim] of very different sizes, one value in each far larger, as in hidden states."""
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
    scale = weight if kind is LlamaRMSNorm else 1 + weight
    truth = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * scale
    size = truth.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(fused.scale.double(), scale, atol=1e-5, rtol=1e-6)
    ours, theirs = (((y.double() - truth).abs() / size).max() for y in (fused(rows), norm(rows)))
    assert ours <= 2 * theirs + 16 * torch.finfo(torch.float32).eps
    assert fused(rows).dtype == dtype


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
    stock = {name: LlamaMLP(config) for name in ("same", "hooked", "patched", "quantized")}
    model = nn.ModuleDict({**stock, "swapped": SwappedMLP(config)}).eval()
    model["hooked"].register_forward_hook(lambda module, args, out: out + 1)
    model["patched"].forward = lambda x: x
    model["quantized"].gate_proj.forward = lambda x: x
    fuse_layers(model, True)
    assert [name for name, child in model.items() if isinstance(child, FusedMLP)] == ["same"]
    assert fused_mlp(nn.Linear(2, 2)) is None


def test_a_prefill_does_not_compute_logits():
    """The head is the largest linear of a small model, and a prompt's rows would all go through it."""
    model = prepare(fresh("llama"))
    model.model.get_output_embeddings().forward = lambda x: pytest.fail("the head ran")
    StaticTarget(model, LENGTH, (1,)).extend(random_ids(9, 200), 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_prepared_model_says_that_it_runs_steps_only(name):
    """`generate` on it would run without a mask, and write nonsense."""
    with pytest.raises(UnsupportedModel, match="steps only"):
        prepared(name).model(input_ids=torch.tensor([[1, 2]]))
    with pytest.raises(UnsupportedModel, match="steps only"):
        prepared(name).model(input_ids=torch.tensor([[1, 2]]), position_ids=torch.tensor([[0, 1]]), use_cache=True)


def test_no_weight_is_held_twice():
    """A model that just fits its device would not, while its layers are fused."""
    mlp = fresh("llama").model.layers[0].mlp.requires_grad_(False)
    before = (mlp.gate_proj.weight.clone(), mlp.up_proj.weight.clone())
    fused = fused_mlp(mlp)
    parts = (mlp.gate_proj, mlp.up_proj)
    assert {x.weight.untyped_storage().data_ptr() for x in parts} == {fused.gate_up.weight.data_ptr()}
    assert all(torch.equal(part.weight, weight) for part, weight in zip(parts, before, strict=True))


def test_a_hybrid_that_somebody_changed_stays_as_it_is():
    """A gate of half the size would be lost with the module that has it."""
    model, ids = fresh("qwen3_5"), random_ids(16, 2048)
    model.model.layers[2].self_attn.register_forward_hook(lambda module, args, out: (out[0] * 0.5, out[1]))
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    rows = StaticTarget(prepare(model), LENGTH, (16,)).extend(ids, 16)[0]
    assert type(model.get_decoder()).__name__ == "Qwen3_5TextModel"
    torch.testing.assert_close(rows, logits, atol=1e-3, rtol=1e-3)
