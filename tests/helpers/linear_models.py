"""Tiny random hybrids with linear attention, and what their tests share."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from tests.helpers.dispatch import bits
from tests.helpers.tiny import BASE, DTYPES, LENGTH, build

WIDTHS = (1, 2, 4, 8)
VOCAB = 2048  # the trained fixture's, whose tokenizer the races borrow
HYBRID = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen3_5": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {}),
    "qwen3_next": ("Qwen3NextForCausalLM", "Qwen3NextConfig", {"mlp_only_layers": [0, 1, 2, 3]}),
}
NAMES = tuple(KINDS)
names, dtypes = st.sampled_from(NAMES), st.sampled_from(DTYPES)


def fresh(name: str, dtype: torch.dtype = torch.float32, seed: int = 0, **more: Any) -> PreTrainedModel:
    """A random hybrid whose states remember: its heads forget a few tenths a token at most, as a random one's would
    not."""
    model_class, config_class, own = KINDS[name]
    settings_ = {
        **BASE,
        **LINEAR,
        **own,
        "num_hidden_layers": 4,
        "layer_types": HYBRID,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        **more,
    }
    model = build(getattr(transformers, model_class), getattr(transformers, config_class)(**settings_), dtype, seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if key.endswith("A_log"):
                weight.copy_(torch.linspace(0.002, 0.3, len(weight)).log())
    return model


@cache
def prepared(name: str, dtype: torch.dtype = torch.float32) -> Prepared:
    return prepare(fresh(name, dtype))


def target_of(name: str, dtype: torch.dtype = torch.float32, length: int = LENGTH, **more: Any) -> StaticTarget:
    return StaticTarget(prepared(name, dtype), length, WIDTHS, **more)


def memory(target: StaticTarget) -> list[Tensor]:
    """All that a target remembers of its tokens: states and last inputs at the pointer, keys and values before it."""
    linear = target.prepared.shape.linear
    assert linear is not None
    return target.states() + [
        side[:, :, : target.length].clone()
        for i, layer in enumerate(target.kv)
        if i not in linear.layers
        for side in layer
    ]


def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) > 0 and all(
        torch.equal(bits(a), bits(b)) for a, b in zip(ours, theirs, strict=True)
    )
