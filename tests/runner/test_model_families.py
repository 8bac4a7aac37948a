"""Which models are served: right, or refused in words; never another model than the one named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from engine.core.errors import RaceError, UnsupportedModel
from engine.layers.decoder import FusedDecoder
from engine.loading.random_targets import ENDS
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers.tiny import BASE, CONFIGS, DELTA, LENGTH, NAMES, ROPE, WINDOW, build, prepared, random_ids

# Wider than the comparison with the stock model that `prepare` makes: what it does not see must be known otherwise.
LONG_WINDOW = 32
SMALL = {**{k: v for k, v in BASE.items() if k != "head_dim"}, "vocab_size": 256}
SLIDING = {**SMALL, "sliding_window": LONG_WINDOW}
HEADS = {**SLIDING, "head_dim": 16}
EXPERTS = {**SLIDING, "num_local_experts": 2, "num_experts_per_tok": 1}
OTHER = {"vocab_size": 256, "n_layer": 2, "n_head": 4}
YARN = {**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
DYNAMIC = {**ROPE, "rope_type": "dynamic", "factor": 4.0}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
ROUTED = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
HYBRIDS = {**DELTA, "vocab_size": 256}
GATED = {**HYBRIDS, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
NEXT_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": []}
MAMBA = {**BASE, "attn_layer_indices": [1], "vocab_size": 256, "mamba_n_heads": 8, "mamba_d_state": 16}
OLMO = ["sliding_attention", "sliding_attention", "full_attention"]
PER_LAYER = {"vocab_size_per_layer_input": 256, "hidden_size_per_layer_input": 8}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cohere": ("CohereForCausalLM", "CohereConfig", SMALL),
    "deepseek v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", SMALL | LATENT | ROUTED | {"num_key_value_heads": 4}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**SMALL, "head_dim": 16}),
    "gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", HEADS),
    "gemma 2 without a cap in its attention": (
        "Gemma2ForCausalLM", "Gemma2Config", {**HEADS, "attn_logit_softcapping": None}),
    "gemma 3 with a cap on its logits": (
        "Gemma3ForCausalLM", "Gemma3TextConfig", {**HEADS, "final_logit_softcapping": 30.0}),
    "gemma 4": ("Gemma4ForCausalLM", "Gemma4TextConfig", HEADS | PER_LAYER),
    "gpt-oss": ("GptOssForCausalLM", "GptOssConfig", {**HEADS, **EXPERTS, "rope_parameters": ROPE}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**OTHER, "n_embd": 64, "bos_token_id": None, "eos_token_id": None}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {**SMALL, "logits_scaling": 8.0}),
    "llama, dynamic rope": ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "rope_parameters": DYNAMIC}),
    "llama, yarn": ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "rope_parameters": YARN}),
    "afmoe": ("AfmoeForCausalLM", "AfmoeConfig", {**HEADS, "num_dense_layers": 3, "num_hidden_layers": 3}),
    "bamba": ("BambaForCausalLM", "BambaConfig", MAMBA),
    "bloom": ("BloomForCausalLM", "BloomConfig", {**OTHER, "hidden_size": 64}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", EXPERTS),
    "modernbert decoder": ("ModernBertDecoderForCausalLM", "ModernBertDecoderConfig", SMALL | dict.fromkeys(ENDS, 0)),
    "olmo hybrid": ("OlmoHybridForCausalLM", "OlmoHybridConfig", HYBRIDS),
    "olmo 3": ("Olmo3ForCausalLM", "Olmo3Config", {**SLIDING, "layer_types": OLMO}),
    "persimmon": ("PersimmonForCausalLM", "PersimmonConfig", SMALL),
    "phi 3": ("Phi3ForCausalLM", "Phi3Config", SLIDING),
    "phi moe": ("PhimoeForCausalLM", "PhimoeConfig", EXPERTS),
    "qwen 2": ("Qwen2ForCausalLM", "Qwen2Config", SLIDING | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen 3 next with experts": (
        "Qwen3NextForCausalLM", "Qwen3NextConfig", {**HYBRIDS, **NEXT_EXPERTS, "shared_expert_intermediate_size": 32}),
    "qwen 3.5": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", GATED),
    "qwen 3.5 with biases": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {**GATED, "attention_bias": True}),
    "qwen 3.5, turned whole": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {**GATED, "partial_rotary_factor": 1.0}),
    "qwen 3.5, other heads": (
        "Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {**GATED, "head_dim": 24, "num_key_value_heads": 4}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", SMALL),
}  # fmt: skip
REFUSED = {"gemma 2": "softcap", "gpt-oss": "attention sinks", "llama, dynamic rope": "dynamic", "bloom": "interface"}
REFUSED |= {"olmo hybrid": "linear attention in layer 0 of a kind", "bamba": "Bamba", "deepseek v3": "latent"}
REFUSED["modernbert decoder"] = "output layer"
SERVED = {"cohere", "gemma", "gemma 3 with a cap on its logits", "gpt2", "granite", "llama, yarn", "mixtral", "olmo 3"}
SERVED |= {"afmoe", "phi 3", "qwen 2", *(family for family in FAMILIES if family.startswith("qwen 3"))}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_model_is_served_right_or_refused_in_words(family):
    """A model that does something this engine ignores would be raced as another model; or the refusal would be a
    traceback."""
    name, config, settings = FAMILIES[family]
    model = build(getattr(transformers, name), getattr(transformers, config)(**settings))
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
    """Preparing would refuse, read another cache shape off the configuration, or fuse no layers, so that every step
    costs nearly twice as much."""
    config_ = CONFIGS[name][1]
    shape = prepared(name).shape
    assert (shape.num_layers, shape.num_kv_heads, shape.head_dim) == (
        config_.num_hidden_layers,
        config_.num_key_value_heads,
        config_.head_dim,
    )
    assert shape.groups * shape.num_kv_heads == config_.num_attention_heads
    assert (WINDOW in shape.windows) == (name in ("gemma3", "mistral"))
    assert isinstance(prepared(name).model.get_decoder(), FusedDecoder)


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


@pytest.mark.parametrize("where", ["everywhere", "at the first token", "in the engine's steps"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_not_a_number_is_named_before_a_race(dtype, where):
    """NaN is above no limit: the model would race, and its lanes fail; or be refused for another reason, or without the
    dtype to choose. The largest numbers of many models come of the token that begins every text."""
    model = build(*CONFIGS["llama"], getattr(torch, dtype))
    model.config.bos_token_id = 3
    layer, stock_forward = model.model.layers[1].self_attn, model.model.layers[1].self_attn.forward
    if where == "at the first token":
        model.get_input_embeddings().weight.data[3] = torch.nan
    elif where == "everywhere":
        model.model.layers[1].mlp.down_proj.weight.data.fill_(torch.inf)
    else:
        layer.forward = lambda *given, **more: (
            stock_forward(*given, **more)[0] * (torch.nan if "state" in more else 1),
            None,
        )
    advice = "choose dtype float32 or bfloat16" if dtype == "float16" else "damaged|those of the stock model are"
    with pytest.raises(RaceError, match=rf"{dtype}: the model's logits are not numbers \(NaN\).*({advice})"):
        prepare(model)


def test_words_that_a_model_leaves_out_are_no_fault():
    """A masked vocabulary would be called damaged weights: the difference of two infinities is NaN."""
    model = build(*CONFIGS["llama"])
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(model.lm_head.out_features))
    model.lm_head.bias.data[-3:] = -torch.inf
    rows = StaticTarget(prepare(model), LENGTH, (8,)).extend(random_ids(8, 200), 8)[0]
    assert rows.isneginf().sum(-1).tolist() == [3] * 8
