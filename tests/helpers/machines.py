"""Machines with a GPU whose pairs have all been checked."""

from typing import Any

from app.catalogue.catalogue import on_hub
from app.catalogue.fits import repository
from app.catalogue.machine import GIB, Machine
from engine.loading.random_targets import shipped_config

LAYER: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 1,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
}  # fmt: skip
EAGLE3: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 32000,
    "transformer_layer_config": LAYER,
}  # fmt: skip
DFLASH: dict[str, Any] = {
    **LAYER, "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5, "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 8, 15, 22, 29]},
}  # fmt: skip
# The form of AngelSlim's heads.
ORIGINAL: dict[str, Any] = {
    **LAYER, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "rope_theta": 1000000,
    "tie_word_embeddings": True,
}  # fmt: skip
HEADS: dict[str, dict[str, Any]] = {
    "AngelSlim/Qwen3-4B_eagle3": ORIGINAL | {"hidden_size": 2560, "intermediate_size": 9728},
    "AngelSlim/Qwen3-1.7B_eagle3": ORIGINAL
    | {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16},
}
CONFIGS: dict[str, Any] = {
    name: shipped_config(name) or HEADS.get(name) or (EAGLE3 if drafter.startswith("eagle3") else DFLASH)
    for target, drafter in on_hub()
    for name in (target, repository(drafter))
    if name
}  # the configurations that the hub has for the page's repositories; most heads are stood in for by one of that size


def with_gpu(gib: float, dtype: str = "bfloat16") -> Machine:
    """A machine whose GPU has so much free, runs weights of that dtype best, and that reaches the hub."""
    return Machine(gpu=True, gpu_bytes=int(gib * GIB), gpu_dtype=dtype, configs=CONFIGS)


SMALL, LARGE = Machine(), with_gpu(141.0)
