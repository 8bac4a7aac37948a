"""Models and heads of published shapes with random weights: how long they take does not depend on the values."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.heads.dflash import DFlashHead
from engine.heads.eagle3 import Eagle3Head
from engine.heads.head_spec import HeadSpec
from engine.loading.random_targets import shipped_config
from engine.training.new_head import TargetWeights, default_layers, new_spec, save_head
from tools.gpu.part import Part

TARGET, HYBRID, DRAFT = "Qwen/Qwen3-8B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3-0.6B"
HEAD_DIM, KV_HEADS, EAGLE3_WORDS, DFLASH_LAYERS, DFLASH_BLOCK = 128, 8, 32_000, 5, 16  # the published heads' sizes
_TINY = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 256, "head_dim": 16}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
_LAYERS = {"layer_types": ["linear_attention", "full_attention"], "rope_parameters": {"rope_theta": 1e6}}
_LINEAR = {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
# What a dry run overrides in the published configurations.
SMALL = {TARGET: _TINY | _HEADS, DRAFT: _TINY | _HEADS, HYBRID: _TINY | _HEADS | _LAYERS | _LINEAR}


def target(part: Part, name: str, **changes: Any) -> str:
    """What `load` takes for random weights of that shape, or of a tiny one like it, with these changes."""
    if not (changes or part.small):
        return f"random:{name}"
    folder = part.scratch / f"{name.replace('/', '--')}-{len(changes)}"
    folder.mkdir(exist_ok=True)
    config = shipped_config(name) | (SMALL[name] if part.small else {}) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return f"random:{folder}"


def head(part: Part, loaded: Any, kind: str) -> Path:
    """A folder with a head for that model: "eagle3" or "dflash", of the published heads' size, random weights."""
    folder = part.scratch / kind
    if folder.exists():
        return folder
    model = TargetWeights.of(loaded.model)
    (vocab_size, size), num_layers = model.output.shape, model.config.num_hidden_layers
    spec = new_spec(model.config.intermediate_size, model, default_layers(num_layers))
    num_heads = max(1, size // HEAD_DIM)
    kv_heads = min(KV_HEADS, num_heads)
    layers = replace(spec.layers, head_dim=HEAD_DIM, num_attention_heads=num_heads, num_key_value_heads=kv_heads)
    spec = replace(spec, layers=layers)
    if kind == "dflash":
        num = 1 if part.small else DFLASH_LAYERS
        reads = tuple(sorted({1 + i * (num_layers - 2) // max(1, num - 1) for i in range(num)}))
        layers = replace(layers, model_type="qwen3", num_hidden_layers=num, layer_types=("full_attention",) * num)
        block: dict[str, Any] = {"block_size": DFLASH_BLOCK, "mask_token_id": 4}
        spec = HeadSpec("dflash", layers, reads, **block, causal=(False,) * num)
    made: Any
    with torch.device("cpu" if part.small else "cuda"):
        if kind == "eagle3":
            made = Eagle3Head(spec, size, min(EAGLE3_WORDS, vocab_size // 2))
            made.target_ids = torch.arange(made.lm_head.out_features)
        else:
            made = DFlashHead(spec, size, None)
        made = made.to(torch.bfloat16)
        for parameter in made.parameters():
            parameter.data.normal_(std=0.02)
    save_head(made, folder, loaded.info.name, DFLASH_BLOCK - 1)
    return folder
