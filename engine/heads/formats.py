"""From a published draft head's config.json to a `HeadSpec`.

Formats, recognised by the contents of config.json:

    speculators   `speculators_model_type` eagle3 or dflash (RedHatAI; vllm-project/speculators): aux ids index
                  transformers' `hidden_states`
    z-lab         `dflash_config`, or the architecture DFlashDraftModel (the DFlash authors, SpecForge):
                  `target_layer_ids` are layer outputs, index = id + 1
    original      an Eagle3 architecture, or LlamaForCausalLM with a `draft_vocab_size` (EAGLE-3 as its authors,
                  SpecForge, DeepSpec and NVIDIA write it): `midlayer.` is `layers.0.`, `model.` may be in front; ids in
                  `eagle_config` and `target_layer_ids` are layer outputs, others indices, as in vLLM
"""

from collections.abc import Mapping
from typing import Any

from ..core.errors import UsageError, in_a_line
from .fields import DFLASH_CONFIG, EAGLE_CONFIG, SPECULATORS, USUAL, all_slide, check_fields, layers_config
from .head_spec import KINDS, SLIDING, HeadSpec
from .names import SHIPPED, HeadName

DFLASH = "DFlashDraftModel"


class NoHeadError(UsageError):
    """A configuration of no draft head that this engine knows."""


def spec_of(
    config: Mapping[str, Any], name: str, kind: str, num_target_layers: int, given: HeadName = SHIPPED
) -> HeadSpec:
    """The spec of the head `name`.

    config: its config.json.
    kind: eagle3 or dflash.
    given: its name's options, which override that.

    Raises UsageError if this describes no head of that kind, or makes no sense."""
    try:
        spec = _spec(config, num_target_layers, given)
    except UsageError:
        raise
    except Exception as error:  # a configuration from anywhere may be wrong in any way
        raise UsageError(f"the head's config.json in {name!r} is not understood: {in_a_line(error)}") from error
    if spec.kind != kind:
        raise UsageError(f"the head in {name!r} is of kind {spec.kind}; ask for it as {spec.kind}:..., not {kind}:...")
    if bad := [i for i in spec.hidden_layers if not 0 <= i <= num_target_layers]:
        raise UsageError(
            f"the head reads hidden state {bad[0]} of its target, which has 0 to {num_target_layers}; give other "
            "indices after #aux="
        )
    return spec


def _spec(config: Mapping[str, Any], num_target_layers: int, given: HeadName) -> HeadSpec:
    default = (2, num_target_layers // 2, num_target_layers - 3)
    names = list(config.get("architectures") or ())
    if config.get("speculators_model_type") is not None:
        return _speculators(config, default, given)
    if "dflash_config" in config or any("DFlash" in name for name in names):
        if names and DFLASH not in names:
            raise NoHeadError(
                f"a head of architecture {names[0]} is not supported; of its kin this engine does {DFLASH}"
            )
        return _zlab(config, given)
    if not any("agle3" in name for name in names) and not (
        "draft_vocab_size" in config and names in ([], ["LlamaForCausalLM"])
    ):
        raise NoHeadError(
            "this config.json describes no draft head that this engine knows: neither speculators_model_type, nor "
            "dflash_config, nor an Eagle3 architecture (heads of EAGLE-1 and -2, Medusa and MTP are not read)"
        )
    own = config.get("eagle_config") or {}
    check_fields("eagle_config", own, EAGLE_CONFIG)
    outputs = own.get("eagle_aux_hidden_state_layer_ids") or config.get("target_layer_ids")
    ids = _integers(config.get("eagle_aux_hidden_state_layer_ids")) or tuple(i + 1 for i in _integers(outputs))
    layers = {**config}
    if any("Llama" in name for name in names):  # the architecture determines its layers
        layers["model_type"] = "llama"
    if names == ["LlamaForCausalLM"]:  # one, whatever a configuration copied from the target says
        layers["num_hidden_layers"] = 1
    flags = {**config, **{name: own[name] for name in ("norm_before_fc",) if name in own}}
    return _eagle3(layers, flags, given.aux or ids or default)


def _speculators(config: Mapping[str, Any], default: tuple[int, ...], given: HeadName) -> HeadSpec:
    kind = config["speculators_model_type"]
    if kind not in KINDS:
        raise NoHeadError(f"a speculators head of type {kind!r} is not supported; choose one of: {', '.join(KINDS)}")
    check_fields("config.json", {name: value for name, value in config.items() if name not in USUAL}, SPECULATORS)
    stated = (_integers(config.get(f"{prefix}aux_hidden_state_layer_ids")) for prefix in ("eagle_", ""))
    ids = given.aux or next(filter(None, stated), default)
    layers = config["transformer_layer_config"]
    if kind == "eagle3":
        return _eagle3(layers, config, ids)
    anchored = bool(config.get("sample_from_anchor"))
    more = {"block_size": config["block_size"], "window_from_block": True, "sample_from_anchor": anchored}
    return _dflash(layers, config, ids, given.causal, bool(config.get("sliding_window_non_causal")), **more)


def _zlab(config: Mapping[str, Any], given: HeadName) -> HeadSpec:
    own = config.get("dflash_config") or {}
    check_fields("dflash_config", own, DFLASH_CONFIG)
    values = {**config, **own}
    ids = given.aux or tuple(i + 1 for i in _integers(values.get("target_layer_ids")))
    if not ids:
        raise UsageError(
            "the head's config.json names no target_layer_ids; give the hidden states it reads after #aux="
        )
    causal = (given.causal, config.get("is_causal"), own.get("causal"))
    return _dflash(
        config,
        values,
        ids,
        next((said for said in causal if said is not None), None),
        all_slide(config),
        block_size=values.get("block_size", 16),
        sample_from_anchor=bool(values.get("sample_from_anchor") or values.get("query_zero_predicts_next")),
        embedding_scale=float(values.get("input_embedding_scale") or 1),
        logit_scale=float(values.get("output_multiplier") or 1),
        softcap=float(values.get("final_logit_softcapping") or 0) or None,
    )


def _eagle3(layers: Mapping[str, Any], flags: Mapping[str, Any], ids: tuple[int, ...]) -> HeadSpec:
    config = layers_config(layers, "eagle3")
    names = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    given: Any = {name: bool(flags.get(name)) for name in names}
    return HeadSpec("eagle3", config, ids, **given, **_words(layers, flags))


def _words(layers: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """The fields of a HeadSpec about vocabularies."""
    tied = values.get("tie_word_embeddings") is True
    sizes = {"draft_vocab_size": values.get("draft_vocab_size"), "vocab_size": layers.get("vocab_size")}
    return {**sizes, "tied_output": tied}


def _dflash(
    layers: Mapping[str, Any],
    values: Mapping[str, Any],
    ids: tuple[int, ...],
    causal: bool | None,
    sliding_non_causal: bool = False,
    **more: Any,
) -> HeadSpec:
    """Full-attention layers are bidirectional in the block, sliding ones causal, unless that is overridden."""
    config = layers_config(layers, "dflash")
    types, mask = config.layer_types, values.get("mask_token_id")
    for name, value in (("mask_token_id", mask), ("block_size", more["block_size"])):
        if type(value) is not int:
            raise UsageError(f"the head's {name} is {value!r}; it must be a whole number")
    usual = (kind == SLIDING and not sliding_non_causal for kind in types)
    within = tuple(usual if causal is None else (bool(causal) for _ in types))
    more |= {"mask_token_id": int(mask or 0), "causal": within}
    return HeadSpec("dflash", config, ids, **more, **_words(layers, values))


def _integers(values: Any) -> tuple[int, ...]:
    values = tuple(values or ())
    if any(type(i) is not int for i in values):
        raise UsageError(f"the head's layer ids {list(values)} are not whole numbers")
    return values
