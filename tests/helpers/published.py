"""Configurations of published models, as their owners wrote them (from memory, without what no code reads), and tiny
random models of the same architecture."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from engine.loading.random_targets import CONFIGS, read_published
from tests.helpers import FIXTURES

PUBLISHED: dict[str, dict[str, Any]] = {
    path.stem.replace("--", "/", 1): read_published(path)
    for folder in (CONFIGS, FIXTURES / "published")
    for path in sorted(folder.glob("*.json"))
}
# A tiny model's sizes: what makes an architecture stays as it is. Positions beyond the original ones come soon.
SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "head_dim": 16, "global_head_dim": 32,
    "num_attention_heads": 4, "num_global_key_value_heads": 1, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "experts_per_token": 2, "top_k_experts": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "vocab_size": 2048,
    "vocab_size_per_layer_input": 2048, "query_pre_attn_scalar": 16, "time_step_rank": 8, "n_layer": 4, "depth": 1,
    "num_heads": 4, "out_hidden_size": 64, "image_size": 28, "original_max_position_embeddings": 128,
}  # fmt: skip
SOME_LAYERS, WORD = 3, 2000


def tiny(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same architecture with few layers, at least one of each type, and small ones."""
    made = copy.deepcopy(dict(config))
    for name, value in config.items():
        if name.endswith("_config") and isinstance(value, Mapping) and name != "quantization_config":
            made[name] = tiny(value)
        elif name in SIZES and value is not None:
            made[name] = SIZES[name]
        elif name == "num_key_value_heads":
            made[name] = max(1, value * SIZES["num_attention_heads"] // config["num_attention_heads"])
        elif name.endswith(("token_id", "token_index")):
            made[name] = None if name.startswith(("bos", "eos", "pad")) else WORD
        elif name in ("rope_scaling", "rope_parameters") and value:
            made[name] = {**value, **{key: value[key][:8] for key in ("long_factor", "short_factor") if key in value}}
            if "mrope_section" in value:
                made[name]["mrope_section"] = [1, 1, 0]
    if types := config.get("layer_types"):
        made["layer_types"] = types[: max(SOME_LAYERS, *(types.index(kind) + 1 for kind in types))]
    if "num_hidden_layers" in config:
        made["num_hidden_layers"] = len(made.get("layer_types") or range(SOME_LAYERS))
    return made


def without_memory(config: Mapping[str, Any]) -> PreTrainedModel:
    """transformers' model of that configuration, on no device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(_config(config), dtype=torch.bfloat16)


def random_model(config: Mapping[str, Any]) -> PreTrainedModel:
    """A tiny model of that architecture, its weights drawn large enough that logits spread."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(_config(tiny(config)), dtype=torch.float32)
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.15)
    return model.eval()


def _config(raw: Mapping[str, Any]) -> Any:
    kept = {name: value for name, value in raw.items() if name != "quantization_config"}
    config = CONFIG_MAPPING[raw["model_type"]].from_dict(kept)
    for part in (config, config.get_text_config()):
        part.bos_token_id = part.eos_token_id = part.pad_token_id = None
    return config


def of_text(model: PreTrainedModel) -> int:
    """Weights of its language model."""
    return sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if "vision" not in name and "multi_modal" not in name
    )
