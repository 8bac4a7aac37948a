"""Tiny random models of many families, served or refused."""

from typing import Any

import torch
import transformers

from engine.loading.random_targets import ENDS
from tests.helpers.tiny import BASE, DELTA, ROPE, build

# Wider than the comparison with the stock model that `prepare` makes: what it does not see must be known otherwise.
LONG_WINDOW = 32
SMALL = {**{k: v for k, v in BASE.items() if k != "head_dim"}, "vocab_size": 256}
SLIDING = {**SMALL, "sliding_window": LONG_WINDOW}
HEADS = {**SLIDING, "head_dim": 16}
EXPERTS = {**SLIDING, "num_local_experts": 2, "num_experts_per_tok": 1}
OTHER = {"vocab_size": 256, "n_layer": 2, "n_head": 4}
YARN = {**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
DYNAMIC = {**ROPE, "rope_type": "dynamic", "factor": 4.0}
LONG = {**ROPE, "rope_type": "longrope", "original_max_position_embeddings": 256}
LONG |= {"short_factor": [1.0 + i / 10 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
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
    "gpt-oss": (
        "GptOssForCausalLM", "GptOssConfig", {**HEADS, **EXPERTS, "rope_parameters": {**YARN, "truncate": False}}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**OTHER, "n_embd": 64, "bos_token_id": None, "eos_token_id": None}),
    "gpt neo": (
        "GPTNeoForCausalLM", "GPTNeoConfig", {
            "vocab_size": 256, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]],
            "bos_token_id": None, "eos_token_id": None}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {**SMALL, "logits_scaling": 8.0}),
    "granite with sinks": ("GraniteSWAForCausalLM", "GraniteSWAConfig", SLIDING),
    "hunyuan with experts": (
        "HunYuanMoEV1ForCausalLM", "HunYuanMoEV1Config", {**SMALL, "num_experts": 2, "moe_topk": 1, "head_dim": 16}),
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
    "phi 3, long": ("Phi3ForCausalLM", "Phi3Config", {**SLIDING, "rope_parameters": LONG}),
    "phi moe, long": (
        "PhimoeForCausalLM", "PhimoeConfig",
        {**EXPERTS, "rope_parameters": {**LONG, "short_mscale": 1.1, "long_mscale": 1.3}}),
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


def of_family(name: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    model, config, own = FAMILIES[name]
    return build(getattr(transformers, model), getattr(transformers, config)(**{**own, **settings}), dtype)
