"""The fields of a published configuration that this engine acts on. A field that would change a head's arithmetic in an
unsupported way is refused by name, never ignored. Standard library only."""

import re
from collections.abc import Mapping
from typing import Any

from ..core.errors import UsageError
from .head_spec import FULL, SLIDING, LayerConfig

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
}  # 8-bit matrices with a scale per row, see `compact.py`
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
# Name -> the required value, or ANY if it is read.
DFLASH_CONFIG = dict.fromkeys((
    "mask_token", "mask_token_id", "target_layer_ids", "block_size", "causal", "input_embedding_scale",
    "output_multiplier", "final_logit_softcapping", "use_swa", "swa_window_size", "sample_from_anchor",
    "query_zero_predicts_next",
), ANY) | {"use_aux_hidden_state": True, "use_qk_norm": True, "attention_sink_bias": False}  # fmt: skip

# What transformers writes into every config.json.
USUAL = frozenset((
    *("_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label", "is_encoder_decoder",
      "label2id", "model_type"),
    *("output_attentions", "output_hidden_states", "problem_type", "return_dict", "transformers_version"),
))  # fmt: skip
# Fields about arithmetic that are acted on.
_OWN = frozenset((
    *("attention_bias", "mlp_bias", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta"),
    *("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "is_causal", "mask_token_id",
      "input_embedding_scale", "output_multiplier", "final_logit_softcapping"),
))  # fmt: skip
_SIZES: dict[str, dict[str, int]] = {
    "llama": {"vocab_size": 32_000, "intermediate_size": 11_008, "max_position_embeddings": 2048},
    "qwen3": {"vocab_size": 151_936, "intermediate_size": 22_016, "max_position_embeddings": 32_768, "head_dim": 128},
}
# What transformers assumes for a size that a configuration omits.
_ANY_SIZES = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "max_window_layers": 28}
_NOT_THE_LAYERS = ("architectures", "auto_map", "dflash_config", "eagle_config", "dtype", "torch_dtype",
                   "transformers_version", "tie_word_embeddings")  # fmt: skip
_ARITHMETIC = re.compile(
    r"scal|softcap|multiplier|norm|sink|bias|rotary|rope|causal|expert|moe|quant|swa|mask|projector|conv|kernel|gate|"
    r"selector|markov|parallel|shift|lora"
)
NEOX = "is_neox_style"  # if false, angles turn neighbouring dimensions; ours turn the halves
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


def layers_config(values: Mapping[str, Any], kind: str) -> LayerConfig:
    """The head's decoder layers, from a published configuration. Raises UsageError for layers that are neither Llama's
    nor Qwen3's, and for fields that change what these compute."""
    named = values.get("model_type") or "llama"
    if named not in _SIZES:
        raise UsageError(f"the head has layers of type {named!r}; this engine does llama and qwen3")
    model_type = "qwen3" if kind == "dflash" else named
    kept = {name: value for name, value in values.items() if name not in _NOT_THE_LAYERS}
    for name, value in kept.items():
        neutral = not value or (value == 1 and value is not True)
        if (name not in _OWN and _ARITHMETIC.search(name) and not neutral) or (name == NEOX and value is False):
            raise UsageError(f"the head's config.json sets {name} to {value!r}, which this engine does not do")
    rope = {name: kept[name] for name in ("rope_parameters", "rope_scaling", "rope_theta") if kept.get(name)}
    rope |= {name: _rope(value) for name, value in rope.items() if isinstance(value, Mapping)}
    sizes = {name: _size(name, kept.get(name), usual) for name, usual in (_ANY_SIZES | _SIZES[model_type]).items()}
    num_layers, num_heads = sizes["num_hidden_layers"], sizes["num_attention_heads"]
    num_kv_heads = _size("num_key_value_heads", kept.get("num_key_value_heads"), num_heads)
    if num_layers < 1 or num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
        raise UsageError(f"the head's {num_layers} layers of {num_heads} heads over {num_kv_heads} make no sense")
    types, window = _windows(values, model_type, num_layers, sizes.pop("max_window_layers"))
    sizes.setdefault("head_dim", _size("head_dim", kept.get("head_dim"), sizes["hidden_size"] // num_heads))
    return LayerConfig(
        model_type=model_type,
        num_key_value_heads=num_kv_heads,
        layer_types=types,
        sliding_window=window,
        hidden_act=str(kept.get("hidden_act") or "silu"),
        rms_norm_eps=float(kept.get("rms_norm_eps") or 1e-6),
        attention_bias=bool(kept.get("attention_bias")),
        mlp_bias=bool(kept.get("mlp_bias")),
        rope=rope,
        **sizes,
    )


def _size(name: str, value: Any, usual: int) -> int:
    """A size; null counts as absent."""
    if value is None:
        return usual
    if type(value) is not int:
        raise UsageError(f"the head's {name} is {value!r}; it must be a whole number")
    return value


def all_slide(values: Mapping[str, Any]) -> bool:
    """Whether a DFlash head's `use_swa` makes all of its layers slide (ModelOpt): none of `layer_types` does."""
    return bool((values.get("dflash_config") or {}).get("use_swa")) and SLIDING not in (values.get("layer_types") or ())


def _windows(
    values: Mapping[str, Any], model_type: str, num_layers: int, num_whole: int
) -> tuple[tuple[str, ...], int | None]:
    """The type of each layer, and the window of those that slide. `layer_types` decides, whatever use_sliding_window
    says; without it, Qwen3's use_sliding_window lets all but the first `num_whole` slide."""
    is_qwen3, flag, own = model_type == "qwen3", values.get("use_sliding_window"), values.get("dflash_config") or {}
    by_flag = is_qwen3 and bool(flag)
    name = "swa_window_size" if own.get("swa_window_size") else "sliding_window"
    window = own.get("swa_window_size") or values.get("sliding_window", 4096 if by_flag else None)
    types = tuple(values.get("layer_types") or ())
    if unknown := sorted({str(layer_type) for layer_type in types} - {FULL, SLIDING}):
        raise UsageError(f"the head has layers of type {unknown[0]!r}; this engine does {FULL} and {SLIDING}")
    if types and len(types) != num_layers:
        raise UsageError(f"the head's layer_types has {len(types)} entries for {num_layers} layers")
    if all_slide(values):
        types = (SLIDING,) * num_layers
    elif not types:
        first = num_whole if by_flag and window else num_layers
        types = tuple(SLIDING if i >= first else FULL for i in range(num_layers))
        if window and (flag or (is_qwen3 and flag is None)) and SLIDING not in types:
            raise UsageError(
                f"the head's {name} is {window!r}, but none of its {num_layers} layers slides: name in layer_types "
                "those that do, or set use_sliding_window to false"
            )
    if SLIDING in types and not (type(window) is int and window > 0):
        raise UsageError(f"the head has sliding layers, but their {name} is {window!r}")
    return types, window if SLIDING in types else None


def _rope(values: Mapping[str, Any]) -> dict[str, Any]:
    """One set of angles for all layers: of several, the sliding layers', as the speculators package trains. For text,
    mrope is plain RoPE: its three positions are equal."""
    for name in (SLIDING, FULL):
        if isinstance(values.get(name), Mapping):
            values = values[name]
            break
    rope = {name: value for name, value in values.items() if not name.startswith("mrope_")}
    kind = rope.pop("type", None)
    kind = rope.get("rope_type", kind) or "default"
    if kind not in ("mrope", *_FIXED_ROPE):
        raise UsageError(
            f"the head uses {kind} RoPE; this engine does {', '.join(_FIXED_ROPE)}, whose angles do not depend on "
            "the length so far"
        )
    if (share := rope.get("partial_rotary_factor")) not in (None, 1):
        raise UsageError(
            f"the head sets partial_rotary_factor to {share!r}; this engine rotates all of a head's dimensions"
        )
    rope["rope_type"] = "default" if kind == "mrope" else kind
    return rope
