"""Which models are served: right, or refused in words; never another model than the one named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from engine.errors import UnsupportedModel
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.tiny import BASE, CONFIGS, LENGTH, NAMES, ROPE, WINDOW, build, prepared, random_ids


def config(name: str, **more: Any) -> Callable[[], Any]:
    return lambda: getattr(transformers, name)(
        **{**{k: v for k, v in BASE.items() if k != "head_dim"}, "vocab_size": 256, **more}
    )


EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
LONG_WINDOW = 32
"""Wider than the comparison with the stock model that `prepare` makes: what it does not see must be known otherwise."""
FAMILIES: dict[str, tuple[str, Callable[[], Any]]] = {
    "cohere": ("CohereForCausalLM", config("CohereConfig")),
    "deepseek v3": (
        "DeepseekV3ForCausalLM",
        config(
            "DeepseekV3Config",
            num_key_value_heads=4,
            kv_lora_rank=16,
            q_lora_rank=32,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=16,
            n_routed_experts=4,
            n_group=1,
            topk_group=1,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
        ),
    ),
    "gemma": ("GemmaForCausalLM", config("GemmaConfig", head_dim=16)),
    "gemma 2": ("Gemma2ForCausalLM", config("Gemma2Config", head_dim=16, sliding_window=LONG_WINDOW)),
    "gemma 2 without a cap in its attention": (
        "Gemma2ForCausalLM",
        config("Gemma2Config", head_dim=16, sliding_window=LONG_WINDOW, attn_logit_softcapping=None),
    ),
    "gemma 3 with a cap on its logits": (
        "Gemma3ForCausalLM",
        config("Gemma3TextConfig", head_dim=16, sliding_window=LONG_WINDOW, final_logit_softcapping=30.0),
    ),
    "gemma 4": (
        "Gemma4ForCausalLM",
        config(
            "Gemma4TextConfig",
            head_dim=16,
            sliding_window=LONG_WINDOW,
            vocab_size_per_layer_input=256,
            hidden_size_per_layer_input=8,
        ),
    ),
    "gpt-oss": (
        "GptOssForCausalLM",
        config("GptOssConfig", head_dim=16, sliding_window=LONG_WINDOW, rope_parameters=ROPE, **EXPERTS),
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        lambda: transformers.GPT2Config(
            vocab_size=256, n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None
        ),
    ),
    "granite": ("GraniteForCausalLM", config("GraniteConfig", logits_scaling=8.0)),
    "llama, dynamic rope": (
        "LlamaForCausalLM",
        config("LlamaConfig", rope_parameters={**ROPE, "rope_type": "dynamic", "factor": 4.0}),
    ),
    "llama, yarn": (
        "LlamaForCausalLM",
        config(
            "LlamaConfig",
            rope_parameters={**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
        ),
    ),
    "bloom": (
        "BloomForCausalLM",
        lambda: transformers.BloomConfig(vocab_size=256, hidden_size=64, n_layer=2, n_head=4),
    ),
    "mixtral": ("MixtralForCausalLM", config("MixtralConfig", sliding_window=LONG_WINDOW, **EXPERTS)),
    "olmo 3": (
        "Olmo3ForCausalLM",
        config(
            "Olmo3Config",
            sliding_window=LONG_WINDOW,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        ),
    ),
    "persimmon": ("PersimmonForCausalLM", config("PersimmonConfig")),
    "phi 3": ("Phi3ForCausalLM", config("Phi3Config", sliding_window=LONG_WINDOW)),
    "phi moe": ("PhimoeForCausalLM", config("PhimoeConfig", sliding_window=LONG_WINDOW, **EXPERTS)),
    "qwen 2": (
        "Qwen2ForCausalLM",
        config("Qwen2Config", use_sliding_window=True, sliding_window=LONG_WINDOW, max_window_layers=1),
    ),
    "stablelm": ("StableLmForCausalLM", config("StableLmConfig")),
}
SERVED = {
    "cohere",
    "gemma",
    "gemma 3 with a cap on its logits",
    "gpt2",
    "granite",
    "llama, yarn",
    "mixtral",
    "olmo 3",
    "phi 3",
    "qwen 2",
}
REFUSED = {"gemma 2": "softcap", "gpt-oss": "attention sinks", "llama, dynamic rope": "dynamic", "bloom": "interface"}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_model_is_served_right_or_refused_in_words(family):
    """A model that does something this engine ignores would be raced as another model; or the refusal would be a
    traceback."""
    name, make = FAMILIES[family]
    model = build(getattr(transformers, name), make())
    ids = random_ids(80, 200)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 40:]
    try:
        target = StaticTarget(prepare(model), LENGTH, (8,))
    except UnsupportedModel as error:
        assert family not in SERVED and REFUSED.get(family, "") in str(error) and name.partition("For")[0] in str(error)
        return
    assert family not in REFUSED
    target.extend(ids[:40], 0)
    rows = torch.cat([target.extend(ids[i : i + 8], 8)[0].clone() for i in range(40, 80, 8)])
    torch.testing.assert_close(rows, logits, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_the_promised_architectures_are_served(name):
    """Preparing would refuse, or read another cache shape off the configuration."""
    config_ = CONFIGS[name][1]
    shape = prepared(name).shape
    assert (shape.num_layers, shape.num_kv_heads, shape.head_dim) == (
        config_.num_hidden_layers,
        config_.num_key_value_heads,
        config_.head_dim,
    )
    assert shape.groups * shape.num_kv_heads == config_.num_attention_heads
    assert (WINDOW in shape.windows) == (name in ("gemma3", "mistral"))


def test_a_model_that_computes_otherwise_under_the_engine_is_refused():
    """What the comparison with the stock model is for: any layer that does something else once the engine owns the
    attention."""
    model = build(*CONFIGS["llama"])
    layer = model.model.layers[1].self_attn
    stock_forward = layer.forward

    def forward(*arguments: Any, **more: Any) -> Any:
        out, weights = stock_forward(*arguments, **more)
        return (out * 1.5 if "state" in more else out), weights

    layer.forward = forward
    with pytest.raises(UnsupportedModel, match=r"LlamaForCausalLM.*differ"):
        prepare(model)
