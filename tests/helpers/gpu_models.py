"""Tiny models on the Triton kernels, run by Triton's interpreter; linear layers of a hybrid, and their rings."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.kernels.cuda.decoder import GpuDecoder
from engine.kernels.cuda.linear import GpuLinear
from engine.layers.delta_places import Rows
from engine.layers.delta_rule import DeltaLayer, fix_linear_layers
from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from tests.helpers import tiny
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.tiny import TORCH

DELTA = "qwen3_5"
SMALL: dict[str, Any] = {  # what is changed in the tiny hybrids
    "vocab_size": 96, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 16,
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "gemma3": {"num_hidden_layers": 2, "layer_types": tiny.MIXED[-2:]},
    "qwen3": {"num_hidden_layers": 1, "layer_types": ["full_attention"]},  # the interpreter has had enough
    DELTA: SMALL,
}


def fresh(name: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """The tiny model as transformers runs it."""
    return tiny.fresh(name, dtype, **CHANGES[name])


@cache
def prepared(name: str, kernels: bool = True) -> Prepared:
    """On Triton's kernels, else on torch's."""
    made = prepare(fresh(name), TRITON if kernels else TORCH)
    replaced = isinstance(made.model.get_decoder(), GpuDecoder) and isinstance(made.model.lm_head, GpuLinear)
    assert not kernels or (made.kernels.triton and replaced)
    return made


@cache
def delta_layer(dtype: torch.dtype = torch.bfloat16, name: str = DELTA, **more: Any) -> DeltaLayer:
    """A linear layer of a tiny hybrid with these changes."""
    model = tiny.fresh(name, dtype, **{**SMALL, **more})
    fix_linear_layers(model)
    return next(module for module in model.modules() if isinstance(module, DeltaLayer))


def delta_rows(layer: DeltaLayer, num: int) -> Rows:
    s, generator = layer.shape, torch.Generator().manual_seed(0)
    sizes = (s.conv_dim, s.num_value_heads * s.value_dim, s.num_value_heads, s.num_value_heads)
    rows = (torch.randn(num, size, generator=generator).to(layer.dt_bias.dtype) for size in sizes)
    return tuple(rows)  # type: ignore[return-value]


def delta_rings(layer: DeltaLayer, num_states: int = 27) -> tuple[Tensor, Tensor]:
    """States and inputs, full of what must have no influence."""
    states, inputs = layer.shape.ring_sizes(num_states)
    return torch.full(states, torch.nan), torch.full(inputs, torch.nan, dtype=layer.dt_bias.dtype)
