"""Tiny random hybrids with linear attention, and what their tests share."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from engine.target.target import PREFILL_CHUNK, StaticTarget
from tests.helpers.dispatch import bits
from tests.helpers.tiny import BASE, DTYPES, LENGTH, build, random_ids

WIDTHS = (1, 2, 4, 8)
VOCAB = 2048
"""The trained fixture's, whose tokenizer the races borrow."""
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


@cache
def stock_rows(name: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[list[int], Tensor, Tensor]:
    """(ids, transformers' logits [num, vocab], all its hidden states side by side)."""
    ids = random_ids(PREFILL_CHUNK + 60, VOCAB, seed)
    with torch.inference_mode():
        out = fresh(name, dtype)(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    return ids, out.logits[0].float(), torch.cat([h[0] for h in out.hidden_states], -1)


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


# The stock model's logits
