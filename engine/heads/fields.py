"""The fields of a published configuration that this engine acts on. A field that would change a head's arithmetic in an
unsupported way is refused by name, never ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError

ANY: Any = object()
QUANTIZATION: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
        }
    },
}
"""8-bit matrices with a scale per row, see `compact.py`."""
SPECULATORS = dict.fromkeys((
    *("architectures", "auto_map", "aux_hidden_state_layer_ids", "block_size", "draft_vocab_size", "dtype",
      "eagle_aux_hidden_state_layer_ids", "embed_requires_grad", "fc_norm"),
    *("has_no_defaults_at_init", "mask_token_id", "norm_before_fc", "norm_before_residual", "norm_output",
      "sample_from_anchor", "sliding_window_non_causal", "torch_dtype"),
    *("speculators_config", "speculators_model_type", "speculators_version", "target_hidden_size",
      "tie_word_embeddings", "transformer_layer_config"),
), ANY) | {"quantization_config": QUANTIZATION}  # fmt: skip
EAGLE_CONFIG = dict.fromkeys(
    ("eagle_aux_hidden_state_layer_ids", "norm_before_fc", "has_lm_head", "parallel_draft_heads_num_layers"), ANY
) | {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "next_layer_regular": True,
    "use_mtp_layernorm": False,
    "parallel_draft_step": 1,
}
DFLASH_CONFIG = dict.fromkeys((
    "mask_token", "mask_token_id", "target_layer_ids", "block_size", "causal", "input_embedding_scale",
    "output_multiplier", "final_logit_softcapping",
), ANY) | {
    "use_aux_hidden_state": True, "use_qk_norm": True, "use_swa": False, "attention_sink_bias": False,
}  # fmt: skip
"""Name -> the required value, or ANY if it is read."""

_OWN = frozenset((
    *("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "is_causal", "block_size", "mask_token_id",
      "target_layer_ids", "draft_vocab_size", "num_target_layers"),
    *("target_hidden_size", "input_embedding_scale", "output_multiplier", "final_logit_softcapping",
      "eagle_aux_hidden_state_layer_ids", "mlp_bias", "sliding_window"),
))  # fmt: skip
_NOT_THE_LAYERS = ("architectures", "auto_map", "dflash_config", "eagle_config", "dtype", "torch_dtype",
                   "transformers_version", "tie_word_embeddings")  # fmt: skip
_ARITHMETIC = re.compile(
    r"scal|softcap|multiplier|norm|sink|bias|rotary|rope|causal|expert|moe|quant|swa|mask|projector|conv|kernel|gate|"
    r"selector|markov|parallel|shift|lora"
)
_FIXED_ROPE = ("default", "linear", "llama3", "yarn")


def check_fields(where: str, values: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise UsageError for the first of `values` that is not `known`, or does not have its required value; null, false
    and empty count as absent."""
    for name, value in values.items():
        wanted = known.get(name)
        if wanted is ANY or value in (None, "", [], {}) or value == wanted or (wanted is None and not value):
            continue
        raise UsageError(
            f"the head's {where} sets {name} to {value!r}, which this engine does not do"
            + ("" if wanted is None else f"; it does {wanted!r}")
        )


def layers_config(values: Mapping[str, Any], kind: str) -> Any:
    """A transformers configuration of the head's decoder layers: Llama's, or Qwen3's. Raises UsageError for other
    layers, and for fields that change what these compute."""
    from transformers import LlamaConfig, PretrainedConfig, Qwen3Config

    named = values.get("model_type") or "llama"
    if named not in ("llama", "qwen3"):
        raise UsageError(f"the head has layers of type {named!r}; this engine does llama and qwen3")
    config_class: Any = Qwen3Config if kind == "dflash" or named == "qwen3" else LlamaConfig
    kept = {name: value for name, value in values.items() if name not in _NOT_THE_LAYERS and name != "model_type"}
    own = {*vars(config_class()), *config_class.__annotations__, *PretrainedConfig().to_dict(), *_OWN}
    own |= {"rope_theta", "rope_scaling"}
    for name, value in kept.items():
        neutral = not value or (value == 1 and value is not True)
        if name not in own and _ARITHMETIC.search(name) and not neutral:
            raise UsageError(f"the head's config.json sets {name} to {value!r}, which this engine does not do")
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(kept.get(name), Mapping):
            kept[name] = _rope(kept[name])
    config = config_class(**kept)
    _check(config)
    return config


def _rope(values: Mapping[str, Any]) -> dict[str, Any]:
    """One set of angles for all layers: of several, the sliding layers', as the speculators package trains. For text,
    mrope is plain RoPE: its three positions are equal."""
    for name in ("sliding_attention", "full_attention"):
        if isinstance(values.get(name), Mapping):
            values = values[name]
            break
    rope = dict(values)
    kind = rope.pop("type", None)
    kind = rope.get("rope_type", kind) or "default"
    if kind not in ("mrope", *_FIXED_ROPE):
        raise UsageError(
            f"the head uses {kind} RoPE; this engine does {', '.join(_FIXED_ROPE)}, whose angles do not depend on "
            "the length so far"
        )
    rope["rope_type"] = "default" if kind == "mrope" else kind
    return rope


def _check(config: Any) -> None:
    from transformers.activations import ACT2FN

    if config.hidden_act not in ACT2FN:
        raise UsageError(f"the head's hidden_act is {config.hidden_act!r}, which transformers does not know")
    share = config.rope_parameters.get("partial_rotary_factor")
    if share not in (None, 1):
        raise UsageError(
            f"the head sets partial_rotary_factor to {share!r}; this engine rotates all of a head's dimensions"
        )
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    if unknown := sorted(set(types) - {"full_attention", "sliding_attention"}):
        raise UsageError(
            f"the head has layers of type {unknown[0]!r}; this engine does full_attention and sliding_attention"
        )
    if len(types) != config.num_hidden_layers:
        raise UsageError(f"the head's layer_types has {len(types)} entries for {config.num_hidden_layers} layers")
    if "sliding_attention" in types and not (isinstance(config.sliding_window, int) and config.sliding_window > 0):
        raise UsageError(f"the head has sliding layers, but its sliding_window is {config.sliding_window!r}")
    if config.num_hidden_layers < 1 or config.num_attention_heads % config.num_key_value_heads:
        raise UsageError(
            f"the head's {config.num_hidden_layers} layers of {config.num_attention_heads} heads over "
            f"{config.num_key_value_heads} make no sense"
        )
