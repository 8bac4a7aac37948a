"""Random draft heads of any shape for formats/target: their configurations and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.helpers.head_fixtures import SIZE, VOCAB

LAYERS: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": SIZE,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "vocab_size": VOCAB,
    "rope_theta": 10_000.0,
    "attention_bias": False,
}
EAGLE3: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "eagle_aux_hidden_state_layer_ids": [2, 3, 4],
    "draft_vocab_size": 96,
    "norm_before_residual": True,
}
DFLASH: dict[str, Any] = {
    "speculators_model_type": "dflash",
    "aux_hidden_state_layer_ids": [2, 3, 4],
    "draft_vocab_size": VOCAB,
    "block_size": 8,
    "mask_token_id": 511,
}


def layer_tensors(
    config: Mapping[str, Any], index: int, in_size: int, qk_norm: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    size, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    num_q, num_kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    for name, shape in (
        ("q_proj", (num_q, in_size)),
        ("k_proj", (num_kv, in_size)),
        ("v_proj", (num_kv, in_size)),
        ("o_proj", (size, num_q)),
    ):
        yield f"layers.{index}.self_attn.{name}.weight", shape
        if config["attention_bias"]:
            yield f"layers.{index}.self_attn.{name}.bias", shape[:1]
    if qk_norm:
        yield from ((f"layers.{index}.self_attn.{name}_norm.weight", (dim,)) for name in "qk")
    yield from (
        (f"layers.{index}.mlp.{name}_proj.weight", shape)
        for name, shape in (("gate", (inner, size)), ("up", (inner, size)), ("down", (size, inner)))
    )
    yield from ((f"layers.{index}.{name}_layernorm.weight", (size,)) for name in ("input", "post_attention"))


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    """Random tensors, drawn so that logits spread."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        out[name] = 1 + 0.3 * noise if "norm" in name else noise * (0.3 if len(shape) == 1 else shape[-1] ** -0.5 * 1.5)
    return out


def table(num_rows: int, vocab_size: int = VOCAB, seed: int = 3) -> dict[str, Tensor]:
    """d2t and t2d of a random reduced vocabulary."""
    ids = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(seed))[:num_rows].sort().values
    return {
        "d2t": ids - torch.arange(num_rows),
        "t2d": torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids, True),
    }


def eagle3_tensors(
    layers: Mapping[str, Any], config: Mapping[str, Any], *, qk_norm: bool = False, own: int = 0
) -> dict[str, Tensor]:
    """A random EAGLE-3 head; own: rows of an embedding of its own."""
    size, num_aux = layers["hidden_size"], len(config["eagle_aux_hidden_state_layer_ids"])
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (size, num_aux * SIZE),
        "norm.weight": (size,),
        "lm_head.weight": (config["draft_vocab_size"], size),
        "layers.0.hidden_norm.weight": (size,),
    }
    for i in range(layers["num_hidden_layers"]):
        shapes |= dict(layer_tensors(layers, i, size if i else 2 * size, qk_norm))
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (num_aux * SIZE,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{i}.weight": (SIZE,) for i in range(num_aux)}
    if own:
        shapes["embed_tokens.weight"] = (own, size)
    return {**drawn(shapes), **(table(config["draft_vocab_size"]) if config["draft_vocab_size"] < VOCAB else {})}


def dflash_tensors(layers: Mapping[str, Any], config: Mapping[str, Any], *, own: int = 0) -> dict[str, Tensor]:
    """A random DFlash head, with an lm_head of its own where its vocabulary is reduced; own: rows of an embedding of
    its own."""
    size, num_aux = (
        layers["hidden_size"],
        len(config.get("aux_hidden_state_layer_ids") or config["dflash_config"]["target_layer_ids"]),
    )
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (size, num_aux * SIZE),
        "norm.weight": (size,),
        "hidden_norm.weight": (size,),
    }
    for i in range(layers["num_hidden_layers"]):
        shapes |= dict(layer_tensors(layers, i, size, True))
    num_rows = config.get("draft_vocab_size", VOCAB)
    if num_rows < VOCAB:
        shapes["lm_head.weight"] = (num_rows, size)
    if own:
        shapes["embed_tokens.weight"] = (own, size)
    return {**drawn(shapes), **(table(num_rows) if num_rows < VOCAB else {})}


SPECULATORS = {
    "eagle3": {**EAGLE3, "transformer_layer_config": LAYERS},
    "dflash": {**DFLASH, "transformer_layer_config": {**LAYERS, "model_type": "qwen3"}},
}
# A random head of each kind for formats/target.
TENSORS = {"eagle3": eagle3_tensors(LAYERS, EAGLE3), "dflash": dflash_tensors(LAYERS, DFLASH)}
ORIGINAL = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 128, **LAYERS}
ZLAB = {
    "architectures": ["DFlashDraftModel"],
    **LAYERS,
    "model_type": "qwen3",
    "block_size": 8,
    "dflash_config": {"mask_token_id": 511, "target_layer_ids": [1, 2, 3]},
}
SLIDING = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
    "use_sliding_window": True,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
BY_KIND = {"sliding_attention": {"rope_theta": 500.0}, "full_attention": {"rope_theta": 9e4}}
PLAIN = {"rope_parameters": {"rope_theta": 500.0}}
EAGLE3_FORMS = {
    "speculators": {},
    "residual after the norm": {"config": {"norm_before_residual": False}},
    "one norm before fc": {"config": {"norm_before_fc": True}},
    "a norm for each state": {"config": {"fc_norm": True}},
    "fed back after the norm": {"config": {"norm_output": True}},
    "two states": {"config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}},
    "embeddings and the last state": {"config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 6]}},
    "two layers": {"layers": {"num_hidden_layers": 2}},
    "normed queries": {"qk_norm": True},
    "qwen3 layers": {"layers": {"model_type": "qwen3"}, "qk_norm": True},
    "biases": {"layers": {"attention_bias": True}},
    "wide heads": {"layers": {"head_dim": 32}},
    "another theta": {"layers": {"rope_theta": 500.0}},
    "llama3 angles": {"layers": {"rope_scaling": LLAMA3}},
    "mrope, which is plain for text": {"layers": {"rope_scaling": MROPE}, "dense": {"rope_scaling": None}},
    "angles by kind of layer": {"layers": {"rope_parameters": BY_KIND}, "dense": PLAIN},
    "sliding layers": {"layers": {**SLIDING, "sliding_window": 5}, "qk_norm": True},
    "its own embedding": {"own": VOCAB},
    "another width": {"layers": {"hidden_size": 48}, "own": VOCAB},
    "a padded embedding": {"own": VOCAB + 40},
    "the whole vocabulary": {"config": {"draft_vocab_size": VOCAB}},
    "the target's output layer": {"config": {"draft_vocab_size": VOCAB}, "without": ["lm_head.weight"]},
    "no d2t": {"without": ["d2t"]},
    "no t2d": {"without": ["t2d"]},
}
ZLAB_CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 8,
    "dflash_config": {"mask_token_id": 511, "target_layer_ids": [1, 2, 3]},
}
DFLASH_FORMS = {
    "speculators": {},
    "three layers": {"layers": {"num_hidden_layers": 3}},
    "sliding": {"layers": SLIDING, "causal": (True, False)},
    "sliding, bidirectional": {"layers": SLIDING, "config": {"sliding_window_non_causal": True}},
    "from the anchor": {"config": {"sample_from_anchor": True}},
    "from the anchor, sliding": {"layers": SLIDING, "config": {"sample_from_anchor": True}, "causal": (True, False)},
    "all causal": {"option": "#causal", "causal": (True, True)},
    "sliding, all bidirectional": {"layers": SLIDING, "option": "#bidirectional"},
    "a reduced vocabulary": {"config": {"draft_vocab_size": 96}},
    "its own embedding": {"own": VOCAB},
    "another width": {"layers": {"hidden_size": 48}, "own": VOCAB, "config": {"draft_vocab_size": 96}},
    "biases": {"layers": {"attention_bias": True}},
    "z-lab": {"zlab": {}},
    "z-lab, sliding": {"zlab": {}, "layers": SLIDING, "causal": (True, False)},
    "z-lab, sliding, bidirectional": {"zlab": {"is_causal": False}, "layers": SLIDING},
    "z-lab, causal": {"zlab": {"is_causal": True}, "causal": (True, True)},
    "z-lab, causal inside": {
        "zlab": {"dflash_config": {**ZLAB_CONFIG["dflash_config"], "causal": True}},
        "causal": (True, True),
    },
    "z-lab, by default layers": {
        "zlab": {"dflash_config": {"mask_token_id": 511}},
        "layers": {"num_hidden_layers": 3},
        "aux": [2, 3, 4],
    },
    "z-lab, scaled and capped": {
        "zlab": {"input_embedding_scale": 8.0, "output_multiplier": 0.5, "final_logit_softcapping": 2.0}
    },
}
