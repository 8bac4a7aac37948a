"""What a model's published config.json reveals before a download: whether the fixed step can run it, and how much
memory it takes. Once the model is loaded `attention.shape_of` decides. Standard library only.

A configuration is a mapping, as in config.json or from transformers' `to_dict`; for multimodal models `text_config`
counts."""

import ast
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LINEAR = "linear_attention"
OWN_CODE = "it needs code of its own, which is never run here; choose one that transformers knows"
LAYER_TYPES = {"full_attention", "sliding_attention", LINEAR}
# Found in the names of architectures that write text, token by token.
WRITES = ("CausalLM", "LMHead", "ConditionalGeneration")
RECURRENT = ("conv_state", "recurrent_state", "ssm_state")  # in the source of models with recurrent layers
DELTA_RULE = "GatedDeltaNet"  # in the names of those recurrent layers of which some are done here
INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # in the source of models whose attention can be replaced
HEADS = ("num_attention_heads", "n_head", "n_heads")
# Types of text parts and the causal ones that compute the same: the three positions of a token are equal for text.
SAME_FOR_TEXT = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3"}
# Composite types of transformers that take no text without an image: their decoders could not be checked against them.
NEVER_ALONE = {"blip-2", "instructblip", "instructblipvideo"}
# RoPE whose angles depend on the length, and the field that says up to which length they do not.
MOVING_ROPES = {"dynamic": "max_position_embeddings"}
MOVING_ROPES |= dict.fromkeys(("longrope", "su"), "original_max_position_embeddings")
DEFAULT_WORDS = 262_208  # Gemma 3's, the one family whose published configurations omit the size of the vocabulary
STATE_BYTES = 4  # per number in the state of a linear layer: float32


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration. What a composite model's part leaves out is as in its type."""
    part = config.get("text_config")
    return {**_defaults(str(part.get("model_type"))), **part} if isinstance(part, Mapping) else config


def refusal(config: Mapping[str, Any]) -> str:
    """Why the fixed step cannot run such a model, as a continuation of "it"; "" if nothing speaks against it."""
    text, names = text_part(config), config.get("architectures") or ()
    if config.get("is_encoder_decoder"):
        return f"is an encoder with a decoder ({', '.join(names)}), no causal language model".replace(" ()", "")
    if names and not any(part in name for name in names for part in WRITES):
        return f"is no causal language model but {names[0]}"
    kind = config.get("model_type")
    types, known = {kind, text.get("model_type")} - {None}, _causal_types()
    if known and not types <= known and not causal_type(config):
        if config.get("auto_map"):
            return OWN_CODE.removeprefix("it ")
        what = f"{kind} ({names[0]})" if names else kind
        more = "; a text-only version of it would do" if config.get("text_config") else ""
        return f"is of type {what}, which transformers does not load as a causal language model{more}"
    if (code := _source(str(text.get("model_type")), "modeling")) and "Attention" not in code:
        return "has no attention, and this engine does no model without"
    if code and INTERFACE not in code:
        return "has an attention that does not go through transformers' attention interface, as this engine needs it"
    if not any(text.get(name) for name in HEADS):
        return f"does not say how many attention heads it has, in none of {', '.join(HEADS)}"
    if text.get("kv_lora_rank"):
        return "has latent attention (kv_lora_rank), which this engine does not do"
    if cap := text.get("attn_logit_softcapping"):
        return f"caps its attention scores (attn_logit_softcapping {cap:g}), which this engine does not do"
    by_layer = (text.get("per_layer_config") or {}).values()  # transformers' name for what Gemma 4 publishes as global
    sizes = {text.get("global_head_dim"), *(layer.get("head_dim") for layer in by_layer)} - {None, text.get("head_dim")}
    if sizes:
        return f"has attention heads of {text.get('head_dim')} and of {min(sizes)} values; this engine does one size"
    if unknown := set(text.get("layer_types") or ()) - LAYER_TYPES:
        return f"has layers of type {', '.join(sorted(unknown))}; this engine does {', '.join(sorted(LAYER_TYPES))}"
    if any(state in code for state in RECURRENT) and DELTA_RULE not in code:
        return "has recurrent layers that are no gated delta rule as in Qwen3.5, and this engine does no others"
    if unlimited := [kind for kind, limit in _moving_ropes(text).items() if not limit]:
        return f"uses {unlimited[0]} RoPE, and does not say up to which length its angles are fixed"
    return ""


def fixed_angles(config: Mapping[str, Any]) -> int | None:
    """Up to how many positions the angles of its RoPE do not depend on the length; None: always."""
    return min(_moving_ropes(text_part(config)).values(), default=None)


def _moving_ropes(text: Mapping[str, Any]) -> dict[str, int]:
    """Kinds of RoPE among MOVING_ROPES, and their limits, 0 if it is not stated."""
    ropes = text.get("rope_parameters") or text.get("rope_scaling") or {}
    parts = [part for part in ropes.values() if isinstance(part, Mapping)] or [ropes]
    kinds = {str(part.get("rope_type") or part.get("type")): part for part in parts}
    return {kind: part.get(name) or text.get(name) or 0 for kind, part in kinds.items()
            if (name := MOVING_ROPES.get(kind))}  # fmt: skip


def causal_type(config: Mapping[str, Any]) -> str:
    """The type of which a composite model's text part can be loaded by itself; "" if there is none, or no need."""
    known, kind = _causal_types(), str(text_part(config).get("model_type"))
    kind = SAME_FOR_TEXT.get(kind.removesuffix("_text"), kind)
    return kind if kind in known and config.get("model_type") not in known | NEVER_ALONE else ""


@cache
def _causal_types() -> frozenset[str]:
    """The model types that AutoModelForCausalLM loads, out of its source: importing the table imports torch."""
    for node in ast.parse(_source("auto", "modeling")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES":
            return frozenset(kind for kind, _ in ast.literal_eval(node.value.args[0]))  # type: ignore[attr-defined]
    return frozenset()


@cache
def _defaults(kind: str) -> Mapping[str, Any]:
    """The plain values of a model type's fields that a configuration need not state, as above."""
    for node in ast.parse(_source(kind, "configuration")).body:
        lines = node.body if isinstance(node, ast.ClassDef) else []
        if any(ast.unparse(line) == f"model_type = {kind!r}" for line in lines):
            fields = [line for line in lines if isinstance(line, ast.AnnAssign)]
            return {ast.unparse(f.target): f.value.value for f in fields if isinstance(f.value, ast.Constant)}
    return {}


@cache
def _source(kind: str, what: str) -> str:
    """transformers' module of that model type; "" if it is not there."""
    module, name = find_spec("transformers"), kind.replace("-", "_").removesuffix("_text")
    path = (
        Path(module.origin or "").parent / f"models/{name}/{what}_{name}.py" if module and name.isidentifier() else None
    )
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def quantised(config: Mapping[str, Any]) -> str:
    """Like `refusal`, for the weights: the fixed step may run such a model, but not in this quantisation."""
    how = config.get("quantization_config") or config.get("quantization")  # the second is MLX's
    if not how or stored_bits(config):
        return ""
    kind = ", ".join(filter(None, (how.get("quant_method"), how.get("format")))) or f"{how.get('bits')} bits"
    return f"has quantised weights ({kind}), which this engine does not read"


def stored_bits(config: Mapping[str, Any]) -> int:
    """The bits of a quantised weight where loading unpacks it: 4 for MXFP4, 8 for FP8; 0 for other weights."""
    how = config.get("quantization_config") or {}
    plain = (
        how.get("format") == "float-quantized" and not how.get("sparsity_config") and not how.get("transform_config")
    )
    kinds: dict[Any, int] = {"mxfp4": 4, "fp8": 8, "fbgemm_fp8": 8, "compressed-tensors": 8 if plain else 0}
    kinds["modelopt"] = 8 if how.get("quant_algo") == "FP8" else 0
    return kinds.get(how.get("quant_method"), 0)


def unpacking(config: Mapping[str, Any]) -> str:
    """What becomes of such weights, as a phrase without a verb; "" for others."""
    bits, how = stored_bits(config), config.get("quantization_config") or {}
    if not bits:
        return ""
    return f"weights of {bits} bits ({how['quant_method']}), unpacked here to 16 or more; a server keeps the {bits}"


def num_experts(text: Mapping[str, Any]) -> int:
    """Experts of a layer, of a language model's part of a configuration; 0 if it is no mixture."""
    return _size(text, "num_experts") or _size(text, "num_local_experts")


def num_parameters(config: Mapping[str, Any]) -> int:
    """Weights of the language model without norms and biases: within 0.5 % of transformers' count. 0 if the
    configuration has other names for its sizes."""
    text = text_part(config)
    hidden, types = text.get("hidden_size") or 0, _types(text)
    heads, kv_heads, head_dim = _heads(text)
    attention = hidden * head_dim * (heads * (3 if text.get("attn_output_gate") else 2) + 2 * kv_heads)
    keys, values = (
        _size(text, f"linear_num_{x}_heads") * _size(text, f"linear_{x}_head_dim") for x in ("key", "value")
    )
    linear = hidden * (2 * keys + 3 * values + 2 * _size(text, "linear_num_value_heads"))
    inner = _size(text, "intermediate_size")
    if experts := num_experts(text):
        inner = experts * (text.get("moe_intermediate_size") or inner)
    layers = sum(linear if kind == LINEAR else attention for kind in types)
    layers += len(types) * hidden * (3 * inner + experts)
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", True))
    return layers + hidden * text.get("vocab_size", DEFAULT_WORDS) * (1 if tied else 2)


def cache_bytes(config: Mapping[str, Any], length: int, num_states: int, size: int = 2) -> int:
    """Bytes of one sequence's cache, as `attention.caches` makes it: `length` columns of numbers of `size` bytes, and
    `num_states` states of every linear layer."""
    text = text_part(config)
    _, kv_heads, head_dim = _heads(text)
    keys, values = (_size(text, f"linear_{x}_head_dim") for x in ("key", "value"))
    state = _size(text, "linear_num_value_heads") * keys * values
    return sum(
        num_states * state * STATE_BYTES if kind == LINEAR else 2 * kv_heads * head_dim * length * size
        for kind in _types(text)
    )


def _types(text: Mapping[str, Any]) -> list[str]:
    return text.get("layer_types") or ["full_attention"] * _size(text, "num_hidden_layers")


def _heads(text: Mapping[str, Any]) -> tuple[int, int, int]:
    """Query heads, key-value heads, and values per head."""
    heads = _size(text, "num_attention_heads")
    head_dim = text.get("head_dim") or _size(text, "hidden_size") // max(heads, 1)
    return heads, text.get("num_key_value_heads") or heads, head_dim


def _size(text: Mapping[str, Any], name: str) -> int:
    return text.get(name) or 0
